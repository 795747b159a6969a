"""The messages of querier.v1 and types.v1 that are used: names and numbers of fields as in the API's definition
(grafana/pyroscope, api/querier/v1/querier.proto and api/types/v1/types.proto). Fields that are not here are ignored."""

from __future__ import annotations

from streamer.exports.protos import messages

_RANGE = {"start": (3, "int64"), "end": (4, "int64")}  # ms since the epoch
_SELECT = {"profile_typeID": (1, "string"), "label_selector": (2, "string"), **_RANGE}

MESSAGES = messages(
    "querier.v1",
    {
        "ProfileTypesRequest": {"start": (1, "int64"), "end": (2, "int64")},
        "ProfileTypesResponse": {"profile_types": (1, "ProfileType[]")},
        "ProfileType": {
            "ID": (1, "string"), "name": (2, "string"), "sample_type": (4, "string"), "sample_unit": (5, "string"),
            "period_type": (6, "string"), "period_unit": (7, "string"),
        },
        "LabelNamesRequest": {"matchers": (1, "string[]"), "start": (2, "int64"), "end": (3, "int64")},
        "LabelNamesResponse": {"names": (1, "string[]")},
        "LabelValuesRequest": {"name": (1, "string"), "matchers": (2, "string[]"), **_RANGE},
        "LabelValuesResponse": {"names": (1, "string[]")},
        "SeriesRequest": {"matchers": (1, "string[]"), "label_names": (2, "string[]"), **_RANGE},
        "SeriesResponse": {"labels_set": (2, "Labels[]")},
        "Labels": {"labels": (1, "LabelPair[]")},
        "LabelPair": {"name": (1, "string"), "value": (2, "string")},
        "SelectMergeStacktracesRequest": {**_SELECT, "max_nodes": (5, "int64?")},
        "SelectMergeStacktracesResponse": {"flamegraph": (1, "FlameGraph")},
        "FlameGraph": {
            "names": (1, "string[]"), "levels": (2, "Level[]"), "total": (3, "int64"), "max_self": (4, "int64"),
        },
        "Level": {"values": (1, "int64[]")},
        "SelectSeriesRequest": {
            **_SELECT, "group_by": (5, "string[]"), "step": (6, "double"), "aggregation": (7, "int32?"),
            "limit": (9, "int64?"),
        },
        "SelectSeriesResponse": {"series": (1, "Series[]")},
        "Series": {"labels": (1, "LabelPair[]"), "points": (2, "Point[]")},
        "Point": {"value": (1, "double"), "timestamp": (2, "int64")},
    },
)  # fmt: skip

PUSH = messages(
    "push.v1",
    {
        "PushRequest": {"series": (1, "RawProfileSeries[]")},
        "RawProfileSeries": {"labels": (1, "LabelPair[]"), "samples": (2, "RawSample[]")},
        "RawSample": {"raw_profile": (1, "bytes"), "ID": (2, "string")},
        "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    },
)
"""api/push/v1/push.proto."""

"""A tree as OpenTelemetry's ProfilesData (profiles/v1development/profiles.proto: names and numbers of fields, as of the
package opentelemetry-proto 1.45). That protocol is in development and may change: so the format is experimental.

A profile has values of one kind, so each weight is a profile; all share a dictionary, of which each table's first entry
is empty. A stack is written out innermost frame first; the thread is an attribute of the sample.
"""

from __future__ import annotations

import numpy as np

from stages.cct.tree import Tree, thread_name
from streamer.exports.pprof import UNITS
from streamer.exports.protos import messages
from streamer.trees.weights import weights

TABLE = {
    "ProfilesData": {"resource_profiles": (1, "ResourceProfiles[]"), "dictionary": (2, "ProfilesDictionary")},
    "ProfilesDictionary": {
        "mapping_table": (1, "Mapping[]"), "location_table": (2, "Location[]"), "function_table": (3, "Function[]"),
        "link_table": (4, "Link[]"), "string_table": (5, "string[]"), "attribute_table": (6, "KeyValueAndUnit[]"),
        "stack_table": (7, "Stack[]"),
    },
    "ResourceProfiles": {"resource": (1, "Resource"), "scope_profiles": (2, "ScopeProfiles[]")},
    "Resource": {"attributes": (1, "KeyValue[]")},
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "AnyValue": {"string_value": (1, "string?"), "int_value": (3, "int64?")},
    "ScopeProfiles": {"scope": (1, "InstrumentationScope"), "profiles": (2, "Profile[]")},
    "InstrumentationScope": {"name": (1, "string")},
    "Profile": {
        "sample_type": (1, "ValueType"), "samples": (2, "Sample[]"), "time_unix_nano": (3, "fixed64"),
        "duration_nano": (4, "uint64"), "profile_id": (7, "bytes"),
    },
    "ValueType": {"type_strindex": (1, "int32"), "unit_strindex": (2, "int32")},
    "Sample": {"stack_index": (1, "int32"), "attribute_indices": (2, "int32[]"), "values": (4, "int64[]")},
    "Mapping": {"filename_strindex": (4, "int32")},
    "Stack": {"location_indices": (1, "int32[]")},
    "Location": {"mapping_index": (1, "int32"), "lines": (3, "Line[]")},
    "Line": {"function_index": (1, "int32")},
    "Function": {"name_strindex": (1, "int32"), "system_name_strindex": (2, "int32")},
    "KeyValueAndUnit": {"key_strindex": (1, "int32"), "value": (2, "AnyValue")},
    "Link": {"trace_id": (1, "bytes"), "span_id": (2, "bytes")},
}  # fmt: skip
_CLASS = messages("streamer.otlp", TABLE)


def profile(tree: Tree, observed: bool, hz: float, host: str = "", pid: int = 0) -> bytes:
    """`tree`: threads apart, or not; a root is a thread, and no frame."""
    out = _CLASS["ProfilesData"]()
    d = out.dictionary
    numbers: dict[str, int] = {}

    def text(value: str) -> int:
        return numbers.setdefault(value, len(numbers))

    text("")
    for table in (d.mapping_table, d.location_table, d.function_table, d.link_table, d.attribute_table, d.stack_table):
        table.add()
    d.mapping_table.add(filename_strindex=text("JVM"))
    for name in tree.names:
        number = text(name)
        d.function_table.add(name_strindex=number, system_name_strindex=number)
        d.location_table.add(mapping_index=1).lines.add(function_index=len(d.function_table) - 1)
    resource = out.resource_profiles.add()
    for key, value in (("host.name", host), ("process.pid", pid), ("telemetry.sdk.language", "java")):
        if value:
            kind = {"int_value": value} if isinstance(value, int) else {"string_value": value}
            resource.resource.attributes.add(key=key).value.CopyFrom(_CLASS["AnyValue"](**kind))
    scope = resource.scope_profiles.add()
    scope.scope.name = "jvm-trace-streamer"
    own = {name: weights(tree, name, observed).astype(np.float64) for name in UNITS}
    own["time"] *= 1e9 / hz
    used = np.flatnonzero((np.stack(list(own.values())) >= 0.5).any(axis=0) & (tree.nodes["parent"] >= 0))
    attribute: dict[int | str, int] = {}
    parents, methods, bcis = (tree.nodes[name].tolist() for name in ("parent", "method", "bci"))
    samples: list[tuple[int, int, list[int]]] = []  # node, stack, attributes
    for node in used.tolist():
        frames, at = [], node
        while parents[at] >= 0:
            frames.append(methods[at] + 1)
            at = parents[at]
        d.stack_table.add(location_indices=frames)
        told: list[int | str] = [bcis[at]] if bcis[at] >= 0 else []
        told += [called] if (called := thread_name(tree.names[methods[at]])) else []
        for value in told:
            if value not in attribute:
                attribute[value] = len(d.attribute_table)
                if isinstance(value, int):
                    d.attribute_table.add(key_strindex=text("thread.id")).value.int_value = value
                else:
                    d.attribute_table.add(key_strindex=text("thread.name")).value.string_value = value
        samples.append((node, len(d.stack_table) - 1, [attribute[value] for value in told]))
    for number, (name, unit) in enumerate(UNITS.items()):
        made = scope.profiles.add(profile_id=bytes([0] * 15 + [number + 1]))
        made.sample_type.type_strindex, made.sample_type.unit_strindex = text(name), text(unit)
        for node, stack, attributes in samples:
            value = round(float(own[name][node]))
            if value:
                made.samples.add(stack_index=stack, attribute_indices=attributes, values=[value])
    d.string_table.extend(numbers)
    return bytes(out.SerializeToString(deterministic=True))

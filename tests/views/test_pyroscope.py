"""Pyroscope's API, with requests as Grafana's data source makes them: the Connect protocol, in both encodings."""

from __future__ import annotations

import bisect
import json
import re
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from streamer.views.pyroscope.schema import MESSAGES
from streamer.views.pyroscope.selector import Selector
from tests.hub.reports import HOST, PID
from tests.views.made import BEFORE, NOW, large
from tests.views.test_flame import client, seen

INSTRUCTIONS = "jvm:instructions:count:trace:nanoseconds"
TIME = "jvm:time:nanoseconds:trace:nanoseconds"
KINDS = ["application/json", "application/proto"]


async def call(http: httpx.AsyncClient, method: str, asked: dict[str, Any], kind: str = KINDS[1]) -> Any:
    """The answer as a message, whatever the encoding."""
    message = ParseDict(asked, MESSAGES[f"{method}Request"]())
    body = message.SerializeToString() if kind == KINDS[1] else json.dumps(asked).encode()
    headers = {"Content-Type": kind, "Connect-Protocol-Version": "1"}
    answer = await http.post(f"/querier.v1.QuerierService/{method}", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    told = MESSAGES[f"{method}Response"]
    return told.FromString(answer.content) if kind == KINDS[1] else ParseDict(answer.json(), told())


def stacks(flamegraph: Any) -> dict[str, int]:
    """Own weight by stack: offsets are from the end of the frame before; a frame's caller is the last that begins at or
    before it."""
    begins: list[list[int]] = []
    names: list[list[str]] = []
    out: dict[str, int] = {}
    for depth, level in enumerate(flamegraph.levels):
        at, row, label = 0, [], []
        values = list(level.values)
        for offset, total, own, name in zip(*(values[k::4] for k in range(4)), strict=True):
            at += offset
            above = ""
            if depth:
                up = bisect.bisect_right(begins[-1], at) - 1
                above = names[-1][up]
            row.append(at)
            label.append(f"{above}/{flamegraph.names[name]}".removeprefix("/total").removeprefix("/"))
            if own:
                out[label[-1]] = own
            at += total
        begins.append(row)
        names.append(label)
    return out


@pytest.mark.parametrize("kind", KINDS)
async def test_types_labels_and_series(kind: str) -> None:
    async with client(seen()) as http:
        types = await call(http, "ProfileTypes", {"start": 1, "end": 2}, kind)
        assert [t.ID for t in types.profile_types] == [
            INSTRUCTIONS, TIME, "jvm:invocations:count:trace:nanoseconds", "jvm:bytecodes:count:trace:nanoseconds",
        ]  # fmt: skip
        asked = {"matchers": ["{}"], "start": 1, "end": 2}
        assert list((await call(http, "LabelNames", asked, kind)).names) == ["host", "pid", "service_name"]
        values = await call(http, "LabelValues", {"name": "service_name", **asked}, kind)
        assert list(values.names) == [f"{HOST}/{PID}"]
        assert list((await call(http, "LabelValues", {"name": "pod", **asked}, kind)).names) == []
        none = await call(http, "LabelValues", {"name": "pid", "matchers": ['{host="other"}']}, kind)
        assert list(none.names) == []
        series = await call(http, "Series", {**asked, "label_names": ["pid", "host"]}, kind)
        assert [[(p.name, p.value) for p in s.labels] for s in series.labels_set] == [
            [("host", HOST), ("pid", str(PID))]
        ]


@pytest.mark.parametrize("kind", KINDS)
async def test_stacks_of_a_time_range(kind: str) -> None:
    hub = seen()
    ends = {pane: 1000 * hub.pane_end((HOST, PID), pane) for pane in (49, 59)}
    assert ends[59] - ends[49] == pytest.approx(10_000)
    asked = {"profile_typeID": INSTRUCTIONS, "label_selector": f'{{pid="{PID}"}}'}
    async with client(hub) as http:
        whole = await call(http, "SelectMergeStacktraces", asked, kind)
        expected = {path: 1000 * (50 * BEFORE.get(path, 0) + 10 * NOW[path]) for path in NOW}
        expected["org.apache.fop.cli.Main.main/org.apache.fop.area.PageSequence.layout/"
                 "org.apache.fop.fonts.GlyphTable.lookup"] += 900_000  # fmt: skip
        expected["app.Worker.run"] = 50_000
        assert stacks(whole.flamegraph) == {path: n for path, n in expected.items() if n}
        assert whole.flamegraph.total == sum(expected.values())
        assert whole.flamegraph.max_self == max(expected.values())
        recent = {**asked, "start": round(ends[49] + 500), "end": round(ends[59] + 500)}
        part = await call(http, "SelectMergeStacktraces", recent, kind)
        assert part.flamegraph.total == 1000 * (10 * (sum(NOW.values()) + 90) + 50)
        other = {**asked, "label_selector": '{pid!="7"}'}
        assert (await call(http, "SelectMergeStacktraces", other, kind)).flamegraph.total == 0
        spent = await call(http, "SelectMergeStacktraces", {**asked, "profile_typeID": TIME}, kind)
        assert spent.flamegraph.total == whole.flamegraph.total // 2  # two ticks a nanosecond


async def test_a_large_tree_is_cut_to_the_nodes_asked_for() -> None:
    hub = seen()
    hub.trees.feed(large(20_000, 59))
    async with client(hub) as http:
        asked = {"profile_typeID": TIME, "label_selector": "{}", "max_nodes": 500}
        told = (await call(http, "SelectMergeStacktraces", {**asked, "profile_typeID": INSTRUCTIONS})).flamegraph
        frames = sum(len(level.values) // 4 for level in told.levels)
        assert 400 < frames < 1100  # with what is left out of each
        assert sum(stacks(told).values()) == told.total == told.levels[0].values[1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_series_over_time(kind: str) -> None:
    hub = seen()
    asked = {"profile_typeID": INSTRUCTIONS, "label_selector": "{}", "step": 1.0, "group_by": ["pid"]}
    async with client(hub) as http:
        told = await call(http, "SelectSeries", asked, kind)
        (series,) = told.series
        assert [(p.name, p.value) for p in series.labels] == [("pid", str(PID))]
        whole = 1000 * (50 * sum(BEFORE.values()) + 10 * (sum(NOW.values()) + 90) + 50)
        assert sum(p.value for p in series.points) == pytest.approx(whole)
        assert series.points[0].value == pytest.approx(1000 * sum(BEFORE.values()))
        coarse = await call(http, "SelectSeries", {**asked, "step": 30.0}, kind)
        assert 2 <= len(coarse.series[0].points) <= 3
        assert all(p.timestamp % 30_000 == 0 for p in coarse.series[0].points)


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("SelectMergeStacktraces", {"profile_typeID": "memory"}),
        ("SelectMergeStacktraces", {"profile_typeID": TIME, "label_selector": '{pid="7'}),
        ("SelectSeries", {"profile_typeID": TIME, "step": 0.0}),
        ("SelectSeries", {"profile_typeID": TIME, "step": "NaN"}),
        ("SelectSeries", {"profile_typeID": TIME, "step": 1e-300}),
        ("SelectSeries", {"profile_typeID": TIME, "step": 1.0, "group_by": [""] * 100}),
        ("LabelNames", {"matchers": ['{pid="7"}'] * 100}),
        ("LabelNames", {"matchers": ['{host=~"(a+)+$"}']}),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_wrong_questions_get_a_code_and_a_reason(method: str, asked: dict[str, Any], kind: str) -> None:
    message = ParseDict(asked, MESSAGES[f"{method}Request"]())
    body = message.SerializeToString() if kind == KINDS[1] else json.dumps(asked).encode()
    async with client(seen()) as http:
        answer = await http.post(f"/querier.v1.QuerierService/{method}", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
        assert answer.json()["message"]


async def test_bytes_that_are_no_message() -> None:
    async with client(seen()) as http:
        for kind, body in ((KINDS[0], b"{"), (KINDS[0], b"[" * 5000), (KINDS[1], b"\x0a\xff"), (KINDS[0], b"\xff")):
            answer = await http.post(
                "/querier.v1.QuerierService/ProfileTypes", content=body, headers={"Content-Type": kind}
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")
        form = await http.post("/querier.v1.QuerierService/ProfileTypes", data={"a": "b"})
        assert form.status_code == 415
        other = await http.post("/querier.v1.QuerierService/Diff", content=b"", headers={"Content-Type": KINDS[1]})
        assert (other.status_code, other.json()["code"]) == (404, "unimplemented")


LABELS = {"service_name": "h/7", "host": "h", "pid": "7"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True), ("{}", True), ('{pid="7"}', True), ('{pid="7", host!="h"}', False), ('{pid=~"6|7"}', True),
        ('{pid=~"(6|8)"}', False), ('{host=~".*"}', True), ('{other=~".+"}', False), ('{other=""}', True),
        ('{service_name=~"h/.+", pid!~"8.*"}', True), ('{service_name=~"^h\\\\/7$"}', True), ('{host=~"h.+"}', False),
    ],
)  # fmt: skip
def test_selectors(text: str, matches: bool) -> None:
    assert Selector(text)(LABELS) is matches


@given(st.lists(st.sampled_from(["a", "b", ".*", ".+", "ab"]), max_size=6), st.text("ab", max_size=8))
def test_patterns_match_what_a_regular_expression_does(parts: list[str], value: str) -> None:
    pattern = "".join(parts)
    assert Selector(f'{{x=~"{pattern}"}}')({"x": value}) is (re.fullmatch(pattern, value) is not None)


def test_a_pattern_that_would_keep_a_backtracking_matcher_for_years_is_answered() -> None:
    assert not Selector('{x=~"' + ".*a" * 250 + '"}')({"x": "a" * 400 + "b"})

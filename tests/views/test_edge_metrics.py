"""Call edges and movers as Prometheus sees them."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from streamer.hub.edges import MATRIX, MOST, SIDES, Edges
from streamer.hub.profile import OTHER
from streamer.hub.trees import Trees
from streamer.views.matrix import cells
from streamer.views.metrics import registry
from streamer.views.summary import figures, render
from tests.hub.reports import HOST, PID
from tests.hub.scene import scene
from tests.views.made import BEFORE, NOW, SUSPECT, large, tree
from tests.views.test_flame import client, seen

GLYPH = "org.apache.fop.fonts.GlyphTable.lookup"
LAYOUT = "org.apache.fop.area.PageSequence.layout"


def test_an_edge_is_what_the_callee_itself_spent_when_called_from_there() -> None:
    edges = Edges(10)
    edges.feed(tree(5, NOW, SUSPECT))
    edges.feed(tree(5, {"app.Worker.run": 50}, tid=8))
    told = edges.window((HOST, PID))
    assert told["instructions"][LAYOUT, GLYPH] == 1000 * (220 + 90)
    assert told["invocations"][LAYOUT, GLYPH] == 100 * (220 + 90)
    assert told["instructions"]["[thread]", "app.Worker.run"] == 50_000
    assert told["ticks"].total() == 1000 * (sum(NOW.values()) + 90 + 50)


def test_edges_leave_with_their_window_and_their_process() -> None:
    edges = Edges(10)
    for pane in range(100):
        edges.feed(tree(pane, BEFORE))
    assert edges.window((HOST, PID))["instructions"].total() == 10_000 * sum(BEFORE.values())
    edges.feed(tree(80, BEFORE))  # late for the window
    assert edges.window((HOST, PID))["instructions"].total() == 10_000 * sum(BEFORE.values())
    trees = Trees(100)
    trees.feed(tree(1, BEFORE))
    trees.forget((HOST, PID))
    assert not trees.edges.window((HOST, PID))["ticks"]


def test_the_heaviest_edges_are_kept_and_the_sum_of_the_others() -> None:
    report = large(50_000)
    rows = report.nodes[report.nodes["parent"] >= 0]
    exact: Counter[tuple[str, str]] = Counter()
    for parent, method, spent in rows[["parent", "method", "observed_instructions"]].tolist():
        exact[report.names[report.nodes["method"][parent]], report.names[method]] += spent
    edges = Edges(10)
    edges.feed(report)
    told = edges.window((report.host, report.pid))["instructions"]
    assert len(told) == MOST + 1 < len(exact)
    assert told.total() == exact.total()
    assert [n for _, n in told.most_common(101)[1:]] == [n for _, n in exact.most_common(100)]
    assert told[OTHER, OTHER] == exact.total() - sum(n for _, n in exact.most_common(MOST))


def test_the_number_of_series_is_bounded() -> None:
    hub = seen()
    few = {(f.name, len(f.samples)) for f in registry(hub).collect() if "edge" in f.name}
    hub.trees.feed(large(50_000, 59))
    many = {f.name: f.samples for f in registry(hub).collect() if "edge" in f.name}
    top = hub.config.exported
    assert dict(few)["streamer_call_edge_share_ratio"] < 2 * (top + 1)
    by_weight = Counter(s.labels["weight"] for s in many["streamer_call_edge_share_ratio"])
    assert (by_weight["instructions"], by_weight["time"] <= top + 1) == (top + 1, True)
    calls = {(s.labels["caller"], s.labels["callee"]): s.value for s in many["streamer_call_edge_invocations"]}
    every = hub.trees.edges.window((HOST, PID))["invocations"]
    assert sum(calls.values()) == every.total()
    del calls[OTHER, OTHER], every[OTHER, OTHER]
    assert sorted(calls.values()) == sorted(n for _, n in every.most_common(top) if n)
    for weight in ("instructions", "time"):
        shares = [s.value for s in many["streamer_call_edge_share_ratio"] if s.labels["weight"] == weight]
        assert sum(shares) == pytest.approx(1)


def test_movers_have_their_shares_now_and_before() -> None:
    hub, _ = scene()
    own = registry(hub)
    labels = {"host": HOST, "pid": str(PID), "method": "org.apache.fop.pdf.PDFStream.deflate"}
    now, before = (
        own.get_sample_value("streamer_shift_mover_share_ratio", {**labels, "when": when}) for when in ("now", "before")
    )
    assert now == pytest.approx(500 / 910)
    assert before == 0


async def test_calls_between_application_and_jdk_are_four_numbers() -> None:
    """Of the window in metrics and `/api`, of the whole run in the summary."""
    hub = seen()
    stack = "app.Worker.run/java.util.ArrayList.add/java.util.Arrays.copyOf"
    report = tree(59, {"app.Worker.run": 2, "app.Worker.run/java.util.ArrayList.add": 3, stack: 4}, pid=77)
    hub.trees.feed(report)
    expected = {"application": {"application": 0, "jdk": 300}, "jdk": {"application": 0, "jdk": 400}}
    assert cells(hub.trees.edges.window((HOST, 77))[MATRIX]) == expected
    window = next(iter(hub.windows))
    every = hub.trees.edges.window((HOST, PID))[MATRIX]
    for caller, callee in product(SIDES, SIDES):
        labels = {"host": HOST, "pid": str(PID), "window": window, "caller": caller, "callee": callee}
        assert registry(hub).get_sample_value("streamer_call_matrix_invocations", labels) == every[caller, callee]
    async with client(hub) as asked:
        told = (await asked.get("/api/matrix", params={"host": HOST, "pid": PID})).json()
    assert told == {"window": window, "calls": cells(every)}
    assert every["application", "application"] > 0 < every["application", "jdk"]
    whole = figures(hub)["calls"]
    assert whole["jdk"]["jdk"] >= 400 + every["jdk", "jdk"]
    assert "application → jdk" in render(hub)

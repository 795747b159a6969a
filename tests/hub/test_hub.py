from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.messages import Clock, CodeKind, Loss, PaneReport, TreeReport
from stages.messages.trees import TREE_DTYPE
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from streamer.hub.view import HotView, window_label
from streamer.views import summary
from tests.growth import grown, sizes
from tests.hub.reports import HOST, PID, Time, account, report, stream


def make(**options: Any) -> tuple[Hub, Time]:
    clock = Time()
    return Hub(WindowConfig(pane_seconds=1), now=clock, wall_ns=clock.ns, **options), clock


def shares(view: HotView) -> dict[str, float]:
    return {m.method: m.share for m in view.methods}


def test_one_worker() -> None:
    hub, _ = make()
    assert hub.ready() == ["no pane has closed yet"]
    hub.feed(report(100, {"A.a": 30, "A.b": 10}))
    assert hub.ready() == []
    hub.feed(report(101, {"A.b": 20, "A.a": 20}))
    view = hub.hot("10s")
    assert shares(view) == {"A.a": 50 / 80, "A.b": 30 / 80}
    assert (view.total, view.other, view.weight) == (80, 0, "hits")
    assert view.methods[0].kinds == {"c2": 1.0}


def test_a_pane_waits_for_all_workers_but_not_for_ever() -> None:
    hub, clock = make()
    hub.feed(report(1, {"A.a": 1}, worker=0, closed=False))
    hub.feed(report(1, {"A.a": 1}, worker=1, closed=False))
    hub.feed(report(1, {"A.a": 1}, worker=0))
    assert hub.hot().total == 0
    hub.feed(report(1, {"A.b": 1}, worker=1))
    assert hub.hot().total == 4
    hub.feed(report(2, {"A.a": 5}, worker=0))
    assert hub.hot().total == 4
    clock.seconds += 0.5
    assert hub.hot().total == 9
    hub.feed(report(2, {"A.a": 7}, worker=1))
    assert hub.hot().total == 16
    assert hub.hot().processes[0].late == 1


def test_a_restarted_worker_numbers_methods_anew() -> None:
    hub, _ = make()
    hub.feed(report(1, {"A.a": 1, "A.b": 2}))
    hub.feed(report(2, {"A.b": 4, "A.a": 8}))
    assert {m.method: m.weight for m in hub.hot().methods} == {"A.a": 9, "A.b": 6}


def test_top_and_other() -> None:
    hub, _ = make()
    hub.feed(report(1, {f"A.m{i}": i for i in range(1, 51)}))
    view = hub.hot(top=5)
    assert [m.method for m in view.methods] == [f"A.m{i}" for i in (50, 49, 48, 47, 46)]
    assert sum(m.share for m in view.methods) + view.other == pytest.approx(1)
    assert len(hub.hot().methods) == 20


@given(
    st.dictionaries(st.sampled_from(["other", *(f"A.m{i}" for i in range(12))]), st.integers(0, 4)), st.integers(0, 14)
)
def test_the_heaviest_come_first_and_equal_ones_by_name(hits: dict[str, int], top: int) -> None:
    hub, _ = make()
    hub.feed(report(1, hits))
    expected = sorted((-n, name) for name, n in hits.items() if n and name != "other")[:top]
    view = hub.hot(top=top)
    assert [(-m.weight, m.method) for m in view.methods] == expected
    assert view.total == sum(hits.values())


def test_processes_are_kept_apart_and_can_be_seen_together() -> None:
    hub, _ = make()
    hub.feed(report(1, {"A.a": 30}, pid=7))
    hub.feed(report(900, {"A.b": 10, "A.a": 60}, pid=8))
    assert shares(hub.hot(process=(HOST, 7))) == {"A.a": 1}
    assert shares(hub.hot(process=(HOST, 8))) == {"A.a": 6 / 7, "A.b": 1 / 7}
    assert shares(hub.hot()) == {"A.a": 0.9, "A.b": 0.1}


def test_a_silent_process_leaves_the_windows_but_not_the_run() -> None:
    hub, clock = make()
    hub.feed(report(1, {"A.a": 30}, accounts=(account(0, 10),)))
    clock.seconds += 11
    assert hub.hot("10s").methods == ()
    assert hub.hot("10s").coverage.bytes == 0
    assert hub.hot("1m").total == 30
    assert hub.hot(whole_run=True).total == 30
    assert hub.hot("1m").processes[0].live
    clock.seconds += 300
    assert not hub.hot("5m").processes[0].live


def test_flow_has_three_weights() -> None:
    hub, _ = make(fidelity="flow")
    hub.feed(report(1, {"A.c": 5}, column="bytecodes", kind=CodeKind.INTERPRETED, closed=False))
    hub.feed(report(1, {"A.a": 30}, column="instructions", closed=False))
    hub.feed(report(1, {"A.b": 70}, column="ticks", kind=CodeKind.INTERPRETED))
    assert shares(hub.hot()) == {"A.a": 1}
    assert shares(hub.hot(weight="time")) == {"A.b": 1}
    assert shares(hub.hot(weight="bytecodes")) == {"A.c": 1}
    with pytest.raises(ValueError, match="instructions, time, bytecodes"):
        hub.hot(weight="hits")


def test_windows_by_label_or_length() -> None:
    hub, _ = make()
    assert [hub.window(x) for x in ("10s", "10", "1m", "60s", "5m", "300")] == [0, 0, 1, 1, 2, 2]
    for wrong in ("7s", "", "s", "nan", "x" * 1000):
        with pytest.raises(ValueError, match="10s, 1m, 5m"):
            hub.window(wrong)
    assert [window_label(s) for s in (0.5, 10, 60, 90, 300, 3600)] == ["0.5s", "10s", "1m", "90s", "5m", "1h"]


def test_coverage_of_window_and_run() -> None:
    hub, clock = make()
    hub.feed(report(1, {}, accounts=(account(0, 1000, desync=100), account(0, 500, cpu=1))))
    for pane in range(2, 12):
        hub.feed(report(pane, {"A.a": 1}, accounts=(account(500 + 10 * (pane - 2), 510 + 10 * (pane - 2), cpu=1),)))
    view = hub.hot("10s")
    assert (view.coverage.bytes, view.coverage.ratio, view.coverage.lost) == (100, 1.0, {})
    assert (view.run.bytes, view.run.lost, view.holes) == (1600, {"desync": 100}, {"desync": 1})
    hub.feed(report(12, {"A.a": 1}, accounts=(account(1400, 1500),)))
    clock.seconds += 2
    hub.poll()
    hub.feed(report(13, {"A.a": 1}))
    assert hub.hot("10s").coverage.lost == {"worker_down": 400}
    balances = hub.finish({stream(0): 1600, stream(1): 600})
    assert [b.error for b in balances] == [0, 0]
    assert hub.hot().run.lost == {"worker_down": 500, "desync": 100}


def test_lag_is_from_the_end_of_the_newest_pane() -> None:
    hub, clock = make()
    hub.feed(report(0, {"A.a": 1}))
    assert hub.lag((HOST, PID)) is None
    # 2 GHz: ns = tsc / 2; TSC 0 was at 990 s of wall time
    hub.introduce(HOST, PID, Clock(mult=1, shift=1, zero=0, wall_zero=990 * 10**9))
    assert hub.lag((HOST, PID)) == 9
    hub.feed(report(9, {"A.a": 1}))
    assert hub.lag((HOST, PID)) == 0
    clock.seconds += 3
    assert hub.lag((HOST, PID)) == 3
    hub.feed(report(10, {"A.b": 1}, closed=False))
    hub.end(HOST, PID)
    assert hub.lag((HOST, PID)) is None
    assert shares(hub.hot("10s")) == {"A.a": 0.5, "A.b": 0.5}


def test_each_tenth_of_a_pane_is_seen_when_the_pane_closes() -> None:
    hub, clock = make()
    hub.introduce(HOST, PID, Clock(mult=1, shift=1, zero=0, wall_zero=990 * 10**9))
    clock.seconds += 2  # since pane 9 ended
    hub.feed(report(9, {"A.a": 1}))
    delays = hub.processes[HOST, PID].delays
    assert delays.seconds == pytest.approx(10 * 2.5)  # 2.05, 2.15 … 2.95
    assert [n for _, n in delays.cumulative()] == [0] * 8 + [5] + [10] * 6
    hub.feed(report(10, {"A.a": 1}))
    assert delays.cumulative()[-1] == ("+Inf", 20)
    assert dict(delays.cumulative())["1.0"] == 0 < dict(delays.cumulative())["2.0"]
    hub.introduce(HOST, PID + 1, Clock(mult=1, shift=1, zero=0, wall_zero=990 * 10**9))
    hub.feed(replace(report(10, {"A.a": 1}), pid=PID + 1))
    of_both = summary.figures(hub)["delays"]
    assert (of_both["0.25"], of_both["+Inf"]) == (0, 30)


def test_components_decide_readiness() -> None:
    hub, _ = make()
    hub.feed(report(1, {"A.a": 1}))
    hub.heartbeat({"component": "worker-0", "up": True, "restarts": 0, "queues": {"out": 1}})
    hub.heartbeat({"component": "capture", "up": False, "restarts": 2})
    assert hub.ready() == ["capture is down"]
    assert not hub.hot().ready
    assert hub.hot().restarts == 2
    hub.heartbeat({"component": "capture", "up": True})
    assert hub.ready() == []
    assert hub.restarts() == 2


def test_reports_that_cannot_be_are_counted_and_their_accounts_kept() -> None:
    hub, _ = make()
    hub.feed(report(-1, {"A.a": 1}, accounts=(account(0, 10),)))
    hub.feed(PaneReport(HOST, PID, 0, 1, np.zeros(2, np.uint64), (), (account(10, 20),)))
    assert hub.refused_reports == 2
    assert hub.totals((HOST, PID)).decoded == 20


def test_processes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.hub.hub.MAX_PROCESSES", 3)
    hub, clock = make()
    for pid in range(5):
        hub.feed(report(1, {"A.a": 1}, pid=pid))
    assert hub.refused_reports == 2
    clock.seconds += 400
    hub.feed(report(1, {"A.a": 1}, pid=5))
    assert {pid for _, pid in hub.processes} == {1, 2, 5}


def test_processes_that_come_and_go_leave_their_sums_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.hub.hub.MAX_PROCESSES", 3)
    hub, clock = make()
    held = []
    for pid in range(40):
        hub.feed(replace(report(1, {"A.a": 1}, pid=pid, accounts=(account(0, 10, pid=pid),)), gauges=(("x", 1.0),)))
        hub.trees.feed(TreeReport(HOST, pid, 0, 1, np.zeros(0, TREE_DTYPE), ()))
        hub.end(HOST, pid)
        hub.close_streams({stream(pid=pid): 10})
        hub.hot(f"{clock.seconds - 5}..{clock.seconds}")
        clock.seconds += 400
        held.append(sizes(hub))
    assert grown(held[10], held[-1], 0) == {}
    assert hub.run_coverage().decoded == 400


def test_the_view_is_json() -> None:
    hub, _ = make()
    hub.feed(report(1, {"A.a": 1}, accounts=(account(0, 10, overflow=1),)))
    view = json.loads(json.dumps(hub.hot().json()))
    assert view["coverage"] == {"bytes": 10, "decoded": 9, "shed": 0, "lost": {"overflow": 1}, "ratio": 0.9}
    assert view["methods"][0]["method"] == "A.a"
    json.dumps(hub.statistics())


Report: TypeAlias = tuple[int, int, int, dict[str, int], bool]  # worker, process, pane, hits, closed
REPORTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(0, 20),
        st.dictionaries(st.sampled_from(["A.a", "A.b", "B.c"]), st.integers(0, 1000), max_size=3),
        st.booleans(),
    ),
    max_size=30,
)


@given(REPORTS)
def test_the_order_and_split_of_reports_do_not_matter_in_the_end(
    reports: list[Report],
) -> None:
    hub, _ = make()
    run: Counter[str] = Counter()
    for worker, pid, pane, hits, closed in reports:
        hub.feed(report(pane, hits, worker=worker, pid=pid, closed=closed))
        run.update(hits)
    hub.finish({})
    assert {m.method: m.weight for m in hub.hot(whole_run=True).methods} == +run
    newest = {pid: max(pane for _, p, pane, *_ in reports if p == pid) for _, pid, *_ in reports}
    window: Counter[str] = Counter()
    for _, pid, pane, hits, _ in reports:
        if pane > newest[pid] - 10:
            window.update(hits)
    assert {m.method: m.weight for m in hub.hot("10s").methods} == +window
    assert Loss.WORKER_DOWN not in hub.totals((HOST, 0)).holes

"""Which bytecodes ran, in the hub: windows of panes, bounds, hostile reports, and as a running streamer shows them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import httpx
import numpy as np
import pytest
import trio
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages import STATEMENT_DTYPE, WAY_DTYPE, StatementReport
from streamer.commands import flow
from streamer.config import WebConfig, WindowConfig
from streamer.hub.hub import Hub
from streamer.hub.statements import Statements, Total, executed, together, total
from streamer.views import web
from streamer.views.metrics import registry
from tests.hub.reports import HOST, PID
from tests.hub.scene import scene
from tests.transport.values import of

A, B = ("shop/Cart", "add", "(I)V"), ("shop/Page", "<init>", "()V")


def bits(*runs: tuple[int, int]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Of methods: bits, and how many of them."""
    return np.frombuffer(b"".join(n.to_bytes((size + 7) // 8, "little") for n, size in runs), np.uint8)


def report(pane: int, a: int = 0b1, b: int = 0b1, *, taken: int = 3, other: int = 0, pid: int = 7) -> StatementReport:
    """Two methods, of 10 and 3 instructions, 2 lines and none; what is seen ran, and the last instruction of A."""
    rows, ways = np.array([(10, 2), (3, 0)], STATEMENT_DTYPE), np.array([(0, 0, 5, 12, taken)], WAY_DTYPE)
    seen, ran = bits((a, 10), (b, 3)), bits((a | 1 << 9, 10), (b, 3))
    numbers = np.array([10, 12], np.uint16)
    return StatementReport("h", pid, 0, pane, rows, (A, B), seen, ran, bits((1, 2)), numbers, ways, ("0 4 9",), other)


def shown(kept: Statements, window: int = 0) -> list[tuple[int, ...]]:
    return [m[1:] for m in together(kept.parts(window)).sums()]


def test_panes_are_united_and_added_up() -> None:
    kept = Statements([2, 20])
    for pane in range(4):
        kept.feed(report(pane, 1 << pane, 1 << pane % 3))
    assert shown(kept) == [(10, 3, 2, 2, 1), (3, 2, 2, 0, 0)]
    assert shown(kept, 1) == [(10, 5, 4, 2, 1), (3, 3, 3, 0, 0)]
    assert together(kept.parts(1)).most(5).times == 12


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=30))
def test_a_window_is_the_union_of_its_panes(panes: list[int]) -> None:
    """Exact where the panes are not yet put together, and never less."""
    kept = Statements([10, 50])
    for pane in panes:
        kept.feed(report(pane, 1 << pane % 10, taken=1 << 8))
    newest = max(panes, default=0)
    for window, length in ((0, 10), (1, 50)):
        parts = together(kept.parts(window))
        exact = [pane for pane in panes if pane > newest - length]
        assert parts.most(1).times == len(exact) << 8
        assert {ran.seen for m, ran in parts.methods.items() if m.name == "add"} == (
            {sum(1 << k for k in {pane % 10 for pane in exact})} if exact else set()
        )


def test_what_is_kept_is_bounded() -> None:
    kept = Statements([30], most=12)
    for pane in range(8):
        kept.feed(report(pane))
    assert kept.statistics() == {"statements_kept": 12, "statements_refused": 0, "statements_dropped": 4}
    kept = Statements([30])
    for pane in range(1000):
        kept.feed(report(pane))
    assert kept.statistics()["statements_kept"] == 3 * 12  # 989 to 999, and those up to 979 together
    kept.forget(("h", 7))
    assert kept.statistics()["statements_kept"] == 0
    kept.feed(report(1))
    assert pickle.loads(pickle.dumps(kept)).statistics()["statements_kept"] == 0  # it is not noted


@settings(deadline=None)
@given(of(StatementReport))
def test_an_impossible_report_is_counted(told: StatementReport) -> None:
    kept = Statements([10])
    kept.feed(told)
    assert kept.fed + kept.refused == 1
    together(kept.parts()).most(5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"pane": -1}, {"names": (A,)}, {"ways": ()}, {"seen": bits((1, 10))}, {"other_paths": -1},
        {"numbers": np.array([10], np.uint16)},
        {"methods": np.array([(1 << 30, 2), (3, 0)], STATEMENT_DTYPE)},
        {"paths": np.array([(2, 0, 5, 12, 1)], WAY_DTYPE)},
    ],
)  # fmt: skip
def test_each_part_of_a_report_is_looked_at(wrong: dict[str, object]) -> None:
    kept = Statements([10])
    kept.feed(replace(report(1), **wrong))  # type: ignore[arg-type]
    assert (kept.fed, kept.refused) == (0, 1)


def hub() -> Hub:
    found = Hub(WindowConfig(pane_seconds=1), fidelity="flow", statements=True)
    assert found.statements is not None
    for pane in range(20):
        found.statements.feed(report(pane, 1 << pane % 4, other=1 if pane == 19 else 0))
    return found


async def test_coverage_and_paths_over_http() -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(web.app(hub(), WebConfig())), base_url="http://localhost"
    ) as http:
        told = (await http.get("/api/coverage")).json()
        one = (await http.get("/api/coverage?window=1m&include=*.add&include=x&below=0.5")).json()
        assert told["window"] == "10s"
        first = {"name": "shop.Cart.add", "bytecodes": 10, "ran": 5, "seen": 4, "lines": 2, "hit": 1}
        assert told["methods"][0] == first
        assert told["total"] == {"methods": 2, "bytecodes": 13, "ran": 6, "seen": 5, "lines": 2, "hit": 1}
        assert (one["window"], [m["name"] for m in one["methods"]], one["total"]["ran"]) == (
            "1m", ["shop.Cart.add"], 5,
        )  # fmt: skip
        assert (await http.get("/api/coverage?below=0.4")).json()["methods"] == [told["methods"][1]]
        paths = (await http.get("/api/paths?top=1")).json()
        assert paths["paths"] == [{"times": 30, "number": 5, "paths": 12, "name": "shop.Cart.add", "way": "0 4 9"}]
        assert paths["total"] == {"paths": 1, "methods": 1, "times": 31, "other": 1}
        for wrong, why in (
            ("coverage?window=7s", "no window '7s'"), ("coverage?window=1..2", "not of a stretch"),
            ("coverage?below=2", "below must be a share"), ("paths?top=x", "top must be a number"),
            ("paths?pid=5", "no process 5"), (f"paths?include={'x' * 501}", "at most 20 patterns"),
        ):  # fmt: skip
            answer = await http.get(f"/api/{wrong}")
            assert (answer.status_code, why in answer.json()["error"]) == (400, True), answer.text


def test_the_metrics_are_those_of_the_windows() -> None:
    found = scene(fidelity="flow")[0]
    found.statements = hub().statements
    own = registry(found)
    of = {"host": HOST, "pid": str(PID), "window": "10s"}
    assert own.get_sample_value("streamer_statement_methods", of) == 2
    states = {"seen": 5, "concluded": 1, "missed": 7}
    assert {s: own.get_sample_value("streamer_statement_bytecodes", {**of, "state": s}) for s in states} == states
    lines = {"ran": 1, "missed": 1}
    assert {s: own.get_sample_value("streamer_statement_lines", {**of, "state": s}) for s in lines} == lines
    assert own.get_sample_value("streamer_statement_dropped_panes_total") == 0
    off = registry(scene(fidelity="flow")[0])
    assert off.get_sample_value("streamer_statement_methods", of) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 7)), max_size=5))
def test_the_total_is_that_of_the_methods_sums(runs: list[tuple[int, int]]) -> None:
    parts = [executed(report(pane, *of)) for pane, of in enumerate(runs)]
    sums = together(parts).sums()
    assert total(parts) == (
        len(sums),
        sum(row.bytecodes for row in sums),
        sum(row.seen for row in sums),
        sum(row.ran for row in sums),
        sum(row.lines for row in sums),
        sum(row.hit for row in sums),
    )


def test_a_windows_total_is_found_anew_when_it_has_changed() -> None:
    kept = Statements([2])
    kept.feed(report(0))
    assert kept.total(0, ("h", 7)).seen == 2
    find = kept.finding([(0, ("h", 7))])
    kept.feed(report(1, 0b110))
    find()
    assert kept.total(0, ("h", 7)).seen == 4
    kept.forget(("h", 7))
    find()
    assert kept.total(0, ("h", 7)) == Total()
    assert not kept._totals


async def test_a_scrape_has_them() -> None:
    found = scene(fidelity="flow")[0]
    found.statements = hub().statements
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(web.app(found, WebConfig())), base_url="http://localhost"
    ) as http:
        text = (await http.get("/metrics")).text
    assert f'streamer_statement_methods{{host="{HOST}",pid="{PID}",window="10s"}} 2.0' in text


async def run(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(partial(CliRunner().invoke, flow.command, list(arguments)))


async def test_the_terminal_shows_a_running_streamer() -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub(), WebConfig(port=0))
        off = await nursery.start(web.serve, Hub(), WebConfig(port=0))
        coverage = await run("coverage", "live", "--url", url)
        paths = await run("paths", "live", "--url", url, "--window", "1m", "--include", "shop.*")
        refused = await run("paths", "live", "--url", off)
        lcov = await run("coverage", "live", "--url", url, "--lcov")
        none = await run("coverage", "live", "--url", url, "--lcov", "--include", "no.*")
        nursery.cancel_scope.cancel()
    assert coverage.output.splitlines() == [
        "bytecodes       ran   share   lines  method",
        "       10         5   50.0%     1/2  shop.Cart.add",
        "        3         1   33.3%       ?  shop.Page.<init>",
        "2 methods ran; of their 13 bytecodes 6 (46.2%), 5 of them seen, the others concluded",
    ]
    assert paths.output.splitlines() == [
        "       times   share         path  method and bytecode indices",
        "          60  100.0%      5 of 12  shop.Cart.add 0 4 9",
        "1 paths of 1 methods, taken 60 times by the interpreter",
    ]
    assert (refused.exit_code, "start it with --statements" in refused.output) == (1, True)
    assert lcov.output.splitlines() == [
        "TN:", "SF:shop/Cart.java", "FN:10,shop.Cart.add(I)V", "FNDA:1,shop.Cart.add(I)V", "FNF:1", "FNH:1",
        "DA:10,1", "DA:12,0", "LF:2", "LH:1", "end_of_record",
    ]  # fmt: skip
    assert none.output == "TN:\n"
    assert "of a recording alone" in (await run("trace", "live")).output
    assert "is taken whole" in (await run("paths", "a.json", "--window", "1m")).output

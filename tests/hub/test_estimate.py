"""Shares that were seen in part of the time: the coverage of their intervals, and where they are shown."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stages.messages import Clock
from streamer.config import WindowConfig
from streamer.hub import estimate
from streamer.hub.hub import Hub
from streamer.hub.profile import HITS, MethodTable
from streamer.hub.text import headline, share_text
from streamer.hub.windows import BYTES, Windows
from streamer.views.metrics import registry
from tests.hub.reports import HOST, PID, Time, report


def plainly(parts: list[list[float]], duty: float) -> list[float]:
    """`half_widths` as the textbook has it, method by method; the sample are the clusters with anything in them."""
    parts = [row for row in parts if sum(row)]
    n = len(parts)
    if n < 2:
        return [1.0] * 3
    totals = [sum(row) for row in parts]
    out = []
    for method in range(len(parts[0])):
        p = sum(row[method] for row in parts) / sum(totals)
        spread = sum((row[method] - p * total) ** 2 for row, total in zip(parts, totals, strict=True)) / (n - 1)
        mean = sum(totals) / n
        by_spread = estimate.student(n - 1) * ((1 - duty) * spread / n) ** 0.5 / mean
        having = [row[method] for row in parts if row[method]]
        each = sum(having) / max(1, len(having)) / mean
        by_presence = (1 - duty) ** 0.5 * (wilson(len(having), n) - len(having) / n) * each
        out.append(min(1.0, max(by_spread, by_presence)))
    return out


def wilson(met: int, n: int) -> float:
    """The largest part P with |met/n − P| ≤ t·√(P(1 − P)/n), found by bisection."""
    low, high = met / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        inside = (middle - met / n) ** 2 <= estimate.student(n - 1) ** 2 * middle * (1 - middle) / n
        low, high = (middle, high) if inside else (low, middle)
    return low


@settings(deadline=None)
@given(some.lists(some.lists(some.integers(0, 1000), min_size=3, max_size=3), min_size=2, max_size=40),
       some.floats(0.01, 0.99))  # fmt: skip
def test_half_widths(parts: list[list[float]], duty: float) -> None:
    table = np.array(parts, float)
    found = estimate.half_widths(table, table.sum(axis=1), duty)
    expected = plainly(parts, duty) if table.any() else [0.0] * 3
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_nothing_is_uncertain_at_full_duty_and_all_is_with_one_pane() -> None:
    parts = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert not estimate.half_widths(parts, parts.sum(axis=1), 1.0).any()
    assert estimate.half_widths(parts[:1], parts[:1].sum(axis=1), 0.5).tolist() == [1.0, 1.0]


def test_student() -> None:
    assert estimate.student(1) == 12.706
    assert estimate.student(9) == 2.262
    assert estimate.student(60) == pytest.approx(2.000, abs=0.002)
    assert estimate.student(299) == pytest.approx(1.968, abs=0.002)
    with pytest.raises(ValueError, match="freedom"):
        estimate.student(0)


def test_intervals_hold_the_share_as_often_as_they_say() -> None:
    """A program that alternates between tasks of 30 ms to 1 s, seen in windows drawn as `capture.live.duty` draws them:
    in at least 93 % of the windows of 10 s the share at full duty lies in the interval, of each of five methods."""
    rng, inside, asked = Random(11), 0, 0
    for duty in (0.05, 0.1, 0.25):
        for _ in range(60):
            program: list[list[float]] = []  # a millisecond each
            while len(program) < 10_000:
                task = rng.randrange(5)
                row = [0.2] * 5
                row[task] += rng.uniform(2, 6)
                program += [row] * rng.randrange(30, 1000)
            whole = np.array(program[:10_000])
            true = whole.sum(axis=0) / whole.sum()
            stratum = int(min(1000, 50 / duty))
            kept = np.zeros(10_000, bool)
            for at in range(0, 10_000, stratum):
                begin = at + int(rng.random() * (stratum * (1 - duty)))
                kept[begin : begin + int(stratum * duty)] = True
            parts = np.stack([(whole * kept[:, None])[at : at + 1000].sum(axis=0) for at in range(0, 10_000, 1000)])
            half = estimate.half_widths(parts, parts.sum(axis=1), duty)
            share = parts.sum(axis=0) / parts.sum()
            inside += int((np.abs(share - true) <= half).sum())
            asked += 5
    assert inside / asked >= 0.93


def test_weights_of_methods_in_panes() -> None:
    table = MethodTable()
    windows = Windows(table, [(4, 0)], HITS)
    for number, counts in enumerate([{"a": 1, "b": 2}, {}, {"b": 5}]):
        rows = np.zeros((len(counts), windows.windows[0].rows.shape[1]), np.uint64)
        rows[:, HITS] = list(counts.values())
        windows.add(number, list(counts), rows, np.zeros(BYTES, np.int64), 7)
        windows.close(number)
    parts, totals = estimate.weights(windows.panes(windows.windows[0]), [table.find("b"), table.find("x")], HITS)
    assert parts.tolist() == [[2, 0], [0, 0], [5, 0]]
    assert totals.tolist() == [3, 0, 5]
    assert windows.windows[0].off == windows.off == 21


def traced_in_part(off: int) -> tuple[Hub, Time]:
    """20 panes of 1000 ticks, of each `off` not traced."""
    clock = Time()
    hub = Hub(WindowConfig(pane_seconds=1), now=clock, wall_ns=clock.ns)
    hub.introduce(HOST, PID, Clock(mult=1, shift=1, zero=0, wall_zero=clock.ns()), ticks_per_pane=1000)
    for pane in range(20):
        hub.feed(replace(report(pane, {"a.B.c": 60 + pane % 3, "d.E.f": 40}), off_ticks=off))
    return hub, clock


def test_the_hub_says_what_part_was_traced_and_how_sure_it_is() -> None:
    hub, _ = traced_in_part(750)
    view = hub.hot()
    assert view.duty == pytest.approx(0.25)
    assert view.processes[0].duty == pytest.approx(0.25)
    assert hub.hot(whole_run=True).duty == pytest.approx(0.25)
    assert all(0 < method.sure < 0.02 for method in view.methods)
    shown = view.json()
    assert "25.0% of the time traced" in headline(shown)
    assert share_text(shown["methods"][0]) == "60.4 ± 0.2 %"
    own = registry(hub)
    labels = {"host": HOST, "pid": str(PID), "window": "10s"}
    assert own.get_sample_value("streamer_window_duty_ratio", labels) == pytest.approx(0.25)
    half = own.get_sample_value(
        "streamer_method_share_halfwidth_ratio", {**labels, "weight": "hits", "method": "a.B.c"}
    )
    assert half == pytest.approx(view.methods[0].sure)


def test_without_a_budget_nothing_of_it_is_shown() -> None:
    hub, _ = traced_in_part(0)
    view = hub.hot()
    assert view.duty == 1
    assert [method.sure for method in view.methods] == [0, 0]
    assert "traced" not in headline(view.json())
    assert share_text(view.json()["methods"][0]) == "60.4%"


def test_ticks_off_duty_are_not_more_than_a_pane_has() -> None:
    hub, _ = traced_in_part(1 << 60)
    assert hub.hot().duty == 0


def test_a_method_that_was_met_once_is_less_sure_than_its_spread_tells() -> None:
    parts = np.ones((10, 2))
    parts[1:, 1] = 0
    half = estimate.half_widths(parts, np.full(10, 2.0), 0.05)
    assert 0.05 + half[1] == pytest.approx(0.5 * wilson(1, 10), abs=0.005)
    assert half[0] == 0

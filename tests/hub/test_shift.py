from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.hub.profile import COLUMNS, HITS, INSTRUCTIONS, MethodTable
from streamer.hub.shift import Detector, _busiest, distance, robust
from streamer.hub.windows import BYTES, Pane, Windows
from tests.narrowed import present

TICKS = 1000  # of a pane


class Program:
    """Feeds panes of given mixtures to windows of 10 and 60 panes, and the detector after each. `duty`: the part of
    each pane that is traced, so many panes, one after the other, for ever."""

    def __init__(self, column: int = HITS, duty: tuple[float, ...] = (1.0,)) -> None:
        self.column, self.duty = column, duty
        self.windows = Windows(MethodTable(), [(10, 0), (60, 0), (60, 10)], column)
        self.detector = Detector(column)
        self.pane = 0
        self.random = random.Random(1)

    def run(self, seconds: int, mixture: dict[str, int]) -> None:
        for _ in range(seconds):
            rows = np.zeros((len(mixture), COLUMNS), np.uint64)
            on = self.duty[self.pane % len(self.duty)]
            rows[:, self.column] = [max(0, round(on * self.random.gauss(n, n / 20))) for n in mixture.values()]
            off = round((1 - on) * TICKS)
            self.windows.add(self.pane, list(mixture), rows, np.zeros(BYTES, np.int64), off)
            self.windows.close(self.pane)
            self.detector.update(self.windows, self.windows.windows[0], self.windows.windows[-1], TICKS)
            self.pane += 1


WEIGHTS = st.lists(st.integers(0, 1000), min_size=5, max_size=5).filter(any)


@given(WEIGHTS, WEIGHTS)
def test_distance_is_the_largest_difference_any_set_of_methods_can_show(a: list[int], b: list[int]) -> None:
    """The definition of total variation: max over sets of |P(set) − Q(set)|."""
    p, q = [Fraction(x, sum(a)) for x in a], [Fraction(x, sum(b)) for x in b]
    largest = sum((x - y for x, y in zip(p, q, strict=True) if x > y), Fraction(0))
    assert distance(np.array(p, float), np.array(q, float)) == pytest.approx(float(largest), abs=1e-12)


def test_robust_ignores_a_minority_of_outliers() -> None:
    sample = np.array([0.1] * 60 + [0.9] * 40)
    assert robust(0.1, sample) == 0
    assert robust(0.9, sample) == pytest.approx(0.8 / 0.02)


def test_no_verdict_while_a_program_starts() -> None:
    program = Program()
    program.run(19, {"a": 600, "b": 400})
    early = program.detector.current
    assert early is None
    program.run(1, {"a": 600, "b": 400})
    assert present(program.detector.current).movers == ()


def test_a_steady_program_does_not_shift_and_a_change_does() -> None:
    program = Program()
    program.run(150, {"a": 600, "b": 390, "c": 10})
    steady = present(program.detector.current)
    assert steady.distance < 0.03
    assert abs(steady.score) < 2
    program.run(10, {"a": 200, "b": 390, "d": 410})
    shifted = present(program.detector.current)
    assert shifted.distance == pytest.approx(0.41, abs=0.03)
    assert shifted.score > 4
    assert [(m.method, m.delta > 0) for m in shifted.movers] == [("d", True), ("a", False)]
    program.run(70, {"a": 200, "b": 390, "d": 410})
    assert present(program.detector.current).distance < 0.03
    assert present(program.detector.current).movers == ()


def test_a_shift_is_held_for_a_shortest_window() -> None:
    program = Program()
    program.run(100, {"a": 600, "b": 400})
    program.run(8, {"c": 1000})
    highest = present(program.detector.current)
    assert program.detector.held == highest
    scores = []
    for _ in range(60):
        program.run(1, {"a": 600, "b": 400})
        scores.append(present(program.detector.current).score)
        of_the_last = [*([highest.score] if len(scores) < 10 else []), *scores[-10:]]
        assert present(program.detector.held).score == max(of_the_last)


def test_a_program_of_alternating_phases_has_a_usual_distance() -> None:
    program = Program()
    for _ in range(15):
        program.run(12, {"parse": 800, "emit": 200})
        program.run(12, {"parse": 200, "emit": 800})
    assert present(program.detector.current).distance > 0.2
    assert present(program.detector.current).score < 3


def verdicts(program: Program, phases: list[tuple[int, dict[str, int]]]) -> list[bool]:
    """For each second of the phases, whether the rules alert on the shift."""
    found = []
    for seconds, mixture in phases:
        for _ in range(seconds):
            program.run(1, mixture)
            shift = program.detector.current
            found.append(shift is not None and shift.distance > 0.3 and shift.score > 4)
    return found


def test_a_task_of_an_idle_process_is_no_shift() -> None:
    """200,000 instructions every ten minutes, with a heartbeat between them."""
    phases = [(599, {"beat": 300}), (1, {"task": 200_000})] * 6
    assert not any(verdicts(Program(INSTRUCTIONS), phases))


def test_a_service_that_falls_idle_and_wakes_is_no_shift() -> None:
    busy, idle = {"serve": 9 * 10**8, "parse": 10**8}, {"beat": 2_000_000}
    assert not any(verdicts(Program(INSTRUCTIONS), [(200, busy), (300, idle), (60, busy)]))


def test_a_shift_at_low_load_is_one() -> None:
    """A third of the work, all of it new: less, but of one order."""
    found = verdicts(Program(INSTRUCTIONS), [(200, {"serve": 9 * 10**7}), (60, {"other": 3 * 10**7})])
    assert not any(found[:200])
    assert any(found[200:215])


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, TICKS)), min_size=1, max_size=12))
def test_the_busiest_time(told: list[tuple[int, int]]) -> None:
    """Of all runs of panes with a pane's time traced, no shorter ones that end with the same pane."""
    panes = []
    for number, (weight, off) in enumerate(told):
        pane = Pane(number)
        pane.rows, pane.off = np.zeros((1, COLUMNS), np.uint64), off
        pane.rows[0, HITS] = weight
        panes.append(pane)
    whole = sum((Fraction(TICKS - off, TICKS) for _, off in told), Fraction())
    rates = [Fraction(sum(weight for weight, _ in told)) / max(whole, Fraction(1, 10**9))]
    for last in range(len(told)):
        for first in range(last, -1, -1):
            run = told[first : last + 1]
            if (traced := sum((Fraction(TICKS - off, TICKS) for _, off in run), Fraction())) >= 1:
                rates.append(sum(weight for weight, _ in run) / traced)
                break
    assert _busiest(panes, HITS, TICKS) == pytest.approx(float(max(rates)))


@pytest.mark.parametrize("duty", [(1.0,), (0.25,), (0.2, 0.0), (0.05,), (0.1, 0.0), (0.002,)])
def test_what_is_traced_in_part_is_judged_by_what_the_process_does(duty: tuple[float, ...]) -> None:
    """Ten million instructions in ten seconds are enough, however few of them were seen; panes of which nothing was
    traced are not idle ones, and one that was traced alone is not the busiest."""
    phases = [(100, {"serve": 5 * 10**6}), (15, {"serve": 5 * 10**6, "other": 15 * 10**6})]
    found = verdicts(Program(INSTRUCTIONS, duty), phases)
    assert not any(found[:100])
    assert found[101 + (len(duty) > 1)]
    assert not any(verdicts(Program(INSTRUCTIONS, duty), [(100, {"beat": 900_000}), (15, {"other": 900_000})]))


@pytest.mark.parametrize("duty", [(1.0,), (0.25,), (0.05,), (0.1, 0.0)])
def test_a_service_that_is_traced_in_part_and_falls_idle_and_wakes_is_no_shift(duty: tuple[float, ...]) -> None:
    busy, idle = {"serve": 9 * 10**8, "parse": 10**8}, {"beat": 2_000_000}
    assert not any(verdicts(Program(INSTRUCTIONS, duty), [(200, busy), (300, idle), (60, busy)]))

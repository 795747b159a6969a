"""The benchmark of recovery counts no false step as right, and finds holes where they are."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.recovery.bursts import PSB, Bursts
from benchmarks.recovery.compare import LOOK, compare, paired
from benchmarks.recovery.control_flow import Filling, Run
from stages.messages import Chunk, StreamKey
from tests.recover.test_filling import LOOP

STREAM = StreamKey("h", 1, 0, -1)


def steps(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(numbers, np.int32)


def longest_common_subsequence(a: list[int], b: list[int]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for k, y in enumerate(b):
            row[k + 1] = before[k] + 1 if x == y else max(before[k + 1], row[k])
    return row[-1]


@given(st.lists(st.integers(0, 4), max_size=40), st.lists(st.integers(0, 4), max_size=40))
@settings(deadline=None)
def test_pairs_are_never_more_than_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    pairs, _ = paired(steps(a), 0, len(a), steps(b), 0, len(b), LOOK)
    assert pairs <= longest_common_subsequence(a, b)
    assert paired(steps(a), 0, len(a), steps(a), 0, len(a), LOOK)[0] == len(a)


PARTS = [list(range(k, k + 30)) for k in (0, 100, 200)]


@given(*[st.lists(st.sampled_from([*PARTS, [7], [8, 8]]), max_size=10)] * 2)
@settings(deadline=None, max_examples=50)
def test_nor_where_parts_have_changed_places(a: list[list[int]], b: list[list[int]]) -> None:
    one, other = [x for part in a for x in part], [x for part in b for x in part]
    pairs, _ = paired(steps(one), 0, len(one), steps(other), 0, len(other), LOOK)
    assert pairs <= longest_common_subsequence(one, other)


def test_a_part_that_comes_far_behind_is_found() -> None:
    truth = list(range(3000))
    assert paired(steps(truth), 0, 3000, steps(truth[1000:]), 0, 2000, LOOK) == (2000, 3000)
    assert paired(steps(truth), 0, 3000, steps([*range(-1500, 0), *truth[1000:]]), 0, 3500, LOOK) == (2000, 3000)


def test_a_planted_error_is_counted_and_what_is_behind_it_is_right_again() -> None:
    truth = list(range(1000))
    wrong = [*truth[:100], -1, *truth[101:500], *truth[520:]]
    assert paired(steps(truth), 0, 1000, steps(wrong), 0, len(wrong), LOOK) == (979, 1000)


def run(offset: int, numbers: list[int], *marks: tuple[int, int]) -> Run:
    return Run(offset, [steps(numbers)], len(numbers), list(marks))


def test_a_hole_lies_between_the_observed_steps_whatever_its_filling() -> None:
    truth = {7: [run(0, list(range(400)), (10, 0), (20, 100), (30, 200), (40, 300))]}
    # the second run begins within block 200, with which that step ends otherwise
    seen = {7: [run(0, list(range(150)), (10, 0)), run(999, [-5, *range(201, 400)], (30, 0))]}
    for filling, recovery, precision in (
        (list(range(150, 200)), 1.0, 1.0), (list(range(150, 175)), 0.5, 1.0), (list(range(50)), 0.0, 0.0),
        (list(range(100, 250)), 1.0, 1 / 3), ([], 0.0, 0.0),
    ):  # fmt: skip
        found = compare(truth, seen, {(7, 999): Filling(50, steps(filling), True)}, 0)
        assert (found.holes, found.lost, found.observed, found.unplaced) == (1, 50, 350, 0)
        assert found.figures()["recovery"] == pytest.approx(recovery)
        assert found.figures()["precision"] == pytest.approx(precision)
        assert found.figures()["overall"] == pytest.approx((350 + 50 * recovery) / 400)


def test_planted_errors_lower_what_is_recovered() -> None:
    truth = {7: [run(0, list(range(400)), (10, 0), (30, 200))]}
    seen = {7: [run(0, list(range(100)), (10, 0)), run(999, list(range(200, 400)), (30, 0))]}
    fillings = {(7, 999): Filling(100, steps(list(range(100, 200))), True)}
    assert compare(truth, seen, fillings, 0).right == 100
    assert compare(truth, seen, fillings, 10).right == 90


def test_what_lies_nowhere_in_the_truth_is_lost() -> None:
    truth = {7: [run(0, LOOP * 20, (10, 0))]}
    seen = {7: [run(0, LOOP * 5, (10, 0)), run(999, [77] * 80, (10, 0))]}
    found = compare(truth, seen, {}, 0)
    assert (found.observed, found.lost, found.unplaced) == (50, 150, 80)


def test_bursts_leave_gaps_that_end_at_a_psb() -> None:
    rng = Random(3)
    data = b"".join(PSB + rng.randbytes(200).replace(b"\x02", b"\x03") for _ in range(2000))
    chunks = [Chunk(STREAM, k, at, np.frombuffer(data[at : at + 5000], np.uint8))
              for k, at in enumerate(range(0, len(data), 5000))]  # fmt: skip
    bursts = Bursts(0.25, 500, Random(1))
    kept = [chunk for chunk in bursts(chunks) if isinstance(chunk, Chunk)]
    at, number, gaps = 0, -1, 0
    for chunk in kept:
        assert bytes(chunk.data) == data[chunk.offset : chunk.offset + len(chunk.data)]
        if chunk.offset != at:
            assert chunk.offset > at
            assert bytes(chunk.data[:16]) == PSB[: len(chunk.data)]
            assert chunk.seq > number + 1
            gaps += chunk.offset - at
        else:
            assert chunk.seq == number + 1
        at, number = chunk.offset + len(chunk.data), chunk.seq
    assert gaps <= bursts.cut == len(data) - sum(len(chunk.data) for chunk in kept)
    assert bursts.all == len(data)
    assert 0.2 < bursts.cut / bursts.all < 0.5

"""How many bytecodes machine code stands for, on nmethods made by hand. Method 1 is the nmethod's own."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.bytecode.counts import JUMP, LEAVE, stretches
from stages.inlining.class_measures import EXECUTED, NOT_TAKEN
from tests.stages.test_inlining import LOOP, Rows, Stack, measured, round_of

Cut = dict[int, list[tuple[int, int]]]


def ran(
    code: list[tuple[str, Stack]], steps: dict[int, Rows], cut: Cut, calls: tuple[tuple[int, str], ...] = ()
) -> list[tuple[int, int, int, str]]:
    """Offset, way, bytecodes each time, method."""
    m = measured(code, steps, calls, stretches=cut)
    sums = Counter[tuple[int, int, str]]()
    for offset, way, times, place in zip(*(column.tolist() for column in m.ran), strict=True):
        sums[offset, way, str(m.name[place])] += times
    return sorted((offset, way, times, name) for (offset, way, name), times in sums.items())


def test_what_has_no_condition_runs_with_the_method() -> None:
    code: list[tuple[str, Stack]] = [("01c8", [(1, 0)]), ("01d8", [(2, 1), (1, 3)]), ("c3", [(1, 8)])]
    assert ran(code, {1: [(8, LEAVE, 0)], 2: [(2, LEAVE, 0)]}, {1: [(0, 5)], 2: [(0, 3)]}) == [
        (0, EXECUTED, 3, "two"), (0, EXECUTED, 5, "own")
    ]  # fmt: skip


def test_a_method_of_which_nothing_is_left_runs_with_its_call() -> None:
    code: list[tuple[str, Stack]] = [("01c8", [(1, 2)]), ("c3", [(1, 8)])]
    found = ran(code, {1: [(8, LEAVE, 0)]}, {1: [(0, 5)]}, ((3, "gone"),))
    assert found == [(0, EXECUTED, 5, "own"), (0, EXECUTED, 9, "gone")]


WHOLE = [(0, 3), (4, 2), (9, 4), (20, 1)]  # before the loop, its test, its body, behind it


def test_a_loop_runs_as_often_as_it_has_rounds() -> None:
    """Its test and its body, which calls another method; once more than the test in bytecode."""
    found = ran(round_of("83c101"), {1: LOOP}, {1: WHOLE, 2: [(0, 7)]})
    assert found == [(0, EXECUTED, 4, "own"), (2, EXECUTED, 6, "own"), (2, EXECUTED, 7, "two")]


def test_an_unrolled_loop_holds_as_many_rounds_as_its_step_says() -> None:
    found = ran(round_of("83c104"), {1: LOOP}, {1: WHOLE})
    assert found == [(0, EXECUTED, 4, "own"), (9, EXECUTED, 24, "own")]


def test_what_is_behind_a_condition_runs_as_often_as_that_holds() -> None:
    """The bytecodes of which nothing is left run with those of their stretch; a stretch of which nothing is left is not
    counted."""
    code: list[tuple[str, Stack]] = [("85db", [(1, 5)]), ("7402", [(1, 5)]), ("01d8", [(1, 9)]), ("c3", [(1, 12)])]
    steps: dict[int, Rows] = {1: [(5, JUMP, 12), (12, LEAVE, 0)]}
    assert ran(code, steps, {1: [(0, 3), (8, 4), (12, 1)]}) == [(0, EXECUTED, 4, "own"), (4, EXECUTED, 4, "own")]
    nothing: list[tuple[str, Stack]] = [("85db", [(1, 5)]), ("c3", [(1, 12)])]
    assert ran(nothing, steps, {1: [(0, 3), (8, 4), (12, 1)]}) == [(0, EXECUTED, 4, "own")]


def test_calls_are_measured_as_without_bytecodes() -> None:
    code: list[tuple[str, Stack]] = [
        ("85db", [(1, 5)]),
        ("7402", [(1, 5)]),
        ("01d8", [(2, 3), (1, 9)]),
        ("c3", [(1, 12)]),
    ]
    steps: dict[int, Rows] = {1: [(5, JUMP, 12), (12, LEAVE, 0)]}
    with_, without = measured(code, steps, stretches={1: [(0, 3), (8, 4), (12, 1)]}), measured(code, steps)
    assert with_.called == without.called == ("two",)
    assert with_.offset.tolist() == without.offset.tolist()
    assert NOT_TAKEN not in with_.ran.way.tolist()


NOP, IFEQ, GOTO, RETURN = 0x00, 0x99, 0xA7, 0xB1


def naive(ops: list[tuple[int, int]], at: list[int]) -> list[tuple[int, int]]:
    heads = {0, *(at[k + 1] for k, (op, _) in enumerate(ops[:-1]) if op != NOP)}
    heads |= {at[to] for op, to in ops if op in (IFEQ, GOTO)}
    begins = sorted(heads)
    ends = [*begins[1:], 1 << 16]
    return [(lo, sum(lo <= bci < hi for bci in at)) for lo, hi in zip(begins, ends, strict=True)]


@given(st.data())
@settings(deadline=None)
def test_stretches_begin_where_control_can_come_from_elsewhere(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    op = st.tuples(st.sampled_from([NOP, IFEQ, GOTO, RETURN]), st.integers(0, size - 1))
    ops = data.draw(st.lists(op, min_size=size, max_size=size))
    sizes = [3 if op in (IFEQ, GOTO) else 1 for op, _ in ops]
    at = [sum(sizes[:k]) for k in range(size)]
    code = b"".join(
        bytes([op]) + ((at[to] - at[k]).to_bytes(2, "big", signed=True) if op in (IFEQ, GOTO) else b"")
        for k, (op, to) in enumerate(ops)
    )
    found = stretches(code)
    assert found is not None
    assert [(int(bci), int(n)) for bci, n in found] == naive(ops, at)


def test_no_bytecode_has_no_stretches() -> None:
    assert stretches(b"\xff") is None

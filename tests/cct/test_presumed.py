"""Callers that are presumed behind a hole, against programs whose trees are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jvm.code.version import Kind, Version
from stages.cct.stage import Cct
from stages.cct.traced import Room
from stages.messages.paths import BREAK, DISABLED, BlockEnd
from tests.cct.made import PROGRAMS, SPACING, UNKNOWN, Block, Call, Dictionaries, Range, expected, run
from tests.cct.test_stage import INNERMOST, LOOP, ROUND, SMALL, found, ordered, stage, tree_of


def of(m: int, at: int, calls: bool, ends: BlockEnd) -> Block:
    """An instruction of method m: a call returns to `at`."""
    lo = SPACING * (m + 1) + at
    return Block((Range(lo - 5, lo, True, ()) if calls else Range(lo, lo + 1, False, ()),), ends)


M2_CALLS, M3_CALLS = of(2, 21, True, BlockEnd.INDIRECT), of(3, 21, True, BlockEnd.INDIRECT)
M1_ENDS, M2_GOES_ON, M3_GOES_ON = (
    of(1, 0x100, False, BlockEnd.RETURN), of(2, 21, False, BlockEnd.CONDITION), of(3, 21, False, BlockEnd.CONDITION),
)  # fmt: skip
ROUND_OF_M1 = [LOOP, INNERMOST, ROUND]


def stacks(blocks: Sequence[Block | None], cct: Cct) -> dict[tuple[str, ...], int]:
    """Instructions by stack. None: a hole."""
    d = Dictionaries()
    order = [BREAK if b is None else d.path([b]) for b in blocks]
    tree = tree_of([*cct.feed(d.message(7, order, (0, 100), False)), *cct.flush()])
    return {tuple(m for m, _ in stack): n for (stack, what), n in found(tree).items() if what == "instructions"}


BEFORE = [M2_CALLS, *ROUND_OF_M1, LOOP, None, INNERMOST, ROUND]
"""m2 calls m1, which calls m0 in a loop; in the middle of m0 there is a hole."""


def test_a_loop_that_is_never_left_is_known_again_by_a_return_into_it() -> None:
    program = [*BEFORE, *ROUND_OF_M1]
    assert stacks(program, stage(presume=True)) == {
        (UNKNOWN, "m2"): 1, (UNKNOWN, "m2", "m1"): 6, (UNKNOWN, "m2", "m1", "m0"): 3,
    }  # fmt: skip
    assert stacks(program, stage()) == {
        (UNKNOWN, "m2"): 1, (UNKNOWN, "m2", "m1"): 3, (UNKNOWN, "m2", "m1", "m0"): 1, (UNKNOWN, "m1"): 3,
        (UNKNOWN, "m1", "m0"): 2,
    }  # fmt: skip


def test_a_return_makes_a_fact_of_it() -> None:
    cct = stage(presume=True)
    want = {(UNKNOWN, "m2"): 2, (UNKNOWN, "m2", "m1"): 5, (UNKNOWN, "m2", "m1", "m0"): 2}
    assert stacks([*BEFORE, M1_ENDS, M2_GOES_ON], cct) == want
    said = cct.statistics()
    assert (said["cct_presumed"], said["cct_presumed_right"], said["cct_presumed_wrong"]) == (2, 1, 0)


def test_a_return_to_another_caller_takes_the_guess_back() -> None:
    """In the hole m1 was left, and called by m3."""
    cct = stage(presume=True)
    assert stacks([*BEFORE, M1_ENDS, M3_GOES_ON], cct) == {
        (UNKNOWN, "m2"): 1, (UNKNOWN, "m2", "m1"): 3, (UNKNOWN, "m2", "m1", "m0"): 1, (UNKNOWN, "m3"): 1,
        (UNKNOWN, "m3", "m1"): 2, (UNKNOWN, "m3", "m1", "m0"): 1,
    }  # fmt: skip
    said = cct.statistics()
    assert (said["cct_presumed"], said["cct_presumed_right"], said["cct_presumed_wrong"]) == (1, 0, 1)


RECURSION = [M2_CALLS, of(1, 37, True, BlockEnd.INDIRECT), *ROUND_OF_M1, LOOP, None, INNERMOST, ROUND]
"""m2 calls m1, which calls itself; the m1 on top calls m0 in a loop."""


def test_of_two_frames_of_a_method_it_is_the_one_that_waits_for_the_return() -> None:
    found = stacks([*RECURSION, *ROUND_OF_M1, M1_ENDS, of(1, 37, False, BlockEnd.CONDITION)], stage(presume=True))
    assert found == {
        (UNKNOWN, "m2"): 1, (UNKNOWN, "m2", "m1"): 1, (UNKNOWN, "m2", "m1", "inlined"): 1,
        (UNKNOWN, "m2", "m1", "m1"): 7, (UNKNOWN, "m2", "m1", "m1", "m0"): 3,
    }  # fmt: skip
    lower = stacks([*RECURSION[:-2], M1_ENDS, of(1, 37, False, BlockEnd.CONDITION)], stage(presume=True))
    assert lower == {
        (UNKNOWN, "m2"): 1, (UNKNOWN, "m2", "m1"): 1, (UNKNOWN, "m2", "m1", "inlined"): 1,
        (UNKNOWN, "m2", "m1", "m1"): 4, (UNKNOWN, "m2", "m1", "m1", "m0"): 1,
    }  # fmt: skip


def test_a_second_hole_looks_behind_the_first() -> None:
    """What is seen between them is not of the stack before both."""
    program = [*BEFORE[:5], None, INNERMOST, None, ROUND, *ROUND_OF_M1]
    assert stacks(program, stage(presume=True))[(UNKNOWN, "m2", "m1")] == 6


@pytest.mark.parametrize("was_outside", [False, True])
def test_a_hole_that_begins_outside_ends_with_a_call_from_there(was_outside: bool) -> None:
    """m0 has called code outside of the filter, which calls m1 behind the hole."""
    d, cct = Dictionaries(), stage(presume=True)
    made: Any = cct.images.of("h", 42).image
    made.known[3] = Version(4, Kind.DYNAMIC, 4 * SPACING, 5 * SPACING, "call_stub", 0, 0)
    order = (
        [d.path([of(0, 21, True, BlockEnd.FILTER)]), DISABLED]
        if was_outside
        else [d.path([of(0, 21, False, BlockEnd.CONDITION)])]
    )
    calls = [
        Block((Range(4 * SPACING, 4 * SPACING + 2, True, ()),), BlockEnd.INDIRECT),
        of(1, 0, False, BlockEnd.CONDITION),
    ]
    order += [BREAK, *(d.path([block]) for block in calls)]
    tree = tree_of([*cct.feed(d.message(7, order, (0, 100), False)), *cct.flush()])
    callers = ((UNKNOWN, -1), ("m0", -1)) if was_outside else ((UNKNOWN, -1),)
    assert found(tree)[(*callers, ("call_stub", -1), ("m1", -1)), "invocations"] == 1


@settings(deadline=None, max_examples=150)
@given(PROGRAMS, st.data())
def test_facts_replace_all_that_was_presumed(program: Call, data: st.DataObject) -> None:
    """All frames are returned to at the end: the tree is the lossless one without the lost calls. (Of recursion which
    frame it was is not known if it is the outermost, from which there is no return.)"""
    blocks, d, cct = run(program), Dictionaries(), stage(presume=True)
    assume(all(len({m for m, _ in r.stack}) == len(r.stack) for block in blocks for r in block.ranges))
    begin, end = sorted(data.draw(st.lists(st.integers(0, len(blocks) - 1), min_size=2, max_size=2)))
    order = [*ordered(data.draw, blocks[:begin], d), BREAK, *ordered(data.draw, blocks[end:], d)]
    tree = tree_of([*cct.feed(d.message(7, order, (0, 100), False)), *cct.flush()])
    assert found(tree) == expected(blocks, 0) - expected(blocks[begin:end], 0)


def test_tables_made_anew_know_the_stack_before_the_hole() -> None:
    """What was counted before they were stays where it was then: the m0 behind the hole."""
    program = [*BEFORE, *ROUND_OF_M1]
    want = {
        (UNKNOWN, "m2"): 1, (UNKNOWN, "m2", "m1"): 6, (UNKNOWN, "m2", "m1", "m0"): 2, (UNKNOWN, "m0"): 1,
    }  # fmt: skip
    cct, d = stage(Room(12, 1 << 12, 1 << 12), presume=True), Dictionaries()
    said: list[object] = []
    for n, block in enumerate(program):
        order = [BREAK if block is None else d.path([block])]
        said += cct.feed(d.message(7, order, (9 * n, 9 * n + 9), n > 0))
    tree = tree_of([*said, *cct.flush()])
    found_ = {tuple(m for m, _ in stack): n for (stack, what), n in found(tree).items() if what == "instructions"}
    assert found_ == want
    assert cct.statistics()["cct_rebuilt"] > 3
    assert cct.statistics()["cct_overflow"] == 0


@settings(deadline=None, max_examples=100)
@given(PROGRAMS, st.data())
def test_totals_stay_whatever_is_presumed(program: Call, data: st.DataObject) -> None:
    blocks, d = run(program), Dictionaries()
    lost = sorted(data.draw(st.lists(st.integers(0, len(blocks)), max_size=8)))
    lost = lost[: len(lost) // 2 * 2]
    cct = stage(Room(24, 1 << 12, 1 << 12), presume=True)
    said: list[object] = []
    seen = 0
    for a, b in list(pairwise([0, *lost, len(blocks)]))[::2]:
        for block in blocks[a:b]:
            seen += len(block.ranges)
            said += cct.feed(d.message(7, [d.path([block])], (9 * seen, 9 * seen + 9), True))
        said += cct.feed(d.message(7, [BREAK], (9 * seen + 9, 9 * seen + 9), True))
    assert tree_of([*said, *cct.flush()]).total("observed_instructions") == seen


def test_it_is_off_unless_asked_for() -> None:
    cct = stage(SMALL)
    stacks(BEFORE, cct)
    assert cct.statistics()["cct_presumed"] == 0

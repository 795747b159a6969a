"""Stacks that the agent reads, in made-up programs: what stands below an unknown caller finds its place."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from jvm.export.records import STACK_FRAME_DTYPE, Stack, StackFlag
from stages.cct.stage import Cct
from stages.messages import Bytecodes, Paths
from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE, STACK_DTYPE, FrameEvent
from stages.messages.paths import DISABLED, STOP_DTYPE, BlockEnd
from stages.paths.dictionary import Dictionary
from stages.reconstruct.stacks import MOST_FRAMES, MOST_WAITING, THREADS, WAITING, Stacks
from tests.cct.made import INTERPRETER, SPACING, UNKNOWN, Block, Dictionaries, Made, Range
from tests.cct.test_interpreted import ENTRY, NAMES, TEMPLATE, A, B, C, events
from tests.cct.test_stage import found, stage, tree_of

TID = 7
Frame = tuple[int, int, int]
"""pc, method of the interpreter (−1: another), bci."""


def code(m: int, at: int = 8) -> Block:
    """One instruction of method m, which calls out of the filter."""
    lo = SPACING * (m + 1) + at
    return Block((Range(lo, lo + 5, True, ()),), BlockEnd.FILTER)


def behind(m: int, at: int = 8) -> Block:
    """Where that call returns to."""
    lo = SPACING * (m + 1) + at + 5
    return Block((Range(lo, lo + 1, False, ()),), BlockEnd.INDIRECT)


def site(m: int, s: int) -> int:
    """Where the call at a site of method m returns to (see `Made`)."""
    return SPACING * (m + 1) + 16 * (s + 1) + 5


def feed(cct: Cct, paths: Paths, order: int, frames: list[Frame], told: NDArray[np.void] | None = None) -> list[object]:
    """With a stack, outermost frame first, that was read at that position; `told`: among these events."""
    event, rows = np.zeros(1, EVENT_DTYPE), np.zeros(len(frames), STACK_DTYPE)
    event["order"], event["kind"], event["method"] = order, FrameEvent.STACK, -1
    event = event if told is None else told
    for row, (pc, method, bci) in zip(rows, frames, strict=True):
        row["pc"], row["method"], row["bci"], row["interpreted"] = pc, method, bci, method >= 0
    of = np.zeros(0, METHOD_DTYPE), np.zeros(0, KNOWN_DTYPE)
    size = len(paths.order)
    said = Bytecodes("h", 42, paths.generation, paths.first_path, size, *of, event, NAMES, stacks=rows)
    assert cct.feed(said) == [said]
    return cct.feed(paths)


def test_callers_that_never_return_are_named_by_a_stack() -> None:
    """m0 > m1 > m2, of which only m2 is seen: all that it did stands below its callers, what it did before too."""
    d, cct = Dictionaries(), stage()
    out, back = d.path([code(2)]), d.path([behind(2)])
    order = [out, DISABLED, back, out, DISABLED, back]
    frames = [(site(0, 0), -1, -1), (site(1, 1), -1, -1), (SPACING * 3 + 13, -1, -1)]
    counts = found(tree_of([*feed(cct, d.message(TID, order, (0, 9), False), 4, frames), *cct.flush()]))
    assert counts == {((("m0", -1), ("m1", 0), ("m2", 1)), "instructions"): 4}


def test_inlined_callers_and_frames_of_the_interpreter_are_callers() -> None:
    """m0 calls at its inlined site the interpreter, whose A.a calls B.b, which calls m2."""
    d, cct = Dictionaries(), stage()
    out, back = d.path([code(2)]), d.path([behind(2)])
    frames = [(site(0, 2), -1, -1), (INTERPRETER + 3, A, 4), (INTERPRETER + 3, B, 6), (SPACING * 3 + 13, -1, -1)]
    counts = found(tree_of([*feed(cct, d.message(TID, [out, DISABLED, back], (0, 9), False), 1, frames), *cct.flush()]))
    assert counts == {((("m0", -1), ("inlined", 2), ("A.a", 7), ("B.b", 4), ("m2", 6)), "instructions"): 2}


def test_a_stack_that_was_known_changes_nothing() -> None:
    d, cct = Dictionaries(), stage()
    out, back = d.path([code(2)]), d.path([behind(2)])
    frames = [(site(0, 0), -1, -1), (SPACING * 3 + 13, -1, -1)]
    feed(cct, d.message(TID, [out, DISABLED, back], (0, 9), False), 1, frames)
    feed(cct, d.message(TID, [out, DISABLED, back], (10, 19), True), 1, frames)
    assert {name: cct.statistics()[f"cct_{name}"] for name in ("stacks", "stacks_agreed", "stacks_refused")} == {
        "stacks": 2, "stacks_agreed": 1, "stacks_refused": 0,
    }  # fmt: skip


def test_a_stack_of_other_code_is_not_used() -> None:
    """Its innermost frame is m1's, and m2 has left the filter."""
    d, cct = Dictionaries(), stage()
    order = [d.path([code(2)]), DISABLED, d.path([behind(2)])]
    frames = [(site(0, 0), -1, -1), (site(1, 0), -1, -1)]
    counts = found(tree_of([*feed(cct, d.message(TID, order, (0, 9), False), 1, frames), *cct.flush()]))
    assert counts == {(((UNKNOWN, -1), ("m2", -1)), "instructions"): 2}
    assert cct.statistics()["cct_stacks_refused"] == 1


def test_a_stack_names_what_stood_between_two_frames_of_the_interpreter() -> None:
    """A.a calls B.b, which is lost sight of; C.c is found, above a gap. It was B.b that had called it, at a bci that is
    not known."""
    d, cct = Dictionaries(), stage()
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    out = d.path([Block((Range(INTERPRETER + 40, INTERPRETER + 45, True, ()),), BlockEnd.FILTER)])
    order = [entry, template, entry, template, template, out, DISABLED, template]
    told = events(
        (1, 0, FrameEvent.ENTER, A, -1), (3, 0, FrameEvent.ENTER, B, 3), (4, 0, FrameEvent.LOST, -1, -1),
        (4, 0, FrameEvent.FRAME, C, -1), (6, 0, FrameEvent.STACK, -1, 0),
    )  # fmt: skip
    frames = [(INTERPRETER + 3, A, 3), (INTERPRETER + 3, B, 5), (INTERPRETER + 45, C, 7)]
    message = d.message(TID, order, (0, 9), False)
    counts = found(tree_of([*feed(cct, message, 6, frames, told=told), *cct.flush()]))
    a, b = (("A.a", -1),), (("A.a", -1), ("B.b", 3))
    instructions = {stack: n for (stack, name), n in counts.items() if name == "instructions"}
    assert instructions == {
        (("[interpreter]", -1),): 1, a: 2, b: 1, (*b, ("C.c", -1)): 2, (*b, ("C.c", 5)): 1,
    }  # fmt: skip


def test_returns_go_through_the_frames_of_a_stack() -> None:
    """m2 returns to m1, and that to m0, at the addresses that the stack has."""
    d, cct = Dictionaries(), stage()
    out = d.path([code(2)])
    leave = d.path([Block((Range(SPACING * 3 + 13, SPACING * 3 + 14, False, ()),), BlockEnd.RETURN)])
    in_1 = d.path([Block((Range(site(1, 0), site(1, 0) + 1, False, ()),), BlockEnd.RETURN)])
    in_0 = d.path([Block((Range(site(0, 0), site(0, 0) + 1, False, ()),), BlockEnd.INDIRECT)])
    frames = [(site(0, 0), -1, -1), (site(1, 0), -1, -1), (SPACING * 3 + 13, -1, -1)]
    order = [out, DISABLED, leave, in_1, in_0]
    counts = found(tree_of([*feed(cct, d.message(TID, order, (0, 9), False), 1, frames), *cct.flush()]))
    m0, m1 = (("m0", -1),), (("m0", -1), ("m1", 0))
    assert counts == {((*m1, ("m2", 0)), "instructions"): 2, (m1, "instructions"): 1, (m0, "instructions"): 1}


# Where a stack belongs


def read(
    before: int, tsc: int, pc: int = SPACING * 3 + 13, frames: int = 1, tid: int = TID, whole: bool = True
) -> Stack:
    rows = np.zeros(frames, STACK_FRAME_DTYPE)
    rows["pc"] = pc
    return Stack(tsc, tid, 0, tid, StackFlag.WHOLE if whole else StackFlag(0), before, rows)


def placed(*stacks: Stack, slack: int = 0) -> list[int]:
    """In: m2 leaves from 10 to 20 and from 30 to 90, m1 from 92 to 99: at positions 1, 3, 5."""
    d, of = Dictionaries(), Stacks(Made())  # type: ignore[arg-type]
    order = [d.path([code(2)]), DISABLED, d.path([code(2)]), DISABLED, d.path([code(1)]), DISABLED]
    message = d.message(TID, order, (0, 99), False)
    times = [(0, 0), (1, 10), (2, 20), (3, 30), (4, 90), (5, 92), (6, 99)]
    message.rows["stop_end"], message.rows["order_end"], message.rows["tsc_end"] = len(times), len(order), 99
    object.__setattr__(message, "stops", np.array(times, STOP_DTYPE))
    known = Dictionary()
    known.take(message)
    for stack in stacks:
        of.told(stack)
    return [place.order for place in of.place(message, known, slack).get(TID, [])]


@pytest.mark.parametrize(
    ("stack", "slack", "at"),
    [
        (read(12, 18), 0, [1]),
        (read(40, 80), 0, [3]),
        (read(40, 95), 0, [3]),  # the VM has called a stub meanwhile
        (read(93, 95), 0, []),  # there other code was left
        (read(93, 95, site(1, 0)), 0, [5]),
        (read(25, 26), 0, []),  # it ran Java code then
        (read(25, 26), 4, []),
        (read(21, 26), 4, [1]),
        (read(25, 26), 9, []),  # either may be meant
        (read(140, 150), 0, []),
    ],
)
def test_a_stack_belongs_where_its_code_was_left_at_its_time(stack: Stack, slack: int, at: list[int]) -> None:
    assert placed(stack, slack=slack) == at


def test_two_stacks_of_one_place_are_one() -> None:
    assert placed(read(12, 18), read(40, 50), read(60, 70)) == [1, 3]


def test_what_waits_is_bounded() -> None:
    waiting = Stacks(Made())  # type: ignore[arg-type]
    waiting.told(read(1, 2, frames=MOST_FRAMES + 1))
    waiting.told(read(1, 2, whole=False))
    assert waiting.counts["in_part"] == 2
    for n in range(2 * WAITING):
        waiting.told(read(n, n + 1))
    assert len(waiting._waiting[TID]) == WAITING
    for tid in range(2 * THREADS):
        waiting.told(read(1, 2, frames=100, tid=tid))
        assert waiting._frames <= MOST_WAITING
    assert len(waiting._waiting) <= THREADS
    for tid in range(2 * THREADS):
        waiting.forget(tid)
    assert waiting._frames == 0

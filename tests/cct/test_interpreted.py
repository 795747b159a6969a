"""Frames of the interpreter, as `Bytecodes` tells them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jvm.code.version import Kind, Version
from stages.cct.interpreted import events_told
from stages.cct.stage import Cct
from stages.cct.tables import INTERPRETER as PLAIN
from stages.messages import Bytecodes, Paths
from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE, FrameEvent
from stages.messages.paths import DISABLED, BlockEnd
from tests.cct.made import INTERPRETER, SPACING, UNKNOWN, Block, Dictionaries, Range
from tests.cct.test_stage import found, stage, tree_of

A, B, C, D = 8, 9, 10, 11
NAMES = ((A, "A.a"), (B, "B.b"), (C, "C.c"), (D, "D.d"))
ENTRY = Block((Range(INTERPRETER, INTERPRETER + 1, False, ()),), BlockEnd.INDIRECT)
TEMPLATE = Block((Range(INTERPRETER + 16, INTERPRETER + 17, False, ()),), BlockEnd.INDIRECT)
COMPILED = Block((Range(SPACING, SPACING + 1, False, ()),), BlockEnd.RETURN)


def events(*told: tuple[int, int, FrameEvent, int, int]) -> NDArray[np.void]:
    rows = np.zeros(len(told), EVENT_DTYPE)
    for row, (order, block, kind, method, bci) in zip(rows, told, strict=True):
        row["order"], row["block"], row["kind"], row["method"], row["bci"] = order, block, kind, method, bci
    return rows


def explained(cct: Cct, paths: Paths, told: NDArray[np.void]) -> list[object]:
    of = np.zeros(0, METHOD_DTYPE), np.zeros(0, KNOWN_DTYPE)
    said = Bytecodes("h", 42, paths.generation, paths.first_path, len(paths.order), *of, told, NAMES)
    assert cct.feed(said) == [said]
    return cct.feed(paths)


def test_calls_between_interpreted_methods() -> None:
    """A.a calls B.b twice, at 3; B.b calls compiled code once. An entry is told behind the block of the entry."""
    d, cct = Dictionaries(), stage()
    entry, template, compiled = d.path([ENTRY]), d.path([TEMPLATE]), d.path([COMPILED])
    both = d.path([ENTRY, TEMPLATE, TEMPLATE, TEMPLATE])
    order = [entry, template, both, entry, template, compiled, template, template]
    told = events(
        (1, 0, FrameEvent.ENTER, A, -1), (2, 1, FrameEvent.ENTER, B, 3), (2, 3, FrameEvent.RETURN, -1, -1),
        (4, 0, FrameEvent.ENTER, B, 3), (5, 0, FrameEvent.COMPILED, -1, 7), (6, 0, FrameEvent.BACK, -1, -1),
        (7, 0, FrameEvent.RETURN, -1, -1),
    )  # fmt: skip
    tree = tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()])
    a = ((UNKNOWN, -1), ("A.a", -1))
    b = (*a, ("B.b", 3))
    assert found(tree) == {
        # the first entry is of a method that is not known yet; those of B.b count for the caller
        (((UNKNOWN, -1), ("[interpreter]", -1)), "instructions"): 1,
        (a, "invocations"): 1, (a, "instructions"): 1 + 1 + 1 + 1 + 1,
        (b, "invocations"): 2, (b, "instructions"): 2 + 2,
        ((*b, ("m0", -1)), "invocations"): 1, ((*b, ("m0", -1)), "instructions"): 1,
    }  # fmt: skip
    assert tree.total("observed_ticks") == 9


def test_what_is_not_explained_stays_the_interpreter() -> None:
    d, cct = Dictionaries(), stage()
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    message = d.message(7, [entry, template, entry, template], (0, 9), False)
    plain = ((UNKNOWN, -1), ("[interpreter]", -1))
    assert found(tree_of([*explained(cct, message, events()), *cct.flush()])) == {
        (plain, "invocations"): 2, (plain, "instructions"): 4,
    }  # fmt: skip


def test_frames_that_are_told_anew_are_where_they_were() -> None:
    """Behind a LOST: A.a, which called B.b; below compiled code others, of which the machine code has told."""
    d, cct = Dictionaries(), stage()
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    anew = [(4, 0, kind, method, bci) for kind, method, bci in (
        (FrameEvent.LOST, -1, -1), (FrameEvent.FRAME, B, -1), (FrameEvent.COMPILED, -1, 1), (FrameEvent.FRAME, A, -1),
        (FrameEvent.FRAME, B, 3),
    )]  # fmt: skip
    told = events((1, 0, FrameEvent.ENTER, A, -1), (3, 0, FrameEvent.ENTER, B, 3), *anew)
    order = [entry, template, entry, template, template]
    tree = tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()])
    a = ((UNKNOWN, -1), ("A.a", -1))
    assert found(tree)[(*a, ("B.b", 3)), "instructions"] == 2
    assert len(tree.nodes) == 5  # none beside them: thread, unknown, the first entry's, A.a, B.b


def test_a_frame_told_anew_that_did_not_stand_there_is_not_called_by_those_that_did() -> None:
    """A.a calls B.b, that A.a, and nothing is told for a while; then C.c runs, and returns to B.b. Which of the three
    frames are left then is not known, but the lowest, which machine code has not left."""
    d, cct = Dictionaries(), stage()
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    told = events(
        (1, 0, FrameEvent.ENTER, A, -1), (3, 0, FrameEvent.ENTER, B, 3), (5, 0, FrameEvent.ENTER, A, 5),
        (6, 0, FrameEvent.LOST, -1, -1), (6, 0, FrameEvent.FRAME, C, -1), (8, 0, FrameEvent.RETURN, B, -1),
    )  # fmt: skip
    order = [entry, template, entry, template, entry, template, template, template, template]
    counts = found(tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()]))
    a = ((UNKNOWN, -1), ("A.a", -1))
    assert counts[(*a, ("[interpreter]", -1), ("C.c", -1)), "instructions"] == 2
    assert counts[(*a, ("[interpreter]", -1), ("B.b", -1)), "instructions"] == 1
    assert not any(len(stack) > 4 or (("C.c", -1) in stack and ("B.b", 3) in stack) for stack, _ in counts)


def test_stacks_do_not_grow_however_often_they_are_lost() -> None:
    """A.a calls B.b. Then again and again nothing is told, and then another method's frame."""
    d, cct = Dictionaries(), stage()
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    told = [(1, 0, FrameEvent.ENTER, A, -1), (3, 0, FrameEvent.ENTER, B, 3)]
    for at in range(4, 40, 4):
        told += [(at, 0, FrameEvent.LOST, -1, -1), (at + 1, 0, FrameEvent.LOST, -1, -1)]
        told += [(at + 1, 0, FrameEvent.FRAME, C if at % 8 else D, -1)]
    order = [entry, template, entry, *[template] * 40]
    counts = found(tree_of([*explained(cct, d.message(7, order, (0, 9), False), events(*told)), *cct.flush()]))
    a, untold = ((UNKNOWN, -1), ("A.a", -1)), ("[interpreter]", -1)
    assert {stack for stack, _ in counts if stack[-1] in {("C.c", -1), ("D.d", -1)}} == {
        (*a, untold, ("C.c", -1)), (*a, untold, ("D.d", -1)),
    }  # fmt: skip
    assert max(len(stack) for stack, _ in counts) == 5


def test_a_frame_told_anew_is_not_that_of_its_method_below_a_call_by_the_vm() -> None:
    """A.a calls the VM, which calls A.a: the frames below that call stay, though what is above is told anew."""
    d, cct = Dictionaries(), stage()
    made: Any = cct.images.of("h", 42).image
    made.known[3] = Version(4, Kind.DYNAMIC, 4 * SPACING, 5 * SPACING, "call_stub", 0, 0)
    calls_vm = Block((Range(INTERPRETER + 32, INTERPRETER + 37, True, ()),), BlockEnd.INDIRECT)
    calls_java = Block((Range(4 * SPACING, 4 * SPACING + 2, True, ()),), BlockEnd.INDIRECT)
    entry, template, out, into = d.path([ENTRY]), d.path([TEMPLATE]), d.path([calls_vm]), d.path([calls_java])
    order = [entry, template, out, DISABLED, into, entry, template, template]
    told = events(
        (1, 0, FrameEvent.ENTER, A, -1), (6, 0, FrameEvent.LOST, -1, -1), (6, 0, FrameEvent.FRAME, A, -1),
    )  # fmt: skip
    counts = found(tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()]))
    a, stub = ("A.a", -1), ("call_stub", -1)
    assert counts[((UNKNOWN, -1), a, stub, a), "instructions"] == 2
    assert counts[((UNKNOWN, -1), a), "instructions"] == 2


def test_a_caller_that_is_seen_by_a_return_first_has_its_method() -> None:
    """Nothing is known below B.b, which returns to A.a: so that has called it, and what was there in its place."""
    d, cct = Dictionaries(), stage()
    template = d.path([TEMPLATE])
    told = events((1, 0, FrameEvent.LOST, -1, -1), (1, 0, FrameEvent.FRAME, B, -1), (3, 0, FrameEvent.RETURN, A, -1))
    message = d.message(7, [template] * 5, (0, 9), False)
    tree = tree_of([*explained(cct, message, told), *cct.flush()])
    a = ((UNKNOWN, -1), ("A.a", -1))
    assert found(tree) == {
        ((*a, ("[interpreter]", -1)), "instructions"): 1, ((*a, ("B.b", -1)), "instructions"): 2,
        (a, "instructions"): 2,
    }  # fmt: skip


RETURNS = events(
    (1, 0, FrameEvent.LOST, -1, -1), (1, 0, FrameEvent.FRAME, B, -1), (3, 0, FrameEvent.RETURN, -1, -1),
    (4, 0, FrameEvent.LOST, -1, -1), (4, 0, FrameEvent.FRAME, A, -1),
)  # fmt: skip


def test_a_caller_that_is_told_later_is_the_one_that_was_returned_to() -> None:
    d, cct = Dictionaries(), stage()
    message = d.message(7, [d.path([TEMPLATE])] * 6, (0, 9), False)
    tree = tree_of([*explained(cct, message, RETURNS), *cct.flush()])
    a = ((UNKNOWN, -1), ("A.a", -1))
    assert found(tree)[a, "instructions"] == 3
    assert found(tree)[(*a, ("B.b", -1)), "instructions"] == 2
    assert not {stack for stack, _ in found(tree)} - {a, (*a, ("B.b", -1)), (*a, ("[interpreter]", -1))}


def test_a_caller_that_is_seen_by_a_return_first_may_call_before_it_is_told() -> None:
    """B.b returns to a method that calls C.c at 5; then it is told that it is A.a."""
    d, cct = Dictionaries(), stage()
    told = events(
        (1, 0, FrameEvent.LOST, -1, -1), (1, 0, FrameEvent.FRAME, B, -1), (3, 0, FrameEvent.RETURN, -1, -1),
        (4, 0, FrameEvent.ENTER, C, 5), (6, 0, FrameEvent.RETURN, A, -1),
    )  # fmt: skip
    tree = tree_of([*explained(cct, d.message(7, [d.path([TEMPLATE])] * 8, (0, 9), False), told), *cct.flush()])
    a = ((UNKNOWN, -1), ("A.a", -1))
    assert found(tree)[(*a, ("C.c", 5)), "instructions"] == 2
    assert found(tree)[(*a, ("B.b", -1)), "instructions"] == 2
    assert found(tree)[a, "instructions"] == 3


def test_a_frame_of_a_method_that_is_not_known_calls() -> None:
    """A.a calls a method that is not known at 3, and that calls B.b: both return."""
    d, cct = Dictionaries(), stage()
    told = events(
        (1, 0, FrameEvent.LOST, -1, -1), (1, 0, FrameEvent.FRAME, A, -1), (2, 0, FrameEvent.ENTER, -1, 3),
        (3, 0, FrameEvent.ENTER, B, -1), (5, 0, FrameEvent.RETURN, -1, -1), (6, 0, FrameEvent.RETURN, A, -1),
    )  # fmt: skip
    tree = tree_of([*explained(cct, d.message(7, [d.path([TEMPLATE])] * 9, (0, 9), False), told), *cct.flush()])
    a = ((UNKNOWN, -1), ("A.a", -1))
    counts = found(tree)
    assert counts[a, "instructions"] == 1 + 3
    assert counts[(*a, ("[interpreter]", 3), ("B.b", -1)), "instructions"] == 2
    assert counts[(*a, ("[interpreter]", 3)), "instructions"] == 2


def test_below_the_lowest_frame_that_is_named_stand_those_that_stood_there() -> None:
    """A.a calls B.b at 3, and that calls C.c at 4. Then the stack is told anew, without A.a's name."""
    d, cct = Dictionaries(), stage()
    told = events(
        (1, 0, FrameEvent.LOST, -1, -1), (1, 0, FrameEvent.FRAME, A, -1), (2, 0, FrameEvent.ENTER, B, 3),
        (3, 0, FrameEvent.ENTER, C, 4), (4, 0, FrameEvent.LOST, -1, -1), (5, 0, FrameEvent.LOST, -1, -1),
        (5, 0, FrameEvent.FRAME, -1, -1), (5, 0, FrameEvent.FRAME, B, -1), (5, 0, FrameEvent.FRAME, C, 4),
    )  # fmt: skip
    tree = tree_of([*explained(cct, d.message(7, [d.path([TEMPLATE])] * 9, (0, 9), False), told), *cct.flush()])
    b = ((UNKNOWN, -1), ("A.a", -1), ("B.b", 3))
    assert found(tree)[(*b, ("C.c", 4)), "instructions"] == 1 + 4


def test_the_lowest_frame_is_there_until_machine_code_leaves_it() -> None:
    """m1 calls A.a. Then it is told that a method has returned twice, to one that is not known, and to B.b: these were
    called by A.a, however."""
    d, cct = Dictionaries(), stage()
    m1 = d.path([Block((Range(2 * SPACING + 16, 2 * SPACING + 21, True, ()),), BlockEnd.INDIRECT)])
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    told = events(
        (2, 0, FrameEvent.ENTER, A, -1), (3, 0, FrameEvent.RETURN, -1, -1), (4, 0, FrameEvent.RETURN, -1, -1),
        (5, 0, FrameEvent.RETURN, B, -1), (7, 0, FrameEvent.RETURN, -1, -1),
    )  # fmt: skip
    order = [m1, entry, *[template] * 6]
    counts = found(tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()]))
    a = ((UNKNOWN, -1), ("m1", -1), ("A.a", 0))
    assert counts[a, "instructions"] == 3
    assert sum(n for (path, weight), n in counts.items() if weight == "instructions" and path[-1][0] == "B.b") == 2
    assert {path[:4] for path, _ in counts if ("B.b", -1) in path} == {(*a, ("[interpreter]", -1))}


def test_a_frame_that_was_told_wrong_does_not_call() -> None:
    """m1 calls A.a. Then a stack is told of which the only frame is not known: what it calls A.a does not call."""
    d, cct = Dictionaries(), stage()
    m1 = d.path([Block((Range(2 * SPACING + 16, 2 * SPACING + 21, True, ()),), BlockEnd.INDIRECT)])
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    told = events(
        (2, 0, FrameEvent.ENTER, A, -1), (3, 0, FrameEvent.LOST, -1, -1), (4, 0, FrameEvent.LOST, -1, -1),
        (4, 0, FrameEvent.FRAME, -1, -1), (5, 0, FrameEvent.ENTER, B, -1),
    )  # fmt: skip
    order = [m1, entry, *[template] * 6]
    counts = found(tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()]))
    a = ((UNKNOWN, -1), ("m1", -1), ("A.a", 0))
    assert {path for path, _ in counts if path[: len(a)] == a} >= {(*a, ("[interpreter]", -1))}
    assert not [path for path, _ in counts if ("B.b", -1) in path and path[path.index(("B.b", -1)) - 1] == a[-1]]


@pytest.mark.parametrize("caller", [A, B])
def test_behind_a_hole_a_frame_has_the_caller_that_it_had_before(caller: int) -> None:
    """m1 calls A.a, which calls B.b at 3; there is a hole in B.b, and behind it B.b returns to a frame of the
    interpreter that is told later: A.a as before, or another."""
    d, cct = Dictionaries(), stage(presume=True)
    m1 = d.path([Block((Range(2 * SPACING + 16, 2 * SPACING + 21, True, ()),), BlockEnd.INDIRECT)])
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    order = [m1, entry, template, entry, template]
    before = events((2, 0, FrameEvent.ENTER, A, -1), (4, 0, FrameEvent.ENTER, B, 3))
    said = explained(cct, d.message(7, order, (0, 9), False), before)
    behind = RETURNS.copy()
    behind["method"][-1] = caller
    said += explained(cct, d.message(7, [template] * 6, (10, 19), False), behind)
    counts = found(tree_of([*said, *cct.flush()]))
    a = ((UNKNOWN, -1), ("m1", -1), ("A.a", 0))
    right = caller == A
    assert counts[a, "instructions"] == (2 + 3 if right else 2)
    assert counts[(*a, ("B.b", 3)), "instructions"] == (1 + 2 if right else 1)
    assert counts[((UNKNOWN, -1), ("B.b", -1), ("B.b", -1)), "instructions"] == (0 if right else 2)
    statistics = cct.statistics()
    assert (statistics["cct_presumed_right"], statistics["cct_presumed_wrong"]) == (right, not right)


def test_events_that_matter() -> None:
    told = events(
        (0, 0, FrameEvent.GOES_ON, -1, -1), (1, 0, FrameEvent.LOST, -1, -1), (1, 0, FrameEvent.FRAME, A, -1),
        (1, 0, FrameEvent.UPCALL, -1, -1), (1, 0, FrameEvent.FRAME, B, -1), (1, 0, FrameEvent.FRAME, A, 3),
        (2, 0, FrameEvent.ENTER, B, 4), (5, 0, FrameEvent.LOST, -1, -1), (6, 0, FrameEvent.RETURN, -1, -1),
    )  # fmt: skip
    fns = np.concatenate(([PLAIN], np.arange(100, 110)))
    left, rows = events_told(told, fns)
    assert list(zip(left.order.tolist(), left.kind.tolist(), left.fn.tolist(), left.bci.tolist(), strict=True)) == [
        (1, FrameEvent.LOST, 100 + B, 1), (1, FrameEvent.FRAME, 100 + A, 3), (2, FrameEvent.ENTER, 100 + B, 4),
        (5, FrameEvent.LOST, PLAIN, 0), (6, FrameEvent.RETURN, PLAIN, -1),
    ]  # fmt: skip
    assert rows.tolist() == [0] * 5


KIND = st.sampled_from([kind for kind in FrameEvent if kind != FrameEvent.FRAME])


@st.composite
def told_events(draw: st.DrawFn) -> NDArray[np.void]:
    """As the matcher writes them: behind a LOST the frames, at its place."""
    rows = list[tuple[int, int, FrameEvent, int, int]]()
    for order in sorted(draw(st.lists(st.integers(0, 9), max_size=12))):
        kind = draw(KIND)
        rows.append((order, 0, kind, draw(st.integers(-1, 9)), draw(st.integers(-1, 3))))
        if kind == FrameEvent.LOST:
            stack = draw(
                st.lists(st.sampled_from([FrameEvent.FRAME, FrameEvent.COMPILED, FrameEvent.UPCALL]), max_size=6)
            )
            rows += [(order, 0, frame, draw(st.integers(-1, 9)), draw(st.integers(-1, 3))) for frame in stack]
    return events(*rows)


def plainly_told(told: NDArray[np.void], fns: NDArray[np.int64]) -> list[tuple[int, int, int, int]]:
    """Order, kind, function, bci of what is left."""
    out = list[tuple[int, int, int, int]]()
    rows: list[tuple[int, int, int, int]] = told[["order", "kind", "method", "bci"]].tolist()
    while rows:
        order, kind, method, bci = rows.pop(0)
        if kind == FrameEvent.STACK:
            out.append((order, kind, bci >> 1, bci & 1))
            continue
        if kind != FrameEvent.LOST:
            if kind not in (FrameEvent.GOES_ON, FrameEvent.COMPILED, FrameEvent.BACK, FrameEvent.UPCALL,
                            FrameEvent.UPRETURN):  # fmt: skip
                out.append((order, kind, int(fns[method + 1]), bci))
            continue
        stack = list[tuple[int, int, int, int]]()
        while rows and rows[0][0] == order and rows[0][1] in (FrameEvent.FRAME, FrameEvent.COMPILED, FrameEvent.UPCALL):
            stack.append(rows.pop(0))
            if stack[-1][1] != FrameEvent.FRAME:
                stack.clear()
        while stack and stack[0][2] < 0:
            stack.pop(0)
        lowest = int(fns[stack[0][2] + 1]) if stack else PLAIN
        out.append((order, kind, lowest, max(len(stack) - 1, 0)))
        out += [(o, k, int(fns[m + 1]), at) for o, k, m, at in stack[1:]]
    return out


@given(told_events())
def test_events_are_those_of_a_plain_reading(told: NDArray[np.void]) -> None:
    fns = np.concatenate(([PLAIN], np.arange(100, 110)))
    left, _ = events_told(told, fns)
    columns = (left.order, left.kind, left.fn, left.bci)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == plainly_told(told, fns)


def test_a_node_whose_calls_are_taken_back_is_counted_once() -> None:
    """A.a's untold callee executes an instruction. Then A.a enters a method, which is told to be B.b: the untold one is
    entered once more, and that is taken back, which leaves nothing but the instruction (and the first call)."""
    d, cct = Dictionaries(), stage()
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    order = [entry, template, template, template, entry, template]
    told = events(
        (1, 0, FrameEvent.ENTER, A, -1), (2, 0, FrameEvent.ENTER, -1, -1), (3, 0, FrameEvent.RETURN, A, -1),
        (5, 0, FrameEvent.ENTER, B, 3),
    )  # fmt: skip
    counts = found(tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()]))
    a = ((UNKNOWN, -1), ("A.a", -1))
    assert counts[(*a, ("[interpreter]", -1)), "instructions"] == 1
    assert counts[(*a, ("B.b", 3)), "instructions"] == 1
    assert sum(n for (_, name), n in counts.items() if name == "instructions") == len(order)


HAPPENS = ((FrameEvent.ENTER, -1), (FrameEvent.ENTER, B), (FrameEvent.RETURN, A), (FrameEvent.LOST, -1), None)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(HAPPENS)), min_size=4, max_size=30))
def test_every_instruction_is_counted_once_whatever_is_told(happens: list[tuple[bool, Any]]) -> None:
    """A method is entered or not, and something is told, or nothing."""
    d, cct = Dictionaries(), stage()
    entry, template = d.path([ENTRY]), d.path([TEMPLATE])
    order, told = [entry, template], [(1, 0, FrameEvent.ENTER, A, -1)]
    for enters, event in happens:
        order += [entry, template] if enters else [template]
        told += [(len(order) - 1, 0, *event, -1)] if event else []
    said = [*explained(cct, d.message(7, order, (0, 9), False), events(*told)), *cct.flush()]
    assert tree_of(said).total("observed_instructions") == len(order)


@pytest.mark.parametrize("times", [1, 3])
def test_paths_inside_of_the_interpreter_count_for_the_frame_on_top(times: int) -> None:
    """Of blocks, and of paths; once, and several times in a row; in two frames."""
    d, cct = Dictionaries(), stage()
    entry, template, compiled = d.path([ENTRY]), d.path([TEMPLATE]), d.path([COMPILED])
    both = d.path([TEMPLATE, TEMPLATE])
    window = d.window([template, both, template])
    mixed = d.window([template, compiled, template])
    again = [] if times == 1 else [1 - times]
    inside = [template, *again, both, *again, window, *again]
    order = [entry, *inside, entry, *inside, mixed, *inside]
    back = 1 + len(inside)
    told = events((1, 0, FrameEvent.ENTER, A, -1), (back + 1, 0, FrameEvent.ENTER, B, 3))
    tree = tree_of([*explained(cct, d.message(7, order, (0, 9), False), told), *cct.flush()])
    a = ((UNKNOWN, -1), ("A.a", -1))
    each = times * (1 + 2 + 4)
    assert found(tree)[a, "instructions"] == each + 1
    assert found(tree)[(*a, ("B.b", 3)), "instructions"] == each + 2 + each
    assert found(tree)[(*a, ("B.b", 3), ("m0", -1)), "instructions"] == 1
    assert tree.total("observed_ticks") == pytest.approx(9)

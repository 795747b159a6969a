"""Where inlined calls are made in machine code, on nmethods made by hand. Method 1 is the nmethod's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from jvm.bytecode.counts import CALL, JUMP, LEAVE, STEP
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from stages.inlining.class_measures import EXECUTED, NOT_TAKEN, TAKEN
from stages.inlining.inlining import Inlining, Measures
from tests.jvm.codeimage.test_debuginfo import debug_info

Stack = list[tuple[int, int]]
Rows = list[tuple[int, int, int]]
Found = list[tuple[int, int, int, str]]
NAMES = {1: "own", 2: "two", 3: "three"}
START = 0x1000
LOOP: Rows = [(6, JUMP, 20), (12, STEP, 1), (15, JUMP, 4), (20, LEAVE, 0)]  # for (…; …; i++) { … }


def named(method: str) -> SimpleNamespace:
    return SimpleNamespace(display=method)


def measured(
    code: list[tuple[str, Stack]], steps: dict[int, Rows], calls: tuple[tuple[int, str], ...] = (), c2: bool = True,
    virtual: tuple[str, ...] = (), stretches: dict[int, list[tuple[int, int]]] | None = None,
) -> Measures:  # fmt: skip
    """`code`: instructions with the frames that they are described with. `virtual`: the methods to which the call at
    bci 5 of method 1 may lead, if it is a virtual one. `stretches` of methods: first bci, bytecodes. An instruction
    without frames is one that the compiler has no position of: it is described as the next one."""
    data, pcs = b"", []
    for instruction, stack in code:
        data += bytes.fromhex(instruction)
        if stack:
            pcs.append((len(data), stack))
    rows = {method: np.array(steps.get(method, []), np.int32).reshape(-1, 3) for method in NAMES}
    classes = SimpleNamespace(
        steps=rows.get,
        calls=lambda method: [(bci, named(name)) for bci, name in calls] if method == 1 else [],
        selected=lambda _: [named(name) for name in virtual],
        straight=lambda callee: 9 if stretches else 0,
        virtual=lambda method, bci: "called" if virtual and (method, bci) == (1, 5) else None,
        stretches={method: np.array(rows, np.int32) for method, rows in (stretches or {}).items()}.get,
    )  # fmt: skip
    image: Any = SimpleNamespace(
        methods=NAMES, classes=classes, first_code=lambda v: np.frombuffer(data + bytes(16), np.uint8)
    )
    kind = SiteKind.C2 if c2 else SiteKind.C1
    v: Any = SimpleNamespace(
        debug=debug_info(pcs, len(data) + 16), start=START, verified_entry=START, osr_entry=0, site_kind=kind
    )
    return Inlining(cast(CodeImage, image)).of(v, np.zeros(0, np.uint64))


def find(
    code: list[tuple[str, Stack]], steps: dict[int, Rows], calls: tuple[tuple[int, str], ...] = (), c2: bool = True,
    virtual: tuple[str, ...] = (),
) -> tuple[Found, tuple[str | None, ...]]:  # fmt: skip
    m = measured(code, steps, calls, c2, virtual)
    found = zip(m.offset.tolist(), m.way.tolist(), m.times.tolist(), m.called, strict=True)
    return sorted((*row[:3], str(row[3])) for row in found), m.unmeasured


def test_what_runs_without_a_condition_runs_as_often_as_the_caller() -> None:
    code = [("01c8", [(1, 0)]), ("01d8", [(3, 5), (2, 1), (1, 3)]), ("c3", [(1, 8)])]
    assert find(code, {1: [(8, LEAVE, 0)]}) == ([(0, EXECUTED, 1, "three"), (0, EXECUTED, 1, "two")], ())


def test_a_call_that_left_no_description_is_counted_with_its_caller() -> None:
    code = [("01c8", [(1, 2)]), ("c3", [(1, 8)])]
    assert find(code, {1: [(3, CALL, 0), (8, LEAVE, 0)]}, ((3, "gone"),)) == ([(0, EXECUTED, 1, "gone")], ())


def test_a_call_that_is_made_is_not_inlined() -> None:
    code = [("e800000000", [(1, 3)]), ("c3", [(1, 8)])]
    assert find(code, {1: [(3, CALL, 0), (8, LEAVE, 0)]}, ((3, "called"),)) == ([], ())


def round_of(step: str) -> list[tuple[str, Stack]]:
    """Loop of method 1 that calls method 2."""
    return [
        ("31c0", [(1, 0)]),
        ("01cb", [(2, 0), (1, 9)]),
        (step, [(1, 12)]),
        ("39d1", [(1, 6)]),
        ("7cf7", [(1, 6)]),
        ("c3", [(1, 20)]),
    ]


def test_each_round_of_a_loop_calls() -> None:
    assert find(round_of("83c101"), {1: LOOP}) == ([(2, EXECUTED, 1, "two")], ())


def test_an_unrolled_loop_holds_as_many_rounds_as_its_step_says() -> None:
    assert find(round_of("83c104"), {1: LOOP}) == ([(9, EXECUTED, 4, "two")], ())


def test_c1_does_not_unroll() -> None:
    assert find(round_of("83c104"), {1: LOOP}, c2=False) == ([(2, EXECUTED, 1, "two")], ())


def test_rounds_written_out_one_after_the_other_are_not_measured() -> None:
    code = [("01c8", [(1, 0)]), ("01cb", [(2, 0), (1, 9)]), ("01cb", [(2, 0), (1, 9)]), ("c3", [(1, 20)])]
    assert find(code, {1: LOOP}) == ([], ("two",))


def test_a_call_of_which_nothing_is_left_in_rounds_written_out_is_not_measured_where_they_run() -> None:
    rounds: list[tuple[str, Stack]] = [("01cb", [(1, 11)]), ("01cb", [(1, 11)])]
    before, end = ("01c8", [(1, 0)]), ("c3", [(1, 20)])
    assert find([before, *rounds, end], {1: LOOP}, ((9, "gone"),)) == ([], ("gone",))
    assert find([before, end], {1: LOOP}, ((9, "gone"),)) == ([], ())
    trap = ("0f0b", [(1, 11)])
    assert find([before, ("7401", [(1, 6)]), end, trap], {1: LOOP}, ((9, "gone"),)) == ([], ())


def test_what_is_moved_ahead_of_the_condition_of_a_call_is_no_call() -> None:
    code: list[tuple[str, Stack]] = [
        ("01c8", [(2, 0), (1, 9)]),
        ("85db", [(1, 5)]),
        ("7402", [(1, 5)]),
        ("01d8", [(2, 3), (1, 9)]),
        ("c3", [(1, 12)]),
    ]
    assert find(code, {1: [(5, JUMP, 12), (12, LEAVE, 0)]}) == ([(6, EXECUTED, 1, "two")], ())


def test_where_ways_meet_in_the_middle_of_a_call_the_ways_in_are_counted() -> None:
    code: list[tuple[str, Stack]] = [
        ("85db", [(1, 5)]),
        ("740a", [(1, 5)]),  # past the call
        ("85c9", [(1, 7)]),
        ("7402", [(1, 7)]),  # into its middle
        ("01d8", [(2, 1), (1, 9)]),
        ("01d9", [(2, 3), (1, 9)]),
        ("01da", [(1, 11)]),
        ("c3", [(1, 12)]),
    ]
    steps = {1: [(5, JUMP, 12), (7, JUMP, 8), (12, LEAVE, 0)]}
    assert find(code, steps) == ([(6, TAKEN, 1, "two"), (8, EXECUTED, 1, "two")], ())


WHILE: Rows = [(5, JUMP, 20), (17, JUMP, 4), (20, LEAVE, 0)]  # while (two()) { three(); }


def test_the_test_of_a_loop_calls_once_more_than_its_body() -> None:
    """First the test alone; then rounds of the body and the test."""
    code: list[tuple[str, Stack]] = [
        ("01c8", [(2, 1), (1, 4)]),
        ("7406", [(1, 5)]),
        ("01d8", [(3, 1), (1, 9)]),
        ("01ca", [(2, 1), (1, 4)]),
        ("75fa", [(1, 5)]),
        ("c3", [(1, 20)]),
    ]
    found, _ = find(code, {1: WHILE})
    assert [row for row in found if row[3] == "three"] == [(4, EXECUTED, 1, "three")]
    # a round's body has its test before it
    assert [row for row in found if row[3] == "two"] == [(0, EXECUTED, 1, "two"), (4, EXECUTED, 1, "two")]


AGAIN: Rows = [(6, JUMP, 20), (12, JUMP, 20), (15, JUMP, 4), (20, LEAVE, 0)]  # a loop that calls at 9


def again(*between: tuple[str, Stack]) -> Found:
    """Two calls' worth of code in one round, with something `between`."""
    call: Stack = [(2, 3), (1, 9)]
    back = 256 - 6 - sum(len(text) // 2 for text, _ in between)
    code = [
        ("01c8", [(1, 0)]),
        ("01d8", call),
        *between,
        ("01d9", call),
        (f"75{back:02x}", [(1, 12)]),
        ("c3", [(1, 20)]),
    ]
    return find([(text, list(stack)) for text, stack in code], {1: AGAIN})[0]


def test_a_branch_of_the_vm_begins_no_round() -> None:
    """The compiler takes the first bytecode that needs the thread for the position of each comparison with a word of
    it, and of all code before that has no position (JDK: Compile::copy_node_notes_to, Node::hash of ThreadLocal)."""
    assert len(again(("85db", [(1, 7)]), ("7400", [(1, 7)]))) == 2  # a branch of the bytecode does
    once = again()
    assert len(once) == 1
    assert again(("4d3b9718010000", []), ("7300", [(1, 7)])) == once
    assert again(("85db", []), ("7400", []), ("4d3b9718010000", []), ("7300", [(1, 7)])) == once
    assert again(("85db", []), ("7400", []), ("be22ffffff", [(1, 7)])) == once  # that of a constant


def test_without_a_loop_nothing_is_called_again() -> None:
    call: Stack = [(2, 3), (1, 9)]
    test: list[tuple[str, Stack]] = [("85db", [(1, 3)]), ("7402", [(1, 3)])]
    code = [*test, ("01d8", call), *test, ("01d9", call), ("c3", [(1, 20)])]
    assert find(code, {1: [(3, JUMP, 12), (20, LEAVE, 0)]}) == ([(4, EXECUTED, 1, "two")], ())


def test_code_before_a_jump_is_not_described_by_that_behind_it() -> None:
    code: list[tuple[str, Stack]] = [
        ("85db", [(1, 5)]),
        ("7406", [(1, 5)]),
        ("01c9", [(1, 12)]),  # the call is not made
        ("01d2", []),
        ("eb02", []),
        ("01d8", [(2, 3), (1, 9)]),
        ("c3", [(1, 12)]),
    ]
    assert find(code, {1: [(5, JUMP, 12), (12, LEAVE, 0)]}) == ([(10, EXECUTED, 1, "two")], ())


def test_moves_are_no_evidence() -> None:
    code: list[tuple[str, Stack]] = [
        ("85db", [(1, 5)]),
        ("7404", [(1, 5)]),
        ("01d8", [(2, 3), (1, 9)]),
        ("eb02", [(1, 12)]),
        ("89c8", [(2, 3), (1, 9)]),  # where the call is not made
        ("c3", [(1, 12)]),
    ]
    assert find(code, {1: [(5, JUMP, 12), (12, LEAVE, 0)]}) == ([(4, EXECUTED, 1, "two")], ())


COMPARE, OTHER = "3d00100001", "3d20100001"  # with a class
FRAMES: dict[str, Stack] = {"own": [(1, 5)], "two": [(2, 1), (1, 5)], "three": [(3, 1), (1, 5)], "end": [(1, 8)]}


def receivers(*code: str, may_be: tuple[str, ...] = ("three", "two")) -> tuple[Found, tuple[str | None, ...]]:
    """`code`: instructions, each with what it is described as."""
    described = [(instruction, FRAMES[what]) for instruction, what in (part.split() for part in code)]
    return find(described, {1: [(8, LEAVE, 0)]}, virtual=may_be)


def test_receivers_methods_are_called_as_often_as_the_ways_to_them_are_taken() -> None:
    """JE to one, the other behind it; then both go on."""
    found = receivers(f"{COMPARE} own", "7404 own", "01d8 two", "eb02 own", "29d8 three", "c3 end")
    assert found == ([(5, TAKEN, 1, "three"), (5, NOT_TAKEN, 1, "two")], ())


def test_a_receivers_method_of_which_nothing_is_left_is_the_other_one() -> None:
    code = f"{COMPARE} own", "7404 own", "01d8 two", "eb02 own", "89d8 own", "c3 end"
    assert receivers(*code) == ([(5, TAKEN, 1, "three"), (5, NOT_TAKEN, 1, "two")], ())
    several = "four", "three", "two"
    assert receivers(*code, may_be=several) == ([(5, NOT_TAKEN, 1, "two")], ("four", "three"))


def test_a_way_that_ends_in_a_trap_is_none() -> None:
    code = f"{COMPARE} own", "7503 own", "01d8 two", "c3 end", "0f0b own"
    assert receivers(*code) == ([(0, EXECUTED, 1, "two")], ())


def test_a_receiver_whose_method_is_called_is_not_counted_here() -> None:
    code = f"{COMPARE} own", "7404 own", "01d8 two", "eb05 own", "e800000000 own", "c3 end"
    assert receivers(*code) == ([(5, NOT_TAKEN, 1, "two")], ())


def test_the_way_of_a_class_leads_to_the_method_to_which_it_leads_elsewhere() -> None:
    """Of a round that is written out apart, with nothing in it."""
    first = f"{COMPARE} own", "7402 own", "89d8 own"
    code = *first, f"{COMPARE} own", "7404 own", "01d8 two", "eb02 own", "29d8 three", "c3 end"
    want = [(at, way, 1, name) for at in (5, 14) for way, name in ((TAKEN, "three"), (NOT_TAKEN, "two"))]
    assert receivers(*code) == (want, ())


def test_what_is_made_for_all_receivers_and_then_chosen_is_of_none() -> None:
    code = "01d8 two", f"{COMPARE} own", "0f44c3 own", "c3 end"
    assert receivers(*code) == ([], ("two", "three"))
    assert receivers("29d8 three", *code) == ([], ("two", "three"))


def test_one_way_for_two_receivers_is_of_none() -> None:
    code = f"{COMPARE} own", "7406 own", "01d8 two", "29d8 three", "eb02 own", "29d8 three", "c3 end"
    assert receivers(*code) == ([], ("two", "three"))

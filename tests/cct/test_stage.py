"""The stage, against programs whose trees are known: lossless, with holes, and where there is no room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jvm.code.debug_info import DebugInfo
from jvm.code.version import Kind, Version
from stages.cct.fold import SLICE
from stages.cct.merging import merged
from stages.cct.stage import Cct
from stages.cct.tables import PARTS, SPARE_PARTS
from stages.cct.traced import Room
from stages.cct.tree import Tree, method_totals
from stages.images import Images
from stages.inlining.inlining import Inlining
from stages.messages import ThreadEnd, ThreadKey, TreeReport
from stages.messages.paths import BREAK, DISABLED, BlockEnd
from tests.cct.made import (
    METHODS,
    PROGRAMS,
    SITES,
    SPACING,
    STREAM,
    UNKNOWN,
    Block,
    Call,
    Dictionaries,
    Made,
    Range,
    Stack,
    expected,
    run,
)

SMALL = Room(1 << 12, 1 << 12, 1 << 12)


def stage(room: Room = SMALL, pane_ticks: int = 1 << 40, presume: bool = False) -> Cct:
    images: Any = Images(lateness_ticks=0)
    process = images.of("h", 42)
    process.image = Made()
    process.inlining = Inlining(process.image)
    return Cct(images=images, pane_ticks=pane_ticks, room=room, presume=presume)


def tree_of(reports: Iterable[object]) -> Tree:
    return merged(Tree(m.nodes, m.names) for m in reports if isinstance(m, TreeReport))


def found(tree: Tree) -> Counter[tuple[Stack, str]]:
    """Counts by stack, threads apart from it."""
    out: Counter[tuple[Stack, str]] = Counter()
    stacks: list[Stack] = []
    for row in tree.nodes:
        own = ((tree.names[row["method"]], int(row["bci"])),) if row["parent"] >= 0 else ()
        stacks.append((*(stacks[row["parent"]] if row["parent"] >= 0 else ()), *own))
        for name in ("instructions", "invocations"):
            if row[f"observed_{name}"]:
                out[stacks[-1], name] += int(row[f"observed_{name}"])
    return out


def ordered(draw: Any, blocks: Sequence[Block], d: Dictionaries) -> list[int]:
    """Paths over the blocks, cut anywhere, some of them in windows."""
    paths, at = [], 0
    while at < len(blocks):
        size = draw(st.integers(1, 3))
        paths.append(d.path(blocks[at : at + size]))
        at += size
    order: list[int] = []
    at = 0
    while at < len(paths):
        size = draw(st.integers(0, 3))
        order += [d.window(paths[at : at + size])] if size else paths[at : at + 1]
        at += max(1, size)
    return order


def stretch(blocks: Sequence[Block]) -> Counter[tuple[Stack, str]]:
    """The tree of blocks before which nothing is known: of frames from the lowest one seen on."""
    inlined = [[r.stack[:-1] if r.stack[-1][0] == "inlined" else r.stack for r in b.ranges] for b in blocks]
    return expected(blocks, min((len(s) for ranges in inlined for s in ranges), default=1) - 1)


@settings(deadline=None, max_examples=150)
@given(PROGRAMS, st.data())
def test_the_tree_of_a_program_however_its_order_is_cut(program: Call, data: st.DataObject) -> None:
    blocks, d, cct = run(program), Dictionaries(), stage(pane_ticks=10)
    cuts = sorted({0, len(blocks), *data.draw(st.lists(st.integers(0, len(blocks)), max_size=3))})
    said: list[object] = []
    for n, (a, b) in enumerate(pairwise(cuts)):
        order = ordered(data.draw, blocks[a:b], d)
        said += cct.feed(d.message(7, order, (7 * n, 7 * n + 7), n > 0))
    tree = tree_of([*said, *cct.flush()])
    assert found(tree) == stretch(blocks)
    assert tree.total("observed_ticks") == 7 * (len(cuts) - 1)


@settings(deadline=None, max_examples=150)
@given(PROGRAMS, st.data())
def test_events_between_any_two_blocks_change_nothing(program: Call, data: st.DataObject) -> None:
    """Behind a call or a return, too: the next block is cut short at its first instruction, and tracing goes off. And
    behind a direct call, in the middle of a block."""
    blocks, d, cct = run(program), Dictionaries(), stage()
    order = list[int]()
    for k, block in enumerate(blocks):
        if k and data.draw(st.booleans()):
            order += [d.path([Block((), BlockEnd.EVENT, block.ranges[0].lo)]), DISABLED]
        cut = data.draw(st.integers(0, len(block.ranges) - 1))
        if cut:
            first = Block(block.ranges[:cut], BlockEnd.EVENT, last=block.ranges[cut].lo)
            order += [d.path([first]), DISABLED]
        order.append(d.path([Block(block.ranges[cut:], block.ends)]))
    tree = tree_of([*cct.feed(d.message(7, order, (0, 7), False)), *cct.flush()])
    assert found(tree) == stretch(blocks)
    assert cct.statistics()["cct_strange_returns"] == 0


@settings(deadline=None, max_examples=150)
@given(PROGRAMS, st.data())
def test_frames_behind_a_hole_are_found_out_as_they_are_returned_to(program: Call, data: st.DataObject) -> None:
    blocks, d, cct = run(program), Dictionaries(), stage()
    lost = sorted(data.draw(st.lists(st.integers(0, len(blocks)), min_size=2, max_size=6)))
    lost = lost[: len(lost) // 2 * 2]
    kept = list(pairwise([0, *lost, len(blocks)]))[::2]
    order: list[int] = []
    want: Counter[tuple[Stack, str]] = Counter()
    for a, b in kept:
        order += [*ordered(data.draw, blocks[a:b], d), BREAK]
        if a < b:
            want.update(stretch(blocks[a:b]))
    assert found(tree_of([*cct.feed(d.message(7, order, (0, 100), False)), *cct.flush()])) == want


@settings(deadline=None, max_examples=150)
@given(PROGRAMS, st.data())
def test_the_tree_behind_an_overflow_is_the_lossless_one_without_the_lost_calls(
    program: Call, data: st.DataObject
) -> None:
    """Where all frames have been returned to: the outermost method runs last, so all that is known hangs below it."""
    blocks, d, cct = run(program), Dictionaries(), stage()
    begin, end = sorted(data.draw(st.lists(st.integers(0, len(blocks) - 1), min_size=2, max_size=2)))
    seen = blocks[:begin], blocks[end:]
    order = [*ordered(data.draw, seen[0], d), BREAK, *ordered(data.draw, seen[1], d)]
    said: list[object] = []
    cuts = sorted({0, len(order), *data.draw(st.lists(st.integers(0, len(order)), max_size=2))})
    for n, (a, b) in enumerate(pairwise(cuts)):
        said += cct.feed(d.message(7, order[a:b], (7 * n, 7 * n + 7), n > 0))
    lossless = expected(blocks, 0)
    lost = expected(blocks[begin:end], 0)
    assert found(tree_of([*said, *cct.flush()])) == lossless - lost


@settings(deadline=None, max_examples=60)
@given(PROGRAMS, st.data())
def test_too_many_holes_share_an_unknown_caller(program: Call, data: st.DataObject) -> None:
    """Nothing is lost; frames that are returned to stand below the unknown, and nothing grows with the holes."""
    blocks, d = run(program), Dictionaries()
    begin = data.draw(st.integers(0, len(blocks)))
    order = [*ordered(data.draw, blocks[begin:], d), BREAK]
    own, cct = stage(), stage(Room(1 << 12, 1 << 12, 1 << 12, holes=0))
    said = cct.feed(d.message(7, order, (0, 100), False))
    rows = cct.statistics()["cct_activations"], cct.statistics()["cct_nodes"]
    for n in range(1, 5):
        said += cct.feed(d.message(7, order, (100 * n, 100 * n + 100), False))
    assert rows == (cct.statistics()["cct_activations"], cct.statistics()["cct_nodes"])
    assert (cct.statistics()["cct_holes"], cct.statistics()["cct_shared_holes"]) == (0, 5 * (begin < len(blocks)))
    tree, once = tree_of([*said, *cct.flush()]), Dictionaries()
    single = [*own.feed(once.message(7, [once.path([b]) for b in blocks[begin:]], (0, 500), False)), *own.flush()]
    for name in ("observed_instructions", "observed_invocations"):
        want = {m: 5 * n for m, n in method_totals(tree_of(single), name).items() if n}
        assert {m: n for m, n in method_totals(tree, name).items() if n} == want
    assert tree.total("observed_ticks") == 500 * (begin < len(blocks))


@settings(deadline=None, max_examples=20)
@given(PROGRAMS, st.data())
def test_steps_that_are_worked_out_a_few_at_a_time(program: Call, data: st.DataObject) -> None:
    blocks, d = run(program), Dictionaries()
    order = ordered(data.draw, blocks, d) or [BREAK]
    order *= 3 * SLICE // len(order) + 1
    message = d.message(7, order, (0, 10**6), False)
    whole, few = stage(), stage()
    want = tree_of([*whole.feed(message), *whole.flush()])
    with mock.patch("stages.cct.traced.MADE", 0):
        steps = list(few.steps(message))
    assert steps.count(None) > 3
    got = tree_of([*(out for out in steps if out is not None), *few.flush()])
    assert got.names == want.names
    assert got.nodes.tobytes() == want.nodes.tobytes()


def test_a_thread_that_has_the_id_of_another_has_a_tree_of_its_own() -> None:
    """Its name is that of the time at which its trace begins; of a thread that nobody has named it is not known."""
    d, cct = Dictionaries(), stage()
    threads = cct.images.of("h", 42).image.threads
    threads.start(7, "main", 0)
    threads.end(7, 50)
    threads.start(7, "pool-1-thread-1", 60)
    order = [d.path([INNERMOST])]
    said = cct.feed(d.message(7, order, (0, 10), False))
    said += cct.feed(ThreadEnd(ThreadKey("h", 42, 7), STREAM, 50))
    said += cct.feed(d.message(7, order, (60, 70), False))
    said += cct.feed(d.message(8, order, (60, 70), False))
    tree = tree_of([*said, *cct.flush()])
    roots = tree.nodes[tree.nodes["parent"] < 0]
    assert {(tree.names[row["method"]], int(row["bci"])) for row in roots} == {
        ("[thread] main", 7), ("[thread] pool-1-thread-1", 7), ("[thread]", 8)
    }  # fmt: skip


def test_a_thread_that_is_told_late_has_its_name_from_the_beginning_of_the_pane_on() -> None:
    """`main` runs before the JVM is initialised, and the agent tells of it then. Its tree goes on, tables made anew or
    not."""
    d, cct = Dictionaries(), stage(Room(1 << 8, 1 << 8, 1 << 8))
    order = [d.path([INNERMOST])]
    said = cct.feed(d.message(7, order, (0, 10), False))
    cct.images.of("h", 42).image.threads.start(7, "main", 0)
    for k in range(1, 200):
        said += cct.feed(d.message(7, [*order, BREAK], (10 * k, 10 * k + 10), True))
    tree = tree_of([*said, *cct.flush()])
    assert [tree.names[row["method"]] for row in tree.nodes if row["parent"] < 0] == ["[thread] main"]
    assert tree.total("observed_instructions") == 200
    assert cct.statistics()["cct_rebuilt"] > 0


def test_names_of_threads_that_come_and_go_do_not_pile_up() -> None:
    cct = stage()
    threads = cct.images.of("h", 42).image.threads
    with mock.patch("stages.cct.stage.SPARE_FUNCTIONS", 100):
        for k in range(1000):
            threads.start(7, f"thread {k}", 10 * k)
            if k % 50 == 0:
                d = Dictionaries()
                order = [d.path([INNERMOST])]
            cct.feed(replace(d.message(7, order, (10 * k, 10 * k + 5), False), generation=k // 50))
            threads.end(7, 10 * k + 6)
            cct.feed(ThreadEnd(ThreadKey("h", 42, 7), STREAM, 10 * k + 6))
    known = next(iter(cct._processes.values()))
    assert len(known.contents.functions.names.all) < 200


OWN: Stack = (("m0", -1),)
DOWN = Block((Range(SPACING, SPACING + 21, True, OWN),), BlockEnd.INDIRECT)
UP = Block((Range(SPACING + 21, SPACING + 22, False, OWN),), BlockEnd.RETURN)
INNERMOST = Block((Range(SPACING, SPACING + 1, False, OWN),), BlockEnd.RETURN)
LOOP = Block((Range(2 * SPACING, 2 * SPACING + 21, True, (("m1", -1),)),), BlockEnd.INDIRECT)
ROUND = Block((Range(2 * SPACING + 21, 2 * SPACING + 22, False, (("m1", -1),)),), BlockEnd.CONDITION)
"""m1 calls m0 in a loop, which calls itself at site 0."""


def test_tracing_that_comes_back_in_a_method_that_is_not_on_the_stack_is_behind_a_hole() -> None:
    """Trace between is missing: the method did not call what ran before."""
    d, cct = Dictionaries(), stage()
    out = Block((Range(SPACING, SPACING + 5, True, OWN),), BlockEnd.FILTER)
    order = [d.path([out]), DISABLED, d.path([ROUND])]
    tree = tree_of([*cct.feed(d.message(7, order, (0, 10), False)), *cct.flush()])
    assert {stack for stack, _ in found(tree)} == {((UNKNOWN, -1), OWN[0]), ((UNKNOWN, -1), ("m1", -1))}


def with_other_version() -> Cct:
    """Of m1, at METHODS + 1 times SPACING."""
    cct = stage()
    made: Any = cct.images.of("h", 42).image
    start = SPACING * (METHODS + 1)
    made.known[METHODS] = replace(
        made.known[1], id=METHODS + 1, start=start, end=start + SPACING, entry=start, verified_entry=start
    )
    return cct


OTHER = SPACING * (METHODS + 1)
AGAIN = Block((Range(OTHER + 21, OTHER + 26, True, ()),), BlockEnd.INDIRECT)
"""m1's other version, behind the call at site 0, calls at site 1."""


def test_a_return_to_another_version_of_the_caller_is_one_to_the_caller() -> None:
    """The walker took the call of one version of m1 for a call of the other, whose packets are the same so far."""
    d, cct = Dictionaries(), with_other_version()
    order = [d.path([block]) for block in (LOOP, INNERMOST, AGAIN, INNERMOST)]
    tree = tree_of([*cct.feed(d.message(7, order, (0, 9), False)), *cct.flush()])
    m1 = (UNKNOWN, -1), ("m1", -1)
    assert {stack[:3] for stack, count in found(tree) if count == "invocations"} == {
        m1, (*m1, ("m0", 0)), (*m1, ("m0", 1))
    }  # fmt: skip
    assert cct.statistics()["cct_holes"] == 1


@pytest.mark.parametrize("ends", [BlockEnd.FILTER, BlockEnd.INDIRECT])
def test_control_that_comes_back_in_another_version_of_a_method_is_in_its_frame(ends: BlockEnd) -> None:
    """Behind a call that left the filter, or in a handler."""
    d, cct = Dictionaries(), with_other_version()
    leaves = Block((Range(2 * SPACING, 2 * SPACING + 21, False, ()),), ends)
    back = [DISABLED] if ends == BlockEnd.FILTER else []
    tree = tree_of([*cct.feed(d.message(7, [d.path([leaves]), *back, d.path([AGAIN])], (0, 9), False)), *cct.flush()])
    assert {stack[:2] for stack, _ in found(tree)} == {((UNKNOWN, -1), ("m1", -1))}
    assert cct.statistics()["cct_holes"] == 1


def depth_of(tree: Tree) -> int:
    depth = [0]
    for parent in tree.nodes["parent"].tolist():
        depth.append(depth[parent + 1] + 1 if parent >= 0 else 0)
    return max(depth)


DEEP = 100_000


def test_frames_of_virtual_threads_do_not_pile_up_behind_a_hole() -> None:
    """Nothing is known below the carrier's m0. It mounts a virtual thread whose m2 goes on, and is left, ten times."""
    d, cct = Dictionaries(), stage()
    made: Any = cct.images.of("h", 42).image
    made.known[3] = Version(4, Kind.DYNAMIC, 4 * SPACING, 5 * SPACING, "[stub] Cont thaw", 0, 0)
    m0, m2, thaw, back = SPACING, 3 * SPACING, 4 * SPACING, SPACING + 21
    mounts = Block((Range(back - 5, back, True, ()), Range(thaw, thaw + 1, False, ())), BlockEnd.RETURN)
    goes_on, leaves = (Block((Range(m2 + n, m2 + n + 1, False, ()),), end)
                       for n, end in ((2, BlockEnd.CONDITION), (4, BlockEnd.RETURN)))  # fmt: skip
    returns = Block((Range(back, back + 1, False, ()),), BlockEnd.CONDITION)
    paths = [d.path([block]) for block in (mounts, goes_on, leaves, returns)]
    first = d.path([Block((Range(m0 + 2, m0 + 3, False, ()),), BlockEnd.CONDITION)])
    said = cct.feed(d.message(7, [first, *paths * 10], (0, 9), False))
    carrier, mounted = ((UNKNOWN, -1), ("m0", -1)), ((UNKNOWN, -1), ("m2", -1))
    stacks = {stack for stack, _ in found(tree_of([*said, *cct.flush()]))}
    assert stacks == {carrier, (*carrier, ("[stub] Cont thaw", 0)), mounted}


def test_deep_recursion_goes_down_and_up_again() -> None:
    d, cct = Dictionaries(), stage(Room(1 << 18, 1 << 18, 1 << 18))
    go, back = d.path([DOWN]), d.path([UP])
    order = [d.path([LOOP]), go, -(DEEP - 1), d.path([INNERMOST]), back, -(DEEP - 1), d.path([ROUND])]
    rounds = 3
    said = [out for n in range(rounds) for out in cct.feed(d.message(7, order, (9 * n, 9 * n + 9), n > 0))]
    tree = tree_of([*said, *cct.flush()])
    assert depth_of(tree) == len(tree.nodes) - 1 == DEEP + 3  # one chain, below the thread, the unknown caller and m1
    assert tree.total("observed_invocations") == rounds * (DEEP + 1) + rounds
    assert tree.total("observed_instructions") == rounds * (2 * DEEP + 3)
    assert cct.statistics()["cct_holes"] == 1


def test_returns_out_of_deep_calls_behind_an_overflow() -> None:
    """Only lost calls are missing: each frame that is returned to is there again, above the one before."""
    d, cct = Dictionaries(), stage(Room(1 << 18, 1 << 18, 1 << 18))
    back = d.path([UP])
    order = [d.path([LOOP]), d.path([DOWN]), BREAK, d.path([INNERMOST]), back, -(DEEP - 1), d.path([ROUND])]
    tree = tree_of([*cct.feed(d.message(7, order, (0, 9), False)), *cct.flush()])
    assert depth_of(tree) == DEEP + 3
    assert len(tree.nodes) == DEEP + 4  # no frame stands beside another: those before the break are among them
    assert tree.total("observed_instructions") == DEEP + 4
    assert cct.statistics()["cct_links"] == DEEP + 1


def test_a_part_that_inlined_code_calls_of_its_function_is_not_the_inlined_methods() -> None:
    d, cct = Dictionaries(), stage()
    own, ret = OWN[0], SPACING + 16 * SITES + 5
    calls = Range(ret - 5, ret, True, (*OWN, ("inlined", SITES - 1)))
    behind = Range(SPACING + 0x100, SPACING + 0x101, False, OWN)
    order = [d.path([Block((calls, behind), BlockEnd.INDIRECT)])]
    base = ((UNKNOWN, -1), own)
    tree = tree_of([*cct.feed(d.message(7, order, (0, 9), False)), *cct.flush()])
    assert found(tree) == {((*base, ("inlined", SITES - 1)), "instructions"): 1, (base, "instructions"): 1}


def test_an_invocation_is_the_methods_though_its_entry_is_described_as_inlined_code() -> None:
    """A method may have no instruction of its own before that of the first one inlined in it."""
    d, cct = Dictionaries(), stage()
    made: Any = cct.images.of("h", 42).image
    two = DebugInfo(SPACING, 1, np.array([5], np.uint32), np.array([0, 2]), np.array([100, 1], np.uint32),
                    np.array([7, 0], np.int32), 1.0)  # fmt: skip
    made.known[0] = replace(made.known[0], debug=two)
    entry = Block((Range(SPACING, SPACING + 5, False, (("m0", -1), ("inlined", 0))),), BlockEnd.RETURN)
    tree = tree_of([*cct.feed(d.message(7, [d.path([entry])], (0, 9), False)), *cct.flush()])
    own = ((UNKNOWN, -1), ("m0", -1))
    assert found(tree)[own, "invocations"] == 1
    assert found(tree)[(*own, ("inlined", 0)), "instructions"] == 1


def test_a_call_that_an_nmethod_refuses_is_no_invocation_of_it() -> None:
    """It is not entrant any more, and the jump over its entry leads to a stub that goes to the method's code of now."""
    d, cct = Dictionaries(), stage()
    refusal = Range(SPACING, SPACING + 5, False, OWN)
    again = Range(2 * SPACING, 2 * SPACING + 1, False, (("m1", -1),))
    elsewhere = [Block((refusal, again), BlockEnd.INDIRECT)]
    cut = [Block((refusal,), BlockEnd.RETURN)]  # by an interrupt, say: five bytes that are no jump
    tree = tree_of(
        [*cct.feed(d.message(7, [d.path(elsewhere), BREAK] * 3 + [d.path(cut)], (0, 9), False)), *cct.flush()]
    )
    calls = Counter[str]()
    for (stack, count), n in found(tree).items():
        calls[stack[-1][0]] += n * (count == "invocations")
    assert calls == {"m0": 1, "m1": 3}


def test_a_path_of_more_nodes_than_there_is_room_for_parts() -> None:
    d, cct = Dictionaries(), stage(Room(1 << 12, 1 << 12, 16))
    deep, rounds = PARTS * 16 + 3 * SPARE_PARTS, 4
    down = d.path([LOOP, *[DOWN] * deep, INNERMOST])
    tree = tree_of([*cct.feed(d.message(7, [down, BREAK] * rounds, (0, 9), False)), *cct.flush()])
    assert tree.total("observed_invocations") == rounds * (deep + 2)
    assert tree.total("observed_instructions") == rounds * (deep + 2)
    assert tree.total("observed_ticks") == 9
    assert depth_of(tree) == deep + 3


@settings(deadline=None, max_examples=50)
@given(PROGRAMS, st.integers(4, 40))
def test_totals_are_the_same_where_there_is_no_room(program: Call, room: int) -> None:
    blocks, d = run(program), Dictionaries()
    cct = stage(Room(SMALL.activations, room, room))
    order = [d.path([block]) for block in blocks]
    said = [out for n in range(3) for out in cct.feed(d.message(7, order, (9 * n, 9 * n + 9), n > 0))]
    tree = tree_of([*said, *cct.flush()])
    assert tree.total("observed_instructions") == 3 * sum(len(block.ranges) for block in blocks)
    assert tree.total("observed_invocations") == 3 * sum(r.lo % SPACING == 0 for block in blocks for r in block.ranges)
    assert tree.total("observed_ticks") == 27
    assert len(tree.nodes) <= 2 * 2 * room


@settings(deadline=None, max_examples=30)
@given(PROGRAMS)
def test_tables_made_anew_in_the_middle_change_nothing(program: Call) -> None:
    blocks, d = run(program), Dictionaries()
    assume(max(len(r.stack) for b in blocks for r in b.ranges) < 8)
    cct = stage(Room(16, 1 << 12, 1 << 12))  # of activations: made anew at nearly each message
    cct_large = stage()
    said: tuple[list[object], list[object]] = [], []
    for n in range(len(blocks)):
        message = d.message(7, [d.path([blocks[n]])], (9 * n, 9 * n + 9), n > 0)
        for which, out in zip((cct, cct_large), said, strict=True):
            out += which.feed(message)
    assert found(tree_of([*said[0], *cct.flush()])) == found(tree_of([*said[1], *cct_large.flush()]))


def test_a_message_whose_new_blocks_have_no_instruction() -> None:
    """Blocks that an interrupt cuts at their first instruction."""
    d, cct = Dictionaries(), stage()
    cut = [Block((), end) for end in (BlockEnd.EVENT, BlockEnd.UNKNOWN)]
    said = cct.feed(d.message(7, [d.path([INNERMOST])], (0, 5), False))
    said += cct.feed(d.message(7, [d.path([block]) for block in cut], (5, 9), True))
    assert tree_of([*said, *cct.flush()]).total("observed_instructions") == 1

"""Virtual threads in made-up programs: their frames are one tree, and go on wherever they are mounted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from jvm.code.version import Kind, Version
from stages.cct.stage import Cct
from stages.cct.traced import Room
from stages.cct.tree import NAMES, VIRTUAL_NAME, Tree
from stages.messages import Bytecodes, Paths
from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE, FrameEvent
from stages.messages.paths import BREAK, DISABLED, BlockEnd
from stages.reconstruct.continuations import ENTER, THAW, YIELD
from tests.cct.made import SPACING, UNKNOWN, Block, Dictionaries, Made, Range
from tests.cct.test_stage import SMALL, stage, tree_of

RUNS, RUNS_TOO, BODY, DEEP = range(4)  # methods m0 to m3
ENTERS, YIELDS, THAWS, BARRIER = range(6, 10)  # versions
CARRIER, OTHER = 7, 8
MOUNT, UNMOUNT = int(FrameEvent.MOUNT), int(FrameEvent.UNMOUNT)
Stacks = Counter[tuple[str, ...]]


class Image(Made):
    """With what HotSpot has of continuations."""

    def __init__(self) -> None:
        super().__init__()
        for number, kind, name in (
            (ENTERS, Kind.NMETHOD, ENTER), (YIELDS, Kind.NMETHOD, YIELD), (THAWS, Kind.DYNAMIC, THAW[0]),
            (BARRIER, Kind.DYNAMIC, "[stub] cont_returnBarrier"),
        ):  # fmt: skip
            start = SPACING * number
            entry = start if kind == Kind.NMETHOD else 0
            self.known.append(
                Version(number, kind, start, start + SPACING, name, 0, 0, entry=entry, verified_entry=entry)
            )

    def versions_of(self, ips: Any, tscs: Any) -> Any:
        number = ips.astype(np.int64) // SPACING
        return np.where((number >= 1) & (number <= BARRIER), number, 0)


def one(version: int, at: int, ends: BlockEnd) -> Block:
    """An instruction; a call, if it ends with INDIRECT."""
    lo = SPACING * version + at
    size = 5 if ends == BlockEnd.INDIRECT else 1
    return Block((Range(lo, lo + size, ends == BlockEnd.INDIRECT, ()),), ends)


CALL, RETURN, OUT = BlockEnd.INDIRECT, BlockEnd.RETURN, BlockEnd.FILTER


def calls(m: int) -> Block:
    """The call at the first site of a method, into which control comes by its entry."""
    lo = SPACING * (m + 1)
    return Block((Range(lo, lo + 1, False, ()), Range(lo + 16, lo + 21, True, ())), CALL)


def behind(m: int, ends: BlockEnd) -> Block:
    """Where that call returns to."""
    return Block((Range(SPACING * (m + 1) + 21, SPACING * (m + 1) + 22, False, ()),), ends)


ENTRY, INTO_BODY = one(ENTERS, 0, BlockEnd.CONDITION), one(ENTERS, 80, CALL)
LEAVES = Block((Range(SPACING * ENTERS + 85, SPACING * ENTERS + 86, False, ()),), RETURN)
TO_THAW = Block(
    (
        Range(SPACING * ENTERS + 96, SPACING * ENTERS + 101, True, ()),
        Range(SPACING * THAWS, SPACING * THAWS + 1, False, ()),
    ),
    OUT,
)  # fmt: skip
THAWED, FREEZING, FREEZES = one(THAWS, 16, RETURN), one(YIELDS, 0, OUT), one(YIELDS, 16, RETURN)
BARS, BARRED = one(BARRIER, 0, OUT), one(BARRIER, 16, RETURN)
BEGINS = [ENTRY, INTO_BODY, calls(BODY), calls(DEEP), FREEZING]
"""The body calls another method, which yields."""
GOES_ON = [ENTRY, TO_THAW]


class Program:
    def __init__(self, room: Room = SMALL) -> None:
        self.d, self.cct = Dictionaries(), stage(room)
        process: Any = self.cct._of("h", 42)
        process.process.image = Image()
        process.contents._image = process.contents.functions._image = process.process.image
        self.out: list[object] = []

    def run(self, tid: int, *parts: list[Block] | int, events: tuple[tuple[int, int, int, int], ...] = ()) -> None:
        """Paths, and marks between them. Events: position, block, kind, number."""
        order = [part if isinstance(part, int) else self.d.path(part) for part in parts]
        message = self.d.message(tid, order, (0, 9), True)
        rows = np.zeros(len(events), EVENT_DTYPE)
        for row, (at, block, kind, number) in zip(rows, events, strict=True):
            row["order"], row["block"], row["kind"], row["method"], row["bci"] = at, block, kind, -1, number
        none = np.zeros(0, METHOD_DTYPE), np.zeros(0, KNOWN_DTYPE)
        said = Bytecodes("h", 42, message.generation, message.first_path, len(order), *none, rows, ())
        self._feed(self.cct, said, message)

    def _feed(self, cct: Cct, said: Bytecodes, message: Paths) -> None:
        self.out += cct.feed(said)
        self.out += cct.feed(message)

    def begins(self, carrier: int, m: int, number: int) -> None:
        """A virtual thread is mounted for the first time, on a carrier that is in method m, and yields."""
        self.run(
            carrier, [calls(m), *BEGINS], DISABLED, [FREEZES, behind(m, OUT)], DISABLED,
            events=((2, 0, UNMOUNT, number),),
        )  # fmt: skip

    def tree(self) -> tuple[Stacks, Stacks]:
        """Instructions by stack: of carriers, of virtual threads."""
        return found(tree_of([*self.out, *self.cct.flush()]))


def found(tree: Tree) -> tuple[Stacks, Stacks]:
    out: tuple[Stacks, Stacks] = Counter(), Counter()
    stacks: list[tuple[bool, tuple[str, ...]]] = []
    for row in tree.nodes:
        name = tree.names[row["method"]]
        virtual, above = stacks[row["parent"]] if row["parent"] >= 0 else (name == NAMES[VIRTUAL_NAME], ())
        stacks.append((virtual, (*above, name) if row["parent"] >= 0 else ()))
        if row["observed_instructions"]:
            out[virtual][stacks[-1][1]] += int(row["observed_instructions"])
    return out


IN_BODY = (ENTER, f"m{BODY}")
IN_DEEP = (*IN_BODY, f"m{DEEP}")


def test_a_virtual_thread_goes_on_in_its_frames_on_another_carrier() -> None:
    """And is left by returns, down to the carrier that it ended on. Behind each call there is one instruction."""
    p = Program()
    p.begins(CARRIER, RUNS, 3)
    p.run(
        OTHER, [calls(RUNS_TOO), *GOES_ON], DISABLED, [THAWED, behind(DEEP, RETURN), behind(BODY, RETURN), LEAVES],
        [behind(RUNS_TOO, OUT)], DISABLED, events=((2, 1, MOUNT, 3),),
    )  # fmt: skip
    carriers, virtual = p.tree()
    assert carriers == {(UNKNOWN, "m0"): 3, (UNKNOWN, "m1"): 3}
    thaw = next(stack for stack in virtual if THAW[0] in stack)
    assert virtual == {
        (ENTER,): 2 + 2 + 1, IN_BODY: 2 + 1, IN_DEEP: 2 + 1, (*IN_DEEP, YIELD): 2, thaw: 2,
    }  # fmt: skip
    assert p.cct.statistics()["cct_mounted"] == 1


def test_frames_that_are_thawed_later_come_by_the_return_barrier() -> None:
    p = Program()
    p.begins(CARRIER, RUNS, 3)
    p.run(
        CARRIER, [calls(RUNS), *GOES_ON], DISABLED, [THAWED, behind(DEEP, RETURN), BARS], DISABLED,
        [BARRED, behind(BODY, RETURN), LEAVES, behind(RUNS, OUT)], DISABLED, events=((2, 1, MOUNT, 3),),
    )  # fmt: skip
    carriers, virtual = p.tree()
    assert carriers == {(UNKNOWN, "m0"): 6}
    assert {stack: n for stack, n in virtual.items() if "[stub]" not in stack[-1]} == {
        (ENTER,): 2 + 2 + 1, IN_BODY: 2 + 1, IN_DEEP: 2 + 1, (*IN_DEEP, YIELD): 2,
    }  # fmt: skip


def test_virtual_threads_take_turns() -> None:
    """Each goes on where it was left, not where the other was."""
    p = Program()
    p.begins(CARRIER, RUNS, 3)
    p.run(
        CARRIER, [calls(RUNS), ENTRY, INTO_BODY, calls(BODY), FREEZING], DISABLED, [FREEZES, behind(RUNS, OUT)],
        DISABLED, events=((2, 0, UNMOUNT, 4),),
    )  # fmt: skip
    on = [calls(RUNS), *GOES_ON]
    p.run(OTHER, on, DISABLED, [THAWED, behind(DEEP, OUT)], BREAK, events=((2, 1, MOUNT, 3),))
    p.run(CARRIER, on, DISABLED, [THAWED, behind(BODY, OUT)], DISABLED, events=((2, 1, MOUNT, 4),))
    _, virtual = p.tree()
    assert (virtual[IN_DEEP], virtual[IN_BODY]) == (2 + 1, 2 + 2 + 1)


@pytest.mark.parametrize("event", [(), ((2, 1, MOUNT, 5),)])
def test_frames_of_which_nothing_is_known_stand_below_an_unknown(event: tuple[tuple[int, int, int, int], ...]) -> None:
    p = Program()
    p.run(CARRIER, [calls(RUNS), *GOES_ON], DISABLED, [THAWED, behind(DEEP, OUT)], DISABLED, events=event)
    carriers, virtual = p.tree()
    assert carriers == {(UNKNOWN, "m0"): 2}
    assert virtual[UNKNOWN, "m3"] == 1
    assert p.cct.statistics()["cct_mounted"] == 0


def test_frames_are_known_on_a_carrier_of_which_nothing_is() -> None:
    """Its trace was lost up to the thaw. They are left for the carrier as any stack behind a hole."""
    p = Program()
    p.begins(CARRIER, RUNS, 3)
    p.run(
        OTHER, [THAWED, behind(DEEP, RETURN), behind(BODY, OUT)], DISABLED, [FREEZES, behind(RUNS_TOO, OUT)], DISABLED,
        events=((0, 1, MOUNT, 3),),
    )  # fmt: skip
    _, virtual = p.tree()
    assert (virtual[IN_DEEP], virtual[IN_BODY]) == (2 + 1, 2 + 1)
    assert p.cct.statistics()["cct_mounted"] == 1


def test_a_stack_is_used_once() -> None:
    """It goes on, and is not put away again: where it is mounted once more, it was left elsewhere."""
    p = Program()
    p.begins(CARRIER, RUNS, 3)
    on = [calls(RUNS), *GOES_ON]
    for tid in (CARRIER, OTHER):
        p.run(tid, on, DISABLED, [THAWED, behind(DEEP, OUT)], DISABLED, events=((2, 1, MOUNT, 3),))
    _, virtual = p.tree()
    assert virtual[IN_DEEP] == 2 + 1
    assert virtual[UNKNOWN, "m3"] == 1


def test_stacks_that_are_put_away_stay_where_tables_are_made_anew() -> None:
    p = Program(Room(activations=512, nodes=512, steps=512))
    for number in range(40):
        p.begins(CARRIER, RUNS, number)
        p.begins(100 + number, RUNS_TOO, 1000)
    for number in range(40):
        p.run(
            OTHER, [calls(RUNS), *GOES_ON], DISABLED, [THAWED, behind(DEEP, RETURN), behind(BODY, RETURN), LEAVES],
            [behind(RUNS, OUT)], DISABLED, events=((2, 1, MOUNT, number),),
        )  # fmt: skip
    assert p.cct.statistics()["cct_rebuilt"] > 0
    assert p.cct.statistics()["cct_mounted"] == 40
    _, virtual = p.tree()
    assert virtual[IN_DEEP] == 80 * 2 + 40
    assert {stack[0] for stack in virtual} == {ENTER}

"""Virtual threads that are mounted: where they go on and leave in an order of paths, and which of them it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.code.image import CodeImage
from jvm.export.records import Mount
from stages.messages import Paths
from stages.messages.bytecodes import FrameEvent
from stages.messages.paths import DISABLED, STOP_DTYPE, BlockEnd
from stages.paths.dictionary import Dictionary
from stages.reconstruct.continuations import ENTER, THAW, YIELD, Continuations, Mark
from stages.reconstruct.mounts import Mounts
from tests.cct.made import SPACING, Block, Dictionaries, Range

TID, OTHER = 7, 8
CODE, ENTERS, THAWS, YIELDS = range(1, 5)  # versions, each at SPACING times its number
NAMES = {CODE: "m", ENTERS: ENTER, THAWS: THAW[0], YIELDS: YIELD}
MOUNT, UNMOUNT = FrameEvent.MOUNT, FrameEvent.UNMOUNT


class Image:
    """Stands for a code image."""

    def version(self, number: int) -> Any:
        start = SPACING * number
        return number and SimpleNamespace(
            name=NAMES[number], start=start, end=start + SPACING, entry=start, verified_entry=start + 64
        )


def block(version: int, at: int, ends: BlockEnd) -> Block:
    lo = SPACING * version + at
    return Block((Range(lo, lo + 1, False, ()),), ends, last=lo)


PLAIN = block(CODE, 0, BlockEnd.INDIRECT)
ENTRY = block(ENTERS, 64, BlockEnd.CONDITION)  # up to its branch
BEGINS = block(ENTERS, 80, BlockEnd.FILTER)
ENDS = block(ENTERS, 96, BlockEnd.RETURN)
THAWING = block(THAWS, 0, BlockEnd.FILTER)
THAWED = block(THAWS, 16, BlockEnd.RETURN)
FREEZING = block(YIELDS, 0, BlockEnd.FILTER)
FREEZES = block(YIELDS, 16, BlockEnd.RETURN)
BLOCKS = {
    PLAIN: None, ENTRY: None, BEGINS: Mark.BEGINS, ENDS: None, THAWING: None, THAWED: Mark.THAWED, FREEZING: None,
    FREEZES: Mark.FREEZES,
}  # fmt: skip


def taken(d: Dictionary, message: Paths) -> Paths:
    """The message, with what `d` knows of it."""
    message.blocks["version"] = message.blocks["start"] // SPACING
    d.take(message)
    return message


def image() -> CodeImage:
    return cast(CodeImage, Image())


@st.composite
def orders(draw: st.DrawFn) -> tuple[Dictionaries, list[int], list[tuple[int, int, Mark]]]:
    """An order over random paths; the marks on it: position, number of the block there, mark."""
    d = Dictionaries()
    of: dict[int, list[Block]] = {}
    for blocks in draw(
        st.lists(st.lists(st.sampled_from(list(BLOCKS)), min_size=1, max_size=4), min_size=1, max_size=6)
    ):
        of[d.path(blocks)] = blocks
    for parts in draw(st.lists(st.lists(st.sampled_from(list(of)), min_size=1, max_size=3), max_size=3)):
        of.setdefault(d.window(parts), [b for x in parts for b in of[x]])
    order, expected = list[int](), list[tuple[int, int, Mark]]()
    for x, times, gap in draw(
        st.lists(st.tuples(st.sampled_from(list(of)), st.integers(0, 3), st.booleans()), max_size=12)
    ):
        for passes in (1, times):
            if passes:
                marks = [BLOCKS[b] for _ in range(passes) for b in of[x]]
                expected += [(len(order), n, mark) for n, mark in enumerate(marks) if mark is not None]
                order.append(x if passes is not times or not order or order[-1] != x else -times)
        order += [DISABLED] * gap
    return d, order, expected


@settings(deadline=None)
@given(orders())
def test_marks_are_those_of_the_blocks_that_are_passed(made: tuple[Dictionaries, list[int], Any]) -> None:
    d, order, expected = made
    known, found = Dictionary(), Continuations(image())
    marks = found.marks(taken(known, d.message(TID, order, (0, 9), True)), known)
    assert list(zip(marks["order"].tolist(), marks["block"].tolist(), marks["mark"].tolist(), strict=True)) == expected
    assert set(marks["since"].tolist()) <= {0}
    assert set(marks["until"].tolist()) <= {9}


class Carriers:
    """Carriers, on which virtual threads are mounted one after the other."""

    def __init__(self) -> None:
        self.d, self.known, self.mounts = Dictionaries(), Dictionary(), Mounts(image())
        self.begins, self.thawed, self.freezes = (self.d.path([b]) for b in (BEGINS, THAWED, FREEZES))

    def mount(self, tsc: int, thread: int, tid: int = TID) -> None:
        self.mounts.told(Mount(tsc, tid, 0, thread))

    def run(self, *slices: tuple[int, str], tid: int = TID, slack: int = 0) -> list[tuple[FrameEvent, int]]:
        """The events of slices of a carrier: when it begins, then t: the thread goes on, f: it is frozen; each takes 10
        ticks."""
        order, stops, tsc = list[int](), list[tuple[int, int]](), 0
        for tsc, steps in slices:
            stops.append((len(order), tsc))
            order.append(self.begins)
            for step in steps:
                tsc += 10
                stops.append((len(order), tsc))
                order.append(self.thawed if step == "t" else self.freezes)
        message = self.d.message(tid, order, (slices[0][0], tsc + 10), True)
        rows = np.zeros(len(stops) + 1, STOP_DTYPE)
        rows["order"], rows["tsc"] = [*(at for at, _ in stops), len(order)], [*(t for _, t in stops), tsc + 10]
        message.rows["stop_end"] = len(rows)
        object.__setattr__(message, "stops", rows)
        events = self.mounts.events(taken(self.known, message), self.known, slack)
        return list(zip((FrameEvent(kind) for kind in events["kind"].tolist()), events["bci"].tolist(), strict=True))


def test_a_thread_goes_on_in_the_frames_that_it_left_wherever_it_is() -> None:
    c = Carriers()
    c.mount(3, 100)
    c.mount(33, 200)
    c.mount(63, 100)
    c.mount(105, 200, OTHER)
    assert c.run((0, "f"), (30, "f"), (60, "tf")) == [(UNMOUNT, 0), (UNMOUNT, 1), (MOUNT, 0), (UNMOUNT, 2)]
    assert c.run((100, "tf"), tid=OTHER) == [(MOUNT, 1), (UNMOUNT, 3)]


def test_events_come_behind_the_thaw_and_before_the_freeze() -> None:
    d, known, mounts = Dictionaries(), Dictionary(), Mounts(image())
    x = d.path([ENTRY, BEGINS, THAWING, THAWED, PLAIN, FREEZING, FREEZES])
    mounts.told(Mount(5, TID, 0, 100))
    events = mounts.events(taken(known, d.message(TID, [x, DISABLED, x], (0, 9), True)), known, 0)
    assert events[["row", "order", "block", "kind"]].tolist() == [(0, 0, 6, UNMOUNT)]
    mounts.told(Mount(5, TID, 0, 100))
    events = mounts.events(taken(known, d.message(TID, [x, DISABLED], (0, 9), True)), known, 0)
    assert events[["row", "order", "block", "kind"]].tolist() == [(0, 0, 4, MOUNT), (0, 0, 6, UNMOUNT)]


def test_the_mount_of_a_slice_may_come_in_another_message() -> None:
    c = Carriers()
    c.mount(3, 100)
    c.mount(25, 100)
    assert c.run((0, "f")) == [(UNMOUNT, 0)]
    assert c.run((20, "t")) == [(MOUNT, 0)]
    c.mount(55, 200)
    assert c.run((50, "f")) == [(UNMOUNT, 1)]
    c.mount(75, 100)
    assert c.run((70, "tf")) == [(MOUNT, 2), (UNMOUNT, 3)]  # it has not left, as far as is known


def test_behind_a_mount_that_was_not_told_no_thread_goes_on() -> None:
    """The one that went on unseen may have been any of them."""
    c = Carriers()
    for tsc, thread in ((3, 100), (33, 200), (93, 100), (123, 200), (153, 100)):
        c.mount(tsc, thread)
    slices = (0, "f"), (30, "f"), (60, "tf"), (90, "tf"), (120, "tf"), (150, "tf")
    assert c.run(*slices) == [
        (UNMOUNT, 0), (UNMOUNT, 1), (UNMOUNT, 2), (UNMOUNT, 3), (MOUNT, 2), (UNMOUNT, 4),
    ]  # fmt: skip
    assert c.mounts.counts["untold"] == 1


def test_a_thread_does_not_go_on_behind_a_mount_without_a_place() -> None:
    """Its trace was lost: what it did since is not known."""
    c = Carriers()
    for tsc in (3, 33, 63):
        c.mount(tsc, 100)
    c.mount(133, 200)
    c.mount(163, 100)
    assert c.run((0, "f"), (60, "tf")) == [(UNMOUNT, 0), (MOUNT, 1), (UNMOUNT, 2)]
    assert c.mounts.counts["nowhere"] == 1


def test_mounts_that_were_refused_make_all_threads_unknown() -> None:
    c = Carriers()
    c.mount(3, 100)
    c.mount(20, 0)
    c.mount(33, 100)
    c.mount(63, 100)
    assert c.run((0, "f"), (30, "tf"), (60, "tf")) == [(UNMOUNT, 0), (UNMOUNT, 1), (MOUNT, 1), (UNMOUNT, 2)]


def test_a_thread_that_could_not_leave_is_told_of_again() -> None:
    c = Carriers()
    for tsc, thread, tid in ((3, 100, TID), (23, 100, TID), (43, 200, TID), (60, 100, OTHER)):
        c.mount(tsc, thread, tid)
    assert c.run((0, "ff"), (40, "f")) == [(UNMOUNT, 0), (UNMOUNT, 0), (UNMOUNT, 1)]
    assert c.run((55, "t"), tid=OTHER) == [(MOUNT, 0)]


def test_a_thread_goes_on_in_frames_that_it_leaves_on_a_carrier_that_comes_later() -> None:
    c = Carriers()
    for tsc, thread, tid in ((3, 100, TID), (20, 100, OTHER), (60, 100, TID)):
        c.mount(tsc, thread, tid)
    assert c.run((0, "f"), (55, "tf")) == [(UNMOUNT, 0), (MOUNT, 1), (UNMOUNT, 2)]
    assert c.run((15, "tf"), tid=OTHER) == [(MOUNT, 0), (UNMOUNT, 1)]


def test_times_may_be_wrong_by_the_step_of_the_clock() -> None:
    c = Carriers()
    for tsc, thread in ((0, 100), (28, 200), (58, 100)):
        c.mount(tsc, thread)
    slices = (2, "f"), (31, "f"), (61, "tf")
    assert c.run(*slices, slack=5) == [(UNMOUNT, 0), (UNMOUNT, 1), (MOUNT, 0), (UNMOUNT, 2)]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.reconstruct.mounts.THREADS", 16)
    monkeypatch.setattr("stages.reconstruct.mounts.CARRIERS", 4)
    c = Carriers()
    for k in range(1000):
        c.mount(k, k, tid=k % 100)
    assert len(c.mounts._threads) == 16
    assert len(c.mounts._waiting) == 4
    c.mounts.forget(99)
    assert 99 not in c.mounts._waiting

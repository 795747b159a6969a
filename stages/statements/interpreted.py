"""The interpreter's bytecodes, one by one, along the frames of each thread: how often each ran, and on which paths.

A frame's register has the sum of its path's edges so far (`jvm.bytecode.ball_larus`). It is not known where a frame was
found in the middle, until the next path begins there.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.messages import Bytecodes, FrameEvent
from stages.statements.methods import RETURN, Known

I64 = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)
NOT_KNOWN = -1  # of a register
BEGINS = -2  # the frame has been entered, and has executed nothing
UNKNOWN, COMPILED, BOUNDARY = -1, -2, -3  # in the place of a frame's method
ENTER, FRAME, BACK, OSR, UPCALL, UPRETURN, LOST, RETURNED, UNWIND, IN_COMPILED = (
    int(e)
    for e in (
        FrameEvent.ENTER, FrameEvent.FRAME, FrameEvent.BACK, FrameEvent.OSR, FrameEvent.UPCALL, FrameEvent.UPRETURN,
        FrameEvent.LOST, FrameEvent.RETURN, FrameEvent.UNWIND, FrameEvent.COMPILED,
    )
)  # fmt: skip


class Frames(NamedTuple):
    """Cells of the stacks of all threads: those below 1 are none."""

    method: I64  # its place, or one of the codes above
    node: I64  # the instruction that ran last, −1
    register: I64
    below: I64  # the cell, or the next free one


class Counted:
    """How often each bytecode ran, and each path was taken: of one stretch of time."""

    def __init__(self) -> None:
        self.times = np.zeros(0, np.int64)  # by node
        self._paths: list[NDArray[np.int64]] = []  # (k, 3) method, number, times
        self._waiting = 0

    def paths(self) -> NDArray[np.int64]:
        """(k, 3) place of a method, number of a path, how often it was taken; ascending."""
        if self._paths:
            rows = np.concatenate(self._paths)
            keys, inverse = np.unique(rows[:, :2], axis=0, return_inverse=True)
            times = np.zeros(len(keys), np.int64)
            np.add.at(times, inverse.reshape(-1), rows[:, 2])
            self._paths, self._waiting = [np.column_stack((keys, times))], 0
            return self._paths[0]
        return np.zeros((0, 3), np.int64)

    def add(self, done: NDArray[np.int64]) -> None:
        """(k, 2) places of methods and numbers of paths, each as often as it was taken."""
        keys, times = np.unique(done, axis=0, return_counts=True)
        self._paths.append(np.column_stack((keys, times)))
        self._waiting += len(keys)
        if self._waiting > 1 << 18:
            self.paths()

    def room(self, nodes: int) -> None:
        self.times = grown(self.times, nodes)


def grown(of_nodes: NDArray[Scalar], nodes: int) -> NDArray[Scalar]:
    """With room for as many nodes; zeros are added, more than are needed."""
    if nodes <= len(of_nodes):
        return of_nodes
    more = np.zeros(2 * nodes, of_nodes.dtype)
    more[: len(of_nodes)] = of_nodes
    return more


def told(message: Bytecodes) -> tuple[NDArray[np.void], NDArray[np.uint16]]:
    """Its events and bytecodes, writeable. Where the bytecodes were not told, nothing is known from each event on."""
    bcis = message.bcis if message.bcis.flags.writeable else message.bcis.copy()
    if len(bcis) == message.events["bytecodes"].sum():
        return message.events if message.events.flags.writeable else message.events.copy(), bcis
    events = message.events.copy()
    events["kind"], events["bytecodes"] = LOST, 0
    return events, bcis[:0]


class Interpreted:
    """Of one process. A thread's frames go with `forget`."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.cut = 0  # paths that an exception, or the change to compiled code, has cut off
        self.strange = 0  # bytecodes that are none of their frame's method
        self._top: dict[int, int] = {}  # by thread
        self._frames = Frames(*(np.zeros(1, np.int64) for _ in Frames._fields))
        self._free = np.zeros(2, np.int64)  # the first free cell, how many

    def take(
        self, events: NDArray[np.void], bcis: NDArray[np.uint16], tid: NDArray[np.int32], counted: Counted
    ) -> None:
        """(e,) EVENT_DTYPE, the bytecodes that they count, and (r,) the thread of each row. Counts go to `counted`."""
        if not len(events):
            return
        self._room(len(events))
        counted.room(self._known.nodes)
        tids, thread = np.unique(tid, return_inverse=True)
        top = np.array([self._top.get(tid, 0) for tid in tids.tolist()], np.int64)
        done = np.zeros((len(bcis) + len(events), 2), np.int64)
        n, cut, strange = _follow(
            events, bcis, thread.astype(np.int64), top, self._known.place, counted.times, self._free, *self._frames,
            *self._known.tables(), done,
        )  # fmt: skip
        self._top.update(zip(tids.tolist(), top.tolist(), strict=True))
        self.cut, self.strange = self.cut + cut, self.strange + strange
        if n:
            counted.add(done[:n])

    def forget(self, tid: int) -> None:
        top = self._top.pop(tid, 0)
        if top:
            _give(top, self._frames.below, self._free)

    def _room(self, events: int) -> None:
        """At least one cell an event."""
        if self._free[1] >= events:
            return
        size = len(self._frames.method)
        new = size + max(events, size)
        frames = Frames(*(np.concatenate((column, np.zeros(new - size, np.int64))) for column in self._frames))
        frames.below[size:] = np.append(np.arange(size + 1, new), self._free[0])
        self._frames = frames
        self._free[:] = size, self._free[1] + new - size


@inner
def _pop(at, below, free):  # type: ignore[no-untyped-def]
    under = below[at]
    below[at], free[0] = free[0], at
    free[1] += 1
    return under


@kernel
def _give(top, below, free):  # type: ignore[no-untyped-def]
    at = np.int64(top)
    while at > 0:
        at = _pop(at, below, free)


@kernel
def _follow(  # type: ignore[no-untyped-def]
    events, bcis, thread, top, place, times, free, method, at_node, register, below, code, node, kind, start, edge, to,
    value, back, done,
):  # fmt: skip
    """How many paths ended (in `done`), were cut off, and bytecodes that are none of their frame's method."""
    n = cut = strange = next_bci = 0
    for k in range(len(events)):
        e = events[k]
        what, of = e["kind"], thread[e["row"]]
        at = top[of]
        goes_on = what == RETURNED or what == UNWIND or what == BACK or what == UPRETURN
        if what == ENTER or what == FRAME or what == IN_COMPILED or what == UPCALL:
            new = free[0]
            free[0], below[new] = below[new], at
            free[1] -= 1
            m = np.int64(COMPILED if what == IN_COMPILED else BOUNDARY)
            if what == ENTER or what == FRAME:
                m = place[e["method"]] if e["method"] >= 0 else np.int64(UNKNOWN)
            method[new], at_node[new], register[new] = m, -1, BEGINS if what == ENTER else NOT_KNOWN
            at = new
        elif what == RETURNED or what == UNWIND or what == OSR:
            if at > 0 and method[at] >= 0:
                if what == RETURNED and at_node[at] >= 0 and kind[at_node[at]] == RETURN and register[at] >= 0:
                    done[n, 0], done[n, 1] = method[at], register[at]
                    n += 1
                elif register[at] >= 0:
                    cut += 1
            if at > 0:
                if what == OSR:
                    method[at] = COMPILED
                else:
                    at = _pop(at, below, free)
        elif what == BACK or what == UPRETURN or what == LOST:
            until = COMPILED if what == BACK else BOUNDARY
            while at > 0:
                found = what != LOST and method[at] == until
                at = _pop(at, below, free)
                if found:
                    break
        if goes_on and e["method"] >= 0:
            m = place[e["method"]]
            if at <= 0:  # it is seen for the first time
                new = free[0]
                free[0], below[new], at = below[new], 0, new
                free[1] -= 1
                method[at], at_node[at], register[at] = m, -1, NOT_KNOWN
            elif method[at] != m:
                method[at], at_node[at], register[at] = m, -1, NOT_KNOWN
        top[of] = at
        for _ in range(e["bytecodes"]):
            bci = np.int64(bcis[next_bci])
            next_bci += 1
            if at <= 0 or method[at] < 0:
                continue
            m, here = method[at], np.int64(-1)
            if bci < code[m + 1] - code[m]:
                here = node[code[m] + bci]
            if here < 0:
                strange += 1
                at_node[at], register[at] = -1, NOT_KNOWN
                continue
            times[here] += 1
            before = at_node[at]
            at_node[at] = here
            if register[at] == BEGINS:
                register[at] = start[here]
                continue
            if before < 0:
                continue
            way = edge[before]
            while way < edge[before + 1] and to[way] != here:
                way += 1
            if way == edge[before + 1]:
                cut += register[at] >= 0
                register[at] = start[here]  # a handler's, or −1
            elif back[way]:
                if register[at] >= 0:
                    done[n, 0], done[n, 1] = m, register[at] + value[way]
                    n += 1
                register[at] = start[here]
            elif register[at] >= 0:
                register[at] += value[way]
    return n, cut, strange

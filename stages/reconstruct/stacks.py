"""Stacks that the agent read (docs/jit-export.md, STACK): where in a thread's paths each belongs.

A thread of which the agent reads the stack is in the VM, or in native code: out of the filter. So the stack is that of
a DISABLED in its order: of the one during which the agent began to read, where the code that ran last before is that of
the innermost frame. (Hofer et al., "Fast Java profiling with scheduling-aware stack
fragment sampling and asynchronous analysis", anchor stacks by samples too; theirs are of stopped threads.)

Where several fit, or none does, the stack is not used: the clock of a trace without MTC stands still for too long.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.version import Kind
from jvm.export import records as export
from jvm.export.records import StackFlag
from stages.messages import Paths
from stages.messages.paths import DISABLED, FIRST_PATH, PathKind
from stages.paths.dictionary import Dictionary

WAITING = 64
"""Stacks of a thread, the newest, that wait for its paths."""
THREADS = 1 << 12
"""With stacks that wait. Of more, those that have waited longest are dropped."""
CANDIDATES = 8
"""Places that are looked at for one stack."""
MOST_FRAMES, MOST_WAITING = 1 << 10, 1 << 18
"""Of a stack, as the agent tells them; of all that wait."""


class Placed(NamedTuple):
    order: int  # position of the DISABLED
    stack: export.Stack


class Stacks:
    """Of one process. The stacks that wait for a thread's paths are dropped with the thread, when its paths have come
    past their time, and beyond WAITING, THREADS and MOST_WAITING."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._waiting: dict[int, deque[export.Stack]] = {}
        self._frames = 0  # of these
        self.counts: Counter[str] = Counter()

    def told(self, stack: export.Stack) -> None:
        if not stack.stack_flags & StackFlag.WHOLE or not 0 < len(stack.frames) <= MOST_FRAMES:
            self.counts["in_part"] += 1
            return
        waiting = self._waiting.setdefault(stack.os_tid, deque())
        waiting.append(stack)
        self._frames += len(stack.frames)
        if len(waiting) > WAITING:
            self._taken(waiting)
        while len(self._waiting) > THREADS or self._frames > MOST_WAITING:
            self.forget(next(iter(self._waiting)))

    def forget(self, tid: int) -> None:
        waiting = self._waiting.pop(tid, deque())
        while waiting:
            self._taken(waiting)

    def _taken(self, waiting: deque[export.Stack]) -> export.Stack:
        stack = waiting.popleft()
        self._frames -= len(stack.frames)
        return stack

    def place(self, message: Paths, d: Dictionary, slack: int) -> dict[int, list[Placed]]:
        """By thread, in the order of their places: the stacks of this message. Times may be wrong by `slack` ticks."""
        out = dict[int, list[Placed]]()
        if not self._waiting:
            return out
        rows = message.rows
        for tid in np.unique(rows["tid"]).tolist():
            if tid in self._waiting:
                found = self._of_thread(message, d, np.flatnonzero(rows["tid"] == tid), self._waiting[tid], slack)
                if found:
                    out[tid] = found
                if not self._waiting[tid]:
                    del self._waiting[tid]
        return out

    def _of_thread(
        self, message: Paths, d: Dictionary, rows: NDArray[np.int64], waiting: deque[export.Stack], slack: int
    ) -> list[Placed]:
        out = list[Placed]()
        end = int(message.rows["tsc_end"][rows[-1]])
        if waiting[0].before - slack > end:
            return out
        at, since, until = _away(message, rows)
        taken = set[int]()
        while waiting and waiting[0].tsc - slack <= end:
            stack = self._taken(waiting)
            fits = self._fitting(message, d, at, since, until, stack, slack)
            if len(fits) != 1 or fits[0] in taken:
                self.counts["several" if fits else "nowhere"] += 1
                continue
            taken.add(fits[0])
            self.counts["placed"] += 1
            out.append(Placed(int(at[fits[0]]), stack))
        out.sort(key=lambda placed: placed.order)
        return out

    def _fitting(
        self, message: Paths, d: Dictionary, at: NDArray[np.int64], since: NDArray[np.int64],
        until: NDArray[np.int64], stack: export.Stack, slack: int,
    ) -> list[int]:  # fmt: skip
        """Which of the places may be that of a stack: one that holds the time at which the reading began. (The VM may
        call a stub of the code cache in between.)"""
        may = np.flatnonzero((since <= stack.before + slack) & (until + slack >= stack.before))[:CANDIDATES]
        fits = [k for k in may.tolist() if self._left_from(message, d, int(at[k]), stack)]
        for narrow in (
            [k for k in fits if since[k] <= stack.before <= until[k]],
            [k for k in fits if since[k] <= stack.before and stack.tsc <= until[k]],
        ):
            if len(fits) > 1 and narrow:
                fits = narrow
        return fits

    def _left_from(self, message: Paths, d: Dictionary, at: int, stack: export.Stack) -> bool:
        """Whether the block before position `at` is of the code of the innermost frame, or of a stub that the VM has
        called."""
        block = _block_before(message, d, at)
        of = d.blocks.rows[block]
        if block < 0 or not of["ranges"]:
            return False
        last = int(d.ranges.rows["hi"][of["range"] + of["ranges"] - 1]) - 1
        pc = int(stack.frames["pc"][0]) - 1
        here = self._image.codelets.at(last)
        if here is not None:
            return here.start <= pc < here.end
        versions = self._image.versions_of(np.array([last, pc], np.uint64), np.full(2, stack.before, np.uint64))
        left = self._image.version(int(versions[0]))
        return left is not None and (left.kind == Kind.DYNAMIC or versions[0] == versions[1])


def _away(message: Paths, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where a thread was out of the filter, in these rows of it: position in the order, and the times between which
    that was."""
    parts = []
    for k, row in enumerate(rows.tolist()):
        r = message.rows[row]
        at = np.flatnonzero(message.order[r["order"] : r["order_end"]] == DISABLED) + int(r["order"])
        stops = message.stops[r["stop"] : r["stop_end"]]
        tsc = stops["tsc"].astype(np.int64)
        before = np.maximum(np.searchsorted(stops["order"], at, "right") - 1, 0)
        behind = np.maximum(np.searchsorted(stops["order"], at + 1, "right") - 1, 0)
        behind = np.minimum(np.where(behind <= before, before + 1, behind), len(tsc) - 1)
        until = tsc[behind]
        if len(at) and at[-1] == r["order_end"] - 1 and k + 1 < len(rows):
            until[-1] = max(int(until[-1]), int(message.rows["tsc"][rows[k + 1]]))
        parts.append((at, tsc[before], until))
    at, since, until = (np.concatenate([part[n] for part in parts]) for n in range(3))
    return at, since, until


def _block_before(message: Paths, d: Dictionary, at: int) -> int:
    """The last block before that position; −1: there is none."""
    at -= 1
    while at >= 0 and message.order[at] < 0:
        at -= 1
    x = int(message.order[at]) if at >= 0 else 0
    for _ in range(2):
        if x < FIRST_PATH:
            return -1
        path = d.paths.rows[x]
        if not path["links"]:
            return -1
        x = int(d.links.rows["number"][path["link"] + path["links"] - 1])
        if path["kind"] == PathKind.OF_BLOCKS:
            return x
    return -1

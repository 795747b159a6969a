"""Which virtual thread goes on where: the agent's mounts (docs/jit-export.md, MOUNT) laid beside the carrier's trace.

The trace shows that a carrier goes into a continuation, and that it leaves it (`continuations`), but not whose that is.
The agent tells of each mount the virtual thread and the time. Between two beginnings on one carrier there is exactly
one mount, so the two are laid side by side in their order, by time only as far as the clock of the trace goes.

A virtual thread has a number, as long as it is known where it was. Where a mount was not told, or has no place in the
trace, it is given another: for a reader that is a thread of which nothing is known.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.export import records as export
from stages.messages import Paths
from stages.messages.bytecodes import EVENT_DTYPE, FrameEvent
from stages.paths.dictionary import Dictionary
from stages.reconstruct.continuations import Continuations, Mark

WAITING = 1 << 14
"""Mounts on a carrier, the newest, that wait for its paths."""
CARRIERS = 1 << 10
THREADS = 1 << 16
"""Virtual threads that have a number: those mounted last."""
NUMBERS = 1 << 30


class _Mount(NamedTuple):
    tsc: int
    thread: int
    turn: int  # how often that thread was mounted before, as far as it is remembered


class _Thread:
    """A virtual thread: mounts that were told, and of these the one that was laid beside the trace last, and when."""

    __slots__ = ("epoch", "laid", "number", "told")

    def __init__(self) -> None:
        self.told, self.laid, self.number, self.epoch = 0, -1, -1, -1


class Mounts:
    """Of one process. A carrier's are dropped with its thread, when its paths have come past their time, and beyond
    WAITING and CARRIERS; virtual threads beyond THREADS, those that were mounted longest ago."""

    def __init__(self, image: CodeImage) -> None:
        self.continuations = Continuations(image)
        self.counts: Counter[str] = Counter()
        self._waiting: dict[int, deque[_Mount]] = {}
        self._mounted: dict[int, int] = {}  # number of the virtual thread that a carrier runs; −1: it is not known
        self._threads: dict[int, _Thread] = {}
        self._next = self._epoch = 0

    def told(self, mount: export.Mount) -> None:
        thread = self._threads.pop(mount.thread, None) or _Thread()
        self._threads[mount.thread] = thread
        if len(self._threads) > THREADS:
            del self._threads[next(iter(self._threads))]
        waiting = self._waiting.setdefault(mount.tid, deque(maxlen=WAITING))
        waiting.append(_Mount(mount.tsc, mount.thread, thread.told))
        thread.told += 1
        if len(self._waiting) > CARRIERS:
            self.forget(next(iter(self._waiting)))

    def forget(self, tid: int) -> None:
        self._waiting.pop(tid, None)
        self._mounted.pop(tid, None)

    def events(self, message: Paths, d: Dictionary, slack: int) -> NDArray[np.void]:
        """EVENT_DTYPE, by row and in order: the MOUNTs and UNMOUNTs of these paths. Times may be wrong by `slack`
        ticks."""
        marks = self.continuations.marks(message, d)
        tids = message.rows["tid"]
        out = list[tuple[int, int, int, int, int]]()
        of = tids[marks["row"]]
        for tid in np.unique(of).tolist():
            self._of_carrier(tid, marks[of == tid], slack, out)
        for tid in [tid for tid in self._waiting if tid in tids]:
            if not (of == tid).any():  # none of them is on its way
                end = int(message.rows["tsc_end"][tids == tid].max())
                self._drop_before(tid, end - slack)
        events = np.zeros(len(out), EVENT_DTYPE)
        if out:
            events["row"], events["order"], events["block"], events["kind"], events["bci"] = np.array(out).T
            events["method"] = -1
            events = events[np.lexsort((events["block"], events["order"], events["row"]))]
        return events

    def _of_carrier(
        self, tid: int, marks: NDArray[np.void], slack: int, out: list[tuple[int, int, int, int, int]]
    ) -> None:
        kinds, since, until = marks["mark"].tolist(), marks["since"].tolist(), marks["until"].tolist()
        row, order, block = marks["row"].tolist(), marks["order"].tolist(), marks["block"].tolist()
        number = self._mounted.get(tid, -1)
        for k, kind in enumerate(kinds):
            if kind == Mark.BEGINS:
                behind = next((m for m in range(k + 1, len(kinds)) if kinds[m] != Mark.THAWED), None)
                end = None if behind is None else until[behind] + slack  # told before it yields, or another is mounted
                number = self._mount(tid, since[k] - slack, end)
            elif number >= 0 and kind == Mark.THAWED:
                out.append((row[k], order[k], block[k] + 1, int(FrameEvent.MOUNT), number))
            elif number >= 0 and kind == Mark.FREEZES:
                out.append((row[k], order[k], block[k], int(FrameEvent.UNMOUNT), number))
        self._mounted[tid] = number

    def _mount(self, tid: int, since: int, until: int | None) -> int:
        """The number of the thread that is mounted in that time."""
        self._drop_before(tid, since)
        waiting = self._waiting.get(tid)
        if not waiting or (until is not None and waiting[0].tsc > until):
            self.counts["untold"] += 1
            self._epoch += 1  # whose it was is not known
            return -1
        self.counts["placed"] += 1
        mount = waiting.popleft()
        thread = self._threads.get(mount.thread)
        if thread is None:
            return -1
        if thread.epoch != self._epoch or thread.laid != mount.turn - 1:
            thread.number, self._next = self._next, (self._next + 1) % NUMBERS
        thread.laid, thread.epoch = mount.turn, self._epoch
        return thread.number

    def _drop_before(self, tid: int, tsc: int) -> None:
        waiting = self._waiting.get(tid)
        while waiting and waiting[0].tsc < tsc:
            waiting.popleft()
            self.counts["nowhere"] += 1

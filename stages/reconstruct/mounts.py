"""Which virtual thread goes on where: the agent's mounts (docs/jit-export.md, MOUNT) laid beside the carrier's trace.

The trace shows that a carrier goes into a continuation, and that it leaves it (`continuations`), but not whose that is.
The agent tells of each mount the virtual thread and the time. Between two beginnings on one carrier there is exactly
one mount, so the two are laid side by side in their order, by time only as far as the clock of the trace goes.

Frames that a virtual thread leaves have a number. It goes on in those that it left last; where a mount was not told, or
has no place in the trace, these are not known, and nothing is said.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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
"""Virtual threads of which it is known where they are: those mounted last."""
TURNS = 64
"""Of a virtual thread, whose frames have numbers that were met once: two carriers' pieces may come in another order."""
NUMBERS = 1 << 30


class _Mount(NamedTuple):
    tsc: int
    thread: int
    turn: int  # how often that thread was told of before, as far as it is remembered
    follows: bool  # on the one before, without a gap in which some may not have been told


@dataclass(slots=True)
class _Thread:
    """A virtual thread: how many mounts were told, behind how many gaps; in which epoch it was seen last. By the
    turn in which it leaves them, the numbers of frames in which it has not gone on yet, and of those that it has not
    left yet, as far as is known."""

    told: int = 0
    gaps: int = -1
    epoch: int = -1
    left: dict[int, int] = field(default_factory=dict)
    awaited: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Slice:
    """A carrier's part between two beginnings, as far as it is in a message."""

    mount: _Mount | None  # None: it is not known whose it is
    begins: int  # its time, as far as is known
    turn: int  # of the last mount of its thread in it: of one that wanted to leave and could not another is told
    again: int = 0  # so often
    left: int = 0  # how often it left, or wanted to
    is_new: bool = True
    thawed: list[tuple[int, int, int]] = field(default_factory=list)  # row, position, block
    freezes: list[tuple[int, int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, mount: _Mount | None, begins: int) -> _Slice:
        return cls(mount, begins, -1) if mount is None else cls(mount, mount.tsc, mount.turn)

    def goes_on(self) -> _Slice:
        """In another message."""
        return replace(self, is_new=False, thawed=[], freezes=[])


class Mounts:
    """Of one process. A carrier's are dropped with its thread, when its paths have come past their time, and beyond
    WAITING and CARRIERS; virtual threads beyond THREADS, those that were mounted longest ago."""

    def __init__(self, image: CodeImage) -> None:
        self.continuations = Continuations(image)
        self.counts: Counter[str] = Counter()
        self._waiting: dict[int, deque[_Mount]] = {}
        self._mounted: dict[int, _Slice] = {}  # of each carrier the last
        self._threads: dict[int, _Thread] = {}
        self._next = self._epoch = self._gaps = 0

    def told(self, mount: export.Mount) -> None:
        if mount.thread == 0:
            self._gaps += 1
            return
        thread = self._threads.pop(mount.thread, None) or _Thread(epoch=self._epoch)
        self._threads[mount.thread] = thread
        if len(self._threads) > THREADS:
            del self._threads[next(iter(self._threads))]
        waiting = self._waiting.setdefault(mount.tid, deque(maxlen=WAITING))
        waiting.append(_Mount(mount.tsc, mount.thread, thread.told, thread.gaps == self._gaps))
        thread.told, thread.gaps = thread.told + 1, self._gaps
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
        of, slices = tids[marks["row"]], list[_Slice]()
        for tid in np.unique(of).tolist():
            slices += self._slices(tid, marks[of == tid], slack)
        for tid in [tid for tid in self._waiting if tid in tids]:
            if not (of == tid).any():
                end = int(message.rows["tsc_end"][tids == tid].max()) - slack
                slices.append(self._mounted.get(tid, _Slice.of(None, 0)).goes_on())
                self._drop_before(tid, end, slices[-1])
                self._mounted[tid] = slices[-1]
        # a thread may go on on another carrier in the same message
        slices.sort(key=lambda slice_: slice_.begins)
        out = [event for slice_ in slices for event in self._events(slice_)]
        events = np.zeros(len(out), EVENT_DTYPE)
        if out:
            events["row"], events["order"], events["block"], events["kind"], events["bci"] = np.array(out).T
            events["method"] = -1
            events = events[np.lexsort((events["block"], events["order"], events["row"]))]
        return events

    def _slices(self, tid: int, marks: NDArray[np.void], slack: int) -> list[_Slice]:
        kinds, since, until = marks["mark"].tolist(), marks["since"].tolist(), marks["until"].tolist()
        places = list(zip(marks["row"].tolist(), marks["order"].tolist(), marks["block"].tolist(), strict=True))
        out = [self._mounted.get(tid, _Slice.of(None, 0)).goes_on()]
        for k, (kind, place) in enumerate(zip(kinds, places, strict=True)):
            if kind == Mark.BEGINS:
                behind = next((m for m in range(k + 1, len(kinds)) if kinds[m] != Mark.THAWED), None)
                end = None if behind is None else until[behind] + slack  # told before it yields, or another is mounted
                self._drop_before(tid, since[k] - slack, out[-1])
                out.append(_Slice.of(self._mount(tid, end), since[k]))
            elif kind == Mark.THAWED:
                out[-1].thawed.append(place)
            else:
                out[-1].freezes.append(place)
                out[-1].left += 1
        self._mounted[tid] = out[-1]
        return out

    def _mount(self, tid: int, until: int | None) -> _Mount | None:
        """The next mount, if it is not later than that."""
        waiting = self._waiting.get(tid)
        if not waiting or (until is not None and waiting[0].tsc > until):
            self.counts["untold"] += 1
            return None
        self.counts["placed"] += 1
        return waiting.popleft()

    def _drop_before(self, tid: int, tsc: int, slice_: _Slice) -> None:
        """Mounts of a time before, in which the carrier ran `slice_`."""
        waiting = self._waiting.get(tid)
        while waiting and waiting[0].tsc < tsc:
            mount = waiting.popleft()
            if slice_.mount is not None and mount.thread == slice_.mount.thread and slice_.again < slice_.left - 1:
                slice_.turn = mount.turn
                slice_.again += 1
            else:
                self.counts["nowhere"] += 1

    def _events(self, slice_: _Slice) -> Iterator[tuple[int, int, int, int, int]]:
        """Row, position, block, kind, number."""
        mount = slice_.mount
        if mount is None and slice_.is_new:
            self._epoch += 1  # any thread may be elsewhere now
        thread = self._threads.get(mount.thread) if mount is not None else None
        if mount is None or thread is None:
            return
        if mount.follows and (thread.epoch == self._epoch or not slice_.is_new):
            for row, order, block in slice_.thawed:
                yield row, order, block + 1, int(FrameEvent.MOUNT), self._entered(thread, mount.turn - 1)
        thread.epoch = self._epoch
        for row, order, block in slice_.freezes:  # one that fails is followed by another, or by the thread's end
            yield row, order, block, int(FrameEvent.UNMOUNT), self._left(thread, slice_.turn)

    def _entered(self, thread: _Thread, turn: int) -> int:
        """The number of the frames that a thread leaves in that turn: it goes on in them now, once."""
        number = thread.left.pop(turn, -1)
        return number if number >= 0 else self._new(thread.awaited, turn)

    def _left(self, thread: _Thread, turn: int) -> int:
        number = thread.awaited.pop(turn, -1)
        if number >= 0:
            return number
        return thread.left[turn] if turn in thread.left else self._new(thread.left, turn)

    def _new(self, numbers: dict[int, int], turn: int) -> int:
        number = numbers[turn] = self._next
        self._next = (self._next + 1) % NUMBERS
        if len(numbers) > TURNS:
            del numbers[next(iter(numbers))]
        return number

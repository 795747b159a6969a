"""Messages that are not in the window yet, as long as there is no hole for which it would be searched."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.messages import Arrival, Paths
from stages.messages.paths import FIRST_PATH, PathKind
from stages.paths.dictionary import Column, Dictionary, spans

I64 = NDArray[np.int64]
EACH = 64
"""Steps for which a message counts besides its own, so that none is free."""
_LENGTH = np.dtype([("steps", "<i8")])


class Kept(NamedTuple):
    """A message, its rows from `first` on; or a thread that ended."""

    message: Paths | None
    steps: int  # of these rows
    first: int = 0
    last_hole: int = -1  # row
    lost: I64 | None = None  # `lost_before` of the message, where some of its rows were taken before
    ended: int = -1


class Later:
    """Of one process and generation. The oldest are dropped by `shorten`."""

    def __init__(self) -> None:
        self.steps = 0
        self.gap = False  # the next does not follow what was taken last
        self._kept: deque[Kept] = deque()
        self._threads: set[int] = set()  # seen, and not ended
        self._length = Column(_LENGTH)  # of each path

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, message: Paths, d: Dictionary) -> list[int]:
        """`d` has taken it. Its rows behind a hole in their thread."""
        holes = []
        for row, (tid, continues, arrival) in enumerate(message.rows[["tid", "continues", "arrival"]].tolist()):
            if not continues and arrival == Arrival.IN_ORDER and tid in self._threads:
                holes.append(row)
            self._threads.add(tid)
        steps = EACH + self._steps(message.order, self._lengths(d))
        self._put(Kept(message, steps, last_hole=holes[-1] if holes else -1))
        return holes

    def end(self, tid: int) -> None:
        """The thread of the messages before."""
        self._threads.discard(tid)
        if self._kept:
            self._put(Kept(None, 0, ended=tid))

    def shorten(self, most: int) -> Iterator[Kept]:
        """The oldest, dropped: the others have `most` steps."""
        while self._kept and self.steps - self._kept[0].steps >= most:
            kept = self._take()
            self.gap |= kept.steps > 0
            yield kept

    def skip(self, most: int, hole: int) -> None:
        """Of the message that would be taken first and is the first of a part with more than `most` steps before the
        row `hole` of the last message, rows without which there are as few."""
        first, last = self._kept[0], self._kept[-1]
        if first.message is None or last.message is None:
            return
        behind = self._of_rows(last)[hole - last.first :].sum()
        sizes = np.cumsum(self._of_rows(first))
        rows = int(np.searchsorted(sizes, self.steps - behind - most, "right"))
        rows = min(rows, hole - last.first) if first is last else rows
        if rows > 0 and sizes[rows - 1] > 0:
            self.gap = True
            self._kept[0] = first._replace(first=first.first + rows, steps=first.steps - int(sizes[rows - 1]))
            self.steps -= int(sizes[rows - 1])

    def taken(self) -> Iterator[Kept]:
        """All, in their order."""
        self.gap = False
        while self._kept:
            yield self._take()

    def put_back(self, kept: Kept, first: int, lost: I64) -> None:
        """The rows from `first` on of the message that was taken last."""
        rest = kept._replace(first=first, lost=lost)
        self._put(rest._replace(steps=EACH + int(self._of_rows(rest).sum())))

    def _put(self, kept: Kept) -> None:
        self._kept.append(kept)
        self.steps += kept.steps

    def _take(self) -> Kept:
        kept = self._kept.popleft()
        self.steps -= kept.steps
        return kept

    def _of_rows(self, kept: Kept) -> I64:
        """(rows from `first` on,) steps."""
        assert kept.message is not None
        order, rows = kept.message.order, kept.message.rows[kept.first :]
        sizes = np.cumsum(np.append(0, self._each(order, self._length.rows["steps"])))
        return sizes[rows["order_end"]] - sizes[rows["order"]]  # type: ignore[no-any-return]

    def _lengths(self, d: Dictionary) -> I64:
        new = d.paths.rows[self._length.size :]
        if len(new):
            rows = np.zeros(len(new), _LENGTH)
            rows["steps"] = new["links"]
            self._length.append(rows)
            of_paths = np.flatnonzero(new["kind"] == PathKind.OF_PATHS)
            those, owner = spans(new["link"][of_paths], new["links"][of_paths].astype(np.int64))
            parts = self._length.rows["steps"][d.links.rows["number"][those]]
            sums = np.bincount(owner, parts, len(of_paths)).astype(np.int64)
            self._length.rows["steps"][self._length.size - len(new) + of_paths] = sums
        return self._length.rows["steps"]

    @staticmethod
    def _steps(order: NDArray[np.int32], length: I64) -> int:
        again = np.flatnonzero(order < 0)
        once = int(length[order[order >= FIRST_PATH]].sum())
        return once - int((order[again].astype(np.int64) * length[order[again - 1]]).sum())

    @staticmethod
    def _each(order: NDArray[np.int32], length: I64) -> I64:
        """(n,) steps by place in the order."""
        steps = np.where(order >= FIRST_PATH, length[np.maximum(order, 0)], 0)
        again = np.flatnonzero(order < 0)
        steps[again] = -order[again].astype(np.int64) * length[order[again - 1]]
        return steps

"""Messages that are not in the window yet, as long as there is no hole for which it would be searched."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.messages import Paths
from stages.messages.paths import FIRST_PATH, PathKind
from stages.paths.dictionary import Column, Dictionary, spans

EACH = 64
"""Steps for which a message counts besides its own, so that none is free."""
_LENGTH = np.dtype([("steps", "<i8")])


class Later:
    """Of one process and generation. The oldest are dropped by `shorten`."""

    def __init__(self) -> None:
        self.steps = 0
        self.gap = False  # the next does not follow what was taken last
        self._kept: deque[tuple[Paths | int, int]] = deque()  # or a thread that ended; steps
        self._threads: set[int] = set()  # seen, and not ended
        self._length = Column(_LENGTH)  # of each path

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, message: Paths, d: Dictionary) -> bool:
        """`d` has taken it. Whether there is a hole in a thread."""
        steps = EACH + self._steps(message.order, self._lengths(d))
        self._kept.append((message, steps))
        self.steps += steps
        hole = False
        for tid, continues in message.rows[["tid", "continues"]].tolist():
            hole |= not continues and tid in self._threads
            self._threads.add(tid)
        return hole

    def end(self, tid: int) -> None:
        """The thread of the messages before."""
        self._threads.discard(tid)
        if self._kept:
            self._kept.append((tid, 0))

    def shorten(self, most: int) -> Iterator[Paths | int]:
        """The oldest, dropped: the others have `most` steps."""
        while self._kept and self.steps - self._kept[0][1] >= most:
            kept, steps = self._kept.popleft()
            self.steps -= steps
            self.gap |= steps > 0
            yield kept

    def taken(self) -> Iterator[Paths | int]:
        """All, in their order."""
        self.gap = False
        while self._kept:
            kept, steps = self._kept.popleft()
            self.steps -= steps
            yield kept

    def _lengths(self, d: Dictionary) -> NDArray[np.int64]:
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
    def _steps(order: NDArray[np.int32], length: NDArray[np.int64]) -> int:
        again = np.flatnonzero(order < 0)
        once = int(length[order[order >= FIRST_PATH]].sum())
        return once - int((order[again].astype(np.int64) * length[order[again - 1]]).sum())

"""The versions that have ended and are kept, as columns: when did the last of those that lay at a place end?

They are few: what has ended is dropped some seconds later. All versions are many, and each load asks.
"""

from __future__ import annotations

import numpy as np

from jvm.code.version import Version


class Ended:
    """Of one process. A version is dropped with the register's, when its time is asked about no more."""

    def __init__(self) -> None:
        self._rows = np.zeros((64, 3), np.uint64)  # start, end, until
        self._ids: list[int] = []  # of each row that is used
        self._row: dict[int, int] = {}  # by id

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, v: Version) -> None:
        """`v.until` has been set, perhaps not for the first time."""
        row = self._row.setdefault(v.id, len(self._ids))
        if row == len(self._ids):
            self._ids.append(v.id)
            if row == len(self._rows):
                self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
        self._rows[row] = v.start, v.end, v.until

    def drop(self, id_: int) -> None:
        """The last row takes its place."""
        row = self._row.pop(id_, None)
        if row is None:
            return
        last = self._ids.pop()
        if row < len(self._ids):
            self._ids[row], self._row[last] = last, row
            self._rows[row] = self._rows[len(self._ids)]

    def before(self, tsc: int, start: int, end: int) -> int:
        """When the last of those that overlap [start, end) ended, of those that had ended at `tsc`; 0: none."""
        if not self._ids:
            return 0
        rows = self._rows[: len(self._ids)]
        there = (rows[:, 0] < end) & (rows[:, 1] > start) & (rows[:, 2] <= tsc)
        return int(rows[there, 2].max(initial=0))

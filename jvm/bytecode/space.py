"""Flat arrays of which parts are taken and given back. Places do not move, so an id stays the same while its owner
lives; a place that was given back is taken again, the first that is large enough. So arrays have the size of the most
that lived at once, and of the free parts between.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T", bound=tuple)  # type: ignore[type-arg]


class Space(Generic[T]):
    """`columns`: a NamedTuple of arrays of one length, whose first rows show how a free row looks."""

    def __init__(self, columns: T) -> None:
        self.columns = columns
        self._blank = tuple(column[:1].copy() for column in columns)
        self.used = 0  # rows up to the last that is taken
        self._free: list[tuple[int, int]] = []  # [start, end), ascending, apart, below `used`

    def take(self, count: int) -> int:
        """Where `count` rows in a row begin; as they were left, or blank."""
        for i, (start, end) in enumerate(self._free):
            if end - start >= count:
                self._free[i : i + 1] = [(start + count, end)] if end - start > count else []
                return start
        start, self.used = self.used, self.used + count
        size = len(self.columns[0])
        if self.used > size:
            grown = max(self.used, 2 * size) - size
            pairs = zip(self.columns, self._blank, strict=True)
            self.columns = self._made(np.concatenate((old, np.repeat(blank, grown, axis=0))) for old, blank in pairs)
        return start

    def give(self, start: int, count: int) -> None:
        """They become blank."""
        if not count:
            return
        end = start + count
        for column, blank in zip(self.columns, self._blank, strict=True):
            column[start:end] = blank[0]
        i = bisect_left(self._free, (start, end))
        if i < len(self._free) and self._free[i][0] == end:
            end = self._free.pop(i)[1]
        if i and self._free[i - 1][1] == start:
            i -= 1
            start = self._free.pop(i)[0]
        if end == self.used:
            self.used = start
        else:
            self._free.insert(i, (start, end))

    def view(self) -> T:
        """Of the rows up to the last that is taken."""
        return self._made(column[: self.used] for column in self.columns)

    def _made(self, columns: object) -> T:
        return type(self.columns)(*columns)  # type: ignore[misc]

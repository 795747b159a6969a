"""Disjoint intervals of addresses, each with a value."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Intervals(Generic[T]):
    """A new interval takes the place of those that it overlaps. None is kept that was taken out."""

    def __init__(self) -> None:
        self._starts: list[int] = []  # ascending
        self._of: dict[int, tuple[int, T]] = {}  # by start: end, value

    def __len__(self) -> int:
        return len(self._starts)

    def get(self, start: int) -> T | None:
        """The value of the interval that begins at `start`."""
        found = self._of.get(start)
        return None if found is None else found[1]

    def holding(self, address: int) -> tuple[int, int] | None:
        """The interval that `address` lies in."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._of[self._starts[at]][0]:
            return None
        return self._starts[at], self._of[self._starts[at]][0]

    def put(self, start: int, end: int, value: T) -> None:
        self.take(start, end)
        self._starts.insert(bisect_left(self._starts, start), start)
        self._of[start] = end, value

    def take(self, start: int, end: int) -> dict[int, int]:
        """Takes out all that overlap [start, end): their starts and ends, ascending."""
        lo = bisect_right(self._starts, start)
        if lo and self._of[self._starts[lo - 1]][0] > start:
            lo -= 1
        hi = bisect_left(self._starts, end, lo)
        found = {at: self._of.pop(at)[0] for at in self._starts[lo:hi]}
        del self._starts[lo:hi]
        return found

    def items(self) -> Iterator[tuple[int, T]]:
        """Starts, ascending, and values."""
        return ((start, self._of[start][1]) for start in self._starts)

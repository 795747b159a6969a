"""Rows by address, of which the last are kept: targets that the trace has resolved, contents that choices have
replaced.

One more row costs a copy, not a new order of all, for a search may follow each of them. Columns are never written again
once they were handed out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

I64 = NDArray[np.int64]


class Recent:
    """`address` (n,) ascends; `value` (n, width). Of one address the last added row comes first."""

    def __init__(self, width: int, dtype: DTypeLike, each: int, most: int) -> None:
        """At most `each` rows of one address and `most` in all."""
        self._each, self._most = each, most
        self.address = np.zeros(0, np.uint64)
        self.value = np.zeros((0, width), dtype)
        self._added = np.zeros(0, np.int64)
        self._count = 0

    def add(self, address: int, value: NDArray[np.generic]) -> None:
        """`value` (width,). If it is there already it is now the last added."""
        self._count += 1
        lo, hi = (int(self.address.searchsorted(np.uint64(address), side)) for side in ("left", "right"))
        same = np.flatnonzero((self.value[lo:hi] == value).all(axis=1))
        if len(same) and same[0] == 0:
            self._added[lo] = self._count
            return
        gone = lo + int(same[0]) if len(same) else min(lo + self._each - 1, hi)
        rest = gone + 1 if gone < hi else gone
        own = np.array([address], np.uint64)
        self.address = np.concatenate((self.address[:lo], own, self.address[lo:gone], self.address[rest:]))
        self.value = np.concatenate((self.value[:lo], value[None], self.value[lo:gone], self.value[rest:]))
        self._added = np.concatenate((self._added[:lo], [self._count], self._added[lo:gone], self._added[rest:]))
        if len(self.address) > self._most:  # half of them, so that this is seldom
            self._keep(self._added > np.sort(self._added)[len(self._added) // 2])

    def of(self, address: int) -> NDArray[np.generic]:
        """(n, width)"""
        lo, hi = (int(self.address.searchsorted(np.uint64(address), side)) for side in ("left", "right"))
        return self.value[lo:hi]

    def _keep(self, which: NDArray[np.bool_]) -> None:
        self.address, self.value, self._added = self.address[which], self.value[which], self._added[which]

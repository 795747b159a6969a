"""Method profiles of one process as rows of integers.

A worker numbers methods as it likes; the hub knows them by name. `MethodTable` gives each name of a process a small
number, its slot, and everything summed over methods is an array indexed by slot. Slot 0 is `other`: methods that find
no room are added there and counted, so sums stay exact and only their split among names becomes coarser.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from jvm.names import normalise
from stages.messages import PROFILE_DTYPE, CodeKind

Rows = NDArray[np.uint64]  # (n, COLUMNS)
Slots = NDArray[np.intp]  # (n,)

HITS, INSTRUCTIONS, TICKS, INVOCATIONS, UNTOLD, UNCOUNTED, BYTECODES = range(7)
"""UNTOLD, UNCOUNTED: how often invocations were made of which some, or none, are counted; BYTECODES: executed ones
(stages.messages.PROFILE_DTYPE)."""
KINDS = 7
"""First of the columns that hold the primary weight by kind of code (`CodeKind`)."""
_SUMMED = ("hits", "instructions", "ticks", "invocations", "untold", "uncounted", "bytecodes")
COLUMNS = KINDS + len(CodeKind)

WEIGHTS = {"hits": HITS, "instructions": INSTRUCTIONS, "time": TICKS, "bytecodes": BYTECODES}
"""The weight that a method's share is a share of, by the name users and labels give it."""
FIDELITY_WEIGHTS = {"ip": ("hits",), "flow": ("instructions", "time", "bytecodes")}
"""The weights that a fidelity gives; the first is the primary one."""

OTHER = "other"


def by_method(profile: NDArray[np.void], primary: int) -> tuple[NDArray[np.int32], Rows]:
    """Rows of PROFILE_DTYPE summed over threads and kinds: ascending method ids (n,) and their sums (n, COLUMNS).
    `primary` is the column that is split by kind; unknown kinds count as `CodeKind.UNKNOWN`."""
    if profile.dtype != PROFILE_DTYPE:
        raise ValueError(f"profile rows of dtype {profile.dtype}")
    ids, at = np.unique(profile["method"], return_inverse=True)
    sums = np.zeros((len(ids), COLUMNS), np.uint64)
    for column, name in enumerate(_SUMMED):
        np.add.at(sums[:, column], at, profile[name])
    kind = profile["kind"]
    kind = np.where((kind >= 0) & (kind < len(CodeKind)), kind, CodeKind.UNKNOWN)
    weight = profile[("hits", "instructions", "ticks")[primary]]
    np.add.at(sums, (at, KINDS + kind), weight)
    return ids, sums


def merged(slots: Slots, rows: Rows) -> tuple[Slots, Rows]:
    """The same sums with each slot once, ascending."""
    unique, at = np.unique(slots, return_inverse=True)
    sums = np.zeros((len(unique), COLUMNS), np.uint64)
    np.add.at(sums, at, rows)
    return unique, sums


class MethodTable:
    """Names ↔ slots of one process, at most `limit` slots, and the sum of each method over the whole run.

    `hold` and `release` say which slots a retained pane uses. When the table is full, names that no pane holds give
    up their slots, the smallest of the run first; their sums go to `other`. Held slots are never given up: if there
    are no others, a new name becomes `other` itself."""

    def __init__(self, limit: int = 16384) -> None:
        if limit < 2:
            raise ValueError("a method table needs room for `other` and one name")
        self.limit = limit
        self.names: list[str] = [OTHER]
        self.run: Rows = np.zeros((limit, COLUMNS), np.uint64)
        self.folded = 0
        """Names that lost, or never got, a slot of their own."""
        self._slot = {OTHER: 0}
        self._held = np.zeros(limit, np.int64)
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slot)

    def slot(self, name: str) -> int:
        """The slot of a display name (normalised here); 0 if there is no room."""
        name = normalise(name)
        slot = self._slot.get(name)
        if slot is not None:
            return slot
        if len(self.names) < self.limit:
            self.names.append(name)
            self._slot[name] = len(self.names) - 1
            return len(self.names) - 1
        if not self._free:
            self._evict()
        if not self._free:
            self.folded += 1
            return 0
        slot = self._free.pop()
        self.names[slot] = name
        self._slot[name] = slot
        return slot

    def find(self, name: str) -> int:
        """The slot of a normalised name, −1 if it has none."""
        return self._slot.get(name, -1)

    @contextmanager
    def slots(self, names: list[str]) -> Iterator[Slots]:
        """The slots of `names`, which nothing can take away inside the context."""
        slots = np.zeros(len(names), np.intp)
        for i, name in enumerate(names):
            slots[i] = self.slot(name)
            self._held[slots[i]] += 1
        try:
            yield slots
        finally:
            np.subtract.at(self._held, slots, 1)

    def hold(self, slots: Slots) -> None:
        self._held[slots] += 1

    def release(self, slots: Slots) -> None:
        self._held[slots] -= 1

    def _evict(self) -> None:
        idle = np.flatnonzero(self._held[1:] == 0) + 1
        # a quarter at once, so that a flood of names does not sort the table for each of them
        idle = idle[np.argsort(self.run[idle, : TICKS + 1].sum(axis=1), kind="stable")][: max(1, self.limit // 4)]
        self.run[0] += self.run[idle].sum(axis=0, dtype=np.uint64)
        self.run[idle] = 0
        self.folded += len(idle)
        for slot in idle.tolist():
            del self._slot[self.names[slot]]
            self._free.append(slot)

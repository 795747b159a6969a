"""What was counted in one pane, by node."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.cct.merging import exporting, merging, slices, summing
from stages.cct.tables import Z_NODES, Z_NOTED, Tables
from stages.cct.tree import Tree

_SUM_ROWS = 1 << 16
Part = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]  # nodes, counts, ticks (see Tables)


@dataclass(slots=True)
class Pane:
    """Nodes are numbered as in the tables; `detach` makes the pane outlive them."""

    parts: list[Part] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)

    def add(self, t: Tables) -> Iterator[None]:
        """What has been settled in the tables, in steps."""
        n = int(t.size[Z_NOTED])
        if n:
            ids = t.noted[:n].copy()
            ids = ids[t.counts[ids].any(axis=(1, 2))]  # what is unknown for a while is nothing then
            self.parts.append((ids, t.counts[ids], t.spent[ids]))
            rows = sum(len(part[0]) for part in self.parts)
            if rows > max(_SUM_ROWS, 2 * len(self.parts[0][0])):  # the first is the sum before
                self.parts = [(yield from self._sum(t))]

    def detach(self, t: Tables, names: list[str]) -> Iterator[None]:
        """In steps."""
        if self.parts:
            ids, counts, ticks = yield from self._sum(t)
            self.trees.append((yield from exporting(t, ids, counts, ticks, names)))
            self.parts = []

    def tree(self, t: Tables, names: list[str]) -> Generator[None, None, Tree]:
        """In steps."""
        yield from self.detach(t, names)
        return self.trees[0] if len(self.trees) == 1 else (yield from merging(self.trees))

    def _sum(self, t: Tables) -> Generator[None, None, Part]:
        """All parts as one, each node once, as it is in a part."""
        if len(self.parts) == 1:
            return self.parts[0]
        every, counts, ticks = yield from _joined(self.parts)
        where, ids = np.empty(len(every), np.int64), np.empty(len(every), np.int32)
        ids = ids[: int(distinct(every, np.zeros(int(t.size[Z_NODES]), np.int32), where, ids))]
        yield
        return ids, *(yield from summing(where, counts, ticks, len(ids)))


def _joined(parts: list[Part]) -> Generator[None, None, Part]:
    """One behind the other, in steps."""
    rows = sum(len(ids) for ids, _, _ in parts)
    ids, counts, ticks = parts[0]
    out = (
        np.empty(rows, ids.dtype), np.empty((rows, *counts.shape[1:]), counts.dtype),
        np.empty((rows, *ticks.shape[1:]), ticks.dtype),
    )  # fmt: skip
    begin = 0
    for ids, counts, ticks in parts:
        for own in slices(len(ids)):
            to = slice(begin + own.start, begin + own.stop)
            out[0][to], out[1][to], out[2][to] = ids[own], counts[own], ticks[own]
            yield
        begin += len(ids)
    return out


@kernel
def distinct(every, row, where, ids):  # type: ignore[no-untyped-def]
    """Each of `every` once in `ids`, and its place there in `where`; how many those are. `row`: zeros for all nodes."""
    count = np.int64(0)
    for k in range(len(every)):
        n = every[k]
        if row[n] == 0:
            ids[count] = n
            count += 1
            row[n] = count
        where[k] = row[n] - 1
    return count

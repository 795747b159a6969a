"""What was counted in one pane, by node."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.cct.tables import Z_NOTED, Tables
from stages.cct.tree import Tree, add_rows, exported, merged

_SUM_ROWS = 1 << 16
Part = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]  # nodes, counts, ticks (see Tables)


@dataclass(slots=True)
class Pane:
    """Nodes are numbered as in the tables; `detach` makes the pane outlive them."""

    parts: list[Part] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)

    def add(self, t: Tables) -> None:
        """What has been settled in the tables."""
        n = int(t.size[Z_NOTED])
        if n:
            ids = t.noted[:n].copy()
            self.parts.append((ids, t.counts[ids], t.spent[ids]))
            rows = sum(len(part[0]) for part in self.parts)
            if rows > max(_SUM_ROWS, 2 * len(self.parts[0][0])):  # the first is the sum before
                self.parts = [self._sum()]

    def detach(self, t: Tables, names: list[str]) -> None:
        if self.parts:
            self.trees.append(exported(t, *self._sum(), names))
            self.parts = []

    def tree(self, t: Tables, names: list[str]) -> Tree:
        self.detach(t, names)
        return self.trees[0] if len(self.trees) == 1 else merged(self.trees)

    def _sum(self) -> Part:
        ids, where = np.unique(np.concatenate([part[0] for part in self.parts]), return_inverse=True)
        counts, ticks = np.zeros((len(ids), *self.parts[0][1].shape[1:]), np.int64), np.zeros((len(ids), 2))
        each = (np.concatenate([part[k] for part in self.parts]) for k in (1, 2))
        add_rows(where, *each, counts, ticks)
        return ids, counts, ticks

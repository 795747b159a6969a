"""Threads of which contexts are kept: changed while a pipeline runs, without breaking the trees.

All threads are followed all the time, so that the stack of one that is switched on again is right at once. What a
thread does while it is off stands in one node, `[not profiled]`, with its instructions and its time: totals stay as
they are. A change begins with a pane, the first of which nothing has been counted yet.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.cct.tables import thread_name
from stages.cct.tree import COLUMNS, Tree, uniting

NOT_PROFILED = "[not profiled]"
MOST = 64
"""Names and ids of threads."""
LONGEST = 256


@dataclass(frozen=True, slots=True)
class Selection:
    """`on`: the threads listed, by their names (patterns) and ids, are on and the others off; else the other way round.
    Without a list: all."""

    on: bool = True
    named: tuple[str, ...] = ()
    tids: tuple[int, ...] = ()

    @property
    def everything(self) -> bool:
        return self.on and not self.named and not self.tids

    def off(self, tid: int, name: str) -> bool:
        if not self.named and not self.tids:
            return not self.on
        return (tid in self.tids or any(fnmatchcase(name, pattern) for pattern in self.named)) != self.on

    def words(self) -> dict[str, Any]:
        """JSON."""
        return {"on": self.on, "named": list(self.named), "tids": list(self.tids)}

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Selection:
        """Raises ValueError where it is not that of `words`."""
        on, named, tids = (words.get(key) for key in ("on", "named", "tids"))
        if not (
            type(on) is bool
            and isinstance(named, list | tuple) and all(type(name) is str and len(name) <= LONGEST for name in named)
            and isinstance(tids, list | tuple) and all(type(tid) is int for tid in tids)
            and len(named) + len(tids) <= MOST
        ):  # fmt: skip
            raise ValueError("no selection of threads")
        return cls(on, tuple(named), tuple(tids))

    def seen(self, tree: Tree) -> Generator[None, None, Tree]:
        """A pane's tree with one node for all that a thread does which is off, in steps."""
        if self.everything:
            return tree
        parent, names = tree.nodes["parent"].astype(np.int64), (*tree.names, NOT_PROFILED)
        roots = np.flatnonzero(parent < 0)
        off = np.zeros(len(parent), np.bool_)
        for thread in roots.tolist():
            row = tree.nodes[thread]
            off[thread] = self.off(int(row["bci"]), thread_name(tree.names[row["method"]]))
        if not off.any():
            return tree
        root = np.zeros(len(parent), np.int64)
        roots_of(parent, root)
        yield
        rows = tree.nodes.copy()
        gone = off[root] & (parent >= 0)
        rows["parent"][gone], rows["method"][gone], rows["bci"][gone] = root[gone], len(names) - 1, -1
        for name in COLUMNS:
            if name.endswith("invocations"):
                rows[name][gone] = 0
        yield
        return (yield from uniting(rows, names))


@kernel
def roots_of(parent: NDArray[np.int64], root: NDArray[np.int64]) -> None:
    """Fills (n,) `root`: the row without a parent that is above, or the row itself."""
    for n in range(len(parent)):
        root[n] = n if parent[n] < 0 else root[parent[n]]

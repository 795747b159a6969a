"""A pane's tree as it is told where only some threads are to be profiled (`stages.cct.selection`)."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.cct.merging import uniting
from stages.cct.selection import Selection
from stages.cct.tree import COLUMNS, Tree, thread_name

NOT_PROFILED = "[not profiled]"


def profiled(selection: Selection, tree: Tree) -> Generator[None, None, Tree]:
    """A pane's tree with one node for all that a thread does which is off, in steps."""
    if selection.everything:
        return tree
    parent, names = tree.nodes["parent"].astype(np.int64), (*tree.names, NOT_PROFILED)
    roots = np.flatnonzero(parent < 0)
    off = np.zeros(len(parent), np.bool_)
    for thread in roots.tolist():
        row = tree.nodes[thread]
        off[thread] = selection.off(int(row["bci"]), thread_name(tree.names[row["method"]]))
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

"""Callers and callees of a method, by what is spent in and below it.

Where a method is below itself only the outermost is looked at: what the inner one spends is within it, and is counted
once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.cct.merging import inclusive
from stages.cct.tree import Tree
from streamer.trees.levels import I64


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Shares of all that is spent; `callers` add up to `total`, `callees` and `own` too. The heaviest first."""

    total: float
    own: float
    callers: tuple[tuple[str, float], ...]
    callees: tuple[tuple[str, float], ...]


def neighbours(tree: Tree, own: NDArray[np.uint64], method: str) -> Neighbours | None:
    """`own`: (n,) weights of the nodes. None if the method is not in the tree."""
    if method not in tree.names or not own.sum():
        return None
    rows, whole = tree.nodes, float(own.sum())
    is_it = (rows["method"] == tree.names.index(method)) & (rows["parent"] >= 0)
    outer = is_it & ~_below(rows["parent"].astype(np.int64), is_it)
    total = inclusive(tree, own) / whole
    called = (rows["parent"] >= 0) & outer[rows["parent"]]
    return Neighbours(
        float(total[outer].sum()),
        float(own[outer].sum()) / whole,
        _by_name(tree, rows["method"][rows["parent"][outer]], total[outer]),
        _by_name(tree, rows["method"][called], total[called]),
    )


def _below(parent: I64, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) whether a chosen row is above."""
    up = np.where(parent >= 0, parent, np.arange(len(parent)))
    found = (parent >= 0) & chosen[up]
    while not np.array_equal(further := up[up], up):  # twice as far each time
        found, up = found | found[up], further
    return found


def _by_name(tree: Tree, methods: NDArray[np.int32], shares: NDArray[np.float64]) -> tuple[tuple[str, float], ...]:
    sums = np.zeros(len(tree.names))
    np.add.at(sums, methods, shares)
    return tuple((tree.names[m], float(sums[m])) for m in np.argsort(-sums, kind="stable").tolist() if sums[m])

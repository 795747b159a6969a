"""A tree's rows by level, and those of them that are worth showing: by arrays, for a tree may have a million rows.

Along a chain of parents one goes by pointer jumping: each round looks twice as far, so it takes the logarithm of the
depth, not the depth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.cct.merging import united
from stages.cct.tree import Tree

OTHER = "[other]"
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


def pruned(tree: Tree, total: U64, share: float, most: int) -> Tree:
    """Nodes with less than `share` of the largest `total` ((n,) inclusive), and all but the `most` heaviest, are one
    `[other]` of the caller that is left; sums stay. A root is always left."""
    gone = narrow(total, share, most) & (tree.nodes["parent"] >= 0)
    if not gone.any():
        return tree
    rows = tree.nodes.copy()
    top = topmost(rows["parent"].astype(np.int64), gone)[gone]
    rows["parent"][gone], rows["method"][gone], rows["bci"][gone] = rows["parent"][top], len(tree.names), -1
    return united(rows, (*tree.names, OTHER))


def narrow(total: U64, share: float, most: int) -> NDArray[np.bool_]:
    """(n,) which are so, and with each all below it: a parent has at least its child's total, and of equal ones the
    first are kept, which are parents."""
    if not len(total):
        return np.zeros(0, np.bool_)
    gone = total < np.uint64(max(1, int(np.ceil(share * float(total.max())))))
    if len(total) > most:
        gone[np.argsort(~total, kind="stable")[most:]] = True
    return gone


def topmost(parent: I64, chosen: NDArray[np.bool_]) -> I64:
    """(n,) the row itself, or the topmost row above it to which all on the way, and it, are chosen."""
    up = np.where(chosen & (parent >= 0) & chosen[parent], parent, np.arange(len(parent)))
    while not np.array_equal(further := up[up], up):
        up = further
    return up


def depths(parent: I64) -> I64:
    """(n,) how many rows are above each."""
    depth = (parent >= 0).astype(np.int64)
    up = np.where(parent >= 0, parent, np.arange(len(parent)))
    while depth[up].any():
        depth, up = depth + depth[up], up[up]
    return depth


def by_level(tree: Tree) -> tuple[I64, I64]:
    """Rows in the order of an icicle: by depth, within it by the place of their parents, then by name and bci; and
    where each depth begins, with the end as last."""
    rows = tree.nodes
    parent, depth = rows["parent"].astype(np.int64), depths(rows["parent"].astype(np.int64))
    rank = np.empty(len(tree.names), np.int64)
    rank[np.argsort(np.array(tree.names, np.object_), kind="stable")] = np.arange(len(rank))
    name = rank[rows["method"]] if len(rows) else np.zeros(0, np.int64)
    starts = np.concatenate(([0], np.cumsum(np.bincount(depth, minlength=0)))).astype(np.int64)
    grouped, place = np.argsort(depth, kind="stable"), np.zeros(len(rows), np.int64)
    order = np.empty(len(rows), np.int64)
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        level = grouped[begin:end]
        up = np.where(parent[level] >= 0, place[parent[level]], 0)
        order[begin:end] = level[np.lexsort((rows["bci"][level], name[level], up))]
        place[order[begin:end]] = np.arange(begin, end)
    return order, starts

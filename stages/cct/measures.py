"""How alike two trees are, and which libraries call which: measures of the literature, each named by its paper.

An edge is a node with its parent; two edges of two trees are equal if their paths from the root are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.cct.merging import merged
from stages.cct.tree import COLUMNS, Tree
from stages.messages.trees import TREE_DTYPE

F64 = NDArray[np.float64]
HOT = 0.1
"""Threshold of hot-edge coverage in the papers' evaluations."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two trees as one, with (n,) weights of each."""

    tree: Tree
    a: F64
    b: F64


def paired(a: tuple[Tree, NDArray[np.uint64]], b: tuple[Tree, NDArray[np.uint64]]) -> Pair:
    """Of each tree, and the weights of its nodes without what is below them."""
    sides = []
    for (tree, weights), column in zip((a, b), COLUMNS, strict=False):
        rows = np.zeros(len(tree.nodes), TREE_DTYPE)
        for name in ("parent", "method", "bci"):
            rows[name] = tree.nodes[name]
        rows[column] = weights
        sides.append(Tree(rows, tree.names))
    both = merged(sides)
    return Pair(both, *(both.nodes[name].astype(np.float64) for name in COLUMNS[:2]))


def overlap(pair: Pair) -> float:
    """The sum over all edges of the smaller of the two shares; 1: the same tree. By invocations it is CCCP's overlap
    percentage (§6.1, of contexts, call sites merged), by another weight the degree of overlap of Hofer et al. (§7.3).
    Of two empty trees 1."""
    total = pair.a.sum(), pair.b.sum()
    if not all(total):
        return float(total[0] == total[1])
    return float(np.minimum(pair.a / total[0], pair.b / total[1]).sum())


def hot_edge_coverage(pair: Pair, threshold: float = HOT) -> float:
    """Hot-edge coverage (Hofer et al., §7.3, after Zhuang et al.): an edge is hot in a tree if its weight is at least
    `threshold` times the largest; the share of the first tree's hot edges that are hot in the second. 1 where none is
    hot."""
    hot = [w >= threshold * w.max() if len(w) and w.max() > 0 else np.zeros(len(w), np.bool_) for w in (pair.a, pair.b)]
    return float((hot[0] & hot[1]).sum() / hot[0].sum()) if hot[0].any() else 1.0


def is_jdk(name: str) -> bool:
    """Whether a method is the JDK's, by its package."""
    return name.startswith(("java.", "javax.", "jdk.", "sun.", "com.sun."))


def call_matrix(tree: Tree, is_library: Callable[[str], bool] = is_jdk) -> NDArray[np.int64]:
    """Calls between application and library (CCCP, §6.2): (2, 2) observed invocations, of callers (application,
    library) by callees. Calls from or to what is no method (threads, the interpreter, stubs) are in none."""
    rows = tree.nodes
    library = np.array([is_library(name) for name in tree.names], np.bool_)
    method = np.array([not name.startswith("[") for name in tree.names], np.bool_)
    out = np.zeros((2, 2), np.int64)
    called = np.flatnonzero(rows["parent"] >= 0)
    callee, caller = rows["method"][called], rows["method"][rows["parent"][called]]
    told = method[callee] & method[caller] if len(method) else np.zeros(len(called), np.bool_)
    cell = (library[caller[told]].astype(np.int64), library[callee[told]].astype(np.int64))
    np.add.at(out, cell, rows["observed_invocations"][called[told]].astype(np.int64))
    return out


def contributions(pair: Pair) -> list[tuple[str, float, float]]:
    """(method, its share in the first tree, in the second), by how much they differ; each share is of what was spent in
    it, wherever it was called from."""
    shares = np.zeros((2, len(pair.tree.names)))
    for k, weights in enumerate((pair.a, pair.b)):
        np.add.at(shares[k], pair.tree.nodes["method"], weights / (weights.sum() or 1.0))
    order = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")
    return [(pair.tree.names[m], float(shares[0, m]), float(shares[1, m])) for m in order.tolist()]

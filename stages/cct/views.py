"""Other trees made of one: options of how it is looked at. What is spent is never lost by one, but for the parts that
are left out by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.cct.merging import united
from stages.cct.tree import COLUMNS, NAMES, THREAD, Tree, thread_method, thread_name

STUB = "[stub]"
ALL_THREADS = -1
ROOT = NAMES[THREAD]
UNNAMED = "[no name]"


@dataclass(frozen=True, slots=True)
class View:
    """`sites`: call sites apart (JP2's call-site-aware tree), else a caller's calls of one method are one node.
    `recursion`: unfolded, else a method that calls itself, however indirectly, is one node. `stubs`: as nodes, else
    what they spend is their callers'. `threads`: apart; `by_name`: those apart of which the names differ in more than
    numbers (`family`). `tids`, `named`: threads with these ids, with names like these (patterns) alone. `include`: only
    within the dynamic extent of these methods (patterns), which are the tree's roots below their threads; `exclude`:
    nothing within the extent of these."""

    sites: bool = True
    recursion: bool = True
    stubs: bool = False
    threads: bool = False
    by_name: bool = False
    tids: tuple[int, ...] = ()
    named: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def of(self, tree: Tree) -> Tree:
        if self.tids:
            tree = _subtrees(tree, (tree.nodes["parent"] < 0) & np.isin(tree.nodes["bci"], self.tids))
        if self.named:
            like = [any(fnmatchcase(thread_name(name), pattern) for pattern in self.named) for name in tree.names]
            tree = _subtrees(tree, (tree.nodes["parent"] < 0) & np.array(like, np.bool_)[tree.nodes["method"]])
        if self.exclude:
            tree = _subtrees(tree, (tree.nodes["parent"] < 0), without=_matches(tree, self.exclude))
        if self.include:
            tree = _extents(tree, _matches(tree, self.include))
        if not self.stubs:
            tree = _without(tree, np.array([name.startswith(STUB) for name in tree.names], np.bool_))
        rows, names = tree.nodes.copy(), tree.names
        roots = rows["parent"] < 0
        if not self.threads:
            rows["bci"][roots] = ALL_THREADS
            methods, which = np.unique(rows["method"][roots], return_inverse=True)
            called = [family(names[m]) if self.by_name else ROOT for m in methods.tolist()]
            new = list(dict.fromkeys(called))
            rows["method"][roots] = np.array([len(names) + new.index(name) for name in called], np.int32)[which]
            names = (*names, *new)
        if not self.sites:
            rows["bci"][~roots] = -1
        tree = united(rows, names)
        return tree if self.recursion else united(_folded(tree.nodes), tree.names)


def family(method: str) -> str:
    """Of a thread's root, for all threads whose names differ from this one's in numbers alone: "pool-#-thread-#"."""
    return thread_method(re.sub(r"[0-9]+", "#", thread_name(method)) or UNNAMED)


def _matches(tree: Tree, patterns: Iterable[str]) -> NDArray[np.bool_]:
    """(n,) whether a node's method is one of these."""
    names = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in tree.names]
    return np.asarray(np.array(names, np.bool_)[tree.nodes["method"]] & (tree.nodes["parent"] >= 0), np.bool_)


def _select(rows: NDArray[np.void], kept: NDArray[np.bool_]) -> NDArray[np.void]:
    """Those of `rows`, whose parents are among them."""
    number = np.cumsum(kept) - 1
    out = rows[kept]
    out["parent"] = np.where(out["parent"] >= 0, number[out["parent"]], -1)
    return out


def _subtrees(tree: Tree, roots: NDArray[np.bool_], without: NDArray[np.bool_] | None = None) -> Tree:
    """All that is below `roots`, and not below `without`."""
    kept, parent = roots.copy(), tree.nodes["parent"].copy()
    out = np.zeros(len(kept), np.bool_) if without is None else without
    spread(parent, kept, out)
    return Tree(_select(tree.nodes, kept), tree.names)


def _extents(tree: Tree, roots: NDArray[np.bool_]) -> Tree:
    """The outermost of `roots` with all below them, each below its thread."""
    parent = tree.nodes["parent"].copy()
    within = roots.copy()
    spread(parent, within, np.zeros(len(within), np.bool_))
    threads = np.zeros(len(within), np.bool_)
    rows = tree.nodes.copy()
    for n in np.flatnonzero(within & (parent >= 0) & ~within[parent]).tolist():
        up = int(parent[n])
        while parent[up] >= 0:
            up = int(parent[up])
        rows["parent"][n], rows["bci"][n] = up, -1
        threads[up] = True
    for name in COLUMNS:
        rows[name][threads] = 0
    return Tree(_select(rows, within | threads), tree.names)


def _without(tree: Tree, names: NDArray[np.bool_]) -> Tree:
    """What these methods spent is their callers', and what they called was called by those."""
    rows = tree.nodes.copy()
    gone = names[rows["method"]] & (rows["parent"] >= 0) if len(names) else np.zeros(len(rows), np.bool_)
    for name in COLUMNS:
        if name.endswith("invocations"):
            rows[name][gone] = 0
    columns = [rows[name].astype(np.int64) for name in ("parent", "method", "bci")]
    graft(*columns, gone)
    for name, column in zip(("parent", "method", "bci"), columns, strict=True):
        rows[name] = column
    return united(rows, tree.names)


def _folded(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Rows in which a node whose method is above it too is that one again."""
    columns = [rows[name].astype(np.int64) for name in ("parent", "method", "bci")]
    fold_recursion(*columns, np.arange(len(rows)))
    out = rows.copy()
    for name, column in zip(("parent", "method", "bci"), columns, strict=True):
        out[name] = column
    return out


@kernel
def spread(parent, kept, out):  # type: ignore[no-untyped-def]
    """`kept`, and all below; not what is `out`, nor below that."""
    for n in range(len(parent)):
        up = parent[n]
        if up >= 0 and kept[up]:
            kept[n] = True
        if out[n]:
            kept[n] = False


@kernel
def graft(parent, method, bci, gone):  # type: ignore[no-untyped-def]
    """A node that is gone gets the first three columns of its parent; its children, the bci at which it was called."""
    site = bci.copy()
    for n in range(len(parent)):
        up = parent[n]
        if gone[n]:
            if gone[up]:
                site[n] = site[up]
            parent[n], method[n], bci[n] = parent[up], method[up], bci[up]
        elif up >= 0 and gone[up]:
            bci[n] = site[up]


@kernel
def fold_recursion(parent, method, bci, stands):  # type: ignore[no-untyped-def]
    """A node below one of its own method gets that one's first three columns. `stands`: (n,) 0, 1, …"""
    for n in range(len(parent)):
        if parent[n] < 0:
            continue
        up = stands[parent[n]]
        parent[n] = up
        while up >= 0 and parent[up] >= 0 and method[up] != method[n]:
            up = parent[up]
        if parent[up] >= 0 and method[up] == method[n]:
            stands[n] = up
            parent[n], bci[n] = parent[up], bci[up]

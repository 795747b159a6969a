"""Trees made one, and made of `Tables`: in steps, so that a member can turn to something else between two of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.cct.slots import mixed
from stages.cct.tables import (
    CERTAINTIES,
    N_BCI,
    N_FLAGS,
    N_METHOD,
    N_PARENT,
    NODE_LINK,
    OWN_GAP,
    PRESUMED_BCI,
    PRESUMED_NODE,
    Z_NODES,
    Tables,
)
from stages.cct.tree import COLUMNS, UNKNOWN_CALLER, Tree
from stages.fresh import zeros
from stages.messages.trees import TREE_DTYPE

T = TypeVar("T")
ROWS = 1 << 15
"""So many rows are worked on in one step."""


def inclusive(tree: Tree, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """(n,) values of the nodes → (n,) sums of each node's subtree."""
    out = values.copy()
    add_up(tree.nodes["parent"].copy(), out)
    return out


def at_once(steps: Generator[None, None, T]) -> T:
    """The result of something that is done in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


def slices(rows: int) -> Iterator[slice]:
    """Of so many rows, the share of each step."""
    return (slice(a, min(rows, a + ROWS)) for a in range(0, rows, ROWS))


def merged(trees: Iterable[Tree]) -> Tree:
    """One tree of several: equal paths of (method, bci) are one node, whose counts are the sums."""
    return at_once(merging(trees))


def merging(trees: Iterable[Tree]) -> Generator[None, None, Tree]:
    """`merged` in steps."""
    trees = list(trees)
    names: dict[str, int] = {}
    rows, base = np.zeros(sum(len(tree.nodes) for tree in trees), TREE_DTYPE), 0
    for tree in trees:
        number = np.array([names.setdefault(name, len(names)) for name in tree.names], np.int32)
        for part in slices(len(tree.nodes)):
            own = rows[base + part.start : base + part.stop]
            own[:] = tree.nodes[part]
            own["method"] = number[own["method"]]
            own["parent"] = np.where(own["parent"] >= 0, own["parent"] + base, -1)
            yield
        base += len(tree.nodes)
    return (yield from uniting(rows, tuple(names)))


def united(rows: NDArray[np.void], names: tuple[str, ...]) -> Tree:
    """`rows`: parents before children, the same node perhaps several times (a row with the first three columns of
    another, by which it may have come before its parent)."""
    return at_once(uniting(rows, names))


def uniting(rows: NDArray[np.void], names: tuple[str, ...]) -> Generator[None, None, Tree]:
    """`united` in steps."""
    n = len(rows)
    where, keys = zeros(n, np.int64), zeros((n, 3), np.int64)
    slots = zeros(1 << (2 * n + 1).bit_length(), np.int32)
    count = 0
    for part in slices(n):
        yield
        columns = [rows[name][part].astype(np.int64) for name in ("parent", "method", "bci")]
        count = int(unite(*columns, keys, slots, where, part.start, count))
    out = zeros(count, TREE_DTYPE)
    for part in slices(count):
        yield
        for k, name in enumerate(("parent", "method", "bci")):
            out[name][part] = keys[part, k]
    for part in slices(n):
        yield
        for name in COLUMNS:
            np.add.at(out[name], where[part], rows[name][part])
    return Tree(out, names)


def summing(where: NDArray[np.int64], counts: NDArray[np.int64], ticks: NDArray[np.float64], n: int) \
        -> Generator[None, None, tuple[NDArray[np.int64], NDArray[np.float64]]]:  # fmt: skip
    """(rows, certainties, counts) and (rows, certainties) of rows → those of the n that `where` names, in steps."""
    sums, spent = zeros((n, *counts.shape[1:]), np.int64), zeros((n, ticks.shape[1]))
    for part in slices(len(where)):
        yield
        add_rows(where[part], counts[part], ticks[part], sums, spent)
    return sums, spent


def exporting(t: Tables, ids: NDArray[np.int32], counts: NDArray[np.int64], ticks: NDArray[np.float64],
              names: Sequence[str]) -> Generator[None, None, Tree]:  # fmt: skip
    """The tree of (n,) nodes with (n, certainties, counts) and (n, certainties) ticks, and all above them, in steps;
    where a caller has been found out since, below that."""
    size = int(t.size[Z_NODES])
    keys, where = zeros((size, 3), np.int64), np.full(size, -1, np.int64)
    slots, stack = zeros(1 << (2 * size + 1).bit_length(), np.int32), zeros(size, np.int64)
    n = 0
    for part in slices(len(ids)):
        yield
        n = int(resolve(t.node, t.presumed, ids[part], keys, slots, where, stack, n))
    sums, spent = yield from summing(where[ids], counts, ticks, n)
    out = zeros(n, TREE_DTYPE)
    used = np.zeros(len(names), np.int32)
    used[keys[:n, 1]] = 1
    number = np.cumsum(used, dtype=np.int32) - 1
    before = np.zeros(CERTAINTIES)  # ticks, of the rows so far
    for part in slices(n):
        yield
        rows = out[part]
        rows["parent"], rows["method"], rows["bci"] = keys[part, 0], number[keys[part, 1]], keys[part, 2]
        for c, certainty in enumerate(("observed", "suspect")):
            for k, count in enumerate(("invocations", "instructions", "bytecodes")):
                rows[f"{certainty}_{count}"] = np.maximum(sums[part, c, k], 0)
            upto = np.cumsum(np.append(before[c], spent[part, c]))
            rows[f"{certainty}_ticks"] = np.diff(np.rint(upto))  # whole ones, of the same sum
            before[c] = upto[-1]
    return Tree(out, tuple(names[m] for m in np.flatnonzero(used).tolist()))


@kernel
def add_rows(where, counts, ticks, sums, spent):  # type: ignore[no-untyped-def]
    """Adds (n, certainties, counts) and (n, certainties) of rows to those of `where`."""
    for k in range(len(where)):
        for c in range(counts.shape[1]):
            for q in range(counts.shape[2]):
                sums[where[k], c, q] += counts[k, c, q]
            spent[where[k], c] += ticks[k, c]


@inner
def place(keys, slots, count, parent, method, bci):  # type: ignore[no-untyped-def]
    """The row of a node, which may be a new one: `count`."""
    mask = len(slots) - 1
    i = mixed(parent, method, bci) & mask
    while slots[i] != 0:
        n = np.int64(slots[i]) - 1
        if keys[n, 0] == parent and keys[n, 1] == method and keys[n, 2] == bci:
            return n
        i = (i + 1) & mask
    slots[i] = count + 1
    keys[count, 0], keys[count, 1], keys[count, 2] = parent, method, bci
    return count


@kernel
def unite(parent, method, bci, keys, slots, where, begin, count):  # type: ignore[no-untyped-def]
    """The rows in `keys`, of which there are `count`, of the nodes from `begin` on, to `where`; how many there are
    then."""
    for k in range(len(parent)):
        of = where[parent[k]] if parent[k] >= 0 else np.int64(-1)
        where[begin + k] = place(keys, slots, count, of, method[k], bci[k])
        count = max(count, where[begin + k] + 1)
    return count


@kernel
def resolve(node, presumed, ids, keys, slots, where, stack, count):  # type: ignore[no-untyped-def]
    """The same for nodes of `Tables`, and those above them. `where`: at first −1 for each; `stack`: room for all. An
    unknown of which the caller is presumed is a link to that."""
    for first in ids:
        top = 0
        n = np.int64(first)
        while where[n] < 0 and top < len(stack):
            stack[top] = n
            top += 1
            n = presumed[n, PRESUMED_NODE] or node[n, N_PARENT]
            if n == 0:
                break
        while top > 0:
            top -= 1
            n = stack[top]
            up = presumed[n, PRESUMED_NODE] or node[n, N_PARENT]
            of = where[up] if up else np.int64(-1)
            if node[n, N_FLAGS] & NODE_LINK or presumed[n, PRESUMED_NODE]:
                where[n] = of
                continue
            bci = node[n, N_BCI]
            if up and presumed[up, PRESUMED_NODE] and node[up, N_METHOD] == UNKNOWN_CALLER:
                bci = presumed[up, PRESUMED_BCI]
            elif up and node[up, N_FLAGS] & NODE_LINK:
                bci = node[up, N_BCI]
            if node[n, N_METHOD] == UNKNOWN_CALLER or bci <= OWN_GAP:
                bci = np.int64(-1)
            where[n] = place(keys, slots, count, of, node[n, N_METHOD], bci)
            count = max(count, where[n] + 1)
    return count


@kernel
def add_up(parent, values):  # type: ignore[no-untyped-def]
    """Adds each node's value to its parent's, the last first."""
    for k in range(len(parent) - 1, -1, -1):
        if parent[k] >= 0:
            values[parent[k]] += values[k]

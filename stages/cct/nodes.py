"""Nodes, which are of Java: (parent, method, bci of the call), found by hash."""

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.cct.slots import differs, first_slot, mixed, next_slot, row_in, spread, tag_of
from stages.cct.tables import (
    INLINED,
    N_BCI,
    N_FLAGS,
    N_METHOD,
    N_PARENT,
    NC,
    NODE_NOTED,
    NODE_OVERFLOW,
    P_BCI,
    P_METHOD,
    P_UP,
    PC,
    Z_NODE_ROOM,
    Z_NODES,
    Z_NOTED,
    Z_OVERFLOW,
    Z_PARENTS,
    tables_at,
)
from stages.cct.tree import OVERFLOW_NAME, VIRTUAL_NAME


@inner
def _child(t, parent, method, bci, flags):  # type: ignore[no-untyped-def]
    mask, h = t.size[Z_PARENTS], mixed(parent, method, bci)
    i, tag, tried = first_slot(parent, h, mask), tag_of(h), 1
    while t.by_parent[i] != 0:
        slot = np.int64(t.by_parent[i])
        if not differs(slot, tag):
            n = row_in(slot)
            row = NC * n
            if t.node[row + N_PARENT] == parent and t.node[row + N_METHOD] == method and t.node[row + N_BCI] == bci:
                return n
        i = next_slot(i, parent, h, mask, tried)
        tried += 1
    n = t.size[Z_NODES]
    if n >= (2 * t.size[Z_NODE_ROOM] if flags & NODE_OVERFLOW else t.size[Z_NODE_ROOM]):
        return np.int64(-1)
    t.size[Z_NODES] = n + 1
    t.by_parent[i] = tag | n
    row = NC * n
    t.node[row + N_PARENT], t.node[row + N_METHOD], t.node[row + N_BCI], t.node[row + N_FLAGS] = (
        parent,
        method,
        bci,
        flags,
    )
    if 2 * n > mask:
        t.size[Z_PARENTS] = spread(t.node, np.int64(NC), n + 1, 3, t.by_parent, mask)
    return n


@inner
def child(t, parent, method, bci):  # type: ignore[no-untyped-def]
    """The node of `method`, called from `parent` at `bci`. With no room for it the parent's `overflow`, which takes all
    that is below it too."""
    if t.node[NC * parent + N_FLAGS] & NODE_OVERFLOW:
        return parent
    n = _child(t, parent, method, bci, 0)
    if n < 0:
        t.size[Z_OVERFLOW] += 1
        n = _child(t, parent, np.int64(OVERFLOW_NAME), np.int64(-1), NODE_OVERFLOW)
    return n if n >= 0 else parent


@inner
def virtual_root(t):  # type: ignore[no-untyped-def]
    """The node below which those of virtual threads stand."""
    return child(t, np.int64(0), np.int64(VIRTUAL_NAME), np.int64(0))


@inner
def note(t, n):  # type: ignore[no-untyped-def]
    """Before something is added to the counts of node `n`. These may be zero again later: a call that was entered is
    taken back when it is told whose it is."""
    row = NC * n + N_FLAGS
    if t.node[row] & NODE_NOTED == 0:
        t.node[row] |= NODE_NOTED
        t.noted[t.size[Z_NOTED]] = n
        t.size[Z_NOTED] += 1


@kernel
def child_of(where, parent, method, bci):  # type: ignore[no-untyped-def]
    return child(tables_at(where), parent, method, bci)


@kernel
def rename(where, n, method):  # type: ignore[no-untyped-def]
    """Node `n` is of another method. The slot that it had is no key's any more, and goes when the table grows; of the
    rows not more than all have such a one, so that the table is never full."""
    t = tables_at(where)
    row = NC * n
    t.node[row + N_METHOD] = method
    parent, mask = t.node[row + N_PARENT], t.size[Z_PARENTS]
    h = mixed(parent, method, t.node[row + N_BCI])
    i, tried = first_slot(parent, h, mask), 1
    while t.by_parent[i] != 0:
        i = next_slot(i, parent, h, mask, tried)
        tried += 1
    t.by_parent[i] = tag_of(h) | n


@inner
def inlined(t, c, node, where):  # type: ignore[no-untyped-def]
    """The node of `where`, a place in the inline tree of the nmethod that has `node`."""
    if where == 0:
        return node
    i = mixed(node, where, 0) & (INLINED - 1)
    if t.inlined[3 * i + 0] == node and t.inlined[3 * i + 1] == where:
        return t.inlined[3 * i + 2]
    of, depth = node, 0
    up = where
    while up:
        depth += 1
        up = c.place[PC * up + P_UP]
    for k in range(depth, 0, -1):
        up = where
        for _ in range(k - 1):
            up = c.place[PC * up + P_UP]
        node = child(t, node, c.place[PC * up + P_METHOD], c.place[PC * up + P_BCI])
    t.inlined[3 * i + 0], t.inlined[3 * i + 1], t.inlined[3 * i + 2] = of, where, node
    return node

"""Calling contexts: a tree whose nodes are (parent, return address).

A path moves from one node to another: ``(node, path) → node'``, remembered in `Tables.cmemo`. A path that neither
calls nor returns leaves the node alone and only adds its instructions to it. So contexts are a fold over the order of
paths, apart from the walk: where a return went is where the next path begins. A path made of paths is one step too:
how often it was made from a node is counted, and `settle` adds up what its parts spent in which nodes.

The tree is not the return stack of 64 entries: the stack must do exactly what the
processor's does (SDM: the oldest entry falls off, every near RET pops), while the tree follows what the program
means. Where a return goes to another frame than the innermost one (an exception, a deoptimised frame, a return
address patched by the JVM), the tree goes to the frame that was called from there.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numba import njit

from stages.flow.graph import (
    CM,
    DEAD,
    G_CALL_MASK,
    G_CMEMO,
    G_CMEMO_MASK,
    G_CMISSES,
    G_CONTEXT_FULL,
    G_NODE_ROOM,
    G_NODES,
    P_BREAK,
    P_DISABLED,
    P_FIRST,
    PA,
    PA_FLAGS,
    PA_INSTRS,
    PA_LEN,
    PA_POOL,
    PA_PUSH,
    PA_PUSHES,
    PA_START,
    PATH_LEAVES,
    PATH_RETURNS,
    PATH_TURNS,
    ST,
    ST_KIND,
    raw_tables,
    scatter,
)
from stages.flow.raw import (
    inner,
)

NO = 4
NO_PARENT, NO_RETURN, NO_DEPTH = 0, 1, 2
DEPTH_LIMIT = 4096  # deeper recursion stays in the node
SEARCH_LIMIT = 256  # frames unwound at once

# the context of one thread: node; root; and what the path before did, on which depends how the next is understood
C_NODE, C_ROOT, C_BEHIND, C_SIZE = range(4)
RETURNED = PATH_RETURNS  # to the frame that the next path begins in
ONCE, NEVER = np.int64(1), np.int64(0)
LEFT = PATH_LEAVES  # tracing ended there: if it resumes behind the last call, that has returned


@inner
def child(t, node, ret):  # type: ignore[no-untyped-def]
    """The node of a call from `node` that returns to stretch `ret`. With no room, or too deep: `node` itself."""
    key = node << 32 | ret
    mask = t.g[G_CALL_MASK]
    i = scatter(key) & mask
    while t.by_call[2 * i + 1] != 0:
        if t.by_call[2 * i] == key:
            return t.by_call[2 * i + 1]
        i = (i + 1) & mask
    new = t.g[G_NODES]
    if new >= t.g[G_NODE_ROOM] or t.node[node * NO + NO_DEPTH] >= DEPTH_LIMIT:
        t.g[G_CONTEXT_FULL] += 1
        return node
    t.g[G_NODES] = new + 1
    t.by_call[2 * i] = key
    t.by_call[2 * i + 1] = new
    t.node[new * NO + NO_PARENT] = node
    t.node[new * NO + NO_RETURN] = ret
    t.node[new * NO + NO_DEPTH] = t.node[node * NO + NO_DEPTH] + 1
    return new


@inner
def _called(t, node, path):  # type: ignore[no-untyped-def]
    for k in range(t.path[path * PA + PA_PUSHES]):
        node = child(t, node, np.int64(t.pool[t.path[path * PA + PA_PUSH] + k]))
    return node


@inner
def _through(t, node, path, times):  # type: ignore[no-untyped-def]
    """The node behind `path`; what it spent, so many times, is added to the nodes, if it is made of paths."""
    if not t.path[path * PA + PA_FLAGS] & PATH_TURNS:
        return _called(t, node, path)
    behind = np.int64(0)
    for k in range(t.path[path * PA + PA_LEN]):
        part = np.int64(t.pool[t.path[path * PA + PA_POOL] + k])
        if part == P_DISABLED:
            behind = np.int64(LEFT)
            continue
        if behind:
            node = _back(t, node, np.int64(t.path[part * PA + PA_START]), behind)
        t.node_instrs[node] += times * t.path[part * PA + PA_INSTRS]
        node = _called(t, node, part)
        behind = np.int64(t.path[part * PA + PA_FLAGS]) & PATH_RETURNS
    return node


@inner
def step(t, node, path):  # type: ignore[no-untyped-def]
    """The node behind the calls and returns of `path`. If it is made of paths, what it spent is noted or added."""
    key = node << 32 | path
    mask = t.g[G_CMEMO_MASK]
    i = scatter(key) & mask
    while t.cmemo[CM * i] != 0:
        if t.cmemo[CM * i] == key:
            t.cmemo[CM * i + 2] += 1
            return t.cmemo[CM * i + 1]
        i = (i + 1) & mask
    t.g[G_CMISSES] += 1
    if 3 * t.g[G_CMEMO] >= 2 * mask:  # it is found again each time: still right, only slower
        return _through(t, node, path, ONCE)
    after = _through(t, node, path, NEVER)
    t.g[G_CMEMO] += 1
    t.cmemo[CM * i] = key
    t.cmemo[CM * i + 1] = after
    t.cmemo[CM * i + 2] = 1
    return after


@inner
def returned(t, node, s):  # type: ignore[no-untyped-def]
    """The node after a return from `node` to stretch `s`."""
    if np.int64(t.node[node * NO + NO_RETURN]) == s:
        return np.int64(t.node[node * NO + NO_PARENT])
    up = node
    for _ in range(SEARCH_LIMIT):
        if np.int64(t.node[up * NO + NO_PARENT]) == 0:
            break
        ret = np.int64(t.node[up * NO + NO_RETURN])
        if ret == s or (t.stretch[ret * ST + ST_KIND] == DEAD and t.address[ret] == t.address[s]):
            return np.int64(t.node[up * NO + NO_PARENT])
        up = np.int64(t.node[up * NO + NO_PARENT])
    parent = np.int64(t.node[node * NO + NO_PARENT])
    return parent if parent else node


@inner
def _back(t, node, s, behind):  # type: ignore[no-untyped-def]
    """The node in which a path begins at stretch `s`, where the one before returned, or left and tracing resumed."""
    if np.int64(t.node[node * NO + NO_RETURN]) == s:
        return _parent(t, node)
    return returned(t, node, s) if behind & RETURNED else node


@inner
def _parent(t, node):  # type: ignore[no-untyped-def]
    parent = np.int64(t.node[node * NO + NO_PARENT])
    return parent if parent else node


@njit(cache=True, nogil=True)
def fold(where, c, order, begin, may_grow):  # type: ignore[no-untyped-def]
    """Follow `order[begin:]` from the context `c` (C_SIZE,), adding instructions to nodes. Returns where it stopped:
    before the end only with `may_grow`, if the table of contexts is too full. `where`: `Tables.raw()`."""
    t = raw_tables(where)
    node, behind = c[C_NODE], c[C_BEHIND]
    spent = np.int64(0)  # in `node`, not yet added to it
    instrs = np.int64(0)  # of the last path
    j = begin
    while j < len(order):
        path = np.int64(order[j])
        if path < 0:  # such a loop calls nothing
            spent -= path * instrs
        elif path < P_FIRST:
            if path == P_BREAK:
                behind = 0
            else:
                behind = LEFT
        else:
            row = path * PA
            flags = np.int64(t.path[row + PA_FLAGS])
            calls = t.path[row + PA_PUSHES] > 0 or flags & PATH_TURNS != 0
            if calls and may_grow and 3 * (t.g[G_CMEMO] + 2) > 2 * t.g[G_CMEMO_MASK]:
                break
            if behind & (RETURNED | LEFT):
                s = np.int64(t.path[row + PA_START])
                same = np.int64(t.node[node * NO + NO_RETURN]) == s
                if same or behind & RETURNED:
                    t.node_instrs[node] += spent
                    spent = 0
                    node = _parent(t, node) if same else returned(t, node, s)
            if not flags & PATH_TURNS:
                instrs = np.int64(t.path[row + PA_INSTRS])
                spent += instrs
            behind = flags & (RETURNED | LEFT)
            if calls:
                t.node_instrs[node] += spent
                spent = 0
                node = step(t, node, path)
        j += 1
    t.node_instrs[node] += spent
    c[C_NODE], c[C_BEHIND] = node, behind
    return j


@njit(cache=True, nogil=True)
def settle(where):  # type: ignore[no-untyped-def]
    """Bring `Tables.node_instrs` up to date. `where`: `Tables.raw()`."""
    t = raw_tables(where)
    for i in range(t.g[G_CMEMO_MASK] + 1):
        path = t.cmemo[CM * i] & 0xFFFFFFFF
        if t.path[path * PA + PA_FLAGS] & PATH_TURNS:
            _through(t, t.cmemo[CM * i] >> 32, path, t.cmemo[CM * i + 2])
        t.cmemo[CM * i + 2] = 0

"""Calling contexts: a tree whose nodes are (parent, return address).

A path moves from one node to another: ``(node, what was before, path) → node'``, remembered in `Tables.context_cache`
together with how often that was done. A path that neither calls nor returns leaves the node alone and only adds its
instructions to it. The last step along each path stands by itself too, where it is found without waiting for the node
before. So contexts are a fold over the order of paths, apart from the walk: where a return went is where the next path
begins. A path made of paths is one step too; `settle` adds up the cost of each node.

The tree is not the return stack of 64 entries: the stack must do exactly what the
processor's does (SDM: the oldest entry falls off, every near RET pops), while the tree follows what the program
means. Where a return goes to another frame than the innermost one (an exception, a deoptimised frame, a return
address patched by the JVM), the tree goes to the frame that was called from there.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.follow.cfg.block_queries import goes_on_at
from stages.follow.cfg.graph import (
    G_CALL_MASK,
    G_CMISSES,
    G_CONTEXT_CACHE,
    G_CONTEXT_CACHE_MASK,
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
    raw_tables,
    scatter,
)

NO = 4
NO_PARENT, NO_RETURN, NO_DEPTH = 0, 1, 2
DEPTH_LIMIT = 4096  # deeper recursion stays in the node
SEARCH_LIMIT = 256  # frames unwound at once

# a step: node << 32 | what is behind << BEHIND | path
# a slot of `Tables.context_cache`: such a step, with nothing behind; node' | times not yet counted << TIMES
# of `Tables.last_step`: a step; node' | its slot in `context_cache` << TIMES
BEHIND, TIMES = 30, 24
PATHS, NODE, ONE_TIME = (1 << BEHIND) - 1, (1 << TIMES) - 1, 1 << TIMES
UNSETTLED = 1 << 38  # no more steps than that between two calls of `settle`

# the context of one thread: node; root; and what the path before did, on which depends how the next is understood
C_NODE, C_ROOT, C_BEHIND, C_SIZE = range(4)
RETURNED = PATH_RETURNS  # to the frame that the next path begins in
ONCE, NEVER = np.int64(1), np.int64(0)
LEFT = PATH_LEAVES  # tracing ended there: if it resumes behind the last call, that has returned


@inner
def child(t, node, ret):  # type: ignore[no-untyped-def]
    """The node of a call from `node` that returns to block `ret`. With no room, or too deep: `node` itself."""
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
def _parent(t, node):  # type: ignore[no-untyped-def]
    parent = np.int64(t.node[node * NO + NO_PARENT])
    return parent if parent else node


@inner
def returned(t, node, s):  # type: ignore[no-untyped-def]
    """The node after a return from `node` to block `s`."""
    if np.int64(t.node[node * NO + NO_RETURN]) == s:
        return np.int64(t.node[node * NO + NO_PARENT])
    up = node
    for _ in range(SEARCH_LIMIT):
        if np.int64(t.node[up * NO + NO_PARENT]) == 0:
            break
        ret = np.int64(t.node[up * NO + NO_RETURN])
        if goes_on_at(t, ret, s):
            return np.int64(t.node[up * NO + NO_PARENT])
        up = np.int64(t.node[up * NO + NO_PARENT])
    parent = np.int64(t.node[node * NO + NO_PARENT])
    return parent if parent else node


@inner
def _back(t, node, behind, s):  # type: ignore[no-untyped-def]
    """The node in which a path begins at block `s`, after what is behind."""
    if behind:
        if np.int64(t.node[node * NO + NO_RETURN]) == s:
            return _parent(t, node)
        if behind & RETURNED:
            return returned(t, node, s)
    return node


@inner
def _through(t, key, times):  # type: ignore[no-untyped-def]
    """The node behind a step; its cost, so many times, is added to the nodes."""
    node, behind, path = key >> 32, (key >> BEHIND) & 3, key & PATHS
    row = path * PA
    flags = np.int64(t.path[row + PA_FLAGS])
    parts = np.int64(t.path[row + PA_LEN]) if flags & PATH_TURNS else np.int64(1)
    for k in range(parts):
        part = np.int64(t.pool[t.path[row + PA_POOL] + k]) if flags & PATH_TURNS else path
        if part == P_DISABLED:
            behind = np.int64(LEFT)
            continue
        node = _back(t, node, behind, np.int64(t.path[part * PA + PA_START]))
        t.node_instrs[node] += times * t.path[part * PA + PA_INSTRS]
        for m in range(t.path[part * PA + PA_PUSHES]):
            node = child(t, node, np.int64(t.pool[t.path[part * PA + PA_PUSH] + m]))
        behind = np.int64(t.path[part * PA + PA_FLAGS]) & PATH_RETURNS
    return node


@inner
def _step(t, key):  # type: ignore[no-untyped-def]
    """The node behind a step and where in `context_cache` that stands, as in `Tables.last_step`. The step's cost is
    noted. With no room to note it, it is added at once, and the result is -1 - node."""
    path = key & PATHS
    key = _back(t, key >> 32, (key >> BEHIND) & 3, np.int64(t.path[path * PA + PA_START])) << 32 | path
    mask = t.g[G_CONTEXT_CACHE_MASK]
    i = scatter(key) & mask
    while t.context_cache[2 * i] != 0:
        if t.context_cache[2 * i] == key:
            value = t.context_cache[2 * i + 1]
            t.context_cache[2 * i + 1] = value + ONE_TIME
            return value & NODE | i << TIMES
        i = (i + 1) & mask
    t.g[G_CMISSES] += 1
    if 3 * t.g[G_CONTEXT_CACHE] >= 2 * mask:
        return -1 - _through(t, key, ONCE)
    after = _through(t, key, NEVER)
    t.g[G_CONTEXT_CACHE] += 1
    t.context_cache[2 * i] = key
    t.context_cache[2 * i + 1] = after | ONE_TIME
    return after | i << TIMES


@kernel
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
            instrs = np.int64(t.path[row + PA_INSTRS])
            if behind or flags & PATH_TURNS or t.path[row + PA_PUSHES] > 0:
                if may_grow and 3 * (t.g[G_CONTEXT_CACHE] + 2) > 2 * t.g[G_CONTEXT_CACHE_MASK]:
                    break
                if spent:
                    t.node_instrs[node] += spent
                    spent = 0
                key = node << 32 | behind << BEHIND | path
                if t.last_step[2 * path] == key:
                    found = t.last_step[2 * path + 1]
                    t.context_cache[2 * (found >> TIMES) + 1] += ONE_TIME
                else:
                    found = _step(t, key)
                    t.last_step[2 * path], t.last_step[2 * path + 1] = key if found >= 0 else 0, found
                node = found & NODE if found >= 0 else -1 - found
            else:
                spent += instrs
            behind = flags & (RETURNED | LEFT)
        j += 1
    t.node_instrs[node] += spent
    c[C_NODE], c[C_BEHIND] = node, behind
    return j


@kernel
def settle(where):  # type: ignore[no-untyped-def]
    """Bring `Tables.node_instrs` up to date. `where`: `Tables.raw()`."""
    t = raw_tables(where)
    for i in range(t.g[G_CONTEXT_CACHE_MASK] + 1):
        key, value = t.context_cache[2 * i], t.context_cache[2 * i + 1]
        if value >= ONE_TIME:
            _through(t, key, value >> TIMES)
            t.context_cache[2 * i + 1] = value & NODE

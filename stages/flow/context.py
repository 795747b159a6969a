"""Calling contexts: a tree whose nodes are (parent, return address).

A path moves from one node to another: ``(node, path) → node'``, remembered and counted in `Tables.cmemo`. A path
that neither calls nor returns leaves the node alone and only adds its instructions to it.

The tree is kept beside the return stack of 64 entries, not instead of it: the stack must do exactly what the
processor's does (SDM: the oldest entry falls off, every near RET pops), while the tree follows what the program
means. Where a return goes to another frame than the innermost one (an exception, a deoptimised frame, a return
address patched by the JVM), the tree goes to the frame that was called from there.
"""

from __future__ import annotations

import numpy as np

from stages.flow.graph import (
    DEAD,
    G_CALL_MASK,
    G_CMEMO,
    G_CMEMO_MASK,
    G_CMISSES,
    G_CONTEXT_FULL,
    G_NODE_ROOM,
    G_NODES,
    PA,
    PA_PUSH,
    PA_PUSHES,
    ST,
    ST_KIND,
    scatter,
)
from stages.flow.raw import inner

NO = 4
NO_PARENT, NO_RETURN, NO_DEPTH = 0, 1, 2
DEPTH_LIMIT = 4096  # deeper recursion stays in the node
SEARCH_LIMIT = 256  # frames unwound at once


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
def probe(cmemo, mask, key):  # type: ignore[no-untyped-def]
    """The slot of `key` in the table of contexts, or −1."""
    i = scatter(key) & mask
    while True:
        k = cmemo[2 * i]
        if k == key:
            return i
        if k == 0:
            return -1
        i = (i + 1) & mask


@inner
def step(t, node, path):  # type: ignore[no-untyped-def]
    """Count `path` in `node` and return the node behind its calls."""
    key = node << 32 | path
    mask = t.g[G_CMEMO_MASK]
    i = probe(t.cmemo, mask, key)
    if i >= 0:
        t.cmemo[2 * i + 1] += 1
        return t.cmemo[2 * i + 1] >> 32
    t.g[G_CMISSES] += 1
    after = node
    for k in range(t.path[path * PA + PA_PUSHES]):
        after = child(t, after, np.int64(t.pool[t.path[path * PA + PA_PUSH] + k]))
    if 3 * t.g[G_CMEMO] < 2 * mask:
        t.g[G_CMEMO] += 1
        i = scatter(key) & mask
        while t.cmemo[2 * i] != 0:
            i = (i + 1) & mask
        t.cmemo[2 * i] = key
        t.cmemo[2 * i + 1] = after << 32 | 1
    else:  # no room to remember: still right, only slower and less fine
        t.g[G_CONTEXT_FULL] += 1
        t.node_instrs[node] += t.path_instrs[path]
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

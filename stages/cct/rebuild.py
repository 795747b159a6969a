"""New tables with nothing in them but the stacks of the threads."""

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.cct.contents import Contents
from stages.cct.contexts import mixed
from stages.cct.fold import T_NODE, T_STATE
from stages.cct.tables import (
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    BEHIND,
    I64,
    N_BCI,
    N_METHOD,
    N_PARENT,
    Z_ACTIVATIONS,
    Z_HOLES,
    Z_LINKS,
    Z_NODES,
    Z_OVERFLOW,
    Z_STRANGE,
    Tables,
    uncounted,
)

_KEPT = (Z_HOLES, Z_LINKS, Z_STRANGE, Z_OVERFLOW)


def rebuilt(before: Tables, old: Contents, t: Tables, contents: Contents, threads: I64, slots: I64) -> None:
    """Copies the stacks of `threads[slots]`, whose states are changed, from `before` to the empty `t`. Names and
    functions were numbered by `old`, and are by `contents`, which may be the same."""
    for k in _KEPT:
        t.size[k] = before.size[k]
    _copy(
        before, t, threads, slots, np.zeros(len(before.node), np.int64),
        np.zeros(len(before.activation), np.int64), np.zeros(max(len(before.node), len(before.activation)), np.int64),
    )  # fmt: skip
    if contents is not old:
        nodes = t.node[1 : int(t.size[Z_NODES])]
        used, where = np.unique(nodes[:, N_METHOD], return_inverse=True)
        numbers = np.array([contents.names.number(old.names.all[m]) for m in used.tolist()], np.int64)
        nodes[:, N_METHOD] = numbers[where]
        activations = t.activation[1 : int(t.size[Z_ACTIVATIONS])]
        used, where = np.unique(activations[:, A_FN], return_inverse=True)
        activations[:, A_FN] = contents.adopt_from(old, used)[where]
    _rehash(t)


@inner
def _node(before, t, n, copied, stack):  # type: ignore[no-untyped-def]
    """The copy of node `n`, made with those above it where there is none."""
    top, first = 0, n
    while n and copied[n] == 0:
        stack[top] = n
        top += 1
        n = before.node[n, N_PARENT]
    while top > 0:
        top -= 1
        n = stack[top]
        new = t.size[Z_NODES]
        t.size[Z_NODES] = new + 1
        t.node[new] = before.node[n]
        t.node[new, N_PARENT] = copied[before.node[n, N_PARENT]]
        copied[n] = new
    return copied[first]


@kernel
def _copy(before, t, threads, slots, copied, moved, stack):  # type: ignore[no-untyped-def]
    before, t = uncounted(before), uncounted(t)
    mask = (1 << BEHIND) - 1
    for slot in slots:
        threads[slot, T_NODE] = _node(before, t, threads[slot, T_NODE], copied, stack)
        a = threads[slot, T_STATE] >> BEHIND
        while a and moved[a] == 0:
            new = t.size[Z_ACTIVATIONS]
            t.size[Z_ACTIVATIONS] = new + 1
            moved[a] = new
            row = before.activation[a]
            t.activation[new] = row
            t.activation[new, A_NODE] = _node(before, t, row[A_NODE], copied, stack)
            t.activation[new, A_CALLER] = _node(before, t, row[A_CALLER], copied, stack)
            a = row[A_PARENT]
        threads[slot, T_STATE] = moved[threads[slot, T_STATE] >> BEHIND] << BEHIND | threads[slot, T_STATE] & mask
    for new in range(1, t.size[Z_ACTIVATIONS]):
        t.activation[new, A_PARENT] = moved[t.activation[new, A_PARENT]]


@kernel
def _rehash(t):  # type: ignore[no-untyped-def]
    t = uncounted(t)
    mask = len(t.by_call) - 1
    for a in range(1, t.size[Z_ACTIVATIONS]):
        i = mixed(t.activation[a, A_PARENT], t.activation[a, A_RETURN], t.activation[a, A_FN]) & mask
        while t.by_call[i] != 0:
            i = (i + 1) & mask
        t.by_call[i] = a
    mask = len(t.by_parent) - 1
    for n in range(1, t.size[Z_NODES]):
        i = mixed(t.node[n, N_PARENT], t.node[n, N_METHOD], t.node[n, N_BCI]) & mask
        while t.by_parent[i] != 0:
            i = (i + 1) & mask
        t.by_parent[i] = n

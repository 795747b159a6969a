"""New tables with nothing in them but the stacks of the threads, those of virtual ones that are put away too."""

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.cct.fold import T_NODE, T_STATE
from stages.cct.functions import Functions
from stages.cct.slots import spread
from stages.cct.tables import (
    A_BEFORE,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    A_WHOLE,
    AC,
    BEHIND,
    BOTTOM,
    HOLE,
    I64,
    N_METHOD,
    N_PARENT,
    NC,
    PARKED,
    PK,
    PK_NUMBER,
    PK_STACK,
    PRESUMED_BCI,
    PRESUMED_NODE,
    QC,
    SHARED,
    Z_ACTIVATION_ROOM,
    Z_ACTIVATIONS,
    Z_CALLS,
    Z_GAPS,
    Z_HOLES,
    Z_LINKS,
    Z_MOUNTED,
    Z_NODES,
    Z_OVERFLOW,
    Z_OWN_HOLES,
    Z_PARENTS,
    Z_PRESUME,
    Z_PRESUMED,
    Z_PRESUMED_RIGHT,
    Z_PRESUMED_WRONG,
    Z_SHARED_HOLES,
    Z_STACKS,
    Z_STACKS_AGREED,
    Z_STACKS_REFUSED,
    Z_STRANGE,
    Tables,
    tables_at,
)
from stages.columns import table
from stages.fresh import zeros

_KEPT = (
    Z_HOLES, Z_OWN_HOLES, Z_SHARED_HOLES, Z_LINKS, Z_STRANGE, Z_OVERFLOW, Z_PRESUME, Z_PRESUMED, Z_PRESUMED_RIGHT,
    Z_PRESUMED_WRONG, Z_STACKS, Z_STACKS_AGREED, Z_STACKS_REFUSED, Z_GAPS,
    Z_MOUNTED,
)  # fmt: skip
HOLES = 64
"""So many holes back a thread's stack is kept."""


def rebuilt(before: Tables, old: Functions, t: Tables, functions: Functions, threads: I64, slots: I64) -> None:
    """Copies the stacks of `threads[slots]`, whose states are changed, from `before` to the empty `t`. Names and
    functions were numbered by `old`, and are by `functions`, which may be the same."""
    for k in _KEPT:
        t.size[k] = before.size[k]
    tables = table(t)
    _copy(
        table(before), tables, threads, slots, zeros(len(before.node), np.int64),
        zeros(len(before.activation), np.int64), zeros(max(len(before.node), len(before.activation)), np.int64),
    )  # fmt: skip
    if functions is not old:
        nodes = t.node[1 : int(t.size[Z_NODES])]
        used, where = np.unique(nodes[:, N_METHOD], return_inverse=True)
        numbers = np.array([functions.names.number(old.names.all[m]) for m in used.tolist()], np.int64)
        nodes[:, N_METHOD] = numbers[where]
        activations = t.activation[1 : int(t.size[Z_ACTIVATIONS])]
        used, where = np.unique(activations[:, A_FN], return_inverse=True)
        activations[:, A_FN] = functions.adopt_from(old, used)[where]
    _rehash(tables)


@inner
def _node(before, t, n, copied, stack):  # type: ignore[no-untyped-def]
    """The copy of node `n`, made with those above it where there is none."""
    top, first = 0, n
    while n and copied[n] == 0:
        stack[top] = n
        top += 1
        n = before.node[NC * n + N_PARENT]
    while top > 0:
        top -= 1
        n = stack[top]
        new = t.size[Z_NODES]
        t.size[Z_NODES] = new + 1
        for q in range(NC):
            t.node[NC * new + q] = before.node[NC * n + q]
        t.node[NC * new + N_PARENT] = copied[before.node[NC * n + N_PARENT]]
        copied[n] = new
    return copied[first]


@inner
def _stack(before, t, a, copied, moved, stack):  # type: ignore[no-untyped-def]
    """Copies activation `a`, and those below it, as far as they are not yet."""
    holes = 0
    while a and moved[a] == 0:
        new = t.size[Z_ACTIVATIONS]
        t.size[Z_ACTIVATIONS] = new + 1
        moved[a] = new
        for q in range(AC):
            t.activation[AC * new + q] = before.activation[AC * a + q]
        for q in (A_NODE, A_CALLER):
            t.activation[AC * new + q] = _node(before, t, before.activation[AC * a + q], copied, stack)
        if before.activation[AC * a + A_FN] != HOLE:
            a = before.activation[AC * a + A_PARENT]
        elif holes < HOLES:
            a = before.activation[AC * a + A_BEFORE]
            holes += 1
        else:
            break


@kernel
def _copy(tables_before, tables, threads, slots, copied, moved, stack):  # type: ignore[no-untyped-def]
    before, t = tables_at(tables_before), tables_at(tables)
    mask = (1 << BEHIND) - 1
    for slot in slots:
        threads[slot, T_NODE] = _node(before, t, threads[slot, T_NODE], copied, stack)
        _stack(before, t, threads[slot, T_STATE] >> BEHIND, copied, moved, stack)
        threads[slot, T_STATE] = moved[threads[slot, T_STATE] >> BEHIND] << BEHIND | threads[slot, T_STATE] & mask
    for k in range(PARKED):
        a = before.parked[PK * k + PK_STACK]
        if a and 4 * t.size[Z_ACTIVATIONS] < t.size[Z_ACTIVATION_ROOM]:  # of those behind nothing is known any more
            _stack(before, t, a, copied, moved, stack)
            t.parked[PK * k + PK_NUMBER], t.parked[PK * k + PK_STACK] = before.parked[PK * k + PK_NUMBER], moved[a]
    more = True
    while more:  # a caller that is presumed may have others above it
        more = False
        for n in range(1, before.size[Z_NODES]):
            presumed = before.presumed[QC * n + PRESUMED_NODE]
            new = copied[n]
            if new and presumed and t.presumed[QC * new + PRESUMED_NODE] == 0:
                t.presumed[QC * new + PRESUMED_NODE] = _node(before, t, presumed, copied, stack)
                t.presumed[QC * new + PRESUMED_BCI] = before.presumed[QC * n + PRESUMED_BCI]
                more = True
    for new in range(1, t.size[Z_ACTIVATIONS]):
        row = AC * new
        t.activation[row + A_PARENT] = moved[t.activation[row + A_PARENT]]
        t.activation[row + A_BEFORE] = moved[t.activation[row + A_BEFORE]]
        t.activation[row + A_WHOLE] = moved[t.activation[row + A_WHOLE]]
        if t.activation[row + A_FN] == SHARED or t.activation[row + A_FN] == BOTTOM:
            t.activation[row + A_RETURN] = -1 - t.activation[row + A_CALLER]


@kernel
def _rehash(tables):  # type: ignore[no-untyped-def]
    t = tables_at(tables)
    mask = t.size[Z_CALLS]
    while 2 * t.size[Z_ACTIVATIONS] - 2 > mask:
        mask = 2 * mask + 1
    t.size[Z_CALLS] = spread(t.activation, np.int64(AC), t.size[Z_ACTIVATIONS], 3, t.by_call, mask >> 1)
    mask = t.size[Z_PARENTS]
    while 2 * t.size[Z_NODES] - 2 > mask:
        mask = 2 * mask + 1
    t.size[Z_PARENTS] = spread(t.node, np.int64(NC), t.size[Z_NODES], 3, t.by_parent, mask >> 1)

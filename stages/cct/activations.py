"""Activations: by (caller's activation, return address, function), found by hash; and how they lie on each other."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.cct.nodes import child, virtual_root
from stages.cct.slots import differs, first_slot, mixed, next_slot, row_in, spread, tag_of
from stages.cct.tables import (
    A_BCI,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    AC,
    BOTTOM,
    BY_BYTECODE,
    F_CLASS,
    F_METHOD,
    FC,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    INTERPRETER,
    OUTSIDE,
    PENDING,
    Z_ACTIVATION_ROOM,
    Z_ACTIVATIONS,
    Z_CALLS,
    Z_OVERFLOW,
)
from stages.cct.tree import ENTERS_NAME

SEARCHED = 1 << 14
"""So many frames are looked through for the one that a return or an exception leads to."""


@inner
def class_of(t, c, a):  # type: ignore[no-untyped-def]
    """Of the function of an activation."""
    return c.fns[FC * t.activation[AC * a + A_FN] + F_CLASS]


@inner
def same(t, c, a, fn):  # type: ignore[no-untyped-def]
    """Whether code of `fn` is that of activation `a`: of the interpreter's frames all code is the interpreter's."""
    return t.activation[AC * a + A_FN] == fn or (fn == INTERPRETER and class_of(t, c, a) == FN_INTERPRETER)


@inner
def new_activation(t, parent, ret, fn, node, caller, bci):  # type: ignore[no-untyped-def]
    """A row; `by_call` is not looked at. With no room for it, its parent."""
    a = t.size[Z_ACTIVATIONS]
    if a >= t.size[Z_ACTIVATION_ROOM]:
        t.size[Z_OVERFLOW] += 1
        return parent
    t.size[Z_ACTIVATIONS] = a + 1
    t.activation[AC * a + A_PARENT], t.activation[AC * a + A_RETURN], t.activation[AC * a + A_FN] = parent, ret, fn
    t.activation[AC * a + A_NODE], t.activation[AC * a + A_CALLER], t.activation[AC * a + A_BCI] = node, caller, bci
    return a


@inner
def frame(t, c, parent, ret, fn, caller, bci, enters):  # type: ignore[no-untyped-def]
    """The activation of `fn` called from `parent`, by node `caller` at `bci`, that returns to `ret`. Code outside of
    the filter has no node of its own; nor has a part that a function calls of its own, which is no inlined caller's: as
    the stub behind an nmethod's code through which it calls an interpreted method (compiledIC.hpp, static stubs)."""
    mask, h = t.size[Z_CALLS], mixed(parent, ret, fn)
    i, tag, tried = first_slot(parent, h, mask), tag_of(h), 1
    while t.by_call[i] != 0:
        slot = np.int64(t.by_call[i])
        if not differs(slot, tag):
            a = row_in(slot)
            row = AC * a
            if (
                t.activation[row + A_PARENT] == parent
                and t.activation[row + A_RETURN] == ret
                and t.activation[row + A_FN] == fn
            ):
                return a
        i = next_slot(i, parent, h, mask, tried)
        tried += 1
    node = caller
    if same(t, c, parent, fn) and not enters:
        node = t.activation[AC * parent + A_NODE]
    elif c.fns[FC * fn + F_METHOD] == ENTERS_NAME:  # above it are a virtual thread's
        node = child(t, virtual_root(t), np.int64(ENTERS_NAME), np.int64(-1))
    elif fn != PENDING and fn != OUTSIDE and fn != BOTTOM:
        node = child(t, caller, c.fns[FC * fn + F_METHOD], bci)
    a = new_activation(t, parent, ret, fn, node, caller, bci)
    if a != parent:
        t.by_call[i] = tag | a
        if 2 * a > mask:
            t.size[Z_CALLS] = spread(t.activation, np.int64(AC), a + 1, 3, t.by_call, mask)
    return a


@inner
def root_of(t, c, a):  # type: ignore[no-untyped-def]
    """The unknown, or the ground, below all frames of the stack that are known."""
    while class_of(t, c, a) != FN_HOLE and class_of(t, c, a) != FN_BOTTOM:
        a = t.activation[AC * a + A_PARENT]
    return a


@inner
def called_by_interpreter(t, a):  # type: ignore[no-untyped-def]
    """Whether a frame of the interpreter was called by the frame of the interpreter below it."""
    return t.activation[AC * a + A_RETURN] <= BY_BYTECODE


@inner
def lowest(t, a):  # type: ignore[no-untyped-def]
    """The lowest frame of an activation of the interpreter, of which `a` is one."""
    for _ in range(SEARCHED):
        if not called_by_interpreter(t, a):
            break
        a = t.activation[AC * a + A_PARENT]
    return a

"""Virtual threads: their frames are put away when they are unmounted, and go on wherever they are mounted again.

All that a virtual thread runs is above `Continuation.enterSpecial`, whose node has no caller on the carrier: it stands
below a root of its own (`activations.frame`), so the nodes of virtual threads are one tree, whatever carrier they run
on. Activations are of one carrier. A stack that is put away is the activation on top; mounted on another carrier, its
activations are made anew above that one's `enterSpecial`, with the same nodes.

Which virtual thread it is say the events MOUNT and UNMOUNT (stages.reconstruct.mounts).
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import apart, inner
from stages.cct.activations import class_of, frame
from stages.cct.nodes import virtual_root
from stages.cct.tables import (
    A_BCI,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    AC,
    DEEPEST,
    F_METHOD,
    FC,
    FN_BOTTOM,
    FN_HOLE,
    FN_OUTSIDE,
    FN_STUB,
    FN_THAWS,
    PARKED,
    PK,
    PK_NUMBER,
    PK_STACK,
    SHARED,
    Z_MOUNTED,
)
from stages.cct.tree import ENTERS_NAME, YIELDS_NAME


@inner
def method_of(t, c, a):  # type: ignore[no-untyped-def]
    """Of the function of an activation."""
    return c.fns[FC * t.activation[AC * a + A_FN] + F_METHOD]


@inner
def unknown_of_virtual(t, c, a):  # type: ignore[no-untyped-def]
    """The unknown below the first frame of a virtual thread that goes on, and of which nothing is known; `a`: the
    carrier's."""
    root = virtual_root(t)
    return frame(t, c, a, -1 - root, np.int64(SHARED), root, np.int64(-1), True)


@apart
def unmounted(t, c, number, a):  # type: ignore[no-untyped-def]
    """A virtual thread leaves its frames, from `a` on down, which have that number. On top stays the call of `doYield`,
    which returns when it goes on."""
    while class_of(t, c, a) == FN_OUTSIDE or (
        method_of(t, c, a) != YIELDS_NAME and (class_of(t, c, a) == FN_STUB or class_of(t, c, a) == FN_THAWS)
    ):
        a = t.activation[AC * a + A_PARENT]
    row = PK * (number & (PARKED - 1))
    t.parked[row + PK_NUMBER], t.parked[row + PK_STACK] = number, a


@inner
def is_parked(t, number):  # type: ignore[no-untyped-def]
    """Whether that stack is put away."""
    row = PK * (number & (PARKED - 1))
    return t.parked[row + PK_STACK] != 0 and t.parked[row + PK_NUMBER] == number


@apart
def mounted(t, c, number, a):  # type: ignore[no-untyped-def]
    """A virtual thread goes on in the frames with that number, on a carrier that stands in `a`: the activation that it
    left; `a`, if that is not known."""
    if not is_parked(t, number):
        return a
    row = PK * (number & (PARKED - 1))
    left = t.parked[row + PK_STACK]
    t.parked[row + PK_STACK] = 0
    entry, entered = a, True
    while entered and method_of(t, c, entry) != ENTERS_NAME:
        entered = class_of(t, c, entry) != FN_HOLE and class_of(t, c, entry) != FN_BOTTOM
        entry = t.activation[AC * entry + A_PARENT]
    n, at = np.int64(0), left
    while method_of(t, c, at) != ENTERS_NAME and class_of(t, c, at) != FN_HOLE:
        if n == DEEPEST or class_of(t, c, at) == FN_BOTTOM:
            return a
        t.way[n] = at
        n += 1
        at = t.activation[AC * at + A_PARENT]
    t.size[Z_MOUNTED] += 1
    if entered and at == entry:
        return left
    if entered and method_of(t, c, at) == ENTERS_NAME:
        to = entry
    else:  # the carrier's frames, or those below the ones that it left, are not known
        to = unknown_of_virtual(t, c, entry if entered else a)
    while n > 0:
        n -= 1
        row = AC * t.way[n]
        below = t.activation[AC * t.activation[row + A_PARENT] + A_NODE]
        to = frame(
            t, c, to, t.activation[row + A_RETURN], t.activation[row + A_FN], t.activation[row + A_CALLER],
            t.activation[row + A_BCI], t.activation[row + A_NODE] != below,
        )  # fmt: skip
    return to

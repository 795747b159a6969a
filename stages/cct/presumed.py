"""Which caller a frame behind a hole is presumed to have: the one that it had before.

What is called changes in a hole, but the frames at the bottom of a stack stay, and those of a server never return: by
returns alone their place would never be known again (Hofer et al., "Fast Java profiling with scheduling-aware stack
fragment sampling and asynchronous analysis" anchor a stack by a sample for that reason). So the first frame that is
seen above an unknown, and each skeleton, is looked for in the stack as it was before the hole. If exactly one frame
there is of the same method, the unknown stands for that frame's caller, at its bci.

It is a guess, and a fact replaces it: a return from the frame names the caller as it does without a guess
(`stages.cct.contexts`), and whether both were the same is counted.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.cct.tables import (
    A_BCI,
    A_BEFORE,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    AC,
    F_CLASS,
    F_METHOD,
    FC,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    FN_NMETHOD,
    HOLE,
    N_METHOD,
    NC,
    PRESUMED_BCI,
    PRESUMED_NODE,
    QC,
    UNKNOWN_CALLER,
    Z_PRESUME,
    Z_PRESUMED,
    Z_PRESUMED_RIGHT,
    Z_PRESUMED_WRONG,
)

SEARCHED_FRAMES = 256
"""Of a stack before a hole. In a deeper one nothing is presumed."""
SEARCHED_HOLES = 8
"""So many holes back."""


@inner
def _found(t, c, a, fn):  # type: ignore[no-untyped-def]
    """The one frame of the method of `fn` in the stack `a`, as far as to the first unknown with such a frame above it;
    −1: there is none, or more than one, or the stack is too deep."""
    kind, method = c.fns[FC * fn + F_CLASS], c.fns[FC * fn + F_METHOD]
    left, holes, found = SEARCHED_FRAMES, 0, np.int64(-1)
    while a != 0 and left > 0:
        left -= 1
        f = t.activation[AC * a + A_FN]
        is_of = c.fns[FC * f + F_CLASS]
        if is_of == FN_BOTTOM:
            return found
        if is_of == FN_HOLE:
            presumed = t.presumed[QC * t.activation[AC * a + A_NODE] + PRESUMED_NODE] != 0
            if not presumed:
                if found >= 0 or holes == SEARCHED_HOLES:
                    return found
                holes += 1
            a = t.activation[AC * a + A_BEFORE]
            continue
        if is_of == kind and (kind == FN_INTERPRETER or c.fns[FC * f + F_METHOD] == method):
            if found >= 0:
                return np.int64(-1)
            found = a
        a = t.activation[AC * a + A_PARENT]
    return found if a == 0 else np.int64(-1)


@inner
def presume(t, c, root, fn):  # type: ignore[no-untyped-def]
    """`fn` is the first frame above the unknown `root`."""
    n = t.activation[AC * root + A_NODE]
    if t.size[Z_PRESUME] == 0 or root == 0 or t.activation[AC * root + A_FN] != HOLE:
        return
    if t.presumed[QC * n + PRESUMED_NODE] or t.node[NC * n + N_METHOD] != UNKNOWN_CALLER:
        return
    kind = c.fns[FC * fn + F_CLASS]
    if kind != FN_NMETHOD and kind != FN_INTERPRETER:
        return
    a = _found(t, c, t.activation[AC * root + A_BEFORE], fn)
    if a < 0:
        return
    t.size[Z_PRESUMED] += 1
    t.presumed[QC * n + PRESUMED_NODE] = t.activation[AC * a + A_CALLER]
    t.presumed[QC * n + PRESUMED_BCI] = t.activation[AC * a + A_BCI]
    t.activation[AC * root + A_BEFORE] = t.activation[AC * a + A_PARENT]


@inner
def named(t, root, node, bci):  # type: ignore[no-untyped-def]
    """The caller that the unknown `root` stands for is known: a call of `node` at `bci`."""
    row = QC * t.activation[AC * root + A_NODE]
    presumed = t.presumed[row + PRESUMED_NODE]
    if presumed == 0:
        return
    t.presumed[row + PRESUMED_NODE] = 0
    right = t.node[NC * presumed + N_METHOD] == t.node[NC * node + N_METHOD] and t.presumed[row + PRESUMED_BCI] == bci
    if right:
        t.size[Z_PRESUMED_RIGHT] += 1
    else:
        t.size[Z_PRESUMED_WRONG] += 1

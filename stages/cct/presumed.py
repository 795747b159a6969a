"""Which caller a frame behind a hole is presumed to have: the one that it had before.

What is called changes in a hole, but the frames at the bottom of a stack stay, and those of a server never return: by
returns alone their place would never be known again (Hofer et al., "Fast Java profiling with scheduling-aware stack
fragment sampling and asynchronous analysis" anchor a stack by a sample for that reason). So the first frame that is
seen above an unknown, and each skeleton, is looked for in the stack as it was before the hole: from the top down, a
frame that waits for the very return by which the skeleton was seen, else one of the same method. Then the unknown
stands for that frame's caller, at its bci, and the next skeleton is looked for below it. So both stacks are laid along
each other from the top down.

It is a guess, and a fact replaces it: a return from the frame names the caller as it does without a guess
(`stages.cct.contexts`), and whether both were the same is counted. After a wrong guess the next skeleton is looked for
in the whole stack again.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

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
    A_RETURN,
    A_WHOLE,
    AC,
    F_CLASS,
    F_METHOD,
    FC,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    FN_NMETHOD,
    FN_STUB,
    HOLE,
    N_BCI,
    N_FLAGS,
    N_METHOD,
    NC,
    NO_RETURN,
    NODE_LINK,
    OUTSIDE,
    PRESUMED_BCI,
    PRESUMED_NODE,
    QC,
    Z_PRESUME,
    Z_PRESUMED,
    Z_PRESUMED_RIGHT,
    Z_PRESUMED_WRONG,
)
from stages.cct.tree import INTERPRETER_NAME, UNKNOWN_CALLER

SEARCHED_FRAMES = 256
"""Of a stack before a hole."""
SEARCHED_HOLES = 8
"""So many holes back."""


NOT_ASKED = np.int64(-1)


@inner
def is_untold(c, fn):  # type: ignore[no-untyped-def]
    """Whether `fn` is the interpreter's, of a method that is not known."""
    return c.fns[FC * fn + F_CLASS] == FN_INTERPRETER and c.fns[FC * fn + F_METHOD] == INTERPRETER_NAME


@inner
def _is_told(c, fn):  # type: ignore[no-untyped-def]
    kind = c.fns[FC * fn + F_CLASS]
    return (kind == FN_NMETHOD or kind == FN_INTERPRETER or kind == FN_STUB) and not is_untold(c, fn)


@inner
def _before(t, c, a, method, ret):  # type: ignore[no-untyped-def]
    """In the stack `a`, from the top down, the first frame of `method` that waits for a return to `ret`; if none does,
    or NOT_ASKED, the first of the method; −1: there is none."""
    found, above, holes = np.int64(-1), np.int64(NO_RETURN), 0
    for _ in range(SEARCHED_FRAMES):
        fn = t.activation[AC * a + A_FN]
        if a == 0 or c.fns[FC * fn + F_CLASS] == FN_BOTTOM or (found >= 0 and ret < 0):
            break
        if c.fns[FC * fn + F_CLASS] == FN_HOLE:
            if t.presumed[QC * t.activation[AC * a + A_NODE] + PRESUMED_NODE] == 0:
                holes += 1
                if holes > SEARCHED_HOLES:
                    break
            a, above = t.activation[AC * a + A_BEFORE], np.int64(NO_RETURN)
            continue
        if c.fns[FC * fn + F_METHOD] == method and _is_told(c, fn):
            if above == ret:
                return a
            if found < 0:
                found = a
        a, above = t.activation[AC * a + A_PARENT], t.activation[AC * a + A_RETURN]
    return found


@inner
def _may_be(t, root):  # type: ignore[no-untyped-def]
    """Whether a caller may be presumed for the unknown `root`."""
    n = t.activation[AC * root + A_NODE]
    if t.size[Z_PRESUME] == 0 or root == 0 or t.activation[AC * root + A_FN] != HOLE:
        return False
    return t.presumed[QC * n + PRESUMED_NODE] == 0 and t.node[NC * n + N_METHOD] == UNKNOWN_CALLER


@inner
def _stands_for(t, root, caller, bci, before):  # type: ignore[no-untyped-def]
    row = QC * t.activation[AC * root + A_NODE]
    t.size[Z_PRESUMED] += 1
    t.presumed[row + PRESUMED_NODE], t.presumed[row + PRESUMED_BCI] = caller, bci
    t.activation[AC * root + A_BEFORE] = before


@inner
def presume(t, c, root, fn, ret):  # type: ignore[no-untyped-def]
    """`fn` is the first frame above the unknown `root`; NOT_ASKED, or where control has just returned in it. Nothing is
    presumed of a frame of the interpreter as long as it is not told which method's it is."""
    if not _is_told(c, fn) or not _may_be(t, root):
        return
    a = _before(t, c, t.activation[AC * root + A_BEFORE], c.fns[FC * fn + F_METHOD], ret)
    if a >= 0:
        row = AC * a
        _stands_for(t, root, t.activation[row + A_CALLER], t.activation[row + A_BCI], t.activation[row + A_PARENT])


@inner
def presume_outside(t, root):  # type: ignore[no-untyped-def]
    """Code outside of the filter calls in, above the unknown `root`: that which ran last, if the hole began there."""
    a = t.activation[AC * root + A_BEFORE]
    if t.activation[AC * a + A_FN] == OUTSIDE and _may_be(t, root):
        _stands_for(t, root, t.activation[AC * a + A_NODE], np.int64(-1), a)


@inner
def named(t, root, node, bci):  # type: ignore[no-untyped-def]
    """The caller that the unknown `root` stands for is known: a call of `node` at `bci` (−1: it is not known at
    which). The bci, as far as it is known then; and the stack in which that caller is to be looked for."""
    a = AC * root
    row = QC * t.activation[a + A_NODE]
    presumed, at = t.presumed[row + PRESUMED_NODE], t.presumed[row + PRESUMED_BCI]
    if presumed == 0:
        return bci, t.activation[a + A_BEFORE]
    t.presumed[row + PRESUMED_NODE] = 0
    same = t.node[NC * presumed + N_METHOD] == t.node[NC * node + N_METHOD]
    if same and (at == bci or at < 0 or bci < 0):
        t.size[Z_PRESUMED_RIGHT] += 1
        return max(at, bci), t.activation[a + A_BEFORE]
    t.size[Z_PRESUMED_WRONG] += 1
    return bci, t.activation[a + A_WHOLE]


@inner
def presume_named(t, c, root, skeleton):  # type: ignore[no-untyped-def]
    """The caller that the unknown `root` stands for is a frame of the interpreter, `skeleton`, of which it is not told
    yet which method's it is: that which was presumed, if that was one of the interpreter. As `named`."""
    a, row = t.activation[AC * root + A_BEFORE], QC * t.activation[AC * root + A_NODE]
    bci = t.presumed[row + PRESUMED_BCI]
    if t.presumed[row + PRESUMED_NODE] == 0:
        return np.int64(-1), a
    t.presumed[row + PRESUMED_NODE] = 0
    while t.activation[AC * a + A_FN] == OUTSIDE:
        a = t.activation[AC * a + A_PARENT]
    if c.fns[FC * t.activation[AC * a + A_FN] + F_CLASS] != FN_INTERPRETER:
        t.size[Z_PRESUMED_WRONG] += 1
        return np.int64(-1), t.activation[AC * root + A_WHOLE]
    is_of(t, skeleton, t.activation[AC * a + A_NODE])
    return bci, a


@inner
def is_of(t, skeleton, node):  # type: ignore[no-untyped-def]
    """All that is counted for `skeleton` is of that node."""
    row = QC * t.activation[AC * skeleton + A_NODE]
    t.presumed[row + PRESUMED_NODE], t.presumed[row + PRESUMED_BCI] = node, -1


@inner
def told(t, skeleton, frame):  # type: ignore[no-untyped-def]
    """Which method's frame of the interpreter `skeleton` is: that of `frame`, which takes its place."""
    presumed = t.presumed[QC * t.activation[AC * skeleton + A_NODE] + PRESUMED_NODE]
    node, callee = t.activation[AC * frame + A_NODE], t.activation[AC * t.activation[AC * skeleton + A_BEFORE] + A_NODE]
    is_of(t, skeleton, node)
    if presumed == 0:
        return
    if t.node[NC * presumed + N_METHOD] == t.node[NC * node + N_METHOD]:
        t.size[Z_PRESUMED_RIGHT] += 1
        return
    t.size[Z_PRESUMED_WRONG] += 1
    if t.node[NC * callee + N_FLAGS] & NODE_LINK:
        t.node[NC * callee + N_BCI] = -1

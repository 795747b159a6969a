"""Stacks that the agent read: a thread's activations are made anew by them (docs/jit-export.md, STACK).

The trace shows the way of control, not what lies below it: behind a hole, or where the interpreter's frames are not
told, a stack that was read says it at once. Its frames become the activations that the walk would have made
(`contexts`), from the thread's first one up, so a stack that was known all along is the very same activation. On top
stay those of the call by which control has left for the VM.

Counts that stand below an unknown move to the caller that the stack names: as many frames as are known above it are
laid beside those of the stack, from the top down.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jvm.kernels import apart, inner
from stages.cct.activations import SEARCHED, class_of, frame, lowest, root_of
from stages.cct.nodes import inlined
from stages.cct.presumed import is_of, is_untold
from stages.cct.tables import (
    A_BCI,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    AC,
    BY_BYTECODE,
    F_CLASS,
    FC,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    FN_NMETHOD,
    HOLE,
    I64,
    INTERPRETER,
    N_BCI,
    NC,
    NO_RETURN,
    OUTSIDE,
    OWN_GAP,
    PRESUMED_NODE,
    QC,
    TO_INTERPRETER,
    TO_OUTSIDE,
    Z_STACKS,
    Z_STACKS_AGREED,
    Z_STACKS_REFUSED,
)
from stages.cct.unknowns import bottom, links_to

FROM_VM, OF_INTERPRETER, OF_CODE = range(3)
"""Kinds of a frame: the stub by which the VM calls Java; one of the interpreter; compiled code, or another stub."""


class ReadStacks(NamedTuple):
    """The frames of all stacks of a message, outermost first: kind, function, where control goes on, place there, bci.
    Stack k has [first[k], first[k + 1])."""

    first: I64
    kind: I64
    fn: I64
    ret: I64
    place: I64
    bci: I64


NO_STACKS = ReadStacks(*(np.zeros(1, np.int64) for _ in ReadStacks._fields))


@inner
def _fits(t, c, a, kind, fn):  # type: ignore[no-untyped-def]
    """Whether the innermost Java frame `a` is that of a stack."""
    if kind == OF_INTERPRETER:
        return class_of(t, c, a) == FN_INTERPRETER
    return t.activation[AC * a + A_FN] == fn


@inner
def _made(t, c, r, begin, end, top, thread):  # type: ignore[no-untyped-def]
    """The activation of frames [begin, end) of a stack: the innermost, of function `top`."""
    a = bottom(t, c, thread)
    kind, bci, place = np.int64(FROM_VM), np.int64(-1), np.int64(0)
    ret = np.int64(TO_OUTSIDE)
    for k in range(begin, end):
        node = t.activation[AC * a + A_NODE]
        if k > begin:
            if kind == OF_CODE and c.fns[FC * t.activation[AC * a + A_FN] + F_CLASS] == FN_NMETHOD:
                node = inlined(t, c, node, place)
            ret = r.ret[k - 1]
            if kind == OF_INTERPRETER:
                ret = BY_BYTECODE - 1 - bci if r.kind[k] == OF_INTERPRETER else np.int64(TO_INTERPRETER)
            if r.kind[k] == FROM_VM:  # called by what the frame below has called
                a = frame(t, c, a, np.int64(NO_RETURN), np.int64(OUTSIDE), node, bci, False)
                ret = np.int64(TO_OUTSIDE)
                node = t.activation[AC * a + A_NODE]
                bci = np.int64(-1)
        a = frame(t, c, a, ret, r.fn[k] if k < end - 1 else top, node, bci, True)
        kind, bci, place = r.kind[k], r.bci[k], r.place[k]
    return a


@apart
def _join(t, c, a, read):  # type: ignore[no-untyped-def]
    """Counts below the unknown under `a` move to its caller in the stack `read`, if both are alike above it; and those
    above a gap between frames of the interpreter, to the frame that made the call there."""
    for frames in range(SEARCHED):
        kind, of = class_of(t, c, a), class_of(t, c, read)
        if kind == FN_BOTTOM or of == FN_BOTTOM or of == FN_HOLE:
            return
        below = t.activation[AC * a + A_PARENT]
        if kind == FN_INTERPRETER and of == FN_INTERPRETER and is_untold(c, t.activation[AC * a + A_FN]):
            n = t.activation[AC * a + A_NODE]
            if frames and t.node[NC * n + N_BCI] <= OWN_GAP and t.presumed[QC * n + PRESUMED_NODE] == 0:
                is_of(t, a, t.activation[AC * read + A_NODE])
            a, read = lowest(t, a), lowest(t, read)  # it stands for as many as there are
            below = t.activation[AC * a + A_PARENT]
        elif t.activation[AC * a + A_FN] != t.activation[AC * read + A_FN]:
            return
        if class_of(t, c, below) == FN_HOLE:
            if t.activation[AC * below + A_FN] == HOLE:
                row = AC * read
                links_to(
                    t, below, t.activation[row + A_PARENT], t.activation[row + A_CALLER], t.activation[row + A_BCI],
                    t.activation[row + A_RETURN],
                )  # fmt: skip
            return
        a, read = below, t.activation[AC * read + A_PARENT]


@apart
def take_stack(t, c, r, k, entered, a):  # type: ignore[no-untyped-def]
    """Stack `k` was read where the innermost Java frame is `a`: the activation in its place. `entered`: the frame on
    top has executed nothing, and will be told."""
    begin, end, root = r.first[k], r.first[k + 1], root_of(t, c, a)
    t.size[Z_STACKS] += 1
    if root == 0 or not _fits(t, c, a, r.kind[end - 1], r.fn[end - 1]):
        t.size[Z_STACKS_REFUSED] += 1
        return a
    if entered and end - begin > 1 and r.kind[end - 2] == OF_INTERPRETER:
        end, entered = end - 1, 0
    top = np.int64(INTERPRETER) if entered else r.fn[end - 1]
    read = _made(t, c, r, begin, end, top, t.activation[AC * root + A_CALLER])
    if t.activation[AC * read + A_NODE] == t.activation[AC * a + A_NODE]:
        t.size[Z_STACKS_AGREED] += 1
        return a
    _join(t, c, a, read)
    return read

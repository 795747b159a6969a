"""Bytecodes that ran, and that JVMTI does not show.

While HotSpot resolves a field, a method or a call site for a bytecode, it hides single steps (JDK:
JvmtiHideSingleStepping, in interpreterRuntime.cpp): class loaders, class initialisers and bootstrap methods run, their
methods begin and end, and no step is posted. It does not for others that may call Java (new, ldc, checkcast, athrow).
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.align import Pairs
from benchmarks.accuracy.executed import ENTER, SEEN_UPCALL, UPCALL, Truth
from benchmarks.accuracy.methods import BITS, I64
from benchmarks.recovery.compare import FAR
from jvm.kernels import kernel
from stages.messages.bytecodes import FrameEvent

DEEPEST = 1 << 16
_RETURN, _UNWIND, _UPRETURN, _LOST = (
    -int(e) for e in (FrameEvent.RETURN, FrameEvent.UNWIND, FrameEvent.UPRETURN, FrameEvent.LOST)
)
_BYTECODES, _NATIVE, _BOUNDARY, _RESOLVES = range(4)


@kernel
def _resolving(sequence, out):  # type: ignore[no-untyped-def]
    frames = np.zeros(DEEPEST, np.int8)
    depth = hidden = 0  # since that depth, 0: not
    again = _BYTECODES  # the upcall that has just returned
    for k in range(len(sequence)):
        x = sequence[k]
        if x == _LOST:  # whether an upcall goes on is not known: it is taken to have ended
            depth = hidden = 0
        elif x == ENTER:
            runs = k + 1 < len(sequence) and sequence[k + 1] >= 0
            if depth < DEEPEST:
                frames[depth] = _BYTECODES if runs else _NATIVE
            depth += 1
        elif x == UPCALL or x == SEEN_UPCALL:  # noqa: SIM109 -- a tuple costs a kernel more
            top = frames[depth - 1] if 0 < depth <= DEEPEST else _BYTECODES
            what = _RESOLVES if top == _BYTECODES and x == UPCALL else _BOUNDARY
            if k and sequence[k - 1] == _UPRETURN:  # for the same bytecode
                what = again
            if depth < DEEPEST:
                frames[depth] = what
            depth += 1
            if not hidden and what == _RESOLVES and depth > 1:
                hidden = depth
        elif x == _RETURN or x == _UNWIND:  # noqa: SIM109
            if depth > DEEPEST or (depth > 0 and frames[depth - 1] < _BOUNDARY):  # else it was lost
                depth -= 1
        elif x == _UPRETURN:
            while depth > 0:
                depth -= 1
                if depth < DEEPEST and frames[depth] >= _BOUNDARY:
                    again = frames[depth]
                    break
        elif x >= 0 and depth == 0:  # a frame that was there
            frames[0], depth = _BYTECODES, 1
        out[k] = hidden > 0
        if depth < hidden:
            hidden = 0


def while_resolving(found: I64) -> NDArray[np.bool_]:
    """Of (n,) bytecodes and events: those of an upcall that no native method has made, but the VM for a bytecode."""
    out = np.zeros(len(found), np.bool_)
    _resolving(found, out)
    return out


def unseen(truth: Truth, pairs: Pairs, other: I64) -> NDArray[np.bool_]:
    """Of the (n,) bytecodes found, those without a partner where, at most FAR bytecodes away, a method began in the
    truth and had no step: bytecodes alike that ran in both tear such a stretch into parts."""
    sequence = truth.sequence[truth.main :]
    enters = np.flatnonzero(sequence == ENTER)
    entered = truth.entered[len(truth.entered) - len(enters) :]
    behind = np.append(sequence, -1)[enters + 1]
    known = np.unique(other >> BITS)  # others are native
    hidden = ((behind < 0) | (behind >> BITS != entered)) & np.isin(entered, known)
    steps_before = np.cumsum(sequence >= 0)[enters[hidden]]
    alone = np.ones(len(other), np.bool_)
    alone[pairs.other] = False
    gap = np.searchsorted(pairs.other, np.arange(len(other)))
    last = np.concatenate((pairs.one + 1, [int((sequence >= 0).sum()) + 1]))
    first = np.concatenate(([0], pairs.one + 1))
    count = np.searchsorted(steps_before, last + FAR) - np.searchsorted(steps_before, first - FAR)
    return alone & (count[gap] > 0)

"""Frames of the interpreter: what `Bytecodes` says of its part of a thread's stack.

Machine code shows one activation of the interpreter, however many of its methods call each other. Where a message
explains it, each of its frames is an activation of a function of its own, of the class of the interpreter: the first
takes the place of the one that is not explained, the others are called by the one below at a bytecode. Calls between
the interpreter and compiled code, its returns and its exceptions are seen in machine code as before; so of the events
only those between two of its frames move a thread.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import apart, inner, kernel
from stages.cct.activations import SEARCHED, called_by_interpreter, class_of, frame, lowest
from stages.cct.nodes import child
from stages.cct.presumed import NOT_ASKED, is_untold, presume, told
from stages.cct.read_stacks import NO_STACKS, ReadStacks, take_stack
from stages.cct.tables import (
    A_BCI,
    A_BEFORE,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    AC,
    BY_BYTECODE,
    FN_INTERPRETER,
    HOLE,
    I64,
    INTERPRETER,
    N_METHOD,
    NC,
    OUTSIDE,
    TO_OUTSIDE,
)
from stages.cct.tree import INTERPRETER_NAME
from stages.cct.unknowns import gap, linked
from stages.columns import pointers_to
from stages.messages.bytecodes import FrameEvent
from stages.messages.paths import BlockEnd, PathKind

_ENTER, _FRAME, _LOST = int(FrameEvent.ENTER), int(FrameEvent.FRAME), int(FrameEvent.LOST)
_RETURN, _UNWIND, _OSR = int(FrameEvent.RETURN), int(FrameEvent.UNWIND), int(FrameEvent.OSR)
_COMPILED, _UPCALL, _STACK = int(FrameEvent.COMPILED), int(FrameEvent.UPCALL), int(FrameEvent.STACK)
_MOUNT, _UNMOUNT = int(FrameEvent.MOUNT), int(FrameEvent.UNMOUNT)
_OF_PATHS = int(PathKind.OF_PATHS)
_BY_RETURN, _INDIRECT, _FILTER = int(BlockEnd.RETURN), int(BlockEnd.INDIRECT), int(BlockEnd.FILTER)
OUT, WITHIN = 1, 2
"""Of a path: it leaves the interpreter; and on: it stays in it, and its last block did the rest."""


class Told(NamedTuple):
    """Events of a message, by row, in the order in which they happened: position in the order, block of the path,
    FrameEvent, the function of the method, bci of the call. LOST: the function of the lowest frame that is
    known, and how many are on it. STACK: its number among `stacks`, and whether its top has executed nothing. MOUNT,
    UNMOUNT: the virtual thread's number, as bci."""

    order: I64
    block: I64
    kind: I64
    fn: I64
    bci: I64
    stacks: ReadStacks


told_at = pointers_to(Told)


def events_told(events: NDArray[np.void], fns: I64, stacks: ReadStacks = NO_STACKS) -> tuple[Told, I64]:
    """(n,) EVENT_DTYPE and, by method from −1 on, its function: the events that move a thread between two frames of the
    interpreter, or tell its stack, or mount a virtual thread, and of which row each is.

    Behind a LOST all frames are told anew, those below compiled code and below the VM too. The machine code has told
    those: only the ones above the last of them are left, of which LOST has the first, and of
    these the ones from the lowest on that is of a method which is known."""
    if not len(events):
        return Told._make((*(np.zeros(0, np.int64) for _ in range(5)), stacks)), np.zeros(0, np.int64)
    columns = [np.empty(len(events), np.int64) for _ in range(6)]
    n = int(_moving(events if events.flags.writeable else events.copy(), fns, *columns))
    return Told._make((*(column[:n] for column in columns[1:]), stacks)), columns[0][:n]


@kernel
def _moving(events, fns, row, order, block, kind, fn, bci):  # type: ignore[no-untyped-def]
    """Fills the last six; how many."""
    n, k = 0, 0
    while k < len(events):
        e, end = events[k], k + 1
        what, of, at = np.int64(e["kind"]), fns[e["method"] + 1], np.int64(e["bci"])
        if what == _LOST:
            first = end
            while end < len(events) and _is_told_anew(events, k, end):
                if events[end]["kind"] != _FRAME:
                    first = end + 1
                end += 1
            while first < end and events[first]["method"] < 0:  # there stand those that stood there
                first += 1
            of, at = np.int64(INTERPRETER), np.int64(max(end - first - 1, 0))
            if first < end:
                of = fns[events[first]["method"] + 1]
        if what == _STACK:
            of, at = at >> 1, at & 1
        if (
            what == _STACK
            or what == _LOST
            or what == _ENTER
            or what == _FRAME
            or what == _RETURN
            or what == _UNWIND
            or what == _OSR
            or what == _MOUNT
            or what == _UNMOUNT
        ):
            row[n], order[n], block[n] = e["row"], e["order"], e["block"]
            kind[n], fn[n], bci[n] = what, of, at
            n += 1
        if what == _LOST:
            for m in range(first + 1, end):
                row[n], order[n], block[n] = events[m]["row"], events[m]["order"], events[m]["block"]
                kind[n], fn[n], bci[n] = _FRAME, fns[events[m]["method"] + 1], events[m]["bci"]
                n += 1
        k = end
    return n


@inner
def _is_told_anew(events, lost, k):  # type: ignore[no-untyped-def]
    a, b = events[lost], events[k]
    here = a["row"] == b["row"] and a["order"] == b["order"] and a["block"] == b["block"]
    return here and (b["kind"] == _FRAME or b["kind"] == _COMPILED or b["kind"] == _UPCALL)


@inner
def _instead(t, c, a, fn):  # type: ignore[no-untyped-def]
    """A frame of the interpreter, as one of `fn`."""
    row = AC * a
    node, bci, parent = t.activation[row + A_CALLER], t.activation[row + A_BCI], t.activation[row + A_PARENT]
    of = frame(t, c, parent, t.activation[row + A_RETURN], fn, node, bci, True)
    presume(t, c, parent, fn, NOT_ASKED)
    if t.activation[row + A_BEFORE] and not is_untold(c, fn):
        told(t, a, of)
        t.activation[row + A_BEFORE] = 0
    return of


@inner
def _nearest(t, a, fn):  # type: ignore[no-untyped-def]
    """The nearest frame of `fn` in this activation of the interpreter, from `a` on down; −1: there is none."""
    for _ in range(SEARCHED):
        if t.activation[AC * a + A_FN] == fn:
            return a
        if not called_by_interpreter(t, a):
            break
        a = t.activation[AC * a + A_PARENT]
    return np.int64(-1)


@inner
def _called(t, c, a, fn, bci):  # type: ignore[no-untyped-def]
    """A frame of `fn`, called by `a`, one of the interpreter, at `bci`."""
    return frame(t, c, a, BY_BYTECODE - 1 - bci, fn, t.activation[AC * a + A_NODE], bci, True)


@inner
def _on_top(t, c, a, fn, bci):  # type: ignore[no-untyped-def]
    """A frame of `fn`, called by that on top of this activation of the interpreter; in its place if it is not told
    which one that is."""
    return _instead(t, c, a, fn) if is_untold(c, t.activation[AC * a + A_FN]) else _called(t, c, a, fn, bci)


@inner
def _at_last(t, c, a, fn, above):  # type: ignore[no-untyped-def]
    """The lowest frame that is told is of `fn`, with `above` others on it: the frame that stands there; the nearest of
    `fn` below it in this activation, from which control was never seen to come back; else one above a gap. Compiled
    code below, and calls by the VM, are left by what machine code shows."""
    if fn == INTERPRETER:  # none is told
        return a if is_untold(c, t.activation[AC * a + A_FN]) else _on_top(t, c, a, fn, np.int64(-1))
    at = t.activation[AC * a + A_PARENT] if _is_gap(t, c, a) else a  # that a LOST has left on top
    for _ in range(above):
        if called_by_interpreter(t, at):
            at = t.activation[AC * at + A_PARENT]
    if t.activation[AC * at + A_FN] == fn or is_untold(c, fn):
        return at
    at = _nearest(t, a, fn)
    if at >= 0:
        return at
    return _above_gap(t, c, a, fn) if called_by_interpreter(t, a) else _on_top(t, c, a, fn, np.int64(-1))


@inner
def _is_gap(t, c, a):  # type: ignore[no-untyped-def]
    return t.activation[AC * a + A_RETURN] == BY_BYTECODE and is_untold(c, t.activation[AC * a + A_FN])


@inner
def _above_gap(t, c, a, fn):  # type: ignore[no-untyped-def]
    """A frame of `fn`, above the lowest of this activation, which machine code has not left, and an untold one in place
    of those between: it is not known which of them are left."""
    a = lowest(t, a)
    if is_untold(c, t.activation[AC * a + A_FN]):
        return _instead(t, c, a, fn)
    return _called(t, c, gap(t, c, a), fn, np.int64(-1))


@inner
def _returned(t, c, a, fn):  # type: ignore[no-untyped-def]
    """The lowest frame of this activation of the interpreter has returned to one of `fn`: which has called it, if it
    is not known what has. Else machine code has not left that frame: the one that returned was another."""
    root = t.activation[AC * a + A_PARENT]
    if root == 0 or t.activation[AC * root + A_FN] != HOLE:
        if t.activation[AC * a + A_FN] == fn or is_untold(c, fn):
            return a
        return _above_gap(t, c, a, fn)
    return linked(t, c, root, fn, np.int64(0), np.int64(-1), np.int64(BY_BYTECODE))


@inner
def _back(t, c, a, fn):  # type: ignore[no-untyped-def]
    """The frame on top is left for the one below, which is of `fn`; a gap below may be of many."""
    below = t.activation[AC * a + A_PARENT]
    if _is_gap(t, c, a) and is_untold(c, fn):
        return a
    if t.activation[AC * below + A_FN] == fn or is_untold(c, fn):
        return below
    at = _nearest(t, below, fn)
    if at >= 0:
        return at
    untold = is_untold(c, t.activation[AC * below + A_FN]) and not _is_gap(t, c, below)
    return _instead(t, c, below, fn) if untold else _above_gap(t, c, below, fn)


@inner
def _is_part(t, c, a):  # type: ignore[no-untyped-def]
    """Whether an activation is a part that the interpreter calls of its own (as `call_VM`, interp_masm_x86.cpp); or
    what has left the filter."""
    row = AC * a
    if t.activation[row + A_FN] == OUTSIDE:
        return True
    called = t.activation[row + A_FN] == INTERPRETER and t.activation[row + A_RETURN] > TO_OUTSIDE
    return called and class_of(t, c, t.activation[row + A_PARENT]) == FN_INTERPRETER


@apart
def _happened(t, c, e, k, a):  # type: ignore[no-untyped-def]
    kind, fn = e.kind[k], e.fn[k]
    if kind == _STACK:
        return take_stack(t, c, e.stacks, fn, e.bci[k], a)
    if class_of(t, c, a) != FN_INTERPRETER:
        return a
    if kind == _LOST:
        return _at_last(t, c, a, fn, e.bci[k])
    if kind == _ENTER and t.activation[AC * a + A_BEFORE]:  # seen by a return: it calls
        return _called(t, c, a, fn, e.bci[k])
    if kind == _ENTER or kind == _FRAME:  # one that was told to be of a method that is not known calls, too
        untold = t.activation[AC * a + A_FN] == INTERPRETER and not _is_gap(t, c, a)
        return _instead(t, c, a, fn) if untold else _called(t, c, a, fn, e.bci[k])
    if kind == _RETURN or kind == _UNWIND or kind == _OSR:
        if called_by_interpreter(t, a):
            return _back(t, c, a, fn) if kind != _OSR else t.activation[AC * a + A_PARENT]
        if kind != _OSR:
            return _returned(t, c, a, fn)
    return a


@apart
def happened(t, c, e, k, a):  # type: ignore[no-untyped-def]
    """Event `k`, where the thread stands in `a`, of the interpreter or out of the filter: the activation behind it."""
    of, parts = a, 0
    while _is_part(t, c, of):
        of = t.activation[AC * of + A_PARENT]
        parts += 1
    to = _happened(t, c, e, k, of)
    for depth in range(parts - 1, -1, -1):  # they are called by the frame that is on top now
        of = a
        for _ in range(depth):
            of = t.activation[AC * of + A_PARENT]
        node, row = t.activation[AC * to + A_NODE], AC * of
        to = frame(t, c, to, t.activation[row + A_RETURN], t.activation[row + A_FN], node, np.int64(-1), False)
    return to


@inner
def entered_at(t, c, a):  # type: ignore[no-untyped-def]
    """The node of a method that the interpreter enters from `a`, as long as it is not told which one it is."""
    node = t.activation[AC * a + A_NODE]
    if class_of(t, c, a) != FN_INTERPRETER or t.node[NC * node + N_METHOD] == INTERPRETER_NAME:
        return node
    return child(t, node, np.int64(INTERPRETER_NAME), np.int64(-1))

"""Bytecodes and frames that are sure are counted and told."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.icfg import ByOpcode
from jvm.kernels import apart, near
from stages.messages.bytecodes import FrameEvent
from stages.reconstruct.candidates import (
    AT,
    BEFORE,
    BEGAN,
    COUNT,
    E_COMPILED,
    E_ENTER,
    E_FRAME,
    E_NONE,
    PHASE,
    POPPED,
    RUN,
    SCANNED,
    STEP,
    TAKEN,
    WAITED,
    is_bottom,
    is_boundary,
    is_compiled,
    is_open,
    owner,
)
from stages.reconstruct.compiled import Places, Scopes
from stages.reconstruct.layout import OfBlocks, OfPaths, Passages
from stages.reconstruct.state import BYTECODES, EMPTY, EVENTS, NO_OP, NONE, OPEN, STEPS, SURE, UNKNOWN_FOR

ELEMENT, BLOCK, SEEN, TOUCHED, EVENT, ROW, TOLD = (
    AT[name] for name in ("ELEMENT", "BLOCK", "SEEN", "TOUCHED", "EVENT", "ROW", "TOLD")
)
KEEP, KEPT = AT["KEEP"], AT["KEPT"]
E_LOST, E_UPCALL = int(FrameEvent.LOST), int(FrameEvent.UPCALL)
FIRST_RETRY = UNKNOWN_FOR[0]
DEEPEST = 1024  # frames of a stack that are told when it is found again
ROOM = 2 * STEPS + 2 * DEEPEST + 4096  # events that a path may bring


class Blocks(NamedTuple):
    """What is known of the blocks and paths of a generation (`stages.reconstruct.landmarks`)."""

    of: OfBlocks
    path: OfPaths
    passage: Passages
    templates: NDArray[np.uint8]  # (t, 2) opcodes, NO_OP
    index: ByOpcode  # of the graph
    place: Places  # of compiled code
    scope: Scopes
    number: NDArray[np.int32]  # methods of the graph by the agent's, NONE


@apart
def credit(c, s, m, invoked, bytecodes, instructions):  # type: ignore[no-untyped-def]
    if c.invocations[m] == 0 and c.bytecodes[m] == 0 and c.instructions[m] == 0:
        c.seen[s.at[SEEN]] = m
        s.at[SEEN] += 1
    c.invocations[m] += invoked
    c.bytecodes[m] += bytecodes
    c.instructions[m] += instructions


@apart
def credit_block(c, s, t, m, b):  # type: ignore[no-untyped-def]
    if m < 0 or t.of.weight[b] <= 0:
        return
    if c.times[b] == 0:
        c.touched[s.at[TOUCHED]] = b
        s.at[TOUCHED] += 1
    c.times[b] += 1
    credit(c, s, m, 0, 0, t.of.weight[b])


@near
def _write(s, n, kind, method, bci, order, passed):  # type: ignore[no-untyped-def]
    e = s.events
    e.row[n], e.kind[n], e.order[n], e.block[n] = s.at[ROW], kind, order, passed
    e.method[n], e.bci[n], e.bytecodes[n] = method, bci, 0


@apart
def tell(s, kind, method, bci, order, passed):  # type: ignore[no-untyped-def]
    n = s.at[EVENT]
    if n >= EVENTS:
        s.at[TOLD] = 0
        return
    _write(s, n, kind, method, bci, order, passed)
    s.at[EVENT] = n + 1


@near
def keep(s, node, order):  # type: ignore[no-untyped-def]
    """A bytecode, or −event."""
    if s.at[KEEP]:
        n = s.at[KEPT]
        if n < s.at[KEEP]:
            s.executed.node[n], s.executed.order[n] = node, order
        s.at[KEPT] = n + 1


@near
def keep_bytecodes(s, node, bytecodes, order):  # type: ignore[no-untyped-def]
    """Of a template that is two, the first is the one before."""
    if node >= 0 and bytecodes:
        if bytecodes == 2:
            keep(s, node - 1, order)
        keep(s, node, order)


@apart
def call_bci(g, s, cell):  # type: ignore[no-untyped-def]
    if cell != EMPTY and is_open(s.cells.node[cell]):
        if s.cells.node[cell] != OPEN - SURE:
            return np.int64(-1)
        cell = s.cells.below[cell]
    below = np.int64(s.cells.node[cell]) if cell != EMPTY else np.int64(NONE)
    return np.int64(g.nodes.bci[below]) if below >= 0 else np.int64(-1)


@apart
def tell_stack(g, s, node, cell, order, passed):  # type: ignore[no-untyped-def]
    """The frames that are there, the outermost first: from the top down they are counted, then written."""
    if s.at[EVENT] >= EVENTS - DEEPEST:
        return
    frames, frame, at = 0, node, cell
    while frames < DEEPEST - 1 and not is_bottom(frame):
        if not is_open(frame):
            frames += 1
        if at == EMPTY:
            break
        frame, at = np.int64(s.cells.node[at]), np.int64(s.cells.below[at])
    first = s.at[EVENT]
    _write(s, first, E_LOST, -1, -1, order, passed)
    frame, at, proven, n = node, cell, True, first + frames
    while n > first:
        if is_open(frame):
            proven = frame == OPEN - SURE
        elif is_compiled(frame):
            _write(s, n, E_COMPILED, -1, call_bci(g, s, at), order, passed)
        elif is_boundary(frame):
            _write(s, n, E_UPCALL, -1, -1, order, passed)
        elif proven:
            _write(s, n, E_FRAME, owner(g, frame), call_bci(g, s, at), order, passed)
        else:
            _write(s, n, E_FRAME, -1, -1, order, passed)
        n -= not is_open(frame)
        frame, at = np.int64(s.cells.node[at]), np.int64(s.cells.below[at])
    s.at[EVENT] = first + 1 + frames
    s.at[TOLD] = 1


@apart
def sure(g, s, c, node, cell, event, flags, order, passed):  # type: ignore[no-untyped-def]
    """A step of which it is known what the frame on top is."""
    m = owner(g, node)
    found = event == E_FRAME  # below all that were known: nothing is lost
    if not s.at[TOLD]:
        keep(s, -E_LOST, order)
    if found:
        s.at[TOLD] = 0
    if not s.at[TOLD]:
        tell_stack(g, s, node, cell, order, passed)
    elif event == E_ENTER or event == E_COMPILED:  # noqa: SIM109 -- a tuple costs a kernel more
        tell(s, event, m, call_bci(g, s, cell), order, passed)
    elif event != E_NONE:
        tell(s, event, m, -1, order, passed)
    if s.at[KEEP] and event != E_NONE and not found:
        keep(s, -event, order)
    keep_bytecodes(s, node, flags & BYTECODES, order)
    if m >= 0:
        invoked = 1 if event == E_ENTER else 0
        if invoked or flags & BYTECODES:
            credit(c, s, m, invoked, flags & BYTECODES, 0)
        s.events.bytecodes[s.at[EVENT] - 1] += flags & BYTECODES


@apart
def untold(s, order, passed):  # type: ignore[no-untyped-def]
    """What was told of the stack holds up to here. That is said: what runs from here on is not the last frame's."""
    if s.at[TOLD]:
        tell(s, E_LOST, -1, -1, order, passed)
    s.at[TOLD] = 0


@apart
def drop_window(s, order, passed):  # type: ignore[no-untyped-def]
    """What was told of the stack holds up to the window's first step, or up to here if there is none."""
    now = s.at[ROW]
    if s.at[STEP]:
        s.at[ROW], order, passed = s.steps.row[0], s.steps.order[0], s.steps.passed[0]
    untold(s, order, passed)
    s.at[ROW] = now
    s.at[STEP] = s.at[ELEMENT] = s.at[BLOCK] = s.at[BEGAN] = 0


@apart
def lose(s, order, passed):  # type: ignore[no-untyped-def]
    """Nothing is known any more."""
    drop_window(s, order, passed)
    s.at[COUNT] = s.at[WAITED] = s.at[TAKEN] = s.at[POPPED] = 0
    s.at[PHASE], s.at[SCANNED], s.at[BEFORE] = RUN, -1, NO_OP << 8 | NO_OP

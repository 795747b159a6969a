"""What is sure is counted and told; what is not waits in the window."""

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
    COUNT,
    E_COMPILED,
    E_ENTER,
    E_FRAME,
    E_NONE,
    FALLBACK,
    PHASE,
    RUN,
    SCANNED,
    TAKEN,
    WAITED,
    is_bottom,
    is_boundary,
    is_compiled,
    owner,
)
from stages.reconstruct.compiled import Places, Scopes
from stages.reconstruct.layout import OfBlocks, OfPaths, Passages
from stages.reconstruct.state import (
    BACK_NONE,
    BYTECODES,
    ELEMENTS,
    EMPTY,
    EVENTS,
    FORWARD,
    NO_OP,
    NONE,
    STEPS,
)

STEP, ELEMENT, BLOCK, SEEN, TOUCHED, EVENT, ROW, TOLD = (
    AT[name] for name in ("STEP", "ELEMENT", "BLOCK", "SEEN", "TOUCHED", "EVENT", "ROW", "TOLD")
)
KEEP, KEPT = AT["KEEP"], AT["KEPT"]
E_LOST, E_UPCALL = int(FrameEvent.LOST), int(FrameEvent.UPCALL)
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
def _credit(c, s, m, invoked, bytecodes, instructions):  # type: ignore[no-untyped-def]
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
    _credit(c, s, m, 0, 0, t.of.weight[b])


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


@apart
def _call_bci(g, s, cell):  # type: ignore[no-untyped-def]
    below = np.int64(s.cells.node[cell]) if cell != EMPTY else np.int64(NONE)
    return np.int64(g.nodes.bci[below]) if below >= 0 else np.int64(-1)


@apart
def tell_stack(g, s, node, cell, order, passed):  # type: ignore[no-untyped-def]
    """The frames that are there, the outermost first: from the top down they are counted, then written."""
    if s.at[EVENT] >= EVENTS - DEEPEST:
        return
    frames, frame, at = 0, node, cell
    while frames < DEEPEST - 1 and not is_bottom(frame):
        frames += 1
        if at == EMPTY:
            break
        frame, at = np.int64(s.cells.node[at]), np.int64(s.cells.below[at])
    first = s.at[EVENT]
    _write(s, first, E_LOST, -1, -1, order, passed)
    frame, at = node, cell
    for n in range(first + frames, first, -1):
        if is_compiled(frame):
            _write(s, n, E_COMPILED, -1, _call_bci(g, s, at), order, passed)
        elif is_boundary(frame):
            _write(s, n, E_UPCALL, -1, -1, order, passed)
        else:
            _write(s, n, E_FRAME, owner(g, frame), _call_bci(g, s, at), order, passed)
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
        tell(s, event, m, _call_bci(g, s, cell), order, passed)
    elif event != E_NONE:
        tell(s, event, m, -1, order, passed)
    if s.at[KEEP] and event != E_NONE and not found:
        keep(s, -event, order)
    if node >= 0:
        for back in range((flags & BYTECODES) - 1, -1, -1):  # of a template that is two, the first is the one before
            keep(s, node - back, order)
    if m >= 0:
        invoked = 1 if event == E_ENTER else 0
        if invoked or flags & BYTECODES:
            _credit(c, s, m, invoked, flags & BYTECODES, 0)
        s.events.bytecodes[s.at[EVENT] - 1] += flags & BYTECODES


@apart
def untold(s, order, passed):  # type: ignore[no-untyped-def]
    """The frames that were told hold up to the window's first step, or up to here if there is none. A LOST says so:
    the bytecodes from there on are not those of the last of these frames."""
    if s.at[TOLD]:
        now = s.at[ROW]
        if s.at[STEP]:
            s.at[ROW], order, passed = s.steps.row[0], s.steps.order[0], s.steps.passed[0]
        tell(s, E_LOST, -1, -1, order, passed)
        s.at[ROW] = now
    s.at[TOLD] = 0


@apart
def drop_window(s, order, passed):  # type: ignore[no-untyped-def]
    """Its steps stay without a method."""
    untold(s, order, passed)
    s.at[STEP] = s.at[ELEMENT] = s.at[BLOCK] = 0


@apart
def lose(s, order, passed):  # type: ignore[no-untyped-def]
    """Nothing is known any more."""
    drop_window(s, order, passed)
    s.at[COUNT] = s.at[WAITED] = s.at[TAKEN] = 0
    s.at[PHASE], s.at[SCANNED], s.at[FALLBACK], s.at[BEFORE] = RUN, -1, -1, NO_OP << 8 | NO_OP


# ---- the window


@apart
def remember(s, flags, order, passed):  # type: ignore[no-untyped-def]
    """A step whose frontier is that of now; its candidates' pasts are in `next_back`. Where there is no room left the
    window begins anew with it: what lies before has more than one explanation, or takes too long to find."""
    n = s.at[COUNT]
    if s.at[STEP] >= STEPS or s.at[ELEMENT] + n > ELEMENTS:
        drop_window(s, order, passed)
    k, first = s.at[STEP], s.at[ELEMENT]
    s.steps.first[k], s.steps.block[k], s.steps.flags[k] = first, s.at[BLOCK] if k else 0, flags
    s.steps.row[k], s.steps.order[k], s.steps.passed[k] = s.at[ROW], order, passed
    for i in range(n):
        s.elements.node[first + i], s.elements.cell[first + i] = s.front.node[i], s.front.cell[i]
        s.elements.back[first + i], s.elements.event[first + i] = s.next.back[i], s.next.event[i]
    s.at[STEP], s.at[ELEMENT] = k + 1, first + n


@apart
def resolve(g, s, c, t):  # type: ignore[no-untyped-def]
    """One candidate is left: its way back through the window, and forward again, counted."""
    last = s.at[STEP] - 1
    first = last
    s.steps.chosen[last] = s.steps.first[last]
    while first > 0 and s.elements.back[s.steps.chosen[first]] >= 0:
        s.steps.chosen[first - 1] = s.steps.first[first - 1] + s.elements.back[s.steps.chosen[first]]
        first -= 1
    if s.elements.back[s.steps.chosen[first]] < 0:
        untold(s, s.steps.order[first], s.steps.passed[first])
    now = s.at[ROW]
    for k in range(first, last + 1):
        e, s.at[ROW] = s.steps.chosen[k], s.steps.row[k]
        if s.at[TOLD] and (s.at[EVENT] == 0 or s.events.row[s.at[EVENT] - 1] != s.at[ROW]):
            tell(s, E_NONE, -1, -1, s.steps.order[k], s.steps.passed[k])
        node, cell, event = np.int64(s.elements.node[e]), np.int64(s.elements.cell[e]), s.elements.event[e]
        sure(g, s, c, node, cell, event, s.steps.flags[k], s.steps.order[k], s.steps.passed[k])
        whose = k
        if s.steps.flags[k] & FORWARD:
            if k == last:
                break
            whose = k + 1
        m = owner(g, np.int64(s.elements.node[s.steps.chosen[whose]]))
        for b in range(s.steps.block[k], s.steps.block[k + 1] if k < last else s.at[BLOCK]):
            credit_block(c, s, t, m, s.block[b])
    s.at[ROW] = now
    kept = np.int64(0)
    if s.steps.flags[last] & FORWARD:
        for b in range(s.steps.block[last], s.at[BLOCK]):
            s.block[kept] = s.block[b]
            kept += 1
    s.at[BLOCK], s.at[STEP], s.at[ELEMENT], s.at[SCANNED], s.at[FALLBACK] = kept, 0, 0, -1, -1


@apart
def root(s, order, passed):  # type: ignore[no-untyped-def]
    """The window begins with the frontier of now, whose past was told, or is not known."""
    for i in range(s.at[COUNT]):
        s.next.back[i], s.next.event[i] = BACK_NONE, E_NONE
    remember(s, 0, order, passed)

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
    BEGAN,
    COUNT,
    E_BACK,
    E_COMPILED,
    E_ENTER,
    E_FRAME,
    E_NONE,
    E_RETURN,
    E_UNWIND,
    E_UPRETURN,
    PHASE,
    POPPED,
    RETRY,
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
from stages.reconstruct.state import (
    BACK_NONE,
    BYTECODES,
    ELEMENTS,
    EMPTY,
    EVENTS,
    FORWARD,
    NO_OP,
    NONE,
    OPEN,
    SEARCHED,
    SHORT,
    STEPS,
    SURE,
    UNKNOWN_FOR,
    UNPROVEN,
)

ELEMENT, BLOCK, SEEN, TOUCHED, EVENT, ROW, TOLD = (
    AT[name] for name in ("ELEMENT", "BLOCK", "SEEN", "TOUCHED", "EVENT", "ROW", "TOLD")
)
KEEP, KEPT = AT["KEEP"], AT["KEPT"]
E_LOST, E_UPCALL = int(FrameEvent.LOST), int(FrameEvent.UPCALL)
FIRST_RETRY = UNKNOWN_FOR[0]
COMPARED = 64  # candidates that are looked at for what all of them say
UNNAMED = 60  # frames on top of those that are known, of which some are not
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
    if cell != EMPTY and is_open(s.cells.node[cell]):
        if s.cells.node[cell] != OPEN - SURE:
            return np.int64(-1)
        cell = s.cells.below[cell]
    below = np.int64(s.cells.node[cell]) if cell != EMPTY else np.int64(NONE)
    return np.int64(g.nodes.bci[below]) if below >= 0 else np.int64(-1)


@apart
def _tell_stack(g, s, node, cell, order, passed):  # type: ignore[no-untyped-def]
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
            _write(s, n, E_COMPILED, -1, _call_bci(g, s, at), order, passed)
        elif is_boundary(frame):
            _write(s, n, E_UPCALL, -1, -1, order, passed)
        elif proven:
            _write(s, n, E_FRAME, owner(g, frame), _call_bci(g, s, at), order, passed)
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
        _tell_stack(g, s, node, cell, order, passed)
    elif event == E_ENTER or event == E_COMPILED:  # noqa: SIM109 -- a tuple costs a kernel more
        tell(s, event, m, _call_bci(g, s, cell), order, passed)
    elif event != E_NONE:
        tell(s, event, m, -1, order, passed)
    if s.at[KEEP] and event != E_NONE and not found:
        keep(s, -event, order)
    if node >= 0 and flags & BYTECODES:
        keep(s, node, order)
    if m >= 0:
        invoked = 1 if event == E_ENTER else 0
        if invoked or flags & BYTECODES:
            _credit(c, s, m, invoked, flags & BYTECODES, 0)
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


# ---- the window


@apart
def remember(g, s, c, t, flags, order, passed):  # type: ignore[no-untyped-def]
    """A step whose frontier is that of now; its candidates' pasts are in `next_back`. Where there is no room left the
    window begins anew with it: what lies before has more than one explanation, or takes too long to find."""
    n = s.at[COUNT]
    if s.at[STEP] >= STEPS or s.at[ELEMENT] + n > ELEMENTS:
        close(g, s, c, t, order, passed)
    k, first = s.at[STEP], s.at[ELEMENT]
    s.steps.first[k], s.steps.block[k], s.steps.flags[k] = first, s.at[BLOCK] if k else 0, flags
    if s.at[SCANNED] >= 0:
        s.steps.flags[k] |= UNPROVEN | (SEARCHED if s.at[SCANNED] == 0 and s.at[BEGAN] == k else 0)
    s.steps.before[k] = -1
    s.steps.row[k], s.steps.order[k], s.steps.passed[k] = s.at[ROW], order, passed
    for i in range(n):
        s.elements.node[first + i], s.elements.cell[first + i] = s.front.node[i], s.front.cell[i]
        s.elements.back[first + i], s.elements.event[first + i] = s.next.back[i], s.next.event[i]
    s.at[STEP], s.at[ELEMENT] = k + 1, first + n


@near
def _credit_step(c, s, t, k, m):  # type: ignore[no-untyped-def]
    """The blocks of step k, to a method."""
    for b in range(s.steps.block[k], s.steps.block[k + 1] if k < s.at[STEP] - 1 else s.at[BLOCK]):
        credit_block(c, s, t, m, s.block[b])


@near
def _elements(s, k):  # type: ignore[no-untyped-def]
    return s.steps.first[k], s.steps.first[k + 1] if k < s.at[STEP] - 1 else s.at[ELEMENT]


@apart
def _common(s, k):  # type: ignore[no-untyped-def]
    """The frame on top of all candidates of step k, NONE if they differ; −1 in place of the event if these do, or there
    are too many to look at."""
    first, end = _elements(s, k)
    node, event = np.int64(s.elements.node[first]), np.int64(s.elements.event[first])
    if end - first > COMPARED:
        return node, np.int64(-1)
    for e in range(first + 1, end):
        if s.elements.event[e] != event:
            event = np.int64(-1)
        if s.elements.node[e] != node:
            node = np.int64(NONE)
    return node, event


@apart
def _common_bci(g, s, k):  # type: ignore[no-untyped-def]
    """The bci of the call of the frame on top, −1 if the candidates of step k differ."""
    first, end = _elements(s, k)
    bci = _call_bci(g, s, np.int64(s.elements.cell[first]))
    for e in range(first + 1, end):
        if bci >= 0 and _call_bci(g, s, np.int64(s.elements.cell[e])) != bci:
            bci = np.int64(-1)
    return bci


@apart
def agreed(g, s, c, t, end):  # type: ignore[no-untyped-def]
    """Of the window's first steps, up to `end`, more than one explanation is left: what all of them say is counted and
    told, and a frame of which they say different methods is told without one. Unless the stack is not known. How many
    frames are on the stack then, more than at the beginning, and a bit for each that was told without a method."""
    now, depth, unnamed = s.at[ROW], np.int64(0), np.int64(0)
    for k in range(end):
        node, event = _common(s, k)
        s.at[ROW], order, passed = s.steps.row[k], s.steps.order[k], s.steps.passed[k]
        depth += _pushes(event)
        crowded = depth >= UNNAMED or s.at[EVENT] > EVENTS - DEEPEST
        if s.steps.flags[k] & UNPROVEN or event < 0 or event == E_UPRETURN or crowded:
            untold(s, order, passed)
        if not s.at[TOLD]:
            break
        if s.at[EVENT] == 0 or s.events.row[s.at[EVENT] - 1] != s.at[ROW]:
            tell(s, E_NONE, -1, -1, order, passed)
        m = owner(g, node)
        unnamed &= (np.int64(1) << max(depth + (_pushes(event) <= 0), 0)) - 1
        if m < 0 and depth >= 0 and not (is_compiled(node) or is_boundary(node)):
            unnamed |= np.int64(1) << depth
        if event == E_ENTER or event == E_COMPILED:  # noqa: SIM109 -- a tuple costs a kernel more
            tell(s, event, m, _common_bci(g, s, k), order, passed)
        elif event != E_NONE:
            tell(s, event, m, -1, order, passed)
        if s.at[KEEP] and event != E_NONE:
            keep(s, -event, order)
        if m >= 0:
            bytecodes = s.steps.flags[k] & BYTECODES
            _credit(c, s, m, np.int64(event == E_ENTER), bytecodes, 0)
            if node >= 0 and bytecodes and not (unnamed >> max(depth, 0)) & 1:
                keep(s, node, order)
                s.events.bytecodes[s.at[EVENT] - 1] += bytecodes
        if s.steps.flags[k] & FORWARD:
            node = _common(s, k + 1)[0] if k + 1 < s.at[STEP] else np.int64(NONE)
        _credit_step(c, s, t, k, owner(g, node))
    s.at[ROW] = now
    return depth, unnamed


@near
def _pushes(event):  # type: ignore[no-untyped-def]
    """Frames; of a native method that returns at once none."""
    if event == E_ENTER or event == E_COMPILED or event == E_UPCALL:  # noqa: SIM109
        return 1
    return -1 if event == E_RETURN or event == E_UNWIND or event == E_BACK else 0  # noqa: SIM109


@apart
def close(g, s, c, t, order, passed):  # type: ignore[no-untyped-def]
    """The window ends, or begins anew, with more than one explanation."""
    if s.at[STEP]:
        agreed(g, s, c, t, s.at[STEP])
    s.at[STEP] = s.at[ELEMENT] = s.at[BLOCK] = s.at[BEGAN] = 0
    untold(s, order, passed)


@apart
def _told_entry(s, k):  # type: ignore[no-untyped-def]
    """With step k a method was entered that was left before it was known."""
    if s.at[TOLD]:
        now, s.at[ROW] = s.at[ROW], s.steps.row[k]
        tell(s, E_ENTER, -1, -1, s.steps.order[k], s.steps.passed[k])
        s.at[ROW] = now
    keep(s, -E_ENTER, s.steps.order[k])


@apart
def resolve(g, s, c, t):  # type: ignore[no-untyped-def]
    """One candidate is left: its way back through the window, and forward again, counted."""
    last = s.at[STEP] - 1
    first = last
    s.steps.chosen[last] = s.steps.first[last]
    while first > s.at[BEGAN]:
        back, before = s.elements.back[s.steps.chosen[first]], s.steps.before[first]
        if back >= 0:
            s.steps.chosen[first - 1] = s.steps.first[first - 1] + back
            first -= 1
        elif before >= s.at[BEGAN]:
            for k in range(before + 1, first):
                s.steps.chosen[k] = -1
            s.steps.chosen[before] = s.steps.first[before]
            first = np.int64(before)
        else:
            break
    if first > 0 and s.steps.flags[first] & SHORT and s.steps.flags[0] & SEARCHED:
        _told_entry(s, 0)
    else:
        back, event = s.elements.back[s.steps.chosen[first]], s.elements.event[s.steps.chosen[first]]
        depth, unnamed = agreed(g, s, c, t, first)
        unnamed &= (np.int64(1) << max(depth + _pushes(event) + 1, 0)) - 1
        if back == BACK_NONE or (back >= 0 and first > 0) or event == E_UPRETURN or unnamed:
            untold(s, s.steps.order[first], s.steps.passed[first])
    now = s.at[ROW]
    for k in range(first, last + 1):
        e, s.at[ROW] = s.steps.chosen[k], s.steps.row[k]
        if e < 0:
            if s.steps.chosen[k - 1] >= 0:
                _told_entry(s, k)
            continue
        if s.at[TOLD] and (s.at[EVENT] == 0 or s.events.row[s.at[EVENT] - 1] != s.at[ROW]):
            tell(s, E_NONE, -1, -1, s.steps.order[k], s.steps.passed[k])
        node, cell, event = np.int64(s.elements.node[e]), np.int64(s.elements.cell[e]), s.elements.event[e]
        sure(g, s, c, node, cell, event, s.steps.flags[k], s.steps.order[k], s.steps.passed[k])
        if s.steps.flags[k] & FORWARD:
            if k == last:
                break
            node = np.int64(s.elements.node[s.steps.chosen[k + 1]]) if s.steps.chosen[k + 1] >= 0 else np.int64(NONE)
        _credit_step(c, s, t, k, owner(g, node))
    s.at[ROW] = now
    kept = np.int64(0)
    if s.steps.flags[last] & FORWARD:
        for b in range(s.steps.block[last], s.at[BLOCK]):
            s.block[kept] = s.block[b]
            kept += 1
    s.at[BLOCK], s.at[STEP], s.at[ELEMENT], s.at[BEGAN], s.at[SCANNED] = kept, 0, 0, 0, -1
    s.at[RETRY] = FIRST_RETRY


@apart
def root(g, s, c, t, order, passed):  # type: ignore[no-untyped-def]
    """The window begins with the frontier of now, whose past was told, or is not known."""
    for i in range(s.at[COUNT]):
        s.next.back[i], s.next.event[i] = BACK_NONE, E_NONE
    remember(g, s, c, t, 0, order, passed)

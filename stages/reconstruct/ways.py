"""The window: which candidate led to which, until one is left. Its way is followed back, and counted.

A search that was left before it was proven is passed over on that way. Of the steps before it, of which more than one
explanation is left, the bytecodes are counted that are the same in all of them.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import apart, near
from stages.reconstruct.candidates import (
    BEGAN,
    COUNT,
    E_BACK,
    E_COMPILED,
    E_ENTER,
    E_NONE,
    E_RETURN,
    E_UNWIND,
    E_UPCALL,
    E_UPRETURN,
    RETRY,
    SCANNED,
    STEP,
    TOLD,
    is_boundary,
    is_compiled,
    owner,
)
from stages.reconstruct.state import (
    BACK_NONE,
    BYTECODES,
    ELEMENTS,
    EVENTS,
    FORWARD,
    NONE,
    SEARCHED,
    SHORT,
    STEPS,
    UNPROVEN,
)
from stages.reconstruct.window import (
    BLOCK,
    DEEPEST,
    ELEMENT,
    EVENT,
    FIRST_RETRY,
    KEEP,
    ROW,
    call_bci,
    credit,
    credit_block,
    keep,
    keep_bytecodes,
    sure,
    tell,
    untold,
)

COMPARED = 64  # candidates that are looked at for what all of them say
UNNAMED = 60  # frames on top of those that are known, of which some are not


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
    s.steps.before[k], s.steps.began[k] = -1, s.at[BEGAN]
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
    bci = call_bci(g, s, np.int64(s.elements.cell[first]))
    for e in range(first + 1, end):
        if bci >= 0 and call_bci(g, s, np.int64(s.elements.cell[e])) != bci:
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
        named = m >= 0 and not (unnamed >> max(depth, 0)) & 1
        if event == E_ENTER or event == E_COMPILED:  # noqa: SIM109 -- a tuple costs a kernel more
            tell(s, event, m, _common_bci(g, s, k), order, passed)
        elif event != E_NONE:
            tell(s, event, m, -1, order, passed)
        if s.at[KEEP] and event != E_NONE:
            keep(s, -event, order)
        if named:
            bytecodes = s.steps.flags[k] & BYTECODES
            credit(c, s, m, np.int64(event == E_ENTER), bytecodes, 0)
            keep_bytecodes(s, node, bytecodes, order)
            s.events.bytecodes[s.at[EVENT] - 1] += bytecodes
        if s.steps.flags[k] & FORWARD:
            node = _common(s, k + 1)[0] if k + 1 < s.at[STEP] else np.int64(NONE)
            _credit_step(c, s, t, k, owner(g, node))
        elif named:
            _credit_step(c, s, t, k, m)
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
    """With step k a method was entered that was left before it was known; unless that was a frame which was there."""
    if s.elements.event[s.steps.first[k]] != E_ENTER:
        return
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

"""No candidate explains a token: as few frames are given up as explain it."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import apart, near
from stages.reconstruct.candidates import (
    ALONE,
    BEGAN,
    CALL,
    COUNT,
    NEXT,
    POPPED,
    RETRY,
    SCANNED,
    WAITED,
    is_boundary,
    is_compiled,
    is_native,
    is_open,
    pushed,
)
from stages.reconstruct.state import EMPTY, OPEN, SURE, UNKNOWN, UNKNOWN_FOR
from stages.reconstruct.window import drop_window, lose

LAST_RETRY = UNKNOWN_FOR[1]
DEEPEST = 256  # frames above one that was searched for, which are UNKNOWN with it


@near
def _found(s, i):  # type: ignore[no-untyped-def]
    """The OPEN in the stack of candidate i that is nearest to the top, and how many frames lie above it."""
    cell = np.int64(s.front.cell[i])
    for frames in range(1, DEEPEST):
        if cell == EMPTY or is_open(s.cells.node[cell]):
            return cell, frames
        cell = np.int64(s.cells.below[cell])
    return np.int64(EMPTY), DEEPEST


@near
def _untold_frame(frame):  # type: ignore[no-untyped-def]
    """What a frame is, if it is not known of which method: compiled code, and calls by the VM, stay."""
    return np.int64(frame) if is_compiled(frame) or is_boundary(frame) else np.int64(UNKNOWN)


@apart
def fall_back(s, order, passed):  # type: ignore[no-untyped-def]
    """No candidate explains the token. Of frames that are proven the one on top is not known from here on; while one is
    searched for, that one, and those above it. Whether there was such a frame; else nothing is known."""
    if s.at[SCANNED] < 0:
        one = s.front.node[0] >= 0 or is_native(s.front.node[0])
        for i in range(1, s.at[COUNT]):
            one = one and s.front.cell[i] == s.front.cell[0] and s.front.node[i] >= 0
        if not one:
            lose(s, order, passed)
            return False
        drop_window(s, order, passed)
        s.front.node[0], s.at[COUNT], s.at[NEXT], s.at[WAITED], s.at[POPPED] = UNKNOWN, 1, 0, 0, 0
        s.at[RETRY] = min(2 * s.at[RETRY], LAST_RETRY)
        return True
    at, frames = _found(s, 0)
    for i in range(1, s.at[COUNT]):
        if _found(s, i)[0] != at:
            at = np.int64(EMPTY)
    if at == EMPTY:
        lose(s, order, passed)
        return False
    drop_window(s, order, passed)
    cell = np.int64(s.cells.below[at])
    for k in range(frames - 1, 0, -1):
        frame = np.int64(s.front.cell[0])
        for _ in range(k - 1):
            frame = np.int64(s.cells.below[frame])
        cell = pushed(s, _untold_frame(s.cells.node[frame]), cell)
    proven_as(s, s.cells.node[at])
    s.front.node[0], s.front.cell[0], s.at[COUNT] = _untold_frame(s.front.node[0]), cell, 1
    s.at[POPPED] = s.at[NEXT] = s.at[WAITED] = 0
    s.at[RETRY] = min(2 * s.at[RETRY], LAST_RETRY)
    return True


@apart
def cut(g, s):  # type: ignore[no-untyped-def]
    """A frame that was searched for above one that is known is proven. Where that one calls no such method it has
    returned long since, and nothing is known of the frames below."""
    node, cell = np.int64(s.front.node[0]), np.int64(s.front.cell[0])
    for _ in range(DEEPEST):
        if cell == EMPTY:
            return
        below = np.int64(s.cells.node[cell])
        if is_open(below):
            break
        node, cell = below, np.int64(s.cells.below[cell])
    under = np.int64(s.cells.below[cell])
    if cell == EMPTY or node < 0 or under == EMPTY or s.cells.node[under] < 0:
        return
    caller = np.int64(s.cells.node[under])
    if g.nodes.kind[caller] == CALL and not _calls(g, caller, g.nodes.method[node]):
        s.cells.below[cell] = EMPTY


@near
def _calls(g, node, method):  # type: ignore[no-untyped-def]
    """Whether the call may be of a method."""
    call = g.sites.call[g.nodes.target[node]]
    first, count = np.int64(g.calls.callee[call]), np.int64(g.calls.callees[call])
    found = count < 0
    for k in range(first, first + count):
        found = found or g.callee[k] == method
    return found


@near
def proven_as(s, node):  # type: ignore[no-untyped-def]
    """As far as the frames below that OPEN are."""
    s.at[SCANNED], s.at[ALONE], s.at[BEGAN] = OPEN - node if node > OPEN - SURE else -1, 0, 0

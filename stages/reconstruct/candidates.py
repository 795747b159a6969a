"""Candidates: what a frame is, and how the next frontier is made."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.opcodes import Kind
from jvm.kernels import apart, near
from stages.messages.bytecodes import FrameEvent
from stages.reconstruct.state import (
    BACK_SEVERAL,
    BOTTOM,
    BOUNDARY,
    CANDIDATES,
    CELLS,
    COMPILED,
    COMPILED_AT,
    EMPTY,
    HASH,
    MAYBE,
    NATIVE,
    NONE,
    At,
    Phase,
)
from stages.reconstruct.tokens import Entry

AT = {name: int(place) for name, place in At.__members__.items()}
PHASE, TAKEN, LAST, ENTRY, CLEARED, COUNT, NEXT = (
    AT[name] for name in ("PHASE", "TAKEN", "LAST", "ENTRY", "CLEARED", "COUNT", "NEXT")
)
METHODS, SITES = AT["METHODS"], AT["SITES"]
SCANNED, ALONE, FALLBACK, DEPTH, WAITED, CELL, STAMP, BEFORE, WORK = (
    AT[name] for name in ("SCANNED", "ALONE", "FALLBACK", "DEPTH", "WAITED", "CELL", "STAMP", "BEFORE", "WORK")
)
CALLED, HERE, NUMBERS, TOLD = (AT[name] for name in ("CALLED", "HERE", "NUMBERS", "TOLD"))
RUN, ENTERED, BEHIND, THROWN, DEOPTIMISED = (int(phase) for phase in Phase)
CALL, RETURN = int(Kind.CALL), int(Kind.RETURN)
E_NONE, E_ENTER, E_FRAME, E_RETURN, E_UNWIND, E_COMPILED, E_BACK, E_OSR, E_UPCALL, E_UPRETURN = (
    int(e)
    for e in (
        FrameEvent.GOES_ON, FrameEvent.ENTER, FrameEvent.FRAME, FrameEvent.RETURN, FrameEvent.UNWIND,
        FrameEvent.COMPILED, FrameEvent.BACK, FrameEvent.OSR, FrameEvent.UPCALL, FrameEvent.UPRETURN,
    )
)  # fmt: skip
_DENSE = 16  # candidates that are compared one by one
NATIVE_ENTRY, INTRINSIC, ABSTRACT, SYNCHRONIZED = (
    int(Entry.NATIVE), int(Entry.INTRINSIC), int(Entry.ABSTRACT), int(Entry.SYNCHRONIZED)
)  # fmt: skip


@near
def is_boundary(node):  # type: ignore[no-untyped-def]
    return NATIVE < node <= BOUNDARY


@near
def is_native(node):  # type: ignore[no-untyped-def]
    return COMPILED_AT < node <= NATIVE


@near
def is_compiled(node):  # type: ignore[no-untyped-def]
    if node == MAYBE:
        return True
    return node == COMPILED or BOTTOM < node <= COMPILED_AT


@near
def is_bottom(node):  # type: ignore[no-untyped-def]
    return node <= BOTTOM


@near
def owner(g, node):  # type: ignore[no-untyped-def]
    """The method of a frame; NONE: it has none that is known."""
    if node >= 0:
        return np.int64(g.nodes.method[node])
    return np.int64(NATIVE - node) if is_native(node) else np.int64(NONE)


@near
def pushed(s, node, cell):  # type: ignore[no-untyped-def]
    """The cell of a frame with another above it. Where there is no room, what lies below is forgotten."""
    used = s.at[CELL]
    if used >= CELLS:
        return np.int64(EMPTY)
    s.cells.node[used], s.cells.below[used] = node, cell
    s.at[CELL] = used + 1
    return used


@near
def kept(s, node):  # type: ignore[no-untyped-def]
    """A frame as it lies below another: compiled code with the call that it has made."""
    return COMPILED_AT - s.at[CALLED] if node == COMPILED and s.at[CALLED] >= 0 else np.int64(node)


@near
def resumed(s, node):  # type: ignore[no-untyped-def]
    """Compiled code on top again."""
    s.at[CALLED] = COMPILED_AT - node if BOTTOM < node <= COMPILED_AT and s.at[COUNT] == 1 else -1
    return np.int64(COMPILED)


@apart
def scope_of(g, s, t, place, k):  # type: ignore[no-untyped-def]
    """The node of scope k, from the innermost on, where compiled code stands; NONE: it is not known."""
    if place < 0 or k >= t.place.scopes[place]:
        return np.int64(NONE)
    at = np.int64(t.place.scope[place]) + k
    method, bci = t.scope.method[at], t.scope.bci[at]
    m = np.int64(t.number[method]) if 0 <= method < s.at[NUMBERS] else np.int64(NONE)
    if m < 0 or g.methods.entry[m] < 0:
        return np.int64(NONE)
    lo = np.int64(g.methods.entry[m])
    end = lo + g.methods.nodes[m]
    hi = end
    while lo < hi:
        middle = (lo + hi) >> 1
        if g.nodes.bci[middle] < bci:
            lo = middle + 1
        else:
            hi = middle
    return lo if lo < end and g.nodes.bci[lo] == bci else np.int64(NONE)


@near
def below(g, s, i):  # type: ignore[no-untyped-def]
    """Candidate i without its frame on top: frame and cell."""
    cell = np.int64(s.front.cell[i])
    if cell == EMPTY:
        method = owner(g, s.front.node[i])
        return (np.int64(BOTTOM) if method == NONE else np.int64(BOTTOM) - 1 - method), np.int64(EMPTY)
    return np.int64(s.cells.node[cell]), np.int64(s.cells.below[cell])


@apart
def _hashed(s, key, n):  # type: ignore[no-untyped-def]
    """The candidate with this key among those hashed, or n, which now has it."""
    where = (key * np.int64(0x9E3779B97F4A7C15 - (1 << 64)) >> 24) & (HASH - 1)
    while s.hash.stamp[where] == s.at[STAMP]:
        if s.hash.key[where] == key:
            return np.int64(s.hash.at[where])
        where = (where + 1) & (HASH - 1)
    s.hash.stamp[where], s.hash.key[where], s.hash.at[where] = s.at[STAMP], key, n
    return n


@apart
def emit(s, node, cell, back, event):  # type: ignore[no-untyped-def]
    """A candidate of the next frontier, that candidate `back` led to. One that several led to has no known past."""
    n = s.at[NEXT]
    s.at[WORK] += 1
    found = n
    if n < _DENSE:
        for k in range(n):
            if s.next.node[k] == node and s.next.cell[k] == cell:
                found = np.int64(k)
                break
    else:
        if n == _DENSE:
            s.at[STAMP] += 1
            for k in range(n):
                _hashed(s, np.int64(s.next.node[k]) << 32 | np.int64(s.next.cell[k]), np.int64(k))
        if n < CANDIDATES:
            found = _hashed(s, np.int64(node) << 32 | np.int64(cell), n)
    if found < n:
        if s.next.back[found] != back:
            s.next.back[found] = BACK_SEVERAL
    elif n < CANDIDATES:
        s.next.node[n], s.next.cell[n], s.next.back[n], s.next.event[n] = node, cell, back, event
        s.at[NEXT] = n + 1

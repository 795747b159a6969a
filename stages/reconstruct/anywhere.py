"""Where any method or bytecode might be the one: behind a hole, after an open call, below the first known frame.

What is found here must prove itself (SURE).
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.opcodes import KIND, Kind
from jvm.kernels import apart, near
from stages.reconstruct.candidates import (
    ALONE,
    BEFORE,
    DEPTH,
    E_ENTER,
    E_FRAME,
    E_NONE,
    FALLBACK,
    METHODS,
    NEXT,
    SCANNED,
    SITES,
    WAITED,
    WORK,
    emit,
    is_bottom,
    kept,
    pushed,
)
from stages.reconstruct.state import (
    BACK_NONE,
    BEGIN,
    BOTTOM,
    EMPTY,
    FEW_ENTRIES,
    NO_OP,
    NONE,
    PATIENCE,
    UNKNOWN,
)


@apart
def _few(g, s, opening):  # type: ignore[no-untyped-def]
    count = 0
    for m in range(s.at[METHODS]):
        count += g.methods.opening[m] == opening
    return count <= FEW_ENTRIES


@apart
def any_entry(g, s, i, opening):  # type: ignore[no-untyped-def]
    """Any method that is entered so; from now on it must be proven which (SURE)."""
    known = not is_bottom(s.front.node[i])
    if not known and not _few(g, s, opening):
        return
    cell = pushed(s, kept(s, s.front.node[i]), np.int64(s.front.cell[i])) if known else np.int64(EMPTY)
    s.at[WORK] += s.at[METHODS] >> 4
    for m in range(s.at[METHODS]):
        if g.methods.opening[m] == opening:
            emit(s, np.int64(g.methods.entry[m]), cell, i, E_ENTER)
    s.at[ALONE] = 0
    s.at[SCANNED], s.at[FALLBACK], s.at[DEPTH] = 0, cell if known else np.int64(-1), 0
    if s.at[NEXT] == 0 and known:
        emit(s, np.int64(UNKNOWN), cell, i, E_ENTER)


@apart
def returned_below(g, s, i, op):  # type: ignore[no-untyped-def]
    """Behind any call of the method that has returned out of the first frame that was known. Nothing of this frame has
    been told."""
    method = np.int64(BOTTOM) - 1 - np.int64(s.front.node[i])
    for k in range(s.at[SITES]):
        node = g.sites.node[k]
        if node == NONE:
            continue
        to = g.nodes.next[node]
        if to == NONE or g.nodes.opcode[to] != op:
            continue
        call = g.sites.call[k]
        count = np.int64(g.calls.callees[call])
        fits = method < 0 or count < 0
        for q in range(g.calls.callee[call], g.calls.callee[call] + max(count, 0)):
            if g.callee[q] == method:
                fits = True
                break
        if fits:
            emit(s, np.int64(to), np.int64(EMPTY), i, E_FRAME)
    s.at[SCANNED], s.at[ALONE], s.at[FALLBACK] = 0, 0, -1
    s.at[WORK] += s.at[SITES] >> 2


@near
def _follows(g, node, back, opcode):  # type: ignore[no-untyped-def]
    """Whether the instruction `back` before a node is of an opcode; NO_OP: any."""
    if opcode == NO_OP:
        return True
    return (
        node >= back and g.nodes.method[node - back] == g.nodes.method[node] and g.nodes.opcode[node - back] == opcode
    )


@apart
def begin(g, index, s, op):  # type: ignore[no-untyped-def]
    """Nothing is known: any bytecode of this opcode that stands behind those before it, if this opcode is rare, or
    nothing rarer came."""
    first, end = index.at[op], index.at[op + 1]
    s.at[WAITED] += 1
    most = BEGIN[2]
    if s.at[WAITED] <= PATIENCE[0]:
        most = BEGIN[0]
    elif s.at[WAITED] <= PATIENCE[1]:
        most = BEGIN[1]
    before = s.at[BEFORE]
    linked = KIND[op] == Kind.PLAIN or KIND[op] == Kind.CONDITIONAL
    s.at[BEFORE] = (before << 8 | op) & 0xFFFF if linked else NO_OP << 8 | NO_OP
    if end - first > most:
        return
    s.at[WORK] += (end - first) >> 3
    for k in range(first, end):
        node = index.node[k]
        if _follows(g, node, 1, before & 0xFF) and _follows(g, node, 2, before >> 8):
            emit(s, np.int64(node), np.int64(EMPTY), np.int64(BACK_NONE), E_NONE)
    s.at[SCANNED], s.at[ALONE], s.at[FALLBACK], s.at[WAITED] = 0, 0, -1, 0

"""A token leads the frontier on: the next one becomes that of now, and what is sure by it is counted."""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.opcodes import KIND
from jvm.kernels import apart
from stages.reconstruct.anywhere import begin
from stages.reconstruct.candidates import (
    ALONE,
    AT,
    BEFORE,
    BEHIND,
    CALLED,
    CLEARED,
    COUNT,
    DEOPTIMISED,
    DEPTH,
    E_BACK,
    E_COMPILED,
    E_ENTER,
    E_NONE,
    E_OSR,
    E_RETURN,
    E_UNWIND,
    E_UPCALL,
    E_UPRETURN,
    ENTERED,
    ENTRY,
    FALLBACK,
    HERE,
    INTRINSIC,
    LAST,
    NEXT,
    PHASE,
    RETURN,
    RUN,
    SCANNED,
    TAKEN,
    THROWN,
    WAITED,
    emit,
    owner,
    pushed,
)
from stages.reconstruct.frontier import (
    on_behind,
    on_compiled,
    on_deoptimised,
    on_native,
    on_op,
    on_rethrow,
    on_throw,
    on_upcall,
    on_upreturn,
    unpack,
)
from stages.reconstruct.state import (
    BACK_NONE,
    BOTTOM,
    COMPILED,
    EMPTY,
    FORWARD,
    NO_OP,
    NONE,
    PATIENCE,
    SURE,
    UNKNOWN,
)
from stages.reconstruct.tokens import Entry, Token
from stages.reconstruct.window import (
    BLOCK,
    STEP,
    TOLD,
    credit_block,
    drop_window,
    lose,
    remember,
    resolve,
    sure,
)

CELL = AT["CELL"]
OP, TOOK, ENTER, CLEAR, BEHIND_CALL, THROW, RETHROW, UPCALL, UPRETURN, IN_COMPILED, LOST, DEOPT = (
    int(t) for t in Token
)
SYNCHRONIZED = int(Entry.SYNCHRONIZED)


@apart
def _fall_back(s, order, passed):  # type: ignore[no-untyped-def]
    """No method that is known fits since the last call of one that might be any: it is not known."""
    cell = s.at[FALLBACK]
    for _ in range(s.at[DEPTH] - 1):
        cell = pushed(s, UNKNOWN, cell)
    s.at[SCANNED], s.at[FALLBACK], s.at[NEXT] = -1, -1, 0
    drop_window(s, order, passed)
    emit(s, UNKNOWN, cell, BACK_NONE, E_NONE)


@apart
def _settle(g, s, c, t, flags, order, passed):  # type: ignore[no-untyped-def]
    """The next frontier is made: it becomes that of now."""
    certain = s.at[STEP] == 0 and s.at[COUNT] == 1 and s.at[SCANNED] < 0
    if s.at[NEXT] == 0 and s.at[FALLBACK] >= 0:
        _fall_back(s, order, passed)
    n = s.at[NEXT]
    if n == 0:
        lose(s, order, passed)
        return
    before = np.int64(s.front.cell[0])
    for i in range(n):
        s.front.node[i], s.front.cell[i] = s.next.node[i], s.next.cell[i]
    s.at[COUNT] = n
    event = s.next.event[0]
    if s.at[FALLBACK] >= 0:
        if event == E_ENTER or event == E_COMPILED or event == E_UPCALL:
            s.at[DEPTH] += 1
        elif event == E_RETURN or event == E_UNWIND or event == E_BACK:
            s.at[DEPTH] -= 1
        if s.at[DEPTH] <= 0 or event == E_UPRETURN or event == E_OSR:
            s.at[FALLBACK] = -1
    if certain and n == 1 and s.next.back[0] >= 0:
        sure(g, s, c, np.int64(s.front.node[0]), np.int64(s.front.cell[0]), event, flags, order, passed)
        if (event == E_RETURN or event == E_UNWIND or event == E_BACK) and before == s.at[CELL] - 1:
            s.at[CELL] -= 1  # nobody else has it
        if s.at[BLOCK]:
            m = owner(g, np.int64(s.front.node[0]))
            for b in range(s.at[BLOCK]):
                credit_block(c, s, t, m if event == E_ENTER else np.int64(NONE), s.block[b])
            s.at[BLOCK] = 0
        return
    remember(s, flags, order, passed)
    if n > 1:
        s.at[ALONE] = s.at[SCANNED]
    elif s.at[SCANNED] < 0 or s.at[SCANNED] - s.at[ALONE] >= SURE:
        resolve(g, s, c, t)


@apart
def _op(g, s, c, t, op, before, bytecodes, order, passed):  # type: ignore[no-untyped-def]
    """`before`: the other bytecode of its template, NO_OP."""
    s.at[NEXT] = 0
    if s.at[SCANNED] >= 0 and (s.front.node[0] != UNKNOWN or s.at[PHASE] == ENTERED):
        s.at[SCANNED] += 1  # a frame of an unknown method explains everything
    if s.at[COUNT]:
        on_op(g, s, t, op)
        _settle(g, s, c, t, bytecodes, order, passed)
    s.at[NEXT] = 0
    if s.at[COUNT] > 1 and s.front.node[0] == UNKNOWN:
        s.at[WAITED] += 1  # nothing will tell them apart soon
        if s.at[WAITED] > PATIENCE[1]:
            lose(s, order, passed)
    elif s.at[COUNT]:
        s.at[WAITED] = 0
    if s.at[COUNT] == 0:
        if before != NO_OP:
            s.at[BEFORE] = s.at[BEFORE] & 0xFF00 | before
        begin(g, t.index, s, op)
        if s.at[NEXT]:
            _settle(g, s, c, t, bytecodes, order, passed)
    s.at[PHASE], s.at[TAKEN], s.at[LAST] = RUN, 0, KIND[op]


@apart
def _native(g, s, c, t, order, passed):  # type: ignore[no-untyped-def]
    s.at[NEXT] = 0
    on_native(g, s, t)
    s.at[PHASE], s.at[LAST], s.at[TAKEN] = RUN, RETURN, 0
    if s.at[COUNT]:
        _settle(g, s, c, t, 0, order, passed)


@apart
def take_token(g, s, c, t, kind, argument, order, passed):  # type: ignore[no-untyped-def]
    if kind != OP and s.at[COUNT] == 0:
        s.at[BEFORE] = NO_OP << 8 | NO_OP
    if kind == TOOK:
        s.at[TAKEN] = 1
        return
    if kind == CLEAR:
        s.at[CLEARED] += 1
        return
    if kind == LOST:
        lose(s, order, passed)
        return
    if kind != ENTER and s.at[PHASE] == ENTERED and s.at[ENTRY] == INTRINSIC:
        _native(g, s, c, t, order, passed)  # it did not go on to another entry
    if kind == OP:
        first, second = t.templates[2 * argument], t.templates[2 * argument + 1]
        if second == NO_OP:
            _op(g, s, c, t, first, NO_OP, 1, order, passed)
        else:  # both are counted with it, or none: they have one block
            _op(g, s, c, t, first, NO_OP, 0, order, passed)
            _op(g, s, c, t, second, first, 2, order, passed)
        return
    s.at[NEXT] = 0
    if kind == ENTER:
        s.at[ENTRY], s.at[CLEARED] = argument, 0
        if s.at[COUNT] == 0:
            s.front.node[0], s.front.cell[0], s.at[COUNT], s.at[TOLD] = BOTTOM, EMPTY, 1, 0
        if argument > SYNCHRONIZED and argument != INTRINSIC:
            _native(g, s, c, t, order, passed)
            return
        s.at[PHASE] = ENTERED
        if s.at[STEP]:
            for i in range(s.at[COUNT]):
                s.next.back[i], s.next.event[i] = i, E_NONE
            remember(s, FORWARD, order, passed)
        return
    if kind == IN_COMPILED:
        if s.at[COUNT] == 0:
            s.front.node[0], s.front.cell[0], s.at[COUNT], s.at[TOLD] = COMPILED, EMPTY, 1, 0
            s.at[PHASE] = RUN
        elif s.at[COUNT] > 1 or s.front.node[0] != COMPILED:
            on_compiled(g, s)
            s.at[PHASE] = RUN
            _settle(g, s, c, t, 0, order, passed)
        if t.place.called[argument]:
            s.at[CALLED] = argument
        s.at[HERE] = argument
        return
    if kind == UPCALL:
        nothing = s.at[COUNT] == 0
        on_upcall(s)
        s.at[PHASE], s.at[LAST], s.at[TAKEN] = RUN, 0, 0
        if nothing:
            s.front.node[0], s.front.cell[0], s.at[COUNT], s.at[TOLD] = s.next.node[0], s.next.cell[0], 1, 0
            return
    elif s.at[COUNT] == 0:
        if kind != UPRETURN:  # a stack that is read here (`read_stacks`) is that of such a frame
            s.at[PHASE] = BEHIND if kind == BEHIND_CALL else DEOPTIMISED if kind == DEOPT else THROWN
        return
    elif kind == BEHIND_CALL:
        on_behind(g, s)
        s.at[PHASE] = BEHIND
    elif kind == THROW:
        on_throw(s)
        s.at[PHASE] = THROWN
    elif kind == RETHROW:
        on_rethrow(g, s)
        s.at[PHASE] = THROWN
    elif kind == DEOPT:
        on_deoptimised(g, s, t)
        s.at[PHASE] = DEOPTIMISED
    elif kind == UPRETURN:
        bits = on_upreturn(s)
        if bits >= 0:
            unpack(s, bits)
    _settle(g, s, c, t, 0, order, passed)

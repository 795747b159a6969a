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
    BEGAN,
    BEHIND,
    CALLED,
    CLEARED,
    COUNT,
    DEOPTIMISED,
    E_BACK,
    E_ENTER,
    E_NONE,
    E_RETURN,
    E_UNWIND,
    ENTERED,
    ENTRY,
    HERE,
    INTRINSIC,
    LAST,
    NEXT,
    PHASE,
    POPPED,
    RETURN,
    RUN,
    SCANNED,
    STEP,
    TAKEN,
    THROWN,
    TOLD,
    WAITED,
    owner,
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
from stages.reconstruct.refuted import cut, fall_back, proven_as
from stages.reconstruct.same import one_on_top, unite
from stages.reconstruct.state import BOTTOM, COMPILED, EMPTY, FORWARD, NO_OP, NONE, PATIENCE, SHORT, SURE, UNKNOWN
from stages.reconstruct.tokens import Entry, Token
from stages.reconstruct.ways import remember, resolve, root
from stages.reconstruct.window import BLOCK, E_LOST, credit_block, keep, lose, sure, tell

CELL = AT["CELL"]
OP, TOOK, ENTER, CLEAR, BEHIND_CALL, THROW, RETHROW, UPCALL, UPRETURN, IN_COMPILED, LOST, DEOPT = (
    int(t) for t in Token
)
SYNCHRONIZED = int(Entry.SYNCHRONIZED)


@apart
def _settle(g, s, c, t, flags, order, passed):  # type: ignore[no-untyped-def]
    """The next frontier is made: it becomes that of now."""
    certain = s.at[STEP] == 0 and s.at[COUNT] == 1 and s.at[SCANNED] < 0
    n = s.at[NEXT]
    if n == 0:
        lose(s, order, passed)
        return
    popped = np.int64(s.front.cell[0])
    for i in range(n):
        s.front.node[i], s.front.cell[i] = s.next.node[i], s.next.cell[i]
    s.at[COUNT] = n
    event = s.next.event[0]
    before = np.int64(-1)
    if s.at[POPPED]:
        began = s.at[BEGAN]
        if s.at[SCANNED] >= 0:
            flags, before = flags | SHORT, began - 1
        proven_as(s, s.at[POPPED])
        if began > 0:  # the search within which that one began
            s.at[BEGAN] = s.steps.began[began - 1]
        s.at[POPPED] = 0
    if n > 1 and s.at[SCANNED] >= 0 and one_on_top(s):
        if s.at[SCANNED] - s.at[ALONE] >= SURE:
            unite(s)
            n = 1
    elif n > 1:
        s.at[ALONE] = s.at[SCANNED]
    if certain and n == 1 and s.next.back[0] >= 0:
        if s.at[SCANNED] >= 0:  # that is left for a frame which is not proven
            if s.at[TOLD]:
                tell(s, event, -1, -1, order, passed)
            keep(s, -E_LOST, order)
            root(g, s, c, t, order, passed)
            return
        sure(g, s, c, np.int64(s.front.node[0]), np.int64(s.front.cell[0]), event, flags, order, passed)
        if (event == E_RETURN or event == E_UNWIND or event == E_BACK) and popped == s.at[CELL] - 1:
            s.at[CELL] -= 1  # nobody else has it
        if s.at[BLOCK]:
            m = owner(g, np.int64(s.front.node[0]))
            for b in range(s.at[BLOCK]):
                credit_block(c, s, t, m if event == E_ENTER else np.int64(NONE), s.block[b])
            s.at[BLOCK] = 0
        return
    remember(g, s, c, t, flags, order, passed)
    s.steps.before[s.at[STEP] - 1] = before if before < s.at[STEP] - 1 else -1
    if n == 1 and (s.at[SCANNED] < 0 or s.at[SCANNED] - s.at[ALONE] >= SURE):
        if s.at[SCANNED] >= 0:
            cut(g, s)
        resolve(g, s, c, t)


@apart
def _op(g, s, c, t, op, bytecodes, order, passed):  # type: ignore[no-untyped-def]
    s.at[NEXT] = 0
    unknown = s.at[COUNT] == 1 and s.front.node[0] == UNKNOWN
    if s.at[SCANNED] >= 0 and (s.front.node[0] != UNKNOWN or s.at[PHASE] == ENTERED):
        s.at[SCANNED] += 1  # a frame of an unknown method explains everything
    if unknown and s.at[PHASE] == RUN:
        begin(g, t.index, s, op)
    elif s.at[COUNT]:
        s.at[BEFORE] = NO_OP << 8 | NO_OP
    if s.at[COUNT] and s.at[NEXT] == 0:
        on_op(g, s, t, op)
        while s.at[NEXT] == 0 and s.at[COUNT] and fall_back(s, order, passed):
            on_op(g, s, t, op)
    if s.at[NEXT]:
        _settle(g, s, c, t, bytecodes, order, passed)
    s.at[NEXT] = 0
    if s.at[COUNT] > 1 and s.front.node[0] == UNKNOWN:
        s.at[WAITED] += 1  # nothing will tell them apart soon
        if s.at[WAITED] > PATIENCE[1]:
            fall_back(s, order, passed)
    elif s.at[COUNT] > 1:
        s.at[WAITED] = 0
    if s.at[COUNT] == 0:
        begin(g, t.index, s, op)
        if s.at[NEXT]:
            _settle(g, s, c, t, bytecodes, order, passed)
    s.at[PHASE], s.at[TAKEN], s.at[LAST] = RUN, 0, KIND[op]


@apart
def _native(g, s, c, t, order, passed):  # type: ignore[no-untyped-def]
    s.at[NEXT] = 0
    on_native(g, s, t)
    while s.at[NEXT] == 0 and s.at[COUNT] and fall_back(s, order, passed):
        on_native(g, s, t)
    s.at[PHASE], s.at[LAST], s.at[TAKEN] = RUN, RETURN, 0
    if s.at[COUNT]:
        _settle(g, s, c, t, 0, order, passed)


@apart
def _lead(g, s, t, kind):  # type: ignore[no-untyped-def]
    """UPRETURN: the state that the boundary keeps, −1 for none."""
    if kind == BEHIND_CALL:
        on_behind(g, s)
    elif kind == THROW:
        on_throw(s)
    elif kind == RETHROW:
        on_rethrow(g, s)
    elif kind == DEOPT:
        on_deoptimised(g, s, t)
    elif kind == UPRETURN:
        return on_upreturn(s)
    return np.int64(-1)


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
        second = t.templates[2 * argument + 1]
        _op(g, s, c, t, t.templates[2 * argument], 0 if second != NO_OP else 1, order, passed)
        if second != NO_OP:  # both are counted with it, or none: they have one block
            _op(g, s, c, t, second, 2, order, passed)
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
            remember(g, s, c, t, FORWARD, order, passed)
        return
    if kind == IN_COMPILED:
        if s.at[COUNT] == 0:
            s.front.node[0], s.front.cell[0], s.at[COUNT], s.at[TOLD] = COMPILED, EMPTY, 1, 0
            s.at[PHASE] = RUN
        elif s.at[COUNT] > 1 or s.front.node[0] != COMPILED:
            on_compiled(g, s)
            while s.at[NEXT] == 0 and s.at[COUNT] and fall_back(s, order, passed):
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
    else:
        bits = _lead(g, s, t, kind)
        while s.at[NEXT] == 0 and s.at[COUNT] and fall_back(s, order, passed):
            bits = _lead(g, s, t, kind)
        if kind == BEHIND_CALL:
            s.at[PHASE] = BEHIND
        elif kind == THROW or kind == RETHROW:
            s.at[PHASE] = THROWN
        elif kind == DEOPT:
            s.at[PHASE] = DEOPTIMISED
        elif bits >= 0:
            unpack(s, bits)
    _settle(g, s, c, t, 0, order, passed)

"""Which candidates explain the next token: kernels over a frontier (JPortal, Definition 4.1, with a stack).

Each function makes the next frontier of the one that is: `emit` adds a candidate, and where it came from. A candidate
that does not explain the token is dropped.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.callees import NATIVE as NATIVE_FLAG
from jvm.bytecode.icfg import NO_HANDLERS, opening_of
from jvm.bytecode.opcodes import Kind
from jvm.kernels import apart, near
from stages.reconstruct.anywhere import any_entry, returned_below
from stages.reconstruct.candidates import (
    ABSTRACT,
    ALONE,
    BEHIND,
    CALL,
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
    LAST,
    NATIVE_ENTRY,
    NEXT,
    PHASE,
    RETURN,
    RUN,
    SCANNED,
    SYNCHRONIZED,
    TAKEN,
    THROWN,
    TOLD,
    below,
    emit,
    is_bottom,
    is_boundary,
    is_compiled,
    is_native,
    kept,
    pushed,
    resumed,
    scope_of,
)
from stages.reconstruct.state import (
    BACK_NONE,
    BACK_SEVERAL,
    BOTTOM,
    BOUNDARY,
    COMPILED,
    EMPTY,
    MAYBE,
    NATIVE,
    NONE,
    SURE,
    UNKNOWN,
)


@apart
def _jumped_back(g, s, i, node, op):  # type: ignore[no-untyped-def]
    """RET: behind any JSR of the method."""
    m = g.nodes.method[node]
    for other in range(g.methods.entry[m], g.methods.entry[m] + g.methods.nodes[m]):
        if g.nodes.kind[other] == Kind.JSR and g.nodes.opcode[other + 1] == op:
            emit(s, np.int64(other + 1), np.int64(s.front.cell[i]), i, E_NONE)


@apart
def _handled(g, s, i, node, op):  # type: ignore[no-untyped-def]
    m = g.nodes.method[node]
    if g.methods.flags[m] & NO_HANDLERS:
        for other in range(g.methods.entry[m], g.methods.entry[m] + g.methods.nodes[m]):
            if g.nodes.opcode[other] == op:
                emit(s, np.int64(other), np.int64(s.front.cell[i]), i, E_NONE)
        return
    for k in range(g.methods.handler[m], g.methods.handler[m] + g.methods.handlers[m]):
        to = g.handler[4 * k + 2]
        if g.handler[4 * k] <= node < g.handler[4 * k + 1] and g.nodes.opcode[to] == op:
            emit(s, np.int64(to), np.int64(s.front.cell[i]), i, E_NONE)


@apart
def _callees(g, node):  # type: ignore[no-untyped-def]
    """Where the callees of a call begin, and how many they are; −1: open."""
    call = g.sites.call[g.nodes.target[node]]
    return np.int64(g.calls.callee[call]), np.int64(g.calls.callees[call])


@near
def _call(g, s, t, node):  # type: ignore[no-untyped-def]
    """The bytecode at which the frame on top calls; NONE: it is not known. Of compiled code it may be no invoke: what
    it calls then is the VM, or code of the JVM's own."""
    if node == COMPILED:
        call = scope_of(g, s, t, s.at[CALLED], 0)
        return call if call >= 0 and g.nodes.kind[call] == CALL else np.int64(NONE)
    return np.int64(node) if node >= 0 else np.int64(NONE)


@apart
def _entered(g, s, t, i, op):  # type: ignore[no-untyped-def]
    """The first bytecode of a method that candidate i called."""
    node = np.int64(s.front.node[i])
    opening = opening_of(op, s.at[ENTRY] == SYNCHRONIZED, s.at[CLEARED])
    call = _call(g, s, t, node)
    if call >= 0:
        if g.nodes.kind[call] != CALL:
            return
        first, count = _callees(g, call)
        if count >= 0:
            before, cell = s.at[NEXT], np.int64(NONE)
            for k in range(first, first + count):
                m = g.callee[k]
                if g.methods.opening[m] == opening:
                    cell = pushed(s, kept(s, node), np.int64(s.front.cell[i])) if cell == NONE else cell
                    emit(s, np.int64(g.methods.entry[m]), cell, i, E_ENTER)
            if s.at[NEXT] == before and s.at[COUNT] == 1:  # a class that is not known, or not yet
                emit(s, np.int64(UNKNOWN), pushed(s, kept(s, node), np.int64(s.front.cell[i])), i, E_ENTER)
            return
    elif is_native(node):
        return
    if s.at[COUNT] == 1 and s.at[FALLBACK] < 0:
        any_entry(g, s, i, opening)
    else:
        emit(s, np.int64(UNKNOWN), pushed(s, kept(s, node), np.int64(s.front.cell[i])), i, E_ENTER)


@apart
def on_op(g, s, t, op):  # type: ignore[no-untyped-def]
    """A bytecode is dispatched."""
    phase = s.at[PHASE]
    for i in range(s.at[COUNT]):
        node = np.int64(s.front.node[i])
        if phase == ENTERED:
            _entered(g, s, t, i, op)
        elif node == UNKNOWN:
            emit(s, np.int64(UNKNOWN), np.int64(s.front.cell[i]), i, E_NONE)
        elif is_bottom(node):
            if phase == BEHIND and s.at[COUNT] == 1:
                returned_below(g, s, i, op)
        elif node < 0:
            continue
        elif phase == THROWN:
            _handled(g, s, i, node, op)
        else:
            kind = g.nodes.kind[node]
            to = np.int64(NONE)
            if phase == DEOPTIMISED:
                to = np.int64(g.nodes.next[node])
                if g.nodes.opcode[node] == op:
                    emit(s, node, np.int64(s.front.cell[i]), i, E_NONE)
            elif phase == BEHIND or kind == Kind.PLAIN:
                to = np.int64(g.nodes.next[node])
            elif kind == Kind.CONDITIONAL:
                to = np.int64(g.nodes.target[node] if s.at[TAKEN] else g.nodes.next[node])
            elif kind == Kind.GOTO or kind == Kind.JSR:
                to = np.int64(g.nodes.target[node])
            elif kind == Kind.SWITCH:
                for k in range(g.nodes.target[node], g.nodes.target[node] + g.nodes.arms[node]):
                    if g.nodes.opcode[g.arm[k]] == op:
                        emit(s, np.int64(g.arm[k]), np.int64(s.front.cell[i]), i, E_NONE)
            elif kind == Kind.RET:
                _jumped_back(g, s, i, node, op)
            if to >= 0 and g.nodes.opcode[to] == op:
                emit(s, np.int64(to), np.int64(s.front.cell[i]), i, E_NONE)


@apart
def on_native(g, s, t):  # type: ignore[no-untyped-def]
    """A method is entered that has no bytecode, or none that runs."""
    native = s.at[ENTRY] == NATIVE_ENTRY
    for i in range(s.at[COUNT]):
        node = np.int64(s.front.node[i])
        if is_native(node) or is_bottom(node) or (node >= 0 and g.nodes.kind[node] != CALL):
            continue
        cell, call = np.int64(NONE), _call(g, s, t, node)
        if call >= 0 and s.at[ENTRY] != ABSTRACT:
            first, count = _callees(g, call)
            for k in range(first, first + max(count, 0)):
                m = g.callee[k]
                if not native or g.methods.flags[m] & NATIVE_FLAG:
                    cell = pushed(s, kept(s, node), np.int64(s.front.cell[i])) if cell == NONE else cell
                    emit(s, np.int64(NATIVE - m), cell, i, E_ENTER)
        if cell == NONE:
            emit(s, np.int64(UNKNOWN), pushed(s, kept(s, node), np.int64(s.front.cell[i])), i, E_ENTER)


@apart
def _pop_to_interpreter(g, s, i, event):  # type: ignore[no-untyped-def]
    """The frame on top is gone, and one of the interpreter goes on."""
    node, cell = below(g, s, i)
    if node == MAYBE:  # it was nothing: the stack is told anew
        s.at[TOLD] = 0
        node, cell = (s.cells.node[cell], s.cells.below[cell]) if cell != EMPTY else (BOTTOM, EMPTY)
    if (node >= 0 and g.nodes.kind[node] == CALL) or node == UNKNOWN or is_bottom(node):
        short = s.at[FALLBACK] >= 0 and s.at[DEPTH] == 1 and s.at[SCANNED] - s.at[ALONE] < SURE
        emit(s, np.int64(node), cell, BACK_SEVERAL if short else i, event)


@apart
def on_behind(g, s):  # type: ignore[no-untyped-def]
    """A call has returned to the interpreter."""
    for i in range(s.at[COUNT]):
        node = np.int64(s.front.node[i])
        calls = s.at[PHASE] == RUN and (
            s.at[LAST] == CALL if node == UNKNOWN else node >= 0 and g.nodes.kind[node] == CALL
        )
        if calls:  # of its callee nothing was seen
            emit(s, np.int64(node), np.int64(s.front.cell[i]), i, E_NONE)
        elif node == COMPILED:
            _pop_to_interpreter(g, s, i, E_BACK)
        elif node == UNKNOWN or is_native(node) or (node >= 0 and s.at[PHASE] == RUN and g.nodes.kind[node] == RETURN):
            _pop_to_interpreter(g, s, i, E_RETURN)


@apart
def on_rethrow(g, s):  # type: ignore[no-untyped-def]
    """An exception arrives in a frame of the interpreter: out of the frame above if it was thrown there or that is
    compiled, else out of the VM (JDK: InterpreterRuntime and the stub forward_exception)."""
    for i in range(s.at[COUNT]):
        node = np.int64(s.front.node[i])
        if node == COMPILED:
            _pop_to_interpreter(g, s, i, E_BACK)
        elif is_boundary(node) or is_bottom(node):
            continue
        elif s.at[PHASE] == THROWN:
            _pop_to_interpreter(g, s, i, E_UNWIND)
        else:
            emit(s, np.int64(node), np.int64(s.front.cell[i]), i, E_NONE)


@apart
def on_throw(s):  # type: ignore[no-untyped-def]
    """An exception is thrown in the frame on top."""
    for i in range(s.at[COUNT]):
        if s.front.node[i] >= 0 or s.front.node[i] == UNKNOWN or is_native(s.front.node[i]):
            emit(s, np.int64(s.front.node[i]), np.int64(s.front.cell[i]), i, E_NONE)


@apart
def _leave(g, s, i, event):  # type: ignore[no-untyped-def]
    """The frame on top is gone, and compiled code goes on."""
    node, cell = below(g, s, i)
    if is_compiled(node):
        emit(s, resumed(s, node), cell, i, event)
    elif is_bottom(node):
        emit(s, np.int64(COMPILED), np.int64(EMPTY), i, event)


@apart
def on_compiled(g, s):  # type: ignore[no-untyped-def]
    """Compiled code runs: called by the frame on top, or what it returns or throws to, or in its place (OSR)."""
    for i in range(s.at[COUNT]):
        node = np.int64(s.front.node[i])
        kind = np.int64(g.nodes.kind[node]) if node >= 0 else s.at[LAST]
        if node == COMPILED:
            emit(s, np.int64(COMPILED), np.int64(s.front.cell[i]), i, E_NONE)
        elif is_boundary(node):
            emit(s, np.int64(COMPILED), pushed(s, node, np.int64(s.front.cell[i])), i, E_COMPILED)
        elif is_bottom(node):
            continue
        elif is_native(node):
            _leave(g, s, i, E_RETURN)
        elif s.at[PHASE] == THROWN:
            _leave(g, s, i, E_UNWIND)
        elif s.at[PHASE] != RUN:
            continue
        elif kind == CALL:
            emit(s, np.int64(COMPILED), pushed(s, node, np.int64(s.front.cell[i])), i, E_COMPILED)
        elif kind == RETURN:
            _leave(g, s, i, E_RETURN)
        elif kind == Kind.CONDITIONAL or kind == Kind.GOTO or kind == Kind.SWITCH:
            emit(s, np.int64(COMPILED), np.int64(s.front.cell[i]), i, E_OSR)


@apart
def on_deoptimised(g, s, t):  # type: ignore[no-untyped-def]
    """The frame of the nmethod that ran last becomes frames of the interpreter: the scopes at the last call, if this
    nmethod made it. Whether there is a compiled frame below it is not known."""
    place, here = s.at[CALLED], s.at[HERE]
    if s.at[COUNT] != 1 or s.front.node[0] != COMPILED or s.at[SCANNED] >= 0 or place < 0 or here < 0:
        return
    if t.place.version[place] != t.place.version[here] or t.place.scopes[place] == 0:
        return
    s.at[CALLED] = -1
    cell = pushed(s, MAYBE, np.int64(s.front.cell[0]))
    for k in range(t.place.scopes[place] - 1, 0, -1):
        node = scope_of(g, s, t, place, k)
        cell = pushed(s, node if node >= 0 else np.int64(UNKNOWN), cell)
    node = scope_of(g, s, t, place, 0)
    s.at[TOLD] = 0
    emit(s, node if node >= 0 else np.int64(UNKNOWN), cell, 0, E_NONE)


LAST_AT = 4  # in `packed`


@near
def packed(s):  # type: ignore[no-untyped-def]
    """The state of the frame on top, as a number below 1 << 12."""
    return s.at[PHASE] | s.at[TAKEN] << 3 | s.at[LAST] << LAST_AT | s.at[ENTRY] << 8


@near
def unpack(s, bits):  # type: ignore[no-untyped-def]
    s.at[PHASE], s.at[TAKEN], s.at[LAST], s.at[ENTRY] = bits & 7, bits >> 3 & 1, bits >> LAST_AT & 15, bits >> 8


@apart
def on_upcall(s):  # type: ignore[no-untyped-def]
    """The VM calls Java, whatever the frame on top was doing."""
    bits = packed(s)
    for i in range(s.at[COUNT]):
        cell = pushed(s, kept(s, s.front.node[i]), np.int64(s.front.cell[i]))
        emit(s, np.int64(BOUNDARY - bits), cell, i, E_UPCALL)
    if s.at[COUNT] == 0:
        emit(s, np.int64(BOUNDARY - bits), np.int64(EMPTY), np.int64(BACK_NONE), E_UPCALL)


@apart
def on_upreturn(s):  # type: ignore[no-untyped-def]
    """Java returns to the VM. The state that the boundary keeps; −1: there is none below any candidate."""
    bits = np.int64(-1)
    for i in range(s.at[COUNT]):
        node, cell = np.int64(s.front.node[i]), np.int64(s.front.cell[i])
        while not is_boundary(node) and cell != EMPTY:
            node, cell = np.int64(s.cells.node[cell]), np.int64(s.cells.below[cell])
        if is_boundary(node) and cell != EMPTY:
            bits = BOUNDARY - node
            node = np.int64(s.cells.node[cell])
            emit(s, resumed(s, node) if is_compiled(node) else node, np.int64(s.cells.below[cell]), i, E_UPRETURN)
    return bits

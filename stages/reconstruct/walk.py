"""Along the paths of a thread: tokens to the frontier, and what is sure to the counts and events."""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.icfg import Graph
from jvm.bytecode.opcodes import KIND, Kind
from jvm.kernels import apart, kernel, near
from stages.columns import pointers_to
from stages.messages.paths import BREAK, FIRST_PATH, PathKind
from stages.messages.reports import Break
from stages.reconstruct.anywhere import begin
from stages.reconstruct.candidates import (
    ALONE,
    AT,
    BEFORE,
    BEHIND,
    CLEARED,
    COUNT,
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
    WORK,
    emit,
    is_native,
    owner,
    pushed,
)
from stages.reconstruct.frontier import (
    on_behind,
    on_compiled,
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
    BLOCKS,
    BOTTOM,
    COMPILED,
    EMPTY,
    EVENTS,
    FORWARD,
    NO_OP,
    NONE,
    PATIENCE,
    SURE,
    UNKNOWN,
    Counts,
    State,
)
from stages.reconstruct.tokens import Entry, Token
from stages.reconstruct.window import (
    BLOCK,
    ELEMENT,
    EVENT,
    ROOM,
    ROW,
    RUNS_COMPILED,
    SEEN,
    STEP,
    TOLD,
    TOUCHED,
    Blocks,
    credit_block,
    lose,
    remember,
    resolve,
    root,
    sure,
    tell,
)

CELL, ORDER, PASSED, SUSPECT, LAST_PATH, PART = (
    AT[name] for name in ("CELL", "ORDER", "PASSED", "SUSPECT", "LAST_PATH", "PART")
)
OP, TOOK, ENTER, CLEAR, BEHIND_CALL, THROW, RETHROW, UPCALL, UPRETURN, IN_COMPILED, LOST = (int(t) for t in Token)
SYNCHRONIZED = int(Entry.SYNCHRONIZED)
OF_PATHS = int(PathKind.OF_PATHS)
PLAIN, CONDITIONAL, GOTO = int(Kind.PLAIN), int(Kind.CONDITIONAL), int(Kind.GOTO)
OFF_CODE = int(Break.OFF_CODE)
graph_at, state_at, counts_at, blocks_at = (pointers_to(kind) for kind in (Graph, State, Counts, Blocks))


@apart
def _fall_back(s):  # type: ignore[no-untyped-def]
    """No method that is known fits since the last call of one that might be any: it is not known."""
    cell = s.at[FALLBACK]
    for _ in range(s.at[DEPTH] - 1):
        cell = pushed(s, UNKNOWN, cell)
    s.at[SCANNED], s.at[FALLBACK], s.at[NEXT] = -1, -1, 0
    s.at[STEP] = s.at[ELEMENT] = s.at[BLOCK] = s.at[TOLD] = 0
    emit(s, UNKNOWN, cell, BACK_NONE, E_NONE)


@apart
def _settle(g, s, c, t, flags, order, passed):  # type: ignore[no-untyped-def]
    """The next frontier is made: it becomes that of now."""
    certain = s.at[STEP] == 0 and s.at[COUNT] == 1 and s.at[SCANNED] < 0
    if s.at[NEXT] == 0 and s.at[FALLBACK] >= 0:
        _fall_back(s)
    n = s.at[NEXT]
    if n == 0:
        lose(s)
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
def _op(g, s, c, t, op, bytecodes, order, passed):  # type: ignore[no-untyped-def]
    s.at[NEXT] = 0
    if s.at[SCANNED] >= 0 and (s.front.node[0] != UNKNOWN or s.at[PHASE] == ENTERED):
        s.at[SCANNED] += 1  # a frame of an unknown method explains everything
    if s.at[COUNT]:
        on_op(g, s, op)
        _settle(g, s, c, t, bytecodes, order, passed)
    s.at[NEXT] = 0
    if s.at[COUNT] > 1 and s.front.node[0] == UNKNOWN:
        s.at[WAITED] += 1  # nothing will tell them apart soon
        if s.at[WAITED] > PATIENCE[1]:
            lose(s)
    elif s.at[COUNT]:
        s.at[WAITED] = 0
    if s.at[COUNT] == 0:
        begin(g, t.index, s, op)
        if s.at[NEXT]:
            _settle(g, s, c, t, bytecodes, order, passed)
    s.at[PHASE], s.at[TAKEN], s.at[LAST] = RUN, 0, KIND[op]


@apart
def _native(g, s, c, t, order, passed):  # type: ignore[no-untyped-def]
    s.at[NEXT] = 0
    on_native(g, s)
    s.at[PHASE], s.at[LAST], s.at[TAKEN] = RUN, RETURN, 0
    if s.at[COUNT]:
        _settle(g, s, c, t, 0, order, passed)


@apart
def _token(g, s, c, t, kind, argument, order, passed):  # type: ignore[no-untyped-def]
    if kind != OP and s.at[COUNT] == 0:
        s.at[BEFORE] = NO_OP << 8 | NO_OP
    if kind == TOOK:
        s.at[TAKEN] = 1
        return
    if kind == CLEAR:
        s.at[CLEARED] += 1
        return
    if kind == LOST:
        lose(s)
        return
    if kind != ENTER and s.at[PHASE] == ENTERED and s.at[ENTRY] == INTRINSIC:
        _native(g, s, c, t, order, passed)  # it did not go on to another entry
    if kind == OP:
        _op(g, s, c, t, t.templates[2 * argument], 1, order, passed)
        if t.templates[2 * argument + 1] != NO_OP:
            _op(g, s, c, t, t.templates[2 * argument + 1], 1, order, passed)
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
            return
        if s.at[COUNT] == 1 and s.front.node[0] == COMPILED:
            return
        on_compiled(g, s)
        s.at[PHASE] = RUN
    elif kind == UPCALL:
        nothing = s.at[COUNT] == 0
        on_upcall(s)
        s.at[PHASE], s.at[LAST], s.at[TAKEN] = RUN, 0, 0
        if nothing:
            s.front.node[0], s.front.cell[0], s.at[COUNT], s.at[TOLD] = s.next.node[0], s.next.cell[0], 1, 0
            return
    elif s.at[COUNT] == 0:
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
    elif kind == UPRETURN:
        bits = on_upreturn(s)
        if bits >= 0:
            unpack(s, bits)
    _settle(g, s, c, t, 0, order, passed)


@near
def _quick(g, s, c, t, b):  # type: ignore[no-untyped-def]
    """The common case without a call: one candidate, and a block that says nothing, or that its next bytecode is
    dispatched. Whether that was it."""
    at = s.at
    if at[COUNT] != 1 or at[STEP] != 0 or at[PHASE] != RUN or not at[TOLD] or at[SCANNED] >= 0:
        return False
    node = np.int64(s.front.node[0])
    if node < 0 or t.count[b] > 1:
        return False
    if t.count[b] == 1:
        first = t.first[b]
        if t.token[first] == TOOK:
            at[TAKEN] = 1
        elif t.token[first] == OP and t.templates[2 * t.argument[first] + 1] == NO_OP:
            op, kind = t.templates[2 * t.argument[first]], g.nodes.kind[node]
            to = np.int64(NONE)
            if kind == PLAIN or (kind == CONDITIONAL and not at[TAKEN]):
                to = np.int64(g.nodes.next[node])
            elif kind == CONDITIONAL or kind == GOTO:
                to = np.int64(g.nodes.target[node])
            if to < 0 or g.nodes.opcode[to] != op:
                return False
            s.front.node[0] = node = to
            at[TAKEN], at[LAST] = 0, KIND[op]
            m = g.nodes.method[node]
            if c.bytecodes[m] == 0 and c.invocations[m] == 0 and c.instructions[m] == 0:
                c.seen[at[SEEN]] = m
                at[SEEN] += 1
            c.bytecodes[m] += 1
            s.events.bytecodes[at[EVENT] - 1] += 1
        else:
            return False
    if t.weight[b] > 0:
        m = g.nodes.method[node]
        if c.times[b] == 0:
            c.touched[at[TOUCHED]] = b
            at[TOUCHED] += 1
        c.times[b] += 1
        if c.bytecodes[m] == 0 and c.invocations[m] == 0 and c.instructions[m] == 0:
            c.seen[at[SEEN]] = m
            at[SEEN] += 1
        c.instructions[m] += t.weight[b]
    return True


@apart
def _run_block(g, s, c, t, b, order, passed):  # type: ignore[no-untyped-def]
    first, count = np.int64(t.first[b]), np.int64(t.count[b])
    if count:
        _token(g, s, c, t, t.token[first], t.argument[first], order, passed)
    if t.weight[b] > 0 and s.at[COUNT]:
        if s.at[STEP] == 0 and s.at[PHASE] != ENTERED:
            credit_block(c, s, t, owner(g, np.int64(s.front.node[0])), b)
        elif s.at[BLOCK] < BLOCKS:
            s.block[s.at[BLOCK]] = b
            s.at[BLOCK] += 1
        else:
            lose(s)
    for k in range(first + 1, first + count):
        _token(g, s, c, t, t.token[k], t.argument[k], order, passed)


@near
def _run_path(g, s, c, t, paths, links, x, order, passed):  # type: ignore[no-untyped-def]
    """All blocks of a path; how many they are."""
    n = np.int64(0)
    for q in range(paths[x]["link"], paths[x]["link"] + paths[x]["links"]):
        part = np.int64(links[q]["number"])
        if paths[x]["kind"] == OF_PATHS:
            first, end = paths[part]["link"], paths[part]["link"] + paths[part]["links"]
        else:
            first, end = q, q + 1
        for r in range(first, end):
            b = np.int64(links[r]["number"])
            if not _quick(g, s, c, t, b):
                _run_block(g, s, c, t, b, order, passed + n)
            n += 1
    return n


@apart
def _native_on_top(s):  # type: ignore[no-untyped-def]
    """What the interpreter runs for a native method has code that is made while it runs, and may not be known (JDK:
    SignatureHandlerLibrary). It is left by an indirect jump, at which the walk goes on: no token is missed."""
    for i in range(s.at[COUNT]):
        if not is_native(s.front.node[i]):
            return False
    return s.at[COUNT] > 0


@kernel
def walk(graph, state, counts, tokens, paths, links, order, ends, fresh, rows, broken_at, broken_end, breaks, budget):  # type: ignore[no-untyped-def]
    """The parts [ends[k, 0], ends[k, 1]) of `order` that a thread went along, from part at[PART] on.

    `fresh`: nothing is known at the beginning of a part. It returns the part to go on with, len(ends) at the end: a
    call handles about `budget` blocks, and stops where the events need room. Where it is: at[ORDER], at[PASSED]."""
    g, s, c, t = graph_at(graph), state_at(state), counts_at(counts), blocks_at(tokens)
    k = s.at[PART]
    if s.at[ORDER] >= 0 and s.at[EVENT] == 0 and s.at[COUNT] and s.at[TOLD]:  # those before have been taken
        tell(s, E_NONE, -1, -1, s.at[ORDER], 0)
    while k < len(ends):
        if s.at[ORDER] < 0:  # its beginning
            s.at[ORDER], s.at[PASSED], s.at[SUSPECT], s.at[LAST_PATH] = ends[k, 0], 0, broken_at[k], 0
            s.at[ROW] = rows[k]
            if fresh[k]:
                lose(s)
            if s.at[COUNT] and s.at[TOLD]:
                tell(s, E_NONE, -1, -1, s.at[ORDER], 0)
        while s.at[ORDER] < ends[k, 1]:
            j, q = s.at[ORDER], s.at[SUSPECT]
            if budget <= 0 or s.at[EVENT] > EVENTS - ROOM:
                s.at[PART] = k
                return k
            if q < broken_end[k] and j >= breaks[q]["confirmed"]:
                s.at[ORDER], s.at[SUSPECT] = max(j, breaks[q]["order"] + 1), q + 1
                if (
                    breaks[q]["cause"] != OFF_CODE
                    or breaks[q]["confirmed"] < breaks[q]["order"]
                    or not _native_on_top(s)
                ):
                    lose(s)
                continue
            x = np.int64(order[j])
            times = np.int64(1)
            if x < 0:
                times = -x
                x = s.at[LAST_PATH]
            elif x >= FIRST_PATH:
                s.at[LAST_PATH] = x
            if x < FIRST_PATH:
                if x == BREAK:
                    lose(s)
                s.at[ORDER] = j + 1
                continue
            budget -= 1
            quiet = t.quiet[x]
            if quiet:
                if quiet & RUNS_COMPILED:
                    _token(g, s, c, t, IN_COMPILED, 0, j, 0)
                s.at[ORDER], s.at[PASSED] = j + 1, 0
                continue
            done = s.at[PASSED]
            length = np.int64(0)
            repeated = np.int64(0)
            if done:  # cut between two rounds
                repeated = done & 0xFFFFFFFF
                length = done >> 32
            stopped = False
            while repeated < times:
                if budget <= 0 or s.at[EVENT] > EVENTS - ROOM:
                    stopped = True
                    break
                length = _run_path(g, s, c, t, paths, links, x, j, repeated * length)
                repeated += 1
                budget -= length + s.at[WORK]
                s.at[WORK] = 0
            if stopped:
                s.at[PASSED], s.at[PART] = length << 32 | repeated, k
                return k
            s.at[ORDER], s.at[PASSED] = j + 1, 0
        s.at[ORDER] = -1
        k += 1
    s.at[PART] = k
    return k


@kernel
def open_window(state):  # type: ignore[no-untyped-def]
    """At the beginning of a piece: its candidates are taken along without their past."""
    s = state_at(state)
    if s.at[COUNT] > 1 or (s.at[COUNT] == 1 and s.at[SCANNED] >= 0):
        root(s, 0, 0)
        s.at[TOLD] = 0


@kernel
def compact(tops, node, below, used):  # type: ignore[no-untyped-def]
    """Keeps the cells that `tops` lead to, and renumbers them; how many are left."""
    new = np.zeros(used, np.int32)
    for k in range(len(tops)):
        at = tops[k]
        while at != EMPTY and new[at] == 0:
            new[at] = 1
            at = below[at]
    n = np.int32(1)
    for at in range(1, used):
        if new[at]:
            new[at] = n
            node[n], below[n] = node[at], new[below[at]]
            n += 1
    for k in range(len(tops)):
        tops[k] = new[tops[k]]
    return n

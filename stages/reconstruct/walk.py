"""Along the paths of a thread, token after token."""

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
from stages.reconstruct.candidates import (
    AT,
    COUNT,
    E_NONE,
    ENTERED,
    LAST,
    PHASE,
    RUN,
    SCANNED,
    TAKEN,
    WORK,
    is_native,
    owner,
)
from stages.reconstruct.state import (
    BLOCKS,
    EMPTY,
    EVENTS,
    NO_OP,
    NONE,
    Counts,
    State,
)
from stages.reconstruct.tokens import Token
from stages.reconstruct.transition import take_token
from stages.reconstruct.window import (
    BLOCK,
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
    root,
    tell,
)

ORDER, PASSED, SUSPECT, LAST_PATH, PART = (AT[name] for name in ("ORDER", "PASSED", "SUSPECT", "LAST_PATH", "PART"))
OP, TOOK, IN_COMPILED = int(Token.OP), int(Token.TAKEN), int(Token.COMPILED)
OF_PATHS = int(PathKind.OF_PATHS)
PLAIN, CONDITIONAL, GOTO = int(Kind.PLAIN), int(Kind.CONDITIONAL), int(Kind.GOTO)
OFF_CODE = int(Break.OFF_CODE)
graph_at, state_at, counts_at, blocks_at = (pointers_to(kind) for kind in (Graph, State, Counts, Blocks))


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


@near
def _credit(g, s, c, t, b):  # type: ignore[no-untyped-def]
    """A block's instructions are of the method whose bytecode it dispatches first."""
    if s.at[STEP] == 0 and s.at[PHASE] != ENTERED:
        credit_block(c, s, t, owner(g, np.int64(s.front.node[0])), b)
    elif s.at[BLOCK] < BLOCKS:
        s.block[s.at[BLOCK]] = b
        s.at[BLOCK] += 1
    else:
        lose(s)


@apart
def _run_path(g, s, c, t, paths, links, x, order, passed):  # type: ignore[no-untyped-def]
    """All blocks of a path; how many they are."""
    begin = passed
    for q in range(paths[x]["link"], paths[x]["link"] + paths[x]["links"]):
        part = np.int64(links[q]["number"])
        if paths[x]["kind"] == OF_PATHS:
            first, end = paths[part]["link"], paths[part]["link"] + paths[part]["links"]
        else:
            first, end = q, q + 1
        for r in range(first, end):
            b = np.int64(links[r]["number"])
            if not _quick(g, s, c, t, b):
                at, count = np.int64(t.first[b]), np.int64(t.count[b])
                for k in range(at, at + max(count, 1)):
                    if k < at + count:
                        take_token(g, s, c, t, t.token[k], t.argument[k], order, passed)
                    if k == at and t.weight[b] > 0 and s.at[COUNT]:
                        _credit(g, s, c, t, b)
            passed += 1
    return passed - begin


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
                    take_token(g, s, c, t, IN_COMPILED, 0, j, 0)
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

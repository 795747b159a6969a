"""Along the paths of a thread, token after token."""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.icfg import Graph
from jvm.bytecode.opcodes import KIND, Kind
from jvm.kernels import apart, kernel, near
from stages.columns import pointers_to
from stages.messages.paths import BREAK, DISABLED, FIRST_PATH
from stages.messages.reports import Break
from stages.reconstruct.candidates import (
    AT,
    CALLED,
    COUNT,
    E_NONE,
    ENTERED,
    HERE,
    LAST,
    PHASE,
    RUN,
    SCANNED,
    TAKEN,
    WORK,
    is_native,
    owner,
)
from stages.reconstruct.layout import COMPILED_CODE, JUMPS, NOTHING, RUNS_COMPILED
from stages.reconstruct.read_stacks import stacks_at, take_stack
from stages.reconstruct.state import (
    BLOCKS,
    COMPILED,
    EMPTY,
    EVENTS,
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
    SEEN,
    STEP,
    TOLD,
    TOUCHED,
    Blocks,
    credit_block,
    keep,
    lose,
    root,
    tell,
    untold,
)

ORDER, PASSED, SUSPECT, LAST_PATH, PART = (AT[name] for name in ("ORDER", "PASSED", "SUSPECT", "LAST_PATH", "PART"))
AGREED = AT["AGREED"]
OP, IN_COMPILED = int(Token.OP), int(Token.COMPILED)
PLAIN, CONDITIONAL, GOTO = int(Kind.PLAIN), int(Kind.CONDITIONAL), int(Kind.GOTO)
OFF_CODE = int(Break.OFF_CODE)
graph_at, state_at, counts_at, blocks_at = (pointers_to(kind) for kind in (Graph, State, Counts, Blocks))


@near
def _quick(g, s, c, t, p, order):  # type: ignore[no-untyped-def]
    """The common case without a call: one candidate, and a block that says nothing, or that its next bytecode is
    dispatched. Whether that was it."""
    at, says = s.at, np.int64(t.passage.says[p])
    node = np.int64(s.front.node[0])
    if says == COMPILED_CODE:
        if at[COUNT] != 1 or node != COMPILED:
            return False
        _was_at(s, t.passage.called[p], t.passage.here[p])
        return True
    if at[COUNT] != 1 or at[STEP] != 0 or at[PHASE] != RUN or not at[TOLD] or at[SCANNED] >= 0 or node < 0:
        return False
    b = np.int64(t.passage.block[p])
    if says == JUMPS:
        at[TAKEN] = 1
    elif says < 0:
        return False
    elif says != NOTHING:
        kind = g.nodes.kind[node]
        to = np.int64(NONE)
        if kind == PLAIN or (kind == CONDITIONAL and not at[TAKEN]):
            to = np.int64(g.nodes.next[node])
        elif kind == CONDITIONAL or kind == GOTO:
            to = np.int64(g.nodes.target[node])
        if to < 0 or g.nodes.opcode[to] != says:
            return False
        s.front.node[0] = node = to
        at[TAKEN], at[LAST] = 0, KIND[says]
        m = g.nodes.method[node]
        _see(s, c, m)
        c.bytecodes[m] += 1
        s.events.bytecodes[at[EVENT] - 1] += 1
        keep(s, node, order)
    weight = t.of.weight[b]
    if weight > 0:
        m = g.nodes.method[node]
        if c.times[b] == 0:
            c.touched[at[TOUCHED]] = b
            at[TOUCHED] += 1
        c.times[b] += 1
        _see(s, c, m)
        c.instructions[m] += weight
    return True


@near
def _was_at(s, called, here):  # type: ignore[no-untyped-def]
    """Where compiled code was last."""
    if called >= 0:
        s.at[CALLED] = called
    s.at[HERE] = here


@near
def _see(s, c, m):  # type: ignore[no-untyped-def]
    """A method is about to have counts."""
    if c.bytecodes[m] == 0 and c.invocations[m] == 0 and c.instructions[m] == 0:
        c.seen[s.at[SEEN]] = m
        s.at[SEEN] += 1


@near
def _credit(g, s, c, t, b, order, passed):  # type: ignore[no-untyped-def]
    """A block's instructions are of the method whose bytecode it dispatches first."""
    if t.of.weight[b] <= 0 or s.at[COUNT] == 0:
        return
    if s.at[STEP] == 0 and s.at[PHASE] != ENTERED:
        credit_block(c, s, t, owner(g, np.int64(s.front.node[0])), b)
    elif s.at[BLOCK] < BLOCKS:
        s.block[s.at[BLOCK]] = b
        s.at[BLOCK] += 1
    else:
        lose(s, order, passed)


@apart
def _run_path(g, s, c, t, x, order, passed):  # type: ignore[no-untyped-def]
    """All passages of a path, of whose blocks the first is the one numbered `passed`."""
    for p in range(t.path.first[x], t.path.first[x] + t.path.passages[x]):
        if not _quick(g, s, c, t, p, order):
            b = np.int64(t.passage.block[p])
            at, count = np.int64(t.of.first[b]), np.int64(t.of.tokens[b])
            behind = np.int64(0)  # the token that dispatches its bytecode
            for k in range(count):
                behind = k if t.of.token[at + k] == OP else behind
            for k in range(count):
                take_token(g, s, c, t, t.of.token[at + k], t.of.argument[at + k], order, passed + t.passage.nth[p])
                if k == behind:
                    _credit(g, s, c, t, b, order, passed + t.passage.nth[p])
            if t.passage.says[p] == COMPILED_CODE:
                _was_at(s, t.passage.called[p], t.passage.here[p])
            if count == 0:
                _credit(g, s, c, t, b, order, passed + t.passage.nth[p])


@near
def _run_quiet(s, t, order, j, limit, x):  # type: ignore[no-untyped-def]
    """From a quiet path x at j on, over all to which the frontier is blind: where it stops, the last path."""
    calm = s.at[COUNT] == 1 and s.front.node[0] == COMPILED
    called, here = np.int64(t.path.called[x]), np.int64(t.path.here[x])
    j += 1
    while j < limit:
        y = np.int64(order[j])
        if y >= FIRST_PATH:
            quiet = t.path.quiet[y]
            if quiet == 0 or (quiet & RUNS_COMPILED and not calm):
                break
            x = y
            if quiet & RUNS_COMPILED:
                called = np.int64(t.path.called[y]) if t.path.called[y] >= 0 else called
                here = np.int64(t.path.here[y])
        elif y == BREAK:
            break
        j += 1
    if here >= 0:
        _was_at(s, called, here)
    return j, x


@apart
def _native_on_top(s):  # type: ignore[no-untyped-def]
    """What the interpreter runs for a native method has code that is made while it runs, and may not be known (JDK:
    SignatureHandlerLibrary). It is left by an indirect jump, at which the walk goes on: no token is missed."""
    for i in range(s.at[COUNT]):
        if not is_native(s.front.node[i]):
            return False
    return s.at[COUNT] > 0


@near
def _stack_at(n, count, j):  # type: ignore[no-untyped-def]
    """The first stack of `count` that belongs at position `j` or behind it."""
    lo, hi = np.int64(0), np.int64(count)
    while lo < hi:
        middle = (lo + hi) >> 1
        if n.order[middle] < j:
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel
def walk(  # type: ignore[no-untyped-def]
    graph, state, counts, tokens, order, ends, fresh, rows, broken_at, broken_end, breaks, stacks, stacks_read, budget
):  # fmt: skip
    """The parts [ends[k, 0], ends[k, 1]) of `order` that a thread went along, from part at[PART] on.

    `stacks`: those that the agent read (`read_stacks`), `stacks_read` of them. `fresh`: nothing is known at the
    beginning of a part. It returns the part to go on with, len(ends) at the end: a call handles about `budget`
    blocks, and stops where the events need room. Where it is: at[ORDER], at[PASSED]."""
    g, s, c, t = graph_at(graph), state_at(state), counts_at(counts), blocks_at(tokens)
    n = stacks_at(stacks)
    k = s.at[PART]
    if s.at[ORDER] >= 0 and s.at[EVENT] == 0 and s.at[COUNT] and s.at[TOLD] and s.at[STEP] == 0:
        # those before have been taken; what is in the window happened earlier, and has such a one of its own
        tell(s, E_NONE, -1, -1, s.at[ORDER], 0)
    while k < len(ends):
        if s.at[ORDER] < 0:  # its beginning
            s.at[ORDER], s.at[PASSED], s.at[SUSPECT], s.at[LAST_PATH] = ends[k, 0], 0, broken_at[k], 0
            s.at[ROW] = rows[k]
            if fresh[k]:
                lose(s, s.at[ORDER], 0)
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
                    lose(s, j, 0)
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
                    lose(s, j, 0)
                elif x == DISABLED and stacks_read:
                    at = _stack_at(n, stacks_read, j)
                    if at < stacks_read and n.order[at] == j:
                        s.at[AGREED + take_stack(g, s, c, t, n, at, j)] += 1
                s.at[ORDER] = j + 1
                continue
            budget -= 1
            quiet = t.path.quiet[x]
            if quiet:
                if quiet & RUNS_COMPILED and not (s.at[COUNT] == 1 and s.front.node[0] == COMPILED):
                    take_token(g, s, c, t, IN_COMPILED, t.path.here[x], j, 0)
                limit = ends[k, 1]
                if q < broken_end[k]:
                    limit = min(limit, breaks[q]["confirmed"])
                if stacks_read:
                    at = _stack_at(n, stacks_read, j)
                    limit = min(limit, n.order[at]) if at < stacks_read else limit
                at, x = _run_quiet(s, t, order, j, limit, x)
                budget -= at - j >> 4
                s.at[LAST_PATH], s.at[ORDER], s.at[PASSED] = x, at, 0
                continue
            length = t.path.length[x]
            while s.at[PASSED] < times:
                if budget <= 0 or s.at[EVENT] > EVENTS - ROOM:
                    s.at[PART] = k
                    return k
                _run_path(g, s, c, t, x, j, s.at[PASSED] * length)
                s.at[PASSED] += 1
                budget -= t.path.passages[x] + s.at[WORK]
                s.at[WORK] = 0
            s.at[ORDER], s.at[PASSED] = j + 1, 0
        s.at[ORDER] = -1
        k += 1
    if s.at[STEP]:  # the steps in the window stay without a method; the place is that of the first
        untold(s, s.at[ORDER], 0)
    s.at[PART] = k
    return k


@kernel
def open_window(state, row, order):  # type: ignore[no-untyped-def]
    """At the beginning of a piece, there: its candidates are taken along without their past."""
    s = state_at(state)
    s.at[ROW] = row
    if s.at[COUNT] > 1 or (s.at[COUNT] == 1 and s.at[SCANNED] >= 0):
        root(s, order, 0)
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

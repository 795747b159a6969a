"""Steps, worked out block by block: which activations a path leads through from a state, and its *parts*, its share in
the counts of each node. A path of paths is made of their steps, many of which are known when it is new: these are its
parts.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.cct.contexts import arrive, called, child, goes_on, inlined, left, mixed
from stages.cct.tables import (
    A_FN,
    A_NODE,
    B_ENDS,
    B_ITEM,
    B_ITEMS,
    B_WAYS,
    BEHIND,
    CERTAINTIES,
    F_CLASS,
    F_METHOD,
    FN_NMETHOD,
    FN_OUTSIDE,
    FN_PENDING,
    FN_UNPACKS,
    FN_UNWINDS,
    I_BCI,
    I_BYTECODES,
    I_FLAGS,
    I_FN,
    I_INLINED,
    I_INLINED_END,
    I_INSTRUCTIONS,
    I_INVOCATIONS,
    I_PLACE,
    I_RETURN,
    IN_PLACE,
    IN_TIMES,
    ITEM_CALLS,
    JUMPED,
    LEFT,
    OBSERVED,
    R_BYTECODES,
    R_INSTRUCTIONS,
    R_INVOCATIONS,
    R_NODE,
    RETURNED,
    S_INSTRUCTIONS,
    S_NEXT,
    S_PART,
    S_PARTS_END,
    S_PATH,
    S_STATE,
    S_TIMES,
    SPARE_PARTS,
    STUB_RETURNED,
    SUSPECT,
    UNPACKED,
    UNWOUND,
    WENT,
    Z_NOTED,
    Z_PARTS,
    Z_STEPS,
    Z_TOUCHED,
    Z_TOUCHED_LAST,
)
from stages.messages.paths import DISABLED, FIRST_PATH, BlockEnd, PathKind

_FIRST, _DISABLED = FIRST_PATH, DISABLED
_OF_PATHS = int(PathKind.OF_PATHS)
_RETURN, _INDIRECT, _FILTER = int(BlockEnd.RETURN), int(BlockEnd.INDIRECT), int(BlockEnd.FILTER)
_MASK = (1 << BEHIND) - 1
_NONE = np.int64(0)


@inner
def touch(t, s):  # type: ignore[no-untyped-def]
    """Before the times of a step are counted up."""
    if t.step[s, S_TIMES + OBSERVED] | t.step[s, S_TIMES + SUSPECT]:
        return
    begin = t.step[s, S_PART]
    if begin < t.step[s, S_PARTS_END] and t.part[begin, R_NODE] < 0:
        t.touched[t.size[Z_TOUCHED]] = s
        t.size[Z_TOUCHED] += 1
    else:
        t.size[Z_TOUCHED_LAST] += 1
        t.touched[len(t.touched) - t.size[Z_TOUCHED_LAST]] = s


@inner
def settled(t, begin, end, whole, counts, first, ticks, s):  # type: ignore[no-untyped-def]
    """Adds parts [begin, end), of a step of `whole` instructions, to the nodes: it was made counts[s, first:] times, in
    ticks[s]."""
    for k in range(begin, end):
        n = np.int64(t.part[k, R_NODE])
        if n < 0:
            touch(t, -n)
            for c in range(CERTAINTIES):
                t.step[-n, S_TIMES + c] += counts[s, first + c] * t.part[k, R_INVOCATIONS]
                t.ticks[-n, c] += ticks[s, c] * t.part[k, R_INVOCATIONS] * t.step[-n, S_INSTRUCTIONS] / whole
            continue
        was = t.counts[n, 0, 0] | t.counts[n, 0, 1] | t.counts[n, 0, 2]
        if (was | t.counts[n, 1, 0] | t.counts[n, 1, 1] | t.counts[n, 1, 2]) == 0:
            t.noted[t.size[Z_NOTED]] = n
            t.size[Z_NOTED] += 1
        for c in range(CERTAINTIES):
            times = counts[s, first + c]
            if times:
                t.counts[n, c, 0] += times * t.part[k, R_INVOCATIONS]
                t.counts[n, c, 1] += times * t.part[k, R_INSTRUCTIONS]
                t.counts[n, c, 2] += times * t.part[k, R_BYTECODES]
                t.spent[n, c] += ticks[s, c] * t.part[k, R_INSTRUCTIONS] / whole


@inner
def _part(t, begin, whole, node, invocations, instructions, bytecodes, one, ticks):  # type: ignore[no-untyped-def]
    """Adds to the parts, from `begin` on, of the step that is being made. Where there is no room the parts are settled,
    as of a step that is made `one` times: only for that has a step been begun that may have too many."""
    k = np.int64(t.part_of[node])
    end = t.size[Z_PARTS]
    if k < begin or k >= end or t.part[k, R_NODE] != node:
        if end == len(t.part):
            settled(t, begin, end, whole, one, _NONE, ticks, _NONE)
            end = begin
        k = end
        t.size[Z_PARTS] = end + 1
        t.part_of[node] = k
        t.part[k, R_NODE] = node
        t.part[k, R_INVOCATIONS] = t.part[k, R_INSTRUCTIONS] = t.part[k, R_BYTECODES] = 0
    t.part[k, R_INVOCATIONS] += invocations
    t.part[k, R_INSTRUCTIONS] += instructions
    t.part[k, R_BYTECODES] += bytecodes


@inner
def _through(t, c, a, behind, b, way, begin, whole, one, ticks):  # type: ignore[no-untyped-def]
    """Block `b`, from `a`: what it holds becomes parts. The activation behind it, and what the block did."""
    fn, calls, own = np.int64(-1), np.int64(0), np.int64(0)
    a = arrive(t, c.fns, c.place, c.item, a, behind, b)
    for k in range(b[B_ITEM], b[B_ITEM] + b[B_ITEMS]):
        if fn >= 0 and (c.item[k, I_FN] != fn or calls):
            a = goes_on(t, c.fns, c.place, c.item, a, k, b)
        fn = c.item[k, I_FN]
        calls = c.item[k, I_FLAGS] & ITEM_CALLS
        own = t.activation[a, A_NODE]
        if fn != t.activation[a, A_FN]:
            own = child(t, own, c.fns[fn, F_METHOD], np.int64(-1))
        node = own
        if c.fns[fn, F_CLASS] == FN_NMETHOD:
            node = inlined(t, c.place, own, c.item[k, I_PLACE])
        _part(
            t, begin, whole, node, c.item[k, I_INVOCATIONS], c.item[k, I_INSTRUCTIONS], c.item[k, I_BYTECODES], one,
            ticks,
        )  # fmt: skip
        for m in range(c.item[k, I_INLINED], c.item[k, I_INLINED_END]):
            at = inlined(t, c.place, own, c.inline[m, IN_PLACE])
            _part(t, begin, whole, at, c.inline[m, IN_TIMES], _NONE, _NONE, one, ticks)
        if calls:
            a = called(t, c.fns, a, c.item[k, I_RETURN], node, c.item[k, I_BCI])
    if way > 0:
        for m in range(b[B_WAYS + 2 * way - 2], b[B_WAYS + 2 * way - 1]):
            at = inlined(t, c.place, own, c.inline[m, IN_PLACE])
            _part(t, begin, whole, at, c.inline[m, IN_TIMES], _NONE, _NONE, one, ticks)
    behind = np.int64(WENT)
    ends = b[B_ENDS]
    if fn >= 0 and c.fns[t.activation[a, A_FN], F_CLASS] != FN_PENDING:
        kind = c.fns[fn, F_CLASS]
        if ends == _RETURN:
            behind = UNPACKED if kind == FN_UNPACKS else RETURNED if fn == t.activation[a, A_FN] else STUB_RETURNED
        elif ends == _INDIRECT or ends == _FILTER:
            behind = UNWOUND if kind == FN_UNWINDS else JUMPED
    return a, np.int64(behind)


@inner
def _off(t, fns, a, behind):  # type: ignore[no-untyped-def]
    """Tracing goes off: the activation, and what is behind the next block."""
    a = left(t, fns, a, behind)
    return a, np.int64(WENT if behind == WENT and fns[t.activation[a, A_FN], F_CLASS] != FN_OUTSIDE else LEFT)


@inner
def walk(t, c, paths, links, state, x, one, ticks):  # type: ignore[no-untyped-def]
    """Path `x` from `state`: the state behind it. What it holds becomes parts (see `_part`)."""
    a, behind, begin = state >> BEHIND, state & _MASK, t.size[Z_PARTS]
    if x == _DISABLED:
        a, behind = _off(t, c.fns, a, behind)
        return a << BEHIND | behind
    whole = max(paths[x].instructions, 1)
    made = paths[x].kind == _OF_PATHS
    for m in range(paths[x].links if made else 1):
        part = np.int64(links[paths[x].link + m].number) if made else x
        if part == _DISABLED:
            a, behind = _off(t, c.fns, a, behind)
            continue
        for q in range(paths[part].link, paths[part].link + paths[part].links):
            b = c.block[links[q].number]
            if b[B_ITEMS] > 0:
                a, behind = _through(t, c, a, behind, b, links[q].way, begin, whole, one, ticks)
    return a << BEHIND | behind


@inner
def step_of(t, state, x):  # type: ignore[no-untyped-def]
    """The row of a step, 0: not made before; and its slot."""
    mask = len(t.by_state) - 1
    i = mixed(state, x, 0) & mask
    while t.by_state[i] != 0:
        s = np.int64(t.by_state[i])
        if t.step[s, S_STATE] == state and t.step[s, S_PATH] == x:
            return s, i
        i = (i + 1) & mask
    return np.int64(0), i


@inner
def has_room(t, c, paths, x):  # type: ignore[no-untyped-def]
    """Whether there is room for a step of path `x`, whatever it leads through. A block has an instruction."""
    joins = paths[x].links if paths[x].kind == _OF_PATHS else 0
    parts = t.size[Z_PARTS] + joins + paths[x].instructions * c.most
    return t.size[Z_STEPS] + joins < len(t.step) and parts <= len(t.part) - SPARE_PARTS


@inner
def _put(t, state, x, after, slot, begin, end, instructions):  # type: ignore[no-untyped-def]
    """The row of a new step with parts [begin, end)."""
    s = t.size[Z_STEPS]
    t.size[Z_STEPS] = s + 1
    t.by_state[slot] = s
    t.step[s, S_STATE], t.step[s, S_PATH], t.step[s, S_NEXT] = state, x, after
    t.step[s, S_PART], t.step[s, S_PARTS_END], t.step[s, S_INSTRUCTIONS] = begin, end, instructions
    return s


@inner
def new_step(t, c, paths, links, state, x, slot, one, ticks):  # type: ignore[no-untyped-def]
    begin = t.size[Z_PARTS]
    after = walk(t, c, paths, links, state, x, one, ticks)
    return _put(t, state, x, after, slot, begin, t.size[Z_PARTS], paths[x].instructions)


@inner
def joined(t, c, paths, links, state, x, last_step, one, ticks):  # type: ignore[no-untyped-def]
    """A new step of a path of paths."""
    at, of, last = paths[x].link, state, np.int64(0)
    begin = end = t.size[Z_PARTS]
    t.size[Z_PARTS] += paths[x].links
    for m in range(paths[x].links):
        y = np.int64(links[at + m].number)
        s = np.int64(last_step[y])
        if t.step[s, S_STATE] != of or t.step[s, S_PATH] != y:
            s, slot = step_of(t, of, y)
            if s == 0:
                s = new_step(t, c, paths, links, of, y, slot, one, ticks)
            last_step[y] = s
        if s != last:
            t.part[end, R_NODE], t.part[end, R_INVOCATIONS] = -s, 0
            end += 1
        t.part[end - 1, R_INVOCATIONS] += 1
        of, last = t.step[s, S_NEXT], s
    s, slot = step_of(t, state, x)
    return _put(t, state, x, of, slot, begin, end, paths[x].instructions)

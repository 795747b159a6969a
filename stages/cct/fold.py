"""Threads' orders of paths, as steps from state to state, and the steps, as counts by node.

A step is worked out once, block by block: which activations a path leads through from a state, and its *parts*, what it
adds to which nodes. From then on it is one look-up a path, and a number that is counted up; `settle` adds its parts,
once for all the times that it was made. A path of paths is made of their steps, many of which are known when it is new:
its parts are these.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.cct.contexts import arrive, bottom, called, child, goes_on, hole, inlined, left, mixed
from stages.cct.tables import (
    A_FN,
    A_NODE,
    B_ENDS,
    B_FLAGS,
    B_ITEM,
    B_ITEMS,
    B_MOST,
    B_WAYS,
    BEHIND,
    BLOCK_STUB_START,
    CERTAINTIES,
    COUNTS,
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
    LOST,
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
    STARTED,
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
    uncounted,
    uncounted_blocks,
)
from stages.messages.paths import BREAK, DISABLED, FIRST_PATH, BlockEnd, PathKind
from stages.pointers import bare

_FIRST, _DISABLED, _BREAK = FIRST_PATH, DISABLED, BREAK
_OF_PATHS = int(PathKind.OF_PATHS)
_RETURN, _INDIRECT, _FILTER = int(BlockEnd.RETURN), int(BlockEnd.INDIRECT), int(BlockEnd.FILTER)
_MASK = (1 << BEHIND) - 1
_NONE = np.int64(0)

# columns of a thread
T_STATE, T_NODE, TH = range(3)


@inner
def _touch(t, s):  # type: ignore[no-untyped-def]
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
def _settled(t, begin, end, whole, counts, first, ticks, s):  # type: ignore[no-untyped-def]
    """Adds parts [begin, end), of a step of `whole` instructions, to the nodes: it was made counts[s, first:] times, in
    ticks[s]."""
    for k in range(begin, end):
        n = np.int64(t.part[k, R_NODE])
        if n < 0:
            _touch(t, -n)
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
            _settled(t, begin, end, whole, one, _NONE, ticks, _NONE)
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
def _walk(t, c, paths, links, state, x, one, ticks):  # type: ignore[no-untyped-def]
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
def _first_block(paths, links, x):  # type: ignore[no-untyped-def]
    """−1: none."""
    while x >= _FIRST and paths[x].links:
        first = np.int64(links[paths[x].link].number)
        if paths[x].kind != _OF_PATHS:
            return first
        x = first
    return np.int64(-1)


@inner
def _begin(t, block, paths, links, state, x, thread):  # type: ignore[no-untyped-def]
    """A state to go on from with path `x`, where a thread is new, or nothing is known of its stack."""
    b = _first_block(paths, links, x)
    if state & _MASK == STARTED and b >= 0 and block[b, B_FLAGS] & BLOCK_STUB_START:
        return bottom(t, thread) << BEHIND | LEFT
    return hole(t, thread) << BEHIND | JUMPED


@inner
def _step(t, state, x):  # type: ignore[no-untyped-def]
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
def _has_room(t, c, paths, links, x):  # type: ignore[no-untyped-def]
    """Whether there is room for a step of path `x`, whatever it leads through."""
    if x < _FIRST:
        return t.size[Z_STEPS] < len(t.step)
    made = paths[x].kind == _OF_PATHS
    steps = parts = np.int64(paths[x].links) if made else np.int64(0)
    for m in range(paths[x].links if made else 1):
        part = np.int64(links[paths[x].link + m].number) if made else x
        for q in range(paths[part].link, paths[part].link + paths[part].links):
            parts += c.block[links[q].number, B_MOST]
    return t.size[Z_STEPS] + steps < len(t.step) and t.size[Z_PARTS] + parts <= len(t.part) - SPARE_PARTS


@inner
def _put(t, state, x, after, slot, begin, instructions):  # type: ignore[no-untyped-def]
    """The row of a new step, whose parts are those from `begin` on."""
    s = t.size[Z_STEPS]
    t.size[Z_STEPS] = s + 1
    t.by_state[slot] = s
    t.step[s, S_STATE], t.step[s, S_PATH], t.step[s, S_NEXT] = state, x, after
    t.step[s, S_PART], t.step[s, S_PARTS_END], t.step[s, S_INSTRUCTIONS] = begin, t.size[Z_PARTS], instructions
    return s


@inner
def _new(t, c, paths, links, state, x, slot, one, ticks):  # type: ignore[no-untyped-def]
    begin = t.size[Z_PARTS]
    after = _walk(t, c, paths, links, state, x, one, ticks)
    return _put(t, state, x, after, slot, begin, paths[x].instructions)


@inner
def _joined(t, c, paths, links, state, x, one, ticks):  # type: ignore[no-untyped-def]
    """A new step of a path of paths."""
    at, of = paths[x].link, state
    for m in range(paths[x].links):
        s, slot = _step(t, of, np.int64(links[at + m].number))
        if s == 0:
            s = _new(t, c, paths, links, of, np.int64(links[at + m].number), slot, one, ticks)
        of = t.step[s, S_NEXT]
    begin, last, of = t.size[Z_PARTS], np.int64(0), state
    for m in range(paths[x].links):
        s, slot = _step(t, of, np.int64(links[at + m].number))
        of = t.step[s, S_NEXT]
        if s == last:
            t.part[t.size[Z_PARTS] - 1, R_INVOCATIONS] += 1
        else:
            t.part[t.size[Z_PARTS], R_NODE], t.part[t.size[Z_PARTS], R_INVOCATIONS] = -s, 1
            t.size[Z_PARTS] += 1
        last = s
    s, slot = _step(t, state, x)
    return _put(t, state, x, of, slot, begin, paths[x].instructions)


@kernel
def fold(  # type: ignore[no-untyped-def]
    t, c, paths, links, threads, thread, fresh, stop, stop_end, broken_at, broken_end, order, at, tsc, confirmed,
    broken, last_step,
):  # fmt: skip
    """Parts of `order` (see `stages.paths.counts.Rows`), each of the thread `threads[thread[k]]`; `fresh`: it does not
    go on where that was. `last_step`: by path. A step that there is no room for is added to the nodes at once."""
    t, c, paths, links = uncounted(t), uncounted_blocks(c), bare(paths), bare(links)
    order, last_step, threads = bare(order), bare(last_step), bare(threads)
    one, ticks_of_one = np.zeros((1, CERTAINTIES), np.int64), np.zeros((1, CERTAINTIES))
    for k in range(len(thread)):
        node = threads[thread[k], T_NODE]
        state = threads[thread[k], T_STATE]
        if fresh[k] and state & _MASK != STARTED:
            state = np.int64(LOST)
        q = np.int64(broken_at[k])
        x, s, instructions = np.int64(0), np.int64(0), np.int64(0)
        for m in range(stop[k], stop_end[k] - 1):
            total = np.int64(0)
            last = x
            for j in range(at[m], at[m + 1]):
                y = np.int64(order[j])
                if y >= 0:
                    last = y
                    total += paths[y].instructions
                else:
                    total -= y * paths[last].instructions
            ticks = tsc[m + 1] - tsc[m]
            rate = ticks / total if total > 0 and ticks > 0 else 0.0
            for j in range(at[m], at[m + 1]):
                while q < broken_end[k] and j >= broken[q]:
                    q += 1
                sure = SUSPECT if q < broken_end[k] and j >= confirmed[q] else OBSERVED
                y = np.int64(order[j])
                times = np.int64(1)
                if y >= 0:
                    x = y
                    if x == 0:
                        continue
                    if x == _BREAK:
                        state = np.int64(LOST)
                        continue
                    if state & _MASK >= STARTED:
                        if x == _DISABLED:
                            continue
                        state = _begin(t, c.block, paths, links, state, x, node)
                else:
                    times = -y
                while times > 0:
                    s = np.int64(last_step[x])
                    if t.step[s, S_STATE] != state or t.step[s, S_PATH] != x:
                        s, slot = _step(t, state, x)
                        if s == 0:
                            instructions = np.int64(paths[x].instructions)
                            if not _has_room(t, c, paths, links, x):
                                one[0, OBSERVED] = one[0, SUSPECT] = 0
                                ticks_of_one[0, OBSERVED] = ticks_of_one[0, SUSPECT] = 0.0
                                one[0, sure], ticks_of_one[0, sure] = 1, rate * instructions
                                begin, whole = t.size[Z_PARTS], max(instructions, 1)
                                state = _walk(t, c, paths, links, state, x, one, ticks_of_one)
                                _settled(t, begin, t.size[Z_PARTS], whole, one, _NONE, ticks_of_one, _NONE)
                                t.size[Z_PARTS] = begin
                                times -= 1
                                continue
                            if paths[x].kind == _OF_PATHS:
                                s = _joined(t, c, paths, links, state, x, one, ticks_of_one)
                            else:
                                s = _new(t, c, paths, links, state, x, slot, one, ticks_of_one)
                        last_step[x] = s
                    after = t.step[s, S_NEXT]
                    n = times if after == state else np.int64(1)
                    _touch(t, s)
                    t.step[s, S_TIMES + sure] += n
                    t.ticks[s, sure] += rate * n * t.step[s, S_INSTRUCTIONS]
                    times -= n
                    state = after
        threads[thread[k], T_STATE] = state


@kernel
def settle(t, most):  # type: ignore[no-untyped-def]
    """Adds the steps that were made since the last time to `counts` and `spent`: of some `most` parts, or until `most`
    nodes are not zero. Whether that was all."""
    t = uncounted(t)
    parts = np.int64(0)
    while t.size[Z_TOUCHED] + t.size[Z_TOUCHED_LAST]:
        if parts >= most or t.size[Z_NOTED] >= most:
            return False
        if t.size[Z_TOUCHED]:
            t.size[Z_TOUCHED] -= 1
            s = np.int64(t.touched[t.size[Z_TOUCHED]])
        else:
            s = np.int64(t.touched[len(t.touched) - t.size[Z_TOUCHED_LAST]])
            t.size[Z_TOUCHED_LAST] -= 1
        begin, end = t.step[s, S_PART], t.step[s, S_PARTS_END]
        _settled(t, begin, end, max(t.step[s, S_INSTRUCTIONS], 1), t.step, np.int64(S_TIMES), t.ticks, s)
        t.step[s, S_TIMES + OBSERVED] = t.step[s, S_TIMES + SUSPECT] = 0
        t.ticks[s, 0] = t.ticks[s, 1] = 0.0
        parts += end - begin + 1
    return True


@kernel
def clear(t):  # type: ignore[no-untyped-def]
    """Counts back to zero."""
    t = uncounted(t)
    for k in range(t.size[Z_NOTED]):
        n = t.noted[k]
        for c in range(CERTAINTIES):
            for q in range(COUNTS):
                t.counts[n, c, q] = 0
            t.spent[n, c] = 0.0
    t.size[Z_NOTED] = 0

"""Threads' orders of paths, as steps from state to state, and the steps, as counts by node.

A step is worked out once: which activations a path leads through from a state, block by block. From then on it is one
look-up a path, and a number that is counted up; `settle` goes through the blocks again, once for all the times that a
step was made, and adds what they hold to the nodes.
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
    B_WAYS,
    BEHIND,
    BLOCK_STUB_START,
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
    RETURNED,
    S_NEXT,
    S_PATH,
    S_STATE,
    STARTED,
    STUB_RETURNED,
    SUSPECT,
    UNPACKED,
    UNWOUND,
    WENT,
    Z_NOTED,
    Z_STEPS,
    Z_TOUCHED,
)
from stages.messages.paths import BREAK, DISABLED, FIRST_PATH, BlockEnd, PathKind

_FIRST, _DISABLED, _BREAK = FIRST_PATH, DISABLED, BREAK
_OF_PATHS = int(PathKind.OF_PATHS)
_RETURN, _INDIRECT, _FILTER = int(BlockEnd.RETURN), int(BlockEnd.INDIRECT), int(BlockEnd.FILTER)
_MASK = (1 << BEHIND) - 1

# columns of a thread
T_STATE, T_NODE, TH = range(3)


@inner
def _note(t, node):  # type: ignore[no-untyped-def]
    """Before something is added to a node."""
    for c in range(2):
        for k in range(3):
            if t.counts[node, c, k]:
                return
    t.noted[t.size[Z_NOTED]] = node
    t.size[Z_NOTED] += 1


@inner
def _enter(t, place, inline, begin, end, node, counts):  # type: ignore[no-untyped-def]
    """Adds calls inlined in the function that has `node`."""
    for k in range(begin, end):
        called = inlined(t, place, node, inline[k, IN_PLACE])
        _note(t, called)
        for c in range(2):
            t.counts[called, c, 0] += counts[c] * inline[k, IN_TIMES]


@inner
def _add(t, node, item, share, counts, ticks):  # type: ignore[no-untyped-def]
    """Adds an item of a step that was made `counts` times, in `ticks` of which the item has `share`."""
    _note(t, node)
    for c in range(2):
        t.counts[node, c, 0] += counts[c] * item[I_INVOCATIONS]
        t.counts[node, c, 1] += counts[c] * item[I_INSTRUCTIONS]
        t.counts[node, c, 2] += counts[c] * item[I_BYTECODES]
        t.spent[node, c] += ticks[c] * share


@inner
def _through(t, fns, place, item, inline, a, behind, b, way, share, counts, ticks, adds):  # type: ignore[no-untyped-def]
    """Block `b`, from `a`. If `adds`, what it holds is added to the nodes. The activation behind it, and what the
    block did."""
    fn, calls, own = np.int64(-1), np.int64(0), np.int64(0)
    a = arrive(t, fns, place, item, a, behind, b)
    for k in range(b[B_ITEM], b[B_ITEM] + b[B_ITEMS]):
        row = item[k]
        if fn >= 0 and (row[I_FN] != fn or calls):
            a = goes_on(t, fns, place, item, a, k, b)
        fn = row[I_FN]
        calls = row[I_FLAGS] & ITEM_CALLS
        if adds or calls:
            node = t.activation[a, A_NODE]
            if fn != t.activation[a, A_FN]:
                node = child(t, node, fns[fn, F_METHOD], np.int64(-1))
            own = node
            if fns[fn, F_CLASS] == FN_NMETHOD:
                node = inlined(t, place, own, row[I_PLACE])
            if adds:
                _add(t, node, row, share * row[I_INSTRUCTIONS], counts, ticks)
                _enter(t, place, inline, row[I_INLINED], row[I_INLINED_END], own, counts)
            if calls:
                a = called(t, fns, a, row[I_RETURN], node, row[I_BCI])
    if adds and way > 0:
        at = B_WAYS + 2 * way - 2
        _enter(t, place, inline, b[at], b[at + 1], own, counts)
    behind = np.int64(WENT)
    ends = b[B_ENDS]
    if fn >= 0 and fns[t.activation[a, A_FN], F_CLASS] != FN_PENDING:
        c = fns[fn, F_CLASS]
        if ends == _RETURN:
            behind = UNPACKED if c == FN_UNPACKS else RETURNED if fn == t.activation[a, A_FN] else STUB_RETURNED
        elif ends == _INDIRECT or ends == _FILTER:
            behind = UNWOUND if c == FN_UNWINDS else JUMPED
    return a, np.int64(behind)


@inner
def _off(t, fns, a, behind):  # type: ignore[no-untyped-def]
    """Tracing goes off: the activation, and what is behind the next block."""
    a = left(t, fns, a, behind)
    return a, np.int64(WENT if behind == WENT and fns[t.activation[a, A_FN], F_CLASS] != FN_OUTSIDE else LEFT)


@inner
def _walk(t, fns, place, item, inline, block, paths, links, state, x, counts, ticks, adds):  # type: ignore[no-untyped-def]
    """Path `x` from `state`: the state behind it (see `_through`)."""
    a, behind = state >> BEHIND, state & _MASK
    if x == _DISABLED:
        a, behind = _off(t, fns, a, behind)
        return a << BEHIND | behind
    whole = max(paths[x].instructions, 1)
    made = paths[x].kind == _OF_PATHS
    parts = paths[x].links if made else 1
    for m in range(parts):
        part = np.int64(links[paths[x].link + m].number) if made else x
        if part == _DISABLED:
            a, behind = _off(t, fns, a, behind)
            continue
        for q in range(paths[part].link, paths[part].link + paths[part].links):
            b = block[links[q].number]
            if b[B_ITEMS] > 0:
                way = links[q].way
                a, behind = _through(
                    t, fns, place, item, inline, a, behind, b, way, 1.0 / whole, counts, ticks, adds
                )  # fmt: skip
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


@kernel
def fold(  # type: ignore[no-untyped-def]
    t, fns, place, item, inline, block, paths, links, threads, thread, fresh, stop, stop_end, broken_at, broken_end,
    order, at, tsc, confirmed, broken, last_step,
):  # fmt: skip
    """Parts of `order` (see `stages.paths.counts.Rows`), each of the thread `threads[thread[k]]`; `fresh`: it does not
    go on where that was. `last_step`: by path. A step that there is no room for is added to the nodes at once."""
    one, ticks_of_one = np.zeros(2, np.int64), np.zeros(2)
    for k in range(len(thread)):
        who = threads[thread[k]]
        node = who[T_NODE]
        state = who[T_STATE]
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
                        state = _begin(t, block, paths, links, state, x, node)
                    instructions = np.int64(paths[x].instructions)
                else:
                    times = -y
                while times > 0:
                    s = np.int64(last_step[x])
                    if t.step[s, S_STATE] != state or t.step[s, S_PATH] != x:
                        s, slot = _step(t, state, x)
                        if s == 0:
                            s = t.size[Z_STEPS]
                            full = s == len(t.step)
                            if full:
                                one[0] = one[1] = 0
                                one[sure] = 1
                                ticks_of_one[sure] = rate * instructions
                            after = _walk(
                                t, fns, place, item, inline, block, paths, links, state, x, one, ticks_of_one, full
                            )
                            if full:
                                ticks_of_one[sure] = 0.0
                                state = after
                                times -= 1
                                continue
                            t.size[Z_STEPS] = s + 1
                            t.by_state[slot] = s
                            t.step[s, S_STATE], t.step[s, S_PATH], t.step[s, S_NEXT] = state, x, after
                        last_step[x] = s
                    after = t.step[s, S_NEXT]
                    n = times if after == state else np.int64(1)
                    if t.times[s, 0] == 0 and t.times[s, 1] == 0:
                        t.touched[t.size[Z_TOUCHED]] = s
                        t.size[Z_TOUCHED] += 1
                    t.times[s, sure] += n
                    t.ticks[s, sure] += rate * n * instructions
                    times -= n
                    state = after
        who[T_STATE] = state


@kernel
def settle(t, fns, place, item, inline, block, paths, links):  # type: ignore[no-untyped-def]
    """Adds all steps that were made since the last time to `counts` and `spent`."""
    for m in range(t.size[Z_TOUCHED]):
        s = np.int64(t.touched[m])
        _walk(
            t, fns, place, item, inline, block, paths, links, t.step[s, S_STATE], t.step[s, S_PATH], t.times[s],
            t.ticks[s], True,
        )  # fmt: skip
        t.times[s, 0] = t.times[s, 1] = 0
        t.ticks[s, 0] = t.ticks[s, 1] = 0.0
    t.size[Z_TOUCHED] = 0


@kernel
def clear(t):  # type: ignore[no-untyped-def]
    """Counts back to zero."""
    for k in range(t.size[Z_NOTED]):
        n = t.noted[k]
        for c in range(2):
            for q in range(3):
                t.counts[n, c, q] = 0
            t.spent[n, c] = 0.0
    t.size[Z_NOTED] = 0

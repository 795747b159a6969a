"""Threads' orders of paths, as steps from state to state, and the steps, as counts by node.

A step that was made before (stages.cct.steps) is one look-up a path, and a number that is counted up; `settle` adds its
parts to the nodes, once for all the times that it was made.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.cct.contexts import bottom, hole
from stages.cct.steps import has_room, joined, new_step, settled, step_of, touch, walk
from stages.cct.tables import (
    B_FLAGS,
    BEHIND,
    BLOCK_STUB_START,
    CERTAINTIES,
    COUNTS,
    JUMPED,
    LEFT,
    LOST,
    OBSERVED,
    S_INSTRUCTIONS,
    S_NEXT,
    S_PART,
    S_PARTS_END,
    S_PATH,
    S_STATE,
    S_TIMES,
    STARTED,
    SUSPECT,
    Z_NOTED,
    Z_PARTS,
    Z_TOUCHED,
    Z_TOUCHED_LAST,
    uncounted,
    uncounted_blocks,
)
from stages.messages.paths import BREAK, DISABLED, FIRST_PATH, PathKind
from stages.pointers import bare

_FIRST, _DISABLED, _BREAK = FIRST_PATH, DISABLED, BREAK
_OF_PATHS = int(PathKind.OF_PATHS)
_MASK = (1 << BEHIND) - 1
_NONE = np.int64(0)

# columns of a thread
T_STATE, T_NODE, TH = range(3)


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
                        s, slot = step_of(t, state, x)
                        if s == 0:
                            instructions = np.int64(paths[x].instructions)
                            if not has_room(t, c, paths, x):
                                one[0, OBSERVED] = one[0, SUSPECT] = 0
                                ticks_of_one[0, OBSERVED] = ticks_of_one[0, SUSPECT] = 0.0
                                one[0, sure], ticks_of_one[0, sure] = 1, rate * instructions
                                begin, whole = t.size[Z_PARTS], max(instructions, 1)
                                state = walk(t, c, paths, links, state, x, one, ticks_of_one)
                                settled(t, begin, t.size[Z_PARTS], whole, one, _NONE, ticks_of_one, _NONE)
                                t.size[Z_PARTS] = begin
                                times -= 1
                                continue
                            if paths[x].kind == _OF_PATHS:
                                s = joined(t, c, paths, links, state, x, last_step, one, ticks_of_one)
                            else:
                                s = new_step(t, c, paths, links, state, x, slot, one, ticks_of_one)
                        last_step[x] = s
                    after = t.step[s, S_NEXT]
                    n = times if after == state else np.int64(1)
                    touch(t, s)
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
        settled(t, begin, end, max(t.step[s, S_INSTRUCTIONS], 1), t.step, np.int64(S_TIMES), t.ticks, s)
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

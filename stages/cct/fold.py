"""Threads' orders of paths, as steps from state to state, and the steps, as counts by node.

A step that was made before (stages.cct.steps) is one look-up a path, and a number that is counted up; `settle` adds its
parts to the nodes, once for all the times that it was made.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import apart, inner, kernel, near
from stages.cct.inside import OUT, WITHIN, look_inside, stayed, stays
from stages.cct.interpreted import told_at
from stages.cct.steps import (
    has_room,
    joined,
    link,
    links_of,
    new_step,
    of_paths,
    parts_of,
    settled,
    step_of,
    switches,
    told_step,
    touch,
    walk,
    walk_told,
)
from stages.cct.tables import (
    A_NODE,
    AC,
    B_FLAGS,
    BC,
    BEHIND,
    BLOCK_STUB_START,
    BY_PATH,
    BYTECODES,
    CERTAINTIES,
    COUNTS,
    INSIDE,
    INSTRUCTIONS,
    JUMPED,
    LAST_STEP,
    LEFT,
    LOST,
    N_FLAGS,
    NC,
    NODE_NOTED,
    OBSERVED,
    S_INSTRUCTIONS,
    S_NEXT,
    S_PATH,
    S_STATE,
    S_SUSPECT,
    S_TICKS,
    S_TIMES,
    SC,
    STARTED,
    SUSPECT,
    X_INSTRUCTIONS,
    XC,
    Z_MADE,
    Z_NOTED,
    Z_PARTS,
    Z_STEP_ROOM,
    Z_TOUCHED,
    Z_TOUCHED_LAST,
    blocks_at,
    tables_at,
)
from stages.cct.unknowns import bottom, hole
from stages.cct.virtual import is_parked
from stages.messages.bytecodes import FrameEvent
from stages.messages.paths import BREAK, DISABLED, FIRST_PATH
from stages.pointers import first_item, prefetch

_MOUNT = int(FrameEvent.MOUNT)
_FIRST, _DISABLED, _BREAK = FIRST_PATH, DISABLED, BREAK
_MASK = (1 << BEHIND) - 1
AHEAD = 8
"""So many paths ahead their last steps are fetched: they lie far apart."""

# columns of a thread
T_STATE, T_NODE, TH = range(3)

# how far `fold` has come in a part: stop (−1: at its beginning), place in the order, break, last path, event
G_STOP, G_AT, G_BREAK, G_PATH, G_EVENT, GO = range(6)
HERE, BEFORE = 1, 2  # where a thread stands: in these parts of the order, in others before
ALL, ENOUGH, WAITS = range(3)
"""It has come to the end of a part; it has worked out enough; a virtual thread's frames are not put away yet."""
SLICE = 1 << 10
"""Places in the order after which `fold` looks whether it has worked out enough."""


@inner
def _first_block(c, x):  # type: ignore[no-untyped-def]
    """−1: none."""
    while x >= _FIRST and links_of(c, x):
        if not of_paths(c, x):
            return link(c, x, 0)
        x = link(c, x, 0)
    return np.int64(-1)


@inner
def _begin(t, c, state, x, thread):  # type: ignore[no-untyped-def]
    """A state to go on from with path `x`, where a thread is new, or nothing is known of its stack."""
    b = _first_block(c, x)
    if state & _MASK == STARTED and b >= 0 and c.block[BC * b + B_FLAGS] & BLOCK_STUB_START:
        return bottom(t, c, thread) << BEHIND | LEFT
    return hole(t, c, thread, state >> BEHIND) << BEHIND | JUMPED


@apart
def _alone(t, c, state, x, sure, ticks):  # type: ignore[no-untyped-def]
    """A step for which there is no room: added to the nodes at once. The state behind it."""
    t.one[OBSERVED] = t.one[SUSPECT] = 0
    t.one_ticks[OBSERVED] = t.one_ticks[SUSPECT] = 0.0
    t.one[sure], t.one_ticks[sure] = 1, ticks
    begin, whole = t.size[Z_PARTS], max(c.path[XC * x + X_INSTRUCTIONS], 1)
    state = walk(t, c, state, x)
    settled(
        t, begin, t.size[Z_PARTS], whole, t.one[OBSERVED], t.one[SUSPECT], t.one_ticks[OBSERVED], t.one_ticks[SUSPECT]
    )
    t.size[Z_PARTS] = begin
    return state


@apart
def _look_up(t, c, state, x):  # type: ignore[no-untyped-def]
    """The row of a step, which is made if it is new; 0: there is no room for it."""
    s, slot = step_of(t, state, x)
    if s == 0:
        t.size[Z_MADE] += 1
        if not has_room(t, c, x):
            return s
        s = joined(t, c, state, x) if of_paths(c, x) else new_step(t, c, state, x, slot)
    c.by_path[BY_PATH * x + LAST_STEP] = s
    return s


@near
def _count(t, s, sure, times, rate):  # type: ignore[no-untyped-def]
    """A step was made so many times, at `rate` ticks an instruction."""
    step = SC * s
    if (t.step[step + S_TIMES] | t.step[step + S_SUSPECT]) == 0:
        touch(t, s)
    ticks = rate * (times * t.step[step + S_INSTRUCTIONS])
    if sure == OBSERVED:
        t.step[step + S_TIMES] += times
        t.ticks[step + S_TICKS] += ticks
    else:
        t.step[step + S_SUSPECT] += times
        t.suspect_ticks[s] += ticks


@inner
def _switch(e, event, events, j):  # type: ignore[no-untyped-def]
    """Whether a virtual thread is put away at position `j`, or goes on: where it does, it left another time."""
    for k in range(event, events):
        if e.order[k] != j:
            break
        if switches(e, k):
            return True
    return False


@inner
def _waits(t, e, event, events, j):  # type: ignore[no-untyped-def]
    """Whether a virtual thread goes on at position `j` of which no frames are put away."""
    for k in range(event, events):
        if e.order[k] != j:
            break
        if e.kind[k] == _MOUNT and not is_parked(t, e.bci[k]):
            return True
    return False


@apart
def _told(t, c, e, event, events, j, state, x, times, sure, rate):  # type: ignore[no-untyped-def]
    """A part of the order in which there are events. The state, and the event, behind it. Which method is called is not
    in the path: of one pass, path and events together are a step; else it is added to the nodes at once."""
    if times == 1 and x != _DISABLED and not _switch(e, event, events, j):  # a stack that was read is never met again
        s = told_step(t, c, e, event, events, j, state, x)
        if s:
            _count(t, s, sure, times, rate)
            while event < events and e.order[event] == j:
                event += 1
            return np.int64(t.step[SC * s + S_NEXT]), event
    whole = max(times * c.path[XC * x + X_INSTRUCTIONS], 1)
    begin = t.size[Z_PARTS]
    t.one[OBSERVED] = t.one[SUSPECT] = 0
    t.one_ticks[OBSERVED] = t.one_ticks[SUSPECT] = 0.0
    t.one[sure], t.one_ticks[sure] = 1, rate * whole
    state, event = walk_told(t, c, e, event, events, j, state, x, times)
    t.size[Z_MADE] += times  # it costs as much
    settled(
        t, begin, t.size[Z_PARTS], whole, t.one[OBSERVED], t.one[SUSPECT], t.one_ticks[OBSERVED], t.one_ticks[SUSPECT]
    )
    t.size[Z_PARTS] = begin
    return state, event


@apart
def _instructions(c, order, begin, end, last):  # type: ignore[no-untyped-def]
    """Of the paths in `order[begin:end]`; `last`: the path before them."""
    total = np.int64(0)
    for j in range(begin, end):
        y = np.int64(order[j])
        if y >= 0:
            last = y
            total += c.by_path[BY_PATH * y + INSTRUCTIONS]
        else:
            total -= y * c.by_path[BY_PATH * last + INSTRUCTIONS]
    return total


@apart
def _along(  # type: ignore[no-untyped-def]
    t, c, e, order, begin, end, event, events, state, x, sure, rate, thread, waits
):
    """The steps over the paths in `order[begin:end]`, behind path `x`; the state behind them, the last path, the event
    behind them, and the position up to which it has come: before `end` only where a virtual thread goes on whose frames
    another carrier has not left yet (`waits`: it is then waited for). `thread`: its node; [event, events): those of its
    row from here on."""
    seen, inside = np.int64(-1), False
    for j in range(begin, end):
        was, last = state, x
        if j + AHEAD < end and order[j + AHEAD] > 0:
            prefetch(t.step, SC * np.int64(c.by_path[BY_PATH * np.int64(order[j + AHEAD]) + LAST_STEP]))
        y, times = np.int64(order[j]), np.int64(1)
        if y >= _FIRST and state & _MASK < STARTED:
            x = y
        elif y < 0:
            times = -y
        else:
            x = y
            if x == _BREAK:
                state = state >> BEHIND << BEHIND | LOST
            if x == 0 or x == _BREAK or (x == _DISABLED and state & _MASK >= STARTED):
                continue
            if state & _MASK >= STARTED:
                state = _begin(t, c, state, x, thread)
        if event < events and e.order[event] <= j:
            while event < events and e.order[event] < j:
                event += 1
            if event < events and e.order[event] == j:
                if waits and _waits(t, e, event, events, j):
                    return was, last, event, np.int64(j)
                state, event = _told(t, c, e, event, events, j, state, x, times, sure, rate)
                continue
        if state != seen:
            seen, inside = state, stays(t, c, state)
        if inside:
            within = np.int64(c.by_path[BY_PATH * x + INSIDE])
            if within == 0:
                within = look_inside(c, x)
            if within != OUT:
                instructions = times * c.path[XC * x + X_INSTRUCTIONS]
                bytecodes = times * np.int64(c.by_path[BY_PATH * x + BYTECODES])
                node = t.activation[AC * (state >> BEHIND) + A_NODE]
                stayed(t, node, sure, instructions, bytecodes, rate * instructions)
                state = state >> BEHIND << BEHIND | (within - WITHIN)
                continue
        while times > 0:
            s = np.int64(c.by_path[BY_PATH * x + LAST_STEP])
            if t.step[SC * s + S_STATE] != state or t.step[SC * s + S_PATH] != x:
                s = _look_up(t, c, state, x)
                if s == 0:
                    state = _alone(t, c, state, x, sure, rate * c.path[XC * x + X_INSTRUCTIONS])
                    times -= 1
                    continue
            after = t.step[SC * s + S_NEXT]
            n = times if after == state else np.int64(1)
            _count(t, s, sure, n, rate)
            times -= n
            state = after
    return state, x, event, np.int64(end)


@inner
def _fold_row(  # type: ignore[no-untyped-def]
    t, c, e, k, event_at, event_end, threads, slot, fresh, stop, stop_end, broken_at, broken_end, paths, at, tsc,
    confirmed, broken, go, go_rate, enough, waits,
):  # fmt: skip
    """Part `k`, of the thread `threads[slot]`, from where `go[k]` is on. ALL, or why it has not come to its end."""
    node, state = threads[slot, T_NODE], threads[slot, T_STATE]
    begin, j, q, x, rate = stop[k], np.int64(-1), np.int64(broken_at[k]), np.int64(0), 0.0
    event = event_at[k]
    if go[k, G_STOP] >= 0:
        begin, j, q, x, rate = go[k, G_STOP], go[k, G_AT], go[k, G_BREAK], go[k, G_PATH], go_rate[k]
        event = go[k, G_EVENT]
    elif fresh[k] and state & _MASK != STARTED:
        state = state >> BEHIND << BEHIND | LOST
    for m in range(begin, stop_end[k] - 1):
        end = at[m + 1]
        if j < 0:
            j, ticks = at[m], tsc[m + 1] - tsc[m]
            total = _instructions(c, paths, j, end, x)
            rate = ticks / total if total > 0 and ticks > 0 else 0.0
        while j < end:
            while q < broken_end[k] and j >= broken[q]:
                q += 1
            until, sure = min(end, j + SLICE), OBSERVED
            if q < broken_end[k]:
                sure = SUSPECT if j >= confirmed[q] else OBSERVED
                until = min(until, broken[q] if j >= confirmed[q] else confirmed[q])
            state, x, event, j = _along(
                t, c, e, paths, j, until, event, event_end[k], state, x, sure, rate, node, waits
            )
            if j < until or t.size[Z_MADE] >= enough:
                threads[slot, T_STATE] = state
                go[k, G_STOP], go[k, G_AT], go[k, G_BREAK], go[k, G_PATH], go_rate[k] = m, j, q, x, rate
                go[k, G_EVENT] = event
                return WAITS if j < until else ENOUGH
            waits = True
        j = np.int64(-1)
    threads[slot, T_STATE] = state
    go[k, G_STOP] = stop_end[k]
    return ALL


@kernel
def fold(  # type: ignore[no-untyped-def]
    tables, blocks, told, event_at, event_end, threads, thread, fresh, stop_at, stop_end, broken_at, broken_end, order,
    at, tsc, confirmed, broken, go, go_rate, stands, forced, most,
):  # fmt: skip
    """Parts of `order` (see `stages.paths.counts.Rows`), each of the thread `threads[thread[k]]`; `fresh`: it does not
    go on where that was. A step that there is no room for is added to the nodes at once. ALL: it has come to the end;
    else it goes on from `go` ((n, GO), at first −1) and `go_rate` ((n,)). ENOUGH: behind about `most` new steps.

    Threads come one after the other, however they ran at the same time. Where a virtual thread goes on in frames that
    another thread leaves, it stands until that has come there: WAITS, if none of those that are left here does.
    `stands`: (threads,) those that stand somewhere before; threads that stand here are added. `forced`: then the first
    goes on, in frames that are not known."""
    t, c, e, paths = tables_at(tables), blocks_at(blocks), told_at(told), first_item(order)
    enough = t.size[Z_MADE] + most
    waits = True
    while True:
        moved, left, tried = False, False, not waits
        for k in range(len(thread)):
            slot = thread[k]
            if go[k, G_STOP] >= stop_end[k] or stands[slot] == BEFORE:
                left = left or go[k, G_STOP] < stop_end[k]
                continue
            if stands[slot] == HERE:
                continue
            stop, place = go[k, G_STOP], go[k, G_AT]
            how = _fold_row(
                t, c, e, k, event_at, event_end, threads, slot, fresh, stop_at, stop_end, broken_at, broken_end,
                paths, at, tsc, confirmed, broken, go, go_rate, enough, waits,
            )  # fmt: skip
            waits = True
            moved = moved or stop != go[k, G_STOP] or place != go[k, G_AT]
            if how == WAITS:
                left = True
                stands[slot] = HERE
            elif how == ENOUGH:
                _walk_on(stands)
                return ENOUGH
        if not left:
            return ALL
        if not moved and (tried or not forced):
            return WAITS
        waits = moved
        _walk_on(stands)


@inner
def _walk_on(stands):  # type: ignore[no-untyped-def]
    """Threads that stood here try again."""
    for slot in range(len(stands)):
        if stands[slot] == HERE:
            stands[slot] = 0


@kernel
def settle(tables, most):  # type: ignore[no-untyped-def]
    """Adds the steps that were made since the last time to `counts` and `spent`: of some `most` parts, or until `most`
    nodes are not zero. Whether that was all."""
    t = tables_at(tables)
    parts = np.int64(0)
    while t.size[Z_TOUCHED] + t.size[Z_TOUCHED_LAST]:
        if parts >= most or t.size[Z_NOTED] >= most:
            return False
        if t.size[Z_TOUCHED]:
            t.size[Z_TOUCHED] -= 1
            s = np.int64(t.touched[t.size[Z_TOUCHED]])
        else:
            s = np.int64(t.touched[t.size[Z_STEP_ROOM] - t.size[Z_TOUCHED_LAST]])
            t.size[Z_TOUCHED_LAST] -= 1
        begin, end = parts_of(t, s)
        step = SC * s
        settled(
            t, begin, end, max(t.step[step + S_INSTRUCTIONS], 1), t.step[step + S_TIMES], t.step[step + S_SUSPECT],
            t.ticks[step + S_TICKS], t.suspect_ticks[s],
        )  # fmt: skip
        t.step[step + S_TIMES] = t.step[step + S_SUSPECT] = 0
        t.ticks[step + S_TICKS] = t.suspect_ticks[s] = 0.0
        parts += end - begin + 1
    return True


@kernel
def clear(tables):  # type: ignore[no-untyped-def]
    """Counts back to zero."""
    t = tables_at(tables)
    for k in range(t.size[Z_NOTED]):
        n = np.int64(t.noted[k])
        t.node[NC * n + N_FLAGS] &= ~NODE_NOTED
        for q in range(COUNTS * CERTAINTIES):
            t.counts[COUNTS * CERTAINTIES * n + q] = 0
        for q in range(CERTAINTIES):
            t.spent[CERTAINTIES * n + q] = 0.0
    t.size[Z_NOTED] = 0

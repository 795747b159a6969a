"""Steps, worked out block by block: which activations a path leads through from a state, and its *parts*, its share in
the counts of each node. A path of paths is made of their steps, many of which are known when it is new: these are its
parts.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import apart, inner
from stages.cct.activations import class_of, same
from stages.cct.contexts import arrive, called, goes_on, left
from stages.cct.interpreted import entered_at, happened
from stages.cct.nodes import child, inlined, note
from stages.cct.slots import differs, first_slot, mixed, next_slot, row_in, spread, tag_of
from stages.cct.tables import (
    A_FN,
    A_NODE,
    AC,
    B_ENDS,
    B_ITEM,
    B_ITEMS,
    B_WAYS,
    BC,
    BEHIND,
    CERTAINTIES,
    COUNTS,
    ENDS,
    F_CLASS,
    F_METHOD,
    FC,
    FN_INTERPRETER,
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
    IC,
    IN,
    IN_BYTECODES,
    IN_PLACE,
    IN_TIMES,
    INTERPRETER,
    ITEM_CALLS,
    JUMPED,
    KINDS,
    LEFT,
    OBSERVED,
    R_BYTECODES,
    R_INSTRUCTIONS,
    R_INVOCATIONS,
    R_NODE,
    RC,
    RETURNED,
    S_INSTRUCTIONS,
    S_NEXT,
    S_PARTS,
    S_PATH,
    S_STATE,
    S_SUSPECT,
    S_TICKS,
    S_TIMES,
    SC,
    SPARE_PARTS,
    STUB_RETURNED,
    SUSPECT,
    UNPACKED,
    UNWOUND,
    WENT,
    X_INSTRUCTIONS,
    X_LINK,
    X_LINKS,
    XC,
    Z_MADE,
    Z_MOST,
    Z_PART_ROOM,
    Z_PARTS,
    Z_STATES,
    Z_STEP_ROOM,
    Z_STEPS,
    Z_TOUCHED,
    Z_TOUCHED_LAST,
)
from stages.cct.virtual import mounted, unmounted
from stages.messages.bytecodes import FrameEvent
from stages.messages.paths import DISABLED, FIRST_PATH, BlockEnd, PathKind

_FIRST, _DISABLED = FIRST_PATH, DISABLED
_OF_PATHS = int(PathKind.OF_PATHS)
_RETURN, _INDIRECT, _FILTER = int(BlockEnd.RETURN), int(BlockEnd.INDIRECT), int(BlockEnd.FILTER)
_UNKNOWN = int(BlockEnd.UNKNOWN)
_MASK = (1 << BEHIND) - 1
_NONE = np.int64(0)
_ENTER, _STACK = int(FrameEvent.ENTER), int(FrameEvent.STACK)
_MOUNT, _UNMOUNT = int(FrameEvent.MOUNT), int(FrameEvent.UNMOUNT)


@inner
def of_paths(c, x):  # type: ignore[no-untyped-def]
    return c.path[XC * x + X_LINKS] >> KINDS == _OF_PATHS


@inner
def links_of(c, x):  # type: ignore[no-untyped-def]
    return c.path[XC * x + X_LINKS] & ((1 << KINDS) - 1)


@inner
def link(c, x, k):  # type: ignore[no-untyped-def]
    """Number `k` of path `x`."""
    return np.int64(c.link[2 * (c.path[XC * x + X_LINK] + k)])


@inner
def parts_of(t, s):  # type: ignore[no-untyped-def]
    return t.step[SC * s + S_PARTS] & ((1 << ENDS) - 1), t.step[SC * s + S_PARTS] >> ENDS


@inner
def touch(t, s):  # type: ignore[no-untyped-def]
    """Before the times of a step are counted up."""
    if t.step[SC * s + S_TIMES] | t.step[SC * s + S_SUSPECT]:
        return
    begin, end = parts_of(t, s)
    if begin < end and t.part[RC * begin + R_NODE] < 0:
        t.touched[t.size[Z_TOUCHED]] = s
        t.size[Z_TOUCHED] += 1
    else:
        t.size[Z_TOUCHED_LAST] += 1
        t.touched[t.size[Z_STEP_ROOM] - t.size[Z_TOUCHED_LAST]] = s


@inner
def settled(t, begin, end, whole, observed, suspect, ticks, suspect_ticks):  # type: ignore[no-untyped-def]
    """Adds parts [begin, end), of a step of `whole` instructions, to the nodes: it was made so many times, in so many
    ticks."""
    rate, suspect_rate = ticks / whole, suspect_ticks / whole
    for k in range(begin, end):
        n, calls = np.int64(t.part[RC * k + R_NODE]), np.int64(t.part[RC * k + R_INVOCATIONS])
        if n < 0:
            n = -n
            touch(t, n)
            instructions = calls * t.step[SC * n + S_INSTRUCTIONS]
            t.step[SC * n + S_TIMES] += observed * calls
            t.ticks[SC * n + S_TICKS] += rate * instructions
            if suspect:
                t.step[SC * n + S_SUSPECT] += suspect * calls
                t.suspect_ticks[n] += suspect_rate * instructions
            continue
        instructions, bytecodes = np.int64(t.part[RC * k + R_INSTRUCTIONS]), np.int64(t.part[RC * k + R_BYTECODES])
        row = COUNTS * CERTAINTIES * n
        note(t, n)
        t.counts[row] += observed * calls
        t.counts[row + 1] += observed * instructions
        t.counts[row + 2] += observed * bytecodes
        t.spent[CERTAINTIES * n + OBSERVED] += rate * instructions
        if suspect:
            row += COUNTS * SUSPECT
            t.counts[row] += suspect * calls
            t.counts[row + 1] += suspect * instructions
            t.counts[row + 2] += suspect * bytecodes
            t.spent[CERTAINTIES * n + SUSPECT] += suspect_rate * instructions


@inner
def _part(t, begin, whole, node, invocations, instructions, bytecodes):  # type: ignore[no-untyped-def]
    """Adds to the parts, from `begin` on, of the step that is being made. Where there is no room the parts are settled,
    as of a step that is made `t.one` times: only for that has a step been begun that may have too many."""
    k = np.int64(t.part_of[node])
    end = t.size[Z_PARTS]
    if k < begin or k >= end or t.part[RC * k + R_NODE] != node:
        if end == t.size[Z_PART_ROOM]:
            settled(t, begin, end, whole, t.one[OBSERVED], t.one[SUSPECT], t.one_ticks[OBSERVED], t.one_ticks[SUSPECT])
            end = begin
        k = end
        t.size[Z_PARTS] = end + 1
        t.part_of[node] = k
        t.part[RC * k + R_NODE] = node
        t.part[RC * k + R_INVOCATIONS] = t.part[RC * k + R_INSTRUCTIONS] = t.part[RC * k + R_BYTECODES] = 0
    t.part[RC * k + R_INVOCATIONS] += invocations
    t.part[RC * k + R_INSTRUCTIONS] += instructions
    t.part[RC * k + R_BYTECODES] += bytecodes


@inner
def _through(t, c, a, behind, b, way, begin, whole):  # type: ignore[no-untyped-def]
    """Block `b`, from `a`: what it holds becomes parts. The activation behind it, and what the block did."""
    fn, calls, own = np.int64(-1), np.int64(0), np.int64(0)
    a = arrive(t, c, a, behind, b)
    block = BC * b
    for k in range(c.block[block + B_ITEM], c.block[block + B_ITEM] + c.block[block + B_ITEMS]):
        item = IC * k
        if fn >= 0 and (c.item[item + I_FN] != fn or calls):
            a = goes_on(t, c, a, k, b)
        fn = c.item[item + I_FN]
        calls = c.item[item + I_FLAGS] & ITEM_CALLS
        own = t.activation[AC * a + A_NODE]
        if c.item[item + I_INSTRUCTIONS] == 0:  # it only says where the block is
            continue
        if not same(t, c, a, fn):
            own = child(t, own, c.fns[FC * fn + F_METHOD], np.int64(-1))
        node = own
        if c.fns[FC * fn + F_CLASS] == FN_NMETHOD:
            node = inlined(t, c, own, c.item[item + I_PLACE])
        counts = c.item[item + I_INVOCATIONS], c.item[item + I_INSTRUCTIONS], c.item[item + I_BYTECODES]
        if fn == INTERPRETER and counts[0]:
            _part(t, begin, whole, entered_at(t, c, a), counts[0], _NONE, _NONE)
            counts = _NONE, counts[1], counts[2]
        if counts[0] and node != own:  # an entry may be described as the first inlined method's
            _part(t, begin, whole, own, counts[0], _NONE, _NONE)
            counts = _NONE, counts[1], counts[2]
        _part(t, begin, whole, node, counts[0], counts[1], counts[2])
        for m in range(c.item[item + I_INLINED], c.item[item + I_INLINED_END]):
            at = inlined(t, c, own, c.inline[IN * m + IN_PLACE])
            _part(t, begin, whole, at, c.inline[IN * m + IN_TIMES], _NONE, c.inline[IN * m + IN_BYTECODES])
        if calls:
            a = called(t, c, a, c.item[item + I_RETURN], node, c.item[item + I_BCI])
    if way > 0:
        for m in range(c.block[block + B_WAYS + 2 * way - 2], c.block[block + B_WAYS + 2 * way - 1]):
            at = inlined(t, c, own, c.inline[IN * m + IN_PLACE])
            _part(t, begin, whole, at, c.inline[IN * m + IN_TIMES], _NONE, c.inline[IN * m + IN_BYTECODES])
    behind = np.int64(WENT)
    ends = c.block[block + B_ENDS]
    if fn >= 0 and class_of(t, c, a) != FN_PENDING:
        kind = c.fns[FC * fn + F_CLASS]
        if ends == _RETURN:
            behind = (
                UNPACKED if kind == FN_UNPACKS else RETURNED if fn == t.activation[AC * a + A_FN] else STUB_RETURNED
            )
        elif ends == _INDIRECT or ends == _FILTER or ends == _UNKNOWN:
            behind = UNWOUND if kind == FN_UNWINDS else JUMPED
    return a, np.int64(behind)


@inner
def _off(t, c, a, behind):  # type: ignore[no-untyped-def]
    """Tracing goes off: the activation, and what is behind the next block."""
    a = left(t, c, a, behind)
    return a, np.int64(WENT if behind == WENT and class_of(t, c, a) != FN_OUTSIDE else LEFT)


@inner
def walk(t, c, state, x):  # type: ignore[no-untyped-def]
    """Path `x` from `state`: the state behind it. What it holds becomes parts (see `_part`)."""
    a, behind, begin = state >> BEHIND, state & _MASK, t.size[Z_PARTS]
    if x == _DISABLED:
        a, behind = _off(t, c, a, behind)
        return a << BEHIND | behind
    whole = max(c.path[XC * x + X_INSTRUCTIONS], 1)
    made = of_paths(c, x)
    for m in range(links_of(c, x) if made else 1):
        part = link(c, x, m) if made else x
        if part == _DISABLED:
            a, behind = _off(t, c, a, behind)
            continue
        for q in range(links_of(c, part)):
            b = link(c, part, q)
            if c.block[BC * b + B_ITEMS] > 0:
                way = np.int64(c.link[2 * (c.path[XC * part + X_LINK] + q) + 1])
                a, behind = _through(t, c, a, behind, b, way, begin, whole)
    return a << BEHIND | behind


@apart
def walk_told(t, c, e, event, end, j, state, x, times):  # type: ignore[no-untyped-def]
    """As `walk`, `times` times, with the events [event, end) that are at position `j`; also the event behind them."""
    a, behind, begin = state >> BEHIND, state & _MASK, t.size[Z_PARTS]
    whole = max(times * c.path[XC * x + X_INSTRUCTIONS], 1)
    made, n = of_paths(c, x), np.int64(0)
    if x == _DISABLED:  # stacks are read of a thread that is out of the filter
        while event < end and e.order[event] == j and e.kind[event] != _STACK:
            a = _event(t, c, e, event, a, begin, whole)
            event += 1
        a, behind = _off(t, c, a, behind)
        while event < end and e.order[event] == j:
            a = happened(t, c, e, event, a)
            event += 1
        return a << BEHIND | behind, event
    for _ in range(times):
        for m in range(links_of(c, x) if made else 1):
            part = link(c, x, m) if made else x
            if part == _DISABLED:
                a, behind = _off(t, c, a, behind)
                continue
            for q in range(links_of(c, part)):
                while event < end and e.order[event] == j and e.block[event] <= n:
                    if switches(e, event):
                        a, behind = _switched(t, c, e, event, a, behind)
                        event += 1
                        continue
                    if class_of(t, c, a) != FN_INTERPRETER and e.block[event] == n:
                        break  # it comes there with this block
                    a = _event(t, c, e, event, a, begin, whole)
                    event += 1
                b = link(c, part, q)
                if c.block[BC * b + B_ITEMS] > 0:
                    way = np.int64(c.link[2 * (c.path[XC * part + X_LINK] + q) + 1])
                    a, behind = _through(t, c, a, behind, b, way, begin, whole)
                n += 1
    while event < end and e.order[event] == j:
        if switches(e, event):
            a, behind = _switched(t, c, e, event, a, behind)
        else:
            a = _event(t, c, e, event, a, begin, whole)
        event += 1
    return a << BEHIND | behind, event


@inner
def switches(e, k):  # type: ignore[no-untyped-def]
    """Whether event `k` is of a virtual thread."""
    return e.kind[k] == _MOUNT or e.kind[k] == _UNMOUNT


@inner
def _switched(t, c, e, k, a, behind):  # type: ignore[no-untyped-def]
    """A virtual thread is put away, or goes on: with the return out of the stub that has thawed its frames."""
    if e.kind[k] == _UNMOUNT:
        unmounted(t, c, e.bci[k], a)
        return a, behind
    to = mounted(t, c, e.bci[k], a)
    return to, behind if to == a else np.int64(STUB_RETURNED)


@inner
def _event(t, c, e, k, a, begin, whole):  # type: ignore[no-untyped-def]
    if class_of(t, c, a) != FN_INTERPRETER:
        return a
    before = entered_at(t, c, a) if e.kind[k] == _ENTER else _NONE
    a = happened(t, c, e, k, a)
    if e.kind[k] == _ENTER:
        _part(t, begin, whole, before, np.int64(-1), _NONE, _NONE)
        _part(t, begin, whole, t.activation[AC * a + A_NODE], np.int64(1), _NONE, _NONE)
    return a


@inner
def step_of(t, state, x):  # type: ignore[no-untyped-def]
    """The row of a step, 0: not made before; and its slot."""
    mask, h = t.size[Z_STATES], mixed(state, x, _NONE)
    i, tag, tried = first_slot(state >> BEHIND, h, mask), tag_of(h), 1
    while t.by_state[i] != 0:
        slot = np.int64(t.by_state[i])
        if not differs(slot, tag):
            s = row_in(slot)
            if t.step[SC * s + S_STATE] == state and t.step[SC * s + S_PATH] == x:
                return s, i
        i = next_slot(i, state >> BEHIND, h, mask, tried)
        tried += 1
    return np.int64(0), i


@inner
def has_room(t, c, x):  # type: ignore[no-untyped-def]
    """Whether there is room for a step of path `x`, whatever it leads through. A block has an instruction."""
    joins = links_of(c, x) if of_paths(c, x) else np.int64(0)
    parts = t.size[Z_PARTS] + joins + c.path[XC * x + X_INSTRUCTIONS] * t.size[Z_MOST]
    return t.size[Z_STEPS] + joins < t.size[Z_STEP_ROOM] and parts <= t.size[Z_PART_ROOM] - SPARE_PARTS


@inner
def _put(t, state, x, after, slot, begin, end, instructions):  # type: ignore[no-untyped-def]
    """The row of a new step with parts [begin, end)."""
    s = t.size[Z_STEPS]
    t.size[Z_STEPS] = s + 1
    t.by_state[slot] = tag_of(mixed(state, x, _NONE)) | s
    t.step[SC * s + S_STATE], t.step[SC * s + S_PATH], t.step[SC * s + S_NEXT] = state, x, after
    t.step[SC * s + S_PARTS], t.step[SC * s + S_INSTRUCTIONS] = begin | end << ENDS, instructions
    mask = t.size[Z_STATES]
    if 2 * s > mask:
        t.size[Z_STATES] = spread(t.step, np.int64(SC), s + 1, 2, t.by_state, mask)
    return s


@inner
def _name(e, event, end, x):  # type: ignore[no-untyped-def]
    """Of a path with events: in place of a path's number, which is not negative."""
    name = mixed(x, np.int64(end - event), np.int64(-1))
    for k in range(event, end):
        place = np.int64(e.block[k]) << 8 | np.int64(e.kind[k])
        name = mixed(name, place, np.int64(e.fn[k]) << 20 ^ np.int64(e.bci[k]))
    return name | np.int64(-(1 << 63))


@inner
def told_step(t, c, e, event, events, j, state, x):  # type: ignore[no-untyped-def]
    """The step of path `x` with the events from `event` on that are at position `j`, which is made if it is new: found
    by a hash of 63 bits of all of them. 0: there is no room for it."""
    end = event
    while end < events and e.order[end] == j:
        end += 1
    name = _name(e, event, end, x)
    s, slot = step_of(t, state, name)
    if s == 0:
        t.size[Z_MADE] += 1
        begin, instructions = t.size[Z_PARTS], c.path[XC * x + X_INSTRUCTIONS]
        most = begin + instructions * t.size[Z_MOST] + 2 * (end - event)
        if t.size[Z_STEPS] >= t.size[Z_STEP_ROOM] or most > t.size[Z_PART_ROOM] - SPARE_PARTS:
            return s
        after, _ = walk_told(t, c, e, event, end, j, state, x, np.int64(1))
        s = _put(t, state, name, after, slot, begin, t.size[Z_PARTS], instructions)
    return s


@inner
def new_step(t, c, state, x, slot):  # type: ignore[no-untyped-def]
    begin = t.size[Z_PARTS]
    after = walk(t, c, state, x)
    return _put(t, state, x, after, slot, begin, t.size[Z_PARTS], c.path[XC * x + X_INSTRUCTIONS])


@inner
def joined(t, c, state, x):  # type: ignore[no-untyped-def]
    """A new step of a path of paths."""
    of, last, links = state, np.int64(0), links_of(c, x)
    begin = end = t.size[Z_PARTS]
    t.size[Z_PARTS] += links
    for m in range(links):
        y = link(c, x, m)
        s, slot = step_of(t, of, y)
        if s == 0:
            s = new_step(t, c, of, y, slot)
        if s != last:
            t.part[RC * end + R_NODE], t.part[RC * end + R_INVOCATIONS] = -s, 0
            end += 1
        t.part[RC * (end - 1) + R_INVOCATIONS] += 1
        of, last = t.step[SC * s + S_NEXT], s
    s, slot = step_of(t, state, x)
    return _put(t, state, x, of, slot, begin, end, c.path[XC * x + X_INSTRUCTIONS])

"""Finding blocks: where code leads from an address until a packet is needed.

Addresses become block ids here, and blocks the paths of one block that a TIP completes. An asynchronous event
in the middle makes a shorter block that ends at its address.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.follow.cfg.graph import (
    BL,
    BL_EFFECT,
    BL_FALL,
    BL_FROM,
    BL_INSTRS,
    BL_KIND,
    BL_PUSH,
    BL_PUSHED,
    BL_PUSHES,
    BL_RANGE,
    BL_RANGES,
    BL_TAKEN,
    BL_TIP_PATH,
    BL_TURNS,
    COND,
    CUT,
    DEAD,
    E_HOP,
    E_LEADS,
    E_MANY,
    E_POP,
    E_UPDATES,
    FAR,
    FULL,
    G_ADDRESS_MASK,
    G_BLOCK_ROOM,
    G_BLOCKS,
    G_CUT_MASK,
    G_CUTS,
    G_JUMPS,
    G_LINE_MASK,
    G_LINES,
    G_LINK_ROOM,
    G_LINKS,
    G_PATH_ROOM,
    G_PATHS,
    G_POOL,
    G_POOL_ROOM,
    G_RANGE_ROOM,
    G_RANGES,
    G_TNT_CACHE,
    G_TNT_CACHE_MASK,
    IND,
    LOOP,
    OFF,
    OUT,
    OUTSIDE,
    PA,
    PA_FLAGS,
    PA_HIGH,
    PA_INSTRS,
    PA_LEN,
    PA_POOL,
    PA_PUSH,
    PA_PUSHES,
    PA_START,
    PATH_RETURNS,
    RESOLVE,
    RET,
    STUCK,
    UNWALKED,
    blob_of,
    filtered,
    raw_tables,
    scatter,
)
from stages.follow.code.invalidation import (
    note,
)
from stages.follow.code.jumps import (
    ANYWHERE,
    BEHIND_CALL,
    EITHER,
    INTO_COMPILED,
    LOADED,
    UPDATES_CALL,
    known,
    leads,
    loaded,
)
from stages.pointers import (
    within,
)
from stages.pt import x86
from stages.pt.return_stack import NONE, call_pushes, pushed

BLOCK_LIMIT = 1 << 17  # instructions; more, or as many transfers as below, without a packet is a loop
TRANSFER_LIMIT = 128
PACKET_BLOCKS = np.int64(64 * (TRANSFER_LIMIT + 8))  # more than one packet can bring
PACKET_PATHS = np.int64(64)  # the same
PACKET_LINKS = np.int64(64 * 80)  # the same, of lines too
ONCE = np.int64(1)
_NOWHERE = np.int64(0)


@inner
def intern(t, address):  # type: ignore[no-untyped-def]
    """The block that begins at `address`, made (unwalked) where there is none. FULL: no room."""
    mask = t.g[G_ADDRESS_MASK]
    i = scatter(address) & mask
    while t.by_address[2 * i + 1] != 0:
        if t.by_address[2 * i] == address:
            s = t.by_address[2 * i + 1]
            if t.block[s * BL + BL_KIND] != DEAD:
                return s
            break
        i = (i + 1) & mask
    s = t.g[G_BLOCKS]
    if s >= t.g[G_BLOCK_ROOM]:
        return FULL
    t.g[G_BLOCKS] = s + 1
    t.address[s] = address
    for k in range(BL):
        t.block[s * BL + k] = 0
    t.by_address[2 * i] = address
    t.by_address[2 * i + 1] = s
    return s


@kernel
def intern_all(where, those):  # type: ignore[no-untyped-def]
    """Replace each address in `those` by its block; 0 stays 0. `where`: `Tables.raw()`."""
    t = raw_tables(where)
    for k in range(len(those)):
        if those[k]:
            those[k] = intern(t, those[k])


@inner
def alive(t, s):  # type: ignore[no-untyped-def]
    """`s`, or its replacement if its code has changed. FULL: no room."""
    return intern(t, t.address[s]) if t.block[s * BL + BL_KIND] == DEAD else s


@inner
def new_path(t, n):  # type: ignore[no-untyped-def]
    """A path of the last `n` ids of the pool. The caller made sure of the room."""
    p = t.g[G_PATHS]
    t.g[G_PATHS] = p + 1
    for k in range(PA):
        t.path[p * PA + k] = 0
    t.path[p * PA + PA_POOL] = t.g[G_POOL] - n
    t.path[p * PA + PA_LEN] = n
    t.path_instrs[p] = 0
    return p


@inner
def room(t, packets):  # type: ignore[no-untyped-def]
    """Whether all that so many packets can need fits. A packet is begun with room for two, and its steps on the way ask
    for one: so it is never given up half done."""
    g = t.g
    blocks = packets * PACKET_BLOCKS
    return (
        g[G_BLOCKS] + blocks < g[G_BLOCK_ROOM]
        and 4 * (g[G_BLOCKS] + blocks) < 3 * g[G_ADDRESS_MASK]
        and g[G_PATHS] + packets * 256 < g[G_PATH_ROOM]
        and g[G_POOL] + 2 * blocks < g[G_POOL_ROOM]
        and g[G_RANGES] + blocks < g[G_RANGE_ROOM]
        and 2 * (g[G_CUTS] + packets) < g[G_CUT_MASK]
        and 2 * (g[G_TNT_CACHE] + packets * PACKET_PATHS) < g[G_TNT_CACHE_MASK]
        and g[G_LINKS] + packets * PACKET_LINKS < g[G_LINK_ROOM]
        and 4 * (g[G_LINES] + packets * PACKET_LINKS) < 3 * g[G_LINE_MASK]
    )


@inner
def _trace(t, s, bounded, stop):  # type: ignore[no-untyped-def]
    """Follow the code from the beginning of block `s` to where a packet is needed, or, if `bounded`, to `stop`.

    Fills the row of `s`; false if `stop` was never reached. Ranges and pushes go to the ends of their pools.
    """
    g = t.g
    r = s * BL
    here = t.address[s]
    first_range, first_push = g[G_RANGES], g[G_POOL]
    instrs, transfers, since = 0, 0, 0
    begun = begin = here
    kind = UNWALKED
    what = x86.OTHER
    led = ANYWHERE
    taken, fall = np.int64(0), np.int64(0)
    b = blob_of(t, here)
    while True:
        if bounded and here == stop:
            kind = CUT
            break
        if filtered(t, here):
            kind = OUT
            break
        if b < 0 or not within(t.blob_start[b], here, t.blob_end[b]):
            b = blob_of(t, here)
            if b < 0:
                kind = OFF
                break
        if instrs >= BLOCK_LIMIT or transfers >= TRANSFER_LIMIT:
            kind = LOOP
            break
        place = t.blob_at[b] + here - t.blob_start[b]
        insn = x86.decode(t.code, place, t.blob_at[b] + t.blob_end[b] - t.blob_start[b])
        size = insn & 0xFF
        what = (insn >> 8) & 0xFF
        if size == 0:
            kind = OFF
            break
        if what == x86.BAD:
            kind = STUCK
            break
        instrs += 1
        since += 1
        after = here + size
        if what == x86.OTHER:
            here = after
            continue
        target = after
        if what == x86.JUMP or what == x86.CALL or what == x86.COND:
            target = after + x86.displacement(t.code, place + size, insn)
        if what == x86.CALL_IND or (what == x86.CALL and call_pushes(target, after)):
            t.pool[g[G_POOL]] = intern(t, after)
            g[G_POOL] += 1
        if what == x86.JUMP or what == x86.CALL:
            transfers += 1
            begin = here
            n = g[G_RANGES]
            t.ranges[3 * n] = begun
            t.ranges[3 * n + 1] = after
            t.ranges[3 * n + 2] = since
            g[G_RANGES] = n + 1
            here = begun = target
            since = 0
            continue
        if what == x86.COND:
            kind = COND
            if not bounded:
                taken, fall = intern(t, target), intern(t, after)
        elif what == x86.RET:
            kind = RET
            led = BEHIND_CALL
        elif what == x86.FAR:
            kind = FAR
        else:
            kind = IND
            if what == x86.JUMP_IND:
                led = leads(t.jump, g[G_JUMPS], here, t.code, place)
                if led == UPDATES_CALL:
                    kind = RESOLVE
            elif loaded(t.code, place, here - t.blob_start[b]):
                led = LOADED
        n = g[G_RANGES]
        t.ranges[3 * n] = begun
        t.ranges[3 * n + 1] = after
        t.ranges[3 * n + 2] = since
        g[G_RANGES] = n + 1
        begun = after
        break
    t.last[s] = here
    ended = (
        kind == COND or kind == RET or kind == FAR or kind == IND or kind == RESOLVE
    )  # by an instruction, whose range is written
    if not ended and (since or g[G_RANGES] == first_range):
        n = g[G_RANGES]
        t.ranges[3 * n] = begun
        t.ranges[3 * n + 1] = here
        t.ranges[3 * n + 2] = since
        g[G_RANGES] = n + 1
    if kind == OFF and instrs == 0:
        kind = OUTSIDE
    t.block[r + BL_KIND] = kind
    t.block[r + BL_INSTRS] = instrs
    t.block[r + BL_RANGE] = first_range
    t.block[r + BL_RANGES] = g[G_RANGES] - first_range
    t.block[r + BL_PUSH] = first_push
    t.block[r + BL_PUSHES] = g[G_POOL] - first_push
    t.block[r + BL_TAKEN] = taken
    t.block[r + BL_FALL] = fall
    pushes = g[G_POOL] - first_push
    fixes = 0
    if kind == OUT and what == x86.CALL and pushes == 1 and known(t.jump, g[G_JUMPS], begin) == EITHER:
        fixes = E_UPDATES  # an adapter calls SharedRuntime::fixup_callers_callsite
    hop = E_HOP if (kind == IND or kind == RESOLVE) and what == x86.JUMP_IND else 0
    hop |= fixes | (led << E_LEADS if led >= INTO_COMPILED else 0)
    t.block[r + BL_EFFECT] = (E_MANY if pushes > 1 else pushes) | (E_POP if kind == RET else 0) | hop
    t.block[r + BL_PUSHED] = t.pool[first_push] if pushes else 0
    return not bounded or kind == CUT


@inner
def _own_path(t, s):  # type: ignore[no-untyped-def]
    """Give block `s` the path that is this block alone: the path that a TIP completes."""
    t.pool[t.g[G_POOL]] = s
    t.g[G_POOL] += 1
    p = new_path(t, ONCE)
    t.pool[t.g[G_POOL]] = 0
    t.g[G_POOL] += 1
    t.path[p * PA + PA_PUSH] = t.block[s * BL + BL_PUSH]
    t.path[p * PA + PA_PUSHES] = t.block[s * BL + BL_PUSHES]
    t.path[p * PA + PA_HIGH] = pushed(NONE, np.int64(t.block[s * BL + BL_PUSHES]))
    t.path[p * PA + PA_FLAGS] = PATH_RETURNS if t.block[s * BL + BL_KIND] == RET else 0
    t.path[p * PA + PA_START] = t.block[s * BL + BL_FROM] if t.block[s * BL + BL_FROM] else s
    t.path[p * PA + PA_INSTRS] = t.path_instrs[p] = t.block[s * BL + BL_INSTRS]
    t.block[s * BL + BL_TIP_PATH] = p


@inner
def walk(t, s):  # type: ignore[no-untyped-def]
    """Find where block `s` leads. FULL: no room for it."""
    if not room(t, ONCE):
        return FULL
    _trace(t, s, False, _NOWHERE)
    _own_path(t, s)
    note(t, s)
    return s


@inner
def cut_block(t, s, ip):  # type: ignore[no-untyped-def]
    """The part of block `s` before the instruction at `ip`. 0: `ip` is not on it; FULL: no room."""
    if not room(t, ONCE):
        return FULL
    mask = t.g[G_CUT_MASK]
    i = scatter(ip ^ s << 40) & mask
    while t.by_cut[i] != 0:
        c = np.int64(t.by_cut[i])
        if t.block[c * BL + BL_FROM] == s and t.last[c] == ip:
            return c
        i = (i + 1) & mask
    g = t.g
    ranges, pool = g[G_RANGES], g[G_POOL]
    c = g[G_BLOCKS]
    g[G_BLOCKS] = c + 1
    t.address[c] = t.address[s]
    if not _trace(t, c, True, ip):
        # the pools can be taken back; ids of return addresses may have come behind c, so c stays, unused
        g[G_RANGES], g[G_POOL] = ranges, pool
        t.block[c * BL + BL_KIND] = DEAD
        return 0
    t.block[c * BL + BL_FROM] = s
    t.block[c * BL + BL_TURNS] = t.block[s * BL + BL_KIND] == LOOP
    _own_path(t, c)
    note(t, c)
    t.by_cut[i] = c
    g[G_CUTS] += 1
    return c

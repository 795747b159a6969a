"""The decision graph: machine code cut at the places where a decoder needs a packet.

A *stretch* begins at an address where control can arrive (a branch target, a return address, the IP of a packet)
and runs, over direct jumps and calls, to the next instruction whose outcome only the trace knows. It is found once,
when control first arrives there, and then stands for all it passed: address ranges, instructions, calls.

The decoder's position is "in stretch s, waiting for what its last instruction does". So the states of the walker
are stretches, and a path is the list of the stretches it completed.

All of it lies in flat arrays of fixed capacity (`Tables`). Stretch ids are never used twice in one generation of
the tables: when code changes, the stretches over it die, and their addresses get new ids when control arrives there
again. An id therefore names a place in one version of the code.
"""

from __future__ import annotations

from collections import namedtuple
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stages.flow import x86
from stages.flow.raw import addresses, i32_at, i64_at, inner, u8_at

I8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

# How a stretch ends (ST_KIND). The first three take a TIP.
UNWALKED, IND, RET, FAR, COND = 0, 1, 2, 3, 4
OUT = 5  # a direct branch, or just the next instruction, left the IP filter: a TIP.PGD must follow
OFF = 6  # left the known code
STUCK = 7  # bytes that are no instruction, or UD2: only an asynchronous event can follow
LOOP = 8  # a loop without packets: the same
CUT = 9  # ended by an asynchronous event
OUTSIDE = 10  # does not begin in known code: nothing to follow until a packet leads back
LOST = 11  # no stretch: waiting for an address
DISABLED = 12  # no stretch: tracing is off until a TIP.PGE
DEAD = 13  # its code has changed

# columns of a stretch's row, one cache line
ST = 16
(
    ST_KIND, ST_TIP_PATH, ST_EFFECT, ST_PUSHED, ST_INSTRS, ST_RANGE, ST_RANGES, ST_PUSH, ST_PUSHES, ST_TAKEN, ST_FALL,
    ST_FROM,
) = range(12)  # fmt: skip

# ST_EFFECT: what a TIP at the stretch's end does to the return stack
E_PUSH, E_POP, E_MANY = 1, 2, 4  # pushes ST_PUSHED; pops after it; pushes a list

# columns of a path's row
PA = 8
PA_POOL, PA_LEN, PA_PUSH, PA_PUSHES, PA_HIGH, PA_FLAGS = range(6)

# columns of a memo slot
ME = 8
ME_KEY, ME_NEXT, ME_PATH, ME_FLAGS, ME_PUSHED = range(5)

# stretch ids and path ids with a meaning of their own
S_LOST, S_DISABLED, S_FIRST = 0, 1, 2
P_EMPTY, P_DISABLED, P_BREAK, P_FIRST = 0, 1, 2, 3

# counters, settings and sizes in `g`
(
    G_STRETCHES, G_PATHS, G_POOL, G_RANGES, G_MEMO, G_NODES, G_CMEMO, G_FILTER_LO, G_FILTER_HI, G_NORETCOMP,
    G_MISSES, G_CUTS, G_CMISSES, G_CONTEXT_FULL, G_STRETCH_ROOM, G_PATH_ROOM, G_POOL_ROOM, G_RANGE_ROOM, G_NODE_ROOM,
    G_ADDRESS_MASK, G_CUT_MASK, G_MEMO_MASK, G_CALL_MASK, G_CMEMO_MASK, G_BLOBS, G_CODE_SIZE, G_SIZE,
) = range(27)  # fmt: skip

RING = 64  # entries of the return stack (SDM, "RET compression")
SLOTS = 128  # its ring has more, so that the one above the top is never in use and can be written without a branch
STRETCH_LIMIT = 1 << 16  # instructions; more, or as many transfers as below, without a packet is a loop
TRANSFER_LIMIT = 128
PACKET_STRETCHES = 64 * (TRANSFER_LIMIT + 8)  # more than one packet can bring
PACKET_PATHS = 64  # the same
FULL = -1


class Tables(NamedTuple):
    """Everything the kernels share about one process's code; see the columns above."""

    code: I8
    blob_start: I64  # merged where adjacent; ascending as signed numbers
    blob_end: I64
    blob_at: I64
    g: I64
    stretch: I32
    address: I64  # first address of each stretch
    last: I64  # address of its last instruction; where it left, if OUT or OFF
    by_address: I64  # open addressing: address, id
    by_cut: I32  # open addressing: id
    memo: I32
    path: I32
    path_instrs: I64  # instructions on each path
    pool: I32  # lists of stretch ids: of paths, and of pushed return addresses
    ranges: I64  # lo, hi (one past), instructions
    node: I32  # calling contexts: parent, return address' stretch, depth, spare
    by_call: I64  # open addressing: parent << 32 | return stretch, node
    cmemo: I64  # open addressing: node << 32 | path, node' << 32 | times
    node_instrs: I64

    def raw(self) -> I64:
        """Where the tables lie, for `raw_tables`; their sizes go to `g`. The tables must outlive it."""
        g = self.g
        g[G_STRETCH_ROOM], g[G_PATH_ROOM], g[G_POOL_ROOM] = len(self.address), len(self.path_instrs), len(self.pool)
        g[G_RANGE_ROOM], g[G_NODE_ROOM] = len(self.ranges) // 3, len(self.node_instrs)
        g[G_ADDRESS_MASK], g[G_CUT_MASK] = len(self.by_address) // 2 - 1, len(self.by_cut) - 1
        g[G_MEMO_MASK], g[G_CALL_MASK] = len(self.memo) // ME - 1, len(self.by_call) // 2 - 1
        g[G_CMEMO_MASK] = len(self.cmemo) // 2 - 1
        g[G_BLOBS], g[G_CODE_SIZE] = len(self.blob_start), len(self.code)
        return addresses(*self)


Raw = namedtuple("Raw", Tables._fields)  # type: ignore[misc]


@inner
def raw_tables(a):  # type: ignore[no-untyped-def]
    """The tables as pointers, from `Tables.raw()`."""
    return Raw(  # type: ignore[call-arg]
        u8_at(a[0]), i64_at(a[1]), i64_at(a[2]), i64_at(a[3]), i64_at(a[4]), i32_at(a[5]), i64_at(a[6]),
        i64_at(a[7]), i64_at(a[8]), i32_at(a[9]), i32_at(a[10]), i32_at(a[11]), i64_at(a[12]), i32_at(a[13]),
        i64_at(a[14]), i32_at(a[15]), i64_at(a[16]), i64_at(a[17]), i64_at(a[18]),
    )  # fmt: skip


@inner
def scatter(x):  # type: ignore[no-untyped-def]
    """A hash of a 64-bit number; the caller masks its low bits."""
    h = x * -7046029254386353131
    return (h >> 40) ^ (h >> 20)


@inner
def find(t, address):  # type: ignore[no-untyped-def]
    """The stretch that begins at `address`, or FULL if there is none yet."""
    mask = t.g[G_ADDRESS_MASK]
    i = scatter(address) & mask
    while True:
        s = np.int64(t.by_address[2 * i + 1])
        if s == 0 or np.int64(t.by_address[2 * i]) == address:
            return s if s > 0 else FULL
        i = (i + 1) & mask


@inner
def intern(t, address):  # type: ignore[no-untyped-def]
    """The stretch that begins at `address`, made (unwalked) where there is none. FULL: no room."""
    mask = t.g[G_ADDRESS_MASK]
    i = scatter(address) & mask
    while t.by_address[2 * i + 1] != 0:
        if t.by_address[2 * i] == address:
            s = t.by_address[2 * i + 1]
            if t.stretch[s * ST + ST_KIND] != DEAD:
                return s
            break
        i = (i + 1) & mask
    s = t.g[G_STRETCHES]
    if s >= t.g[G_STRETCH_ROOM]:
        return FULL
    t.g[G_STRETCHES] = s + 1
    t.address[s] = address
    for k in range(ST):
        t.stretch[s * ST + k] = 0
    t.by_address[2 * i] = address
    t.by_address[2 * i + 1] = s
    return s


@njit(cache=True, nogil=True)
def intern_all(where, those):  # type: ignore[no-untyped-def]
    """Replace each address in `those` by its stretch; 0 stays 0. `where`: `Tables.raw()`."""
    t = raw_tables(where)
    for k in range(len(those)):
        if those[k]:
            those[k] = intern(t, those[k])


@inner
def alive(t, s):  # type: ignore[no-untyped-def]
    """`s`, or what replaces it if its code has changed. FULL: no room."""
    return intern(t, t.address[s]) if t.stretch[s * ST + ST_KIND] == DEAD else s


@inner
def blob_of(t, address):  # type: ignore[no-untyped-def]
    """Index of the blob that holds `address`, or -1."""
    lo, hi = 0, t.g[G_BLOBS]
    while lo < hi:
        mid = (lo + hi) >> 1
        if t.blob_start[mid] <= address:
            lo = mid + 1
        else:
            hi = mid
    if lo > 0 and address < t.blob_end[lo - 1]:
        return lo - 1
    return -1


@inner
def filtered(t, address):  # type: ignore[no-untyped-def]
    """Whether there is an IP filter and it excludes `address`."""
    lo, hi = t.g[G_FILTER_LO], t.g[G_FILTER_HI]
    return lo != hi and not (lo <= address < hi)


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
    """Whether all that so many packets can need fits. A packet is begun with room for two, and what it does on the
    way asks for one: so it is never given up half done."""
    g = t.g
    stretches = packets * PACKET_STRETCHES
    return (
        g[G_STRETCHES] + stretches < g[G_STRETCH_ROOM]
        and 4 * (g[G_STRETCHES] + stretches) < 3 * g[G_ADDRESS_MASK]
        and g[G_PATHS] + packets * 256 < g[G_PATH_ROOM]
        and g[G_POOL] + 2 * stretches < g[G_POOL_ROOM]
        and g[G_RANGES] + stretches < g[G_RANGE_ROOM]
        and 2 * (g[G_CUTS] + packets) < g[G_CUT_MASK]
        and 2 * (g[G_MEMO] + packets * PACKET_PATHS) < g[G_MEMO_MASK]
    )


@inner
def _trace(t, s, stop):  # type: ignore[no-untyped-def]
    """Follow the code from the beginning of stretch `s` to where a packet is needed, or to before `stop`.

    Fills the row of `s`; false if `stop` (an address; -1: none) was never reached. Ranges and pushes go to the ends
    of their pools.
    """
    g = t.g
    r = s * ST
    here = t.address[s]
    first_range, first_push = g[G_RANGES], g[G_POOL]
    instrs, transfers, since = 0, 0, 0
    begun = here
    kind = UNWALKED
    taken, fall = np.int64(0), np.int64(0)
    b = blob_of(t, here)
    while True:
        if here == stop:
            kind = CUT
            break
        if filtered(t, here):
            kind = OUT
            break
        if b < 0 or not (t.blob_start[b] <= here < t.blob_end[b]):
            b = blob_of(t, here)
            if b < 0:
                kind = OFF
                break
        if instrs >= STRETCH_LIMIT or transfers >= TRANSFER_LIMIT:
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
            last = place + size
            if insn >> 16:
                target = after + np.int64(np.int8(t.code[last - 1]))
            else:
                rel = (
                    np.int64(t.code[last - 4])
                    | np.int64(t.code[last - 3]) << 8
                    | np.int64(t.code[last - 2]) << 16
                    | np.int64(np.int8(t.code[last - 1])) << 24
                )
                target = after + rel
        if what == x86.CALL_IND or (what == x86.CALL and target != after):  # CALL +0 is not pushed (SDM)
            t.pool[g[G_POOL]] = intern(t, after)
            g[G_POOL] += 1
        if what == x86.JUMP or what == x86.CALL:
            transfers += 1
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
            if stop == -1:
                taken, fall = intern(t, target), intern(t, after)
        elif what == x86.RET:
            kind = RET
        elif what == x86.FAR:
            kind = FAR
        else:
            kind = IND
        n = g[G_RANGES]
        t.ranges[3 * n] = begun
        t.ranges[3 * n + 1] = after
        t.ranges[3 * n + 2] = since
        g[G_RANGES] = n + 1
        begun = after
        break
    t.last[s] = here
    ended = kind == COND or kind == RET or kind == FAR or kind == IND  # by an instruction, whose range is written
    if not ended and (since or g[G_RANGES] == first_range):
        n = g[G_RANGES]
        t.ranges[3 * n] = begun
        t.ranges[3 * n + 1] = here
        t.ranges[3 * n + 2] = since
        g[G_RANGES] = n + 1
    if kind == OFF and instrs == 0:
        kind = OUTSIDE
    t.stretch[r + ST_KIND] = kind
    t.stretch[r + ST_INSTRS] = instrs
    t.stretch[r + ST_RANGE] = first_range
    t.stretch[r + ST_RANGES] = g[G_RANGES] - first_range
    t.stretch[r + ST_PUSH] = first_push
    t.stretch[r + ST_PUSHES] = g[G_POOL] - first_push
    t.stretch[r + ST_TAKEN] = taken
    t.stretch[r + ST_FALL] = fall
    pushes = g[G_POOL] - first_push
    t.stretch[r + ST_EFFECT] = (E_MANY if pushes > 1 else pushes) | (E_POP if kind == RET else 0)
    t.stretch[r + ST_PUSHED] = t.pool[first_push] if pushes else 0
    return stop == -1 or kind == CUT


@inner
def _own_path(t, s):  # type: ignore[no-untyped-def]
    """Give stretch `s` the path that is this stretch alone: what a TIP completes."""
    t.pool[t.g[G_POOL]] = s
    t.g[G_POOL] += 1
    p = new_path(t, 1)
    t.path[p * PA + PA_PUSH] = t.stretch[s * ST + ST_PUSH]
    t.path[p * PA + PA_PUSHES] = t.stretch[s * ST + ST_PUSHES]
    t.path[p * PA + PA_HIGH] = t.stretch[s * ST + ST_PUSHES]
    t.path_instrs[p] = t.stretch[s * ST + ST_INSTRS]
    t.stretch[s * ST + ST_TIP_PATH] = p


@inner
def walk(t, s):  # type: ignore[no-untyped-def]
    """Find where stretch `s` leads. FULL: no room for it."""
    if not room(t, 1):
        return FULL
    _trace(t, s, -1)
    _own_path(t, s)
    return s


@inner
def cut(t, s, ip):  # type: ignore[no-untyped-def]
    """The part of stretch `s` before the instruction at `ip`. 0: `ip` is not on it; FULL: no room."""
    if not room(t, 1):
        return FULL
    mask = t.g[G_CUT_MASK]
    i = scatter(ip ^ s << 40) & mask
    while t.by_cut[i] != 0:
        c = np.int64(t.by_cut[i])
        if t.stretch[c * ST + ST_FROM] == s and t.last[c] == ip:
            return c
        i = (i + 1) & mask
    g = t.g
    ranges, pool = g[G_RANGES], g[G_POOL]
    c = g[G_STRETCHES]
    g[G_STRETCHES] = c + 1
    t.address[c] = t.address[s]
    if not _trace(t, c, ip):
        # the pools can be taken back; ids of return addresses may have come behind c, so c stays, unused
        g[G_RANGES], g[G_POOL] = ranges, pool
        t.stretch[c * ST + ST_KIND] = DEAD
        return 0
    t.stretch[c * ST + ST_FROM] = s
    _own_path(t, c)
    t.by_cut[i] = c
    g[G_CUTS] += 1
    return c


@inner
def on_stretch(t, s, ip):  # type: ignore[no-untyped-def]
    """Whether an instruction of stretch `s` begins at `ip`."""
    r = s * ST
    if ip == t.last[s]:
        return True
    for k in range(t.stretch[r + ST_RANGES]):
        n = np.int64(t.stretch[r + ST_RANGE]) + k
        here, hi = t.ranges[3 * n], t.ranges[3 * n + 1]
        if here <= ip < hi:
            b = blob_of(t, here)
            while b >= 0 and here < ip:
                size = x86.decode(t.code, t.blob_at[b] + here - t.blob_start[b], t.g[G_CODE_SIZE]) & 0xFF
                if size == 0:
                    return False
                here += size
            if here == ip:
                return True
    return False

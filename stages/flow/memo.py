"""The path memo: from a stretch, one TNT byte (up to six branches) leads over exactly one path to exactly one place.

So it is walked once and remembered: ``(stretch, byte) → (next stretch, path)``, in a bounded open-addressing table.
A path ends early, with the bits it did not use kept in TNT form (oldest first under a stop bit), where the bits
alone do not decide: at a compressed RET whose CALL lies before the path (the return stack decides), or at an
indirect branch whose TIP the processor deferred (SDM, "Deferred TIPs").
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numba import njit

from stages.flow.graph import (
    COND,
    DEAD,
    FAR,
    FULL,
    G_MEMO,
    G_MEMO_MASK,
    G_MISSES,
    G_NORETCOMP,
    G_POOL,
    IND,
    ME,
    ME_FLAGS,
    ME_KEY,
    ME_NEXT,
    ME_PATH,
    ME_PUSHED,
    OFF,
    OUTSIDE,
    P_EMPTY,
    PA,
    PA_FLAGS,
    PA_HIGH,
    PA_LEN,
    PA_POOL,
    PA_PUSH,
    PA_PUSHES,
    RET,
    RING,
    ST,
    ST_FALL,
    ST_INSTRS,
    ST_KIND,
    ST_PUSH,
    ST_PUSHES,
    ST_RANGE,
    ST_RANGES,
    ST_TAKEN,
    UNWALKED,
    alive,
    new_path,
    raw_tables,
    room,
    walk,
)
from stages.flow.raw import inner

# Flags of a memo slot. What a path does to the return stack stands in the slot itself, so that the walker can do it
# without a branch: with `high` the most entries the path has on the stack at once, and at most one of them left
# there at its end, depth' = min(depth, 64 − high) + left.
F_RET = 1  # it ends with a compressed RET: pop
F_TIP = 2  # the next stretch needs a TIP before the unused bits
F_ERROR = 4  # the bits contradict the code
F_STALE = 8  # code under it has changed: as good as absent
F_MANY = 16  # it leaves more than one entry on the stack: they are in a list
F_LOOP = 32  # it leads back to where it began
F_SPECIAL = 63
LEFT, LEFT_MASK = 8, 127  # the unused bits, in TNT form
PUSH = 15  # one bit: it leaves ME_PUSHED on the stack
HIGH = 16  # seven bits


@inner
def slot_of(key):  # type: ignore[no-untyped-def]
    """Where in the memo the search for `key` begins; the caller masks."""
    h = key * 0x9E3779B1
    return (h >> 15) ^ (h >> 28)


@inner
def bit_length(x):  # type: ignore[no-untyped-def]
    n = 0
    while x > 0:
        x >>= 1
        n += 1
    return n


@inner
def build(t, first, byte):  # type: ignore[no-untyped-def]
    """Walk `byte` (TNT form, at most six bits) from stretch `first` and remember it. FULL: no room."""
    if not room(t, 1):
        return FULL
    g = t.g
    g[G_MISSES] += 1
    s = np.int64(first)
    bits = bit_length(byte) - 1
    flags = 0
    done = np.empty(8, np.int64)
    length = 0
    stack = np.empty(4096, np.int64)
    depth, high, instrs = 0, 0, 0
    while bits > 0:
        s = alive(t, s)
        if t.stretch[s * ST + ST_KIND] == UNWALKED and walk(t, s) == FULL:
            return FULL
        row = s * ST
        kind = t.stretch[row + ST_KIND]
        bit = (byte >> (bits - 1)) & 1
        if kind == IND or kind == FAR or (kind == RET and g[G_NORETCOMP]):
            flags |= F_TIP
            break
        if kind != COND and (kind != RET or not bit):
            flags |= F_ERROR
            break
        bits -= 1
        done[length] = s
        length += 1
        instrs += t.stretch[row + ST_INSTRS]
        for k in range(t.stretch[row + ST_PUSHES]):
            stack[depth] = t.pool[t.stretch[row + ST_PUSH] + k]
            depth += 1
        if depth > high:
            high = depth
        if kind == COND:
            s = np.int64(t.stretch[row + (ST_TAKEN if bit else ST_FALL)])
        elif depth:
            depth -= 1
            s = stack[depth]
        else:
            flags |= F_RET
            break
    s = alive(t, s)
    path = np.int64(P_EMPTY)
    if length:
        for k in range(length):
            t.pool[g[G_POOL]] = done[k]
            g[G_POOL] += 1
        path = new_path(t, length)
        pushes = g[G_POOL]
        for k in range(depth):
            t.pool[g[G_POOL]] = stack[k]
            g[G_POOL] += 1
        if high > RING:
            high = RING
        if depth > 1:
            flags |= F_MANY
        flags |= high << HIGH | (1 << PUSH if depth == 1 else 0)
        t.path[path * PA + PA_PUSH] = pushes
        t.path[path * PA + PA_PUSHES] = depth
        t.path[path * PA + PA_HIGH] = high
        t.path[path * PA + PA_FLAGS] = flags
        t.path_instrs[path] = instrs
    if s == first and not flags & F_SPECIAL and not high:
        flags |= F_LOOP
    if bits or flags & F_ERROR:
        flags |= (1 << bits | (byte & ((1 << bits) - 1))) << LEFT
    key = first << 8 | byte
    mask = t.g[G_MEMO_MASK]
    i = slot_of(key) & mask
    while t.memo[ME * i + ME_KEY] != 0 and t.memo[ME * i + ME_KEY] != key:
        i = (i + 1) & mask
    if t.memo[ME * i + ME_KEY] == 0:
        g[G_MEMO] += 1
    t.memo[ME * i + ME_KEY] = key
    t.memo[ME * i + ME_NEXT] = s
    t.memo[ME * i + ME_PATH] = path
    t.memo[ME * i + ME_FLAGS] = flags
    t.memo[ME * i + ME_PUSHED] = stack[0] if depth else 0
    return path


@inner
def lookup(t, s, byte):  # type: ignore[no-untyped-def]
    """The memo slot of (`s`, `byte`), built where it is missing. FULL: no room."""
    key = s << 8 | byte
    mask = t.g[G_MEMO_MASK]
    i = slot_of(key) & mask
    while True:
        k = np.int64(t.memo[ME * i + ME_KEY])
        if k == key and not np.int64(t.memo[ME * i + ME_FLAGS]) & F_STALE:
            return i
        if k == 0 or k == key:
            if build(t, s, byte) == FULL:
                return FULL
            i = slot_of(key) & mask
            continue
        i = (i + 1) & mask


@njit(cache=True, nogil=True)
def invalidate(where, stretches, lo, hi):  # type: ignore[no-untyped-def]
    """Forget what depends on code in any of the intervals [lo[k], hi[k]), sorted and disjoint. Returns how many
    stretches died. Stretches that ended where code was missing die too: it may be there now.
    `where`: `Tables.raw()`."""
    t = raw_tables(where)
    dead = 0
    for s in range(2, stretches):
        r = s * ST
        kind = t.stretch[r + ST_KIND]
        if kind == UNWALKED or kind == DEAD:
            continue
        hit = kind == OFF or kind == OUTSIDE
        for k in range(t.stretch[r + ST_RANGES]):
            if hit:
                break
            n = np.int64(t.stretch[r + ST_RANGE]) + k
            j, upto = 0, len(hi)  # the first interval that ends behind the range's beginning
            while j < upto:
                mid = (j + upto) >> 1
                if hi[mid] <= t.ranges[3 * n]:
                    j = mid + 1
                else:
                    upto = mid
            hit = j < len(lo) and lo[j] < t.ranges[3 * n + 1]
        if hit:
            t.stretch[r + ST_KIND] = DEAD
            dead += 1
    if dead:
        for i in range(t.g[G_MEMO_MASK] + 1):
            if t.memo[ME * i + ME_KEY] == 0:
                continue
            path = np.int64(t.memo[ME * i + ME_PATH])
            stale = False
            for k in range(t.path[path * PA + PA_LEN]):
                s = np.int64(t.pool[t.path[path * PA + PA_POOL] + k])
                stale = stale or t.stretch[s * ST + ST_KIND] == DEAD
            first = np.int64(t.memo[ME * i + ME_KEY]) >> 8
            if (
                stale
                or t.stretch[first * ST + ST_KIND] == DEAD
                or t.stretch[np.int64(t.memo[ME * i + ME_NEXT]) * ST + ST_KIND] == DEAD
            ):
                t.memo[ME * i + ME_FLAGS] |= F_STALE
    return dead

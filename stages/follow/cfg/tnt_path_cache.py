"""The TNT path cache: from a block, one TNT byte (up to six branches) leads over exactly one path to exactly one place.

So it is walked once and remembered: ``(block, byte) → (next block, path)``, in a bounded open-addressing table.
A path ends early, with the bits it did not use kept in TNT form (oldest first under a stop bit), where the bits
alone do not decide: at a compressed RET whose CALL lies before the path (the return stack decides), or at an
indirect branch whose TIP the processor deferred (SDM, "Deferred TIPs").
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.block import (
    ONCE,
    alive,
    new_path,
    room,
)
from stages.follow.cfg.graph import (
    BL,
    BL_CACHED,
    BL_FALL,
    BL_INSTRS,
    BL_KIND,
    BL_PUSH,
    BL_PUSHES,
    BL_TAKEN,
    COND,
    FAR,
    FULL,
    G_MISSES,
    G_NORETCOMP,
    G_POOL,
    G_TNT_CACHE,
    G_TNT_CACHE_MASK,
    IND,
    P_EMPTY,
    PA,
    PA_FLAGS,
    PA_HIGH,
    PA_INSTRS,
    PA_PUSH,
    PA_PUSHES,
    PA_START,
    PATH_RETURNS,
    RESOLVE,
    RET,
    TC,
    TC_FLAGS,
    TC_KEY,
    TC_NEXT,
    TC_PATH,
    TC_PUSHED,
)
from stages.follow.cfg.miss import (
    ready,
)
from stages.follow.code.invalidation import (
    link,
    slot_of,
)
from stages.pt.return_stack import NONE, pushed
from stages.pt.tnt import count

# Flags of a TNT cache slot. A path's effect on the return stack stands in the slot itself, so that the walker can do it
# without a branch: with `high` the most entries the path has on the stack at once, and at most one of them left there
# at its end, depth' = min(depth, 64 − high) + left.
F_RET = 1  # it ends with a compressed RET: pop
F_TIP = 2  # the next block needs a TIP before the unused bits
F_ERROR = 4  # the bits contradict the code
F_MANY = 16  # it leaves more than one entry on the stack: they are in a list
F_LOOP = 32  # it leads back to where it began
F_SPECIAL = 63
LEFT, LEFT_MASK = 8, 127  # the unused bits, in TNT form
PUSH = 15  # one bit: it leaves TC_PUSHED on the stack
HIGH = 16  # seven bits


@inner
def build(t, first, byte):  # type: ignore[no-untyped-def]
    """Walk `byte` (TNT form, at most six bits) from block `first` and remember it. FULL: no room."""
    if not room(t, ONCE):
        return FULL
    g = t.g
    g[G_MISSES] += 1
    s = np.int64(first)
    bits = count(byte)
    flags = 0
    done = np.empty(8, np.int64)
    length = 0
    stack = np.empty(4096, np.int64)
    depth, high, instrs = 0, 0, 0
    while bits > 0:
        s = ready(t, s)
        if s == FULL:
            return FULL
        row = s * BL
        kind = t.block[row + BL_KIND]
        bit = (byte >> (bits - 1)) & 1
        if kind == IND or kind == FAR or kind == RESOLVE or (kind == RET and g[G_NORETCOMP]):
            flags |= F_TIP
            break
        if kind != COND and (kind != RET or not bit):
            flags |= F_ERROR
            break
        bits -= 1
        done[length] = s
        length += 1
        instrs += t.block[row + BL_INSTRS]
        for k in range(t.block[row + BL_PUSHES]):
            stack[depth] = t.pool[t.block[row + BL_PUSH] + k]
            depth += 1
        if depth > high:
            high = depth
        if kind == COND:
            s = np.int64(t.block[row + (BL_TAKEN if bit else BL_FALL)])
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
        t.pool[g[G_POOL]] = s
        g[G_POOL] += 1
        pushes = g[G_POOL]
        for k in range(depth):
            t.pool[g[G_POOL]] = stack[k]
            g[G_POOL] += 1
        high = pushed(NONE, high)
        if depth > 1:
            flags |= F_MANY
        flags |= high << HIGH | (1 << PUSH if depth == 1 else 0)
        t.path[path * PA + PA_PUSH] = pushes
        t.path[path * PA + PA_PUSHES] = depth
        t.path[path * PA + PA_HIGH] = high
        t.path[path * PA + PA_FLAGS] = PATH_RETURNS if flags & F_RET else 0
        t.path[path * PA + PA_START] = done[0]
        t.path[path * PA + PA_INSTRS] = t.path_instrs[path] = instrs
    if s == first and not flags & F_SPECIAL and not high:
        flags |= F_LOOP
    if bits or flags & F_ERROR:
        flags |= (1 << bits | (byte & ((1 << bits) - 1))) << LEFT
    key = first << 8 | byte
    mask = t.g[G_TNT_CACHE_MASK]
    i = slot_of(key) & mask
    while t.tnt_cache[TC * i + TC_KEY] != 0 and t.tnt_cache[TC * i + TC_KEY] != key:
        i = (i + 1) & mask
    if t.tnt_cache[TC * i + TC_KEY] == 0:
        g[G_TNT_CACHE] += 1
    t.tnt_cache[TC * i + TC_KEY] = key
    t.tnt_cache[TC * i + TC_NEXT] = s
    t.tnt_cache[TC * i + TC_PATH] = path
    t.tnt_cache[TC * i + TC_FLAGS] = flags
    t.tnt_cache[TC * i + TC_PUSHED] = stack[0] if depth else 0
    for k in range(length + 1):
        on = (done[k] if k < length else s) * BL + BL_CACHED
        t.block[on] = link(t, np.int64(t.block[on]), key)
    return path

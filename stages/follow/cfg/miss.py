"""The walker's requests when it meets something for the first time: blocks to be walked or cut short, paths to be
built.

All of it is one function (`stages.follow.cfg.miss_handler`), called by its address. Numba compiles a kernel's callee
into the kernel, and optimises it there once more, at each level of calls anew: for this part, the largest and least
often called, that took longer than all else.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.graph import (
    BL,
    BL_KIND,
    DEAD,
    FULL,
    G_TNT_CACHE_MASK,
    TC,
    TC_FLAGS,
    TC_KEY,
    UNWALKED,
)
from stages.follow.code.invalidation import (
    F_STALE,
    slot_of,
)
from stages.pointers import call

TO_WALK, TO_CUT, TO_PASS, TO_BUILD, TO_RECORD, TO_CHECK = (np.int64(k) for k in range(6))


@inner
def ready(t, s):  # type: ignore[no-untyped-def]
    """`s`, or its replacement if its code has changed, walked. FULL: no room."""
    kind = t.block[s * BL + BL_KIND]
    return call(t.miss, t.here, TO_WALK, s, TO_WALK) if kind == UNWALKED or kind == DEAD else s


@inner
def cut(t, s, ip):  # type: ignore[no-untyped-def]
    """The part of block `s` before the instruction at `ip`. 0: `ip` is not on it; FULL: no room."""
    return call(t.miss, t.here, TO_CUT, s, ip)


@inner
def on_block(t, s, ip):  # type: ignore[no-untyped-def]
    """Whether an instruction of block `s` begins at `ip`."""
    return call(t.miss, t.here, TO_PASS, s, ip) != 0


@inner
def recorded(t):  # type: ignore[no-untyped-def]
    """Remember the draft as a window. FULL: no room."""
    return call(t.miss, t.here, TO_RECORD, TO_WALK, TO_WALK)


@inner
def still_right(t, i):  # type: ignore[no-untyped-def]
    """Whether the window in slot `i` is, after code has changed."""
    return call(t.miss, t.here, TO_CHECK, i, TO_WALK) != 0


@inner
def lookup(t, s, byte):  # type: ignore[no-untyped-def]
    """The TNT cache slot of (`s`, `byte`), built where it is missing. FULL: no room."""
    key = s << 8 | byte
    mask = t.g[G_TNT_CACHE_MASK]
    i = slot_of(key) & mask
    while True:
        k = np.int64(t.tnt_cache[TC * i + TC_KEY])
        if k == key and not np.int64(t.tnt_cache[TC * i + TC_FLAGS]) & F_STALE:
            return i
        if k == 0 or k == key:
            if call(t.miss, t.here, TO_BUILD, s, byte) == FULL:
                return FULL
            i = slot_of(key) & mask
            continue
        i = (i + 1) & mask

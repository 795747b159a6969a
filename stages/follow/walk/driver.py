"""The walker: packets in, paths out.

Three functions share the work over one explicit state (`stages.follow.walk.state`). `by_windows` goes on as long as it
knows several packets at once. `hot` knows the five packets that make up a stream in their ordinary order and nothing
else; at anything unusual it stops in front of the packet. `packet` then takes exactly one packet, of any kind and in
any state. So the fast parts stay small enough to keep their state in registers, and the exact part need not be fast.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import kernel
from stages.follow.cfg.graph import (
    BL,
    BL_KIND,
    FAR,
    FULL,
    G_NORETCOMP,
    G_WINDOW_MASK,
    IND,
    LOST_BLOCK,
    RESOLVE,
    RET,
    raw_tables,
)
from stages.follow.cfg.miss import (
    recorded,
)
from stages.follow.cfg.window_cache import (
    D_DATA,
    D_ORDER,
    D_X,
    NEW,
    UNFIT,
    WINDOW,
    by_windows,
)
from stages.follow.walk.exact_path import packet
from stages.follow.walk.fast_path import (
    hot,
)
from stages.follow.walk.state import (
    B_OFF_CODE,
    B_OVERFLOW,
    BACK,
    BREAK_NAMES,
    BREAKS,
    CALL_UPDATED,
    CONTRADICTION,
    DONE,
    EARLY,
    FIRST,
    IN,
    KEPT,
    M_ABORT,
    M_BLOCK,
    M_BOUND,
    M_NOT64,
    M_OVF,
    M_PSB,
    M_STILL,
    NONE,
    OUTPUT_FULL,
    PAUSED,
    RESOLVED,
    SECOND,
    SPARE,
    STRIDE,
    TABLES_FULL,
    X_AT,
    X_BREAKS,
    X_CAUSE,
    X_CONFIRMED_POS,
    X_FUP,
    X_MODE,
    X_OUT,
    X_PENDING,
    X_POS,
    X_RESOLVED,
    X_ROOM,
    X_TRAP,
    X_WHERE,
    confirm,
    go_back,
    keep,
    keep_up,
    raw_walker,
)
from stages.follow.walk.transitions import drain
from stages.pointers import i64_at

__all__ = ["BREAK_NAMES", "B_OFF_CODE", "B_OVERFLOW", "run"]

NEVER = np.int64(1 << 62)
SPECIAL = M_PSB | M_OVF | M_NOT64 | M_BLOCK | M_STILL | M_BOUND | M_ABORT

# columns of `io`, behind the addresses of a Walker's arrays
IO_END, IO_STOPS, IO_STOP_AT, IO_N_STOPS, IO_PAUSE, IO_SIZE = range(len(IN), len(IN) + 6)


@kernel
def run(where, io):  # type: ignore[no-untyped-def]
    """Walk a piece of trace. `where`: `Tables.raw()`; `io`: addresses and numbers, in the order above.

    `data[x[X_POS]:end]` is walked; at least 32 bytes lie behind `end`. `stops` (ascending positions): `stop_at[k]`
    gets the index in `order` where the walker was at `stops[k]`, and no run-length spans it; −1 before. Returns DONE;
    TABLES_FULL or OUTPUT_FULL: call again with new tables or a new output; CONTRADICTION: there is one of X_CAUSE at
    X_WHERE ≥ X_TRAP, and the walker is back at the confirmed point before it; how it was about BACK bytes earlier is
    the copy EARLY, if that has a position. CALL_UPDATED: behind X_TRAP, the packet before has changed a call, as the
    last of the resolved says. PAUSED: it has come to IO_PAUSE, or at most about STRIDE farther; only where
    contradictions are trapped.
    """
    t = raw_tables(where)
    w = raw_walker(io)
    x = w.x
    end = io[IO_END]
    stops, stop_at, n_stops = i64_at(io[IO_STOPS]), i64_at(io[IO_STOP_AT]), io[IO_N_STOPS]
    trapping = x[X_TRAP] <= end
    cause, contradicted, early = NONE, NONE, NONE
    full = False  # no room for windows
    x[X_CAUSE] = 0
    t.draft[D_X], t.draft[D_ORDER], t.draft[D_DATA] = io[IN.x], io[IN.order], io[IN.data]
    k = 0
    while k < n_stops and stop_at[k] >= 0:
        k += 1
    while True:
        if x[X_CAUSE]:
            cause, contradicted = x[X_CAUSE], x[X_WHERE]
            end = x[X_CONFIRMED_POS]
            early = end - BACK
            w.kept[EARLY * KEPT + X_POS] = -1
            go_back(w)
            k = 0
            while k < n_stops and stops[k] <= x[X_POS]:
                k += 1
        while k < n_stops and stops[k] <= min(x[X_POS], end):
            stop_at[k] = x[X_OUT]
            k += 1
        if cause:
            if x[X_POS] >= early and x[X_PENDING] <= 1 and x[X_FUP] == 0 and x[X_AT] > LOST_BLOCK:
                keep(w, EARLY)
                early = NEVER
            if x[X_POS] >= end:
                while k < n_stops:
                    stop_at[k] = -1
                    k += 1
                confirm(x)
                keep(w, FIRST)
                keep(w, SECOND)
                x[X_CAUSE], x[X_WHERE] = cause, contradicted
                return CONTRADICTION
        elif trapping:
            keep_up(w)
            if full:
                return TABLES_FULL
            if io[IO_PAUSE] <= x[X_POS] < end:
                return PAUSED
        if x[X_OUT] >= x[X_ROOM] - SPARE or x[X_BREAKS] + 8 >= BREAKS or x[X_RESOLVED] + 2 >= RESOLVED:
            return OUTPUT_FULL
        if x[X_PENDING] > 1:
            kind = t.block[x[X_AT] * BL + BL_KIND]
            owed = kind == IND or kind == FAR or kind == RESOLVE or (kind == RET and t.g[G_NORETCOMP] != 0)
            if not owed:
                if drain(t, w) == FULL:
                    return TABLES_FULL
                continue
        if x[X_POS] >= end:
            return DONE
        if x[X_PENDING] <= 1 and x[X_FUP] == 0 and not x[X_MODE] & SPECIAL:
            limit = end - 16
            if trapping:
                limit = min(limit, x[X_POS] + STRIDE)
            if cause:
                limit = min(limit, early)
            if k < n_stops:
                limit = min(limit, stops[k])
            on = limit > x[X_POS]
            at_all = on
            while on:  # the work above is done in the same places with windows as without
                drafting, window_end = UNFIT, limit
                if t.g[G_WINDOW_MASK]:
                    drafting = by_windows(t, w, limit)
                    if x[X_POS] >= limit:
                        break
                    if x[X_POS] + WINDOW <= limit:
                        window_end = x[X_POS] + WINDOW
                    else:
                        drafting = UNFIT
                if hot(t, w, window_end, limit) == TABLES_FULL:
                    return TABLES_FULL
                on = x[X_POS] >= window_end and x[X_PENDING] <= 1
                if on and drafting == NEW and recorded(t) == FULL:
                    full = True
                    if not trapping:
                        return TABLES_FULL
                on = on and x[X_POS] < limit and x[X_OUT] < x[X_ROOM] - SPARE
            if at_all and (x[X_POS] >= limit or x[X_PENDING] > 1 or x[X_OUT] >= x[X_ROOM] - SPARE):
                continue
        resolved = x[X_RESOLVED]
        if packet(t, w, end) == TABLES_FULL:
            return TABLES_FULL
        if x[X_RESOLVED] > resolved and cause == 0 and x[X_CAUSE] == 0 and x[X_POS] > x[X_TRAP]:
            return CALL_UPDATED

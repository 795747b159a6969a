"""How a unit is learnt: from what `hot` has just done to the end of a window.

The paths that were taken tell what happened to the return stack, and whether they tell it right is seen by where the
walker's stack is now. What a unit cannot say (too many frames, a long loop) is not remembered, and the window not tried
again.
"""

# mypy: disable-error-code="assignment,operator,arg-type"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.block import (
    new_path,
)
from stages.follow.cfg.graph import (
    E_HOP,
    E_TEACHES,
    FULL,
    G_EPOCH,
    G_PATH_ROOM,
    G_PATHS,
    G_POOL,
    G_POOL_ROOM,
    G_UNIT_MASK,
    G_UNITS,
    P_DISABLED,
    P_EMPTY,
    PA,
    PA_FLAGS,
    PA_HIGH,
    PA_INSTRS,
    PA_LEN,
    PA_POOL,
    PA_PUSH,
    PA_PUSHES,
    PA_START,
    PATH_LEAVES,
    PATH_OF_PATHS,
    PATH_RETURNS,
    PATH_TURNS,
    RING,
    S_DISABLED,
    SLOTS,
    ST,
    ST_EFFECT,
    ST_TIP_PATH,
    UW,
)
from stages.follow.cfg.window_cache import (
    D_BASE,
    D_DATA,
    D_DEPTH,
    D_IP,
    D_ORDER,
    D_OUT,
    D_PLACE,
    D_POS,
    D_TOP,
    D_WINDOW,
    D_X,
    DOUBTED,
    PARTS,
    PROBES,
    PUSHED,
    U_AFTER,
    U_BASE,
    U_BYTES,
    U_DEPTH,
    U_EPOCH,
    U_FRAME,
    U_FRAME2,
    U_HOPS,
    U_IP,
    U_IP_AFTER,
    U_KEY,
    U_LAST_MASK,
    U_LOW,
    U_NEED,
    U_PATH,
    U_PUSHED,
    U_SIZE,
    U_SURE,
    U_SURE_PARTS,
    UN,
    WINDOW,
    home_of,
    level,
    mark_of,
    moves,
    place,
)
from stages.follow.walk.state import (
    M_CALLED,
    X_AT,
    X_BASE,
    X_DEPTH,
    X_LAST_IP,
    X_MODE,
    X_OUT,
    X_POS,
    X_SURE_OUT,
    X_SURE_POS,
    X_TOP,
)
from stages.pointers import i32_at, i64_at, load64, u8_at, zero_bytes
from stages.pt.last_ip import ip_size


@inner
def _unrolled(d, x, parts):  # type: ignore[no-untyped-def]
    """How many paths are in the draft (-1: too many), and up to the sure point; `parts` gets them."""
    order = i32_at(d[D_ORDER])
    n = sure = 0
    for j in range(d[D_OUT], x[X_OUT]):
        p = np.int64(order[j])
        times = 1 if p >= 0 else -p
        if n + times > PARTS:
            return -1, 0
        for _ in range(times):
            parts[n] = p if p >= 0 else parts[n - 1]
            n += 1
        if j + 1 == x[X_SURE_OUT]:
            sure = n
    return n, sure


@inner
def _ends(data, begin):  # type: ignore[no-untyped-def]
    """Where the last packet that begins in the window ends, and the last of those that say where the walker is."""
    at = end = sure = begin
    while at < begin + WINDOW:
        b = np.int64(data[at])
        at += 1 + (ip_size(b) if b & 1 else 0)
        if b:
            end = at
        if b & 0x1F == 0x0D or b & 0x1F == 0x11:
            sure = at
    return end, sure


@inner
def _by_tip(t, p):  # type: ignore[no-untyped-def]
    """Whether path `p` is one that a TIP completes."""
    row = p * PA
    return t.path[row + PA_LEN] == 1 and t.stretch[np.int64(t.pool[t.path[row + PA_POOL]]) * ST + ST_TIP_PATH] == p


@inner
def _stack(t, x, parts, n, f, left):  # type: ignore[no-untyped-def]
    """What the draft does to the return stack, from the paths alone: fills `f` (U_HOPS … U_LOW, and U_AFTER with
    whether a call has left the filter) and `left` with what remains pushed. How many remain; -1: more than can be
    said, or not what happened."""
    d = t.draft
    end = x[X_AT]
    called = d[D_PLACE] & 1
    need = net = lo = low = kept = np.int64(0)
    hi = np.int64(RING)
    for k in range(-1, n):
        p = parts[k] if k >= 0 else P_DISABLED
        after = np.int64(t.path[parts[k + 1] * PA + PA_START]) if k + 1 < n else end
        off_next = (parts[k + 1] == P_DISABLED) if k + 1 < n else False
        tip = True
        if p == P_DISABLED:
            if (k < 0 and (d[D_PLACE] >> 1) - 1 > S_DISABLED) or after <= S_DISABLED:
                continue
            if not called or (kept > 0 and left[kept - 1] != after):
                f[U_BASE] = moves(net, lo, hi)
                continue
            called = 0
            tip = False  # it pops only what it has seen on the stack
        else:
            row = p * PA
            spare = RING - min(np.int64(t.path[row + PA_HIGH]), RING)
            pushes = np.int64(t.path[row + PA_PUSHES])
            if kept + pushes > len(left):
                return -1
            for m in range(pushes):
                left[kept] = t.pool[t.path[row + PA_PUSH] + m]
                kept += 1
            net += pushes
            lo, hi = min(min(lo, spare) + pushes, RING), min(min(hi, spare) + pushes, RING)
            if off_next:
                called |= 1 if pushes else 0
                effect = t.stretch[np.int64(t.pool[t.path[row + PA_POOL]]) * ST + ST_EFFECT]
                f[U_HOPS] |= DOUBTED if effect & (E_HOP | E_TEACHES) else 0
            if not t.path[row + PA_FLAGS] & PATH_RETURNS:
                continue
            tip = _by_tip(t, p)
        if not tip:
            if hi < 1:
                return -1
            if lo < 1:
                need = max(need, 1 - net)
        if kept > 0:
            kept -= 1
        else:
            if not tip:
                if low > 1:
                    return -1
                f[U_FRAME + low] = after
            low += 1
        net -= 1
        lo, hi = max(lo - 1, 0), max(hi - 1, 0)
        if p == P_DISABLED:
            f[U_BASE] = moves(net, lo, hi)
    f[U_NEED], f[U_DEPTH], f[U_LOW], f[U_AFTER] = need, moves(net, lo, hi), low, called
    right = x[X_TOP] == (d[D_TOP] + net) & (SLOTS - 1)
    right &= x[X_DEPTH] == level(d[D_DEPTH], f[U_DEPTH])
    right &= x[X_BASE] == (level(d[D_DEPTH], f[U_BASE]) if f[U_BASE] else d[D_BASE])
    right &= (x[X_MODE] & M_CALLED != 0) == (called != 0)
    return kept if right and kept <= PUSHED and d[D_DEPTH] >= need else -1


@inner
def _new_path(t, parts, n):  # type: ignore[no-untyped-def]
    """The path made of `parts`."""
    g = t.g
    turns = False
    instrs = np.int64(0)
    for k in range(n):
        row = parts[k] * PA
        t.pool[g[G_POOL]] = parts[k]
        g[G_POOL] += 1
        instrs += t.path[row + PA_INSTRS]
        calls = t.path[row + PA_PUSHES] > 0 or t.path[row + PA_FLAGS] & PATH_RETURNS
        turns |= parts[k] == P_DISABLED or (k + 1 < n and calls)
    last = parts[n - 1]
    p = new_path(t, n)
    row = p * PA
    flags = PATH_OF_PATHS | (PATH_TURNS if turns else 0)
    if last == P_DISABLED:
        flags |= PATH_LEAVES
    else:
        flags |= t.path[last * PA + PA_FLAGS] & PATH_RETURNS
        if not turns:
            t.path[row + PA_PUSH], t.path[row + PA_PUSHES] = t.path[last * PA + PA_PUSH], t.path[last * PA + PA_PUSHES]
    t.path[row + PA_FLAGS] = flags
    t.path[row + PA_START] = t.path[parts[0] * PA + PA_START]
    t.path[row + PA_INSTRS] = t.path_instrs[p] = instrs
    return p


@inner
def _unfit(t):  # type: ignore[no-untyped-def]
    """Do not try that window again."""
    at, mark = mark_of(t.draft[D_WINDOW])
    t.seen[at] = ~mark
    return 0


@inner
def _same(t, i, f, data, begin):  # type: ignore[no-untyped-def]
    """Whether slot `i` already has it (it would have led beyond the limit)."""
    n, w, d = UN * i, UW * i, t.draft
    return (
        t.unit[n + U_KEY] == d[D_PLACE]
        and t.units[w] == load64(data, begin)
        and t.units[w + 1] == load64(data, begin + 8)
        and (t.units[w + 2] ^ load64(data, begin + 16)) & t.units[w + U_LAST_MASK] == 0
        and (t.units[w + U_IP] ^ d[D_IP]) >> 16 == 0
        and t.unit[n + U_FRAME] == f[U_FRAME]
        and t.unit[n + U_FRAME2] == f[U_FRAME2]
        and t.unit[n + U_HOPS] == f[U_HOPS]
    )


@inner
def learn(t):  # type: ignore[no-untyped-def]
    """Remember the draft as a unit. FULL: the table must grow."""
    g, d = t.g, t.draft
    mask = g[G_UNIT_MASK]
    if 2 * (g[G_UNITS] + 1) > mask:
        return FULL
    x, data, begin = i64_at(d[D_X]), u8_at(d[D_DATA]), d[D_POS]
    end, sure_end = _ends(data, begin)
    size = end - begin
    right = size > 0 and (sure_end == begin or x[X_SURE_POS] == sure_end + zero_bytes(load64(data, sure_end)))
    for k in range(end, x[X_POS]):
        right &= data[k] == 0  # else it is not padding behind the last packet, but a loop that went on
    if not right:
        return _unfit(t)
    parts = np.empty(PARTS, np.int64)
    left = np.zeros(512, np.int64)
    f = np.zeros(UN, np.int64)
    n, sure = _unrolled(d, x, parts)
    if n < 0 or 2 * (g[G_PATHS] + 1) > g[G_PATH_ROOM] or 2 * (g[G_POOL] + PARTS) > g[G_POOL_ROOM]:
        return _unfit(t)
    kept = _stack(t, x, parts, n, f, left)
    if kept < 0:
        return _unfit(t)
    i = home_of(d[D_WINDOW]) & mask
    for probe in range(PROBES):
        if t.unit[UN * i + U_KEY] == 0:
            break
        if _same(t, i, f, data, begin):
            return 1
        if probe + 1 == PROBES:
            return _unfit(t)
        i = (i + 1) & mask
    w = UW * i
    for k in range(3):
        t.units[w + U_BYTES + k] = load64(data, begin + 8 * k)
    over = max(size - WINDOW, 0)
    t.units[w + U_LAST_MASK] = -1 if over == 8 else (1 << 8 * over) - 1
    t.units[w + U_IP], t.units[w + U_IP_AFTER] = d[D_IP], x[X_LAST_IP]
    f[U_KEY], f[U_AFTER], f[U_SIZE], f[U_EPOCH] = d[D_PLACE], place(x[X_AT], f[U_AFTER]), size, g[G_EPOCH]
    f[U_SURE] = sure_end - begin
    f[U_SURE_PARTS] = sure
    f[U_PATH] = _new_path(t, parts, n) if n else P_EMPTY
    for k in range(kept):
        f[U_PUSHED + k] = left[k]
    for k in range(U_KEY, UN):
        t.unit[UN * i + k] = f[k]
    g[G_UNITS] += 1
    return 1

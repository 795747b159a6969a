"""How a window is resolved: from the steps that `hot` has just made to the end of a window.

The paths that were taken tell the changes of the return stack, and whether they tell it right is seen by where the
walker's stack is now. Packets that a window cannot describe (too many frames, a long loop) are not remembered, and the
window not tried again.
"""

# mypy: disable-error-code="assignment,operator,arg-type"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.block import (
    new_path,
)
from stages.follow.cfg.block_queries import goes_on_at
from stages.follow.cfg.graph import (
    BL,
    BL_EFFECT,
    BL_TIP_PATH,
    DISABLED_BLOCK,
    E_HOP,
    E_UPDATES,
    FULL,
    G_EPOCH,
    G_PATH_ROOM,
    G_PATHS,
    G_POOL,
    G_POOL_ROOM,
    G_WINDOW_MASK,
    G_WINDOWS,
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
    WC_WORDS,
)
from stages.follow.cfg.window_cache import (
    D_BASE,
    D_DATA,
    D_DEPTH,
    D_HASH,
    D_IP,
    D_ORDER,
    D_OUT,
    D_PLACE,
    D_POS,
    D_TOP,
    D_X,
    DOUBTED,
    PARTS,
    PROBES,
    PUSHED,
    WC,
    WC_AFTER,
    WC_BASE,
    WC_BYTES,
    WC_CONFIRMED,
    WC_CONFIRMED_PARTS,
    WC_DEPTH,
    WC_EPOCH,
    WC_FRAME,
    WC_FRAME2,
    WC_HOPS,
    WC_IP,
    WC_IP_AFTER,
    WC_KEY,
    WC_LAST_MASK,
    WC_LOW,
    WC_NEED,
    WC_PATH,
    WC_PUSHED,
    WC_SIZE,
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
    X_CONFIRMED_OUT,
    X_CONFIRMED_POS,
    X_DEPTH,
    X_LAST_IP,
    X_MODE,
    X_OUT,
    X_POS,
    X_TOP,
)
from stages.pointers import i32_at, i64_at, load64, u8_at, zero_bytes
from stages.pt.last_ip import ip_size
from stages.pt.return_stack import DEPTH, ONE, above, left_under, popped, pushed


@inner
def _unrolled(d, x, parts):  # type: ignore[no-untyped-def]
    """How many paths are in the draft (-1: too many), and up to the confirmed point; `parts` gets them."""
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
        if j + 1 == x[X_CONFIRMED_OUT]:
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
    return t.path[row + PA_LEN] == 1 and t.block[np.int64(t.pool[t.path[row + PA_POOL]]) * BL + BL_TIP_PATH] == p


@inner
def _stack(t, x, parts, n, f, left):  # type: ignore[no-untyped-def]
    """The draft's effect on the return stack, from the paths alone: fills `f` (WC_HOPS … WC_LOW, and WC_AFTER with
    whether a call has left the filter) and `left` with the entries that remain pushed. How many remain; -1: more than
    can be said, or other than happened."""
    d = t.draft
    end = x[X_AT]
    called = d[D_PLACE] & 1
    need = net = lo = low = kept = np.int64(0)
    hi = np.int64(DEPTH)
    for k in range(-1, n):
        p = parts[k] if k >= 0 else P_DISABLED
        after = np.int64(t.path[parts[k + 1] * PA + PA_START]) if k + 1 < n else end
        off_next = (parts[k + 1] == P_DISABLED) if k + 1 < n else False
        tip = True
        if p == P_DISABLED:
            if (k < 0 and (d[D_PLACE] >> 1) - 1 > DISABLED_BLOCK) or after <= DISABLED_BLOCK:
                continue
            if not called or (kept > 0 and not goes_on_at(t, np.int64(left[kept - 1]), after)):
                f[WC_BASE] = moves(net, lo, hi)
                continue
            called = 0
            tip = False  # it pops only what it has seen on the stack
        else:
            row = p * PA
            high = np.int64(t.path[row + PA_HIGH])
            pushes = np.int64(t.path[row + PA_PUSHES])
            if kept + pushes > len(left):
                return -1
            for m in range(pushes):
                left[kept] = t.pool[t.path[row + PA_PUSH] + m]
                kept += 1
            net += pushes
            lo, hi = pushed(left_under(lo, high), pushes), pushed(left_under(hi, high), pushes)
            if off_next:
                called |= 1 if pushes else 0
                effect = t.block[np.int64(t.pool[t.path[row + PA_POOL]]) * BL + BL_EFFECT]
                if effect & E_UPDATES:  # each time is told
                    return -1
                f[WC_HOPS] |= DOUBTED if effect & E_HOP else 0
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
                f[WC_FRAME + low] = after
            low += 1
        net -= 1
        lo, hi = popped(lo, ONE), popped(hi, ONE)
        if p == P_DISABLED:
            f[WC_BASE] = moves(net, lo, hi)
    f[WC_NEED], f[WC_DEPTH], f[WC_LOW], f[WC_AFTER] = need, moves(net, lo, hi), low, called
    right = x[X_TOP] == above(d[D_TOP], net)
    right &= x[X_DEPTH] == level(d[D_DEPTH], f[WC_DEPTH])
    right &= x[X_BASE] == (level(d[D_DEPTH], f[WC_BASE]) if f[WC_BASE] else d[D_BASE])
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
    at, mark = mark_of(t.draft[D_HASH])
    t.seen[at] = ~mark
    return 0


@inner
def _same(t, i, f, data, begin):  # type: ignore[no-untyped-def]
    """Whether slot `i` already has it (it would have led beyond the limit)."""
    n, w, d = WC * i, WC_WORDS * i, t.draft
    return (
        t.window_numbers[n + WC_KEY] == d[D_PLACE]
        and t.windows[w] == load64(data, begin)
        and t.windows[w + 1] == load64(data, begin + 8)
        and (t.windows[w + 2] ^ load64(data, begin + 16)) & t.windows[w + WC_LAST_MASK] == 0
        and (t.windows[w + WC_IP] ^ d[D_IP]) >> 16 == 0
        and t.window_numbers[n + WC_FRAME] == f[WC_FRAME]
        and t.window_numbers[n + WC_FRAME2] == f[WC_FRAME2]
        and t.window_numbers[n + WC_HOPS] == f[WC_HOPS]
    )


@inner
def record(t):  # type: ignore[no-untyped-def]
    """Remember the draft as a window. FULL: the table must grow."""
    g, d = t.g, t.draft
    mask = g[G_WINDOW_MASK]
    if 2 * (g[G_WINDOWS] + 1) > mask:
        return FULL
    x, data, begin = i64_at(d[D_X]), u8_at(d[D_DATA]), d[D_POS]
    end, sure_end = _ends(data, begin)
    size = end - begin
    right = size > 0 and (sure_end == begin or x[X_CONFIRMED_POS] == sure_end + zero_bytes(load64(data, sure_end)))
    for k in range(end, x[X_POS]):
        right &= data[k] == 0  # else it is not padding behind the last packet, but a loop that went on
    if not right:
        return _unfit(t)
    parts = np.empty(PARTS, np.int64)
    left = np.zeros(512, np.int64)
    f = np.zeros(WC, np.int64)
    n, sure = _unrolled(d, x, parts)
    if n < 0 or 2 * (g[G_PATHS] + 1) > g[G_PATH_ROOM] or 2 * (g[G_POOL] + PARTS) > g[G_POOL_ROOM]:
        return _unfit(t)
    kept = _stack(t, x, parts, n, f, left)
    if kept < 0:
        return _unfit(t)
    i = home_of(d[D_HASH]) & mask
    for probe in range(PROBES):
        if t.window_numbers[WC * i + WC_KEY] == 0:
            break
        if _same(t, i, f, data, begin):
            return 1
        if probe + 1 == PROBES:
            return _unfit(t)
        i = (i + 1) & mask
    w = WC_WORDS * i
    for k in range(3):
        t.windows[w + WC_BYTES + k] = load64(data, begin + 8 * k)
    over = max(size - WINDOW, 0)
    t.windows[w + WC_LAST_MASK] = -1 if over == 8 else (1 << 8 * over) - 1
    t.windows[w + WC_IP], t.windows[w + WC_IP_AFTER] = d[D_IP], x[X_LAST_IP]
    f[WC_KEY], f[WC_AFTER], f[WC_SIZE], f[WC_EPOCH] = d[D_PLACE], place(x[X_AT], f[WC_AFTER]), size, g[G_EPOCH]
    f[WC_CONFIRMED] = sure_end - begin
    f[WC_CONFIRMED_PARTS] = sure
    f[WC_PATH] = _new_path(t, parts, n) if n else P_EMPTY
    for k in range(kept):
        f[WC_PUSHED + k] = left[k]
    for k in range(WC_KEY, WC):
        t.window_numbers[WC * i + k] = f[k]
    g[G_WINDOWS] += 1
    return 1

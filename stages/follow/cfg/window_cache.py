"""Windows: several packets at once.

A trace repeats itself in runs longer than a packet. The packets that begin in the same WINDOW bytes, met from the same
block, lead over the same paths to the same place, whatever they are. The effect of such a *window* is remembered under
the bytes themselves, so that nothing in them is looked at one by one. Where none is known, `hot` goes packet by packet
to the end of the window; if those bytes have been seen before, `record` remembers what `hot` did, so that the meaning
of packets stands in `hot` alone. The same bytes are cut in the same places each time they come.

The state that the bytes do not decide is checked: the last IP's upper bytes (compressed addresses), whether a call has
left the filter, and the return stack. Returns to frames that were called in the window are its own business. A
compressed RET further down goes where the stack says, so the two frames at its top can be part of the key; a return
with a TIP says where it goes and only pops. With pushes and pops as they come, the stack's depth is min(max(depth +
net, lo), hi) behind them (`level`); so is X_BASE, the depth at the last TIP.PGE, from what lies before that. Padding
behind the last packet is no part of a window, and is passed as `hot` passes it: so the walk does the same with windows
as without, to the byte.

A window hands on one path, made of the paths of its packets.

When code changes, windows are not searched for. Each says as of which change it was right (`WC_EPOCH`); a window that
is found later looks through its own blocks once, whether they still are.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, near
from stages.follow.cfg.graph import (
    BL,
    BL_KIND,
    DEAD,
    G_EPOCH,
    G_WINDOW_BYTES,
    G_WINDOW_MASK,
    PA,
    PA_LEN,
    PA_POOL,
    WC_WORDS,
)
from stages.follow.cfg.miss import (
    still_right,
)
from stages.follow.walk.state import (
    M_CALLED,
    SPARE,
    X_AT,
    X_BASE,
    X_CONFIRMED_OUT,
    X_CONFIRMED_POS,
    X_DEPTH,
    X_LAST_IP,
    X_MODE,
    X_OUT,
    X_POS,
    X_ROOM,
    X_TOP,
    X_TRAP,
)
from stages.pointers import load64, prefetch, product, store64, zero_bytes
from stages.pt.return_stack import ONE, SLOTS, above

WINDOW = 16
MOST = 24  # bytes of a window: its last packet may begin in the window's last byte
PARTS = 96  # paths in a window
PUSHED = 4  # frames that it may leave on the stack
PROBES = 16  # slots looked at

# A slot of the table, two cache lines: 64-bit words, and the same memory as 32-bit numbers
WC = 2 * WC_WORDS
WC_BYTES, WC_LAST_MASK, WC_IP, WC_IP_AFTER = (
    0,
    3,
    4,
    5,
)  # three words of bytes, which of the third count; last IP: 64 bits
WC_KEY, WC_AFTER, WC_PATH, WC_SIZE = 12, 13, 14, 15  # where it begins and ends (`place`); the path; bytes
(
    WC_CONFIRMED, WC_CONFIRMED_PARTS, WC_EPOCH, WC_HOPS, WC_NEED, WC_DEPTH, WC_BASE, WC_FRAME, WC_FRAME2, WC_LOW,
    WC_PUSHED,
) = range(16, 27)  # fmt: skip
WC_AHEAD = 31  # the slot of the window that came two later, the last time
# WC_CONFIRMED: bytes to behind the last packet with an address, and paths as far as there; 0: none. WC_HOPS: an
# indirect jump left the filter. The stack: depth needed; change of depth; the same for X_BASE (0: no TIP.PGE); frames
# needed at its top, 0: any; so far below its top the four of WC_PUSHED are pushed.
GONE = np.int64(-1)  # as a key: a window over code that has changed

DOUBTED = 1 << 30  # WC_HOPS; more bytes than a piece has

SEEN = 1 << 15  # windows seen once, or found unfit

# `Tables.draft`: where the state, the order and the data are (record needs them), and the state at a window's begin
D_X, D_ORDER, D_DATA, D_HASH, D_POS, D_PLACE, D_IP, D_TOP, D_DEPTH, D_BASE, D_OUT, D_CONFIRMED, D_SIZE = range(13)

UNFIT, NEW = np.int64(0), np.int64(1)


@near
def place(s, called):  # type: ignore[no-untyped-def]
    """A block, and whether a call has left the filter, as one number > 1."""
    return (s + 1) << 1 | (1 if called else 0)


@near
def moves(net, lo, hi):  # type: ignore[no-untyped-def]
    """The effect of `level`, as one number, never 0."""
    return net << 16 | hi << 8 | 128 | lo


@near
def level(depth, f):  # type: ignore[no-untyped-def]
    """The depth of the stack, behind pushes and pops."""
    return min(max(depth + (f >> 16), f & 127), f >> 8 & 127)


@near
def hash_of(first, second, third, key):  # type: ignore[no-untyped-def]
    """A hash. Of the third word only one byte: the target of a TIP that began in the window's last."""
    both = product(first, -7046029254386353131) ^ product(second, -6939452855193903323)
    return both ^ product(key << 8 ^ third & 255, 2685821657736338717)


@near
def home_of(hash_):  # type: ignore[no-untyped-def]
    """Where to begin to look; the caller masks it. The upper bits of a product depend on all of its factors."""
    return hash_ >> 54 ^ hash_ >> 40


@near
def mark_of(hash_):  # type: ignore[no-untyped-def]
    """(index into `seen`, its content)"""
    h = (hash_ ^ hash_ >> 29) >> 16
    return h & (SEEN - 1), (h >> 15) & 0x3FFFFFFF | 1


@inner
def by_windows(t, w, limit):  # type: ignore[no-untyped-def]
    """Go on as long as windows are known. NEW: if `hot` gets to the end of the window that begins where this stopped,
    that is to be resolved; UNFIT: it is not.

    Called as `hot` is.
    """
    x, ring, order, data, window = w.x, w.ring, w.order, w.data, t.window_numbers
    mask, epoch = t.g[G_WINDOW_MASK], t.g[G_EPOCH]
    begin, pos, last_ip, out = x[X_POS], x[X_POS], x[X_LAST_IP], x[X_OUT]
    top, depth = x[X_TOP], x[X_DEPTH]
    limit = min(limit, pos + x[X_ROOM] - SPARE - out)  # a window has more bytes than it adds to the order
    doubts = np.int64(0 if x[X_TRAP] - MOST >= limit else DOUBTED)  # a jump out of the filter is doubted first
    d = t.draft
    d[D_CONFIRMED] = -1  # the window that the last confirmed point is in
    two_before = before = np.int64(0)
    key = place(x[X_AT], x[X_MODE] & M_CALLED)
    while pos < limit:
        first, second, third = load64(data, pos), load64(data, pos + 8), load64(data, pos + 16)
        i = home_of(hash_of(first, second, third, key)) & mask
        n = WC * i
        found = False
        for _ in range(PROBES):
            k = np.int64(window[n + WC_KEY])
            if k == key:
                other = (first ^ load64(window, n)) | (second ^ load64(window, n + 2))
                other |= (third ^ load64(window, n + 4)) & load64(window, n + 2 * WC_LAST_MASK)
                other |= (last_ip ^ load64(window, n + 2 * WC_IP)) >> 16
                if other == 0:
                    fits = (depth >= window[n + WC_NEED]) & (
                        pos + (window[n + WC_SIZE] | window[n + WC_HOPS] & doubts) < limit
                    )
                    if load64(window, n + WC_FRAME):  # one of the two
                        frame, frame2 = np.int64(window[n + WC_FRAME]), np.int64(window[n + WC_FRAME2])
                        fits &= (frame == 0) | (frame == ring[top])
                        fits &= (frame2 == 0) | (frame2 == ring[above(top, -ONE)])
                    if fits and (window[n + WC_EPOCH] == epoch or still_right(t, i)):
                        found = True
                        break
            elif k == 0:
                break
            i = (i + 1) & mask
            n = WC * i
        if not found:
            break
        window[two_before + WC_AHEAD] = i
        two_before, before = before, n
        ahead = WC * np.int64(window[n + WC_AHEAD])
        prefetch(window, ahead)
        prefetch(window, ahead + WC_WORDS)
        low = above(top, ONE - np.int64(window[n + WC_LOW]))
        if low <= SLOTS - PUSHED:  # slots above the top are not in use
            store64(ring, low, load64(window, n + WC_PUSHED))
            store64(ring, low + 2, load64(window, n + WC_PUSHED + 2))
        else:
            for k in range(PUSHED):
                ring[above(low, k)] = np.int64(window[n + WC_PUSHED + k])
        entered, f = np.int64(window[n + WC_BASE]), np.int64(window[n + WC_DEPTH])
        if entered:
            x[X_BASE] = level(depth, entered)
        depth = level(depth, f)
        top = above(top, f >> 16)
        path = np.int64(window[n + WC_PATH])
        order[out] = path
        out += 1 if path else 0
        key = np.int64(window[n + WC_AFTER])
        last_ip = load64(window, n + 2 * WC_IP_AFTER)
        confirmed_after = np.int64(window[n + WC_CONFIRMED])
        if confirmed_after:
            x[X_CONFIRMED_POS], x[X_CONFIRMED_OUT], d[D_CONFIRMED] = pos + confirmed_after, out, i
        pos += np.int64(window[n + WC_SIZE])
        if data[pos] == 0:  # a branch: mostly as it was the last time, and the work behind it takes long
            pos += zero_bytes(load64(data, pos))
    if d[D_CONFIRMED] >= 0:
        x[X_CONFIRMED_POS] += zero_bytes(load64(data, x[X_CONFIRMED_POS]))
        out, x[X_CONFIRMED_OUT] = part_by_part(t, order, out, x[X_CONFIRMED_OUT], d[D_CONFIRMED])
    t.g[G_WINDOW_BYTES] += pos - begin
    x[X_POS], x[X_LAST_IP], x[X_AT], x[X_OUT] = pos, last_ip, (key >> 1) - 1, out
    x[X_TOP], x[X_DEPTH] = top, depth
    x[X_MODE] = x[X_MODE] & ~M_CALLED | (M_CALLED if key & 1 else 0)
    if pos >= limit:
        return UNFIT
    hash_ = hash_of(load64(data, pos), load64(data, pos + 8), load64(data, pos + 16), key)
    at, mark = mark_of(hash_)
    seen = np.int64(t.seen[at])
    if seen != mark:
        if seen != ~mark:
            t.seen[at] = mark
        return UNFIT
    d[D_HASH], d[D_POS], d[D_PLACE], d[D_IP] = hash_, pos, key, last_ip
    d[D_OUT], d[D_TOP], d[D_DEPTH], d[D_BASE] = out, top, depth, x[X_BASE]
    return NEW


@inner
def still(t, i):  # type: ignore[no-untyped-def]
    """Whether the window in slot `i` is right as the code is now."""
    n = WC * i
    row = np.int64(t.window_numbers[n + WC_PATH]) * PA
    after = (np.int64(t.window_numbers[n + WC_AFTER]) >> 1) - 1
    dead = t.block[after * BL + BL_KIND] == DEAD
    for k in range(t.path[row + PA_LEN]):
        part = np.int64(t.pool[t.path[row + PA_POOL] + k]) * PA
        for m in range(t.path[part + PA_LEN]):
            dead |= t.block[np.int64(t.pool[t.path[part + PA_POOL] + m]) * BL + BL_KIND] == DEAD
    t.window_numbers[n + WC_EPOCH] = t.g[G_EPOCH]
    if dead:
        t.window_numbers[n + WC_KEY] = GONE
        return 0
    return 1


@inner
def part_by_part(t, order, out, confirmed_out, i):  # type: ignore[no-untyped-def]
    """The last confirmed point is in the middle of the window in slot `i`, the last before `confirmed_out`: write its
    paths themselves to the order. The new length and confirmed point."""
    row = np.int64(t.window_numbers[WC * i + WC_PATH]) * PA
    parts, sure = np.int64(t.path[row + PA_LEN]), np.int64(t.window_numbers[WC * i + WC_CONFIRMED_PARTS])
    if sure == parts:
        return out, confirmed_out
    for k in range(out - 1, confirmed_out - 1, -1):
        order[k + parts - 1] = order[k]
    for k in range(parts):
        order[confirmed_out - 1 + k] = t.pool[t.path[row + PA_POOL] + k]
    return out + parts - 1, confirmed_out - 1 + sure

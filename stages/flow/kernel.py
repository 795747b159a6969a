"""The walker: packets in, paths out.

Two functions share the work over one explicit state (`S_…` below). `_hot` knows the five packets that make up a
stream (short TNT, TIP, TIP.PGE, TIP.PGD, PAD) in their ordinary order and nothing else; at anything unusual it
stops in front of the packet. `_packet` then takes exactly one packet, of any kind and in any state, and `_hot` goes
on. So the fast part stays small enough to keep its state in registers, and the exact part need not be fast.

Rules and their sources: SDM vol. 3, "Intel Processor Trace"; FUP binds to what follows or precedes it ("FUP+TIP"
and so on); PSB+ is status, not events; OVF resumes with FUP or TIP.PGE.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numba import njit

from stages.flow import context
from stages.flow.graph import (
    COND,
    DISABLED,
    E_MANY,
    E_PUSH,
    FAR,
    FULL,
    G_ADDRESS_MASK,
    G_CMEMO,
    G_CMEMO_MASK,
    G_FILTER_HI,
    G_FILTER_LO,
    G_MEMO_MASK,
    G_NORETCOMP,
    IND,
    LOOP,
    LOST,
    ME,
    ME_FLAGS,
    ME_NEXT,
    ME_PATH,
    ME_PUSHED,
    OFF,
    OUT,
    OUTSIDE,
    P_BREAK,
    P_DISABLED,
    PA,
    PA_HIGH,
    PA_PUSH,
    PA_PUSHES,
    RET,
    RING,
    S_DISABLED,
    S_LOST,
    SLOTS,
    ST,
    ST_EFFECT,
    ST_KIND,
    ST_PUSHED,
    ST_PUSHES,
    ST_RANGE,
    ST_RANGES,
    ST_TIP_PATH,
    STUCK,
    UNWALKED,
    alive,
    cut,
    intern,
    on_stretch,
    raw_tables,
    room,
    scatter,
    walk,
)
from stages.flow.memo import (
    F_ERROR,
    F_LOOP,
    F_MANY,
    F_RET,
    F_SPECIAL,
    F_STALE,
    F_TIP,
    HIGH,
    LEFT,
    LEFT_MASK,
    PUSH,
    bit_length,
    lookup,
    slot_of,
)
from stages.flow.raw import i32_at, i64_at, inner, load64, u8_at, zero_bytes

# the state of one thread's walk, int64 each
(
    X_AT, X_LAST_IP, X_PENDING, X_FUP, X_FUP_IP, X_MODE, X_TOP, X_DEPTH, X_NODE, X_POS, X_OUT, X_BREAKS, X_CONTEXT,
    X_ROOT, X_ROOM, X_SEEN_IP, X_SIZE,
) = range(17)  # fmt: skip

# X_MODE
M_PSB = 1  # inside PSB+
M_OVF = 2  # after OVF, before its FUP or PGE
M_FRESH = 4  # the position came from a FUP in PSB+ and nothing has happened since (erratum BDM70)
M_SEEN = 256  # a PSB+ confirmed the position (X_SEEN_IP) and nothing has happened since
M_STILL = M_FRESH | M_SEEN
M_BOUND = 8  # the next FUP belongs to a PTWRITE, EXSTOP, MODE.TSX … and changes no flow
M_NOT64 = 16  # the processor is not in 64-bit mode: this code is not ours
M_BLOCK = 32  # between BBP and BEP, where BIPs alias TNTs
M_LONG_BIP = 64  # their payload has 8 bytes, not 4
M_CALLED = 128  # tracing ended at a call: what it pushed was popped unseen if tracing comes back behind it

# why the walk was broken off
(
    B_TNT_AT_TIP, B_TIP_AT_TNT, B_RETURN_BIT, B_NO_RETURN, B_OFF_CODE, B_STUCK, B_NOT_DISABLED, B_FUP_OFF_PATH,
    B_PSB_OFF_PATH, B_OVERFLOW, B_BAD_PACKET, B_ENABLED_TWICE, B_WHILE_DISABLED, B_END,
) = range(1, 15)  # fmt: skip

BREAK_NAMES = (
    "tnt_at_tip", "tip_at_tnt", "return_bit", "no_return", "off_code", "stuck", "not_disabled", "fup_off_path",
    "psb_off_path", "overflow", "bad_packet", "enabled_twice", "while_disabled",
)  # fmt: skip

BREAKS = 1024  # room for so many in one call
BR = 5  # columns of a break: index in the order, stream position, cause, where the walker was, where it goes on

RUNNING, DONE, TABLES_FULL, OUTPUT_FULL = 0, 1, 2, 3
STRIDE = 512  # bytes between two looks at the table of contexts
SPARE = 512  # room in the output that one packet may need

_SIZES = np.array([0, 2, 4, 6, 6, 0, 8, 0], dtype=np.int64)
_MASKS = np.array([0, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFFFFFF, 0, -1, 0], dtype=np.int64)


@njit(cache=True, nogil=True, inline="always")
def _ip(header, payload, last):  # type: ignore[no-untyped-def]
    """The address in a TIP, PGE, PGD or FUP packet: compressed against the last one."""
    kind = header >> 5
    mask = np.int64(_MASKS[kind])
    ip = (last & ~mask) | (payload & mask)
    return (ip << 16) >> 16 if kind == 3 else ip


@inner
def _push(ring, x_top, depth, ret):  # type: ignore[no-untyped-def]
    top = (x_top + 1) & (SLOTS - 1)
    ring[top] = ret
    return top, min(depth + 1, RING)


@inner
def _apply(t, x, ring, path):  # type: ignore[no-untyped-def]
    """What the calls and returns inside `path` do to the return stack."""
    row = path * PA
    depth = min(x[X_DEPTH], RING - t.path[row + PA_HIGH] if t.path[row + PA_HIGH] < RING else 0)
    top = x[X_TOP]
    for k in range(t.path[row + PA_PUSHES]):
        top, depth = _push(ring, top, depth, t.pool[t.path[row + PA_PUSH] + k])
    x[X_TOP] = top
    x[X_DEPTH] = depth


@inner
def _emit(t, x, ring, order, path):  # type: ignore[no-untyped-def]
    """Hand on `path`, with its effect on stack and context."""
    order[x[X_OUT]] = path
    x[X_OUT] += 1
    if t.path[path * PA + PA_HIGH]:
        _apply(t, x, ring, path)
        if x[X_CONTEXT]:
            x[X_NODE] = context.step(t, x[X_NODE], path)
    elif x[X_CONTEXT]:
        t.node_instrs[x[X_NODE]] += t.path_instrs[path]


@inner
def _pop(t, x, ring, target):  # type: ignore[no-untyped-def]
    """A near RET: pop. With `target` −1 the popped address is where it went. Returns the stretch; 0: empty stack."""
    popped = np.int64(0)
    if x[X_DEPTH] > 0:
        popped = np.int64(ring[x[X_TOP]])
        x[X_TOP] = (x[X_TOP] - 1) & (SLOTS - 1)
        x[X_DEPTH] -= 1
    if target >= 0:
        popped = target
    if popped and x[X_CONTEXT]:
        x[X_NODE] = context.returned(t, x[X_NODE], popped)
    return popped


@inner
def _break(t, x, order, breaks, cause, ip):  # type: ignore[no-untyped-def]
    """The trace contradicts the code, or has a gap: what the walker believed ends here."""
    n = x[X_BREAKS]
    breaks[n * BR] = x[X_OUT]
    breaks[n * BR + 1] = x[X_POS]
    breaks[n * BR + 2] = cause
    breaks[n * BR + 3] = t.last[x[X_AT]]
    breaks[n * BR + 4] = ip
    x[X_BREAKS] = n + 1
    order[x[X_OUT]] = P_BREAK
    x[X_OUT] += 1
    x[X_AT] = S_LOST
    x[X_PENDING] = 0
    x[X_FUP] = 0
    x[X_DEPTH] = 0
    x[X_NODE] = x[X_ROOT]


@inner
def _goto(t, x, ip):  # type: ignore[no-untyped-def]
    """Stand at `ip`. FULL: no room."""
    if x[X_MODE] & M_NOT64:
        x[X_AT] = S_LOST
        return 0
    s = intern(t, ip)
    if s == FULL:
        return FULL
    x[X_AT] = s
    x[X_MODE] &= ~M_STILL
    if t.stretch[s * ST + ST_KIND] == UNWALKED:
        return walk(t, s)
    return s


@inner
def _drain(t, x, ring, order, breaks):  # type: ignore[no-untyped-def]
    """Walk the pending TNT bits as far as they lead. FULL: no room (nothing lost: the rest is still pending)."""
    while x[X_PENDING] > 1:
        s = alive(t, x[X_AT])
        if s == FULL:
            return FULL
        if t.stretch[s * ST + ST_KIND] == UNWALKED and walk(t, s) == FULL:
            return FULL
        x[X_AT] = s
        kind = t.stretch[s * ST + ST_KIND]
        if kind == DISABLED:
            _break(t, x, order, breaks, B_WHILE_DISABLED, 0)
        if kind == LOST or kind == DISABLED or kind == OUTSIDE:
            x[X_PENDING] = 0
            return 0
        pending = x[X_PENDING]
        bits = bit_length(pending) - 1
        rest = bits - 6 if bits > 6 else 0
        tail = pending & ((1 << rest) - 1)
        i = lookup(t, s, (pending >> rest) & 63 | 1 << (bits - rest))
        if i == FULL:
            return FULL
        flags = np.int64(t.memo[ME * i + ME_FLAGS])
        path = np.int64(t.memo[ME * i + ME_PATH])
        if path:
            _emit(t, x, ring, order, path)
        x[X_AT] = t.memo[ME * i + ME_NEXT]
        left = (flags >> LEFT) & LEFT_MASK
        x[X_PENDING] = (left if left else 1) << rest | tail
        if flags & F_ERROR:
            kind = t.stretch[x[X_AT] * ST + ST_KIND]
            cause = B_TNT_AT_TIP
            if kind == RET:
                cause = B_RETURN_BIT
            elif kind == OFF or kind == OUTSIDE:
                cause = B_OFF_CODE
            elif kind == STUCK or kind == LOOP:
                cause = B_STUCK
            elif kind == OUT:
                cause = B_NOT_DISABLED
            if kind == OUTSIDE and t.g[G_FILTER_LO] == t.g[G_FILTER_HI]:
                x[X_PENDING] = 0
                return 0
            _break(t, x, order, breaks, cause, 0)
            return 0
        if flags & F_RET:
            s = _pop(t, x, ring, np.int64(-1))
            if s == 0:
                _break(t, x, order, breaks, B_NO_RETURN, 0)
                return 0
            x[X_AT] = s
        if flags & F_TIP:
            return 0
    x[X_PENDING] = 0
    return 0


@inner
def _cut(t, x, ring, order, breaks, cause):  # type: ignore[no-untyped-def]
    """The flow left the code at the FUP's address: complete the current stretch as far as that."""
    x[X_FUP] = 0
    kind = t.stretch[x[X_AT] * ST + ST_KIND]
    if kind == LOST or kind == DISABLED or kind == OUTSIDE:
        return 0
    c = cut(t, x[X_AT], x[X_FUP_IP]) if x[X_PENDING] <= 1 else 0
    if c == FULL:
        x[X_FUP] = 1
        return FULL
    if c == 0:
        _break(t, x, order, breaks, cause, x[X_FUP_IP])
        return 0
    _emit(t, x, ring, order, np.int64(t.stretch[c * ST + ST_TIP_PATH]))
    return 0


@inner
def _tip(t, x, ring, order, breaks, ip, known):  # type: ignore[no-untyped-def]
    """A TIP: the end of an indirect branch, of a return, of an asynchronous event, or a way back in."""
    if x[X_FUP]:
        if _cut(t, x, ring, order, breaks, B_FUP_OFF_PATH) == FULL:
            return FULL
        x[X_AT] = S_LOST
        return _goto(t, x, ip) if known else 0
    s = alive(t, x[X_AT])
    if t.stretch[s * ST + ST_KIND] == UNWALKED:
        walk(t, s)
    x[X_AT] = s
    kind = t.stretch[s * ST + ST_KIND]
    x[X_MODE] &= ~M_STILL
    if kind == IND or kind == FAR or kind == RET:
        _emit(t, x, ring, order, np.int64(t.stretch[s * ST + ST_TIP_PATH]))
        x[X_AT] = S_LOST
        target = np.int64(0)
        if known:
            target = _goto(t, x, ip)
            target = x[X_AT]
        if kind == RET:
            _pop(t, x, ring, target)
        if not known:
            return 0
    elif kind == LOST or kind == OUTSIDE or kind == DISABLED:
        x[X_PENDING] = 0
        if kind == DISABLED:
            _break(t, x, order, breaks, B_WHILE_DISABLED, ip if known else 0)
        if known:
            _goto(t, x, ip)
    else:
        cause = B_TIP_AT_TNT
        if kind == OFF:
            cause = B_OFF_CODE
        elif kind == OUT:
            cause = B_NOT_DISABLED
        elif kind == STUCK or kind == LOOP:
            cause = B_STUCK
        _break(t, x, order, breaks, cause, ip if known else 0)
        if known:
            _goto(t, x, ip)
    if x[X_PENDING] > 1:
        return _drain(t, x, ring, order, breaks)
    return 0


@inner
def _disabled(t, x, ring, order, breaks, ip, known):  # type: ignore[no-untyped-def]
    """A TIP.PGD: the current stretch ends tracing, at its FUP's address, at its end, or at the branch to `ip`."""
    called = False
    if x[X_FUP]:
        if _cut(t, x, ring, order, breaks, B_FUP_OFF_PATH) == FULL:
            return FULL
    else:
        s = alive(t, x[X_AT])
        if t.stretch[s * ST + ST_KIND] == UNWALKED:
            walk(t, s)
        x[X_AT] = s
        kind = t.stretch[s * ST + ST_KIND]
        c = np.int64(0)
        if known:  # a direct branch on the way leads there: the filter's edge, known or not
            for k in range(1, t.stretch[s * ST + ST_RANGES]):
                if t.ranges[3 * (t.stretch[s * ST + ST_RANGE] + k)] == ip:
                    c = cut(t, s, ip)
                    break
        if c > 0:
            _emit(t, x, ring, order, np.int64(t.stretch[c * ST + ST_TIP_PATH]))
            called = t.stretch[c * ST + ST_PUSHES] > 0
        elif x[X_PENDING] > 1:
            _break(t, x, order, breaks, B_NOT_DISABLED, ip)
        elif kind == IND or kind == FAR or kind == RET or kind == COND or kind == OUT or kind == OFF:
            _emit(t, x, ring, order, np.int64(t.stretch[s * ST + ST_TIP_PATH]))
            called = t.stretch[s * ST + ST_PUSHES] > 0
            if kind == RET:
                _pop(t, x, ring, intern(t, ip) if known else np.int64(-1))
        elif kind == STUCK or kind == LOOP:
            _break(t, x, order, breaks, B_STUCK, ip)
    order[x[X_OUT]] = P_DISABLED
    x[X_OUT] += 1
    x[X_AT] = S_DISABLED
    x[X_PENDING] = 0
    x[X_MODE] = x[X_MODE] & ~(M_OVF | M_STILL | M_CALLED) | (M_CALLED if called else 0)
    return 0


@inner
def _enabled(t, x, order, breaks, ip, ring):  # type: ignore[no-untyped-def]
    """A TIP.PGE."""
    kind = t.stretch[x[X_AT] * ST + ST_KIND]
    if kind != LOST and kind != DISABLED and kind != OUTSIDE and not x[X_MODE] & M_FRESH:
        _break(t, x, order, breaks, B_ENABLED_TWICE, ip)
    x[X_MODE] &= ~(M_OVF | M_STILL)
    if _goto(t, x, ip) == FULL:
        return FULL
    if x[X_MODE] & M_CALLED and x[X_DEPTH] > 0 and ring[x[X_TOP]] == x[X_AT]:
        _pop(t, x, ring, np.int64(-1))
    return 0


@inner
def _fup(t, x, ring, order, breaks, ip):  # type: ignore[no-untyped-def]
    mode = x[X_MODE]
    if mode & M_PSB:
        s = alive(t, x[X_AT])
        if t.stretch[s * ST + ST_KIND] == UNWALKED:
            walk(t, s)
        x[X_AT] = s
        kind = t.stretch[s * ST + ST_KIND]
        if kind == LOST or kind == DISABLED or kind == OUTSIDE:
            if _goto(t, x, ip) == FULL:
                return FULL
            x[X_MODE] |= M_FRESH
        elif x[X_PENDING] > 1 or not on_stretch(t, x[X_AT], ip):
            _break(t, x, order, breaks, B_PSB_OFF_PATH, ip)
            if _goto(t, x, ip) == FULL:
                return FULL
        elif kind == LOOP:  # it passes there more than once: what comes next counts from here
            x[X_FUP_IP] = ip
            if _cut(t, x, ring, order, breaks, B_PSB_OFF_PATH) == FULL or _goto(t, x, ip) == FULL:
                return FULL
        else:
            x[X_MODE] |= M_SEEN
            x[X_SEEN_IP] = ip
        x[X_MODE] &= ~M_OVF
    elif mode & M_OVF:
        x[X_MODE] &= ~M_OVF
        return _goto(t, x, ip)
    elif mode & M_BOUND:
        x[X_MODE] &= ~M_BOUND
    else:
        x[X_FUP] = 1
        x[X_FUP_IP] = ip
    return 0


@inner
def size_of(data, pos, block):  # type: ignore[no-untyped-def]
    """Length of the packet at `pos` (`data` goes on at least 16 bytes behind its last packet); 0: none such.
    `block`: between BBP and BEP: 4 or 8 is the length of a BIP's payload."""
    b = np.int64(data[pos])
    if block and b & 7 == 4:
        return 1 + block
    if b == 0 or (b & 1 == 0 and b != 2):
        return 1
    low = b & 0x1F
    if low == 0x0D or low == 0x11 or low == 0x01 or low == 0x1D:
        kind = b >> 5
        return 0 if kind == 5 or kind == 7 else 1 + np.int64(_SIZES[kind])
    if b & 3 == 3:  # CYC
        n = 1
        if b & 4:
            while n < 15 and data[pos + n] & 1:
                n += 1
            n += 1
        return n if n <= 15 else 0
    if b == 0x99 or b == 0x59:
        return 2
    if b == 0x19:
        return 8
    if b == 0xD9:  # TRIG: has an IP payload of its own only by its flags; two bytes of header
        return 3
    if b != 0x02:
        return 0
    e = np.int64(data[pos + 1])
    if e == 0x82:
        for k in range(16):
            if data[pos + k] != (0x82 if k & 1 else 0x02):
                return 0
        return 16
    if e == 0x23 or e == 0xF3 or e == 0x83 or e == 0x62 or e == 0xE2 or e == 0x33 or e == 0xB3:
        return 2
    if e == 0xA3 or e == 0x43:
        return 8
    if e == 0x03 or e == 0x22 or e == 0x13:
        return 4
    if e == 0x73 or e == 0xC8 or e == 0xA2:
        return 7
    if e == 0xC2:
        return 10
    if e == 0x63:
        return 3
    if e == 0x53 or e == 0xC3:
        return 11
    if e & 0x1F == 0x12:
        wide = (e >> 5) & 3
        return 6 if wide == 0 else (10 if wide == 1 else 0)
    return 0


@inner
def _packet(data, end, t, x, ring, order, breaks):  # type: ignore[no-untyped-def]
    """Take the one packet at `x[X_POS]`, whatever it is."""
    if not room(t, 2):
        return TABLES_FULL
    pos = x[X_POS]
    mode = x[X_MODE]
    block = 0
    if mode & M_BLOCK:
        block = 8 if mode & M_LONG_BIP else 4
    size = size_of(data, pos, block)
    if size == 0 or pos + size > end:
        _break(t, x, order, breaks, B_BAD_PACKET, 0)
        # on to the next PSB
        pos += 1
        while pos < end:
            if data[pos] == 0x02 and pos + 16 <= end and size_of(data, pos, 0) == 16:
                break
            pos += 1
        x[X_POS] = pos
        x[X_MODE] = 0
        return RUNNING
    b = np.int64(data[pos])
    low = b & 0x1F
    result = 0
    if block and b & 7 == 4:
        result = 0
    elif b & 1 == 0 and b != 2:
        if b != 0:
            result = _bits(t, x, ring, order, breaks, b >> 1)
    elif low == 0x0D or low == 0x11 or low == 0x01 or low == 0x1D:
        known = b >> 5 != 0
        ip = x[X_LAST_IP]
        if known:
            ip = _ip(b, load64(data, pos + 1), ip)
        if low == 0x0D:
            result = _tip(t, x, ring, order, breaks, ip, known)
        elif low == 0x01:
            result = _disabled(t, x, ring, order, breaks, ip, known)
        elif known and low == 0x11:
            result = _enabled(t, x, order, breaks, ip, ring)
        elif known:
            result = _fup(t, x, ring, order, breaks, ip)
        if result != FULL:
            x[X_LAST_IP] = ip
    elif b == 0x99:
        leaf = np.int64(data[pos + 1])
        if leaf >> 5 == 0:
            if leaf & 3 == 1:
                x[X_MODE] &= ~M_NOT64
            else:
                x[X_MODE] |= M_NOT64
        elif leaf >> 5 == 1 and not mode & M_PSB and not leaf & 2:
            x[X_MODE] |= M_BOUND  # begin or commit: the FUP only says where; an abort's FUP has a TIP
    elif b == 0x02:
        e = np.int64(data[pos + 1])
        if e == 0x82:
            x[X_LAST_IP] = 0
            x[X_MODE] = (mode | M_PSB) & ~(M_BLOCK | M_BOUND)
        elif e == 0x23:
            x[X_MODE] &= ~M_PSB
        elif e == 0xF3:
            if mode & M_SEEN:  # what ran before the PSB did run
                x[X_FUP_IP] = x[X_SEEN_IP]
                result = _cut(t, x, ring, order, breaks, B_FUP_OFF_PATH)
            _break(t, x, order, breaks, B_OVERFLOW, 0)
            x[X_MODE] = M_OVF | (mode & M_NOT64)
        elif e == 0xA3:
            payload = load64(data, pos) >> 16 & 0xFFFFFFFFFFFF
            result = _bits(t, x, ring, order, breaks, payload)
        elif e == 0x63:
            x[X_MODE] = mode | M_BLOCK | (M_LONG_BIP if not data[pos + 2] & 0x80 else 0)
        elif e == 0x33 or e == 0xB3:
            x[X_MODE] = mode & ~(M_BLOCK | M_LONG_BIP) | (M_BOUND if e == 0xB3 else 0)
        elif e == 0xE2 or (e & 0x9F == 0x92):
            x[X_MODE] |= M_BOUND
    if result == FULL:
        return TABLES_FULL
    x[X_POS] = pos + size
    return RUNNING


@inner
def _bits(t, x, ring, order, breaks, payload):  # type: ignore[no-untyped-def]
    """A TNT packet of any length; `payload`: its bits, oldest first under a stop bit."""
    if x[X_FUP]:
        _break(t, x, order, breaks, B_FUP_OFF_PATH, 0)
        return 0
    n = bit_length(payload) - 1
    if n < 1:
        return 0
    was = x[X_PENDING]
    if was > 1:
        if bit_length(was) - 1 + n > 60:
            _break(t, x, order, breaks, B_TNT_AT_TIP, 0)
            return 0
        # a TIP is still owed to the older bits
        x[X_PENDING] = was << n | (payload & ((1 << n) - 1))
        kind = t.stretch[x[X_AT] * ST + ST_KIND]
        if kind == IND or kind == FAR or kind == RET:
            return 0
        return _drain(t, x, ring, order, breaks)
    kind = t.stretch[x[X_AT] * ST + ST_KIND]
    x[X_PENDING] = payload
    x[X_MODE] &= ~M_STILL
    if _drain(t, x, ring, order, breaks) == FULL:
        return FULL
    return 0


@inner
def _hot(data, limit, t, x, ring, order):  # type: ignore[no-untyped-def]
    """Take ordinary packets from `x[X_POS]` up to `limit`; stop in front of the first that is not.

    Called with nothing pending (X_PENDING, X_FUP) and in no special mode. TABLES_FULL leaves the packet untouched,
    or its unwalked bits in X_PENDING.
    """
    memo, stretch, by_address = t.memo, t.stretch, t.by_address
    cmemo, nodes, cmemo_mask = t.cmemo, t.node, t.g[G_CMEMO_MASK]
    memo_mask = t.g[G_MEMO_MASK]
    address_mask = t.g[G_ADDRESS_MASK]
    pos, last_ip, s, out = x[X_POS], x[X_LAST_IP], x[X_AT], x[X_OUT]
    top, depth, node, use_context = x[X_TOP], x[X_DEPTH], x[X_NODE], x[X_CONTEXT]
    capacity = x[X_ROOM] - SPARE
    called = x[X_MODE] & M_CALLED
    result = RUNNING
    pending = 0
    while pos < limit and out < capacity:
        b = np.int64(data[pos])
        if b & 1 == 0 and b > 2:
            bits = b >> 1
            stop = False
            while True:
                key = s << 8 | bits
                i = slot_of(key) & memo_mask
                k = np.int64(memo[ME * i])
                while k != key and k != 0:
                    i = (i + 1) & memo_mask
                    k = np.int64(memo[ME * i])
                flags = np.int64(memo[ME * i + ME_FLAGS])
                if k == 0 or flags & F_STALE:
                    i = lookup(t, s, bits)
                    if i == FULL:
                        result = TABLES_FULL
                        stop = True
                        break
                    flags = np.int64(memo[ME * i + ME_FLAGS])
                path = np.int64(memo[ME * i + ME_PATH])
                high = flags >> HIGH
                room_left = min(depth, RING - high)
                if flags & F_SPECIAL:
                    if flags & (F_ERROR | F_TIP) or (flags & F_RET and room_left == 0):
                        stop = True
                        break
                    if flags & F_LOOP and np.int64(data[pos + 1]) == b and bits == b >> 1:
                        times = 1  # as often as the same byte repeats
                        while pos + times < limit and np.int64(data[pos + times]) == b:
                            times += 1
                        order[out] = path
                        order[out + 1] = 1 - times
                        out += 2
                        pos += times
                        if use_context:
                            t.node_instrs[node] += times * t.path_instrs[path]
                        bits = 0
                        break
                    if flags & F_MANY:
                        first = np.int64(t.path[path * PA + PA_PUSH])
                        many = np.int64(t.path[path * PA + PA_PUSHES])
                        for n in range(many):
                            top = (top + 1) & (SLOTS - 1)
                            ring[top] = np.int64(t.pool[first + n])
                        room_left = min(room_left + many, RING)
                order[out] = path
                out += 1
                push = (flags >> PUSH) & 1
                ring[(top + 1) & (SLOTS - 1)] = np.int64(memo[ME * i + ME_PUSHED])
                top = (top + push) & (SLOTS - 1)
                depth = room_left + push
                if use_context:
                    if high:
                        c = context.probe(cmemo, cmemo_mask, node << 32 | path)
                        if c >= 0:
                            count = cmemo[2 * c + 1]
                            cmemo[2 * c + 1] = count + 1
                            node = count >> 32
                        else:
                            node = context.step(t, node, path)
                    else:
                        t.node_instrs[node] += t.path_instrs[path]
                s = np.int64(memo[ME * i + ME_NEXT])
                if not flags & F_RET:
                    pos += 1
                    break
                s = np.int64(ring[top])
                top = (top - 1) & (SLOTS - 1)
                depth -= 1
                if use_context:
                    if np.int64(nodes[node * context.NO + context.NO_RETURN]) == s:
                        node = np.int64(nodes[node * context.NO + context.NO_PARENT])
                    else:
                        node = context.returned(t, node, s)
                bits = (flags >> LEFT) & LEFT_MASK
                if bits < 2:
                    pos += 1
                    break
            if stop:
                if bits != b >> 1:
                    pending = bits
                    pos += 1
                break
            continue
        low = b & 0x1F
        if low == 0x0D or low == 0x11 or low == 0x01:
            form = b >> 5
            if form == 5 or form == 7:
                break
            mask = np.int64(_MASKS[form])
            ip = (last_ip & ~mask) | (load64(data, pos + 1) & mask)
            if form == 3:
                ip = (ip << 16) >> 16
            kind = np.int64(stretch[s * ST + ST_KIND])
            if low == 0x01:  # tracing ends at the edge of the filter
                inside = form != 0 and t.g[G_FILTER_LO] <= ip < t.g[G_FILTER_HI]
                if inside or t.g[G_FILTER_LO] == t.g[G_FILTER_HI] or kind == RET or kind == UNWALKED or kind > OUT:
                    break
                target = S_DISABLED
            else:
                i = scatter(ip) & address_mask
                target = np.int64(by_address[2 * i + 1])
                while target != 0 and np.int64(by_address[2 * i]) != ip:
                    i = (i + 1) & address_mask
                    target = np.int64(by_address[2 * i + 1])
                if target == 0 or form == 0:
                    break
            if low == 0x11:
                if s > S_DISABLED:
                    break
                if called and depth > 0 and np.int64(ring[top]) == target:
                    top = (top - 1) & (SLOTS - 1)
                    depth -= 1
                    if use_context:
                        if np.int64(nodes[node * context.NO + context.NO_RETURN]) == target:
                            node = np.int64(nodes[node * context.NO + context.NO_PARENT])
                        else:
                            node = context.returned(t, node, target)
            else:
                if kind == UNWALKED:
                    if walk(t, s) == FULL:
                        result = TABLES_FULL
                        break
                    continue
                if kind > FAR and low == 0x0D:
                    break
                path = np.int64(stretch[s * ST + ST_TIP_PATH])
                order[out] = path
                out += 1
                effect = np.int64(stretch[s * ST + ST_EFFECT])
                if effect & E_MANY:
                    first = np.int64(t.path[path * PA + PA_PUSH])
                    many = np.int64(t.path[path * PA + PA_PUSHES])
                    for n in range(many):
                        top = (top + 1) & (SLOTS - 1)
                        ring[top] = np.int64(t.pool[first + n])
                    depth = min(depth + many, RING)
                push = effect & E_PUSH
                pop = (effect >> 1) & 1
                ring[(top + 1) & (SLOTS - 1)] = np.int64(stretch[s * ST + ST_PUSHED])
                top = (top + push - pop) & (SLOTS - 1)
                depth = max(min(depth + push, RING) - pop, 0)
                if use_context:
                    if effect & (E_PUSH | E_MANY):
                        c = context.probe(cmemo, cmemo_mask, node << 32 | path)
                        if c >= 0:
                            count = cmemo[2 * c + 1]
                            cmemo[2 * c + 1] = count + 1
                            node = count >> 32
                        else:
                            node = context.step(t, node, path)
                    else:
                        t.node_instrs[node] += t.path_instrs[path]
                    if pop:
                        if np.int64(nodes[node * context.NO + context.NO_RETURN]) == target:
                            node = np.int64(nodes[node * context.NO + context.NO_PARENT])
                        else:
                            node = context.returned(t, node, target)
                if low == 0x01:
                    order[out] = P_DISABLED
                    out += 1
                    called = effect & (E_PUSH | E_MANY)
            s = target
            last_ip = ip
            pos += 1 + np.int64(_SIZES[form])
            pos += zero_bytes(load64(data, pos))  # padding often follows, in no pattern a branch could learn
            continue
        if b != 0:
            break
        pos += zero_bytes(load64(data, pos))
    x[X_POS], x[X_LAST_IP], x[X_AT], x[X_OUT] = pos, last_ip, s, out
    x[X_TOP], x[X_DEPTH], x[X_NODE] = top, depth, node
    x[X_PENDING] = pending
    x[X_MODE] = x[X_MODE] & ~M_CALLED | (M_CALLED if called else 0)
    return result


@inner
def contexts_full(t):  # type: ignore[no-untyped-def]
    """Whether the next STRIDE bytes could overfill the table of contexts."""
    return 3 * (t.g[G_CMEMO] + 2 * STRIDE) > 2 * t.g[G_CMEMO_MASK]


@njit(cache=True, nogil=True)
def run(where, io):  # type: ignore[no-untyped-def]
    """Walk a piece of trace. `where`: `Tables.raw()`; `io`: addresses and numbers in the order below.

    `data[x[X_POS]:end]` is walked; at least 32 bytes lie behind `end`. `stops` (ascending positions): `stop_at[k]`
    gets the index in `order` where the walker was at `stops[k]`, and no run-length spans it; −1 before. `may_grow`:
    the table of contexts can be enlarged. Returns DONE, or TABLES_FULL or OUTPUT_FULL: call again with new tables
    or a new output.
    """
    t = raw_tables(where)
    x, ring, order, breaks = i64_at(io[0]), i32_at(io[1]), i32_at(io[2]), i64_at(io[3])
    data, end = u8_at(io[4]), io[5]
    stops, stop_at, n_stops, may_grow = i64_at(io[6]), i64_at(io[7]), io[8], io[9]
    k = 0
    while k < n_stops and stop_at[k] >= 0:
        k += 1
    while True:
        while k < n_stops and stops[k] <= x[X_POS]:
            stop_at[k] = x[X_OUT]
            k += 1
        if x[X_POS] >= end:
            if x[X_PENDING] > 1 and _drain(t, x, ring, order, breaks) == FULL:
                return TABLES_FULL
            while k < n_stops:
                stop_at[k] = x[X_OUT]
                k += 1
            return DONE
        if x[X_OUT] >= x[X_ROOM] - SPARE or x[X_BREAKS] + 8 >= BREAKS:
            return OUTPUT_FULL
        if x[X_CONTEXT] and contexts_full(t) and may_grow:
            return TABLES_FULL
        if x[X_PENDING] > 1:
            kind = t.stretch[x[X_AT] * ST + ST_KIND]
            owed = kind == IND or kind == FAR or (kind == RET and t.g[G_NORETCOMP] != 0)
            if not owed:
                if _drain(t, x, ring, order, breaks) == FULL:
                    return TABLES_FULL
                continue
        elif x[X_FUP] == 0 and not x[X_MODE] & (M_PSB | M_OVF | M_NOT64 | M_BLOCK | M_STILL):
            limit = end - 16
            if x[X_CONTEXT]:
                free = (2 * t.g[G_CMEMO_MASK] - 3 * t.g[G_CMEMO]) // 3
                limit = min(limit, x[X_POS] + max(STRIDE, free // 8))
            if k < n_stops:
                limit = min(limit, stops[k])
            if limit > x[X_POS]:
                result = _hot(data, limit, t, x, ring, order)
                if result == TABLES_FULL:
                    return result
                if x[X_POS] >= limit or x[X_PENDING] > 1:
                    continue
                if x[X_OUT] >= x[X_ROOM] - SPARE:
                    continue
        result = _packet(data, end, t, x, ring, order, breaks)
        if result == TABLES_FULL:
            return result

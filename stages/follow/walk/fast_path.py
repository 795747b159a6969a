"""The fast part of the walker: short TNT, TIP, TIP.PGE, TIP.PGD and padding, in their ordinary order.

A TNT byte is one look-up in the TNT path cache, a TIP one look-up of its address. Their work on the return stack is
arithmetic, not a branch: in such data a branch that is not the same nearly always costs more than the work it avoids.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.block_queries import goes_on_at, leads_out, returns_in
from stages.follow.cfg.graph import (
    BL,
    BL_EFFECT,
    BL_KIND,
    BL_PUSHED,
    BL_TIP_PATH,
    COND,
    DEAD,
    DISABLED_BLOCK,
    E_HOP,
    E_LEADS,
    E_MANY,
    E_PUSH,
    E_UPDATES,
    FAR,
    FULL,
    G_ADDRESS_MASK,
    G_ENTRIES,
    G_FILTER_HI,
    G_FILTER_LO,
    G_INTERPRETER_HI,
    G_INTERPRETER_LO,
    G_TNT_CACHE_MASK,
    OUT,
    P_DISABLED,
    PA,
    PA_PUSH,
    PA_PUSHES,
    RET,
    TC,
    TC_FLAGS,
    TC_NEXT,
    TC_PATH,
    TC_PUSHED,
    UNWALKED,
    scatter,
)
from stages.follow.cfg.miss import (
    lookup,
    ready,
)
from stages.follow.cfg.tnt_path_cache import (
    F_ERROR,
    F_LOOP,
    F_MANY,
    F_RET,
    F_SPECIAL,
    F_TIP,
    HIGH,
    LEFT,
    LEFT_MASK,
    PUSH,
)
from stages.follow.code.invalidation import (
    F_STALE,
    slot_of,
)
from stages.follow.code.jumps import (
    fits,
)
from stages.follow.walk.state import (
    M_CALLED,
    RUNNING,
    SPARE,
    TABLES_FULL,
    X_AT,
    X_BASE,
    X_CONFIRMED_OUT,
    X_CONFIRMED_POS,
    X_DEPTH,
    X_LAST_IP,
    X_MODE,
    X_OUT,
    X_PENDING,
    X_POS,
    X_ROOM,
    X_TOP,
    X_TRAP,
)
from stages.pointers import (
    excluded,
    load64,
    zero_bytes,
)
from stages.pt.last_ip import full_ip, ip_size, reserved
from stages.pt.return_stack import ONE, above, left_under, popped, pushed
from stages.pt.tnt import is_short, short_bits


@inner
def hot(t, w, limit, loop_limit):  # type: ignore[no-untyped-def]
    """Take ordinary packets up to `limit`, a loop up to `loop_limit`; stop in front of the first that is not.

    Called with nothing pending (X_PENDING, X_FUP) and in no special mode. TABLES_FULL leaves the packet untouched,
    or its unwalked bits in X_PENDING.
    """
    x, ring, order, data = w.x, w.ring, w.order, w.data
    tnt_cache, block, by_address = t.tnt_cache, t.block, t.by_address
    memo_mask = t.g[G_TNT_CACHE_MASK]
    address_mask = t.g[G_ADDRESS_MASK]
    filter_lo, filter_hi = t.g[G_FILTER_LO], t.g[G_FILTER_HI]
    interpreter_lo, interpreter_hi = t.g[G_INTERPRETER_LO], t.g[G_INTERPRETER_HI]
    pos, last_ip, s, out = x[X_POS], x[X_LAST_IP], x[X_AT], x[X_OUT]
    top, depth, base = x[X_TOP], x[X_DEPTH], x[X_BASE]
    confirmed_pos, confirmed_out = x[X_CONFIRMED_POS], x[X_CONFIRMED_OUT]
    capacity = x[X_ROOM] - SPARE
    called = x[X_MODE] & M_CALLED
    trap = x[X_TRAP]
    result = RUNNING
    pending = 0
    while pos < limit and out < capacity:
        b = np.int64(data[pos])
        if is_short(b):
            bits = short_bits(b)
            stop = False
            while True:
                key = s << 8 | bits
                i = slot_of(key) & memo_mask
                k = np.int64(tnt_cache[TC * i])
                while k != key and k != 0:
                    i = (i + 1) & memo_mask
                    k = np.int64(tnt_cache[TC * i])
                flags = np.int64(tnt_cache[TC * i + TC_FLAGS])
                if k == 0 or flags & F_STALE:
                    i = lookup(t, s, bits)
                    if i == FULL:
                        result = TABLES_FULL
                        stop = True
                        break
                    flags = np.int64(tnt_cache[TC * i + TC_FLAGS])
                path = np.int64(tnt_cache[TC * i + TC_PATH])
                room_left = left_under(depth, flags >> HIGH)
                if flags & F_SPECIAL:
                    if flags & (F_ERROR | F_TIP) or (flags & F_RET and room_left == 0):
                        stop = True
                        break
                    if (
                        flags & F_LOOP
                        and np.int64(data[pos + 1]) == b
                        and bits == short_bits(b)
                        and pos + 1 < loop_limit
                    ):
                        times = 1  # as often as the same byte repeats
                        while pos + times < loop_limit and np.int64(data[pos + times]) == b:
                            times += 1
                        order[out] = path
                        order[out + 1] = 1 - times
                        out += 2
                        pos += times
                        break
                    if flags & F_MANY:
                        first = np.int64(t.path[path * PA + PA_PUSH])
                        many = np.int64(t.path[path * PA + PA_PUSHES])
                        for n in range(many):
                            top = above(top, ONE)
                            ring[top] = np.int64(t.pool[first + n])
                        room_left = pushed(room_left, many)
                order[out] = path
                out += 1
                push = (flags >> PUSH) & 1
                ring[above(top, ONE)] = np.int64(tnt_cache[TC * i + TC_PUSHED])
                top = above(top, push)
                depth = room_left + push  # none falls off: there is room for as many as lay on it
                s = np.int64(tnt_cache[TC * i + TC_NEXT])
                if not flags & F_RET:
                    pos += 1
                    break
                s = np.int64(ring[top])
                top = above(top, -ONE)
                depth -= 1
                bits = (flags >> LEFT) & LEFT_MASK
                if bits < 2:
                    pos += 1
                    break
            if stop:
                if bits != short_bits(b):
                    pending = bits
                    pos += 1
                break
            continue
        low = b & 0x1F
        if low == 0x0D or low == 0x11 or low == 0x01:
            form = b >> 5
            if reserved(b):
                break
            ip = full_ip(form, np.int64(load64(data, pos + 1)), last_ip)
            kind = np.int64(block[s * BL + BL_KIND])
            if low == 0x01:  # tracing ends at the edge of the filter
                inside = form != 0 and not excluded(filter_lo, ip, filter_hi)
                if inside or filter_lo == filter_hi or kind == RET or kind == COND or kind == UNWALKED or kind > OUT:
                    break
                effect = np.int64(block[s * BL + BL_EFFECT])
                if effect & E_UPDATES or (effect & E_HOP and pos >= trap):  # always told; doubted
                    break
                if form != 0 and not leads_out(t, s, ip):
                    break
                target = DISABLED_BLOCK
            else:
                i = scatter(ip) & address_mask
                target = np.int64(by_address[2 * i + 1])
                while target != 0 and np.int64(by_address[2 * i]) != ip:
                    i = (i + 1) & address_mask
                    target = np.int64(by_address[2 * i + 1])
                if target == 0 or form == 0:
                    break
            if low == 0x11:
                if s > DISABLED_BLOCK:
                    break
                if called and depth > 0:
                    if goes_on_at(t, np.int64(ring[top]), target):
                        top = above(top, -ONE)
                        depth -= 1
                        called = 0
                    elif returns_in(t, ip):  # perhaps it is doubted
                        break
                base = depth
            else:
                if kind == UNWALKED or kind == DEAD:
                    now = ready(t, s)
                    if now == FULL:
                        result = TABLES_FULL
                        break
                    s = now
                    continue
                if kind > FAR and low == 0x0D:
                    break
                effect = np.int64(block[s * BL + BL_EFFECT])
                led = effect >> E_LEADS
                if led and low == 0x0D and not fits(led, ip, interpreter_lo, interpreter_hi, t.entry, t.g[G_ENTRIES]):
                    break
                path = np.int64(block[s * BL + BL_TIP_PATH])
                order[out] = path
                out += 1
                if effect & E_MANY:
                    first = np.int64(t.path[path * PA + PA_PUSH])
                    many = np.int64(t.path[path * PA + PA_PUSHES])
                    for n in range(many):
                        top = above(top, ONE)
                        ring[top] = np.int64(t.pool[first + n])
                    depth = pushed(depth, many)
                push = effect & E_PUSH
                pops = (effect >> 1) & 1
                ring[above(top, ONE)] = np.int64(block[s * BL + BL_PUSHED])
                top = above(top, push - pops)
                depth = popped(pushed(depth, push), pops)
                if low == 0x01:
                    order[out] = P_DISABLED
                    out += 1
                    called |= effect & (E_PUSH | E_MANY)
            s = target
            last_ip = ip
            pos += 1 + ip_size(b)
            pos += zero_bytes(load64(data, pos))  # padding often follows, in no pattern a branch could learn
            if low != 0x01:
                confirmed_pos, confirmed_out = pos, out
            continue
        if b != 0:
            break
        pos += zero_bytes(load64(data, pos))
    x[X_POS], x[X_LAST_IP], x[X_AT], x[X_OUT] = pos, last_ip, s, out
    x[X_TOP], x[X_DEPTH], x[X_BASE] = top, depth, base
    x[X_CONFIRMED_POS], x[X_CONFIRMED_OUT] = confirmed_pos, confirmed_out
    x[X_PENDING] = pending
    x[X_MODE] = x[X_MODE] & ~M_CALLED | (M_CALLED if called else 0)
    return result

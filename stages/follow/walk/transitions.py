"""The effect on the walk of each packet that steers: TNT bits, TIP, TIP.PGD, TIP.PGE, FUP."""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.block import intern
from stages.follow.cfg.block_queries import enters_vm, goes_on_at, leads_out, returns_in
from stages.follow.cfg.graph import (
    BL,
    BL_EFFECT,
    BL_KIND,
    BL_PUSHES,
    BL_RANGE,
    BL_RANGES,
    BL_TIP_PATH,
    COND,
    DISABLED,
    DISABLED_BLOCK,
    E_HOP,
    E_LEADS,
    E_UPDATES,
    FAR,
    FULL,
    G_ENTRIES,
    G_ERRATA,
    G_FILTER_HI,
    G_FILTER_LO,
    G_INTERPRETER_HI,
    G_INTERPRETER_LO,
    IND,
    LOOP,
    LOST,
    LOST_BLOCK,
    OFF,
    OUT,
    OUTSIDE,
    P_DISABLED,
    RESOLVE,
    RET,
    STUCK,
    TC,
    TC_FLAGS,
    TC_NEXT,
    TC_PATH,
)
from stages.follow.cfg.miss import (
    cut,
    lookup,
    on_block,
    ready,
)
from stages.follow.cfg.tnt_path_cache import (
    F_ERROR,
    F_RET,
    F_TIP,
    LEFT,
    LEFT_MASK,
)
from stages.follow.code.jumps import (
    fits,
)
from stages.follow.walk.inline_cache_stub import behind_stub, cut_at_call
from stages.follow.walk.state import (
    B_ENABLED_TWICE,
    B_FUP_OFF_PATH,
    B_NO_RETURN,
    B_NOT_DISABLED,
    B_OFF_CODE,
    B_OTHER_MODE,
    B_PSB_OFF_PATH,
    B_RETURN_BIT,
    B_STUCK,
    B_TIP_AT_TNT,
    B_TNT_AT_TIP,
    B_WHILE_DISABLED,
    B_WRONG_TARGET,
    CONFIRMED,
    M_ABORT,
    M_BOUND,
    M_CALLED,
    M_FRESH,
    M_NOT64,
    M_OVF,
    M_PSB,
    M_REFUSED,
    M_SEEN,
    M_STILL,
    NONE,
    OK,
    X_AT,
    X_BASE,
    X_CONFIRMED_OUT,
    X_DEPTH,
    X_DOUBTED,
    X_FUP,
    X_FUP_IP,
    X_MODE,
    X_OUT,
    X_PENDING,
    X_POS,
    X_SEEN_IP,
    X_TOP,
    break_off,
    doubt,
    emit,
    pop,
    update_call,
)
from stages.pt.errata import APL12, BDM64, SKD022
from stages.pt.psb_plus import PLACE, RESUMES, STATUS, fup_is
from stages.pt.tnt import count


@inner
def nowhere(kind):  # type: ignore[no-untyped-def]
    return kind == LOST or kind == OUTSIDE or kind == DISABLED


@inner
def _takes_tip(kind):  # type: ignore[no-untyped-def]
    return kind == IND or kind == FAR or kind == RET or kind == RESOLVE


@inner
def _here(t, x):  # type: ignore[no-untyped-def]
    """How the current block ends; it is alive and walked. (There is room: see `room`.)"""
    s = ready(t, x[X_AT])
    x[X_AT] = s
    return np.int64(t.block[s * BL + BL_KIND])


@inner
def go_to(t, w, ip):  # type: ignore[no-untyped-def]
    """Stand at `ip`."""
    x = w.x
    if x[X_MODE] & M_NOT64:
        if not x[X_MODE] & M_REFUSED:
            break_off(t, w, B_OTHER_MODE, ip)
            x[X_MODE] |= M_REFUSED
        x[X_AT] = LOST_BLOCK
    else:
        x[X_AT] = ready(t, intern(t, behind_stub(t, x, ip)))
        x[X_MODE] &= ~M_STILL
    return CONFIRMED


@inner
def drain(t, w):  # type: ignore[no-untyped-def]
    """Walk the pending TNT bits as far as they lead. FULL: no room (nothing lost: the rest is still pending)."""
    x = w.x
    while x[X_PENDING] > 1:
        s = ready(t, x[X_AT])
        if s == FULL:
            return FULL
        x[X_AT] = s
        kind = np.int64(t.block[s * BL + BL_KIND])
        if nowhere(kind):
            if kind == DISABLED:
                break_off(t, w, B_WHILE_DISABLED, NONE)
            break
        pending = x[X_PENDING]
        bits = count(pending)
        rest = bits - 6 if bits > 6 else 0
        tail = pending & ((1 << rest) - 1)
        i = lookup(t, s, (pending >> rest) & 63 | 1 << (bits - rest))
        if i == FULL:
            return FULL
        flags = np.int64(t.tnt_cache[TC * i + TC_FLAGS])
        path = np.int64(t.tnt_cache[TC * i + TC_PATH])
        if path:
            emit(t, w, path)
        x[X_AT] = t.tnt_cache[TC * i + TC_NEXT]
        left = (flags >> LEFT) & LEFT_MASK
        x[X_PENDING] = (left if left else 1) << rest | tail
        if flags & F_ERROR:
            kind = np.int64(t.block[x[X_AT] * BL + BL_KIND])
            if kind == OUTSIDE and t.g[G_FILTER_LO] == t.g[G_FILTER_HI]:
                break
            cause = _contradiction(kind)
            break_off(t, w, B_RETURN_BIT if kind == RET else (cause if cause != B_TIP_AT_TNT else B_TNT_AT_TIP), NONE)
            return OK
        if flags & F_RET:
            s = pop(w)
            if s == 0:
                break_off(t, w, B_NO_RETURN, NONE)
                return OK
            x[X_AT] = s
        if flags & F_TIP:
            doubt(x, B_TNT_AT_TIP)
            return OK
    x[X_PENDING] = 0
    return OK


@inner
def _contradiction(kind):  # type: ignore[no-untyped-def]
    """The cause of the break if a TIP or a bit comes while a block of this kind waits."""
    if kind == OFF or kind == OUTSIDE:
        return B_OFF_CODE
    if kind == OUT:
        return B_NOT_DISABLED
    if kind == STUCK or kind == LOOP:
        return B_STUCK
    return B_TIP_AT_TNT


@inner
def cut_at_fup(t, w, cause):  # type: ignore[no-untyped-def]
    """The flow left the code at the FUP's address: complete the current block as far as that. CONFIRMED: it did."""
    x = w.x
    x[X_FUP] = 0
    if nowhere(_here(t, x)):
        return OK
    c = cut(t, x[X_AT], x[X_FUP_IP]) if x[X_PENDING] <= 1 else NONE
    if c == 0 and x[X_PENDING] <= 1:
        c = cut_at_call(t, x, x[X_FUP_IP])
    if c == FULL:
        x[X_FUP] = 1
        return FULL
    if c == 0:
        if x[X_MODE] & M_ABORT and t.g[G_ERRATA] & BDM64:
            return CONFIRMED  # the branch before it was traced wrongly, and led here
        break_off(t, w, B_OFF_CODE if t.block[x[X_AT] * BL + BL_KIND] == OFF else cause, x[X_FUP_IP])
        return OK
    emit(t, w, np.int64(t.block[c * BL + BL_TIP_PATH]))
    return CONFIRMED


@inner
def on_tip(t, w, ip, known):  # type: ignore[no-untyped-def]
    """A TIP: the end of an indirect branch, of a return, of an asynchronous event, or a way back in. TNT bits that were
    owed to it are left pending."""
    x = w.x
    x[X_MODE] &= ~(M_OVF | M_BOUND)
    if x[X_FUP]:
        if cut_at_fup(t, w, B_FUP_OFF_PATH) == FULL:
            return FULL
        x[X_MODE] &= ~M_ABORT
        x[X_AT] = LOST_BLOCK
        return go_to(t, w, ip) if known else OK
    kind = _here(t, x)
    x[X_MODE] &= ~M_STILL
    led = t.block[x[X_AT] * BL + BL_EFFECT] >> E_LEADS
    g = t.g
    if (
        _takes_tip(kind)
        and known
        and not fits(led, ip, g[G_INTERPRETER_LO], g[G_INTERPRETER_HI], t.entry, g[G_ENTRIES])
    ):
        break_off(t, w, B_WRONG_TARGET, ip)
    elif _takes_tip(kind):
        emit(t, w, np.int64(t.block[x[X_AT] * BL + BL_TIP_PATH]))
        if kind == RET:
            pop(w)
        if x[X_POS] == x[X_DOUBTED]:
            doubt(x, B_WRONG_TARGET)
        if kind == RESOLVE and known:
            update_call(t, w, x[X_OUT] - 1, ip)
        x[X_AT] = LOST_BLOCK
    elif nowhere(kind):
        x[X_PENDING] = 0
        if kind == DISABLED:
            break_off(t, w, B_WHILE_DISABLED, ip if known else NONE)
    else:
        break_off(t, w, _contradiction(kind), ip if known else NONE)
    return go_to(t, w, ip) if known else OK


@inner
def on_pgd(t, w, ip, known):  # type: ignore[no-untyped-def]
    """A TIP.PGD: the current block ends tracing, at its FUP's address, at its end, or at the branch to `ip`.

    A return out of the filter goes back to a call that came from there and was not seen: nothing is popped. Doubtful is
    one where calls have been seen since tracing came in that have not returned, and a conditional branch out of it.
    """
    x = w.x
    result = OK
    if x[X_FUP] and t.g[G_ERRATA] & SKD022 and enters_vm(t, x[X_FUP_IP]):
        x[X_FUP] = 0
    if x[X_FUP]:
        x[X_MODE] &= ~M_CALLED
        result = cut_at_fup(t, w, B_FUP_OFF_PATH)
        if result == FULL:
            return FULL
    else:
        kind = _here(t, x)
        s = x[X_AT]
        c = NONE
        if known:  # a direct branch on the way leads there: the filter's edge, known or not
            for k in range(1, t.block[s * BL + BL_RANGES]):
                if t.ranges[3 * (t.block[s * BL + BL_RANGE] + k)] == ip:
                    c = cut(t, s, ip)
                    break
        if c <= 0 and x[X_PENDING] > 1:
            break_off(t, w, B_NOT_DISABLED, ip)
        elif c <= 0 and known and not leads_out(t, s, ip):
            break_off(t, w, B_WRONG_TARGET, ip)
        elif c > 0 or _takes_tip(kind) or kind == COND or kind == OUT or kind == OFF:
            if c <= 0:
                c = s
            if c == s and t.block[s * BL + BL_EFFECT] & E_UPDATES:
                update_call(t, w, x[X_OUT], NONE)
            emit(t, w, np.int64(t.block[c * BL + BL_TIP_PATH]))
            if t.block[c * BL + BL_PUSHES] > 0:
                x[X_MODE] |= M_CALLED
            doubtful = c == s and (kind == COND or (kind == RET and x[X_DEPTH] > x[X_BASE]))
            if doubtful or t.block[c * BL + BL_EFFECT] & E_HOP:
                doubt(x, B_NOT_DISABLED)
        elif kind == STUCK or kind == LOOP:
            break_off(t, w, B_STUCK, ip)
    w.order[x[X_OUT]] = P_DISABLED
    x[X_OUT] += 1
    x[X_AT] = DISABLED_BLOCK
    x[X_PENDING] = 0
    x[X_MODE] &= ~(M_OVF | M_STILL | M_BOUND | M_ABORT)
    return result


@inner
def on_pge(t, w, ip):  # type: ignore[no-untyped-def]
    """A TIP.PGE. A call that left the filter may come back here, perhaps after others were made from outside. Behind
    another call that leaves it, that other call was made."""
    x = w.x
    if not nowhere(np.int64(t.block[x[X_AT] * BL + BL_KIND])) and not x[X_MODE] & M_FRESH:
        break_off(t, w, B_ENABLED_TWICE, ip)
    x[X_MODE] &= ~(M_OVF | M_STILL | M_BOUND)
    go_to(t, w, ip)
    if x[X_MODE] & M_CALLED and x[X_DEPTH] > 0:
        if goes_on_at(t, np.int64(w.ring[x[X_TOP]]), x[X_AT]):
            pop(w)
            x[X_MODE] &= ~M_CALLED
        elif x[X_OUT] > x[X_CONFIRMED_OUT] and returns_in(t, ip):  # else there is nothing to be searched
            doubt(x, B_NOT_DISABLED)
    x[X_BASE] = x[X_DEPTH]
    return CONFIRMED


@inner
def on_fup(t, w, ip):  # type: ignore[no-untyped-def]
    x = w.x
    mode = x[X_MODE]
    says = fup_is(mode & M_PSB, mode & M_OVF, mode & M_BOUND)
    x[X_MODE] &= ~M_OVF
    if says == STATUS:
        kind = _here(t, x)
        if nowhere(kind):
            go_to(t, w, ip)
            x[X_MODE] |= M_FRESH
        elif x[X_PENDING] > 1 or not on_block(t, x[X_AT], ip):
            break_off(t, w, B_PSB_OFF_PATH, ip)
            go_to(t, w, ip)
        elif kind == LOOP:  # it passes there more than once: its passes count from here
            x[X_FUP_IP] = ip
            if cut_at_fup(t, w, B_PSB_OFF_PATH) == FULL:
                return FULL
            go_to(t, w, ip)
        else:
            x[X_MODE] |= M_SEEN
            x[X_SEEN_IP] = ip
        return CONFIRMED
    x[X_MODE] &= ~M_BOUND
    if says == RESUMES:
        go_to(t, w, ip)
        if t.g[G_ERRATA] & APL12:
            x[X_MODE] |= M_FRESH  # if tracing is off, it is void
        return CONFIRMED
    if says == PLACE:
        lost = nowhere(np.int64(t.block[x[X_AT] * BL + BL_KIND])) and x[X_AT] != DISABLED_BLOCK
        return go_to(t, w, ip) if lost else OK
    x[X_FUP] = 1
    x[X_FUP_IP] = ip
    return OK


@inner
def on_bits(t, w, payload):  # type: ignore[no-untyped-def]
    """A TNT packet of any length; `payload`: its bits, oldest first under a stop bit."""
    x = w.x
    if x[X_FUP]:
        break_off(t, w, B_FUP_OFF_PATH, NONE)
        return OK
    n = count(payload)
    if n < 1:
        return OK
    was = x[X_PENDING]
    if was <= 1:
        x[X_PENDING] = payload
        x[X_MODE] &= ~M_STILL
    elif count(was) + n > 60:
        break_off(t, w, B_TNT_AT_TIP, NONE)
        return OK
    else:  # a TIP is still owed to the older bits
        x[X_PENDING] = was << n | (payload & ((1 << n) - 1))
        if _takes_tip(np.int64(t.block[x[X_AT] * BL + BL_KIND])):
            return OK
    return drain(t, w)

"""A way: code executed instruction by instruction along packets, as far as they agree.

A search (`stages.follow.repair.backtracking_search`) tries one way after the other. A way's state is a few numbers and
a return stack, so that it can be copied at a choice and taken up again there. Slow and exact, unlike the walker
(`stages.follow.walk.driver`), which remembers paths; both follow the same rules (SDM, "Intel Processor Trace").
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

from __future__ import annotations

from collections import namedtuple

import numpy as np

from jvm.kernels import inner
from stages.follow.code.jumps import fits
from stages.follow.walk.state import NONE
from stages.pointers import excluded, holder, load64, within
from stages.pt import x86
from stages.pt.last_ip import full_ip
from stages.pt.packets import (
    BBP,
    FUP,
    MODE_EXEC,
    OVF,
    PSB,
    TIP,
    TIP_PGD,
    TIP_PGE,
    TNT_8,
    TNT_64,
    packet_at,
)
from stages.pt.psb_plus import PLACE, STATUS, binds_fup, ends_psb_plus, fup_is
from stages.pt.return_stack import DEPTH, call_pushes
from stages.pt.tnt import count, long_bits, short_bits

_PIECE = 1 << 14  # instructions without a packet
_TRANSFERS = 128

# the state of a way
(
    W_POS, W_LAST, W_BITS, W_NEXT, W_IP, W_AT, W_HERE, W_MUST, W_DEPTH, W_OFF, W_CHOSEN, W_INSTRS,
    W_TRANSFERS, W_BEHIND, W_PSB, W_BOUND, W_TRY, W_BASE, W_CALLED, W_SIZE,
) = range(20)  # fmt: skip
WAY_SIZE = W_SIZE + DEPTH  # and the return stack behind it

# Where it leads: blobs of known code, the IP filter [lo, hi), where the interpreter lies, and entries of methods
# (stages.follow.code.jumps). Pointers and numbers, for arrays in a tuple are counted at each call (stages.pointers).
Ground = namedtuple(
    "Ground", ("start", "end", "blobs", "lo", "hi", "interpreter_lo", "interpreter_hi", "entries", "n_entries")
)

N_NONE, N_BITS, N_TIP, N_PGD, N_FUP, N_PGE, N_END = range(7)  # the packet that is looked at


@inner
def look(data, end, goal, w):  # type: ignore[no-untyped-def]
    """Look at the next packet that steers: W_NEXT, W_IP (−1: suppressed), W_BITS, W_AT."""
    while True:
        pos = w[W_POS]
        w[W_AT] = pos
        kind, size = packet_at(data, pos, NONE) if pos < end else (-1, 0)
        if kind < 0 or pos + size > end:
            w[W_NEXT] = N_END
            return
        low = np.int64(load64(data, pos))
        w[W_POS] = pos + size
        seen = N_NONE
        if kind == TNT_8 or kind == TNT_64:
            w[W_BITS] = short_bits(low & 0xFF) if kind == TNT_8 else long_bits(low)
            seen = N_BITS
        elif TIP <= kind <= FUP:
            form = low >> 5 & 7
            ip = np.int64(-1)
            if form:
                ip = full_ip(form, np.int64(load64(data, pos + 1)), w[W_LAST])
                w[W_LAST] = ip
            if kind != FUP:
                w[W_BOUND] = 0
            if kind == TIP:
                seen = N_TIP
            elif kind == TIP_PGD:
                seen = N_PGD
            elif kind == TIP_PGE:
                seen = N_PGE
            else:
                says = fup_is(w[W_PSB], NONE, w[W_BOUND])
                if says == STATUS:
                    if ip != -1 and not w[W_OFF]:
                        w[W_MUST] = ip
                elif says == PLACE:
                    w[W_BOUND] = 0
                else:
                    seen = N_FUP
            w[W_IP] = ip
        elif kind == PSB:
            w[W_LAST] = w[W_BOUND] = 0
            w[W_PSB] = 1
        elif kind == OVF or kind == BBP or (kind == MODE_EXEC and low >> 8 & 3 != 1):
            seen = N_END
        elif ends_psb_plus(kind):
            w[W_PSB] = 0
        elif binds_fup(kind, low, w[W_PSB]):
            w[W_BOUND] = 1
        if seen != N_NONE:
            w[W_NEXT] = seen
            if pos > goal:
                w[W_BEHIND] += 1
            return


@inner
def _taken(w):  # type: ignore[no-untyped-def]
    """The next TNT bit."""
    n = count(w[W_BITS]) - 1
    bit = w[W_BITS] >> n & 1
    w[W_BITS] = w[W_BITS] & ((np.int64(1) << n) - 1) | np.int64(1) << n
    if n == 0:
        w[W_NEXT] = N_NONE
    return bit


@inner
def arrive(w, here):  # type: ignore[no-untyped-def]
    """A packet has led to `here`. Whether it was right that it came: a PSB's address must have been passed."""
    w[W_HERE] = here
    w[W_INSTRS] = w[W_TRANSFERS] = 0
    return w[W_MUST] == 0


@inner
def push(w, stack, address):  # type: ignore[no-untyped-def]
    if w[W_DEPTH] == DEPTH:
        for k in range(1, DEPTH):
            stack[k - 1] = stack[k]
        w[W_DEPTH] -= 1
        w[W_BASE] = max(w[W_BASE] - 1, 0)
    stack[w[W_DEPTH]] = address
    w[W_DEPTH] += 1


@inner
def pop(w, stack):  # type: ignore[no-untyped-def]
    """The youngest return address; 0: empty stack."""
    if w[W_DEPTH] == 0:
        return np.int64(0)
    w[W_DEPTH] -= 1
    return np.int64(stack[w[W_DEPTH]])


@inner
def leave(w):  # type: ignore[no-untyped-def]
    """A TIP.PGD ends the piece. (Callers set W_CALLED: a call or a direct jump has left the filter, so that the VM
    returns to the code that called.)"""
    right = arrive(w, np.int64(0))
    w[W_OFF] = 1
    w[W_CALLED] = 0
    w[W_NEXT] = N_NONE
    return right


@inner
def inside(g, ip):  # type: ignore[no-untyped-def]
    """Whether an address is in the filter [lo, hi), if there is one, and in known code."""
    return not excluded(g.lo, ip, g.hi) and holder(g.start, g.end, g.blobs, ip) >= 0


@inner
def asynchronous(data, end, goal, w, g):  # type: ignore[no-untyped-def]
    """The FUP's address has been reached: whether the packets agree with that."""
    if w[W_MUST] == w[W_HERE]:
        w[W_MUST] = 0
    look(data, end, goal, w)
    if w[W_NEXT] == N_TIP:
        w[W_NEXT] = N_NONE
        return w[W_IP] == -1 or (inside(g, w[W_IP]) and arrive(w, w[W_IP]))
    if w[W_NEXT] == N_PGD:
        return leave(w)
    return w[W_NEXT] == N_END


@inner
def step(w, stack, insn, target, led, g):  # type: ignore[no-untyped-def]
    """Execute one instruction, of which it is known where it has `led` (stages.follow.code.jumps). False: the trace
    says otherwise."""
    what = insn >> 8 & 0xFF
    here = w[W_HERE]
    after = here + (insn & 0xFF)
    w[W_INSTRS] += 1
    if insn & 0xFF == 0 or what == x86.BAD or w[W_INSTRS] > _PIECE:
        return False
    if what == x86.OTHER:
        w[W_HERE] = after
        return True
    if what == x86.JUMP or what == x86.CALL:
        w[W_TRANSFERS] += 1
        if what == x86.CALL and call_pushes(target, after):
            push(w, stack, after)
        w[W_HERE] = target
        return w[W_TRANSFERS] <= _TRANSFERS and target != here  # a stub's JMP that is not bound yet leads to itself
    seen = w[W_NEXT]
    if what == x86.COND:
        if seen == N_BITS:
            bit = _taken(w)
            return arrive(w, target if bit else after)
        out = excluded(g.lo, target, g.hi) or excluded(g.lo, after, g.hi)
        return seen == N_PGD and out and leave(w)
    if what == x86.CALL_IND:
        push(w, stack, after)
    if what == x86.RET and seen != N_PGD:  # out of the filter: to a call that was not seen
        back = pop(w, stack)
        if seen == N_BITS:
            return _taken(w) == 1 and back != 0 and arrive(w, back)
    if seen == N_TIP:
        w[W_NEXT] = N_NONE
        right = w[W_IP] != -1 and inside(g, w[W_IP])
        right &= fits(led, w[W_IP], g.interpreter_lo, g.interpreter_hi, g.entries, g.n_entries)
        return right and arrive(w, w[W_IP])
    if seen == N_PGD:
        if what == x86.RET and w[W_DEPTH] > w[W_BASE]:
            return False
        stays = w[W_IP] != -1 and g.lo != g.hi and within(g.lo, w[W_IP], g.hi)
        right = not stays and what != x86.JUMP_IND and leave(w)  # the JVM's jumps stay in its code, its calls do not
        w[W_CALLED] = what == x86.CALL_IND
        return right
    return False

"""The state of one thread's walk, and the three things that happen to it: a path is handed on, a return pops, and the
trace contradicts the code.

The return stack does exactly what the processor's does (stages.pt.return_stack), but for a RET out of the filter: that
goes back to a call that was not seen. A contradiction leaves it alone: it still has the processor's entries.

The *confirmed* point is just behind the last packet that carried an address which was believed: a TIP, a TIP.PGE, a FUP
that a PSB+ or a TIP.PGD confirmed. A path taken between it and a contradiction is *suspect*. Where contradictions are
trapped (from X_TRAP on), the walk goes back there instead of breaking off: so at most once in STRIDE bytes the state is
copied, and of the two copies one is never behind the confirmed point.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment,operator"

from __future__ import annotations

from collections import namedtuple

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.graph import (
    BL,
    BL_INSTRS,
    BL_KIND,
    BL_RANGE,
    BL_RANGES,
    LOST_BLOCK,
    OFF,
    OUT,
    P_BREAK,
    PA,
    PA_HIGH,
    PA_PUSH,
    PA_PUSHES,
    UNWALKED,
)
from stages.messages.reports import Break
from stages.pointers import i32_at, i64_at, u8_at
from stages.pt.return_stack import ONE, SLOTS, above, left_under, popped, pushed

# the state, int64 each
(
    X_AT, X_LAST_IP, X_PENDING, X_FUP, X_FUP_IP, X_MODE, X_TOP, X_DEPTH, X_POS, X_OUT, X_BREAKS, X_ROOM, X_SEEN_IP,
    X_CONFIRMED_POS, X_CONFIRMED_OUT, X_TRAP, X_CAUSE, X_WHERE, X_RESOLVED, X_BASE, X_DOUBTED,
    X_PASSED, X_SIZE,
) = range(23)  # fmt: skip

# X_DOUBTED: position of a resolver's jump that does not lead where its call does, −1: none
# X_PASSED: where the inline-cache stub leads in which there was an event, 0: none

# X_MODE
M_PSB = 1  # inside PSB+
M_OVF = 2  # after OVF, before its FUP or PGE
M_FRESH = 4  # the position came from a FUP in PSB+ and nothing has happened since (erratum BDM70)
M_SEEN = 256  # a PSB+ confirmed the position (X_SEEN_IP) and nothing has happened since
M_STILL = M_FRESH | M_SEEN
M_BOUND = 8  # the next FUP belongs to a PTWRITE, EXSTOP, MODE.TSX … and changes no flow
M_NOT64 = 16  # the processor is not in 64-bit mode: this code is not ours
M_BLOCK = 32  # between BBP and BEP, where BIPs alias TNTs
M_CALLED = 128  # a call left the filter, and has not come back
M_LONG_BIP = 64  # their payload has 8 bytes, not 4
M_REFUSED = 1024  # it has been told that
M_ABORT = 512  # the next FUP is that of an aborted transaction

# why the walk was broken off: the trace contradicts the code (`Break`), or an OVF packet came
B_TNT_AT_TIP = np.int64(Break.TNT_AT_TIP)
B_TIP_AT_TNT = np.int64(Break.TIP_AT_TNT)
B_RETURN_BIT = np.int64(Break.RETURN_BIT)
B_NO_RETURN = np.int64(Break.NO_RETURN)
B_OFF_CODE = np.int64(Break.OFF_CODE)
B_STUCK = np.int64(Break.STUCK)
B_NOT_DISABLED = np.int64(Break.NOT_DISABLED)
B_FUP_OFF_PATH = np.int64(Break.FUP_OFF_PATH)
B_PSB_OFF_PATH = np.int64(Break.PSB_OFF_PATH)
B_BAD_PACKET = np.int64(Break.BAD_PACKET)
B_ENABLED_TWICE = np.int64(Break.ENABLED_TWICE)
B_WHILE_DISABLED = np.int64(Break.WHILE_DISABLED)
B_WRONG_TARGET = np.int64(Break.WRONG_TARGET)
B_GAVE_UP = np.int64(Break.GAVE_UP)
B_OTHER_MODE = np.int64(Break.OTHER_MODE)
B_OVERFLOW = np.int64(10)
B_END = 1 + max(*Break, B_OVERFLOW)

BREAK_NAMES = tuple("overflow" if k == B_OVERFLOW else Break(k).name.lower() for k in range(1, int(B_END)))

BREAKS = 1024  # room for so many in one call
# columns of a break: index in the order, stream position, cause, where the walker was, where it goes on, and index and
# position of the confirmed point
BR = 7

RESOLVED = 1024  # room for so many in one call
RC = 5
"""Columns: return address on top of the stack, target (0: none), index in the order, stream position, and the jump or
call itself."""

STRIDE = 4096  # bytes between two copies of the state
KEPT = X_SIZE + SLOTS  # numbers of a copy
FIRST, SECOND, EARLY = (np.int64(k) for k in range(3))  # EARLY: where a search may begin if it finds nothing from the
# confirmed point on
COPIES = 3
BACK = 192  # bytes, about, from there to the confirmed point

RUNNING, DONE, TABLES_FULL, OUTPUT_FULL, CONTRADICTION, CALL_UPDATED, PAUSED = range(7)
SPARE = 512  # room in the output that one packet may need

# results of the exact part, besides FULL
OK = np.int64(0)
CONFIRMED = np.int64(1)  # the packet had an address, and that is where the walker is
NONE = np.int64(0)

Walker = namedtuple("Walker", ("x", "ring", "order", "breaks", "resolved", "kept", "data"))
IN = Walker(*range(7))  # where the address of each stands in `io`


@inner
def raw_walker(io):  # type: ignore[no-untyped-def]
    """One thread's arrays as pointers; `io` begins with their addresses."""
    return Walker(
        x=i64_at(io[IN.x]),
        ring=i32_at(io[IN.ring]),
        order=i32_at(io[IN.order]),
        breaks=i64_at(io[IN.breaks]),
        resolved=i64_at(io[IN.resolved]),
        kept=i64_at(io[IN.kept]),
        data=u8_at(io[IN.data]),
    )


@inner
def push(w, ret):  # type: ignore[no-untyped-def]
    x = w.x
    x[X_TOP] = above(x[X_TOP], ONE)
    w.ring[x[X_TOP]] = ret
    x[X_DEPTH] = pushed(x[X_DEPTH], ONE)


@inner
def pop(w):  # type: ignore[no-untyped-def]
    """A near RET. The block that the call returns to; 0: empty stack."""
    x = w.x
    back = np.int64(0)
    if x[X_DEPTH] > 0:
        back = np.int64(w.ring[x[X_TOP]])
        x[X_TOP] = above(x[X_TOP], -ONE)
        x[X_DEPTH] = popped(x[X_DEPTH], ONE)
    return back


@inner
def emit(t, w, path):  # type: ignore[no-untyped-def]
    """Hand on `path`, with the effect of its calls and returns on the stack."""
    x = w.x
    w.order[x[X_OUT]] = path
    x[X_OUT] += 1
    row = path * PA
    high = np.int64(t.path[row + PA_HIGH])
    if high:
        x[X_DEPTH] = left_under(x[X_DEPTH], high)
        for k in range(t.path[row + PA_PUSHES]):
            push(w, t.pool[t.path[row + PA_PUSH] + k])


@inner
def _where(t, s):  # type: ignore[no-untyped-def]
    """The instruction of block `s` that could not be passed: its last; if it left the code, that one's last byte. The
    first of a block that was not walked yet."""
    row = s * BL
    kind = t.block[row + BL_KIND]
    if kind == UNWALKED:
        return t.address[s]
    if (kind == OUT or kind == OFF) and t.block[row + BL_INSTRS] > 0:
        last = np.int64(t.block[row + BL_RANGE]) + t.block[row + BL_RANGES] - 1
        return t.ranges[3 * last + 1] - 1
    return t.last[s]


@inner
def break_off(t, w, cause, ip):  # type: ignore[no-untyped-def]
    """The trace contradicts the code, or has a gap: the walker's belief ends here. Where contradictions are trapped,
    only X_CAUSE says so, and the work after that will be undone."""
    x = w.x
    gap = cause == B_OVERFLOW or cause == B_BAD_PACKET or cause == B_OTHER_MODE
    if not gap and x[X_POS] >= x[X_TRAP]:
        if x[X_CAUSE] == 0:
            x[X_CAUSE] = cause
            x[X_WHERE] = x[X_POS]
        return
    row = x[X_BREAKS] * BR
    x[X_BREAKS] += 1
    w.breaks[row] = x[X_OUT]
    w.breaks[row + 1] = x[X_POS]
    w.breaks[row + 2] = cause
    w.breaks[row + 3] = _where(t, x[X_AT])
    w.breaks[row + 4] = ip
    w.breaks[row + 5] = x[X_OUT] if gap else x[X_CONFIRMED_OUT]
    w.breaks[row + 6] = x[X_POS] if gap else x[X_CONFIRMED_POS]
    w.order[x[X_OUT]] = P_BREAK
    x[X_OUT] += 1
    x[X_AT] = LOST_BLOCK
    x[X_PENDING] = 0
    x[X_FUP] = 0
    if gap:
        x[X_DEPTH] = x[X_BASE] = 0
    x[X_CONFIRMED_POS], x[X_CONFIRMED_OUT] = x[X_POS], x[X_OUT]


@inner
def doubt(x, cause):  # type: ignore[no-untyped-def]
    """The packets are possible, but rare (deferred TIPs): where contradictions are trapped, this is one first."""
    if x[X_POS] >= x[X_TRAP] and x[X_CAUSE] == 0:
        x[X_CAUSE] = cause
        x[X_WHERE] = x[X_POS]


@inner
def update_call(t, w, order, target):  # type: ignore[no-untyped-def]
    """The last instruction of the block that is handed on at `order` has changed the call before the return address
    on top of the stack."""
    x = w.x
    row = x[X_RESOLVED] * RC
    x[X_RESOLVED] += 1
    w.resolved[row] = t.address[w.ring[x[X_TOP]]] if x[X_DEPTH] > 0 else NONE
    w.resolved[row + 1] = target
    w.resolved[row + 2] = order
    w.resolved[row + 3] = x[X_POS]
    w.resolved[row + 4] = _where(t, x[X_AT])


@inner
def confirm(x):  # type: ignore[no-untyped-def]
    x[X_CONFIRMED_POS], x[X_CONFIRMED_OUT] = x[X_POS], x[X_OUT]


@inner
def keep(w, copy):  # type: ignore[no-untyped-def]
    """Make a copy of the state: the FIRST, the SECOND, or the EARLY one."""
    at = copy * KEPT
    for k in range(X_SIZE):
        w.kept[at + k] = w.x[k]
    for k in range(SLOTS):
        w.kept[at + X_SIZE + k] = w.ring[k]


@inner
def keep_up(w):  # type: ignore[no-untyped-def]
    """Make a copy if one is due. The first copy is never behind the confirmed point."""
    if w.x[X_POS] >= w.kept[KEPT + X_POS] + STRIDE and w.kept[KEPT + X_POS] <= w.x[X_CONFIRMED_POS]:
        for k in range(KEPT):
            w.kept[k] = w.kept[KEPT + k]
        keep(w, SECOND)


@inner
def go_back(w):  # type: ignore[no-untyped-def]
    """To the first copy."""
    trap, doubted = w.x[X_TRAP], w.x[X_DOUBTED]
    for k in range(X_SIZE):
        w.x[k] = w.kept[k]
    for k in range(SLOTS):
        w.ring[k] = np.int32(w.kept[X_SIZE + k])
    w.x[X_TRAP], w.x[X_DOUBTED] = trap, doubted
    w.x[X_CAUSE] = 0

"""Decoded blocks against steps of the truth, in the order of the stream.

Both are sequences between the same packets, so they are laid side by side by counting and never by similarity: a
block that the decoder hands on is a step, a switched-off mark is a step that ended in TIP.PGD. After a break the
decoder goes on at the next packet with an address; so do we. A block behind an address must begin there. Blocks
that do not come out even are counted as `misaligned`, and all that they leave uncompared as wrong: no error can hide in
that.

Within a step the blocks that ran (as QEMU cut them) are compared with the address ranges of the decoded block,
whichever way either was cut. Inline-cache stubs count on neither side: `call → stub → X` and `call → X` are the same
packets. So where tracing comes back in one, the decoder may go on in it or at X.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons
# mypy: disable-error-code="assignment, unreachable"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow_truth.reader import BROKE_OFF, SWITCHED_OFF, WHOLE
from benchmarks.flow_truth.walk import BIT, END, OVF, PGD, PGE, PSB, TIP
from jvm.kernels import kernel
from stages.messages.paths import BlockEnd

I64 = NDArray[np.int64]
_INDIRECT, _FAR, _LOOP, _EVENT = (int(e) for e in (BlockEnd.INDIRECT, BlockEnd.FAR, BlockEnd.LOOP, BlockEnd.EVENT))

# fates of blocks that ran
RIGHT, WRONG, EXTRA, SUSPECT_RIGHT, SUSPECT_WRONG, FOREIGN, IC, MISALIGNED, COMPARED = range(9)
LOST = 16  # and from here on, by cause: not decoded, and the decoder says so
L_HOLE, L_OUTSIDE, L_MISALIGNED, L_END = 48, 49, 50, 51  # causes that are no break: before any address, no code there
COUNTS = LOST + 64

# how a thread's comparison stands
C_FOLLOWING, C_EXPECT, C_CAUSE, C_OFF, C_FROM, C_SITE, C_TRUTH, C_DECODED, C_WRONG, C_EXTRA, C_AHEAD, C_SIZE = range(12)

INCIDENT_DTYPE = np.dtype(
    [("site", "<i8"), ("truth", "<i8"), ("decoded", "<i8"), ("wrong", "<i8"), ("extra", "<i8"), ("ended", "<i8")]
)
"""A run of wrong steps without a flag: the last instruction that was right, where it led and where it was decoded to
lead, blocks, the end (a break's cause; 0: the decoder came back on the way by itself)."""
_INCIDENTS = 4096


@kernel
def _close(state, ended, incidents, n):  # type: ignore[no-untyped-def]
    if state[C_WRONG] + state[C_EXTRA] == 0:
        return n
    if n < len(incidents):
        for k in range(5):
            incidents[n, k] = state[C_SITE + k]
        incidents[n, 5] = ended
    state[C_WRONG] = state[C_EXTRA] = 0
    return n + 1


@kernel
def _count(steps_first, start, ic_lo, ic_hi, counts, verdict, k, what):  # type: ignore[no-untyped-def]
    """All blocks of step k are `what`."""
    for b in range(steps_first[k], steps_first[k + 1]):
        verdict[b] = IC if ic_lo <= start[b] < ic_hi else what
        counts[verdict[b]] += 1


@kernel
def _forward(lo, hi, r, r_end, here, start, end, ic_lo, ic_hi):  # type: ignore[no-untyped-def]
    """One block further along the ranges from `here` in range r: (range, place), range −1 if the block is not there."""
    while r < r_end and (here == hi[r] or ic_lo <= here < ic_hi):
        r += 1
        here = lo[r] if r < r_end else 0
    if r >= r_end or here != start:
        return -1, here
    while end > hi[r]:
        if r + 1 >= r_end or lo[r + 1] != hi[r]:
            return -1, here
        r += 1
    return r, end


@kernel
def _backward(lo, hi, r, r_first, here, start, end, ic_lo, ic_hi):  # type: ignore[no-untyped-def]
    while r >= r_first and (here == lo[r] or ic_lo <= here - 1 < ic_hi):
        r -= 1
        here = hi[r] if r >= r_first else 0
    if r < r_first or here != end:
        return -1, here
    while start < lo[r]:
        if r - 1 < r_first or hi[r - 1] != lo[r]:
            return -1, here
        r -= 1
    return r, start


@kernel
def _ranges_between(lo, hi, r, here, q, there, ic_lo, ic_hi):  # type: ignore[no-untyped-def]
    """How many ranges with something in them lie from `here` in r up to `there` in q."""
    n = 0
    while r <= q:
        stop = there if r == q else hi[r]
        if here < stop and not ic_lo <= here < ic_hi:
            n += 1
        r += 1
        here = lo[r] if r <= q else 0
    return n


@kernel
def _stands_at(ip, address, k, first, start, ic_lo, ic_hi):  # type: ignore[no-untyped-def]
    """Whether a decoder may go on at `address` where a packet says `ip`, and step k comes next."""
    if ip == address or not ic_lo <= ip < ic_hi:
        return ip == address
    b, end = first[min(k, len(first) - 1)], first[len(first) - 1]
    while b < end and ic_lo <= start[b] < ic_hi:
        b += 1
    return b < end and start[b] == address


@kernel
def compare(taken, code, steps, final, foreign, ic_lo, ic_hi, state, counts, verdict, incidents):  # type: ignore[no-untyped-def]
    """`taken`: `reader.Taken` over `code`, a `reader.Code`; `final`: a piece of trace ends with it, so all `steps` have
    been decoded. `verdict` (uint8) gets the fate of each block, like an index of `counts`. Returns (steps used,
    incidents)."""
    blocks, doubtful, break_offset, break_cause = taken
    address, ends, block_range, block_ranges, range_lo, range_hi = code
    first, kind, offset, ip, start, end, block_last = steps
    n, k, n_breaks, n_incidents = len(kind), 0, 0, 0
    void = False
    for e in range(len(blocks)):
        s = blocks[e]
        if s == BROKE_OFF:
            state[C_FOLLOWING], state[C_EXPECT], state[C_OFF] = 0, 0, 0
            state[C_CAUSE], state[C_FROM] = break_cause[n_breaks], break_offset[n_breaks]
            if state[C_AHEAD] and offset[k + state[C_AHEAD] - 1] == state[C_FROM]:  # it had taken that TIP
                state[C_FROM] += 1
            state[C_AHEAD] = 0
            n_incidents = _close(state, break_cause[n_breaks], incidents, n_incidents)
            n_breaks += 1
            continue
        if s == SWITCHED_OFF:
            if not state[C_OFF]:
                if state[C_FOLLOWING]:
                    state[C_CAUSE] = L_OUTSIDE
                    if not state[C_EXPECT]:
                        counts[MISALIGNED] += 1
                        state[C_CAUSE] = L_MISALIGNED
                found = False
                while k < n and not found:
                    _count(first, start, ic_lo, ic_hi, counts, verdict, k, LOST + state[C_CAUSE])
                    found = kind[k] == PGD
                    k += 1
                if not found:
                    void = True
                    break
            state[C_FOLLOWING] = state[C_OFF] = state[C_EXPECT] = 0
            state[C_CAUSE], state[C_FROM] = L_HOLE, 0
            continue
        if (
            state[C_FOLLOWING]
            and state[C_EXPECT]
            and not _stands_at(state[C_EXPECT], address[s], k, first, start, ic_lo, ic_hi)
        ):
            state[C_FOLLOWING], state[C_CAUSE], state[C_FROM] = 0, L_OUTSIDE, 0
        void = void or state[C_OFF] != 0
        if not state[C_FOLLOWING] and not void:
            to = k
            while to < n and kind[to] != PGD and not state[C_FOLLOWING]:  # the mark of a PGD would have come before
                if ip[to] and offset[to] >= state[C_FROM]:
                    state[C_FOLLOWING] = _stands_at(ip[to], address[s], to + 1, first, start, ic_lo, ic_hi)
                to += 1
            void = not state[C_FOLLOWING]
            while k < to:
                _count(
                    first, start, ic_lo, ic_hi, counts, verdict, k, LOST + (L_MISALIGNED if void else state[C_CAUSE])
                )
                if ip[k] and offset[k] >= state[C_FROM]:
                    state[C_CAUSE] = L_OUTSIDE
                k += 1
        if void:
            break
        state[C_EXPECT] = 0

        # the steps of this block: PSBs are passed on the way
        lo = first[k] if k < n else 0
        to = k
        while to < n and kind[to] == PSB:
            to += 1
        what = ends[s]
        if to > k and (what == _LOOP or (what == _EVENT and to < n and kind[to] == END)):
            to = to - 1
        if to >= n or kind[to] == END or kind[to] == PGE or kind[to] == OVF:
            void = True
            break
        if (what == _INDIRECT or what == _FAR) and (state[C_AHEAD] or kind[to] == BIT):
            # It takes the TIP first, and the bits in front of it after that (SDM, "Deferred TIPs").
            tip = to + max(state[C_AHEAD], 1)
            while tip < n and kind[tip] != TIP:
                tip += 1
            void = tip == n
            state[C_AHEAD] = tip - to + 1
        if void:
            break
        hi = first[to + 1]
        counts[COMPARED] += 1

        r = np.int64(block_range[s])
        r_end = r + block_ranges[s]
        here = range_lo[r] if r < r_end else np.int64(0)
        b = lo
        sure = r if doubtful[e] == WHOLE else r_end - doubtful[e]  # ranges from here on are doubtful
        passed = FOREIGN if foreign[to] else RIGHT
        while b < hi:
            if ic_lo <= start[b] < ic_hi:
                verdict[b] = IC
                counts[IC] += 1
                b += 1
                continue
            next_r, next_here = _forward(range_lo, range_hi, r, r_end, here, start[b], end[b], ic_lo, ic_hi)
            if next_r < 0:
                break
            r, here = next_r, next_here
            verdict[b] = SUSPECT_RIGHT if r >= sure else passed
            counts[verdict[b]] += 1
            b += 1
        doubt = doubtful[e] == WHOLE
        if not doubt and sure < r_end:
            behind = r + 1 if here == range_hi[r] else r
            while behind < r_end and ic_lo <= range_lo[behind] < ic_hi:
                behind += 1
            doubt = behind >= sure
        extra = np.int64(0)
        wrong = np.int64(0)
        if b < hi or r + 1 < r_end or (r < r_end and here != range_hi[r]):
            q, there, c = r_end - 1, range_hi[r_end - 1] if r < r_end else np.int64(0), hi
            while c > b:
                if ic_lo <= start[c - 1] < ic_hi:
                    verdict[c - 1] = IC
                    counts[IC] += 1
                    c -= 1
                    continue
                next_q, next_there = _backward(range_lo, range_hi, q, r, there, start[c - 1], end[c - 1], ic_lo, ic_hi)
                if next_q < 0 or (next_q == r and next_there < here):
                    break
                q, there = next_q, next_there
                c -= 1
                verdict[c] = SUSPECT_RIGHT if q >= sure or doubt else passed
                counts[verdict[c]] += 1
            for j in range(b, c):
                if ic_lo <= start[j] < ic_hi:
                    verdict[j] = IC
                    counts[IC] += 1
                else:
                    verdict[j] = SUSPECT_WRONG if doubt else WRONG
                    wrong += 1
            extra = _ranges_between(range_lo, range_hi, r, here, q, there, ic_lo, ic_hi) - wrong
            if extra < 0:
                extra = np.int64(0)
        if wrong + extra and not doubt:
            if state[C_WRONG] + state[C_EXTRA] == 0:
                site = b - 1
                while site >= 0 and ic_lo <= start[site] < ic_hi:
                    site -= 1
                state[C_SITE] = block_last[site] if site >= 0 else 0
                state[C_TRUTH] = start[b] if b < hi else 0
                while r < r_end and here == range_hi[r]:
                    r += 1
                    here = range_lo[r] if r < r_end else np.int64(0)
                state[C_DECODED] = here
            state[C_WRONG] += wrong
            state[C_EXTRA] += extra
        elif wrong + extra == 0:
            n_incidents = _close(state, 0, incidents, n_incidents)
        counts[SUSPECT_WRONG if doubt else WRONG] += wrong
        if not doubt:
            counts[EXTRA] += extra
        if kind[to] == PGD:
            state[C_OFF], state[C_FOLLOWING] = 1, 0
            state[C_CAUSE], state[C_FROM] = L_HOLE, 0
        elif kind[to] != BIT and not state[C_AHEAD]:
            state[C_EXPECT] = ip[to]
        state[C_AHEAD] = max(state[C_AHEAD] - 1, 0)
        k = to + 1
    if void:
        counts[MISALIGNED] += 1
        state[:] = 0
        state[C_CAUSE] = L_MISALIGNED
    while final and k < n and not state[C_AHEAD]:  # bits it still has to take stand in the next piece
        if state[C_FOLLOWING]:
            to = k
            while to < n and kind[to] == PSB:
                to += 1
            if to == n:  # their blocks are those of a step that is not over
                break
            if kind[to] == END:
                state[C_CAUSE] = L_END
            elif state[C_EXPECT]:
                state[C_CAUSE] = L_OUTSIDE
            else:
                counts[MISALIGNED] += 1
                state[C_CAUSE] = L_MISALIGNED
            state[C_FOLLOWING] = state[C_EXPECT] = state[C_FROM] = 0
        _count(first, start, ic_lo, ic_hi, counts, verdict, k, LOST + (L_MISALIGNED if void else state[C_CAUSE]))
        if kind[k] == PGD and not void:
            counts[MISALIGNED] += 1
        if ip[k] and kind[k] != PGD and offset[k] >= state[C_FROM]:
            state[C_FOLLOWING], state[C_EXPECT] = 1, ip[k]
        k += 1
    return k, n_incidents


@kernel
def count_lost(first, start, ic_lo, ic_hi, counts, verdict, what):  # type: ignore[no-untyped-def]
    for k in range(len(first) - 1):
        _count(first, start, ic_lo, ic_hi, counts, verdict, k, what)

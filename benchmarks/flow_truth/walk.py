"""The walk along one stream's packets and its thread's blocks together: every TNT bit and every address must be the one
that the next block calls for. Other facts are given to it: blocks (`steps.Blocks`), marks and cuts of a span
(`spans.Span`)."""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons
# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from capture.emulator.truth import Branch
from jvm.kernels import inner, kernel

# The ends of a step. PGE, PSB and OVF are steps of their own: they only say where the thread is.
BIT, TIP, PGD, PGE, PSB, OVF, END = 1, 2, 3, 4, 5, 6, 7

_NEXT, _COND, _JUMP, _CALL, _IJUMP, _ICALL, _RET, _FAR = (int(b) for b in Branch)

# state of a stream's walk
(
    T_POS, T_LAST_IP, T_AT, T_TRACING, T_PSB, T_FUP, T_FUP_IP, T_MARK, T_CUT, T_BLOCKS, T_STEPS, T_RAW, T_FRESH,
    T_BITS, T_TIPS, T_ROUNDS, T_PART, T_SIZE,
) = range(18)  # fmt: skip

LONGEST_PACKET = 32

DONE, FULL, BAD_PACKET, WRONG_BIT, WRONG_ADDRESS, NO_BRANCH, WRONG_PSB, ENABLED, NO_BLOCK = range(9)
WRONG = {
    BAD_PACKET: "a packet that the emulator does not write",
    WRONG_BIT: "a TNT bit that is not the branch that ran",
    WRONG_ADDRESS: "an address that is not where the thread went",
    NO_BRANCH: "a packet, but no branch that calls for it",
    WRONG_PSB: "a PSB+ whose address is not where the thread was",
    ENABLED: "a packet while tracing is off, or a TIP.PGE while it is on",
    NO_BLOCK: "more packets than blocks ran",
}
LONGEST = 1 << 12  # blocks in a row without a branch that needs a packet: more is a cycle, or an error
ROOM = 48 * (LONGEST + 2)  # blocks that one packet can bring


@inner
def _first_pass(o_start, o_end, first, last, ip):  # type: ignore[no-untyped-def]
    """The first of the blocks first to last in which `ip` lies; `last`: none."""
    for k in range(first, last):
        if o_start[k] <= ip < o_end[k]:
            return k
    return last


@kernel
def follow(data, base, limit, x, ran, span_end, marks, cuts, blocks, filter_lo, filter_hi, steps):  # type: ignore[no-untyped-def]
    """Walk the packets of `data` (which begins at stream position `base`) up to `limit`.

    `marks`: (p, 2) index and offset of PSBs; `cuts`: (q, 3) index, ip, 1 for a fault and 0 for a signal; both those of
    the span. Returns DONE, FULL (make room and call again), or the fault's number.
    """
    b_start, b_last, b_end, b_target, b_flow, b_rep = blocks
    s_first, s_kind, s_offset, s_ip, o_start, o_end, o_last = steps
    while x[T_POS] < limit:
        if x[T_STEPS] + 64 > len(s_kind) or x[T_BLOCKS] + ROOM > len(o_start):
            return FULL
        pos = x[T_POS] - base
        b = np.int64(data[pos])
        size = 1
        bits, n_bits = np.int64(0), 0
        kind = 0
        known = False
        ip = x[T_LAST_IP]
        low = b & 0x1F
        if b == 0 or b & 3 == 3:
            if b & 7 == 7:  # CYC goes on
                while data[pos + size] & 1:
                    size += 1
                size += 1
        elif b & 1 == 0 and b != 2:
            bits = b >> 1
        elif low == 0x0D or low == 0x11 or low == 0x01 or low == 0x1D:
            form = b >> 5
            known = form != 0
            width = 2 * form if form <= 3 else 0
            if form > 3:
                return BAD_PACKET
            size = 1 + width
            value = np.int64(0)
            for k in range(width):
                value |= np.int64(data[pos + 1 + k]) << 8 * k
            if form == 3:
                ip = value << 16 >> 16
            elif form == 2:
                ip = ip & ~np.int64(0xFFFFFFFF) | value
            elif form == 1:
                ip = ip & ~np.int64(0xFFFF) | value
            if known:
                x[T_LAST_IP] = ip
            kind = TIP if low == 0x0D else PGE if low == 0x11 else PGD if low == 0x01 else PSB
        elif b == 0x99:
            size = 2
        elif b == 0x19:
            size = 8
        elif b == 0x59:
            size = 2
        elif b == 0x02:
            e = np.int64(data[pos + 1])
            size = 2
            if e == 0x82:
                size = 16
                x[T_PSB] = 1
                x[T_LAST_IP] = 0
            elif e == 0x23:
                if x[T_MARK] < len(marks):
                    x[T_MARK] += 1
                x[T_PSB] = 0
            elif e == 0xF3:
                x[T_FRESH] = 1
                x[T_LAST_IP] = 0
            elif e == 0x73:
                size = 7
            elif e == 0x03:
                size = 4
            elif e == 0xA3:
                size = 8
                for k in range(6):
                    bits |= np.int64(data[pos + 2 + k]) << 8 * k
            else:
                return BAD_PACKET
        else:
            return BAD_PACKET
        if bits:
            n_bits = -1
            while bits >> (n_bits + 1):
                n_bits += 1

        for turn in range(n_bits if n_bits else 1 if kind else 0):
            event = BIT if n_bits else kind
            taken = bits >> (n_bits - 1 - turn) & 1 if n_bits else 0
            upto = np.int64(-1)  # the block before which the thread stands, where that is known
            partial = False
            if event == PSB and x[T_PSB] == 0:
                if x[T_FRESH]:  # behind an OVF
                    x[T_FRESH] = 0
                    x[T_TRACING] = 1
                    if x[T_AT] >= len(ran) or b_start[ran[x[T_AT]]] != ip:
                        return WRONG_ADDRESS
                    event = OVF
                else:
                    x[T_FUP], x[T_FUP_IP] = 1, ip
                    continue
            elif event == PSB:
                if x[T_MARK] >= len(marks) or x[T_TRACING] == 0:
                    return WRONG_PSB
                upto = marks[x[T_MARK], 0]
                if upto >= len(ran) or b_start[ran[upto]] != ip:
                    return WRONG_PSB
            elif event == PGE:
                x[T_FRESH] = 0
                if x[T_TRACING]:
                    return ENABLED
                x[T_TRACING] = 1
                if x[T_AT] >= len(ran):
                    return NO_BLOCK
                if b_start[ran[x[T_AT]]] != ip:
                    return WRONG_ADDRESS
            elif x[T_TRACING] == 0:
                return ENABLED
            elif event == PGD and x[T_FUP]:
                x[T_FUP] = 0
                upto = span_end
                if x[T_CUT] < len(cuts):
                    upto = cuts[x[T_CUT], 0]
                    partial = cuts[x[T_CUT], 2] != 0
                    if cuts[x[T_CUT], 1] != x[T_FUP_IP]:
                        return WRONG_ADDRESS
                    x[T_CUT] += 1
                elif upto >= len(ran) or b_start[ran[upto]] != x[T_FUP_IP]:
                    return WRONG_ADDRESS
                known = False
            i = x[T_AT]
            straight = x[T_PART] = 0
            while event <= PGD or event == PSB:  # block by block to the end of the step
                if i == upto:
                    if partial:
                        at = ran[i]
                        if x[T_FUP_IP] > b_start[at]:
                            x[T_PART] = 1
                            o_start[x[T_BLOCKS]], o_end[x[T_BLOCKS]] = b_start[at], x[T_FUP_IP]
                            o_last[x[T_BLOCKS]] = b_start[at]
                            x[T_BLOCKS] += 1
                        i += 1
                    break
                if i >= span_end or i >= len(ran):
                    return NO_BLOCK
                at = np.int64(ran[i])
                flow = np.int64(b_flow[at])
                to = np.int64(-1)  # where it went on, if that is in this trace
                if x[T_CUT] < len(cuts) and cuts[x[T_CUT], 2] == 0 and cuts[x[T_CUT], 0] == i + 1:
                    to = cuts[x[T_CUT], 1]
                elif i + 1 < len(ran):
                    to = b_start[ran[i + 1]]
                end = b_end[at]
                if flow == _NEXT and b_rep[at] and to == b_last[at]:
                    end = b_last[at]  # the next iteration is the same instruction
                if end > b_start[at]:
                    if straight < LONGEST:
                        o_start[x[T_BLOCKS]], o_end[x[T_BLOCKS]], o_last[x[T_BLOCKS]] = b_start[at], end, b_last[at]
                        x[T_BLOCKS] += 1
                    straight += 1
                i += 1
                if flow == _NEXT or flow == _JUMP or flow == _CALL:
                    goes = b_target[at] if flow != _NEXT else end
                    if filter_lo <= goes < filter_hi:
                        if i != upto and goes != to:
                            return WRONG_ADDRESS
                        continue
                    if event != PGD or upto >= 0:
                        return NO_BRANCH
                    break
                if event == BIT:
                    if flow == _RET:
                        if not taken:
                            return WRONG_BIT
                    elif flow != _COND:
                        return NO_BRANCH
                    elif to != (b_target[at] if taken else end):
                        return WRONG_BIT
                elif event == TIP:
                    if flow < _IJUMP:
                        return NO_BRANCH
                    if to != ip:
                        return WRONG_ADDRESS
                elif event == PSB or upto >= 0:
                    return NO_BRANCH
                break
            if upto >= 0 and straight > 1:  # a PSB too: MTC packets can bring one where no branch has a packet
                left = x[T_FUP_IP] if event == PGD else ip
                begun, ran_to = x[T_BLOCKS] - min(straight, LONGEST) - x[T_PART], x[T_BLOCKS]
                k = _first_pass(o_start, o_end, begun, ran_to, left)
                if k < ran_to:
                    if left > o_start[k]:
                        o_end[k], o_last[k] = left, o_start[k]
                        k += 1
                    x[T_ROUNDS] += ran_to - k + max(straight - LONGEST, 0)
                    x[T_BLOCKS] = k
                elif straight > LONGEST:
                    return NO_BRANCH
            elif straight > LONGEST:
                return NO_BRANCH
            x[T_RAW] += i - x[T_AT]
            x[T_AT] = i
            n = x[T_STEPS]
            s_kind[n], s_offset[n], s_ip[n] = event, x[T_POS], ip if known else 0
            x[T_STEPS] = n + 1
            s_first[n + 1] = x[T_BLOCKS]
            if event == BIT:
                x[T_BITS] += 1
            elif event == TIP or event == PGD or event == PGE:
                x[T_TIPS] += 1
            if event == PGD:
                x[T_TRACING] = 0
        x[T_POS] += size
    return DONE

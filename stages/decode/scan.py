"""One pass over a chunk's packets: where they end, the rare ones as marks, and what time it is.

Time. TSC packets (in PSB+ and alone) give it; all packets before one happened before it, all behind it after (SDM,
"TSC packet"). Between them MTC gives bits [MTCFreq, MTCFreq + 8) of the crystal clock's counter (CTC), and the TMA
behind a TSC says where the CTC and the cycles since its last tick stood at that TSC (SDM, "Timing packets"). So

    tsc(MTC) = tsc(TSC) − FastCounter + (CTC ticks since the TMA's) · EBX/EAX of CPUID.15H

TMA carries 16 bits of the CTC: with MTCFreq > 8 the upper bits of the first MTC are not known and left out.
After an OVF MTCs may be missing, so they are not used until the next TMA.

PSB+ is status: the packets up to PSBEND or OVF describe the state at the PSB; its mark has their TSC and FUP. A PSB+
is taken as a whole, so one that is cut by the chunk's end waits for the next chunk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel, near
from stages.messages import U8, MarkKind
from stages.pt import packets as pt
from stages.pt.packets import Int

CONTEXT, LAST_IP, TIME, BASE_TSC, BASE_CTC, CTC_TICKS, LAST_MTC, HAVE_TMA = range(8)
STATE_SIZE = 8
DONE, FULL, BAD = range(3)
MAX_PSB_PLUS = 256
"""A PSB+ not ended after so many bytes is taken as it is (the longest regular one has about 90)."""

# Of a sized type: a plain int is compiled in, which makes a copy of each kernel it is given to.
_PSB, _OVF, _PGE, _PGD, _TIME, _BAD = (np.int64(k) for k in MarkKind)
_TSC_BITS = np.uint64((1 << 56) - 1)
_0 = np.uint64(0)
_1 = np.uint64(1)


PLAIN_SIZE = np.array([0, 3, 5, 7, 0, 0, 0, 0], np.int64)
"""Size of a TIP by IPBytes, for the three forms that processors write in 64-bit code."""
EDGE_SIZE = np.array([1, 3, 5, 7, 0, 0, 0, 0], np.int64)
"""Of a TIP.PGE or TIP.PGD, which may have no IP."""


# What nearly all bytes of a trace are, without the way through next_packet. The rest of it is for next_packet.


@near
def plain_tnt(byte: Int, context: Int) -> Int:
    """Is it a short TNT, outside of a block, or padding there?"""
    return byte & 1 == 0 and byte != 2 and context & pt.BLOCK_BYTES == 0


@near
def plain_tip(byte: Int, at: Int, end: Int) -> Int:
    """Is it a whole TIP with an IP?"""
    return byte & 0x1F == 0x0D and PLAIN_SIZE[byte >> 5] != 0 and at + PLAIN_SIZE[byte >> 5] <= end


@near
def plain_edge(byte: Int, at: Int, end: Int) -> Int:
    """Is it a whole TIP.PGE or TIP.PGD? (The loop knows them too because a traced program with a filter is full of
    them.)"""
    return byte & 0x0F == 1 and EDGE_SIZE[byte >> 5] != 0 and at + EDGE_SIZE[byte >> 5] <= end


@near
def plain_ip(data: U8, at: Int, byte: Int, last_ip: Int) -> Int:
    """Address (uint64) of the TIP that begins with `byte` at `at`."""
    ip = np.uint64(data[at + 1]) | np.uint64(data[at + 2]) << np.uint64(8)
    if byte >> 5 == 1:
        return (last_ip & ~np.uint64(0xFFFF)) | ip
    ip |= np.uint64(data[at + 3]) << np.uint64(16) | np.uint64(data[at + 4]) << np.uint64(24)
    if byte >> 5 == 2:
        return (last_ip & ~np.uint64(0xFFFFFFFF)) | ip
    ip |= np.uint64(data[at + 5]) << np.uint64(32) | np.uint64(data[at + 6]) << np.uint64(40)
    return pt.reconstruct_ip(last_ip, 3, ip)


_IP_SIZE = np.array([1, 3, 5, 7, 7, 0, 9, 0], np.int64)
"""Size of a TIP or FUP by IPBytes, all forms."""


def _silent() -> NDArray[np.int64]:
    size = np.zeros(256, np.int64)
    for ext, bytes_ in (
        (0x43, 8), (0xC8, 7), (0x03, 4), (0x83, 2), (0x23, 2), (0x62, 2), (0xE2, 2), (0x33, 2), (0xB3, 2), (0x12, 6),
        (0x92, 6), (0x32, 10), (0xB2, 10), (0xC2, 10), (0x22, 4), (0xA2, 7), (0x13, 4), (0x53, 11),
    ):  # fmt: skip
        size[ext] = bytes_
    return size


_SILENT = _silent()
"""Size by its second byte of a packet that begins with 02 and, outside of a block, changes nothing that this pass asks
for: PIP, VMCS, CBR, TraceStop, PSBEND, EXSTOP, BEP, PTW, MWAIT, PWRE, PWRX, CFE, EVD."""
_CYC_MOST = 8  # bytes of one whose cycles surely fit


@near
def silent(data: U8, at: Int, end: Int) -> Int:
    """Size of the packet at `at` if it is whole and nothing here depends on it; 0: for next_packet to say. Called where
    `plain_tnt`, `plain_tip` and `plain_edge` say no, outside of blocks."""
    byte = np.int64(data[at])
    size = np.int64(0)
    if at + 1 >= end:
        return size
    second = np.int64(data[at + 1])
    if byte == 0x02:
        size = _SILENT[second]
        if second == 0xA3 and at + 8 <= end:  # a long TNT with one bit at least
            more = data[at + 3] | data[at + 4] | data[at + 5] | data[at + 6] | data[at + 7]
            size = np.int64(8) if more or data[at + 2] > 1 else np.int64(0)
        elif second == 0xC3 and at + 2 < end and data[at + 2] == 0x88:  # MNT
            size = np.int64(11)
    elif byte == 0x99:
        size = np.int64(2) if second < 0x40 else np.int64(0)
    elif byte & 3 == 3:
        size = np.int64(1)
        if byte & 4:
            size = np.int64(2)
            while size <= _CYC_MOST and at + size <= end and data[at + size - 1] & 1:
                size += 1
            if size > _CYC_MOST:
                return np.int64(0)
    return size if at + size <= end else np.int64(0)


@near
def any_ip(data: U8, at: Int, byte: Int, last_ip: Int) -> Int:
    """The last IP (uint64) behind the TIP or FUP of any form that begins with `byte` at `at`."""
    form = byte >> 5
    if form == 0:
        return last_ip
    if form < 4:
        return plain_ip(data, at, byte, last_ip)
    payload = np.uint64(0)
    for k in range(1, _IP_SIZE[form]):
        payload |= np.uint64(data[at + k]) << np.uint64(8 * k - 8)
    return pt.reconstruct_ip(last_ip, form, payload)


@kernel
def full_tsc(payload: Int, near: Int) -> Int:
    """A TSC packet has 56 bits: the time nearest to `near` (uint64) that ends in them."""
    tsc = (near & ~_TSC_BITS) | payload
    half = np.uint64(1) << np.uint64(55)
    if tsc > near and tsc - near > half and tsc >= half + half:
        return tsc - half - half
    if near > tsc and near - tsc > half:
        return tsc + half + half
    return tsc


@kernel
def timing(state: NDArray[np.uint64], kind: Int, payload: Int, sub: Int, mtc_shift: Int, num: Int, den: Int) -> Int:
    """Takes in a TSC, TMA or MTC packet; True if `state[TIME]` was set by it."""
    if kind == pt.TSC:
        tsc = full_tsc(payload, state[TIME])
        state[HAVE_TMA] = _0
        state[BASE_TSC] = tsc
        state[TIME] = max(tsc, state[TIME])
        return True
    if mtc_shift < 0 or den == 0:
        return False
    shift = np.uint64(mtc_shift)
    if kind == pt.TMA:
        state[BASE_CTC] = payload
        state[BASE_TSC] = state[BASE_TSC] - np.uint64(sub)
        state[CTC_TICKS] = payload >> shift
        state[LAST_MTC] = (payload >> shift) & np.uint64(0xFF)
        state[HAVE_TMA] = np.uint64(2) if mtc_shift > 8 else _1
        return False
    if kind == pt.MTC and state[HAVE_TMA]:
        mask = np.uint64(0xFF)
        if state[HAVE_TMA] == 2:
            mask = (_1 << np.uint64(max(16 - mtc_shift, 0))) - _1
            state[HAVE_TMA] = _1
        state[CTC_TICKS] += (payload - state[LAST_MTC]) & mask
        state[LAST_MTC] = payload
        ticks = (state[CTC_TICKS] << shift) - state[BASE_CTC]
        if state[CTC_TICKS] << shift < state[BASE_CTC]:
            ticks = _0
        tsc = state[BASE_TSC] + (ticks // np.uint64(den)) * np.uint64(num)
        tsc += (ticks % np.uint64(den)) * np.uint64(num) // np.uint64(den)
        state[TIME] = max(tsc, state[TIME])
        return True
    return False


@near
def _mark(marks: NDArray[np.void], n: Int, kind: Int, offset: Int, ip: Int, tsc: Int, size: Int) -> None:
    marks[n]["offset"] = offset
    marks[n]["ip"] = ip
    marks[n]["tsc"] = tsc
    marks[n]["kind"] = kind
    marks[n]["size"] = size


@kernel
def _psb_plus(
    data: U8, at: Int, end: Int, last: Int, state: NDArray[np.uint64], mtc_shift: Int, num: Int, den: Int, late: Int
) -> Int:
    """The PSB+ at `at` → (position behind it, −1: cut; FUP address). `late`: the time if it has no TSC."""
    to = at + pt.PSB_SIZE
    context = np.int64(state[CONTEXT]) & ~pt.BLOCK_BYTES
    size = 0
    # first pass: is it whole?
    while to - at < MAX_PSB_PLUS:
        kind, size, payload, sub = pt.next_packet(data, to, end, context)
        if kind == pt.CUT and not last:
            return -1, _0
        if kind < 0 or kind == pt.OVF or kind == pt.PSB:
            break
        context = pt.next_context(context, kind, payload)
        to += size
        if kind == pt.PSBEND:
            break
    ip = _0
    last_ip = _0
    timed = False
    context = np.int64(state[CONTEXT]) & ~pt.BLOCK_BYTES
    i = at + pt.PSB_SIZE
    while i < to:
        kind, size, payload, sub = pt.next_packet(data, i, end, context)
        context = pt.next_context(context, kind, payload)
        if kind == pt.FUP:
            last_ip = pt.reconstruct_ip(last_ip, sub, payload)
            ip = last_ip
        elif timing(state, kind, payload, sub, mtc_shift, num, den):
            timed = True
        i += size
    if not timed:
        state[TIME] = max(state[TIME], late)
    state[CONTEXT] = np.uint64(context)
    state[LAST_IP] = last_ip
    return to, ip


@kernel
def walk(
    data: U8,
    at: Int,
    base: Int,
    last: Int,
    state: NDArray[np.uint64],
    mtc_shift: Int,
    num: Int,
    den: Int,
    late: Int,
    marks: NDArray[np.void],
) -> Int:
    """Packets of data[at:] → (position reached, marks written, DONE | FULL | BAD).

    `at` begins a packet; `base` is the stream offset of data[0]; `state` (STATE_SIZE,) uint64 is carried from call to
    call; `last`: nothing follows data, so a cut PSB+ is taken as it is; `late`: time for streams without TSC packets.
    DONE: what is left is a cut packet. FULL: `marks` has no room. BAD: no packet begins here.
    """
    n = 0
    end = data.size
    why = DONE
    last_ip = state[LAST_IP]
    context = np.int64(state[CONTEXT])
    while at < end:
        byte = np.int64(data[at])
        if plain_tnt(byte, context):
            at += 1
            continue
        if plain_tip(byte, at, end):
            last_ip = plain_ip(data, at, byte, last_ip)
            at += PLAIN_SIZE[byte >> 5]
            continue
        if n == marks.size:
            why = FULL
            break
        if plain_edge(byte, at, end):
            ip = _0
            if byte >> 5:
                last_ip = ip = plain_ip(data, at, byte, last_ip)
            _mark(marks, n, _PGE if byte & 0x10 else _PGD, base + at, ip, state[TIME], EDGE_SIZE[byte >> 5])
            n += 1
            at += EDGE_SIZE[byte >> 5]
            continue
        if context == 0:
            size = silent(data, at, end)
            if size:
                at += size
                continue
            size = _IP_SIZE[byte >> 5]
            if (byte & 0x1F == 0x1D or byte & 0x1F == 0x0D) and size and at + size <= end:
                last_ip = any_ip(data, at, byte, last_ip)
                at += size
                continue
            if (byte == 0x19 and at + 8 <= end) or (byte == 0x59 and at + 2 <= end):
                kind, size = (pt.TSC, 8) if byte == 0x19 else (pt.MTC, 2)
                payload = np.uint64(0)
                for k in range(1, size):
                    payload |= np.uint64(data[at + k]) << np.uint64(8 * k - 8)
                if timing(state, kind, payload, 0, mtc_shift, num, den):
                    _mark(marks, n, _TIME, base + at, _0, state[TIME], size)
                    n += 1
                at += size
                continue
        kind, size, payload, sub = pt.next_packet(data, at, end, context)
        if kind == pt.CUT:
            break
        if kind < 0:
            why = BAD
            break
        if kind == pt.PSB:
            state[CONTEXT] = np.uint64(context)
            to, ip = _psb_plus(data, at, end, last, state, mtc_shift, num, den, late)
            if to < 0:
                break
            _mark(marks, n, _PSB, base + at, ip, state[TIME], to - at)
            n += 1
            at = to
            last_ip = state[LAST_IP]
            context = np.int64(state[CONTEXT])
            continue
        if pt.TIP <= kind <= pt.FUP:
            last_ip = pt.reconstruct_ip(last_ip, sub, payload)
            if kind == pt.TIP_PGE or kind == pt.TIP_PGD:
                ip = last_ip if sub else _0
                _mark(marks, n, _PGE if kind == pt.TIP_PGE else _PGD, base + at, ip, state[TIME], size)
                n += 1
        elif kind == pt.OVF:
            state[HAVE_TMA] = _0
            _mark(marks, n, _OVF, base + at, _0, state[TIME], size)
            n += 1
        elif timing(state, kind, payload, sub, mtc_shift, num, den):
            _mark(marks, n, _TIME, base + at, _0, state[TIME], size)
            n += 1
        context = pt.next_context(context, kind, payload)
        at += size
    state[LAST_IP] = last_ip
    state[CONTEXT] = np.uint64(context)
    return at, n, why


@kernel
def last_ip_at(data: U8, start: Int, at: Int, last_ip: Int) -> Int:
    """Last IP (uint64) before the packet at `at`, if it was `last_ip` before the packet at `start`."""
    context = np.int64(0)
    while start < at:
        kind, size, payload, sub = pt.next_packet(data, start, data.size, context)
        if kind < 0:
            break
        if pt.TIP <= kind <= pt.FUP:
            last_ip = pt.reconstruct_ip(last_ip, sub, payload)
        elif kind == pt.PSB:
            last_ip = _0
        context = pt.next_context(context, kind, payload)
        start += size
    return last_ip

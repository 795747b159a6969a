"""One pass over a chunk's packets: where they end, the rare ones as marks, and the time.

PSB+ is status: the packets up to PSBEND or OVF describe the state at the PSB; its mark has their TSC and FUP. A PSB+
is taken as a whole, so a PSB+ that is cut by the chunk's end waits for the next chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel, near
from stages.messages import U8, MarkKind
from stages.pointers import first_item, load64, opaque
from stages.pt import packets as pt
from stages.pt.clock import CLOCK_SIZE, CTC_BITS, U64, on_mtc, on_ovf, on_tma, on_tsc
from stages.pt.last_ip import full_ip, ip_size, reserved
from stages.pt.packets import Int

CONTEXT, LAST_IP, TIME, N_MARKS, N_OVFS = range(CLOCK_SIZE, CLOCK_SIZE + 5)  # behind the state of `clock`
STATE_SIZE = CLOCK_SIZE + 5
DONE, FULL, BAD, GOES_ON = range(4)
PADDING = 16
"""Bytes, zero, that must lie behind the packets of a `walk`."""
MARK_WORDS = 4
MAX_PSB_PLUS = 256
"""A PSB+ not ended after so many bytes is taken as it is (the longest regular one has about 90)."""

# Of a sized type: a plain int is compiled in, which makes a copy of each kernel it is given to.
_PSB, _OVF, _PGE, _PGD, _TIME, _BAD = (np.int64(k) for k in MarkKind)
_0 = np.int64(0)


def _bits(*kinds: int) -> np.int64:
    return np.int64(sum(1 << kind for kind in kinds))


_SILENT = _bits(
    pt.PIP, pt.MODE_EXEC, pt.TNT_64, pt.CBR, pt.VMCS, pt.STOP, pt.PSBEND, pt.EXSTOP, pt.BEP, pt.PTW, pt.MWAIT, pt.PWRE,
    pt.PWRX, pt.CFE, pt.EVD, pt.MNT,
)  # fmt: skip
"""Kinds that, outside of a block, change nothing that this pass asks for, as bits."""
_IN_PSB = _bits(pt.TSC, pt.TMA, pt.CBR, pt.MODE_EXEC, pt.PIP, pt.VMCS)
_CHECKED = _bits(pt.TNT_64, pt.MODE_EXEC, pt.MNT, pt.TMA)
"""Kinds of which some fields cannot be."""
_FIXED = _SILENT | _bits(pt.TMA, pt.MTC, pt.OVF)
"""The same with those whose header says how long they are, and that leave a mark or tell the time."""


@near
def _mark(marks: Any, n: Int, kind: Int, offset: Int, ip: Int, time: Int, size: Int) -> None:
    """Mark `n`, as MARK_DTYPE has it."""
    marks[MARK_WORDS * n] = offset
    marks[MARK_WORDS * n + 1] = ip
    marks[MARK_WORDS * n + 2] = np.int64(time)
    marks[MARK_WORDS * n + 3] = kind | size << 32


@near
def _clock(state: U64, kind: Int, low: Int, mtc_shift: Int, num: Int, den: Int) -> Any:
    """Takes in a packet of any kind: whether it told the time."""
    if kind == pt.TSC:
        state[TIME] = on_tsc(state, state[TIME], pt.tsc_of(low))
        return True
    if kind == pt.TMA:
        on_tma(state, pt.ctc_of(low), pt.fast_of(low), mtc_shift, den)
    elif kind == pt.MTC:
        timed, time = on_mtc(state, state[TIME], low >> 8 & 0xFF, mtc_shift, num, den)
        state[TIME] = time
        return timed
    return False


@inner
def _psb_plus(
    data: Any, at: Int, end: Int, last: Int, state: U64, mtc_shift: Int, num: Int, den: Int, late: Int
) -> Any:
    """The PSB+ at `at` → its size (0: cut, nothing has changed), FUP address. `late`: the time if it has no TSC."""
    base_tsc, last_ctc, gone, bits, time = state[0], state[1], state[2], state[3], state[TIME]
    to = at + pt.PSB_SIZE
    context = ip = _0
    timed = False
    while to - at < MAX_PSB_PLUS:
        low = np.int64(load64(data, to))
        byte = low & 0xFF
        if context == 0 and to + 9 <= end:  # without the table where it is always the same
            if byte & 0x1F == 0x1D and not reserved(byte):  # FUP
                ip = full_ip(byte >> 5, load64(data, to + 1), ip)
                to += 1 + ip_size(byte)
                continue
            if byte == 0x99 and low >> 8 & 0xFF < 0x40:  # MODE
                to += 2
                continue
            if low & 0xFFFF == 0x2302:  # PSBEND
                to += 2
                break
        entry = pt.header(byte, low >> 8 & 0xFF)
        kind, size = np.int64(pt.KINDS[entry]), np.int64(pt.SIZES[entry])
        if context or not _IN_PSB >> kind & 1 or not pt.sound(kind, low, _0) or to + size > end:
            kind, size = np.int64(pt.CUT), _0
            if to < end:
                kind, size = pt.which(low, load64(data, to + 8), end - to, context)
            if kind == pt.CUT and not last:
                state[0], state[1], state[2], state[3], state[TIME] = base_tsc, last_ctc, gone, bits, time
                return _0, ip
            if kind < 0 or kind == pt.OVF or kind == pt.PSB:
                break
            if kind == pt.FUP:
                ip = full_ip(byte >> 5, load64(data, to + 1), ip)
            if kind == pt.BBP or context:
                context = pt.next_context(context, kind, pt.fields(kind, size, low, _0)[0])
        timed |= _clock(state, kind, low, mtc_shift, num, den)
        to += size
        if kind == pt.PSBEND:
            break
    if not timed:
        state[TIME] = max(state[TIME], late)
    state[LAST_IP], state[CONTEXT] = np.uint64(ip), np.uint64(context)
    return to - at, ip


@inner
def _packet(
    data: Any, at: Int, end: Int, base: Int, last: Int, state: U64, mtc_shift: Int, num: Int, den: Int, late: Int,
    out: Any, room: Int,
) -> Any:  # fmt: skip
    """Takes the one packet at `at`, of whatever kind: GOES_ON, or why not, and the position behind it."""
    low = np.int64(load64(data, at))
    context = np.int64(state[CONTEXT])
    kind, size = pt.which(low, load64(data, at + 8), end - at, context)
    if kind < 0:
        return (DONE if kind == pt.CUT else BAD), at
    n = np.int64(state[N_MARKS])
    if n == room:
        return FULL, at
    ip = mark = _0
    if kind == pt.PSB:
        size, ip = _psb_plus(data, at, end, last, state, mtc_shift, num, den, late)
        if size == 0:
            return DONE, at
        mark = _PSB
    elif pt.TIP <= kind <= pt.FUP:
        last_ip = full_ip((low & 0xFF) >> 5, load64(data, at + 1), np.int64(state[LAST_IP]))
        state[LAST_IP] = np.uint64(last_ip)
        if kind == pt.TIP_PGE or kind == pt.TIP_PGD:
            ip = last_ip if size > 1 else _0
            mark = _PGE if kind == pt.TIP_PGE else _PGD
    elif kind == pt.OVF:
        on_ovf(state)
        state[N_OVFS] += np.uint64(1)
        mark = _OVF
    elif _clock(state, kind, low, mtc_shift, num, den):
        mark = _TIME
    if kind == pt.BBP or (context and kind != pt.PSB):
        state[CONTEXT] = np.uint64(pt.next_context(context, kind, pt.fields(kind, size, low, _0)[0]))
    if mark:
        _mark(out, n, mark, base + at, ip, state[TIME], size)
        state[N_MARKS] += np.uint64(1)
    return GOES_ON, at + size


@kernel
def walk(
    packets: U8, at: Int, end: Int, base: Int, last: Int, state: U64, mtc_shift: Int, num: Int, den: Int, late: Int,
    marks: NDArray[np.int64],
) -> Any:  # fmt: skip
    """Packets [at, end) → (position reached, marks written, how many of them are OVFs, DONE | FULL | BAD).

    `packets` uint8[:], with PADDING behind `end`; `at` begins a packet; `base` is the stream offset of packets[0];
    `state` (STATE_SIZE,) uint64 is carried from call to call; `last`: nothing follows, so a cut PSB+ is taken as it is;
    `late`: time for streams without TSC packets; `marks`: room for MARK_DTYPEs, MARK_WORDS numbers each.
    DONE: the rest is a cut packet. FULL: `marks` has no room. BAD: no packet begins here.
    """
    data, out = first_item(packets), first_item(marks)
    room = marks.size // MARK_WORDS
    state[N_MARKS] = state[N_OVFS] = np.uint64(0)
    why = GOES_ON
    usual = _0
    while why == GOES_ON:
        n, last_ip, time = np.int64(state[N_MARKS]), np.int64(state[LAST_IP]), state[TIME]
        while at < end and not state[CONTEXT]:
            low = np.int64(load64(data, at))
            byte = low & 0xFF
            if byte & 1 == 0 and byte != 2:  # short TNTs and PADs
                while byte & 1 == 0 and byte != 2 and at < end:
                    at += 1
                    byte = np.int64(data[at])
                continue
            if byte & 0x0F == 0x0D and not reserved(byte):  # a TIP or a FUP
                size = 1 + ip_size(byte)
                if at + size > end:
                    break
                last_ip = full_ip(byte >> 5, load64(data, at + 1), last_ip)
                at += size
                continue
            if byte & 0x0F == 0x01 and not reserved(byte) and n < room:  # a TIP.PGE or a TIP.PGD
                size = 1 + ip_size(byte)
                if at + size > end:
                    break
                last_ip = full_ip(byte >> 5, load64(data, at + 1), last_ip)
                mark = _PGE if byte & 0x10 else _PGD
                _mark(out, n, mark, base + at, last_ip if byte >> 5 else _0, time, size)
                n += 1
                at += size
                continue
            if byte == 0x19 and n < room:  # a TSC
                if at + 8 > end:
                    break
                time = on_tsc(state, time, pt.tsc_of(low))
                _mark(out, n, _TIME, base + at, _0, time, np.int64(8))
                n += 1
                at += 8
                continue
            if pt.is_psb(low, load64(data, at + 8)) and n < room:
                state[TIME] = time
                size, ip = _psb_plus(data, at, end, last, state, mtc_shift, num, den, late)
                if size == 0:
                    break
                last_ip, time = ip, state[TIME]
                _mark(out, n, _PSB, base + at, ip, time, size)
                n += 1
                at += size
                continue
            if byte & 3 == 3:  # a CYC
                size = pt.cyc_size(low, _0)
                if size > 8 or at + size > end:
                    break
                at += 1 if byte & 4 == 0 else size
                continue
            entry = pt.header(byte, np.int64(data[at + 1]))
            kind, size = np.int64(pt.KINDS[entry]), np.int64(pt.SIZES[entry])
            if not _FIXED >> kind & 1 or (_CHECKED >> kind & 1 and not pt.sound(kind, low, _0)):
                break
            if size != usual:
                usual = opaque(size)
            if at + usual > end:
                break
            if _SILENT >> kind & 1:
                at += usual
                continue
            if kind == pt.TMA:
                on_tma(state, pt.ctc_of(low), pt.fast_of(low), mtc_shift, den)
                at += 7
                continue
            if kind == pt.MTC and not state[CTC_BITS]:
                at += 2
                continue
            if n == room:
                break
            if kind == pt.MTC:
                time = on_mtc(state, time, low >> 8 & 0xFF, mtc_shift, num, den)[1]
                _mark(out, n, _TIME, base + at, _0, time, np.int64(2))
            else:
                on_ovf(state)
                state[N_OVFS] += np.uint64(1)
                _mark(out, n, _OVF, base + at, _0, time, np.int64(2))
            n += 1
            at += 2
        state[N_MARKS], state[LAST_IP], state[TIME] = np.uint64(n), np.uint64(last_ip), time
        to = at
        if at < end:
            why, to = _packet(data, at, end, base, last, state, mtc_shift, num, den, late, out, room)
        else:
            why = DONE
        at = to
    return at, np.int64(state[N_MARKS]), np.int64(state[N_OVFS]), why


@kernel
def last_ip_at(data: U8, start: Int, at: Int, last_ip: Int) -> Int:
    """Last IP (uint64) before the packet at `at`, if it was `last_ip` before the packet at `start`."""
    context = _0
    while start < at:
        kind, size, payload, sub = pt.next_packet(data, start, data.size, context)
        if kind < 0:
            break
        if pt.TIP <= kind <= pt.FUP:
            last_ip = pt.reconstruct_ip(last_ip, sub, payload)
        elif kind == pt.PSB:
            last_ip = np.uint64(0)
        context = pt.next_context(context, kind, payload)
        start += size
    return last_ip

"""The packet layer: bytes → packets. Every packet and header form of the Intel SDM, vol. 3, "Intel Processor Trace".

`next_packet` looks at one packet and is made to be called from other kernels. It keeps no state: what a packet's
form depends on besides its own bytes is in `context`, which `next_context` carries from packet to packet:

- inside a block (BBP … BEP) the one-byte opcode xxxxx100 is a BIP; outside it is a short TNT. The low four bits of
  `context` hold the size of a BIP's payload (4 or 8; 0 = no block);
- two errata change the byte stream itself: `SKD007` (a CYC swallows the first byte of an OVF) and `SKZ84` (a TMA
  with bits set that must be zero has one byte more and says nothing).

`scan` turns bytes into records, over chunk borders: a packet cut by the end is not consumed and comes again, bytes
that are no packet are skipped to the next PSB and accounted for in a `SKIPPED` record.

How the fields of a packet are packed into `payload` (uint64) and `sub` (a small integer):

    kind                 payload                     sub
    TNT_8, TNT_64        bits, oldest highest        number of bits (the stop bit is gone)
    TIP, TIP_PGE/PGD,    IP bytes as they stand      IPBytes (0 = suppressed, 1, 2, 3, 4, 6)
      FUP
    PIP                  CR3                         1 = NR (non-root)
    MODE_EXEC            0                           CS.L | CS.D << 1 | IF << 2
    MODE_TSX             0                           InTX | TXAbort << 1
    CBR                  ratio                       0
    TSC                  56 bits of TSC              0
    MTC                  CTC (8 bits)                0
    TMA                  CTC (16 bits)               FastCounter (9 bits)
    CYC                  cycles                      0
    VMCS                 base address                0
    MNT                  payload                     0
    PTW                  payload                     IP_FLAG | PayloadBytes
    EXSTOP, BEP          0                           IP_FLAG
    MWAIT                hints | extensions << 32    0
    PWRE, PWRX           payload as it stands        0
    BBP                  payload bytes a BIP (4, 8)  type
    BIP                  payload                     item id
    CFE                  vector                      IP_FLAG | type
    EVD                  payload                     type
    TRIG                 TRBV | ICNT << 8            IP_FLAG | TRIG_ICNT | TRIG_MULT
    BAD                  0                           what is wrong: −UNKNOWN, −MALFORMED
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.messages import U8

Records = NDArray[np.void]
Int = Any  # int outside kernels, a machine integer of some width inside: mypy would call every mix an error

# fmt: off
(PAD, TNT_8, TNT_64, TIP, TIP_PGE, TIP_PGD, FUP, PIP, MODE_EXEC, MODE_TSX, STOP, CBR, TSC, MTC, TMA, CYC, OVF, VMCS,
 PSB, PSBEND, MNT, PTW, EXSTOP, MWAIT, PWRE, PWRX, BBP, BIP, BEP, CFE, EVD, TRIG, INVALID, BAD, SKIPPED) = range(35)
NAMES = (
    "pad", "tnt.8", "tnt.64", "tip", "tip.pge", "tip.pgd", "fup", "pip", "mode.exec", "mode.tsx", "stop", "cbr", "tsc",
    "mtc", "tma", "cyc", "ovf", "vmcs", "psb", "psbend", "mnt", "ptw", "exstop", "mwait", "pwre", "pwrx", "bbp", "bip",
    "bep", "cfe", "evd", "trig", "<invalid>", "<bad>", "<skipped>",
)
# fmt: on

CUT = -1  # the buffer ends inside the packet (or before it)
UNKNOWN = -2  # no packet begins with these bytes
MALFORMED = -3  # a known packet with a field that cannot be

IP_FLAG = 0x80  # a FUP follows that says where
TRIG_ICNT = 0x40  # `payload` carries an instruction count
TRIG_MULT = 0x20  # several triggers in one

BLOCK_BYTES = 0x0F  # `context`: payload bytes of a BIP
SKD007 = 0x10
SKZ84 = 0x20

PSB_SIZE = 16

PACKET_DTYPE = np.dtype(
    [("offset", "<u8"), ("payload", "<u8"), ("ip", "<u8"), ("size", "<u4"), ("sub", "<u2"), ("kind", "u1"), ("_", "u1")]
)

_EXT = 64  # opcode 02: the second byte tells
_NOT_A_PACKET = 255


def _by_first_byte() -> NDArray[np.uint8]:
    kind = np.full(256, _NOT_A_PACKET, np.uint8)
    kind[0::2] = TNT_8
    kind[0x03::4] = CYC
    for low, ip_packet in ((0x0D, TIP), (0x11, TIP_PGE), (0x01, TIP_PGD), (0x1D, FUP)):
        kind[low::32] = ip_packet
    kind[0x00] = PAD
    kind[0x02] = _EXT
    kind[0x99] = MODE_EXEC
    kind[0x19] = TSC
    kind[0x59] = MTC
    kind[0xD9] = TRIG
    return kind


_FIRST = _by_first_byte()
_IP_BYTES = np.array([0, 2, 4, 6, 6, 255, 8, 255], np.uint8)  # by IPBytes; 5 and 7 are reserved
_BITS = np.array([n.bit_length() for n in range(256)], np.uint8)
_0 = np.uint64(0)


@inner
def _value(data: U8, at: Int, size: Int) -> Any:
    """Little-endian number of `size` bytes; the caller has checked that they are there."""
    value = np.uint64(0)
    for i in range(size):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@inner
def _cyc(data: U8, at: Int, end: Int) -> Any:
    """Bits 7:3 of the first byte, then 7 bits a byte as long as the Exp bit says; at most 15 bytes (SDM, CYC)."""
    byte = np.int64(data[at])
    value = np.uint64(byte >> 3)
    more = byte & 4
    shift = 5
    size = 1
    while more:
        if size == 15:
            return MALFORMED, 0, _0, 0
        if at + size >= end:
            return CUT, 0, _0, 0
        byte = np.int64(data[at + size])
        bits = np.uint64(byte >> 1)
        if shift > 57 and (shift > 63 or (bits << np.uint64(shift)) >> np.uint64(shift) != bits) and bits != _0:
            return MALFORMED, 0, _0, 0  # more than 64 bits of cycles
        if shift < 64:
            value |= bits << np.uint64(shift)
        shift += 7
        size += 1
        more = byte & 1
    return CYC, size, value, 0


@inner
def _ext(data: U8, at: Int, end: Int, context: Int) -> Any:
    """Packets whose first byte is 02."""
    left = end - at
    if left < 2:
        return CUT, 0, _0, 0
    ext = np.int64(data[at + 1])
    if ext == 0xA3:
        if left < 8:
            return CUT, 0, _0, 0
        value = _value(data, at + 2, 6)
        bits = np.int64(0)
        for i in range(6):
            if data[at + 2 + i]:
                bits = 8 * i + np.int64(_BITS[data[at + 2 + i]])
        if bits < 2:
            return MALFORMED, 0, _0, 0
        return TNT_64, 8, value ^ (np.uint64(1) << np.uint64(bits - 1)), bits - 1
    if ext == 0x82:
        if left < PSB_SIZE:
            return CUT, 0, _0, 0
        for i in range(2, PSB_SIZE, 2):
            if data[at + i] != 0x02 or data[at + i + 1] != 0x82:
                return MALFORMED, 0, _0, 0
        return PSB, PSB_SIZE, _0, 0
    if ext == 0x23:
        return PSBEND, 2, _0, 0
    if ext == 0xF3:
        return OVF, 2, _0, 0
    if ext == 0x83:
        return STOP, 2, _0, 0
    if ext == 0x62 or ext == 0xE2:
        return EXSTOP, 2, _0, ext & IP_FLAG
    if ext == 0x33 or ext == 0xB3:
        return BEP, 2, _0, ext & IP_FLAG
    if ext == 0x03:
        if left < 4:
            return CUT, 0, _0, 0
        return CBR, 4, np.uint64(data[at + 2]), 0
    if ext == 0x73:
        if left < 7:
            return CUT, 0, _0, 0
        if data[at + 4] or data[at + 6] > 1:
            if not context & SKZ84:
                return MALFORMED, 0, _0, 0
            if left < 8:
                return CUT, 0, _0, 0
            return INVALID, 8, _0, 0
        return TMA, 7, _value(data, at + 2, 2), np.int64(data[at + 5]) | np.int64(data[at + 6]) << 8
    if ext == 0x43:
        if left < 8:
            return CUT, 0, _0, 0
        value = _value(data, at + 2, 6)
        return PIP, 8, (value >> np.uint64(1)) << np.uint64(5), np.int64(data[at + 2] & 1)
    if ext == 0xC8:
        if left < 7:
            return CUT, 0, _0, 0
        return VMCS, 7, _value(data, at + 2, 5) << np.uint64(12), 0
    if ext & 0x1F == 0x12:
        size = 2 + (4 << ((ext >> 5) & 3))
        if size > 10:
            return MALFORMED, 0, _0, 0  # PayloadBytes 2 and 3 are reserved
        if left < size:
            return CUT, 0, _0, 0
        return PTW, size, _value(data, at + 2, size - 2), (ext & IP_FLAG) | ((ext >> 5) & 3)
    if ext == 0xC2:
        if left < 10:
            return CUT, 0, _0, 0
        return MWAIT, 10, _value(data, at + 2, 8), 0
    if ext == 0x22:
        if left < 4:
            return CUT, 0, _0, 0
        return PWRE, 4, _value(data, at + 2, 2), 0
    if ext == 0xA2:
        if left < 7:
            return CUT, 0, _0, 0
        return PWRX, 7, _value(data, at + 2, 5), 0
    if ext == 0x13:
        if left < 4:
            return CUT, 0, _0, 0
        return CFE, 4, np.uint64(data[at + 3]), np.int64(data[at + 2] & 0x9F)
    if ext == 0x53:
        if left < 11:
            return CUT, 0, _0, 0
        return EVD, 11, _value(data, at + 3, 8), np.int64(data[at + 2] & 0x1F)
    if ext == 0x63:
        if left < 3:
            return CUT, 0, _0, 0
        return BBP, 3, np.uint64(4 if data[at + 2] & 0x80 else 8), np.int64(data[at + 2] & 0x1F)
    if ext == 0xC3:
        if left < 3:
            return CUT, 0, _0, 0
        if data[at + 2] != 0x88:
            return UNKNOWN, 0, _0, 0
        if left < 11:
            return CUT, 0, _0, 0
        return MNT, 11, _value(data, at + 3, 8), 0
    return UNKNOWN, 0, _0, 0


@kernel
def next_packet(data: U8, at: Int, end: Int, context: Int) -> Any:
    """The packet at data[at:end] → (kind, size, payload, sub); see the module's table.

    `data` uint8[:], `at`, `end` int64, `context` int64. kind < 0 is an error (CUT, UNKNOWN, MALFORMED), size then 0.
    Nothing outside data[at:end] is read; a range outside `data` is CUT.
    """
    if at < 0 or at >= end or end > data.size:
        return CUT, 0, _0, 0
    byte = np.int64(data[at])
    kind = np.int64(_FIRST[byte])
    if kind == TNT_8:
        block = context & BLOCK_BYTES
        if block and byte & 7 == 4:
            if end - at < 1 + block:
                return CUT, 0, _0, 0
            return BIP, 1 + block, _value(data, at + 1, block), byte >> 3
        bits = np.int64(_BITS[byte]) - 2  # without the opcode bit and the stop bit; byte ≥ 4 here
        return TNT_8, 1, np.uint64((byte >> 1) ^ (1 << bits)), bits
    if TIP <= kind <= FUP:
        size = np.int64(_IP_BYTES[byte >> 5])
        if size > 8:
            return MALFORMED, 0, _0, 0
        if end - at <= size:
            return CUT, 0, _0, 0
        return kind, 1 + size, _value(data, at + 1, size), byte >> 5
    if kind == PAD:
        return PAD, 1, _0, 0
    if kind == CYC:
        kind, size, payload, sub = _cyc(data, at, end)
        if context & SKD007 and size == 2 and data[at + 1] == 0x02:
            if at + 2 >= end:
                return CUT, 0, _0, 0  # the next byte tells
            if data[at + 2] == 0xF3:
                return OVF, 3, _0, 0
        return kind, size, payload, sub
    if kind == _EXT:
        return _ext(data, at, end, context)
    if kind == MTC:
        if end - at < 2:
            return CUT, 0, _0, 0
        return MTC, 2, np.uint64(data[at + 1]), 0
    if kind == TSC:
        if end - at < 8:
            return CUT, 0, _0, 0
        return TSC, 8, _value(data, at + 1, 7), 0
    if kind == MODE_EXEC:
        if end - at < 2:
            return CUT, 0, _0, 0
        mode = np.int64(data[at + 1])
        if mode >> 5 == 0:
            return MODE_EXEC, 2, _0, mode & 7
        if mode >> 5 == 1:
            return MODE_TSX, 2, _0, mode & 3
        return MALFORMED, 0, _0, 0
    if kind == TRIG:
        if end - at < 3:
            return CUT, 0, _0, 0
        sub = np.int64(data[at + 1] & (IP_FLAG | TRIG_ICNT | TRIG_MULT))
        payload = np.uint64(data[at + 2])
        if not sub & TRIG_ICNT:
            return TRIG, 3, payload, sub
        if end - at < 5:
            return CUT, 0, _0, 0
        return TRIG, 5, payload | _value(data, at + 3, 2) << np.uint64(8), sub
    return UNKNOWN, 0, _0, 0


@kernel
def next_context(context: Int, kind: Int, payload: Int) -> Any:
    """`context` after a packet. Timing, power and FUP packets may stand inside a block; any other ends it."""
    if kind == BBP:
        return (context & ~BLOCK_BYTES) | np.int64(payload)
    if not context & BLOCK_BYTES:
        return context
    if kind in (BIP, PAD, FUP, MNT, EXSTOP, PWRE, PWRX) or CBR <= kind <= CYC:
        return context
    return context & ~BLOCK_BYTES


@kernel
def find_psb(data: U8, at: Int, end: Int) -> Any:
    """Position of the first PSB in data[at:end], −1 if there is none.

    A cut PSB may run into a whole one (02 82 02 82 …): the last 16 bytes of a run are the packet.
    """
    if at < 0 or end > data.size:
        return -1
    run = 0  # bytes of the pattern seen so far
    i = at
    while i + 1 < end:
        if data[i] == 0x02 and data[i + 1] == 0x82:
            run += 2
            i += 2
        elif run >= PSB_SIZE:
            break
        else:
            i += 1 if run == 0 else 0
            run = 0
    return i - PSB_SIZE if run >= PSB_SIZE else -1


@kernel
def reconstruct_ip(last_ip: Int, ip_bytes: Int, payload: Int) -> Any:
    """The address an IP packet stands for (SDM, "IP Compression"), all uint64 but `ip_bytes`.

    `last_ip` is that of the IP packet before with IPBytes ≠ 0, 0 after a PSB. IPBytes = 0 carries no address: the
    result is `last_ip`, which stays as it is.
    """
    if ip_bytes == 1:
        return (last_ip & ~np.uint64(0xFFFF)) | payload
    if ip_bytes == 2:
        return (last_ip & ~np.uint64(0xFFFFFFFF)) | payload
    if ip_bytes == 3:
        sign = np.uint64(1) << np.uint64(47)
        return payload | ~np.uint64(0xFFFFFFFFFFFF) if payload & sign else payload
    if ip_bytes == 4:
        return (last_ip & ~np.uint64(0xFFFFFFFFFFFF)) | payload
    if ip_bytes == 6:
        return payload
    return last_ip


def frozen(data: U8) -> U8:
    """The same bytes, read-only. To numba read-only and writable arrays are two types: give kernels one of them."""
    view = data.view()
    view.flags.writeable = False
    return view


STATE_CONTEXT, STATE_LAST_IP, STATE_SYNCED = range(3)  # fields of a scanner's state


def scanner(context: int = 0, synced: bool = False) -> NDArray[np.uint64]:
    """The state of a `scan` at the beginning of a stream. `synced`: its first byte is known to begin a packet."""
    return np.array([context, 0, synced], np.uint64)


@inner
def _put(out: Records, n: Int, kind: Int, offset: Int, size: Int, sub: Int) -> None:
    out[n]["offset"] = offset
    out[n]["payload"] = 0
    out[n]["ip"] = 0
    out[n]["size"] = size
    out[n]["sub"] = sub
    out[n]["kind"] = kind


@kernel
def scan(data: U8, at: Int, end: Int, base: Int, state: NDArray[np.uint64], out: Records) -> Any:
    """Packets of data[at:end] into `out` (PACKET_DTYPE) → (records written, position reached).

    `base` is the stream offset of data[0], `state` a `scanner`, changed in place. Stops where `out` is full or the
    next packet is cut: go on with the bytes from the position reached, and more behind them. `ip` is filled in for
    TIP, TIP_PGE, TIP_PGD and FUP (the last IP where they carry none) and is 0 elsewhere.

    Records follow each other without a gap. Where bytes are no packet stands a BAD record of size 0, then SKIPPED
    records up to the next PSB (one for each call that met a piece of the gap). There is one overlap: a PSB may cut
    the packet before it, which is noticed only at the bytes after. So the search for a PSB begins up to 15 bytes
    before them, as far as data[:at] has those bytes; the PSB's offset then lies before that of BAD.
    """
    if at < 0 or at > end or end > data.size:
        return 0, at
    context = np.int64(state[STATE_CONTEXT])
    last_ip = state[STATE_LAST_IP]
    synced = state[STATE_SYNCED] != _0
    n = 0
    while n < out.size and at < end:
        if not synced:
            psb = find_psb(data, at, end)
            to = psb if psb >= 0 else max(at, end - PSB_SIZE + 1)  # the end may be the beginning of a PSB
            if to > at:
                size = min(to - at, 0xFFFFFFFF)
                _put(out, n, SKIPPED, base + at, size, 0)
                n += 1
                at += size
            if psb < 0:
                break
            synced = at == psb
            continue
        kind, size, payload, sub = next_packet(data, at, end, context)
        if kind == CUT:
            break
        if kind < 0:
            _put(out, n, BAD, base + at, 0, -kind)
            n += 1
            context &= ~BLOCK_BYTES
            psb = find_psb(data, max(at - PSB_SIZE + 1, 0), min(at + PSB_SIZE - 1, end))
            synced = 0 <= psb < at
            if synced:
                at = psb
            continue
        ip = np.uint64(0)
        if TIP <= kind <= FUP:
            last_ip = reconstruct_ip(last_ip, sub, payload)
            ip = last_ip
        elif kind == PSB:
            last_ip = np.uint64(0)
        context = next_context(context, kind, payload)
        _put(out, n, kind, base + at, size, sub)
        out[n]["payload"] = payload
        out[n]["ip"] = ip
        n += 1
        at += size
    state[STATE_CONTEXT] = context
    state[STATE_LAST_IP] = last_ip
    state[STATE_SYNCED] = 1 if synced else 0
    return n, at

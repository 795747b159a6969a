"""The packet layer: bytes → packets. Every packet and header form of the Intel SDM, vol. 3, "Intel Processor Trace".

`next_packet` looks at one packet and is made to be called from other kernels. It keeps no state: the bits on which a
packet's form depends besides its own bytes are in `context`, which `next_context` carries from packet to packet:

- inside a block (BBP … BEP) the one-byte opcode xxxxx100 is a BIP; outside it is a short TNT. The low four bits of
  `context` hold the size of a BIP's payload (4 or 8; 0 = no block);
- two errata change the byte stream itself: `SKD007` (a CYC swallows the first byte of an OVF) and `SKZ84` (a TMA
  with bits set that must be zero has one byte more and says nothing).

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

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel, near
from stages.messages import U8
from stages.pointers import first_item, load64, zero_bytes
from stages.pt.last_ip import IP_SIZES, full_ip
from stages.pt.tnt import count, long_bits, short_bits

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

NO_KIND = 61  # from here on no kind
_EXT, _UNKNOWN, _MALFORMED = 61, 62, 63
_SECOND = 256

# fmt: off
_BEHIND_02 = {  # by the second byte: kind and size
    0xA3: (TNT_64, 8), 0x82: (PSB, PSB_SIZE), 0x23: (PSBEND, 2), 0xF3: (OVF, 2), 0x83: (STOP, 2), 0x62: (EXSTOP, 2),
    0xE2: (EXSTOP, 2), 0x33: (BEP, 2), 0xB3: (BEP, 2), 0x03: (CBR, 4), 0x73: (TMA, 7), 0x43: (PIP, 8), 0xC8: (VMCS, 7),
    0x12: (PTW, 6), 0x92: (PTW, 6), 0x32: (PTW, 10), 0xB2: (PTW, 10), 0xC2: (MWAIT, 10), 0x22: (PWRE, 4),
    0xA2: (PWRX, 7), 0x13: (CFE, 4), 0x53: (EVD, 11), 0x63: (BBP, 3), 0xC3: (MNT, 11),
    0x52: (_MALFORMED, 2), 0x72: (_MALFORMED, 2), 0xD2: (_MALFORMED, 2), 0xF2: (_MALFORMED, 2),  # PTW
}
# fmt: on


def _headers() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    kind, size = np.full(2 * _SECOND, _UNKNOWN, np.uint8), np.ones(2 * _SECOND, np.uint8)
    kind[0:_SECOND:2] = TNT_8
    kind[3:_SECOND:4] = CYC
    for low, ip_packet in ((0x0D, TIP), (0x11, TIP_PGE), (0x01, TIP_PGD), (0x1D, FUP)):
        for form, bytes_ in enumerate(IP_SIZES):
            kind[form << 5 | low] = ip_packet if bytes_ or not form else _MALFORMED
            size[form << 5 | low] = 1 + bytes_
    for first, what, bytes_ in (
        (0x00, PAD, 1), (0x02, _EXT, 2), (0x99, MODE_EXEC, 2), (0x19, TSC, 8), (0x59, MTC, 2), (0xD9, TRIG, 3)
    ):  # fmt: skip
        kind[first], size[first] = what, bytes_
    for second, (what, bytes_) in _BEHIND_02.items():
        kind[_SECOND + second], size[_SECOND + second] = what, bytes_
    return kind, size


KINDS, SIZES = _headers()
"""Of a packet by its first byte, and from 256 on by its second where the first is 02: see `header`. NO_KIND and above:
no packet begins so. A CYC or a TRIG may be longer."""

_0 = np.uint64(0)
_ALL = np.uint64((1 << 64) - 1)
_PSB_WORD = np.int64(np.uint64(0x8202_8202_8202_8202))
_CYC_MOST = 15  # bytes
_CYC_PLAIN = 9  # bytes of one whose cycles surely fit into 64 bits
_MORE = np.int64(0x0101_0101_0101_0101)


# A packet has at most 16 bytes. Rules take them as two numbers, int64: `low` is the first eight, little-endian, `high`
# the second eight. Bytes behind the packet may be anything.


@near
def header(byte: Int, second: Int) -> Int:
    """Where KINDS and SIZES have the packet that begins with these two bytes."""
    return _SECOND + second if byte == 0x02 else byte


@near
def cyc_size(low: Int, high: Int) -> Int:
    """Bytes of a CYC: as long as the Exp bit says, bit 2 of the first, bit 0 of the others; > 15: no CYC."""
    if low & 4 == 0:
        return np.int64(1)
    more = zero_bytes((low >> 8 & _MORE) ^ (_MORE >> 8))
    return 2 + more if more < 7 else 9 + zero_bytes((high & _MORE) ^ _MORE)


@inner
def cycles(low: Int, high: Int, size: Int) -> Any:
    """Of a CYC: bits 7:3 of the first byte, then 7 bits a byte; and whether 64 bits are enough for them."""
    value = np.uint64(low >> 3 & 0x1F)
    enough = True
    for k in range(1, size):
        byte = low >> 8 * k if k < 8 else high >> 8 * k - 64
        bits = np.uint64(byte >> 1 & 0x7F)
        shift = 7 * k - 2
        if shift < 64:
            value |= bits << np.uint64(shift)
        if shift > 57:
            enough &= bits == _0 if shift > 63 else (bits << np.uint64(shift)) >> np.uint64(shift) == bits
    return value, enough


@near
def is_psb(low: Int, high: Int) -> Int:
    return low == _PSB_WORD and high == _PSB_WORD


@near
def sound(kind: Int, low: Int, high: Int) -> Int:
    """Whether the fields of a packet may be so. (Of a CYC, `cycles` says it.)"""
    if kind == TNT_64:
        return long_bits(low) > 1
    if kind == PSB:
        return is_psb(low, high)
    if kind == MODE_EXEC:
        return low >> 8 & 0xFF < 0x40
    if kind == MNT:
        return low >> 16 & 0xFF == 0x88
    if kind == TMA:
        return low & 0x00FE_00FF_0000_0000 == 0
    return True


@near
def which(low: Int, high: Int, left: Int, context: Int) -> Any:
    """(kind, size) of a packet of which `left` > 0 bytes are there; (CUT | UNKNOWN | MALFORMED, 0): none."""
    block = context & BLOCK_BYTES
    if block and low & 7 == 4:
        return (BIP, 1 + block) if left > block else (CUT, 0)
    entry = header(low & 0xFF, low >> 8 & 0xFF)
    kind, size = np.int64(KINDS[entry]), np.int64(SIZES[entry])
    if kind == CYC and low & 4:
        size = cyc_size(low, high)
        if size > _CYC_MOST or (size > _CYC_PLAIN and not cycles(low, high, size)[1]):
            return MALFORMED, 0
        if context & SKD007 and size == 2 and low >> 8 & 0xFF == 0x02:
            if left < 3:
                return CUT, 0  # the next byte tells
            if low >> 16 & 0xFF == 0xF3:
                return OVF, 3
    elif kind >= NO_KIND:
        if low & 0xFF == 0x02 and left < 2:
            return CUT, 0
        return (MALFORMED if kind == _MALFORMED else UNKNOWN), 0
    elif kind == TRIG and low >> 8 & TRIG_ICNT:
        size = np.int64(5)
    elif not sound(kind, low, high):
        if kind == MNT and left > 2:
            return UNKNOWN, 0
        if kind == TMA and context & SKZ84:
            return (INVALID, 8) if left > 7 else (CUT, 0)
        return (MALFORMED if left >= size else CUT), 0
    if left < size:
        return CUT, 0
    if kind == MODE_EXEC and low >> 8 & 0xE0:
        kind = np.int64(MODE_TSX)
    return kind, size


@inner
def packet_at(data: Any, at: Int, block: Int) -> Any:
    """(kind, size) of the packet at data[at], a pointer behind which 16 bytes may be read; (< 0, 0): none begins so.
    `block`: between BBP and BEP, 4 or 8, the payload bytes of a BIP."""
    return which(np.int64(load64(data, at)), np.int64(load64(data, at + 8)), 16, block)


@near
def asks_fup(kind: Int, low: Int) -> Int:
    """Whether a FUP follows that says where the packet's event was, and changes no flow."""
    if kind == CFE:
        return low & IP_FLAG << 16 != 0
    return (kind == EXSTOP or kind == PTW or kind == BEP or kind == TRIG) and low & IP_FLAG << 8 != 0


@near
def ends_block(kind: Int) -> Int:
    """Whether there is no block any more behind such a packet: only timing, power and FUP packets may stand in one."""
    inside = kind == BIP or kind == PAD or kind == FUP or kind == MNT or kind == EXSTOP or kind == PWRE or kind == PWRX
    return not (inside or kind == BBP or CBR <= kind <= CYC)


@inner
def _number(low: Int, high: Int, at: Int, size: Int) -> Any:
    """Bytes [at, at + size) of the packet, 0 < at, 0 < size ≤ 8, little-endian, as uint64."""
    bits = np.uint64(8 * at)
    return ((np.uint64(low) >> bits) | (np.uint64(high) << (np.uint64(64) - bits))) & (_ALL >> np.uint64(64 - 8 * size))


@near
def tsc_of(low: Int) -> Int:
    """The 56 bits (uint64) of a TSC."""
    return np.uint64(low) >> np.uint64(8)


@near
def ctc_of(low: Int) -> Int:
    """CTC of a TMA."""
    return low >> 16 & 0xFFFF


@near
def fast_of(low: Int) -> Int:
    """FastCounter of a TMA."""
    return low >> 40 & 0xFFFF


@inner
def fields(kind: Int, size: Int, low: Int, high: Int) -> Any:
    """(payload, sub) of a packet; see the module's table."""
    byte, second, third = low & 0xFF, low >> 8 & 0xFF, low >> 16 & 0xFF
    if kind == TNT_8 or kind == TNT_64:
        bits = short_bits(byte) if kind == TNT_8 else long_bits(low)
        n = count(bits)
        return np.uint64(bits ^ np.int64(1) << n), n
    if TIP <= kind <= FUP:
        return (_number(low, high, 1, size - 1) if size > 1 else _0), byte >> 5
    if kind == CYC:
        return cycles(low, high, size)[0], 0
    if kind == TSC:
        return tsc_of(low), 0
    if kind == MTC:
        return np.uint64(second), 0
    if kind == MODE_EXEC:
        return _0, second & 7
    if kind == MODE_TSX:
        return _0, second & 3
    if kind == PIP:
        return (_number(low, high, 2, 6) >> np.uint64(1)) << np.uint64(5), third & 1
    if kind == CBR:
        return np.uint64(third), 0
    if kind == TMA:
        return np.uint64(ctc_of(low)), fast_of(low)
    if kind == VMCS:
        return _number(low, high, 2, 5) << np.uint64(12), 0
    if kind == PTW:
        return _number(low, high, 2, size - 2), second & IP_FLAG | second >> 5 & 3
    if kind == MWAIT or kind == PWRE or kind == PWRX:
        return _number(low, high, 2, size - 2), 0
    if kind == EXSTOP or kind == BEP:
        return _0, second & IP_FLAG
    if kind == BBP:
        return np.uint64(4 if third & 0x80 else 8), third & 0x1F
    if kind == CFE:
        return _number(low, high, 3, 1), third & 0x9F
    if kind == EVD:
        return _number(low, high, 3, 8), third & 0x1F
    if kind == MNT:
        return _number(low, high, 3, 8), 0
    if kind == TRIG:
        return _number(low, high, 2, size - 2), second & (IP_FLAG | TRIG_ICNT | TRIG_MULT)
    if kind == BIP:
        return _number(low, high, 1, size - 1), byte >> 3
    return _0, 0


@inner
def words(data: U8, at: Int, end: Int) -> Any:
    """`low` and `high` of the packet at `at`, with zeros from `end` on."""
    if at + 16 <= end:
        start = first_item(data)
        return np.int64(load64(start, at)), np.int64(load64(start, at + 8))
    low = high = np.int64(0)
    for k in range(end - at):
        if k < 8:
            low |= np.int64(data[at + k]) << 8 * k
        else:
            high |= np.int64(data[at + k]) << 8 * k - 64
    return low, high


@kernel
def next_packet(data: U8, at: Int, end: Int, context: Int) -> Any:
    """The packet at data[at:end] → (kind, size, payload, sub); see the module's table.

    `data` uint8[:], `at`, `end` int64, `context` int64. kind < 0 is an error (CUT, UNKNOWN, MALFORMED), size then 0.
    Nothing outside data[at:end] is read; a range outside `data` is CUT.
    """
    if at < 0 or at >= end or end > data.size:
        return CUT, 0, _0, 0
    low, high = words(data, at, end)
    kind, size = which(low, high, end - at, context)
    if kind < 0:
        return kind, 0, _0, 0
    payload, sub = fields(kind, size, low, high)
    return kind, size, payload, sub


@kernel
def next_context(context: Int, kind: Int, payload: Int) -> Any:
    """`context` after a packet."""
    if kind == BBP:
        return (context & ~BLOCK_BYTES) | np.int64(payload)
    return context & ~BLOCK_BYTES if ends_block(kind) else context


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
    """The address an IP packet stands for (see `last_ip`), all uint64 but `ip_bytes`.

    `last_ip` is that of the IP packet before with IPBytes ≠ 0, 0 after a PSB. IPBytes = 0 carries no address: the
    result is `last_ip`, which stays as it is.
    """
    return np.uint64(full_ip(ip_bytes, np.int64(payload), np.int64(last_ip)))


def frozen(data: U8) -> U8:
    """The same bytes, read-only. To numba read-only and writable arrays are two types: give kernels one of them."""
    view = data.view()
    view.flags.writeable = False
    return view

"""The packet layer once more, plainly: one function a packet, Python ints, slices; to check the kernels against.

Written from the SDM's packet tables, not from the kernels. `decode` also keeps last IP and resynchronises as
`packet_scan.scan` promises to.
"""

from __future__ import annotations

from typing import NamedTuple

from stages.pt import packets as p

PSB = b"\x02\x82" * 8


class BadError(Exception):
    """No packet begins so (`code` p.UNKNOWN) or not with such a field (p.MALFORMED)."""

    def __init__(self, code: int) -> None:
        self.code = code


class CutError(Exception):
    """The bytes end inside the packet."""


class Packet(NamedTuple):
    offset: int
    kind: int
    size: int
    payload: int
    sub: int
    ip: int = 0


def _take(raw: bytes, begin: int, size: int) -> int:
    if len(raw) < begin + size:
        raise CutError
    return int.from_bytes(raw[begin : begin + size], "little")


def _tnt(value: int) -> tuple[int, int]:
    """Payload with its stop bit → bits and their number."""
    if value < 2:
        raise BadError(p.MALFORMED)
    text = f"{value:b}"[1:]
    return int(text, 2), len(text)


def _ip(raw: bytes) -> tuple[int, int, int]:
    ip_bytes = raw[0] >> 5
    size = {0: 0, 1: 2, 2: 4, 3: 6, 4: 6, 6: 8}.get(ip_bytes)
    if size is None:
        raise BadError(p.MALFORMED)
    return 1 + size, _take(raw, 1, size), ip_bytes


def _cyc(raw: bytes) -> tuple[int, int]:
    value, shift, size = raw[0] >> 3, 5, 1
    more = raw[0] & 4
    while more:
        if size == 15:
            raise BadError(p.MALFORMED)
        byte = _take(raw, size, 1)
        value |= byte >> 1 << shift
        if value >> 64:
            raise BadError(p.MALFORMED)
        shift += 7
        size += 1
        more = byte & 1
    return size, value


_FIXED = {  # second byte of an 02 packet with nothing but a payload: kind, payload bytes
    0x23: (p.PSBEND, 0), 0xF3: (p.OVF, 0), 0x83: (p.STOP, 0), 0xC2: (p.MWAIT, 8), 0x22: (p.PWRE, 2), 0xA2: (p.PWRX, 5),
}  # fmt: skip


def _extended(raw: bytes, skz84: bool) -> tuple[int, int, int, int]:
    ext = _take(raw, 1, 1)
    flag = ext & 0x80
    if ext in _FIXED:
        kind, size = _FIXED[ext]
        return kind, 2 + size, _take(raw, 2, size), 0
    if ext & 0x7F == 0x62:
        return p.EXSTOP, 2, 0, flag
    if ext & 0x7F == 0x33:
        return p.BEP, 2, 0, flag
    if ext == 0xA3:
        bits, count = _tnt(_take(raw, 2, 6))
        return p.TNT_64, 8, bits, count
    if ext == 0x82:
        _take(raw, 0, 16)
        if not raw.startswith(PSB):
            raise BadError(p.MALFORMED)
        return p.PSB, 16, 0, 0
    if ext == 0x43:
        value = _take(raw, 2, 6)
        return p.PIP, 8, value >> 1 << 5, value & 1
    if ext == 0xC8:
        return p.VMCS, 7, _take(raw, 2, 5) << 12, 0
    if ext == 0x03:
        _take(raw, 2, 2)
        return p.CBR, 4, raw[2], 0
    if ext == 0x73:
        _take(raw, 2, 5)
        if raw[4] or raw[6] & 0xFE:
            if not skz84:
                raise BadError(p.MALFORMED)
            _take(raw, 0, 8)
            return p.INVALID, 8, 0, 0
        return p.TMA, 7, _take(raw, 2, 2), _take(raw, 5, 2)
    if ext & 0x1F == 0x12:
        if ext & 0x40:
            raise BadError(p.MALFORMED)
        size = 8 if ext & 0x20 else 4
        return p.PTW, 2 + size, _take(raw, 2, size), flag | (ext >> 5 & 3)
    if ext == 0x13:
        return p.CFE, 4, _take(raw, 3, 1), raw[2] & 0x9F
    if ext == 0x53:
        return p.EVD, 11, _take(raw, 3, 8), raw[2] & 0x1F
    if ext == 0x63:
        byte = _take(raw, 2, 1)
        return p.BBP, 3, 4 if byte & 0x80 else 8, byte & 0x1F
    if ext == 0xC3:
        if _take(raw, 2, 1) != 0x88:
            raise BadError(p.UNKNOWN)
        return p.MNT, 11, _take(raw, 3, 8), 0
    raise BadError(p.UNKNOWN)


def packet(raw: bytes, block: int = 0, skd007: bool = False, skz84: bool = False) -> tuple[int, int, int, int]:
    """(kind, size, payload, sub) of the packet at the beginning of `raw`; raises BadError or CutError."""
    if not raw:
        raise CutError
    first = raw[0]
    if first == 0:
        return p.PAD, 1, 0, 0
    if first == 2:
        return _extended(raw, skz84)
    if first & 1 == 0:
        if block and first & 7 == 4:
            return p.BIP, 1 + block, _take(raw, 1, block), first >> 3
        bits, count = _tnt(first >> 1)
        return p.TNT_8, 1, bits, count
    if first & 3 == 3:
        size, cycles = _cyc(raw)
        if skd007 and size == 2 and raw[1] == 0x02:
            return (p.OVF, 3, 0, 0) if _take(raw, 2, 1) == 0xF3 else (p.CYC, 2, cycles, 0)
        return p.CYC, size, cycles, 0
    by_low_bits = {0x0D: p.TIP, 0x11: p.TIP_PGE, 0x01: p.TIP_PGD, 0x1D: p.FUP}
    if first & 0x1F in by_low_bits:
        return by_low_bits[first & 0x1F], *_ip(raw)
    if first == 0x99:
        mode = _take(raw, 1, 1)
        if mode >> 5 > 1:
            raise BadError(p.MALFORMED)
        return (p.MODE_TSX, 2, 0, mode & 3) if mode >> 5 else (p.MODE_EXEC, 2, 0, mode & 7)
    if first == 0x19:
        return p.TSC, 8, _take(raw, 1, 7), 0
    if first == 0x59:
        return p.MTC, 2, _take(raw, 1, 1), 0
    if first == 0xD9:
        _take(raw, 0, 3)
        flags = raw[1] & 0xE0
        if flags & 0x40:
            return p.TRIG, 5, raw[2] | _take(raw, 3, 2) << 8, flags
        return p.TRIG, 3, raw[2], flags
    raise BadError(p.UNKNOWN)


_STAYS_IN_BLOCK = {
    p.PAD, p.TSC, p.TMA, p.MTC, p.FUP, p.CYC, p.CBR, p.MNT, p.EXSTOP, p.PWRE, p.PWRX, p.BIP,
}  # fmt: skip


def full_ip(last: int, ip_bytes: int, payload: int) -> int:
    """The address an IP packet stands for when the packet before stood for `last`."""
    if ip_bytes == 0:
        return last
    if ip_bytes == 3:
        return payload | 0xFFFF << 48 if payload >> 47 else payload
    low = {1: 16, 2: 32, 4: 48, 6: 64}[ip_bytes]
    return last >> low << low | payload


def _psb_at(data: bytes, begin: int, end: int) -> int:
    """The first PSB in data[begin:end], −1: none. Of a run of its pattern the last 16 bytes are the packet."""
    at = begin
    while at < end:
        run = at
        while data[run : run + 2] == PSB[:2] and run + 2 <= end:
            run += 2
        if run - at >= 16:
            return run - 16
        at = max(run, at + 1)
    return -1


def decode(data: bytes, skd007: bool = False, skz84: bool = False) -> list[Packet]:
    """All of a stream from its first PSB on, with BAD and SKIPPED where `scan` has them."""
    out: list[Packet] = []
    at = block = last = 0
    synced = False
    while at < len(data):
        if not synced:
            found = _psb_at(data, at, len(data))
            to = found if found >= 0 else max(at, len(data) - 15)
            if to > at:
                out.append(Packet(at, p.SKIPPED, to - at, 0, 0))
            if found < 0:
                break
            at, synced = to, True
        try:
            kind, size, payload, sub = packet(data[at : at + 16], block, skd007, skz84)
        except CutError:
            break
        except BadError as bad:
            out.append(Packet(at, p.BAD, 0, 0, -bad.code))
            block = 0
            found = _psb_at(data, max(at - 15, 0), min(at + 15, len(data)))
            synced = 0 <= found < at
            at = found if synced else at
            continue
        ip = 0
        if kind in (p.TIP, p.TIP_PGE, p.TIP_PGD, p.FUP):
            ip = last = full_ip(last, sub, payload)
        elif kind == p.PSB:
            last = 0
        elif kind == p.BBP:
            block = payload
        if kind not in _STAYS_IN_BLOCK and kind != p.BBP:
            block = 0
        out.append(Packet(at, kind, size, payload, sub, ip))
        at += size
    return out

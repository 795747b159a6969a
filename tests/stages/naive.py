"""The plainest form of the stages' work on a stream: one packet at a time, in lists."""

from __future__ import annotations

from typing import NamedTuple

from stages.messages import MarkKind

PSB = bytes.fromhex("0282" * 8)
IP_SIZE = {0: 0, 1: 2, 2: 4, 3: 6, 4: 6, 6: 8}
EXT = {0x23: 2, 0xF3: 2, 0x03: 4, 0x73: 7, 0x43: 8, 0xA3: 8, 0x83: 2}


DRAINED = 10  # time of a PSB+ without a TSC


class Packet(NamedTuple):
    name: str
    size: int
    value: int = 0
    ip_bytes: int = 0


def packet(data: bytes) -> Packet | None:
    """The packet that `data` begins with; None: cut; raises ValueError: no packet."""
    first = data[0]
    if first == 0:
        return Packet("pad", 1)
    if first == 0x02:
        if len(data) < 2:
            return None
        if data[:16] == PSB:
            return Packet("psb", 16)
        if data[1] == 0x82:
            if PSB.startswith(data[:16]):
                return None
            raise ValueError
        if data[1] not in EXT:
            raise ValueError
        size = EXT[data[1]]
        if len(data) < size:
            return None
        name = {0x23: "psbend", 0xF3: "ovf", 0x73: "tma"}.get(data[1], "other")
        return Packet(name, size)
    if first & 1 == 0:
        return Packet("tnt", 1)
    kind = {0x0D: "tip", 0x11: "pge", 0x01: "pgd", 0x1D: "fup"}.get(first & 0x1F)
    if first == 0x19:
        return Packet("tsc", 8, int.from_bytes(data[1:8], "little")) if len(data) >= 8 else None
    if first == 0x59:
        return Packet("mtc", 2, data[1]) if len(data) >= 2 else None
    if first == 0x99:
        return Packet("mode", 2) if len(data) >= 2 else None
    if kind and first >> 5 in IP_SIZE:
        size = IP_SIZE[first >> 5]
        return (
            Packet(kind, 1 + size, int.from_bytes(data[1 : 1 + size], "little"), first >> 5)
            if len(data) > size
            else None
        )
    raise ValueError


def next_ip(last: int, p: Packet) -> int:
    if p.ip_bytes == 0:
        return last
    if p.ip_bytes == 3:
        return p.value | (0xFFFF << 48 if p.value >> 47 else 0)
    if p.ip_bytes == 6:
        return p.value
    bits = {1: 16, 2: 32, 4: 48}[p.ip_bytes]
    return last >> bits << bits | p.value


class Result(NamedTuple):
    runs: list[tuple[int, int]]  # [start, end) of whole packets
    marks: list[tuple[int, int, int, int]]  # kind, offset, ip, tsc
    addresses: list[tuple[int, int]]  # offset, ip; ip 0: PGD
    holes: int


def find_psb(data: bytes, at: int) -> int:
    """The first PSB; where its pattern goes on, the last 16 bytes of it."""
    at = data.find(PSB, at)
    while at >= 0 and data[at + 16 : at + 18] == PSB[:2]:
        at += 2
    return at


def end_psb_plus(marks: list[tuple[int, int, int, int]], psb: int, ip: int, tsc: int, timed: bool) -> int:
    """Marks the PSB+ that began at `psb` (−1: none), with any end; the time behind it."""
    if psb >= 0:
        tsc = tsc if timed else max(tsc, DRAINED)
        marks.append((MarkKind.PSB, psb, ip, tsc))
    return tsc


def walk(data: bytes) -> Result:
    """A whole stream without losses told by its source."""
    at = find_psb(data, 0)
    runs: list[tuple[int, int]] = []
    marks: list[tuple[int, int, int, int]] = []
    addresses: list[tuple[int, int]] = []
    while at >= 0:
        start, last_ip, tsc, psb = at, 0, marks[-1][3] if marks else 0, -1
        psb_ip, timed = 0, True
        while at < len(data):
            try:
                p = packet(data[at : at + 16])
            except ValueError:
                break
            if p is None:
                break
            if p.name == "psb":
                tsc, psb = end_psb_plus(marks, psb, psb_ip, tsc, timed), -1
                last_ip, psb, psb_ip, timed = 0, at, 0, False
            elif p.name in ("tip", "fup", "pge", "pgd"):
                last_ip = next_ip(last_ip, p)
                if p.name == "pgd":
                    addresses.append((at, 0))
                elif p.ip_bytes:
                    addresses.append((at, last_ip))
                if psb >= 0 and p.name == "fup":
                    psb_ip = last_ip
                elif p.name in ("pge", "pgd"):
                    kind = MarkKind.PGE if p.name == "pge" else MarkKind.PGD
                    marks.append((kind, at, last_ip if p.ip_bytes else 0, tsc))
            elif p.name == "tsc":
                tsc, timed = max(tsc, p.value), True
                if psb < 0:
                    marks.append((MarkKind.TIME, at, 0, tsc))
            elif p.name == "psbend":
                tsc, psb = end_psb_plus(marks, psb, psb_ip, tsc, timed), -1
            elif p.name == "ovf":
                tsc, psb = end_psb_plus(marks, psb, psb_ip, tsc, timed), -1
                marks.append((MarkKind.OVF, at, 0, tsc))
            at += p.size
        tsc, psb = end_psb_plus(marks, psb, psb_ip, tsc, timed), -1
        if at > start:
            runs.append((start, at))
        if at >= len(data) or packet_is_cut(data[at:]):
            break
        at = find_psb(data, at + 1)
    return Result(runs, marks, addresses, len(data) - sum(b - a for a, b in runs))


def packet_is_cut(data: bytes) -> bool:
    try:
        return packet(data[:16]) is None
    except ValueError:
        return False

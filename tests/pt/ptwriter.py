"""Intel PT packets as bytes, so that a test reads like a trace: ``psb() + fup(0x1000) + psbend() + tnt("!..!")``.

IP packets take IPBytes as the second argument (3 by default, 6 bytes sign-extended); the address is cut to it.
"""

from __future__ import annotations

_IP_SIZE = {0: 0, 1: 2, 2: 4, 3: 6, 4: 6, 6: 8}


def _le(value: int, size: int) -> bytes:
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _ip(opcode: int, ip: int, ip_bytes: int) -> bytes:
    return bytes((ip_bytes << 5 | opcode,)) + _le(ip, _IP_SIZE[ip_bytes])


def pad() -> bytes:
    return b"\x00"


def psb() -> bytes:
    return b"\x02\x82" * 8


def psbend() -> bytes:
    return b"\x02\x23"


def ovf() -> bytes:
    return b"\x02\xf3"


def stop() -> bytes:
    return b"\x02\x83"


def tip(ip: int = 0, ip_bytes: int = 3) -> bytes:
    return _ip(0x0D, ip, ip_bytes)


def tip_pge(ip: int = 0, ip_bytes: int = 3) -> bytes:
    return _ip(0x11, ip, ip_bytes)


def tip_pgd(ip: int = 0, ip_bytes: int = 0) -> bytes:
    return _ip(0x01, ip, ip_bytes)


def fup(ip: int = 0, ip_bytes: int = 3) -> bytes:
    return _ip(0x1D, ip, ip_bytes)


def _bits(branches: str) -> int:
    """A stop bit, then "!" taken, "." not taken, oldest first."""
    value = 1
    for branch in branches:
        value = value << 1 | (branch == "!")
    return value


def tnt8(branches: str) -> bytes:
    assert 1 <= len(branches) <= 6
    return bytes((_bits(branches) << 1,))


def tnt64(branches: str) -> bytes:
    assert 1 <= len(branches) <= 47
    return b"\x02\xa3" + _le(_bits(branches), 6)


def pip(cr3: int, nr: bool = False) -> bytes:
    return b"\x02\x43" + _le(cr3 >> 5 << 1 | nr, 6)


def vmcs(base: int) -> bytes:
    return b"\x02\xc8" + _le(base >> 12, 5)


def mode_exec(bits: int = 64, iflag: bool = False) -> bytes:
    return bytes((0x99, {64: 1, 32: 2, 16: 0}[bits] | iflag << 2))


def mode_tsx(intx: bool = False, abort: bool = False) -> bytes:
    return bytes((0x99, 0x20 | intx | abort << 1))


def tsc(value: int) -> bytes:
    return b"\x19" + _le(value, 7)


def tma(ctc: int, fc: int) -> bytes:
    return b"\x02\x73" + _le(ctc, 2) + b"\x00" + _le(fc, 2)


def mtc(ctc: int) -> bytes:
    return b"\x59" + _le(ctc, 1)


def cbr(ratio: int) -> bytes:
    return b"\x02\x03" + _le(ratio, 1) + b"\x00"


def cyc(cycles: int) -> bytes:
    out = [cycles << 3 & 0xF8 | 3]
    cycles >>= 5
    while cycles:
        out[-1] |= 4 if len(out) == 1 else 1
        out.append(cycles << 1 & 0xFE)
        cycles >>= 7
    return bytes(out)


def mnt(payload: int) -> bytes:
    return b"\x02\xc3\x88" + _le(payload, 8)


def ptw(payload: int, size: int = 4, ip: bool = False) -> bytes:
    return bytes((0x02, 0x12 | {4: 0, 8: 1}[size] << 5 | ip << 7)) + _le(payload, size)


def exstop(ip: bool = False) -> bytes:
    return bytes((0x02, 0x62 | ip << 7))


def mwait(hints: int, extensions: int) -> bytes:
    return b"\x02\xc2" + _le(hints, 4) + _le(extensions, 4)


def pwre(state: int, sub_state: int = 0, hw: bool = False) -> bytes:
    return b"\x02\x22" + bytes((hw << 3, state << 4 | sub_state))


def pwrx(last: int, deepest: int, reason: int = 1) -> bytes:
    return b"\x02\xa2" + bytes((last << 4 | deepest, reason, 0, 0, 0))


def bbp(kind: int, size: int = 8) -> bytes:
    return bytes((0x02, 0x63, kind | (size == 4) << 7))


def bip(item: int, payload: int, size: int = 8) -> bytes:
    return bytes((item << 3 | 4,)) + _le(payload, size)


def bep(ip: bool = False) -> bytes:
    return bytes((0x02, 0x33 | ip << 7))


def cfe(kind: int, vector: int = 0, ip: bool = False) -> bytes:
    return bytes((0x02, 0x13, kind | ip << 7, vector))


def evd(kind: int, payload: int) -> bytes:
    return bytes((0x02, 0x53, kind)) + _le(payload, 8)


def trig(vector: int, icnt: int | None = None, ip: bool = False, mult: bool = False) -> bytes:
    head = bytes((0xD9, ip << 7 | (icnt is not None) << 6 | mult << 5, vector))
    return head + (b"" if icnt is None else _le(icnt, 2))

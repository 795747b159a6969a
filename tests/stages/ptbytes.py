"""Packets as bytes, from the SDM's tables: the input of the stages' tests."""

from __future__ import annotations

PSB = bytes.fromhex("0282" * 8)
PSBEND = b"\x02\x23"
OVF = b"\x02\xf3"
PAD = b"\0"
CBR = b"\x02\x03\x18\x00"
TIP, PGE, PGD, FUP = 0x0D, 0x11, 0x01, 0x1D


def ip_packet(opcode: int, ip: int, ip_bytes: int = 3) -> bytes:
    """ip_bytes: 0 none, 1: 16 bits, 2: 32, 3: 48 sign-extended, 4: 48, 6: 64."""
    size = (0, 2, 4, 6, 6, 0, 8)[ip_bytes]
    return bytes([opcode | ip_bytes << 5]) + (ip & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def tip(ip: int, ip_bytes: int = 3) -> bytes:
    return ip_packet(TIP, ip, ip_bytes)


def pge(ip: int, ip_bytes: int = 3) -> bytes:
    return ip_packet(PGE, ip, ip_bytes)


def pgd(ip: int = 0, ip_bytes: int = 0) -> bytes:
    return ip_packet(PGD, ip, ip_bytes)


def fup(ip: int, ip_bytes: int = 3) -> bytes:
    return ip_packet(FUP, ip, ip_bytes)


def tnt(bits: str) -> bytes:
    """ "1011": oldest first, at most 6."""
    return bytes([int("1" + bits, 2) << 1])


def tsc(time: int) -> bytes:
    return b"\x19" + (time & ((1 << 56) - 1)).to_bytes(7, "little")


def tma(ctc: int, fast: int) -> bytes:
    return b"\x02\x73" + ctc.to_bytes(2, "little") + b"\0" + bytes([fast & 255, fast >> 8])


def mtc(ctc: int) -> bytes:
    return bytes([0x59, ctc])


def psb_plus(time: int, ip: int = 0) -> bytes:
    return PSB + tsc(time) + CBR + (b"\x99\x01" + fup(ip) if ip else b"") + PSBEND

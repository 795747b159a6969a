"""How long a packet is, and the address in it."""

from __future__ import annotations

import numpy as np

from jvm.kernels import inner

SIZES = np.array([0, 2, 4, 6, 6, 0, 8, 0], dtype=np.int64)
"""Bytes of an IP by IPBytes; 5 and 7 are no packet."""
MASKS = np.array([0, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFFFFFF, 0, -1, 0], dtype=np.int64)


@inner
def full_ip(header, payload, last):  # type: ignore[no-untyped-def]
    """The address in a TIP, PGE, PGD or FUP packet: compressed against the last one."""
    kind = header >> 5
    mask = np.int64(MASKS[kind])
    ip = (last & ~mask) | (payload & mask)
    return (ip << 16) >> 16 if kind == 3 else ip


@inner
def size_of(data, pos, block):  # type: ignore[no-untyped-def]
    """Length of the packet at `pos` (`data` goes on at least 16 bytes behind its last packet); 0: none such.
    `block`: between BBP and BEP: 4 or 8 is the length of a BIP's payload."""
    b = np.int64(data[pos])
    if block and b & 7 == 4:
        return 1 + block
    if b == 0 or (b & 1 == 0 and b != 2):
        return 1
    low = b & 0x1F
    if low == 0x0D or low == 0x11 or low == 0x01 or low == 0x1D:
        kind = b >> 5
        return 0 if kind == 5 or kind == 7 else 1 + np.int64(SIZES[kind])
    if b & 3 == 3:  # CYC
        n = 1
        if b & 4:
            while n < 15 and data[pos + n] & 1:
                n += 1
            n += 1
        return n if n <= 15 else 0
    if b == 0x99 or b == 0x59:
        return 2
    if b == 0x19:
        return 8
    if b == 0xD9:  # TRIG, with a count of instructions or without
        return 5 if data[pos + 1] & 0x40 else 3
    if b != 0x02:
        return 0
    e = np.int64(data[pos + 1])
    if e == 0x82:
        for k in range(16):
            if data[pos + k] != (0x82 if k & 1 else 0x02):
                return 0
        return 16
    if e == 0x23 or e == 0xF3 or e == 0x83 or e == 0x62 or e == 0xE2 or e == 0x33 or e == 0xB3:
        return 2
    if e == 0xA3 or e == 0x43:
        return 8
    if e == 0x03 or e == 0x22 or e == 0x13:
        return 4
    if e == 0x73 or e == 0xC8 or e == 0xA2:
        return 7
    if e == 0xC2:
        return 10
    if e == 0x63:
        return 3
    if e == 0x53 or e == 0xC3:
        return 11
    if e & 0x1F == 0x12:
        wide = (e >> 5) & 3
        return 6 if wide == 0 else (10 if wide == 1 else 0)
    return 0

"""IP compression: the address that a TIP, TIP.PGE, TIP.PGD or FUP stands for (SDM vol. 3, "IP Compression").

The header's upper three bits, IPBytes, say how much of the address is in the packet; the rest is that of the *last IP*,
the address in the IP packet before. Without an address (IPBytes = 0) the last IP stays as it is; a PSB sets it to 0.

All numbers are int64, an address of the upper half of the address space is negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import near

Int = Any

IP_SIZES = (0, 2, 4, 6, 6, 0, 8, 0)
"""Bytes of address by IPBytes: none, 16 bits, 32, 48 of which the top one is extended, 48, reserved, 64, reserved."""
_SIZES = np.int64(sum(size << 4 * form for form, size in enumerate(IP_SIZES)))
_MASKS = np.array([(1 << 8 * size) - 1 if size < 8 else -1 for size in IP_SIZES], np.int64)


@near
def ip_size(header: Int) -> Int:
    """Bytes of address behind the header byte of an IP packet. (From a register: a table in memory would be a second
    load behind that of the header, on the way to where the next packet begins.)"""
    return (_SIZES >> (header >> 3 & 0x1C)) & 15


@near
def reserved(header: Int) -> Int:
    """Whether IPBytes is 5 or 7: no packet has that."""
    return header & 0xA0 == 0xA0


@near
def full_ip(form: Int, payload: Int, last: Int) -> Int:
    """The address in a packet; `form`: its IPBytes, `payload`: the bytes behind its header, whatever follows them."""
    mask = _MASKS[form]
    ip = (last & ~mask) | (payload & mask)
    return (ip << 16) >> 16 if form == 3 else ip  # 48 bits, and bit 47 above them

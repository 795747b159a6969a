"""TNT packets: the outcomes of conditional branches and compressed returns (SDM vol. 3, "Taken/Not-taken Packet").

Kernels carry outcomes as one number: the oldest bit highest, a stop bit before it. 1 is none.
"""

from __future__ import annotations

from typing import Any

from jvm.kernels import near

Int = Any


@near
def is_short(byte: Int) -> Int:
    """Whether a packet that begins with `byte` is a short TNT: bit 0 is clear, and it is no PAD (00) and no 02. Between
    BBP and BEP it may be a BIP."""
    return byte & 1 == 0 and byte > 2


@near
def short_bits(byte: Int) -> Int:
    """Of a short TNT: 1 to 6 of them."""
    return byte >> 1


@near
def long_bits(low: Int) -> Int:
    """Of the long TNT whose eight bytes are `low` (int64): up to 47; 0 and 1 are no packet."""
    return low >> 16 & 0xFFFFFFFFFFFF


@near
def count(bits: Int) -> Int:
    """How many outcomes there are; −1 for 0."""
    n = -1
    while bits > 0:
        bits >>= 1
        n += 1
    return n

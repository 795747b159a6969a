"""Inputs made from good ones: pieces of them put together, moved, repeated, and bytes changed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_VALUES = (
    *(bytes.fromhex(text) for text in ("00", "ff", "7f", "80", "01", "02", "0282", "02f3", "08000000", "00000080")),
    *(value * size for size in (4, 8) for value in (b"\x00", b"\xff")),
    bytes(7) + b"\x80",
)


def mutated(rng: Random, corpus: Sequence[bytes], most: int) -> bytes:
    """At most `most` bytes, from one or two inputs of `corpus`."""
    data = bytearray(_window(rng, rng.choice(corpus), most))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        how = rng.randrange(8)
        at = rng.randrange(len(data) + 1)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif how == 1 and data:
            data[at % len(data)] = rng.randrange(256)
        elif how == 2:
            value = rng.choice(_VALUES)
            data[at : at + len(value)] = value
        elif how == 3:
            data[at:at] = rng.choice(_VALUES)
        elif how == 4:
            del data[at : at + rng.randrange(1, 17)]
        elif how == 5:
            data[at:at] = data[at : at + rng.randrange(1, 65)] * rng.choice((1, 1, 2, 7))
        elif how == 6:
            data[at:] = _window(rng, rng.choice(corpus), most)
        else:
            del data[at:]
    return bytes(data[:most])


def _window(rng: Random, data: bytes, most: int) -> bytes:
    if len(data) <= most and rng.random() < 0.8:
        return data
    at = rng.randrange(len(data) + 1)
    return data[at : at + rng.randrange(most + 1)]

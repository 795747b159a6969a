"""How two states of the same code differ, and which bytes are no code at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PADDING = (0x00, 0xCC, 0xF4)
GAP = 8
"""Equal bytes that end a run of different ones: a patched operand is one run."""
MARGIN = 8
"""Bytes on either side that have to be padding, too: operands can be zero, whole instructions are not. Eight zeros
are an immediate at most, with its opcode before it."""
LONG = 24
"""Bytes of padding that need no margin: no instruction has so many. Code that is put right behind other code (signature
handlers, the slots of a stub queue) has none."""


def runs(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """The stretches [begin, end) in which two arrays of one length differ, ascending."""
    positions = np.flatnonzero(old != new)
    if not len(positions):
        return []
    breaks = np.flatnonzero(np.diff(positions) > GAP)
    first = positions[np.concatenate(([0], breaks + 1))]
    last = positions[np.concatenate((breaks, [len(positions) - 1]))]
    return list(zip(first.tolist(), (last + 1).tolist(), strict=True))


def padding(code: NDArray[np.uint8], begin: int, end: int) -> bool:
    """Is code[begin:end] padding: 00, cc (int3) or f4 (hlt) throughout, also, unless it is `LONG`, the `MARGIN`
    bytes around it as far as there are any? HotSpot clears and pads with them; nothing is executed there. So code that
    appears in such a place is no change of code, and padding replaces none."""
    margin = MARGIN if end - begin < LONG else 0
    window = code[max(begin - margin, 0) : end + margin]
    return len(window) > 0 and int(window[0]) in PADDING and bool((window == window[0]).all())

"""Kernels that look through the pcs of one nmethod as it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel

FINE = 64
"""Bytes. A stretch of code is described finely if it is not longer, from one pc to the next."""
Int = Any  # a Python int outside kernels, a machine integer of some width inside


@kernel
def fine_bytes(pc: NDArray[np.uint32]) -> Int:
    """Bytes of the code up to the last pc that are described finely; −1: the pcs do not ascend."""
    fine, before = np.int64(0), np.int64(0)
    for at in pc:
        run = np.int64(at) - before
        if run < 0:
            return np.int64(-1)
        if run <= FINE:
            fine += run
        before = np.int64(at)
    return fine


@kernel
def distinct(
    frame_at: NDArray[np.int64], method: NDArray[np.uint32], own: Int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The innermost methods at n pcs (`DebugInfo`), each once, in the order in which they are met; and (n,) which of
    them is at each pc. `own`: where no method is described."""
    count = len(frame_at) - 1
    found, which = np.empty(count, np.int64), np.empty(count, np.int64)
    slots = 8
    while slots < 2 * count:
        slots *= 2
    table, mask = np.full(slots, -1, np.int64), np.int64(slots - 1)
    n = 0
    for i in range(count):
        at = frame_at[i]
        m = np.int64(method[at]) if at < frame_at[i + 1] else np.int64(own)
        slot = (m * np.int64(0x9E3779B1) >> np.int64(7)) & mask
        while table[slot] >= 0 and found[table[slot]] != m:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot], found[n] = n, m
            n += 1
        which[i] = table[slot]
    return found[:n].copy(), which

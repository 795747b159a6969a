"""Larger copies of the hash tables: what is in them keeps its ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.follow.cfg.graph import (
    ME,
    ME_KEY,
    UW,
    scatter,
)
from stages.follow.cfg.window_cache import (
    U_KEY,
    UN,
    home_of,
    window_of,
)
from stages.follow.code.invalidation import (
    slot_of,
)


@kernel
def _memo(old, new):  # type: ignore[no-untyped-def]
    mask = len(new) // ME - 1
    for j in range(len(old) // ME):
        key = np.int64(old[ME * j + ME_KEY])
        if key == 0:
            continue
        i = slot_of(key) & mask
        while new[ME * i + ME_KEY] != 0:
            i = (i + 1) & mask
        new[ME * i : ME * i + ME] = old[ME * j : ME * j + ME]


@kernel
def _pairs(old, new):  # type: ignore[no-untyped-def]
    mask = len(new) // 2 - 1
    for j in range(len(old) // 2):
        if old[2 * j + 1] == 0:
            continue
        i = scatter(old[2 * j]) & mask
        while new[2 * i + 1] != 0:
            i = (i + 1) & mask
        new[2 * i] = old[2 * j]
        new[2 * i + 1] = old[2 * j + 1]


@kernel
def _units(old, numbers, new):  # type: ignore[no-untyped-def]
    mask = len(new) // UW - 1
    n = 0
    for j in range(len(old) // UW):
        key = np.int64(numbers[UN * j + U_KEY])
        if key <= 0:
            continue
        i = home_of(window_of(old[UW * j], old[UW * j + 1], old[UW * j + 2], key)) & mask
        while new[UW * i + U_KEY // 2] != 0:
            i = (i + 1) & mask
        new[UW * i : UW * i + UW] = old[UW * j : UW * j + UW]
        n += 1
    return n


def memo(old: NDArray[np.int32], slots: int) -> NDArray[np.int32]:
    new = np.zeros(slots * ME, np.int32)
    _memo(old, new)
    return new


def pairs(old: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Of a table of (key, value), value never 0, hashed by `scatter`."""
    new = np.zeros(slots * 2, np.int64)
    _pairs(old, new)
    return new


def units(old: NDArray[np.int64], new: NDArray[np.int64]) -> int:
    """Copy the units that are alive to an empty table; how many."""
    return int(_units(old, old.view(np.int32), new))

"""Larger copies of the hash tables: their entries keep their ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.follow.cfg.graph import (
    TC,
    TC_KEY,
    WC_WORDS,
    scatter,
)
from stages.follow.cfg.window_cache import (
    WC,
    WC_KEY,
    hash_of,
    home_of,
)
from stages.follow.code.invalidation import (
    slot_of,
)


@kernel
def _tnt_cache(old, new):  # type: ignore[no-untyped-def]
    mask = len(new) // TC - 1
    for j in range(len(old) // TC):
        key = np.int64(old[TC * j + TC_KEY])
        if key == 0:
            continue
        i = slot_of(key) & mask
        while new[TC * i + TC_KEY] != 0:
            i = (i + 1) & mask
        new[TC * i : TC * i + TC] = old[TC * j : TC * j + TC]


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
def _windows(old, numbers, new):  # type: ignore[no-untyped-def]
    mask = len(new) // WC_WORDS - 1
    n = 0
    for j in range(len(old) // WC_WORDS):
        key = np.int64(numbers[WC * j + WC_KEY])
        if key <= 0:
            continue
        i = home_of(hash_of(old[WC_WORDS * j], old[WC_WORDS * j + 1], old[WC_WORDS * j + 2], key)) & mask
        while new[WC_WORDS * i + WC_KEY // 2] != 0:
            i = (i + 1) & mask
        new[WC_WORDS * i : WC_WORDS * i + WC_WORDS] = old[WC_WORDS * j : WC_WORDS * j + WC_WORDS]
        n += 1
    return n


def tnt_cache(old: NDArray[np.int32], slots: int) -> NDArray[np.int32]:
    new = np.zeros(slots * TC, np.int32)
    _tnt_cache(old, new)
    return new


def pairs(old: NDArray[np.int64], slots: int) -> NDArray[np.int64]:
    """Of a table of (key, value), value never 0, hashed by `scatter`."""
    new = np.zeros(slots * 2, np.int64)
    _pairs(old, new)
    return new


def windows(old: NDArray[np.int64], new: NDArray[np.int64]) -> int:
    """Copy the windows that are alive to an empty table; how many."""
    return int(_windows(old, old.view(np.int32), new))

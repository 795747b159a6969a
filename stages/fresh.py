"""Large arrays of zeros of which each page costs something when it is first touched, and nothing before.

`numpy.zeros` asks malloc, which takes such memory from the kernel only above a threshold. The threshold rises to the
size of what was freed, up to 32 MB (glibc, malloc/malloc.c, "dynamic mmap threshold"); below it memory that was used
before is cleared, all of it: for tables with much spare room steps of 100 ms.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST = 1 << 20
"""Smaller ones, in bytes, are malloc's."""


def zeros(shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """As `numpy.zeros`, on whole pages. Dropped with the last array that views it."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize * int(np.prod(shape))
    if size < LEAST:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)  # as numpy does
    return np.ndarray(shape, dtype, buffer=memory)

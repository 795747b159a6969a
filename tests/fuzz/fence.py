"""Memory that ends where it ends: arrays right before, or right after, a page that may not be touched.

Kernels that work with pointers have no bounds to check, and a read a few bytes too far usually finds other data of the
process. Here it is a SIGSEGV. Page-wise only one end of an array can lie at a fence: `HIGH` (its end, the default) or
`LOW` (its beginning).
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

HIGH, LOW = True, False
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def zeros(size: int, dtype: Any = np.uint8, end: bool = HIGH) -> np.ndarray:
    """(size,) zeros between two forbidden pages; the memory goes with the array and its views."""
    octets = size * np.dtype(dtype).itemsize
    room = -(-max(octets, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, room + 2 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(area, np.uint8)
    for page in (whole.ctypes.data, whole.ctypes.data + mmap.PAGESIZE + room):
        if _LIBC.mprotect(page, mmap.PAGESIZE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = mmap.PAGESIZE + (room - octets if end else 0)
    return whole[begin : begin + octets].view(dtype)


def copy(data: Any, end: bool = HIGH) -> np.ndarray:
    """An array or bytes, between fences."""
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    out = zeros(len(array), array.dtype, end)
    out[:] = array
    return out


def is_fenced(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap) or (isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap))


class Bytes:
    """One fenced area that inputs are put into, one after the other: cheaper than an area each."""

    def __init__(self, most: int, end: bool = HIGH) -> None:
        self._all, self._end = zeros(most, np.uint8, end), end

    def put(self, data: bytes) -> np.ndarray:
        view = self._all[len(self._all) - len(data) :] if self._end else self._all[: len(data)]
        view[:] = np.frombuffer(data, np.uint8)
        return view

"""Tables with much spare room cost what is used of them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.cct.tables import empty
from stages.follow.cfg.tables import Capacity
from stages.follow.cfg.tables import empty as of_flow
from stages.follow.code.code_copy import Image
from stages.follow.code.jumps import NO_JUMPS
from stages.fresh import LEAST, zeros
from stages.messages import PtConfig

LIBC = ctypes.CDLL(None, use_errno=True)


def resident(array: NDArray[Any]) -> int:
    """Pages of the array, the outermost two excepted, that the kernel has given memory for (mincore(2))."""
    begin = -(-array.ctypes.data // mmap.PAGESIZE)
    pages = (array.ctypes.data + array.nbytes) // mmap.PAGESIZE - begin
    told = (ctypes.c_ubyte * pages)()
    address = ctypes.c_void_p(begin * mmap.PAGESIZE)
    assert LIBC.mincore(address, ctypes.c_size_t(pages * mmap.PAGESIZE), told) == 0
    return sum(octet & 1 for octet in told)


def _tables() -> Iterator[NDArray[Any]]:
    yield from empty(1 << 20, 1 << 20, 1 << 20)
    yield from of_flow(Capacity(), Image().code, NO_JUMPS, PtConfig(), True)


def test_tables_made_again_are_not_cleared_beforehand() -> None:
    for _ in range(4):  # what is freed raises malloc's threshold
        made = list(_tables())
        assert sum(array.nbytes >= LEAST for array in made) > 10
        del made
    for array in _tables():
        if array.nbytes >= LEAST:
            assert resident(array) <= mmap.PAGESIZE // 8  # one huge page, of the row that is nothing


@pytest.mark.parametrize("shape", [0, 3, (LEAST // 8,), (LEAST // 8, 2), (0, 5)])
def test_they_are_as_those_of_numpy(shape: int | tuple[int, ...]) -> None:
    made, expected = zeros(shape, np.int64), np.zeros(shape, np.int64)
    assert (made.shape, made.dtype, made.flags.writeable, made.flags.c_contiguous) == (
        expected.shape, expected.dtype, True, True,
    )  # fmt: skip
    assert np.array_equal(made, expected)
    made += 1
    assert made.sum() == made.size


def test_a_view_keeps_the_memory() -> None:
    view = zeros(LEAST, np.uint8)[10:20]
    view[:] = 7
    assert view.sum() == 70

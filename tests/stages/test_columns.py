"""Columns by one pointer: kernels read and write those that Python has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.columns import pointers_to, table


class Within(NamedTuple):
    small: NDArray[np.uint8]
    signed: NDArray[np.int32]


class Around(NamedTuple):
    first: NDArray[np.uint16]
    within: Within
    last: NDArray[np.int64]
    other: Within
    wide: NDArray[np.uint32]


_at = pointers_to(Around)


@inner
def _sum(x, k):  # type: ignore[no-untyped-def]
    return np.int64(x.small[k]) + np.int64(x.signed[k])


@kernel
def _all(where, n):  # type: ignore[no-untyped-def]
    x = _at(where)
    for k in range(n):
        x.last[k] += _sum(x.within, k) * 1000 + _sum(x.other, k)
        x.other.signed[k] = np.int64(x.first[k]) + np.int64(x.wide[k])


def made(n: int) -> Around:
    def within(by: int) -> Within:
        return Within(np.full(n, 255, np.uint8), -by * np.arange(n, dtype=np.int32))

    wide = np.full(n, (1 << 31) - 1, np.uint32)
    return Around(np.full(n, 0, np.uint16), within(1), np.arange(n, dtype=np.int64), within(7), wide)


def test_a_kernel_sees_and_changes_what_python_has() -> None:
    x = made(5)
    _all(table(x), 5)
    assert x.last.tolist() == [k + (255 - k) * 1000 + 255 - 7 * k for k in range(5)]
    assert x.other.signed.tolist() == [(1 << 31) - 1] * 5
    assert x.within.signed.tolist() == [-k for k in range(5)]


def test_a_column_with_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        table(made(6)._replace(last=np.arange(12)[::2]))

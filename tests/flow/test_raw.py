"""Bare pointers and overflowing numbers in kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.typing import NDArray

from stages.follow.cfg.window_cache import hash_of, home_of
from stages.pointers import addresses, i32_at, load64, product, store64

WORD = st.integers(-(1 << 63), (1 << 63) - 1)


def wrapped(x: int) -> int:
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


@njit
def _homes(words, out):  # type: ignore[no-untyped-def]
    mask = len(words) // 4 - 1  # of a table as long as that: here the compiler drew conclusions from "no overflow"
    for j in range(mask + 1):
        key = np.int64(words[4 * j + 3])
        if key > 0:
            out[j] = home_of(hash_of(words[4 * j], words[4 * j + 1], words[4 * j + 2], key)) & mask


def test_windows_are_spread_as_their_products_say() -> None:
    words = np.random.default_rng(1).integers(-(1 << 63), (1 << 63) - 1, 4 * 1024)
    words[3::4] = np.arange(1, 1025)
    homes = np.zeros(1024, np.int64)
    _homes(words, homes)
    for (a, b, c, key), home in zip(words.reshape(-1, 4).tolist(), homes.tolist(), strict=True):
        both = wrapped(a * -7046029254386353131) ^ wrapped(b * -6939452855193903323)
        window = both ^ wrapped((key << 8 ^ c & 255) * 2685821657736338717)
        assert home == (window >> 54 ^ window >> 40) & 1023
    assert np.bincount(homes).max() < 16


@njit
def _product(x, by):  # type: ignore[no-untyped-def]
    return product(x, by)


@settings(deadline=None)  # it compiles
@given(WORD, WORD)
def test_products_are_modulo_two_to_the_64(x: int, by: int) -> None:
    assert _product(np.int64(x), np.int64(by)) == wrapped(x * by)


@njit
def _stored(where, at, value):  # type: ignore[no-untyped-def]
    numbers = i32_at(where[0])
    store64(numbers, at, value)
    return load64(numbers, at)


@settings(deadline=None)  # it compiles
@given(st.integers(0, 6), WORD)
def test_words_are_stored_anywhere(at: int, value: int) -> None:
    numbers: NDArray[np.int32] = np.full(8, 77, np.int32)
    assert _stored(addresses(numbers), np.int64(at), np.int64(value)) == value
    assert numbers[at : at + 2].view(np.uint32).tolist() == [value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF]
    assert (np.delete(numbers, [at, at + 1]) == 77).all()

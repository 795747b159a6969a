"""Two sequences of bytecodes beside each other, in order.

1. *Anchors.* Sequences of bytecodes, of each length of GRAMS, that come as often in the one as in the other, and at
   most OFTEN times: of those as many as stand in the same order in both (a longest increasing sequence). The long ones
   are for loops whose rounds are alike one by one, but not many of them in a row; several for what a program does
   twice.
2. *Between two anchors* a longest common subsequence (`lcs.py`). Where they differ in too much for that, and from an
   anchor on as far as they go on, equal bytecodes are pairs. Where the two differ, the nearest place within `LOOK`
   bytecodes is taken at which three in a row are the same again; else the nearest within `FAR` at which `FAR_SAME` are;
   else one bytecode of each has no partner (`benchmarks.recovery.compare`). It is done from the beginning on, and from
   the end back; the pairs of the first up to some place, and of the second behind it, are taken, so that they are most.
   No pair reaches over an anchor.

So a pair is equal in method and bci, pairs stand in the same order in both, and no bytecode is in two: they are never
more than a longest common subsequence. Nothing is taken for right because it is alike. Memory is O(n), time
O(n log n + d²), d differences between two anchors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.lcs import DEEP, ROOM, longest_common
from benchmarks.accuracy.methods import I64
from benchmarks.recovery.compare import FAR, FAR_AGAIN, FAR_HEADS, LOOK, far, nearest
from jvm.kernels import inner, kernel

GRAMS = (32, 256, 2048)
OFTEN = 4
FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)


class Pairs(NamedTuple):
    """(p,) positions, ascending, in the one and in the other."""

    one: I64
    other: I64


@kernel
def _grams(sequence, size, out):  # type: ignore[no-untyped-def]
    """The hash of the `size` bytecodes from each position on."""
    power = np.int64(1)
    for _ in range(size):
        power *= np.int64(FACTOR)
    h = np.int64(0)
    for k in range(len(sequence)):
        h = h * np.int64(FACTOR) + sequence[k] + 1
        if k >= size:
            h -= power * (sequence[k - size] + 1)
        if k >= size - 1:
            out[k - size + 1] = h ^ (h >> 29)


@kernel
def _increasing(values, top, before):  # type: ignore[no-untyped-def]
    """The length of a longest increasing sequence: it ends at top[length − 1], and before[k] is before k."""
    length = 0
    for k in range(len(values)):
        low, high = 0, length
        while low < high:
            middle = (low + high) // 2
            if values[top[middle]] < values[k]:
                low = middle + 1
            else:
                high = middle
        before[k] = top[low - 1] if low else -1
        top[low] = k
        length = max(length, low + 1)
    return length


@inner
def _along(one, i, i_end, other, j, j_end, looked, out):  # type: ignore[no-untyped-def]
    """Pairs from (i, j) on, into `out`; how many. `looked`: room for `far`."""
    n, again = 0, i
    while i < i_end and j < j_end:
        if one[i] == other[j]:
            out[n, 0], out[n, 1] = i, j
            n, i, j = n + 1, i + 1, j + 1
            continue
        a, b = nearest(one, i, i_end, other, j, j_end, LOOK, 3)
        if a < 0 and i >= again:
            a, b = far(one, i, i_end, other, j, j_end, looked[:FAR_HEADS], looked[FAR_HEADS:])
            again = i + FAR_AGAIN
        if a >= 0:
            i, j = a, b
        else:
            i, j = i + 1, j + 1
    return n


@inner
def _best(there, n, back, m):  # type: ignore[no-untyped-def]
    """Of the pairs found from the beginning on, and of those found from the end (descending): as many of the first as
    with those of the others that lie behind them make most. How many of each."""
    first, others, k = 0, m, m  # of `back`, the first k lie behind
    for x in range(1, n + 1):
        while k > 0 and (back[k - 1, 0] <= there[x - 1, 0] or back[k - 1, 1] <= there[x - 1, 1]):
            k -= 1
        if x + k > first + others:
            first, others = x, k
    return first, others


@kernel
def _pairs(one, other, one_back, other_back, anchors, looked, ways, parts, back, out):  # type: ignore[no-untyped-def]
    """Fills `out` with positions of pairs; how many they are. `…_back`: from the end to the beginning."""
    n = i = j = 0
    for k in range(len(anchors) + 1):
        last = k == len(anchors)
        i_end, j_end = (len(one), len(other)) if last else (anchors[k, 0], anchors[k, 1])
        if not last and (i_end < i or j_end < j):
            continue  # pairs have gone past it
        found = _along(one, i, i_end, other, j, j_end, looked, out[n:])
        exact = np.int64(0)
        if found < min(i_end - i, j_end - j):
            exact = longest_common(one, i, i_end, other, j, j_end, ways[0], ways[1], parts, out[n:])
            if exact < 0:
                found = _along(one, i, i_end, other, j, j_end, looked, out[n:])
            else:
                found = exact
        if exact < 0:
            a, b = len(one), len(other)
            m = _along(one_back, a - i_end, a - i, other_back, b - j_end, b - j, looked, back)
            for x in range(m):
                back[x, 0], back[x, 1] = a - 1 - back[x, 0], b - 1 - back[x, 1]
            found, m = _best(out[n:], found, back, m)
            for x in range(m):
                out[n + found + x] = back[m - 1 - x]
            found += m
        n += found
        i, j = i_end, j_end
        while i < len(one) and j < len(other) and one[i] == other[j]:
            out[n, 0], out[n, 1] = i, j
            n, i, j = n + 1, i + 1, j + 1
    return n


def _few(sequence: I64, size: int) -> tuple[I64, I64, I64, I64]:
    """Sequences of that length that come at most OFTEN times: their hashes, ascending, how often they come, and the
    first of their places in the last array, in order."""
    grams = np.zeros(max(len(sequence) - size + 1, 0), np.int64)
    if len(grams):
        _grams(sequence, size, grams)
    places = np.argsort(grams, kind="stable")
    h, first, times = np.unique(grams[places], return_index=True, return_counts=True)
    few = times <= OFTEN
    return h[few], times[few], first[few], places


def anchors(one: I64, other: I64) -> NDArray[np.int64]:
    """(n, 2) positions in both."""
    found = [np.zeros((0, 2), np.int64)]
    for size in GRAMS:
        (h, times, at, places), (g, again, to, others) = _few(one, size), _few(other, size)
        _, x, y = np.intersect1d(h, g, assume_unique=True, return_indices=True)
        for k in range(OFTEN):
            both = (times[x] == again[y]) & (times[x] > k)
            found.append(np.column_stack((places[at[x[both]] + k], others[to[y[both]] + k])))
    pairs = np.unique(np.concatenate(found), axis=0)
    top, before = np.zeros(len(pairs) + 1, np.int64), np.zeros(len(pairs), np.int64)
    length = int(_increasing(pairs[:, 1].copy(), top, before))
    chosen = np.zeros(length, np.int64)
    k = int(top[length - 1]) if length else -1
    for n in range(length - 1, -1, -1):
        chosen[n], k = k, int(before[k])
    return pairs[chosen]


def aligned(one: I64, other: I64) -> Pairs:
    """The pairs of (n,) and (m,) bytecodes without events."""
    out = np.zeros((min(len(one), len(other)), 2), np.int64)
    turned = one[::-1].copy(), other[::-1].copy()
    looked, back = np.zeros(FAR_HEADS + FAR, np.int32), np.zeros_like(out)
    ways, parts = np.zeros((2, ROOM), np.int64), np.zeros((DEEP, 5), np.int64)
    n = int(_pairs(one, other, *turned, anchors(one, other), looked, ways, parts, back, out))
    return Pairs(out[:n, 0].copy(), out[:n, 1].copy())

"""How many steps around two places are the same.

All steps that a thread ever took have a hash, and each cell keeps that of the steps up to it: H(p) = FACTOR · H(p − 1)
+ step. So two sequences of a stretch are compared by four hashes, whatever their length, and where they first differ is
found by bisection.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, near
from stages.recover.window import FACTOR, before, behind, stretch

MOST_SHARED = 4096
"""Steps that are compared."""
_PREFIX = np.array([pow(FACTOR, n, 1 << 64) for n in range(MOST_SHARED + 1)], np.uint64).view(np.int64)


@near
def same_behind(w, p, q, n):  # type: ignore[no-untyped-def]
    """Whether the `n` cells behind `p` and those behind `q`, without ties, are the same."""
    mask = len(w.steps) - 1
    h = w.hashes[p & mask] - w.hashes[q & mask]
    return w.hashes[(p + n) & mask] - w.hashes[(q + n) & mask] == h * _PREFIX[n]


@inner
def shared_before(w, p, q):  # type: ignore[no-untyped-def]
    """How many steps up to `p` are those up to `q`, at most MOST_SHARED."""
    n = 0
    while n < MOST_SHARED and p >= 0 and q >= 0:
        first_p, _ = stretch(w, p)
        first_q, _ = stretch(w, q)
        if first_p < 0 or first_q < 0:
            break
        low, high = 0, min(p - first_p + 1, q - first_q + 1, MOST_SHARED - n)
        most = high
        if high > 0 and same_behind(w, p - high, q - high, high):
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            if same_behind(w, p - middle, q - middle, middle):
                low = middle
            else:
                high = middle - 1
        n += low
        if low < most or most <= 0:
            break
        p, q = before(w, p - low + 1), before(w, q - low + 1)
    return n


@inner
def shared_behind(w, p, q):  # type: ignore[no-untyped-def]
    """How many steps from `p` on are those from `q` on, at most MOST_SHARED."""
    n = 0
    while n < MOST_SHARED and p >= 0 and q >= 0:
        first_p, last_p = stretch(w, p)
        first_q, last_q = stretch(w, q)
        if p < first_p or q < first_q or first_p < 0 or first_q < 0:
            break
        low, high = 0, min(last_p - p + 1, last_q - q + 1, MOST_SHARED - n)
        most = high
        if high > 0 and same_behind(w, p - 1, q - 1, high):
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            if same_behind(w, p - 1, q - 1, middle):
                low = middle
            else:
                high = middle - 1
        n += low
        if low < most or most <= 0:
            break
        p, q = behind(w, p + low - 1), behind(w, q + low - 1)
    return n

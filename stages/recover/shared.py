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


@near
def _same(w, p, q, n, ahead):  # type: ignore[no-untyped-def]
    """Whether `n` steps from `p` and `q` on, or up to them, are the same."""
    back = 1 if ahead else n
    return same_behind(w, p - back, q - back, n)


@inner
def _shared(w, p, q, ahead):  # type: ignore[no-untyped-def]
    shared = 0
    while shared < MOST_SHARED and p >= 0 and q >= 0:
        first_p, last_p = stretch(w, p)
        first_q, last_q = stretch(w, q)
        if first_p < 0 or first_q < 0 or p < first_p or q < first_q:
            break
        room = min(last_p - p, last_q - q) if ahead else min(p - first_p, q - first_q)
        room = min(room + 1, MOST_SHARED - shared)
        if room <= 0:
            break
        low, high = 0, room
        if _same(w, p, q, room, ahead):
            low = room
        while low < high:
            middle = (low + high + 1) // 2
            if _same(w, p, q, middle, ahead):
                low = middle
            else:
                high = middle - 1
        shared += low
        if low < room:
            break
        if ahead:
            p, q = behind(w, p + room - 1), behind(w, q + room - 1)
        else:
            p, q = before(w, p - room + 1), before(w, q - room + 1)
    return shared


@near
def shared_before(w, p, q):  # type: ignore[no-untyped-def]
    """How many steps up to `p` are those up to `q`, at most MOST_SHARED."""
    return _shared(w, p, q, False)


@near
def shared_behind(w, p, q):  # type: ignore[no-untyped-def]
    """How many steps from `p` on are those from `q` on, at most MOST_SHARED."""
    return _shared(w, p, q, True)

"""What filled a hole: the search of the window for a stretch that a thread went through from the same beginning to the
same end in about the same time.

1. *Candidates.* The places that share the hole's beginning, its last steps: of all of them the TRIED that share most
   (at most MOST_SHARED steps count; of two that share as much the nearer). They are gathered from the longest chained
   length down, until there are enough: a place that is not chained at a length shares less than that, so it cannot win
   over those that are. That is the pruning of JPortal's Theorem 5.5, with lengths in the place of tiers
   (docs/decisions/0004-recovery.md).
2. *Filling.* From each candidate on, the places behind it where the steps behind the hole are found again: the filling
   would end there. How well it fits is told by how many steps are the same before it and behind it, and by how far its
   length is from that which the thread was expected to take in the hole's time.
3. The best of all is taken. If there is none, the hole stays empty.

The first step behind a hole is not compared: trace is entered in the middle of a block.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import math

import numpy as np

from jvm.kernels import inner, kernel, near
from stages.recover.window import LENGTHS, before, behind, oldest

ANCHOR = LENGTHS[0]
BEHIND = 4
"""So many steps behind the hole must be found again behind the filling."""
TRIED = 32
GATHERED = 256
"""Candidates that are compared, in all."""
MOST_SHARED = 512
MOST_BEHIND = 32
SHORTEST, LONGEST = 0.5, 1.7
"""A filling is so many times as long as expected."""
MOST_STEPS = 1 << 18
"""Of a filling. Of a longer hole no time or place in it would be known."""
MOST_PASSED = 1 << 20
"""Steps that are looked at behind the candidates of one hole."""
WEIGHT_BEFORE, WEIGHT_BEHIND = 0.2, 0.05
"""Of the logarithm of the steps shared before the filling, and of each step behind it, against the logarithm of the
ratio of its length to that expected."""

# A hole
HC = 8
H_TID, H_LAST, H_FIRST, H_EXPECTED, H_SOURCE, H_LENGTH, H_BEFORE, H_BEHIND = range(HC)
"""Thread; positions of the last step before it and of the first behind it; steps expected. Found: the position of the
filling's first step (−1: none), how many they are, how many steps are the same before and behind."""

_LEVELS = len(LENGTHS)
_LENGTHS = np.array([*LENGTHS, MOST_SHARED + 1], np.int64)


@near
def shared_before(w, p, q):  # type: ignore[no-untyped-def]
    """How many steps up to `p` are those up to `q`, at most MOST_SHARED."""
    mask = len(w.steps) - 1
    n = 0
    while n < MOST_SHARED and p >= 0 and q >= 0 and w.steps[p & mask] == w.steps[q & mask]:
        n += 1
        p, q = before(w, p), before(w, q)
    return n


@near
def shared_behind(w, p, q):  # type: ignore[no-untyped-def]
    """How many steps from `p` on are those from `q` on, at most MOST_BEHIND."""
    mask = len(w.steps) - 1
    n = 0
    while n < MOST_BEHIND and p >= 0 and q >= 0 and w.steps[p & mask] == w.steps[q & mask]:
        n += 1
        p, q = behind(w, p), behind(w, q)
    return n


@inner
def candidates(w, last, found, shared):  # type: ignore[no-untyped-def]
    """Places that share the steps up to `last`, and how many; how many places. All those that share most are among
    them, unless there are more than GATHERED."""
    mask = len(w.steps) - 1
    low = oldest(w)
    count = looked = 0
    for n in range(_LEVELS - 1, -1, -1):
        p = q = last
        while (p >= 0 or q >= 0) and looked < GATHERED:
            if p >= 0:
                distance = w.back[n, p & mask]
                p = p - distance if distance and p - distance >= low else -1
            if q >= 0:
                distance = w.ahead[n, q & mask]
                q = q + distance if distance and q + distance < w.size[0] else -1
            for place in (p, q):
                if place >= 0:
                    looked += 1
                    same = shared_before(w, last, place)
                    if _LENGTHS[n] <= same < _LENGTHS[n + 1]:
                        found[count], shared[count] = place, same
                        count += 1
        if count >= TRIED or looked >= GATHERED:
            break
    return count


@inner
def _end_of(w, source, expected, post, passed, best):  # type: ignore[no-untyped-def]
    """Where a filling that begins behind `source` ends best: its length (−1: nowhere better than `best`), its worth
    without what is shared before it, steps shared behind it, steps that were looked at (at most `passed`)."""
    mask = len(w.steps) - 1
    low, high = int(expected * SHORTEST), min(int(expected * LONGEST) + 16, MOST_STEPS, passed)
    length, worth, same = -1, best, 0
    n = 0
    p = behind(w, source)
    next_ = behind(w, p) if p >= 0 else -1
    first = w.steps[post & mask]
    while next_ >= 0 and n <= high:
        if n >= low and w.steps[next_ & mask] == first:
            away = abs(math.log((n + 1) / (expected + 1)))
            if MOST_BEHIND * WEIGHT_BEHIND - away > worth:
                ran = shared_behind(w, next_, post)
                if ran >= BEHIND and ran * WEIGHT_BEHIND - away > worth:
                    length, worth, same = n, ran * WEIGHT_BEHIND - away, ran
        n += 1
        next_ = behind(w, next_)
    return length, worth, same, n


@inner
def _fill(w, hole, found, shared):  # type: ignore[no-untyped-def]
    hole[H_SOURCE], hole[H_LENGTH], hole[H_BEFORE], hole[H_BEHIND] = -1, 0, 0, 0
    last, expected = hole[H_LAST], hole[H_EXPECTED]
    if last < oldest(w) or expected > MOST_STEPS:
        return
    post = behind(w, hole[H_FIRST])
    if post < 0:
        return
    count = candidates(w, last, found, shared)
    key = np.empty(count, np.int64)
    for k in range(count):
        key[k] = (MOST_SHARED - shared[k]) << 40 | abs(last - found[k])
    best, left = -np.inf, MOST_PASSED
    for k in np.argsort(key)[:TRIED]:
        worth = WEIGHT_BEFORE * math.log(shared[k])
        if left <= 0 or worth + MOST_BEHIND * WEIGHT_BEHIND <= best:
            break
        length, ends, same, passed = _end_of(w, found[k], expected, post, left, best - worth)
        left -= passed
        if length >= 0:
            best = worth + ends
            hole[H_SOURCE], hole[H_LENGTH], hole[H_BEFORE], hole[H_BEHIND] = (
                behind(w, found[k]), length, shared[k], same,
            )  # fmt: skip


@kernel
def fill(w, holes, first, last):  # type: ignore[no-untyped-def]
    """Finds the fillings of the `holes` (H_…) from `first` up to `last`."""
    found, shared = np.empty(GATHERED + 2, np.int64), np.empty(GATHERED + 2, np.int64)
    for h in range(first, last):
        _fill(w, holes[h], found, shared)


@kernel
def copied(w, holes, out):  # type: ignore[no-untyped-def]
    """The steps of all fillings, one behind the other."""
    mask = len(w.steps) - 1
    n = 0
    for h in range(len(holes)):
        p = holes[h, H_SOURCE]
        for _ in range(holes[h, H_LENGTH]):
            out[n] = w.steps[p & mask]
            n += 1
            p = behind(w, p)

"""What filled a hole: the search of the window for a stretch that a thread went through from the same beginning to the
same end in about the same time.

1. *Candidates.* The places that share the hole's beginning, its last steps, and those that share its end, the steps
   behind it: of each kind the TRIED that share most (at most MOST_SHARED steps count; of two that share as much the
   nearer). They are gathered from the longest chained length down, until there are enough: a place that is not chained
   at a length shares less than that, so it cannot win over those that are. That is the pruning of JPortal's Theorem
   5.5, with lengths in the place of tiers (docs/decisions/0004-recovery.md).
2. *Filling.* Behind a candidate that shares the beginning, the places where the steps behind the hole are found again:
   the filling would end there. Before one that shares the end, the places where the steps before the hole are. How well
   it fits is told by how many steps are the same before it and behind it, and by how far its length is from that which
   the thread was expected to take in the hole.
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
"""So many steps before the hole must be found again before the filling,"""
BEHIND = 4
"""and so many behind it behind the filling."""
TRIED = 32
GATHERED = 256
"""Candidates that are compared, in all."""
MOST_SHARED = 512
SHORTEST, LONGEST = 0.5, 1.7
"""A filling is so many times as long as expected."""
MOST_STEPS = 1 << 18
"""Of a filling. Of a longer hole no time or place in it would be known."""
MOST_PASSED = 1 << 19
"""Steps that are looked at behind the candidates of one kind for one hole."""
WEIGHT = 0.2
"""Of the logarithms of the steps shared before the filling, and behind it, against the logarithm of the ratio of its
length to that expected."""

# A hole
HC = 8
H_TID, H_LAST, H_FIRST, H_EXPECTED, H_SOURCE, H_LENGTH, H_BEFORE, H_BEHIND = range(HC)
"""Thread; positions of the last step before it and of the first behind it; steps expected. Found: the position of the
filling's first step (−1: none), how many they are, how many steps are the same before and behind."""

_LEVELS = len(LENGTHS)
_LENGTHS = np.array([*LENGTHS, MOST_SHARED + 1], np.int64)
_MOST_WORTH = WEIGHT * math.log(MOST_SHARED)  # of what is shared on one side


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
    """How many steps from `p` on are those from `q` on, at most MOST_SHARED."""
    mask = len(w.steps) - 1
    n = 0
    while n < MOST_SHARED and p >= 0 and q >= 0 and w.steps[p & mask] == w.steps[q & mask]:
        n += 1
        p, q = behind(w, p), behind(w, q)
    return n


@inner
def candidates(w, at, ahead, found, shared):  # type: ignore[no-untyped-def]
    """Places that share the steps up to `at` (with `ahead` those from `at` on), and how many; how many places. All
    those that share most are among them, unless there are more than GATHERED."""
    mask = len(w.steps) - 1
    low = oldest(w)
    count = looked = 0
    for n in range(_LEVELS - 1, -1, -1):
        end = at
        if ahead:  # places are chained by the ends of what they share
            for _ in range(_LENGTHS[n] - 1):
                if end >= 0:
                    end = behind(w, end)
        p = q = end
        while (p >= 0 or q >= 0) and looked < GATHERED:
            if p >= 0:
                distance = w.back[n, p & mask]
                p = p - distance if distance and p - distance >= low else -1
            if q >= 0:
                distance = w.ahead[n, q & mask]
                q = q + distance if distance and q + distance < w.size[0] else -1
            for other in (p, q):
                if other < 0:
                    continue
                looked += 1
                place = other
                if ahead:
                    for _ in range(_LENGTHS[n] - 1):
                        if place >= 0:
                            place = before(w, place)
                    if place < 0:
                        continue
                same = shared_behind(w, at, place) if ahead else shared_before(w, at, place)
                if _LENGTHS[n] <= same < _LENGTHS[n + 1]:
                    found[count], shared[count] = place, same
                    count += 1
        if count >= TRIED or looked >= GATHERED:
            break
    return count


@inner
def _end_of(w, source, expected, post, left, least):  # type: ignore[no-untyped-def]
    """Where a filling that begins behind `source` ends best: its length (−1: nowhere worth more than `least`), how much
    that is worth, the steps shared behind it, and how many steps were looked at (about `left` at most)."""
    mask = len(w.steps) - 1
    low, high = int(expected * SHORTEST), min(int(expected * LONGEST) + 16, MOST_STEPS, left)
    length, worth, shared = -1, least, 0
    n = 0
    p = behind(w, source)
    p = behind(w, p) if p >= 0 else -1
    while p >= 0 and n <= high:
        if n >= low and w.steps[p & mask] == w.steps[post & mask]:
            away = abs(math.log((n + 1) / (expected + 1)))
            if _MOST_WORTH - away > worth:
                same = shared_behind(w, p, post)
                if same >= BEHIND and WEIGHT * math.log(same) - away > worth:
                    length, worth, shared = n, WEIGHT * math.log(same) - away, same
        n += 1
        p = behind(w, p)
    return length, worth, shared, n


@inner
def _begin_of(w, place, expected, last, left, least):  # type: ignore[no-untyped-def]
    """As `_end_of`, of a filling that ends before `place`; and the position of the step before it."""
    mask = len(w.steps) - 1
    low, high = int(expected * SHORTEST), min(int(expected * LONGEST) + 16, MOST_STEPS, left)
    length, worth, shared, source = -1, least, 0, -1
    n = 0
    p = before(w, place)
    p = before(w, p) if p >= 0 else -1
    while p >= 0 and n <= high:
        if n >= low and w.steps[p & mask] == w.steps[last & mask]:
            away = abs(math.log((n + 1) / (expected + 1)))
            if _MOST_WORTH - away > worth:
                same = shared_before(w, p, last)
                if same >= ANCHOR and WEIGHT * math.log(same) - away > worth:
                    length, worth, shared, source = n, WEIGHT * math.log(same) - away, same, p
        n += 1
        p = before(w, p)
    return length, worth, shared, source, n


@inner
def _best_first(at, found, shared, count):  # type: ignore[no-untyped-def]
    """The order in which candidates are tried."""
    key = np.empty(count, np.int64)
    for k in range(count):
        key[k] = (MOST_SHARED - shared[k]) << 40 | abs(at - found[k])
    return np.argsort(key)[:TRIED]


@inner
def _fill(w, hole, found, shared):  # type: ignore[no-untyped-def]
    hole[H_SOURCE], hole[H_LENGTH], hole[H_BEFORE], hole[H_BEHIND] = -1, 0, 0, 0
    last, expected = hole[H_LAST], hole[H_EXPECTED]
    if last < oldest(w) or expected > MOST_STEPS:
        return
    post = behind(w, hole[H_FIRST])
    if post < 0:
        return
    best, left = -np.inf, MOST_PASSED
    count = candidates(w, last, False, found, shared)
    for k in _best_first(last, found, shared, count):
        worth = WEIGHT * math.log(shared[k])
        if left <= 0 or worth + _MOST_WORTH <= best:
            break
        length, ends, same, passed = _end_of(w, found[k], expected, post, left, best - worth)
        left -= passed
        if length >= 0:
            best = worth + ends
            hole[H_SOURCE], hole[H_LENGTH], hole[H_BEFORE], hole[H_BEHIND] = (
                behind(w, found[k]), length, shared[k], same,
            )  # fmt: skip
    left = MOST_PASSED
    count = candidates(w, post, True, found, shared)
    for k in _best_first(post, found, shared, count):
        worth = WEIGHT * math.log(shared[k])
        if left <= 0 or worth + _MOST_WORTH <= best or shared[k] < BEHIND:
            break
        length, begins, same, source, passed = _begin_of(w, found[k], expected, last, left, best - worth)
        left -= passed
        if length >= 0:
            best = worth + begins
            hole[H_SOURCE], hole[H_LENGTH], hole[H_BEFORE], hole[H_BEHIND] = (
                behind(w, source), length, same, shared[k],
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

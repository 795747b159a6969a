"""What filled a hole: the search of the window for a stretch that a thread went through from the same beginning to the
same end with about as much trace.

1. *Candidates.* The places that share the hole's beginning, its last steps, and those that share its end, the steps
   behind it: of each kind the TRIED that share most (at most MOST_SHARED steps count; of two that share as much the
   nearer). They are gathered from the longest chained length down, until there are enough: a place that is not chained
   at a length shares less than that, so it cannot win over those that are. That is the pruning of JPortal's Theorem
   5.5, with lengths in the place of tiers (docs/decisions/0004-recovery.md).
2. *Filling.* Behind a candidate that shares the beginning, the places where the steps behind the hole are found again:
   the filling would end there. Before one that shares the end, the places where the steps before the hole are. How well
   it fits is told by how many steps are the same before it and behind it, and by how far its size in bytes of trace is
   from what was lost (`stages.recover.trace_size`); of a hole of which only the time is known, from what the thread
   writes in that time.
3. The best of all is taken. If there is none, the hole stays empty.

The first step behind a hole is not compared: trace is entered in the middle of a block.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import math

import numpy as np

from jvm.kernels import inner, kernel, near
from stages.recover.shared import MOST_SHARED, same_behind, shared_before, shared_behind
from stages.recover.window import (
    LENGTHS,
    back,
    before,
    behind,
    oldest,
    onward,
    size_between,
    steps_back,
    steps_on,
    stretch,
)

ANCHOR = LENGTHS[0]
"""So many steps before the hole must be found again before the filling,"""
BEHIND = 4
"""and so many behind it behind the filling."""
TRIED = 32
GATHERED = 256
"""Candidates that are compared, in all."""
COUNTED_FACTOR, TIMED_FACTOR = 1.25, 2.0
"""A filling is at most so many times as large as expected, or as small: in a hole of which the bytes are known, and in
one of which only the time is."""
SLACK = 16
"""Units by which what is expected may be wrong in any case: a hole begins and ends in the middle of packets."""
MOST_STEPS, MOST_SIZE = 1 << 18, 1 << 22
"""Of a filling. Of a longer hole no time or place in it would be known."""
MOST_PASSED = 1 << 19
"""Steps that are looked at behind the candidates of one kind for one hole."""
WEIGHT, COUNTED, TIMED = 0.2, 2.0, 1.0
"""Of the logarithms of the steps shared before the filling, and behind it; of the logarithm of the ratio of its size to
that expected."""

# A hole
HC = 9
H_TID, H_LAST, H_FIRST, H_COUNTED, H_EXPECTED, H_SOURCE, H_LENGTH, H_BEFORE, H_BEHIND = range(HC)
"""Thread; positions of the last step before it and of the first behind it; whether its bytes are known; the size
expected (units of `trace_size`). Found: the position of the filling's first step (−1: none), how many they are, how
many steps are the same before and behind."""

_LEVELS = len(LENGTHS)
_LENGTHS = np.array([*LENGTHS, MOST_SHARED + 1], np.int64)
_MOST_WORTH = WEIGHT * math.log(MOST_SHARED)  # of what is shared on one side


@near
def _away(size, hole):  # type: ignore[no-untyped-def]
    """The loss of worth of a filling of that size."""
    weight = COUNTED if hole[H_COUNTED] else TIMED
    return weight * abs(math.log((size + SLACK) / (hole[H_EXPECTED] + SLACK)))


@near
def _need(worth):  # type: ignore[no-untyped-def]
    """How many steps must be shared for that."""
    if worth >= _MOST_WORTH:
        return MOST_SHARED + 1
    return int(math.exp(worth / WEIGHT)) if worth > 0 else 1


@near
def _sizes(hole, least):  # type: ignore[no-untyped-def]
    """Between which sizes a filling may be worth more than `least`, when all is shared at its other end."""
    factor = COUNTED_FACTOR if hole[H_COUNTED] else TIMED_FACTOR
    weight = COUNTED if hole[H_COUNTED] else TIMED
    if least > -np.inf:
        factor = max(1.0, min(factor, math.exp((_MOST_WORTH - least) / weight)))
    expected = hole[H_EXPECTED] + SLACK
    return math.ceil(expected / factor) - SLACK, int(expected * factor) - SLACK


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
            end = steps_on(w, at, _LENGTHS[n] - 1)
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
                    place = steps_back(w, place, _LENGTHS[n] - 1)
                    if place < 0:
                        continue
                same = shared_behind(w, at, place) if ahead else shared_before(w, at, place)
                if _LENGTHS[n] <= same < _LENGTHS[n + 1]:
                    found[count], shared[count] = place, same
                    count += 1
        if count >= TRIED or looked >= GATHERED:
            break
    return count


@near
def _same_steps(w, p, q, room, need, ahead):  # type: ignore[no-untyped-def]
    """Whether `need` steps may be the same from `p` and `q` on (or up to them), of which `room` stand together."""
    n = min(need, room)
    return same_behind(w, p - 1, q - 1, n) if ahead else same_behind(w, p - n, q - n, n)


@inner
def _last_within(w, source, p, last, size):  # type: ignore[no-untyped-def]
    """Of the steps from `p` up to `last`, which stand together: the last at which not more than `size` was taken since
    that at `source`; p − 1: none."""
    low, high = p - 1, last
    while low < high:
        middle = (low + high + 1) // 2
        if size_between(w, source, middle) <= size:
            low = middle
        else:
            high = middle - 1
    return low


@inner
def _first_within(w, end, first, p, size):  # type: ignore[no-untyped-def]
    """Of the steps from `first` up to `p`: the first since which not more than `size` was taken up to `end`."""
    low, high = first, p + 1
    while low < high:
        middle = (low + high) // 2
        if size_between(w, middle, end) <= size:
            high = middle
        else:
            low = middle + 1
    return low


@inner
def _end_of(w, source, hole, post, left, least):  # type: ignore[no-untyped-def]
    """Where a filling that begins behind `source` ends best: its length (−1: nowhere worth more than `least`), how much
    that is worth, the steps shared behind it, and how many steps were looked at (about `left` at most). All that can be
    said of a stretch at once is said before its steps are looked at: there are tens of thousands of them to a hole."""
    mask = len(w.steps) - 1
    length, worth, shared, looked = -1, least, 0, 0
    _, post_last = stretch(w, post)
    value, fewest = w.steps[post & mask], _need(least)
    low, high = _sizes(hole, least)
    end, n = onward(w, source, low)
    p = behind(w, end) if end >= 0 else -1  # the block that the trace behind the hole enters in its middle
    p = behind(w, p) if p >= 0 else -1
    while p >= 0 and n <= MOST_STEPS and looked <= left and fewest <= MOST_SHARED:
        _, last = stretch(w, p)
        last = max(last, p)
        to = min(last, p + min(MOST_STEPS - n, left - looked))
        to = min(to, _last_within(w, source, p, to, high) + 2)
        for q in range(p, to + 1):
            if w.steps[q & mask] != value:
                continue
            if not _same_steps(w, q, post, min(last - q, post_last - post) + 1, fewest, True):
                continue
            size = size_between(w, source, before(w, before(w, q)))
            if size > high:
                break
            away = _away(size, hole)
            same = shared_behind(w, q, post)
            if same >= BEHIND and WEIGHT * math.log(same) - away > worth:
                length, worth, shared = n + q - p, WEIGHT * math.log(same) - away, same
                fewest = _need(worth)
        if to < last:
            looked += to - p + 1
            break
        n += last - p + 1
        looked += last - p + 1
        p = behind(w, last)
    return length, worth, shared, looked


@inner
def _begin_of(w, place, hole, last, left, least):  # type: ignore[no-untyped-def]
    """As `_end_of`, of a filling that ends before `place`; and the position of the step before it."""
    mask = len(w.steps) - 1
    length, worth, shared, source, looked = -1, least, 0, -1, 0
    last_first, _ = stretch(w, last)
    value, fewest = w.steps[last & mask], _need(least)
    low, high = _sizes(hole, least)
    end = before(w, place)
    end = before(w, end) if end >= 0 else -1
    p, n = back(w, end, low)
    while p >= 0 and n <= MOST_STEPS and looked <= left and fewest <= MOST_SHARED:
        first, _ = stretch(w, p)
        if first < 0 or first > p:
            break
        to = max(first, p - min(MOST_STEPS - n, left - looked))
        to = max(to, _first_within(w, end, to, p, high))
        for q in range(p, to - 1, -1):
            if w.steps[q & mask] != value:
                continue
            if not _same_steps(w, q, last, min(q - first, last - last_first) + 1, fewest, False):
                continue
            away = _away(size_between(w, q, end), hole)
            same = shared_before(w, q, last)
            if same >= ANCHOR and WEIGHT * math.log(same) - away > worth:
                length, worth, shared, source = n + p - q, WEIGHT * math.log(same) - away, same, q
                fewest = _need(worth)
        looked += p - to + 1
        if to > first:
            break
        n += p - first + 1
        p = before(w, first)
    return length, worth, shared, source, looked


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
    last = hole[H_LAST]
    if last < oldest(w) or hole[H_EXPECTED] > MOST_SIZE:
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
        length, ends, same, passed = _end_of(w, found[k], hole, post, left, best - worth)
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
        length, begins, same, source, passed = _begin_of(w, found[k], hole, last, left, best - worth)
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

"""A feasible way through a hole for which no place in the window fits: the likeliest one by the edges that were seen.

An *edge* is two steps that ran one behind the other. From each step the edges behind it were taken so and so often in
the window; a way is as likely as the product of these shares, so the likeliest is the shortest if an edge is as long as
the logarithm of its share is small: Dijkstra's algorithm, from the last step before the hole to the first that is
compared behind it. Nothing else is known of such a hole, so the way is told as GUESSED, and not at all where it would
take more trace than was lost.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.recover.filling import H_EXPECTED, H_FIRST, H_LAST, SLACK
from stages.recover.window import behind, oldest

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
MOST_EDGES = 1 << 16
"""That are known; others are not learnt."""
MOST_SETTLED = 1 << 12
"""Steps to which the likeliest way is found, for one hole."""
_UNSEEN = -1
_SLOTS = 2 * MOST_EDGES


class Edges(NamedTuple):
    """Of one process. Dropped with its generation."""

    slots: I32  # (_SLOTS,) by hash of both steps: edge + 1; 0: none
    edges: I32  # (MOST_EDGES, 3) from, to, the next edge with the same beginning + 1
    times: I64  # (MOST_EDGES,)
    first: I32  # (steps,) its first edge + 1
    left: I64  # (steps,) how often it was left
    away: NDArray[np.float64]  # (steps,) scratch of the search: −1 but during it
    prior: I32  # (steps,) scratch
    size: I64  # (2,) edges known; up to this position of the window they are counted


def empty() -> Edges:
    return Edges(
        np.zeros(_SLOTS, np.int32), np.zeros((MOST_EDGES, 3), np.int32), np.zeros(MOST_EDGES, np.int64),
        np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float64), np.zeros(0, np.int32),
        np.zeros(2, np.int64),
    )  # fmt: skip


def with_room(e: Edges, steps: int) -> Edges:
    """The same edges, with room for so many steps."""
    more = steps - len(e.first)
    if more <= 0:
        return e
    more += steps  # doubles
    return e._replace(
        first=np.append(e.first, np.zeros(more, np.int32)), left=np.append(e.left, np.zeros(more, np.int64)),
        away=np.full(len(e.away) + more, float(_UNSEEN)), prior=np.zeros(len(e.prior) + more, np.int32),
    )  # fmt: skip


@kernel
def count(w, e, most):  # type: ignore[no-untyped-def]
    """The edges of the window that are not counted yet, of `most` steps; whether all are."""
    mask = len(w.steps) - 1
    p = max(e.size[1], oldest(w))
    end = min(p + most, w.size[0])
    while p < end:
        a = w.steps[p & mask]
        q = behind(w, p) if a >= 0 else -1
        if q < 0 and a >= 0 and p == w.size[0] - 1:
            break  # it may go on
        if q >= 0:
            _add(e, a, w.steps[q & mask])
        p += 1
    e.size[1] = p
    return p >= w.size[0] - 1


@inner
def _add(e, a, b):  # type: ignore[no-untyped-def]
    h = (np.int64(a) * 0x9E3779B1 ^ np.int64(b) * 0x85EBCA77) & (_SLOTS - 1)
    while e.slots[h]:
        k = e.slots[h] - 1
        if e.edges[k, 0] == a and e.edges[k, 1] == b:
            e.times[k] += 1
            e.left[a] += 1
            return
        h = (h + 1) & (_SLOTS - 1)
    k = e.size[0]
    if k == MOST_EDGES:
        return
    e.size[0] = k + 1
    e.slots[h] = k + 1
    e.edges[k, 0], e.edges[k, 1], e.edges[k, 2] = a, b, e.first[a]
    e.first[a] = k + 1
    e.times[k] = 1
    e.left[a] += 1


@kernel
def likeliest(e, a, b):  # type: ignore[no-untyped-def]
    """The steps between `a` and `b` on the likeliest way from one to the other: none if there is none within
    MOST_SETTLED steps. From `a` on at least one edge is gone, if `b` is the same step."""
    seen = [a]
    heap = [(0.0, a)]
    settled, found = 0, False
    e.prior[a] = -1
    while len(heap) > 0 and settled < MOST_SETTLED:
        away, step = heappop(heap)
        if step == b and settled > 0:
            found = True
            break
        if e.away[step] >= 0 and away > e.away[step]:
            continue  # a shorter way to it was gone
        settled += 1
        k = e.first[step]
        while k:
            to = e.edges[k - 1, 1]
            total = away + math.log(e.left[step] / e.times[k - 1])
            if e.away[to] < 0 or total < e.away[to]:
                if e.away[to] < 0:
                    seen.append(to)
                e.away[to] = total
                e.prior[to] = step
                heappush(heap, (total, to))
            k = e.edges[k - 1, 2]
    n = 0
    if found:
        step = e.prior[b]
        while step != a:
            n += 1
            step = e.prior[step]
    out = np.empty(n, np.int32)
    if found:
        step = e.prior[b]
        for k in range(n - 1, -1, -1):
            out[k] = step
            step = e.prior[step]
    for step in seen:
        e.away[step] = _UNSEEN
    return out


def guess(w: NamedTuple, e: Edges, hole: I64) -> I32:
    """(n,) steps in the hole (H_…), which the window does not fill; none: there is no guess."""
    return _guess(w, e, hole)  # type: ignore[no-any-return]


@kernel
def _guess(w, e, hole):  # type: ignore[no-untyped-def]
    mask = len(w.steps) - 1
    nothing = np.empty(0, np.int32)
    last, first = hole[H_LAST], hole[H_FIRST]
    post = behind(w, first)
    if last < oldest(w) or post < 0:
        return nothing
    way = likeliest(e, w.steps[last & mask], w.steps[post & mask])
    if len(way) < 2 or len(way) - 1 > hole[H_EXPECTED] + SLACK:
        return nothing
    return way[:-1]  # the last is the block in the middle of which the trace behind the hole begins

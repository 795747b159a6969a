"""The search as JPortal publishes it (PLDI'21, Algorithm 3, and "Recovery" behind Algorithm 4), for comparison.

Every place in the window is compared with the hole's beginning, step by step. The fillings of those that share most are
tried, the longest first, and end where the first BEHIND steps behind the hole are found; one that has not come there
in the hole's time is given up.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import kernel
from stages.recover.filling import (
    ANCHOR,
    BEHIND,
    H_BEFORE,
    H_BEHIND,
    H_EXPECTED,
    H_FIRST,
    H_LAST,
    H_LENGTH,
    H_SOURCE,
    MOST_SIZE,
    MOST_STEPS,
    TIMED_FACTOR,
    TRIED,
)
from stages.recover.shared import shared_before, shared_behind
from stages.recover.window import behind, oldest, size_between


@kernel
def fill(w, holes, first, end):  # type: ignore[no-untyped-def]
    """As `stages.recover.filling.fill`."""
    mask = len(w.steps) - 1
    for h in range(first, end):
        hole = holes[h]
        hole[H_SOURCE], hole[H_LENGTH], hole[H_BEFORE], hole[H_BEHIND] = -1, 0, 0, 0
        last, low = hole[H_LAST], oldest(w)
        if last < low or hole[H_EXPECTED] > MOST_SIZE:
            continue
        post = behind(w, hole[H_FIRST])
        shared = np.zeros(TRIED, np.int64)  # descending
        places = np.full(TRIED, -1, np.int64)
        for p in range(low, w.size[0]):
            if p == last or w.steps[p & mask] != w.steps[last & mask]:
                continue
            same = shared_before(w, last, p)
            if same < ANCHOR or same <= shared[TRIED - 1]:
                continue
            k = TRIED - 1
            while k > 0 and shared[k - 1] < same:
                shared[k], places[k] = shared[k - 1], places[k - 1]
                k -= 1
            shared[k], places[k] = same, p
        for k in range(TRIED):
            if places[k] < 0 or post < 0:
                break
            p = behind(w, places[k])
            source, n = p, 0
            p = behind(w, p) if p >= 0 else -1
            while p >= 0 and n <= MOST_STEPS and size_between(w, places[k], p) <= hole[H_EXPECTED] * TIMED_FACTOR:
                if w.steps[p & mask] == w.steps[post & mask] and shared_behind(w, p, post) >= BEHIND:
                    hole[H_SOURCE], hole[H_LENGTH], hole[H_BEFORE], hole[H_BEHIND] = source, n, shared[k], BEHIND
                    break
                n += 1
                p = behind(w, p)
            if hole[H_SOURCE] >= 0:
                break

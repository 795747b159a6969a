"""How often each path of an order was taken, and the time spent in it."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.follow.cfg.graph import (
    BL,
    BL_RANGE,
    BL_RANGES,
    PA,
    PA_FLAGS,
    PA_LEN,
    PA_POOL,
    PATH_OF_PATHS,
    Tables,
    raw_tables,
)


class Taken(NamedTuple):
    """By path: how often it was taken, and TSC ticks; the sum of the times; instructions of all."""

    paths: NDArray[np.int64]
    times: NDArray[np.int64]
    ticks: NDArray[np.float64]
    taken: int
    instructions: int


NOTHING = Taken(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float64), 0, 0)


class PathCounts:
    """Adds up orders, one after the other. Of paths made of paths it counts those."""

    def __init__(self, paths: int) -> None:
        """`paths`: the most there can be."""
        self._times = np.zeros(paths, np.int64)  # by path id; zeros between two orders, like the next
        self._spent = np.zeros(paths, np.float64)
        self._seen = np.empty(paths, np.int64)  # ids, in the order in which they came; the next two are of those
        self._n = np.empty(paths, np.int64)
        self._ticks = np.empty(paths, np.float64)

    def __call__(
        self, tables: Tables, order: NDArray[np.int32], stops: NDArray[np.int64], ticks: NDArray[np.int64]
    ) -> Taken:
        """`stops` are ascending indexes in `order`; `ticks[k]` passed between `stops[k]` and `stops[k + 1]` and are
        shared by the paths there in proportion to their instructions."""
        t = tables
        args = (order, stops, ticks, t.path_instrs, t.path, t.pool)
        n, taken, instructions = _count(*args, self._times, self._spent, self._seen, self._n, self._ticks)
        return Taken(self._seen[:n].copy(), self._n[:n].copy(), self._ticks[:n].copy(), taken, instructions)


@inner
def _of_parts(n, instrs, path, pool, times, spent, seen):  # type: ignore[no-untyped-def]
    """Move the sums of paths made of paths to the paths that they are made of."""
    plain, end = 0, n
    for j in range(n):
        x = seen[j]
        if not path[x * PA + PA_FLAGS] & PATH_OF_PATHS:
            seen[plain] = x
            plain += 1
            continue
        rate = spent[x] / instrs[x] if instrs[x] else 0.0
        first = np.int64(path[x * PA + PA_POOL])
        for k in range(first, first + path[x * PA + PA_LEN]):
            part = np.int64(pool[k])
            if times[part] == 0:
                seen[end] = part
                end += 1
            times[part] += times[x]
            if rate > 0:
                spent[part] += rate * instrs[part]
        times[x], spent[x] = 0, 0.0
    for j in range(n, end):
        seen[plain] = seen[j]
        plain += 1
    return plain


@kernel
def _count(order, stops, ticks, instrs, path, pool, times, spent, seen, n_seen, ticks_seen):  # type: ignore[no-untyped-def]
    n = np.int64(0)  # a plain number would have `_of_parts` compiled twice
    for k in range(len(stops) - 1):
        total = np.int64(0)
        last = np.int64(0)
        for j in range(stops[k], stops[k + 1]):
            x = np.int64(order[j])
            if x >= 0:
                last = x
                if times[x] == 0:
                    seen[n] = x
                    n += 1
                times[x] += 1
                total += instrs[x]
            else:
                times[last] -= x
                total -= x * instrs[last]
        if total == 0 or ticks[k] == 0:
            continue
        rate = ticks[k] / total
        for j in range(stops[k], stops[k + 1]):
            x = np.int64(order[j])
            if x >= 0:
                last = x
                spent[x] += rate * instrs[x]
            else:
                spent[last] -= rate * x * instrs[last]
    n = _of_parts(n, instrs, path, pool, times, spent, seen)
    taken, instructions = np.int64(0), np.int64(0)
    for j in range(n):
        x = seen[j]
        n_seen[j], ticks_seen[j] = times[x], spent[x]
        taken += times[x]
        instructions += times[x] * instrs[x]
        times[x], spent[x] = 0, 0.0
    return n, taken, instructions


@kernel
def spread(seen, times, spent, where, lo, hi, instrs, ticks):  # type: ignore[no-untyped-def]
    t = raw_tables(where)
    n = 0
    for j in range(len(seen)):
        p = seen[j]
        total = t.path_instrs[p]
        for k in range(t.path[p * PA + PA_LEN]):
            s = np.int64(t.pool[t.path[p * PA + PA_POOL] + k])
            for r in range(t.block[s * BL + BL_RANGES]):
                if len(lo):
                    x = np.int64(t.block[s * BL + BL_RANGE]) + r
                    lo[n] = t.ranges[3 * x]
                    hi[n] = t.ranges[3 * x + 1]
                    instrs[n] = t.ranges[3 * x + 2] * times[j]
                    ticks[n] = spent[j] * t.ranges[3 * x + 2] / total if total else 0.0
                n += 1
    return n

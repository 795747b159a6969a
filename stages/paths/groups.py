"""The rows of a `Paths` by thread and pane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.messages import Paths
from stages.paths.counts import Rows
from stages.paths.dictionary import spans

GROUP_DTYPE = np.dtype([("pane", "<i8"), ("tid", "<i4"), ("_", "<i4")])


def grouped(message: Paths, ticks: int) -> tuple[NDArray[np.void], Rows]:
    """The distinct (pane, thread) of a message, and its rows in that order. A row that crosses into another pane is cut
    at its first stop there. A thread never goes back to a pane: of what it ran the order is what counts, and the clock
    of a piece may begin behind that of the one before."""
    rows = message.rows
    stop, stop_end = rows["stop"], rows["stop_end"]
    pane = _forward(message.stops["tsc"] // np.uint64(ticks), rows)
    if len(pane):
        changes = np.flatnonzero(pane[1:] != pane[:-1]) + 1
        owner = np.searchsorted(stop_end, changes, "right")
        inside = (changes > stop[np.minimum(owner, len(rows) - 1)]) & (
            changes < stop_end[np.minimum(owner, len(rows) - 1)] - 1
        )
        changes, owner = changes[inside], owner[inside]
        part = np.concatenate((np.arange(len(rows)), owner))
        begin = np.concatenate((stop, changes))
        in_order = np.lexsort((begin, part))
        part, begin = part[in_order], begin[in_order]
        last = np.append(part[1:] != part[:-1], True)
        end = np.where(last, stop_end[part], np.append(begin[1:], 0) + 1)
    else:
        part, begin, end = np.arange(len(rows)), stop, stop_end
    keys = np.zeros(len(part), GROUP_DTYPE)
    keys["pane"], keys["tid"] = pane[begin], rows["tid"][part]
    groups, group = np.unique(keys, return_inverse=True)
    in_order = np.argsort(group, kind="stable")
    part = part[in_order]
    return groups, Rows(
        group[in_order].astype(np.int32), begin[in_order], end[in_order], rows["broken"][part].copy(),
        rows["broken_end"][part].copy(), part,
    )  # fmt: skip


def _forward(pane: NDArray[np.uint64], rows: NDArray[np.void]) -> NDArray[np.int64]:
    """(stops,) panes, each at least that of the thread's stop before, the ends of rows not counted."""
    count = (rows["stop_end"] - rows["stop"]).astype(np.int64)
    _, thread = np.unique(rows["tid"], return_inverse=True)
    of = np.repeat(thread, count)
    in_order = np.argsort(of, kind="stable")
    at, _ = spans(rows["stop"].astype(np.int64), count)
    out = np.zeros(len(pane), np.int64)
    levels, level = np.unique(pane[at], return_inverse=True)
    level[np.cumsum(count)[count > 1] - 1] = 0
    latest = np.maximum.accumulate(of[in_order] * np.int64(len(levels)) + level[in_order])
    out[at[in_order]] = levels[latest % max(len(levels), 1)]
    return out

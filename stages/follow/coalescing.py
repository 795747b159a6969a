"""Pieces of a thread's trace that follow each other, as one: the work per piece is done less often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stages.messages import Pieces, Segment, ThreadKey

MOST = 1 << 20
"""Bytes of joined pieces."""
TOGETHER = 5
"""Quanta. Patches are put back, and entries shut, as of the time at which joined pieces begin."""
I64 = NDArray[np.int64]


def runs(rows: NDArray[np.void], quantum: int, changes: Sequence[int] | None = None) -> tuple[I64, I64]:
    """(k,) first rows and (k,) rows behind the last of the runs in `Pieces.rows`, in order of time. The rows of a run
    lie behind each other in one stream and end in one quantum (ticks); or, with `changes`, in up to `TOGETHER` quanta
    without one: these are the numbers, ascending, of the quanta that end with other code than the one before."""
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    size = rows["end"] - rows["begin"]
    ends_in = rows["tsc_end"] // np.uint64(quantum)
    together = np.ones(len(rows) - 1, np.bool_)
    if changes is not None:
        code = np.searchsorted(np.array(changes, np.uint64), ends_in, "right")
        together, ends_in = code[1:] == code[:-1], ends_in // np.uint64(TOGETHER)
    before, after = rows[:-1], rows[1:]
    follows = (
        (after["tid"] == before["tid"])
        & (after["stream"] == before["stream"])
        & (after["continues"] != 0)
        & (after["offset"] == before["offset"] + size[:-1].astype(np.uint64))
        & (after["tsc"] == before["tsc_end"])  # no time between
        & (ends_in[1:] == ends_in[:-1])
        & together
        & (after["begin"] == before["end"])
        & (after["mark"] == before["mark_end"])
    )
    first = np.flatnonzero(np.append(True, ~follows))
    behind = np.append(first[1:], len(rows))
    if (rows["end"][behind - 1] - rows["begin"][first]).max() > MOST:
        first, behind = _cut(first, behind, size)
    order = _in_time(rows[first])
    return first[order], behind[order]


def _in_time(rows: NDArray[np.void]) -> I64:
    """Their order; rows that begin at one time in one stream go by their bytes."""
    order = np.argsort(rows["tsc"], kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    out = np.empty_like(order)
    out[place[np.lexsort((place, rows["stream"]))]] = np.lexsort((rows["offset"], rows["stream"]))
    return out


def _cut(first: I64, behind: I64, size: I64) -> tuple[I64, I64]:
    """Runs of more than `MOST` bytes in several."""
    begins, ends = [], []
    for a, b in zip(first.tolist(), behind.tolist(), strict=True):
        begin = a
        for k in range(a + 1, b):
            if size[begin : k + 1].sum() > MOST:
                begins.append(begin)
                ends.append(k)
                begin = k
        begins.append(begin)
        ends.append(b)
    return np.array(begins, np.int64), np.array(ends, np.int64)


def segments(
    pieces: Pieces, quantum: int, changes: Sequence[int] | None = None
) -> Iterator[tuple[Segment, int, int]]:  # fmt: skip
    """Each of the `runs` as one segment piece, a view, with its rows [first, behind)."""
    first, behind = runs(pieces.rows, quantum, changes)
    heads, tails = pieces.rows[first], pieces.rows[behind - 1]
    columns = (
        first, behind, heads["tid"], heads["stream"], heads["number"], heads["offset"], heads["begin"], tails["end"],
        heads["mark"], tails["mark_end"], heads["last_ip"], heads["tsc"], tails["tsc_end"], heads["continues"],
        heads["arrival"],
    )  # fmt: skip
    for a, b, tid, stream, number, offset, begin, end, mark, mark_end, last_ip, tsc, tsc_end, continues, arrival in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        thread = ThreadKey(pieces.host, pieces.pid, tid)
        data, marks = pieces.data[begin:end], pieces.marks[mark:mark_end]
        yield (
            Segment(
                thread, pieces.streams[stream], number, offset, data, marks, last_ip, tsc, tsc_end, bool(continues),
                arrival=arrival,
            ),
            a,
            b,
        )  # fmt: skip

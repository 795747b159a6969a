"""How often each block of an order was executed, and left which way, and the time spent in it."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.messages.paths import FIRST_PATH, PathKind, Way
from stages.paths.dictionary import Dictionary

I64 = NDArray[np.int64]
WAYS = len(Way)
_OF_PATHS = int(PathKind.OF_PATHS)
_FIRST = FIRST_PATH


class Executed(NamedTuple):
    """Columns of equal length: in this group this block was left this way so many times; TSC ticks spent in it then."""

    group: NDArray[np.int32]
    block: I64
    way: NDArray[np.int32]
    times: I64
    ticks: NDArray[np.float64]


class Rows(NamedTuple):
    """Columns of equal length, a part of an order each, in the order of their groups (ascending). Its stops and its
    suspect parts, by position: [stop, stop_end), [broken, broken_end). Of which row of the message it is a part."""

    group: NDArray[np.int32]
    stop: I64
    stop_end: I64
    broken: I64
    broken_end: I64
    row: I64


class BlockCounts:
    """Adds up orders. Scratch memory grows with the dictionaries and is zero between two calls."""

    def __init__(self) -> None:
        self._path_times, self._path_ticks = np.zeros(0, np.int64), np.zeros(0, np.float64)
        self._block_times, self._block_ticks = np.zeros(0, np.int64), np.zeros(0, np.float64)
        self._seen = np.zeros(0, np.int64)
        self._touched = np.zeros(0, np.int64)
        self._out = self._room(1 << 12)

    @staticmethod
    def _room(n: int) -> tuple[NDArray[np.int32], I64, I64, NDArray[np.float64]]:
        return np.zeros(n, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n)

    def __call__(
        self, d: Dictionary, rows: Rows, order: NDArray[np.int32], at: I64, tsc: I64, confirmed: I64, broken: I64
    ) -> Executed:
        """`at`, `tsc`: the stops. `confirmed`, `broken`: order [confirmed, broken) is suspect, and left out. Ticks
        between two stops are shared by the paths between them, and by a path's blocks, in proportion to their
        instructions."""
        paths, links, blocks = d.paths.rows, d.links.rows, d.blocks.rows
        if len(paths) > len(self._path_times):
            n = 2 * len(paths)
            self._path_times, self._path_ticks = np.zeros(n, np.int64), np.zeros(n)
            self._seen = np.zeros(2 * n, np.int64)
        if len(blocks) * WAYS > len(self._block_times):
            n = 2 * len(blocks) * WAYS
            self._block_times, self._block_ticks, self._touched = (
                np.zeros(n, np.int64),
                np.zeros(n),
                np.zeros(n, np.int64),
            )
        begin, done, written = 0, 0, 0
        while True:
            done, written = _count(
                begin, written, rows.group, rows.stop, rows.stop_end, rows.broken, rows.broken_end, order, at, tsc,
                confirmed, broken, paths, links, blocks, self._path_times, self._path_ticks, self._seen,
                self._block_times, self._block_ticks, self._touched, *self._out,
            )  # fmt: skip
            if done == len(rows.group):
                break
            begin = done
            larger = self._room(2 * len(self._out[0]) + len(self._touched))
            columns: Any = zip(larger, self._out, strict=True)
            for new, old in columns:
                new[:written] = old[:written]
            self._out = larger
        group, what, times, ticks = self._out
        block = what[:written] // WAYS
        way = (what[:written] - WAYS * block).astype(np.int32)
        return Executed(group[:written].copy(), block, way, times[:written].copy(), ticks[:written].copy())


@inner
def _sure(j, k, end, confirmed, broken):  # type: ignore[no-untyped-def]
    """The first position from `j` on that is not suspect, and the suspect part (of those up to `end`) behind it."""
    while k < end and j >= confirmed[k]:
        j = max(j, broken[k])
        k += 1
    return j, k


@kernel
def _count(  # type: ignore[no-untyped-def]
    begin, written, group, stop, stop_end, broken_at, broken_end, order, at, tsc, confirmed, broken, paths, links,
    blocks, times, spent, seen, block_times, block_ticks, touched, out_group, out_what, out_times, out_ticks,
):  # fmt: skip
    """Rows from `begin` on, whole groups, as long as there is room. Returns the row to go on with, and how many were
    written."""
    row = begin
    while row < len(group):
        first = row
        n = np.int64(0)
        while row < len(group) and group[row] == group[first]:
            j, k = _sure(at[stop[row]], np.int64(broken_at[row]), broken_end[row], confirmed, broken)
            last = np.int64(0)
            for s in range(stop[row], stop_end[row] - 1):
                total = np.int64(0)
                j0, k0, last0 = j, k, last
                while j < at[s + 1]:
                    upto = min(at[s + 1], confirmed[k]) if k < broken_end[row] else at[s + 1]
                    while j < upto:
                        x = np.int64(order[j])
                        j += 1
                        if x >= 0:
                            last = x
                            if times[x] == 0:
                                seen[n] = x
                                n += 1
                            times[x] += 1
                            total += paths[x].instructions
                        else:
                            times[last] -= x
                            total -= x * paths[last].instructions
                    j, k = _sure(j, k, broken_end[row], confirmed, broken)
                ticks = tsc[s + 1] - tsc[s]
                if total == 0 or ticks <= 0:
                    continue
                rate = ticks / total
                i, q, last = j0, k0, last0
                while i < at[s + 1]:
                    upto = min(at[s + 1], confirmed[q]) if q < broken_end[row] else at[s + 1]
                    while i < upto:
                        x = np.int64(order[i])
                        i += 1
                        if x >= 0:
                            last = x
                            spent[x] += rate * paths[x].instructions
                        else:
                            spent[last] -= rate * x * paths[last].instructions
                    i, q = _sure(i, q, broken_end[row], confirmed, broken)
            row += 1
        # paths of paths, then blocks
        end = n
        for m in range(n):
            x = seen[m]
            if paths[x].kind != _OF_PATHS:
                continue
            rate = spent[x] / paths[x].instructions if paths[x].instructions else 0.0
            for q in range(paths[x].link, paths[x].link + paths[x].links):
                part = np.int64(links[q].number)
                if times[part] == 0:
                    seen[end] = part
                    end += 1
                times[part] += times[x]
                spent[part] += rate * paths[part].instructions
            times[x], spent[x] = 0, 0.0
        used = np.int64(0)
        for m in range(end):
            x = seen[m]
            if x < _FIRST or times[x] == 0:
                times[x], spent[x] = 0, 0.0
                continue
            rate = spent[x] / paths[x].instructions if paths[x].instructions else 0.0
            for q in range(paths[x].link, paths[x].link + paths[x].links):
                b = np.int64(links[q].number)
                what = b * WAYS + links[q].way
                if block_times[what] == 0:
                    touched[used] = what
                    used += 1
                block_times[what] += times[x]
                block_ticks[what] += rate * blocks[b].instructions
            times[x], spent[x] = 0, 0.0
        room = len(out_what) - written
        for m in range(used):
            what = touched[m]
            if used <= room:
                out_group[written], out_what[written] = group[first], what
                out_times[written], out_ticks[written] = block_times[what], block_ticks[what]
                written += 1
            block_times[what], block_ticks[what] = 0, 0.0
        if used > room:
            return first, written
    return row, written

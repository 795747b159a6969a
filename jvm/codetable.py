"""Addresses and times → versions and sites, as a kernel.

Rows are sorted by (start, longest first, id). Versions may overlap (in time: address reuse; in space: nested stubs), so
`reach[k]`, the largest end among rows 0…k, tells how far back a search must go: it begins at the last row with
start ≤ ip and ends at the first row whose reach is ≤ ip. The first row on that way that holds both ip and time is the
innermost. That is O(log n) plus the overlaps; a direct-mapped memo by address makes the usual case one probe.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

MEMO_BITS = 15

ROW_DTYPE = np.dtype(
    [("start", "<u8"), ("end", "<u8"), ("since", "<u8"), ("until", "<u8"), ("id", "<i8"), ("pc_at", "<i8"),
     ("pc_size", "<i4"), ("site", "<i4")]
)  # fmt: skip
Int = Any  # a Python int outside kernels, a machine integer of some width inside


class Table(NamedTuple):
    """Immutable but for the memo. `pc` and `pc_site` are all pcs of all nmethods, each nmethod's run ascending."""

    start: NDArray[np.uint64]  # (n,) ascending
    end: NDArray[np.uint64]
    reach: NDArray[np.uint64]  # (n,) running maximum of `end`
    since: NDArray[np.uint64]
    until: NDArray[np.uint64]
    id: NDArray[np.int64]  # version ids
    site: NDArray[np.int32]  # of the version itself: where no pc tells more
    pc_at: NDArray[np.int64]
    pc_size: NDArray[np.int32]
    pc: NDArray[np.uint32]
    pc_site: NDArray[np.int32]
    memo_ip: NDArray[np.uint64]
    memo_row: NDArray[np.int32]
    memo_site: NDArray[np.int32]


def build(rows: NDArray[np.void], pc: NDArray[np.uint32], pc_site: NDArray[np.int32]) -> Table:
    """From (n,) ROW_DTYPE in any order."""
    start, end = rows["start"], rows["end"]
    order = np.lexsort((rows["id"], ~end, start))
    col = {name: np.ascontiguousarray(rows[name][order]) for name in ROW_DTYPE.names or ()}
    memo = 1 << MEMO_BITS
    return Table(
        col["start"], col["end"], np.maximum.accumulate(col["end"]), col["since"], col["until"], col["id"],
        col["site"], col["pc_at"], col["pc_size"], pc, pc_site,
        np.zeros(memo, np.uint64), np.zeros(memo, np.int32), np.zeros(memo, np.int32),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def find(table: Table, ip: Int, tsc: Int) -> Int:
    """Row of the innermost version that holds `ip` at `tsc` (uint64 both), −1 if there is none."""
    lo, hi = 0, table.start.size
    while lo < hi:
        mid = (lo + hi) >> 1
        if table.start[mid] <= ip:
            lo = mid + 1
        else:
            hi = mid
    k = lo - 1
    while k >= 0 and table.reach[k] > ip:
        if table.end[k] > ip and table.since[k] <= tsc and tsc < table.until[k]:
            return k
        k -= 1
    return -1


@njit(cache=True, nogil=True)
def site_in(table: Table, row: Int, ip: Int) -> Int:
    """Site at `ip` in the version of `row`: of the first pc > ip, else the version's own."""
    offset = ip - table.start[row]
    lo = table.pc_at[row]
    end = lo + table.pc_size[row]
    hi = end
    while lo < hi:
        mid = (lo + hi) >> 1
        if np.uint64(table.pc[mid]) <= offset:
            lo = mid + 1
        else:
            hi = mid
    return np.int64(table.pc_site[lo]) if lo < end else np.int64(table.site[row])


@njit(cache=True, nogil=True)
def locate(table: Table, ips: NDArray[np.uint64], tscs: NDArray[np.uint64], out: NDArray[np.int32]) -> None:
    """Sites of (n,) addresses at (n,) times into (n,) `out`; 0 where nothing is known."""
    shift = np.uint64(64 - MEMO_BITS)
    for i in range(ips.size):
        ip, tsc = ips[i], tscs[i]
        slot = np.int64((ip * np.uint64(0x9E3779B97F4A7C15)) >> shift)
        if table.memo_ip[slot] == ip and ip != 0:
            row = np.int64(table.memo_row[slot])
            if table.since[row] <= tsc and tsc < table.until[row]:
                out[i] = table.memo_site[slot]
                continue
        row = find(table, ip, tsc)
        if row < 0:
            out[i] = 0
            continue
        site = site_in(table, row, ip)
        out[i] = site
        table.memo_ip[slot] = ip
        table.memo_row[slot] = row
        table.memo_site[slot] = site

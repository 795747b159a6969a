"""Addresses and times → versions and sites, as a kernel.

Rows are sorted by (start, longest first, id). Versions may overlap (in time: address reuse; in space: nested stubs), so
`reach[k]`, the largest end among rows 0…k, tells how far back a search must go: it begins at the last row with
start ≤ ip and ends at the first row whose reach is ≤ ip. The first row on that way that holds both ip and time is the
innermost. That is O(log n) plus the overlaps; a direct-mapped memo by address makes the usual case one probe.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel

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
    memo: NDArray[np.uint64]  # (4 << MEMO_BITS,) four a slot: address, since, until, site


def build(rows: NDArray[np.void], pc: NDArray[np.uint32], pc_site: NDArray[np.int32]) -> Table:
    """From (n,) ROW_DTYPE in any order."""
    start, end = rows["start"], rows["end"]
    order = np.lexsort((rows["id"], ~end, start))
    col = {name: np.ascontiguousarray(rows[name][order]) for name in ROW_DTYPE.names or ()}
    return Table(
        col["start"], col["end"], np.maximum.accumulate(col["end"]), col["since"], col["until"], col["id"],
        col["site"], col["pc_at"], col["pc_size"], pc, pc_site,
        np.zeros(4 << MEMO_BITS, np.uint64),
    )  # fmt: skip


@kernel
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


@kernel
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


@kernel
def slot_of(ip: Int) -> Int:
    """Where the memo has `ip` (uint64), if it has it. A slot that was never used holds no time."""
    return (ip * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - MEMO_BITS) << np.uint64(2)


@kernel
def known(memo: NDArray[np.uint64], slot: Int, ip: Int, tsc: Int) -> Int:
    """Whether the memo has `ip` at `tsc` there."""
    return memo[slot] == ip and memo[slot + np.uint64(1)] <= tsc and tsc < memo[slot + np.uint64(2)]


@kernel
def store(table: Table, slot: Int, ip: Int, tsc: Int) -> Int:
    """Site at `ip` at `tsc` (uint64 both), 0 where nothing is known; found by search, and put into the memo."""
    row = np.int64(find(table, ip, tsc))
    if row < 0:
        return np.int64(0)
    site = np.int64(site_in(table, row, ip))
    memo = table.memo
    memo[slot], memo[slot + np.uint64(1)], memo[slot + np.uint64(2)] = ip, table.since[row], table.until[row]
    memo[slot + np.uint64(3)] = np.uint64(site)
    return site


@kernel
def locate(table: Table, ips: NDArray[np.uint64], tscs: NDArray[np.uint64], out: NDArray[np.int32]) -> None:
    """Sites of (n,) addresses at (n,) times into (n,) `out`; 0 where nothing is known."""
    memo = table.memo
    for i in range(ips.size):
        ip, tsc = ips[i], tscs[i]
        slot = slot_of(ip)
        if known(memo, slot, ip, tsc):
            out[i] = np.int32(memo[slot + np.uint64(3)])
        else:
            out[i] = store(table, slot, ip, tsc)


@kernel
def rows_of(table: Table, ips: NDArray[np.uint64], tscs: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
    """Rows of the innermost versions that hold (n,) addresses at (n,) times into (n,) `out`; −1 where none does."""
    for i in range(ips.size):
        out[i] = find(table, ips[i], tscs[i])

"""All versions that are kept, by id, and as columns for kernels. A `Table` (jvm.code.lookup) holds them sorted by
start, with the running maximum of their ends, so a search goes back from the last start ≤ ip only as far as something
may still reach over it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from jvm.arena import Arena
from jvm.code import lookup
from jvm.code.ended import Ended
from jvm.code.lookup import Table
from jvm.code.version import Version


class Register:
    """Of one process. A version is dropped by `drop`, when it has ended before all times that may be asked about."""

    def __init__(self) -> None:
        self.by_id: dict[int, Version] = {}
        self._ids = 0
        self.dropped = 0  # versions
        self._pcs: Arena[np.uint32] = Arena(np.uint32)
        self._pc_sites: Arena[np.int32] = Arena(np.int32)
        self._data = np.zeros(1024, lookup.ROW_DTYPE)
        self._used = 0
        self._free: list[int] = []
        self._ended = Ended()
        self._table: Table | None = None

    @property
    def _rows(self) -> NDArray[np.void]:
        return self._data[: self._used]

    def new_id(self) -> int:
        self._ids += 1
        return self._ids

    def since(self, last: int) -> list[Version]:
        """Those that have come since the one of that id, in order."""
        return list(takewhile(lambda v: v.id > last, reversed(self.by_id.values())))[::-1]

    def add(self, v: Version, site: int) -> None:
        if self._free:
            v.row = self._free.pop()
        else:
            v.row = self._used
            self._used += 1
            if v.row == len(self._data):
                self._data = np.concatenate((self._data, np.zeros_like(self._data)))
        self._data[v.row] = (v.start, v.end, v.since, v.until, v.id, 0, 0, site)
        self.by_id[v.id] = v
        self._table = None

    def describe(self, v: Version, site: int, pcs: NDArray[np.uint32], sites: NDArray[np.int32]) -> None:
        """Replaces the site of `v` itself, and (n,) those of the code before (n,) offsets in it."""
        row = self._data[v.row]
        self._pcs.garbage += int(row["pc_size"])
        row["site"] = site
        row["pc_at"], row["pc_size"] = self._pcs.append(pcs), len(sites)
        self._pc_sites.append(sites)
        self._table = None

    def end(self, v: Version) -> None:
        """`v.until` has been set."""
        self._data[v.row]["until"] = v.until
        self._ended.add(v)
        self._table = None

    def drop(self, versions: Iterable[Version]) -> None:
        for v in versions:
            self._pcs.garbage += int(self._data[v.row]["pc_size"])
            self._data[v.row] = np.zeros((), lookup.ROW_DTYPE)
            self._free.append(v.row)
            self._ended.drop(v.id)
            del self.by_id[v.id]
            self.dropped += 1
        self._table = None

    def compact(self) -> None:
        """Gives memory back, if there is enough to give."""
        if not self._pcs.wasteful:
            return
        pcs, pc_sites = Arena[np.uint32](np.uint32), Arena[np.int32](np.int32)
        for v in self.by_id.values():
            at, size = int(self._data[v.row]["pc_at"]), int(self._data[v.row]["pc_size"])
            self._data[v.row]["pc_at"] = pcs.append(self._pcs.part(at, size))
            pc_sites.append(self._pc_sites.part(at, size))
        self._pcs, self._pc_sites, self._table = pcs, pc_sites, None

    def ended_before(self, tsc: int, start: int, end: int) -> int:
        """When the last of the versions that overlap [start, end) ended, of those that had ended at `tsc`; 0: none."""
        return self._ended.before(tsc, start, end)

    def table(self) -> Table:
        """All versions, with their times; made anew when one has come, ended, gone, or been described."""
        if self._table is None:
            rows = self._rows
            self._table = lookup.build(rows[rows["id"] != 0], self._pcs.view(), self._pc_sites.view())
        return self._table

    def at(self, ip: int, tsc: int) -> Version | None:
        """The innermost version that holds `ip` at `tsc`."""
        table = self.table()
        row = lookup.find(table, np.uint64(ip), np.uint64(tsc))
        return None if row < 0 else self.by_id[int(table.id[row])]

    def versions_of(self, ips: NDArray[np.uint64], tscs: NDArray[np.uint64]) -> NDArray[np.int64]:
        """(n,) addresses at (n,) times → (n,) ids of versions; 0 where nothing stood."""
        rows = np.empty(len(ips), np.int64)
        table = self.table()
        lookup.rows_of(table, ips, tscs, rows)
        return np.where(rows >= 0, np.append(table.id, 0)[rows], 0)

    def sites_of(self, ips: NDArray[np.uint64], tscs: NDArray[np.uint64]) -> NDArray[np.int32]:
        """(n,) addresses at (n,) times → (n,) sites; 0 (`UNKNOWN_CODE`) where nothing stood."""
        out = np.empty(len(ips), np.int32)
        lookup.locate(self.table(), ips, tscs, out)
        return out

    def sites_used(self) -> list[NDArray[np.int32]]:
        """All sites that `sites_of` can give."""
        rows = self._rows
        described = rows[rows["pc_size"] > 0]  # the rest of the arena is garbage
        parts = zip(described["pc_at"].tolist(), described["pc_size"].tolist(), strict=True)
        return [rows["site"], *(self._pc_sites.part(at, size) for at, size in parts)]

"""Where methods are entered in the code of a process: compiled ones, and those inlined in them
(stages.inlining.inlining); and where the interpreter executes a bytecode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.changes import Changes
from jvm.code.codelets import executes, label
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from jvm.code.version import Version
from jvm.export.records import Codelet
from stages.inlining.class_measures import EXECUTED
from stages.inlining.inlining import Inlining

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

WAYS = 3  # EXECUTED, TAKEN, NOT_TAKEN


class Rows(NamedTuple):
    """Columns of equal length: executed an instruction, or left a conditional branch that way, a method was called (a
    bytecode was executed) so many times."""

    key: U64  # address * WAYS + way, ascending
    site: I64
    calls: I64


def _columns(versions: list[Version]) -> U64:
    """(4, n) All that stays as it is."""
    rows = [(v.start, v.end, v.since, v.verified_entry) for v in versions]
    return np.array(rows, np.uint64).reshape(-1, 4).T


def _none() -> Rows:
    return Rows(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))


class Entries:
    """Of one code image. A version's entries are found when it first runs, and kept as long as the image has it. The
    interpreter's bytecodes are always among the entries: it stands as long as the JVM."""

    def __init__(self, image: CodeImage, inlining: Inlining | None = None) -> None:
        """`inlining`: of that image."""
        self._image = image
        self._inlining = inlining or Inlining(image)
        self._known: dict[int, tuple[Rows, bool]] = {}  # by version; all of its methods were known by name
        self._ran: dict[int, Rows] = {}  # by version, of those known: the bytecodes that its code stands for
        self._lost: dict[int, I64] = {}  # by version, of those known: sites of methods inlined in it and not counted
        self._census = -1
        self._changes = Changes(image)
        self._versions: list[Version] = []  # that have a verified entry, in the order in which they came
        self._told = _columns([])
        self._row = np.zeros(0, np.int64)  # of each by its start, in `_versions`; all others are in that order, too
        self._start, self._end, self._since, self._until, self._verified = (np.zeros(0, np.uint64) for _ in range(5))
        self._executed: list[tuple[int, Codelet]] = []
        self._interpreter = _none()  # of those
        self._bytecodes = np.zeros(0, np.int64)  # of one execution, by row of that

    def at(self, tsc: int, addresses: U64) -> Rows:
        """The entries at (m,) addresses, and in the code around them, as that was at `tsc`."""
        if self._census != self._image.census:
            self._gather()
        here, row = self._standing(tsc, addresses)
        rows = [self._of(self._versions[k]) for k in self._row[here[np.unique(row[row >= 0])]].tolist()]
        return _together([*rows, self._interpreter])

    def ran(self, tsc: int, addresses: U64, way: NDArray[np.int64]) -> tuple[I64, I64, I64]:
        """The bytecodes that compiled code stands for at (m,) addresses, left that way, for which `find` has been
        asked: (k,) positions, (k,) sites of their methods, (k,) how many."""
        here, row = self._standing(tsc, addresses)
        rows = [self._ran[self._versions[k].id] for k in self._row[here[np.unique(row[row >= 0])]].tolist()]
        return _found(_together([*rows, _none()]), addresses * np.uint64(WAYS) + way.astype(np.uint64))

    def find(self, tsc: int, addresses: U64, way: int | NDArray[np.int64] = EXECUTED) -> tuple[I64, I64, I64]:
        """The methods called at (m,) addresses, that way: (k,) positions, (k,) sites, (k,) how many times."""
        return _found(self.at(tsc, addresses), addresses * np.uint64(WAYS) + np.asarray(way, np.uint64))

    def bytecodes(self, addresses: U64) -> tuple[I64, I64, I64]:
        """The interpreter's templates that are executed at (m,) addresses, for which `find` has been asked: (k,)
        positions, (k,) sites, (k,) how many bytecodes of the program one execution is."""
        rows = self._interpreter
        key = addresses * np.uint64(WAYS)
        lo, hi = np.searchsorted(rows.key, key, "left"), np.searchsorted(rows.key, key, "right")
        position = np.flatnonzero(hi > lo)
        return position, rows.site[lo[position]], self._bytecodes[lo[position]]

    def uncounted(self, tsc: int, addresses: U64) -> tuple[I64, I64]:
        """The methods inlined, and not counted, in the code at (m,) addresses at `tsc`: (k,) positions, (k,) sites."""
        if self._census != self._image.census:
            self._gather()
        here, row = self._standing(tsc, addresses)
        standing = np.where(row >= 0, here[row] if len(here) else -1, -1)
        position, site = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for k in np.unique(standing[standing >= 0]).tolist():
            v = self._versions[self._row[k]]
            lost = self._lost_in(v)
            if len(lost):
                at = np.flatnonzero((standing == k) & (addresses < np.uint64(v.end)))
                position.append(np.repeat(at, len(lost)))
                site.append(np.tile(lost, len(at)))
        return np.concatenate(position), np.concatenate(site)

    def sites_used(self) -> Iterator[I64]:
        yield from (rows.site for rows, _ in self._known.values())
        yield from (rows.site for rows in self._ran.values())
        yield from self._lost.values()
        yield self._interpreter.site

    def verified(self, tsc: int) -> U64:
        """The verified entries of the nmethods that stand at `tsc`."""
        if self._census != self._image.census:
            self._gather()
        return self._verified[(self._since <= np.uint64(tsc)) & (self._until > np.uint64(tsc))]

    def _standing(self, tsc: int, addresses: U64) -> tuple[I64, I64]:
        """Which versions stand at `tsc`, by start; of (m,) addresses, which of these began last before it, −1: none."""
        here = np.flatnonzero((self._since <= np.uint64(tsc)) & (self._until > np.uint64(tsc)))
        return here, np.searchsorted(self._start[here], addresses, "right") - 1

    def _lost_in(self, v: Version) -> I64:
        self._of(v)
        return self._lost[v.id]

    def _gather(self) -> None:
        self._census = self._image.census
        came, _, kept = self._changes.look()
        if kept is not None:
            self._known = {id_: rows for id_, rows in self._known.items() if id_ in kept}
            self._ran = {id_: rows for id_, rows in self._ran.items() if id_ in kept}
            self._lost = {id_: sites for id_, sites in self._lost.items() if id_ in kept}
            stay = [k for k, v in enumerate(self._versions) if v.id in kept]
            self._versions = [self._versions[k] for k in stay]
            self._told = self._told[:, stay]
        if came := [v for v in came if v.verified_entry]:
            self._versions += came
            self._told = np.concatenate((self._told, _columns(came)), axis=1)
        self._row = np.argsort(self._told[0], kind="stable")
        self._start, self._end, self._since, self._verified = self._told[:, self._row]
        until = np.fromiter((v.until for v in self._versions), np.uint64, len(self._versions))
        self._until = until[self._row]
        executed = self._image.codelets.executed
        if executed is not self._executed:
            self._executed = executed
            sites = [self._image.sites.site(label(codelet), SiteKind.INTERPRETED) for _, codelet in executed]
            self._interpreter = Rows(
                np.array([ip * WAYS + EXECUTED for ip, _ in executed], np.uint64), np.array(sites, np.int64),
                np.ones(len(executed), np.int64),
            )  # fmt: skip
            self._bytecodes = np.array([executes(codelet) for _, codelet in executed], np.int64)

    def _of(self, v: Version) -> Rows:
        rows, whole = self._known.get(v.id, (_none(), False))
        if not whole:
            rows, whole = self._known[v.id] = self._rows(v)
        return rows

    def _rows(self, v: Version) -> tuple[Rows, bool]:
        m, final = self._inlining.measured(v)
        lost = {self._image.sites.site(name, v.site_kind) for name in m.unmeasured if name is not None}
        self._lost[v.id] = np.array(sorted(lost), np.int64)
        site = np.full(len(m.name), -1, np.int64)  # of the places that are counted and known by name
        for place in np.union1d(m.place, m.ran.place).tolist():
            if (name := m.name[place]) is not None:
                site[place] = self._image.sites.site(name, v.site_kind)
        own = self._image.sites.site(v.name, v.site_kind)
        base = np.uint64(v.start)
        self._ran[v.id] = _rows(base, m.ran.offset, m.ran.way, site[m.ran.place], m.ran.bytecodes)
        offset, way = np.append(m.offset, v.verified_entry - v.start), np.append(m.way, EXECUTED)
        return _rows(base, offset, way, np.append(site[m.place], own), np.append(m.times, 1)), final


def _rows(base: np.uint64, offset: I64, way: I64, site: I64, times: I64) -> Rows:
    """Of the sites that are known (≥ 0)."""
    known = site >= 0
    key = (base + offset[known].astype(np.uint64)) * np.uint64(WAYS) + way[known].astype(np.uint64)
    unique, where = np.unique(np.column_stack((key, site[known].astype(np.uint64))), axis=0, return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, where.reshape(-1), times[known])
    return Rows(unique[:, 0].copy(), unique[:, 1].astype(np.int64), total)


def _together(rows: list[Rows]) -> Rows:
    key = np.concatenate([r.key for r in rows])
    order = np.argsort(key, kind="stable")
    return Rows(key[order], *(np.concatenate([r[k] for r in rows])[order] for k in (1, 2)))


def _found(rows: Rows, key: U64) -> tuple[I64, I64, I64]:
    """Of (m,) keys: (k,) positions, (k,) sites, (k,) numbers of the rows that have one of them."""
    lo, hi = np.searchsorted(rows.key, key, "left"), np.searchsorted(rows.key, key, "right")
    count = hi - lo
    position = np.repeat(np.arange(len(key)), count)
    row = np.repeat(lo - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
    return position, rows.site[row], rows.calls[row]

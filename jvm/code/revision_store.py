"""The revisions of versions (jvm.code.revisions) as columns: their times, and where their bytes are. A view is a choice
of them, so it costs the same however often code was patched, and nothing that a view shows is ever written again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.arena import Arena
from jvm.code.snapshot import CodeView
from jvm.code.version import FOREVER, Version

AROUND = 8
INSERTED = 64
"""So many new rows, at most, are put in order one by one."""
REVISION_DTYPE = np.dtype(
    [("start", "<u8"), ("end", "<u8"), ("since", "<u8"), ("until", "<u8"), ("data_at", "<i8"), ("id", "<i8")]
)
PATCH_DTYPE = np.dtype(
    [("address", "<u8"), ("before", "<u8"), ("after", "<u8"), ("old_at", "<i8"), ("new_at", "<i8"), ("id", "<i8"),
     ("size", "<i4"), ("_", "<i4")]
)  # fmt: skip


class Uncertain(NamedTuple):
    """Patches (n,) in the order in which they were made: `size` bytes at `address` were `code[old_at:old_at + size]`
    at `before` and `code[new_at:new_at + size]` at `after`. AROUND bytes on either side of the changed ones are with
    it: whole instructions, as they were."""

    address: NDArray[np.uint64]
    size: NDArray[np.int32]
    before: NDArray[np.uint64]
    after: NDArray[np.uint64]
    old_at: NDArray[np.int64]
    new_at: NDArray[np.int64]
    id: NDArray[np.int64]  # of the version
    code: NDArray[np.uint8]

    def old(self, i: int) -> NDArray[np.uint8]:
        return self.code[self.old_at[i] : self.old_at[i] + self.size[i]]

    def new(self, i: int) -> NDArray[np.uint8]:
        return self.code[self.new_at[i] : self.new_at[i] + self.size[i]]


class _Rows:
    """A table that grows; rows whose `id` is 0 are free."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self._data = np.zeros(64, dtype)
        self._used = 0

    def add(self, row: tuple[int, ...]) -> int:
        if self._used == len(self._data):
            self._data = np.concatenate((self._data, np.zeros_like(self._data)))
        self._data[self._used] = row
        self._used += 1
        return self._used - 1

    @property
    def rows(self) -> NDArray[np.void]:
        return self._data[: self._used]

    def keep(self, which: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Drops the others; where each row is now."""
        rows = self.rows[which]
        self._data[: len(rows)] = rows
        self._data[len(rows) : self._used] = np.zeros((), self._data.dtype)
        self._used = len(rows)
        return np.cumsum(which) - 1


class _InOrder:
    """The rows of revisions by address; where several begin the longest first, then by version, then in time. A row's
    place never changes, so a few new ones are put between the others."""

    def __init__(self) -> None:
        self.rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self._start: NDArray[np.uint64] = np.zeros(0, np.uint64)  # of each

    def take(self, revisions: NDArray[np.void]) -> NDArray[np.int64]:
        """With all that have come since."""
        new = np.arange(len(self.rows), len(revisions))
        if not len(new):
            return self.rows
        if len(new) > INSERTED:
            new = np.arange(len(revisions))
        came = revisions[new]
        in_order = np.lexsort((came["id"], ~came["end"], came["start"]))
        new, came = new[in_order], came[in_order]
        if len(new) == len(revisions):
            self.rows, self._start = new, came["start"].copy()
            return self.rows
        places = [self._place(revisions, *row) for row in came[["start", "end", "id"]].tolist()]
        self.rows, self._start = np.insert(self.rows, places, new), np.insert(self._start, places, came["start"])
        return self.rows

    def _place(self, revisions: NDArray[np.void], start: int, end: int, id_: int) -> int:
        lo, hi = (int(np.searchsorted(self._start, np.uint64(start), side)) for side in ("left", "right"))
        there = revisions[self.rows[lo:hi]]
        before = (there["end"] > end) | ((there["end"] == end) & (there["id"] <= id_))
        return lo + int(np.count_nonzero(before))


class RevisionStore:
    """Of one process. `code` holds all bytes; `of`: version id → rows of its revisions, in time. Both shrink by `drop`
    and `compact`."""

    def __init__(self) -> None:
        self.code: Arena[np.uint8] = Arena(np.uint8)
        self.revisions = _Rows(REVISION_DTYPE)
        self.patches = _Rows(PATCH_DTYPE)
        self.of: dict[int, list[int]] = {}
        self._in_order = _InOrder()
        self._times: NDArray[np.uint64] | None = None  # at which a view changes, behind `_times_from`
        self._times_from = 0
        self._nested: tuple[bytes, NDArray[np.uint64]] = (b"", np.zeros((0, 4), np.uint64))

    def changed(self) -> None:
        """A revision has come, gone, or got another time."""
        self._times = None

    def part(self, version: Version) -> NDArray[np.uint8]:
        """Its bytes as last told."""
        return self.code.part(version.data_at, version.data_size)

    def drop(self, versions: list[Version], before: int) -> bool:
        """These are not asked for any more, nor is any time earlier than `before`. Whether that was anything."""
        ids = [version.id for version in versions]
        for id_ in ids:
            del self.of[id_]
        revisions, patches = self.revisions.rows, self.patches.rows
        over = (revisions["until"] <= before) & (revisions["until"] != FOREVER)
        if not ids and not over.any() and not (patches["after"] < before).any():
            return False  # as most times: without a look at each version
        kept = ~np.isin(revisions["id"], ids) & ~over
        # The last revision of a version stays, whatever its times: it holds the version's bytes.
        kept[[rows[-1] for rows in self.of.values() if rows]] = True
        sizes = revisions["end"] - revisions["start"]
        self.code.garbage += int(sizes[~kept].sum())
        moved = self.revisions.keep(kept)
        for id_, rows in self.of.items():
            self.of[id_] = [int(moved[row]) for row in rows if kept[row]]
        old = np.isin(patches["id"], ids) | (patches["after"] < before)
        self.code.garbage += 2 * int(patches["size"][old].sum())
        self.patches.keep(~old)
        self._in_order, self._times = _InOrder(), None
        return not kept.all()

    def compact(self, versions: dict[int, Version]) -> None:
        """Gives memory back, if there is enough to give."""
        code: Arena[np.uint8] = Arena(np.uint8)
        last = {id_: rows[-1] for id_, rows in self.of.items() if rows}
        shown = {id_ for id_, row in last.items() if int(self.revisions.rows[row]["data_at"]) != versions[id_].data_at}
        for revision in self.revisions.rows:
            size = int(revision["end"] - revision["start"])
            revision["data_at"] = code.append(self.code.part(int(revision["data_at"]), size))
        for patch in self.patches.rows:
            for name in ("old_at", "new_at"):
                patch[name] = code.append(self.code.part(int(patch[name]), int(patch["size"])))
        for id_, row in last.items():
            told = self.code.part(versions[id_].data_at, versions[id_].data_size)
            versions[id_].data_at = code.append(told) if id_ in shown else int(self.revisions.rows[row]["data_at"])
        self.code = code

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self.code.used - self.code.garbage

    def view(self, tsc: int | None, epoch: int) -> CodeView:
        """The revisions at `tsc`, or (None) the last ones of versions that stand; disjoint, where they nest the inner
        one."""
        revisions = self.revisions.rows
        since, until = revisions["since"], revisions["until"]
        if tsc is None:
            shown = (until == FOREVER) & (since < FOREVER)
        else:
            shown = (since <= np.uint64(tsc)) & (until > np.uint64(tsc))
        here = self._in_order.take(revisions)
        here = here[shown[here]]
        start, end = revisions["start"][here], revisions["end"][here]
        data_at, id_ = revisions["data_at"][here], revisions["id"][here]
        inner = np.zeros(len(here), np.bool_)  # begins within something
        inner[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
        if inner.any():
            nested = inner.copy()
            nested[:-1] |= inner[1:]  # and the rows that another begins in
            plain = ~nested
            cut = self._cut(np.column_stack((start, end, data_at.view(np.uint64), id_.view(np.uint64)))[nested])
            start = np.concatenate((start[plain], cut[:, 0]))
            order = np.argsort(start, kind="stable")
            start, end = start[order], np.concatenate((end[plain], cut[:, 1]))[order]
            data_at = np.concatenate((data_at[plain], cut[:, 2].view(np.int64)))[order]
            id_ = np.concatenate((id_[plain], cut[:, 3].view(np.int64)))[order]
        return CodeView(epoch, start, end, data_at, id_.astype(np.int32), self.code.view())

    def _cut(self, revisions: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """(n, 4) start, end, data_at, id of revisions that nest → the same made disjoint. Between two patches of nested
        stubs this is the same again and again."""
        key = revisions.tobytes()
        if self._nested[0] != key:
            pieces = _disjoint([(row[0], row[1], row[2], row[3]) for row in revisions.tolist()])
            self._nested = key, np.array(pieces, np.uint64)
        return self._nested[1]

    def next_change(self, tsc: int) -> int:
        """The first time after `tsc` at which a view is another than at `tsc`; FOREVER: none."""
        if self._times is None or tsc < self._times_from:
            since, until = self.revisions.rows["since"], self.revisions.rows["until"]
            real = since < until
            begins, ends = (each > np.uint64(tsc) for each in (since, until))
            times = since[begins & real], until[ends & real & (until < FOREVER)], [np.uint64(FOREVER)]
            self._times, self._times_from = np.unique(np.concatenate(times)), tsc
        at = int(np.searchsorted(self._times, np.uint64(tsc), side="right"))
        return int(self._times[at]) if at < len(self._times) else FOREVER

    def uncertain(self, begin: int, end: int) -> Uncertain:
        """Patches that may or may not have been made at some time in [begin, end]."""
        rows = self.patches.rows
        rows = rows[(rows["before"] <= np.uint64(end)) & (rows["after"] >= np.uint64(begin))]
        columns = {name: rows[name].copy() for name in Uncertain._fields[:-1]}
        return Uncertain(**columns, code=self.code.view())


def _disjoint(blobs: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """(start, end, data_at, id), sorted by start, longest first → the same cut so that at each address only the blob
    that began last is left."""
    pieces: list[tuple[int, int, int, int]] = []
    open_: list[tuple[int, int, int, int]] = []  # begun, in order
    at = 0  # everything before this is done
    for blob in [*blobs, (FOREVER, FOREVER, 0, 0)]:
        while open_ and at < blob[0]:
            start, end, data_at, id_ = open_[-1]
            if end <= at:
                open_.pop()
                continue
            to = min(end, blob[0])
            pieces.append((at, to, data_at + at - start, id_))
            at = to
        at = max(at, blob[0])
        open_.append(blob)
    return pieces

"""The bytes of versions, as they were patched in time.

A version has one or more revisions: its bytes as first told, then a copy for each time at which some of them were found
changed. A view is a choice of revisions, so it costs the same however often code was patched, and nothing that a view
shows is ever written again.

A patch is known to have happened after `before` and not after `after` (jvm.export.records.CodePatch). Its revision
begins in the middle: of all single times that one is wrong for the shortest time on average. If something else tells,
it begins where that says: a call that leads now to a method which was installed meanwhile most likely does so since
then. Who can do better than one time asks `uncertain` for the patches that may or may not have been made at a time.
What appears where only padding was (`jvm.code.diff`) is no change: nobody ran the padding; it has been there since the
version's beginning.

A call that leads to an inline-cache stub (`jvm.calls.inline_cache`) is shown to lead where the stub did when the call
was read, or, once that is known, where the next revision says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.arena import Arena
from jvm.calls import inline_cache as inlinecache
from jvm.calls.call_sites import CALL, CALL_SIZE, targets
from jvm.code.diff import padding
from jvm.code.snapshot import CodeView
from jvm.code.version import FOREVER, Version

AROUND = 8
TEXT_DTYPE = np.dtype(
    [("start", "<u8"), ("end", "<u8"), ("since", "<u8"), ("until", "<u8"), ("data_at", "<i8"), ("id", "<i8")]
)
PATCH_DTYPE = np.dtype(
    [("address", "<u8"), ("before", "<u8"), ("after", "<u8"), ("old_at", "<i8"), ("new_at", "<i8"), ("id", "<i8"),
     ("size", "<i4"), ("_", "<i4")]
)  # fmt: skip


class Uncertain(NamedTuple):
    """Patches (n,) in the order in which they were made: `size` bytes at `address` were `code[old_at:old_at + size]`
    at `before` and `code[new_at:new_at + size]` at `after`. AROUND bytes on either side of what changed are with it:
    whole instructions, as they were."""

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


class _Columns(NamedTuple):
    start: NDArray[np.uint64]
    end: NDArray[np.uint64]
    since: NDArray[np.uint64]
    until: NDArray[np.uint64]
    data_at: NDArray[np.int64]
    id: NDArray[np.int64]


class _Edit(NamedTuple):
    offset: int
    code: NDArray[np.uint8]
    before: int
    after: int
    until: int  # by then it was so
    at: int  # since then it is taken to be so


class Revisions:
    def __init__(self, lag: int, opened: Mapping[int, int]) -> None:
        """`lag`: ticks by which a revision begins later than what tells of it. A decoder notices what is shown too late
        at the first branch, and what is shown too early perhaps never: one version of a method often runs like another.
        `opened`: entries of methods, since when they stand there."""
        self.lag, self._opened = lag, opened
        self._code: Arena[np.uint8] = Arena(np.uint8)
        self._revisions = _Rows(TEXT_DTYPE)
        self._patches = _Rows(PATCH_DTYPE)
        self._of: dict[int, list[int]] = {}  # version id → rows of its revisions, in time
        self._edits: dict[int, tuple[Version, list[_Edit]]] = {}  # not yet in revisions
        self._sorted: _Columns | None = None  # revisions by address
        self._times: NDArray[np.uint64] | None = None  # at which a view changes
        self._nested: tuple[bytes, NDArray[np.uint64]] = (b"", np.zeros((0, 4), np.uint64))
        self.inline: Version | None = None  # the inline-cache stubs
        self._through: dict[int, tuple[Version, int]] = {}  # whose last revisions call some, and when they were read
        self.patches = 0  # made in revisions
        self.filled = 0

    # ---- what is told

    def begin(self, version: Version, code: NDArray[np.uint8]) -> None:
        """A new version and its bytes."""
        at = version.data_at = self._code.append(code)
        version.data_size = len(code)
        end = version.start + len(code)
        row = (version.start, end, version.since, version.until, at, version.id)
        self._of[version.id] = [self._revisions.add(row)] if len(code) else []
        self._sorted = self._times = None

    def edit(
        self, version: Version, offset: int, code: NDArray[np.uint8], before: int, after: int, until: int = FOREVER
    ) -> None:
        """From `offset` on there was `code` at `after`, and not yet at `before`; since `until`, if that lies between.
        What lies outside of the version is left out."""
        code = code[max(-offset, 0) : max(version.data_size - offset, 0)]
        if len(code):
            before = max(before, version.loaded)
            until = until if before < until < after else after
            at = before + (after - before) // 2 if until == after else min(until + self.lag, after)
            edit = _Edit(max(offset, 0), code.copy(), before, after, until, at)
            self._edits.setdefault(version.id, (version, []))[1].append(edit)

    def ended(self, version: Version) -> None:
        """`version.until` has been set."""
        self.settle()
        for row in self._of[version.id]:
            revision = self._revisions.rows[row]
            revision["until"] = min(int(revision["until"]), version.until)
        self._sorted = self._times = None

    def drop(self, versions: list[Version], before: int) -> bool:
        """These are not asked for any more, nor is any time earlier than `before`. Whether that was anything."""
        self.settle()
        ids = [version.id for version in versions]
        for id_ in ids:
            del self._of[id_]
            self._through.pop(id_, None)
        revisions, patches = self._revisions.rows, self._patches.rows
        kept = ~np.isin(revisions["id"], ids) & ((revisions["until"] > before) | (revisions["until"] == FOREVER))
        # The last revision of a version stays, whatever its times: it is what the version's bytes are.
        kept[[rows[-1] for rows in self._of.values() if rows]] = True
        sizes = revisions["end"] - revisions["start"]
        self._code.garbage += int(sizes[~kept].sum())
        moved = self._revisions.keep(kept)
        for id_, rows in self._of.items():
            self._of[id_] = [int(moved[row]) for row in rows if kept[row]]
        old = np.isin(patches["id"], ids) | (patches["after"] < before)
        self._code.garbage += 2 * int(patches["size"][old].sum())
        self._patches.keep(~old)
        self._sorted = self._times = None
        return not kept.all()

    def compact(self, versions: dict[int, Version]) -> None:
        """Gives memory back, if there is enough to give."""
        if not self._code.wasteful:
            return
        self.settle()
        code: Arena[np.uint8] = Arena(np.uint8)
        last = {id_: rows[-1] for id_, rows in self._of.items() if rows}
        shown = {id_ for id_, row in last.items() if int(self._revisions.rows[row]["data_at"]) != versions[id_].data_at}
        for revision in self._revisions.rows:
            size = int(revision["end"] - revision["start"])
            revision["data_at"] = code.append(self._code.part(int(revision["data_at"]), size))
        for patch in self._patches.rows:
            for name in ("old_at", "new_at"):
                patch[name] = code.append(self._code.part(int(patch[name]), int(patch["size"])))
        for id_, row in last.items():
            told = self._code.part(versions[id_].data_at, versions[id_].data_size)
            versions[id_].data_at = code.append(told) if id_ in shown else int(self._revisions.rows[row]["data_at"])
        self._code, self._sorted = code, None

    def settle(self) -> None:
        """Edits become revisions, those made at one time one."""
        if not self._edits:
            return
        edits, self._edits = self._edits, {}
        for version, each in sorted(edits.values(), key=lambda pair: pair[0] is not self.inline):
            each = self._dated(version, each)
            while each:
                each = self._fill(version, each) if self._is_fill(version, each[0]) else self._patch(version, each)
        self._sorted = self._times = None

    def _dated(self, version: Version, edits: list[_Edit]) -> list[_Edit]:
        """In the order in which they are taken to have been made. A call is not bound to what is not there yet."""
        code = self._code.part(version.data_at, version.data_size).copy()
        dated = []
        for edit in sorted(edits, key=lambda edit: edit.after):
            end = edit.offset + len(edit.code)
            code[edit.offset : end] = edit.code
            around = np.arange(max(edit.offset - 4, 0), min(end, len(code) - CALL_SIZE + 1))
            opened = self._last_opened(version, code, around[code[around] == CALL])
            if edit.before < opened < edit.after:
                edit = edit._replace(at=min(opened + self.lag, edit.after))
            dated.append(edit)
        return sorted(dated, key=lambda edit: (edit.after, edit.at))

    def _last_opened(self, version: Version, code: NDArray[np.uint8], calls: NDArray[np.int64]) -> int:
        """Since when all methods stand there that the `calls` (n,) in `code` lead to; 0: it is not known of any."""
        return max((self._opened.get(to, 0) for to in targets(code, version.start, calls).tolist()), default=0)

    def _is_fill(self, version: Version, edit: _Edit) -> bool:
        code = self._code.part(version.data_at, version.data_size)
        return padding(code, edit.offset, edit.offset + len(edit.code))

    def _fill(self, version: Version, edits: list[_Edit]) -> list[_Edit]:
        """The edits that only put code where padding was are made in all revisions; the edits that are left."""
        count = 0
        while count < len(edits) and self._is_fill(version, edits[count]):
            count += 1

        def filled(at: int) -> int:
            code = self._code.part(at, version.data_size).copy()
            for edit in edits[:count]:
                code[edit.offset : edit.offset + len(edit.code)] = edit.code
            self._code.garbage += version.data_size
            return self._code.append(code)

        for row in self._of[version.id]:
            self._revisions.rows[row]["data_at"] = filled(int(self._revisions.rows[row]["data_at"]))
        version.data_at = filled(version.data_at)
        self.filled += count
        return edits[count:]

    def _patch(self, version: Version, edits: list[_Edit]) -> list[_Edit]:
        """The first edit and those made at the same time become a revision; the edits that are left."""
        code = self._code.part(version.data_at, version.data_size).copy()
        was = code.copy()
        last = self._of[version.id][-1]
        _, _, before, after, until, at = edits[0]
        count = 0
        changed = False
        while count < len(edits) and edits[count][2:] == (before, after, until, at):
            offset, new = edits[count].offset, edits[count].code
            old = code[offset : offset + len(new)]
            fresh = after > version.loaded and after >= version.patched  # not a spool that is read again
            if fresh and not np.array_equal(old, new):
                begin, end = max(offset - AROUND, 0), min(offset + len(new) + AROUND, len(code))
                old_at = self._code.append(code[begin:end])
                old[:] = new
                new_at = self._code.append(code[begin:end])
                row = version.start + begin, before, until, old_at, new_at, version.id, end - begin, 0
                self._patches.add(row)
                changed = True
                self.patches += 1
            count += 1
        if changed:
            version.patched = after
            shown = self._see_through(version, last, was, code, after)
            revision = self._revisions.rows[last]
            at = max(at, int(revision["since"]))
            revision["until"] = min(at, int(revision["until"]))
            version.data_at = self._code.append(code)
            start, end = int(revision["start"]), int(revision["end"])
            data_at = version.data_at if shown is code else self._code.append(shown)
            self._of[version.id].append(self._revisions.add((start, end, at, version.until, data_at, version.id)))
            self._begin_shown(version, code, shown, after)
            self._show_patches(version, shown, after)
            if version is self.inline:
                self._stubs_changed(version, before, after)
        return edits[count:]

    def _see_through(
        self, version: Version, row: int, was: NDArray[np.uint8], code: NDArray[np.uint8], tsc: int
    ) -> NDArray[np.uint8]:
        """The revision `row` was `was` when it was read, and is `code` at `tsc`. What the next revision is to show."""
        if self.inline is None:
            return code
        stubs = self.inline.start, self.inline.end
        revision = self._revisions.rows[row]
        shown = self._code.part(int(revision["data_at"]), version.data_size)
        over = inlinecache.ended(was, code, version.start, stubs)
        if len(over):
            shown = shown.copy()
            shown[over] = code[over]
            revision["data_at"] = self._code.append(shown)
            self._code.garbage += len(shown)
        seen = inlinecache.seen_through(code, was, shown, version.start, stubs, self._stubs_at(self.inline, tsc))
        if seen is None:
            self._through.pop(version.id, None)
            return code
        self._through[version.id] = version, tsc
        return seen

    def _begin_shown(self, version: Version, was: NDArray[np.uint8], shown: NDArray[np.uint8], after: int) -> None:
        """Instead of `was` the last revision, found at `after`, is `shown`: that, too, not before what calls lead
        to."""
        calls = np.unique(np.flatnonzero(was != shown)[:, None] - np.arange(CALL_SIZE))
        calls = calls[(calls >= 0) & (calls + CALL_SIZE <= len(shown))]
        opened = self._last_opened(version, shown, calls[shown[calls] == CALL])
        revisions = [self._revisions.rows[row] for row in self._of[version.id][-2:]]
        if revisions[-1]["since"] < opened < after:
            since = min(opened + self.lag, after, int(revisions[-1]["until"]))
            for revision, end in zip(revisions, ("until", "since")[-len(revisions) :], strict=True):
                revision[end] = since

    def _show_patches(self, version: Version, shown: NDArray[np.uint8], after: int) -> None:
        """What was found at `after` was this."""
        if version.id in self._through:
            rows = self._patches.rows
            for k in self._found_at(version, after):
                begin, size = int(rows["address"][k]) - version.start, int(rows["size"][k])
                rows["new_at"][k] = self._code.append(shown[begin : begin + size])

    def _stubs_changed(self, inline: Version, before: int, after: int) -> None:
        """Stubs were read after calls to them, and may have been written before."""
        for version, tsc in [known for known in self._through.values() if before <= known[1] <= after]:
            revision = self._revisions.rows[self._of[version.id][-1]]
            told = self._code.part(version.data_at, version.data_size)
            shown = self._code.part(int(revision["data_at"]), version.data_size)
            was = told.copy()
            was[self._patched(version, tsc)] = 0  # calls that were there before lead where they are shown to
            stubs = inline.start, inline.end
            seen = inlinecache.seen_through(told, was, shown, version.start, stubs, self._stubs_at(inline, tsc))
            if seen is not None and not np.array_equal(seen, shown):
                revision["data_at"] = self._code.append(seen)
                self._code.garbage += len(seen)
                self._begin_shown(version, shown, seen, tsc)
                self._show_patches(version, seen, tsc)

    def _found_at(self, version: Version, after: int) -> list[int]:
        """Which of the patches."""
        rows = self._patches.rows
        found: list[int] = np.flatnonzero((rows["id"] == version.id) & (rows["after"] == after)).tolist()
        return found

    def _patched(self, version: Version, after: int) -> NDArray[np.bool_]:
        """(size,) Which of its bytes were found changed at `after`."""
        found = np.zeros(version.data_size, np.bool_)
        for patch in self._patches.rows[self._found_at(version, after)]:
            begin, size = int(patch["address"]) - version.start, int(patch["size"])
            old, new = (self._code.part(int(patch[name]), size) for name in ("old_at", "new_at"))
            found[begin : begin + size] |= old != new
        return found

    def _stubs_at(self, inline: Version, tsc: int) -> NDArray[np.uint8]:
        """A call that was read at `tsc` was bound before, and its stub was written before that: so of what may have
        been there then the newest."""
        revisions = [self._revisions.rows[row] for row in self._of.get(inline.id, ())]
        at = [int(revision["data_at"]) for revision in revisions if int(revision["since"]) <= tsc]
        if not at:
            return self._code.part(0, 0)
        code = self._code.part(at[-1], inline.data_size).copy()
        rows = self._patches.rows
        for patch in rows[(rows["id"] == inline.id) & (rows["before"] <= tsc) & (rows["after"] >= tsc)]:
            begin, size = int(patch["address"]) - inline.start, int(patch["size"])
            code[begin : begin + size] = self._code.part(int(patch["new_at"]), size)
        return code

    # ---- what is asked

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._code.used - self._code.garbage

    def first(self, version: Version) -> NDArray[np.uint8]:
        """Its bytes in the first revision that is kept; read-only by convention."""
        self.settle()
        rows = self._of.get(version.id)
        at = int(self._revisions.rows[rows[0]]["data_at"]) if rows else version.data_at
        return self._code.part(at, version.data_size)

    def latest(self, version: Version) -> NDArray[np.uint8]:
        """Its bytes as last told; read-only by convention."""
        self.settle()
        return self._code.part(version.data_at, version.data_size)

    def view(self, tsc: int | None, epoch: int) -> CodeView:
        """The revisions at `tsc`, or (None) the last ones of what stands; disjoint, where they nest the inner one."""
        self.settle()
        if self._sorted is None:
            rows = self._revisions.rows
            rows = rows[np.lexsort((rows["id"], ~rows["end"], rows["start"]))]
            self._sorted = _Columns(*(np.ascontiguousarray(rows[name]) for name in _Columns._fields))
        revisions = self._sorted
        if tsc is None:
            here = np.flatnonzero((revisions.until == FOREVER) & (revisions.since < FOREVER))
        else:
            here = np.flatnonzero((revisions.since <= np.uint64(tsc)) & (revisions.until > np.uint64(tsc)))
        start, end = revisions.start[here], revisions.end[here]
        data_at, id_ = revisions.data_at[here], revisions.id[here]
        inner = np.zeros(len(here), np.bool_)  # begins within something
        inner[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
        if inner.any():
            nested = inner.copy()
            nested[:-1] |= inner[1:]  # and what another begins in
            plain = ~nested
            cut = self._cut(np.column_stack((start, end, data_at.view(np.uint64), id_.view(np.uint64)))[nested])
            start = np.concatenate((start[plain], cut[:, 0]))
            order = np.argsort(start, kind="stable")
            start, end = start[order], np.concatenate((end[plain], cut[:, 1]))[order]
            data_at = np.concatenate((data_at[plain], cut[:, 2].view(np.int64)))[order]
            id_ = np.concatenate((id_[plain], cut[:, 3].view(np.int64)))[order]
        return CodeView(epoch, start, end, data_at, id_.astype(np.int32), self._code.view())

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
        self.settle()
        if self._times is None:
            rows = self._revisions.rows
            rows = rows[rows["since"] < rows["until"]]
            self._times = np.unique(np.concatenate((rows["since"], rows["until"], [np.uint64(FOREVER)])))
        at = int(np.searchsorted(self._times, np.uint64(tsc), side="right"))
        return int(self._times[at]) if at < len(self._times) else FOREVER

    def uncertain(self, begin: int, end: int) -> Uncertain:
        """Patches that may or may not have been made at some time in [begin, end]."""
        self.settle()
        rows = self._patches.rows
        rows = rows[(rows["before"] <= np.uint64(end)) & (rows["after"] >= np.uint64(begin))]
        columns = {name: rows[name].copy() for name in Uncertain._fields[:-1]}
        return Uncertain(**columns, code=self._code.view())


def _disjoint(blobs: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """(start, end, data_at, id), sorted by start, longest first → the same cut so that at each address only the one
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

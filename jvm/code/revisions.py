"""The bytes of versions, as they were patched in time.

A version has one or more revisions: its bytes as first told, then a copy for each time at which some of them were found
changed (kept in jvm.code.revision_store). Here is decided when each of them began.

A patch is known to have happened after `before` and not after `after` (jvm.export.records.CodePatch). Its revision
begins in the middle: of all single times that one is wrong for the shortest time on average. If something else tells,
it begins where that says: a call that leads now to a method which was installed meanwhile most likely does so since
then. A caller that can do better than one time asks `uncertain` for the patches that may or may not have been made at a
time. Code that appears where only padding was (`jvm.code.diff`) is no change: the padding was never run; the code has
been there since the version's beginning.

A call that leads to an inline-cache stub (`jvm.calls.inline_cache`) is shown to lead where the stub did when the call
was read, or, once that is known, where the next revision says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.calls import inline_cache as inlinecache
from jvm.calls.call_sites import CALL, CALL_SIZE, targets
from jvm.code.diff import padding
from jvm.code.revision_store import AROUND, RevisionStore, Uncertain
from jvm.code.snapshot import CodeView
from jvm.code.version import FOREVER, Version

SETTLED = 64
"""So many edits, at least, become revisions in one step."""


class _Edit(NamedTuple):
    offset: int
    code: NDArray[np.uint8]
    before: int
    after: int
    until: int  # by then it was so
    at: int  # since then it is taken to be so


class Revisions:
    def __init__(self, lag: int, opened: Mapping[int, int]) -> None:
        """`lag`: ticks by which a revision begins later than its record. A decoder notices a revision that is shown too
        late at the first branch, and one shown too early perhaps never: one version of a method often runs like
        another. `opened`: entries of methods, since when they stand there."""
        self.lag, self._opened = lag, opened
        self._store = RevisionStore()
        self._edits: dict[int, tuple[Version, list[_Edit]]] = {}  # not yet in revisions
        self.inline: Version | None = None  # the inline-cache stubs
        self._through: dict[int, tuple[Version, int]] = {}  # versions whose last revisions call some, and when read
        self.patches = 0  # made in revisions
        self._lately: dict[int, tuple[int, Version]] = {}  # when in that order, and whose; until the version goes
        self.filled = 0

    # ---- telling

    def begin(self, version: Version, code: NDArray[np.uint8]) -> None:
        """A new version and its bytes."""
        at = version.data_at = self._store.code.append(code)
        version.data_size = len(code)
        end = version.start + len(code)
        row = (version.start, end, version.since, version.until, at, version.id)
        self._store.of[version.id] = [self._store.revisions.add(row)] if len(code) else []
        self._store.changed()

    def edit(
        self, version: Version, offset: int, code: NDArray[np.uint8], before: int, after: int, until: int = FOREVER
    ) -> None:
        """From `offset` on there was `code` at `after`, and not yet at `before`; since `until`, if that lies between.
        Bytes outside of the version are left out."""
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
        for row in self._store.of[version.id]:
            revision = self._store.revisions.rows[row]
            revision["until"] = min(int(revision["until"]), version.until)
        self._store.changed()

    def drop(self, versions: list[Version], before: int) -> bool:
        """These are not asked for any more, nor is any time earlier than `before`. Whether that was anything."""
        self.settle()
        for version in versions:
            self._through.pop(version.id, None)
            self._lately.pop(version.id, None)
        return self._store.drop(versions, before)

    def compact(self, versions: dict[int, Version]) -> None:
        """Gives memory back, if there is enough to give."""
        if self._store.code.wasteful:
            self.settle()
            self._store.compact(versions)

    def settle(self) -> None:
        """Edits become revisions, those made at one time one."""
        for _ in self.settling():
            pass

    def settling(self) -> Iterator[None]:
        """`settle` in steps: a late attach tells a thousand patches at once. Those of the inline-cache stubs first."""
        count = 0
        while self._edits:
            inline = self.inline.id if self.inline is not None else 0
            version, edits = self._edits.pop(inline if inline in self._edits else next(iter(self._edits)))
            count += len(edits)
            each = self._dated(version, edits)
            while each:
                each = self._fill(version, each) if self._is_fill(version, each[0]) else self._patch(version, each)
            self._store.changed()
            if count >= SETTLED:
                count = 0
                yield

    def _dated(self, version: Version, edits: list[_Edit]) -> list[_Edit]:
        """In the order in which they are taken to have been made. A call is not bound to a target that is not there
        yet."""
        code = self._store.part(version).copy()
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
        code = self._store.part(version)
        return padding(code, edit.offset, edit.offset + len(edit.code))

    def _fill(self, version: Version, edits: list[_Edit]) -> list[_Edit]:
        """The edits that only put code where padding was are made in all revisions; the edits that are left."""
        count = 0
        while count < len(edits) and self._is_fill(version, edits[count]):
            count += 1

        def filled(at: int) -> int:
            code = self._store.code.part(at, version.data_size).copy()
            for edit in edits[:count]:
                code[edit.offset : edit.offset + len(edit.code)] = edit.code
            self._store.code.garbage += version.data_size
            return self._store.code.append(code)

        for row in self._store.of[version.id]:
            self._store.revisions.rows[row]["data_at"] = filled(int(self._store.revisions.rows[row]["data_at"]))
        version.data_at = filled(version.data_at)
        self.filled += count
        return edits[count:]

    def _patch(self, version: Version, edits: list[_Edit]) -> list[_Edit]:
        """The first edit and those made at the same time become a revision; the edits that are left."""
        code = self._store.part(version).copy()
        was = code.copy()
        last = self._store.of[version.id][-1]
        _, _, before, after, until, at = edits[0]
        count = 0
        changed = False
        while count < len(edits) and edits[count][2:] == (before, after, until, at):
            offset, new = edits[count].offset, edits[count].code
            old = code[offset : offset + len(new)]
            fresh = after > version.loaded and after >= version.patched  # not a spool that is read again
            if fresh and not np.array_equal(old, new):
                begin, end = max(offset - AROUND, 0), min(offset + len(new) + AROUND, len(code))
                old_at = self._store.code.append(code[begin:end])
                old[:] = new
                new_at = self._store.code.append(code[begin:end])
                row = version.start + begin, before, until, old_at, new_at, version.id, end - begin, 0
                self._store.patches.add(row)
                changed = True
                self.patches += 1
            count += 1
        if changed:
            version.patched = after
            self._lately.pop(version.id, None)
            self._lately[version.id] = self.patches, version  # the last are those patched last
            shown = self._see_through(version, last, was, code, after)
            revision = self._store.revisions.rows[last]
            at = max(at, int(revision["since"]))
            revision["until"] = min(at, int(revision["until"]))
            version.data_at = self._store.code.append(code)
            start, end = int(revision["start"]), int(revision["end"])
            data_at = version.data_at if shown is code else self._store.code.append(shown)
            self._store.of[version.id].append(
                self._store.revisions.add((start, end, at, version.until, data_at, version.id))
            )
            if shown is not code:
                self._begin_shown(version, code, shown, after)
            self._show_patches(version, shown, after)
            if version is self.inline:
                self._stubs_changed(version, before, after)
        return edits[count:]

    def _see_through(
        self, version: Version, row: int, was: NDArray[np.uint8], code: NDArray[np.uint8], tsc: int
    ) -> NDArray[np.uint8]:
        """The revision `row` was `was` when it was read, and is `code` at `tsc`. Returns the bytes that the next
        revision is to show."""
        if self.inline is None:
            return code
        stubs = self.inline.start, self.inline.end
        revision = self._store.revisions.rows[row]
        shown = self._store.code.part(int(revision["data_at"]), version.data_size)
        over = inlinecache.ended(was, code, version.start, stubs)
        if len(over):
            shown = shown.copy()
            shown[over] = code[over]
            revision["data_at"] = self._store.code.append(shown)
            self._store.code.garbage += len(shown)
        seen = inlinecache.seen_through(code, was, shown, version.start, stubs, self._stubs_at(self.inline, tsc))
        if seen is None:
            self._through.pop(version.id, None)
            return code
        self._through[version.id] = version, tsc
        return seen

    def _begin_shown(self, version: Version, was: NDArray[np.uint8], shown: NDArray[np.uint8], after: int) -> None:
        """Instead of `was` the last revision, found at `after`, is `shown`: that, too, not before the targets of its
        calls."""
        calls = np.unique(np.flatnonzero(was != shown)[:, None] - np.arange(CALL_SIZE))
        calls = calls[(calls >= 0) & (calls + CALL_SIZE <= len(shown))]
        opened = self._last_opened(version, shown, calls[shown[calls] == CALL])
        revisions = [self._store.revisions.rows[row] for row in self._store.of[version.id][-2:]]
        if revisions[-1]["since"] < opened < after:
            since = min(opened + self.lag, after, int(revisions[-1]["until"]))
            for revision, end in zip(revisions, ("until", "since")[-len(revisions) :], strict=True):
                revision[end] = since

    def _show_patches(self, version: Version, shown: NDArray[np.uint8], after: int) -> None:
        """The patches found at `after` were to the bytes `shown`."""
        if version.id in self._through:
            rows = self._store.patches.rows
            for k in self._found_at(version, after):
                begin, size = int(rows["address"][k]) - version.start, int(rows["size"][k])
                rows["new_at"][k] = self._store.code.append(shown[begin : begin + size])

    def _stubs_changed(self, inline: Version, before: int, after: int) -> None:
        """Stubs were read after calls to them, and may have been written before."""
        for version, tsc in [known for known in self._through.values() if before <= known[1] <= after]:
            revision = self._store.revisions.rows[self._store.of[version.id][-1]]
            told = self._store.part(version)
            shown = self._store.code.part(int(revision["data_at"]), version.data_size)
            was = told.copy()
            was[self._patched(version, tsc)] = 0  # calls that were there before lead where they are shown to
            stubs = inline.start, inline.end
            seen = inlinecache.seen_through(told, was, shown, version.start, stubs, self._stubs_at(inline, tsc))
            if seen is not None and not np.array_equal(seen, shown):
                revision["data_at"] = self._store.code.append(seen)
                self._store.code.garbage += len(seen)
                self._begin_shown(version, shown, seen, tsc)
                self._show_patches(version, seen, tsc)

    def _found_at(self, version: Version, after: int) -> list[int]:
        """Which of the patches."""
        rows = self._store.patches.rows
        found: list[int] = np.flatnonzero((rows["id"] == version.id) & (rows["after"] == after)).tolist()
        return found

    def _patched(self, version: Version, after: int) -> NDArray[np.bool_]:
        """(size,) Which of its bytes were found changed at `after`."""
        found = np.zeros(version.data_size, np.bool_)
        for patch in self._store.patches.rows[self._found_at(version, after)]:
            begin, size = int(patch["address"]) - version.start, int(patch["size"])
            old, new = (self._store.code.part(int(patch[name]), size) for name in ("old_at", "new_at"))
            found[begin : begin + size] |= old != new
        return found

    def _stubs_at(self, inline: Version, tsc: int) -> NDArray[np.uint8]:
        """A call that was read at `tsc` was bound before, and its stub was written before that: so of the stubs that
        may have been there then the newest."""
        revisions = [self._store.revisions.rows[row] for row in self._store.of.get(inline.id, ())]
        at = [int(revision["data_at"]) for revision in revisions if int(revision["since"]) <= tsc]
        if not at:
            return self._store.code.part(0, 0)
        code = self._store.code.part(at[-1], inline.data_size).copy()
        rows = self._store.patches.rows
        for patch in rows[(rows["id"] == inline.id) & (rows["before"] <= tsc) & (rows["after"] >= tsc)]:
            begin, size = int(patch["address"]) - inline.start, int(patch["size"])
            code[begin : begin + size] = self._store.code.part(int(patch["new_at"]), size)
        return code

    # ---- asking

    def patched_since(self, patches: int) -> list[Version]:
        """The versions that were patched when more patches had been made than these."""
        self.settle()
        last = takewhile(lambda made: made[0] > patches, reversed(self._lately.values()))
        return [version for _, version in last]

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._store.size

    def first(self, version: Version) -> NDArray[np.uint8]:
        """Its bytes in the first revision that is kept; read-only by convention."""
        self.settle()
        rows = self._store.of.get(version.id)
        at = int(self._store.revisions.rows[rows[0]]["data_at"]) if rows else version.data_at
        return self._store.code.part(at, version.data_size)

    def latest(self, version: Version) -> NDArray[np.uint8]:
        """Its bytes as last told; read-only by convention."""
        self.settle()
        return self._store.part(version)

    def view(self, tsc: int | None, epoch: int) -> CodeView:
        """The revisions at `tsc`, or (None) the last ones of versions that stand; disjoint, where they nest the inner
        one."""
        self.settle()
        return self._store.view(tsc, epoch)

    def next_change(self, tsc: int) -> int:
        """The first time after `tsc` at which a view is another than at `tsc`; FOREVER: none."""
        self.settle()
        return self._store.next_change(tsc)

    def uncertain(self, begin: int, end: int) -> Uncertain:
        """Patches that may or may not have been made at some time in [begin, end]."""
        self.settle()
        return self._store.uncertain(begin, end)

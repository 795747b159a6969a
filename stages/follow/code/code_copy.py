"""The kernels' own copy of a process's code, and its changes.

Code lies in it in the order of its addresses, gaps of less than GAP included: so instructions may lie across touching
blobs (two pages, say), and a byte that changes is changed in place. A new view is compared with the one before blob by
blob, and byte by byte only where a blob is not the same bytes at the same place: views of one code image share their
bytes (`jvm.code.revisions` never writes again bytes that a view shows).

A patch made here stays until a view shows something else there than the view before: that another place of the blob has
changed says nothing of this one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.snapshot import CodeView
from jvm.code.version import FOREVER
from jvm.kernels import kernel

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
GAP = 1 << 20
ROOM = 1 << 18


class Code(NamedTuple):
    """Blobs in the order of their addresses; touching ones are one."""

    start: U64
    end: U64
    data_at: I64
    code: NDArray[np.uint8]

    def words(self) -> CodeWords:
        """The same for kernels."""
        return CodeWords(self.start.view(np.int64), self.end.view(np.int64), self.data_at, self.code)


class CodeWords(NamedTuple):
    """`Code` with addresses as int64 (`stages.pointers`)."""

    start: I64
    end: I64
    data_at: I64
    code: NDArray[np.uint8]


_Rows = tuple[U64, U64, I64, I64]
"""start, end, data_at and id of a view's blobs."""


class _Patch(NamedTuple):
    size: int
    tsc: int


class Changes(NamedTuple):
    """Where code is gone or other than it was: disjoint intervals [lo, hi). `grown`: there is code where none was."""

    lo: U64
    hi: U64
    grown: bool


class Image:
    def __init__(self) -> None:
        nowhere, none = np.empty(0, np.uint64), np.empty(0, np.int64)
        self.code = Code(nowhere, nowhere, none, np.zeros(1, np.uint8))
        self._places = self.code  # parts of the buffer
        self._rows: _Rows = nowhere, nowhere, none, none  # of the last view
        self._shown = self.code.code  # its bytes
        self._patches: dict[int, _Patch] = {}  # by address

    def update(self, view: CodeView) -> Changes:
        """From now on it is as in `view`. Raises ValueError if a blob's bytes lie outside the view's."""
        start, end, *_ = rows = _rows(view)
        fresh, gone = np.ones(len(start), np.bool_), np.ones(len(self._rows[0]), np.bool_)
        shared = view.code.ctypes.data == self._shown.ctypes.data  # which is alive, so these are the same bytes
        if shared and not _part(*rows, *self._rows, fresh, gone):
            return Changes(start[:0], end[:0], False)
        old, (blob_start, blob_end) = self.code, _merged(start, end, 0)
        self._make_room(blob_start, blob_end)
        buffer = self._places.code
        new = self._patched(rows, fresh, np.ascontiguousarray(view.code))
        lo, hi = _differences(new, old._replace(code=buffer), self._places)
        _copy(new, self._places)
        lost_lo, lost_hi = _outside(self._rows[0][gone], self._rows[1][gone], blob_start, blob_end)
        grown = not bool(_within(blob_start, blob_end, old.start, old.end).all())
        self.code = Code(blob_start, blob_end, _place(self._places, blob_start), buffer)
        self._rows, self._shown = rows, view.code
        return Changes(np.concatenate((lo, lost_lo)), np.concatenate((hi, lost_hi)), grown)

    def patch(self, address: int, data: bytes, tsc: int = FOREVER) -> None:
        """Change bytes in place, as at `tsc`. Raises ValueError if no blob holds them all."""
        at = np.array([address], np.uint64)
        if not _within(at, at + np.uint64(len(data)), self.code.start, self.code.end).all():
            raise ValueError(f"no code at {address:#x} to be changed")
        place = int(_place(self.code, at)[0])
        self.code.code[place : place + len(data)] = np.frombuffer(data, np.uint8)
        self._patches[address] = _Patch(max(self._patches.get(address, _Patch(0, 0)).size, len(data)), tsc)

    def restore(self, before: int) -> Changes:
        """Puts the view's bytes back where patches were made before so and so."""
        over = [address for address, patch in self._patches.items() if patch.tsc < before]
        if not over:
            return Changes(self._rows[0][:0], self._rows[0][:0], False)
        lo = np.array(over, np.uint64)
        hi = lo + np.array([self._patches.pop(address).size for address in over], np.uint64)
        start, end, at, _ = self._rows
        row = _holding(lo, hi - lo, start, end)
        lo, hi, row = lo[row >= 0], hi[row >= 0], row[row >= 0]
        shown = at[row] + (lo - start[row]).astype(np.int64)
        changed = np.ones(len(lo), np.bool_)
        places = zip(_place(self.code, lo).tolist(), shown.tolist(), (hi - lo).tolist(), strict=True)
        for k, (to, of, n) in enumerate(places):
            changed[k] = not np.array_equal(self.code.code[to : to + n], self._shown[of : of + n])
            self.code.code[to : to + n] = self._shown[of : of + n]
        return Changes(lo[changed], hi[changed], False)

    def _patched(self, rows: _Rows, fresh: NDArray[np.bool_], code: NDArray[np.uint8]) -> Code:
        """The `fresh` rows of a new view and its bytes, with the patches that stay; the others are forgotten."""
        start, end, at, id_ = rows
        new = Code(start[fresh], end[fresh], at[fresh], code)
        if not self._patches:
            return new
        address = np.array(list(self._patches), np.uint64)
        size = np.array([patch.size for patch in self._patches.values()], np.uint64)
        now, before = (_holding(address, size, *of[:2]) for of in (rows, self._rows))
        stay = (now >= 0) & (before >= 0)
        stay[stay] = id_[now[stay]] == self._rows[3][before[stay]]
        touched = np.flatnonzero(stay & fresh[now])
        copied = new._replace(code=_packed(new), data_at=_behind(new.end - new.start)) if len(touched) else new
        row = np.cumsum(fresh) - 1  # among the fresh ones
        for p in touched.tolist():
            here, n, i, j = int(address[p]), int(size[p]), int(now[p]), int(before[p])
            offset = here - int(start[i])
            shows = code[at[i] + offset :][:n]
            stay[p] = np.array_equal(shows, self._shown[int(self._rows[2][j]) + here - int(self._rows[0][j]) :][:n])
            if stay[p]:
                to, place = int(copied.data_at[row[i]]) + offset, int(_place(self.code, address[p : p + 1])[0])
                copied.code[to : to + n] = self.code.code[place : place + n]
        self._patches = {p: self._patches[p] for p in address[stay].tolist()}
        return copied

    def bytes_at(self, address: int, size: int) -> bytes:
        """As many of the `size` bytes at `address` as there are."""
        at = np.array([address], np.uint64)
        if not _within(at, at + np.uint64(1), self.code.start, self.code.end).all():
            return b""
        blob = int(np.searchsorted(self.code.start, at[0], side="right")) - 1
        place = int(_place(self.code, at)[0])
        return self.code.code[place : place + min(size, int(self.code.end[blob]) - address)].tobytes()

    def _make_room(self, start: U64, end: U64) -> None:
        """Lay out the buffer anew if blobs lie outside of its parts."""
        if bool(_within(start, end, self._places.start, self._places.end).all()):
            return
        old = self.code
        both = np.concatenate((old.start, start)), np.concatenate((old.end, end))
        order = np.argsort(both[0], kind="stable")
        lo, hi = _merged(*_wider(both[0][order], np.maximum.accumulate(both[1][order])), GAP)
        self._places = Code(lo, hi, _behind(hi - lo), np.zeros(int((hi - lo).sum()), np.uint8))
        _copy(old, self._places)


def _holding(address: U64, size: U64, start: U64, end: U64) -> I64:
    """(n,) which interval (ascending, disjoint) holds all `size` bytes; −1: none."""
    if not len(start):
        return np.full(len(address), -1, np.int64)
    row = np.searchsorted(start, address, side="right") - 1
    return np.where((row >= 0) & (address + size <= end[row]), row, -1)


def _behind(size: U64) -> I64:
    """Where each begins if they lie one behind the other."""
    return np.asarray(np.cumsum(size) - size).astype(np.int64)


def _packed(blobs: Code) -> NDArray[np.uint8]:
    """Their bytes alone, one behind the other."""
    size = (blobs.end - blobs.start).tolist()
    return np.concatenate([blobs.code[at : at + n] for at, n in zip(blobs.data_at.tolist(), size, strict=True)])


def _rows(view: CodeView) -> _Rows:
    start, end, at = view.start.astype(np.uint64), view.end.astype(np.uint64), view.data_at.astype(np.int64)
    id_ = view.blob.astype(np.int64)
    if bool((start[1:] < start[:-1]).any()):
        order = np.argsort(start, kind="stable")
        start, end, at, id_ = start[order], end[order], at[order], id_[order]
    size = (end - start).astype(np.int64)
    room = len(view.code) - at
    if bool((end < start).any()) or bool((at < 0).any()) or bool((size < 0).any()) or bool((size > room).any()):
        raise ValueError("code view: a blob's bytes lie outside its code")
    some = size > 0
    return (start, end, at, id_) if some.all() else (start[some], end[some], at[some], id_[some])


@kernel
def _part(start, end, at, id_, start_0, end_0, at_0, id_0, fresh, gone):  # type: ignore[no-untyped-def]
    """Rows that ascend, and those before: `fresh` and `gone` become False for the rows that are in both. Whether any is
    not."""
    i, j, both = 0, 0, 0
    while i < len(start) and j < len(start_0):
        if start[i] != start_0[j]:
            i, j = (i + 1, j) if start[i] < start_0[j] else (i, j + 1)
            continue
        if end[i] == end_0[j] and at[i] == at_0[j] and id_[i] == id_0[j]:
            fresh[i] = gone[j] = False
            both += 1
        i, j = i + 1, j + 1
    return both < max(len(start), len(start_0))


def _merged(start: U64, end: U64, gap: int) -> tuple[U64, U64]:
    """Intervals that lie at most `gap` apart, as one. Both ascend."""
    apart = (start[1:] > end[:-1]) & (start[1:] - end[:-1] > np.uint64(gap))
    some = np.ones(min(len(start), 1), np.bool_)
    return start[np.concatenate((some, apart))].copy(), end[np.concatenate((apart, some))].copy()


def _wider(start: U64, end: U64) -> tuple[U64, U64]:
    """With room for the code that comes next to them."""
    more = end | np.uint64(ROOM - 1)
    return start & ~np.uint64(ROOM - 1), np.where(more == np.uint64(0xFFFFFFFFFFFFFFFF), end, more + np.uint64(1))


def _within(start: U64, end: U64, blob_start: U64, blob_end: U64) -> NDArray[np.bool_]:
    """Which intervals lie in one blob."""
    if not len(blob_start):
        return np.zeros(len(start), np.bool_)
    blob = np.searchsorted(blob_start, start, side="right") - 1
    return np.asarray((blob >= 0) & (end <= blob_end[blob]), np.bool_)


def _place(code: Code, address: U64) -> I64:
    """Where in `code.code` the addresses lie."""
    blob = np.searchsorted(code.start, address, side="right") - 1
    return code.data_at[blob] + (address - code.start[blob]).astype(np.int64)


def _outside(start: U64, end: U64, blob_start: U64, blob_end: U64) -> tuple[U64, U64]:
    """The parts of intervals that lie in no blob."""
    parts = []
    for here, upto in zip(*(x[~_within(start, end, blob_start, blob_end)].tolist() for x in (start, end)), strict=True):
        for k in range(int(np.searchsorted(blob_end, np.uint64(here), side="right")), len(blob_start)):
            if blob_start[k] >= upto:
                break
            parts.append((here, int(blob_start[k])))
            here = int(blob_end[k])
        parts.append((here, upto))
    pairs = np.array([p for p in parts if p[0] < p[1]], np.uint64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _copy(blobs: Code, places: Code) -> None:
    to = _place(places, blobs.start)
    for a, b, n in zip(to.tolist(), blobs.data_at.tolist(), (blobs.end - blobs.start).tolist(), strict=True):
        places.code[a : a + n] = blobs.code[b : b + n]


@kernel
def _compare(new, at, old, lo, hi):  # type: ignore[no-untyped-def]
    """Where a byte of `new` is another in `old` (blobs of both ascend; `at`: where in `old.code` each of new's would
    lie). Returns how many intervals there are; only as many as fit are written."""
    n = 0
    j = 0
    for i in range(len(new.start)):
        here, end = new.start[i], new.end[i]
        while j < len(old.start) and old.end[j] <= here:
            j += 1
        m = j
        while m < len(old.start) and old.start[m] < end:
            k = np.int64(max(here, old.start[m]) - here)
            upto = np.int64(min(end, old.end[m]) - here)
            a, b = new.data_at[i], at[i]
            while k < upto:
                if new.code[a + k] == old.code[b + k]:
                    k += 1
                    continue
                if n < len(lo):
                    lo[n] = here + np.uint64(k)
                while k < upto and new.code[a + k] != old.code[b + k]:
                    k += 1
                if n < len(lo):
                    hi[n] = here + np.uint64(k)
                n += 1
            m += 1
    return n


def _differences(new: Code, old: Code, places: Code) -> tuple[U64, U64]:
    room = 1024
    while True:
        lo, hi = np.empty(room, np.uint64), np.empty(room, np.uint64)
        n = int(_compare(new, _place(places, new.start), old, lo, hi))
        if n <= room:
            return lo[:n], hi[:n]
        room = n

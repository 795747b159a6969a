"""A JIT export file made anew with those of its records that still matter (`jvm.export.living`).

It is done in small steps between the looks at the rings, because a file of many records takes a second in all. The new
file is written beside the old one and takes its place when it is whole: a process that dies before leaves the old one,
and the readers of the old file go on reading it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

from jvm.export.living import Living, Place
from jvm.export.parse import iter_records, placed_records, whole_records
from jvm.export.seal import sealed

READ = 256 << 10  # bytes of records read in one step, or one record
WRITE = 1 << 20  # bytes written in one step, or one record
EACH = 4096  # a record costs as much as so many bytes


class Compaction:
    """Of the records between `start` and `cut` of the file `fd`, which is `path`."""

    def __init__(self, path: Path, fd: int, start: int, cut: int) -> None:
        """Raises OSError."""
        self._path, self._fd, self._start, self.cut = path, fd, start, cut
        self._new = path.with_name(path.name + ".new")
        self._out = os.open(self._new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._written = 0
        self._copied = cut
        self._steps = self._work()

    @property
    def moved(self) -> int:
        """By so many bytes the records behind `cut` stand further ahead in the new file."""
        return self.cut - (self._written - (self._copied - self.cut))

    def step(self, end: int) -> int | None:
        """The next step; the old file ends at `end` now. The new file's descriptor once it has taken the old one's
        place; None: not yet. Raises OSError, or ExportError where the file does not hold records; then it is over."""
        try:
            if next(self._steps, False):
                return None
            more = min(end - self._copied, WRITE)
            self._write(os.pread(self._fd, more, self._copied))
            self._copied += more
            if self._copied < end:
                return None
            self._new.rename(self._path)
        except BaseException:
            self.abandon()
            raise
        return self._out

    def abandon(self) -> None:
        self._steps.close()
        os.close(self._out)
        with suppress(OSError):
            self._new.unlink()

    def _work(self) -> Generator[bool, None, None]:
        living = Living()
        at = self._start
        while at < self.cut:
            at += self._read(living, at)
            yield True
        self._write(os.pread(self._fd, self._start, 0))
        spent = 0
        for place in _joined(living.places()):
            self._copy(living, place)
            spent += place.size + EACH
            if spent >= WRITE:
                spent = 0
                yield True

    def _copy(self, living: Living, place: Place) -> None:
        data = bytearray(os.pread(self._fd, place.size, place.at))
        if place.code:
            for record in iter_records(data):
                living.update(record)
            data = sealed(data)
        self._write(data)

    def _read(self, living: Living, at: int) -> int:
        data = os.pread(self._fd, min(READ, self.cut - at), at)
        size = whole_records(data)
        if not size:
            size = int.from_bytes(data[:4], "little")
            data = os.pread(self._fd, size, at)
        for offset, length, record in placed_records(memoryview(data)[:size]):
            living.take(record, at + offset, length)
        return size

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self._out, view, self._written)
            self._written += done
            view = view[done:]


def _joined(places: Iterator[Place]) -> Iterator[Place]:
    """Those without code that stand one behind the other as one, of READ bytes at most."""
    last: Place | None = None
    for place in places:
        joins = last is not None and last.at + last.size == place.at and last.size + place.size <= READ
        if last is not None and joins and not last.code and not place.code:
            last = Place(last.at, last.size + place.size, False)
            continue
        if last is not None:
            yield last
        last = place
    if last is not None:
        yield last

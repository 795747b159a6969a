"""The consumer's side of the agent's ring, and the export file that capture spools it to.

Layout and protocol: docs/jit-export.md. One process consumes; it owns `tail`, which lives in the file, so a consumer
that starts again goes on where the last one stopped. Heads and tails are aligned 64-bit words read and written by
single loads and stores (numpy items on the mapping of the header page); x86 keeps their order. The records are
read, not mapped, and the page is guarded: the owner of the file may cut it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from jvm.export.parse import whole_records
from jvm.export.records import ExportError
from jvm.guarded import Guarded
from jvm.inputfile import map_input

RING_MAGIC = b"JITRING1"
FILE_MAGIC = b"JITEXPT1"
RING_VERSION = 1
FILE_VERSION = 2  # since its records are sealed (jvm.export.seal); files of version 1 are read still
PAGE = 4096
_RING_HEADER = struct.Struct("<8sIIQIIIIQQQ")
_FILE_HEADER = struct.Struct("<8sIIII40x")
# Offsets in the header page, each group on a cache line of its own.
_STATE, _HEAD, _TAIL, _DROPPED, _REPLAY_REQUESTED, _REPLAY_DONE, _CLASSES_LOST = 28, 128, 192, 256, 320, 324, 272
_WINDOW = 328
_FUTEX, _FUTEX_WAKE = 202, 1  # x86-64: asm/unistd_64.h; linux/futex.h

STATE_STARTING, STATE_RUNNING, STATE_ENDED = 0, 1, 2


class RingHeader(NamedTuple):
    """The constant part of the header page. Clocks (ns) were read beside `tsc` when the agent started."""

    size: int
    pid: int
    agent_version: int
    tsc: int
    monotonic_ns: int
    wall_ns: int


class RingReader:
    """Consumes one agent's ring file. Not for two consumers at once. Everything raises ExportError once it was cut."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        """Opens the ring at `path`, or takes over an open `descriptor` of it. Raises OSError, or ExportError if it is
        no ring of this version."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # no FIFO makes this wait
        self._fd = os.open(path, flags) if descriptor is None else descriptor
        try:
            size = os.fstat(self._fd).st_size
            if size < 2 * PAGE:
                raise ExportError(f"{path} is too small for a ring", 0)
            header = os.pread(self._fd, PAGE, 0)
            magic, version, header_size, ring, pid, _, agent, _, tsc, mono, wall = _RING_HEADER.unpack_from(header)
            known = magic == RING_MAGIC and version == RING_VERSION and header_size == PAGE
            if not known or ring != size - PAGE or ring & (ring - 1):
                raise ExportError(f"{path} is no JIT ring of version {RING_VERSION}", 0)
            self._page = Guarded(self._fd, PAGE)
        except BaseException:
            os.close(self._fd)
            raise
        self.path = path
        self.header = RingHeader(ring, pid, agent, tsc, mono, wall)
        self._u64 = np.frombuffer(self._page.map, np.uint64, PAGE // 8)
        self._u32 = np.frombuffer(self._page.map, np.uint32, PAGE // 4)
        self.corrupt = 0  # times the ring contradicted itself and was skipped to its head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._page.closed:
            del self._u64, self._u32
            self._page.close()
            os.close(self._fd)

    def _check(self) -> None:
        """Behind each access to the page."""
        if self._page.hit or os.fstat(self._fd).st_size != PAGE + self.header.size:
            raise ExportError(f"{self.path} was cut", 0)

    def _word(self, offset: int) -> int:
        value = int(self._u64[offset // 8])
        self._check()
        return value

    def _half(self, offset: int) -> int:
        value = int(self._u32[offset // 4])
        self._check()
        return value

    @property
    def state(self) -> int:
        """STATE_STARTING, STATE_RUNNING or STATE_ENDED (the JVM has shut down; a killed one stays RUNNING)."""
        return self._half(_STATE)

    @property
    def pending(self) -> int:
        """Bytes written and not yet consumed."""
        return self._word(_HEAD) - self._word(_TAIL)

    @property
    def dropped(self) -> int:
        """Records dropped because the ring was full, since the agent started."""
        return self._word(_DROPPED)

    @property
    def dropped_bytes(self) -> int:
        return self._word(_DROPPED + 8)

    @property
    def classes_lost(self) -> int:
        """Dropped CLASS_DEF records, which no replay brings back."""
        return self._word(_CLASSES_LOST)

    def peek(self, limit: int = 1 << 24) -> tuple[bytes, int]:
        """A copy of whole records from the tail on, at most `limit` bytes unless the first record alone is larger,
        and the position to `commit` once they are safe. Raises ExportError if the file was cut, or holds no
        records where the limit cuts it."""
        size = self.header.size
        tail, head = self._word(_TAIL), self._word(_HEAD)
        if not 0 <= head - tail <= size or (head | tail) % 8:
            self.corrupt += 1
            return b"", head
        count = min(head - tail, max(limit, 64))
        data = self._copy(tail, count)
        if count == head - tail:
            return data, head
        whole = whole_records(data)
        if not whole:
            data = self._copy(tail, min(struct.unpack_from("<I", data)[0], head - tail))
            whole = len(data)
        return data[:whole], tail + whole

    def commit(self, position: int) -> None:
        """Gives everything before `position` back to the agent."""
        self._u64[_TAIL // 8] = position
        self._check()

    def drain(self, limit: int = 1 << 24) -> bytes:
        """`peek` and `commit` at once; empty when nothing is pending."""
        data, position = self.peek(limit)
        self.commit(position)
        return data

    def _copy(self, position: int, count: int) -> bytes:
        at = position % self.header.size
        first = os.pread(self._fd, min(count, self.header.size - at), PAGE + at)
        rest = os.pread(self._fd, count - len(first), PAGE) if len(first) < count else b""
        if len(first) + len(rest) != count:
            raise ExportError(f"{self.path} was cut", position)
        return first + rest

    def request_replay(self) -> int:
        """Asks the agent to export its whole state again; returns the replay's number (see `replay_done`)."""
        number = (self._half(_REPLAY_REQUESTED) + 1) & 0xFFFFFFFF
        self._u32[_REPLAY_REQUESTED // 4] = number
        self._check()
        return number

    def tell_window(self, on: bool | None) -> None:
        """Tells the agent that tracing is on from now on, in a new window, or off; None: that it is always on. It
        tells stacks in windows alone, soon after they begin."""
        window = self._half(_WINDOW)
        window = 0 if on is None else ((window + 1) | 1 if on else (window | 1) + 1) & 0xFFFFFFFF
        self._u32[_WINDOW // 4] = window
        self._check()
        address = self._u32.ctypes.data + _WINDOW
        ctypes.CDLL(None).syscall(_FUTEX, ctypes.c_void_p(address), _FUTEX_WAKE, 1, None, None, 0)

    @property
    def replay_done(self) -> int:
        """Number of the last replay that was finished (0: none)."""
        return self._half(_REPLAY_DONE)


def file_header(pid: int) -> bytes:
    """The bytes before the records of an export file."""
    return _FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, _FILE_HEADER.size, pid, 0)


class ExportFile(NamedTuple):
    pid: int
    sealed: bool  # the records have checksums
    records: memoryview


def export_of(view: memoryview, name: str) -> ExportFile:
    """The parts of an export file whose bytes are `view`. Raises ExportError if it is none of a version known here;
    damage of its records is found by `jvm.export.seal.spans`."""
    if len(view) < _FILE_HEADER.size:
        raise ExportError(f"{name} is no JIT export", 0)
    magic, version, size, pid, _ = _FILE_HEADER.unpack_from(view)
    if magic != FILE_MAGIC or not 1 <= version <= FILE_VERSION or not _FILE_HEADER.size <= size <= len(view):
        raise ExportError(f"{name} is no JIT export of version 1 to {FILE_VERSION}", 0)
    return ExportFile(pid, version > 1, view[size:])


def open_export(path: Path) -> ExportFile:
    """Maps an export file. Raises OSError, ExportError (see `export_of`)."""
    return export_of(map_input(path, 1 << 42), str(path))

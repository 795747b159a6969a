"""The consumer's side of the agent's ring, and the export file that capture spools it to.

Layout and protocol: docs/jit-export.md. One process consumes; it owns `tail`, which lives in the file, so a consumer
that starts again goes on where the last one stopped. Heads and tails are aligned 64-bit words read and written by
single loads and stores (numpy items on the mapping); x86 keeps their order.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from jvm.export import VERSION, ExportError, whole_records

RING_MAGIC = b"JITRING1"
FILE_MAGIC = b"JITEXPT1"
PAGE = 4096
_RING_HEADER = struct.Struct("<8sIIQIIIIQQQ")
_FILE_HEADER = struct.Struct("<8sIIII40x")
# Offsets in the header page, each group on a cache line of its own.
_STATE, _HEAD, _TAIL, _DROPPED, _REPLAY_REQUESTED, _REPLAY_DONE, _CLASSES_LOST = 28, 128, 192, 256, 320, 324, 272

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
    """Consumes one agent's ring file. Not for two consumers at once."""

    def __init__(self, path: Path) -> None:
        """Maps the ring at `path`. Raises OSError, or ExportError if it is no ring of this version."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size < 2 * PAGE:
                raise ExportError(f"{path} is too small for a ring", 0)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        magic, version, header, ring, pid, _, agent, _, tsc, mono, wall = _RING_HEADER.unpack_from(self._map)
        if magic != RING_MAGIC or version != VERSION or header != PAGE or ring != size - PAGE or ring & (ring - 1):
            self._map.close()
            raise ExportError(f"{path} is no JIT ring of version {VERSION}", 0)
        self.path = path
        self.header = RingHeader(ring, pid, agent, tsc, mono, wall)
        self._words = np.frombuffer(self._map, np.uint64, PAGE // 8)
        self._halves = np.frombuffer(self._map, np.uint32, PAGE // 4)
        self._data = memoryview(self._map)[PAGE:]
        self.corrupt = 0  # times the ring contradicted itself and was skipped to its head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._data.release()
        del self._words, self._halves
        self._map.close()

    @property
    def state(self) -> int:
        """STATE_STARTING, STATE_RUNNING or STATE_ENDED (the JVM has shut down; a killed one stays RUNNING)."""
        return int(self._halves[_STATE // 4])

    @property
    def pending(self) -> int:
        """Bytes written and not yet consumed."""
        return int(self._words[_HEAD // 8]) - int(self._words[_TAIL // 8])

    @property
    def dropped(self) -> int:
        """Records dropped because the ring was full, since the agent started."""
        return int(self._words[_DROPPED // 8])

    @property
    def dropped_bytes(self) -> int:
        return int(self._words[_DROPPED // 8 + 1])

    @property
    def classes_lost(self) -> int:
        """Dropped CLASS_DEF records: what no replay brings back."""
        return int(self._words[_CLASSES_LOST // 8])

    def peek(self, limit: int = 1 << 24) -> tuple[bytes, int]:
        """A copy of whole records from the tail on, at most `limit` bytes unless the first record alone is larger,
        and the position to `commit` once they are safe."""
        tail, head = int(self._words[_TAIL // 8]), int(self._words[_HEAD // 8])
        size = self.header.size
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
        self._words[_TAIL // 8] = position

    def drain(self, limit: int = 1 << 24) -> bytes:
        """`peek` and `commit` at once; empty when nothing is pending."""
        data, position = self.peek(limit)
        self.commit(position)
        return data

    def _copy(self, position: int, count: int) -> bytes:
        at = position % self.header.size
        first = bytes(self._data[at : at + count])
        return first + bytes(self._data[: count - len(first)]) if len(first) < count else first

    def request_replay(self) -> int:
        """Asks the agent to export its whole state again; returns the replay's number (see `replay_done`)."""
        number = (int(self._halves[_REPLAY_REQUESTED // 4]) + 1) & 0xFFFFFFFF
        self._halves[_REPLAY_REQUESTED // 4] = number
        return number

    @property
    def replay_done(self) -> int:
        """Number of the last replay that was finished (0: none)."""
        return int(self._halves[_REPLAY_DONE // 4])


def file_header(pid: int) -> bytes:
    """What stands before the records in an export file."""
    return _FILE_HEADER.pack(FILE_MAGIC, VERSION, _FILE_HEADER.size, pid, 0)


class ExportFile(NamedTuple):
    pid: int
    records: memoryview


def open_export(path: Path) -> ExportFile:
    """Maps an export file. Raises OSError, or ExportError if it is none of this version; a cut last record is
    found by `iter_records`, or left out by `whole_records`."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _FILE_HEADER.size:
            raise ExportError(f"{path} is no JIT export", 0)
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    magic, version, size, pid, _ = _FILE_HEADER.unpack_from(view)
    if magic != FILE_MAGIC or version != VERSION or not _FILE_HEADER.size <= size <= len(view):
        raise ExportError(f"{path} is no JIT export of version {VERSION}", 0)
    return ExportFile(pid, view[size:])

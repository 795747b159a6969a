"""How far each stream has been drained, for rings that end with the process that drains them: its successor's rings
begin at 0, but the stream goes on where it was. One file, a slot of 16 bytes a stream: i32 cpu, i32 tid, u64 head."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from stages.messages import StreamKey

_SLOT = struct.Struct("<iiQ")


class Heads:
    def __init__(self, path: Path, host: str) -> None:
        """Opens or makes the file at `path`. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        slots = [*_SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size])]
        self._slots = {(cpu, tid): n for n, (cpu, tid, _) in enumerate(slots)}
        self._heads = {(cpu, tid): head for cpu, tid, head in slots}
        self._host = host

    def of(self, key: StreamKey) -> int:
        return int(self._heads.get((key.cpu, key.tid), 0))

    def reached(self, key: StreamKey, head: int) -> None:
        place = key.cpu, key.tid
        self._heads[place] = head
        slot = self._slots.setdefault(place, len(self._slots))
        os.pwrite(self._fd, _SLOT.pack(*place, head), slot * _SLOT.size)

    def all(self, pid: int) -> dict[StreamKey, int]:
        return {StreamKey(self._host, pid, *place): head for place, head in self._heads.items()}

    def close(self) -> None:
        os.close(self._fd)

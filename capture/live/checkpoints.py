"""How far each stream has been drained, for rings that end with the process that drains them: its successor's rings
begin at 0, but the stream goes on where it was. One file, a slot of 40 bytes a stream: a sealed record
(`jvm.export.seal`), whose value is the head and whose body is i32 cpu, i32 tid, u64 number. Of streams that have ended
the last `MOST` are kept, for the hub to hear of them; others take their slots. A damaged slot is told and taken by the
next stream; its former stream begins at 0.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from jvm.export import seal
from stages.messages import StreamKey

MOST = 512
_PLACE = struct.Struct("<iiQ")
_HEAD = 1  # type of the sealed records
_SLOT = len(seal.record(_HEAD, 0, bytes(_PLACE.size)))
_Place = tuple[int, int, int]  # cpu, tid, number


class Heads:
    def __init__(self, path: Path, host: str) -> None:
        """Opens or makes the file at `path`; `damage` names the damaged part, if any. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        data = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        self._slots: dict[_Place, int] = {}
        self._heads: dict[_Place, int] = {}
        self._free: list[int] = []
        self.damage = ""
        for slot in range(-(-len(data) // _SLOT)):
            self._read(data[slot * _SLOT : (slot + 1) * _SLOT], slot, path)
        self._over: dict[_Place, None] = dict.fromkeys(self._heads)  # in order; until one is seen to go on
        self._host = host

    def _read(self, data: bytes, slot: int, path: Path) -> None:
        *_, span = seal.spans(data)
        if span.fault or span.start:
            self.damage = self.damage or f"{path}: {span.told(slot * _SLOT)}"
            self._free.append(slot)
            return
        ((head, body),) = seal.values(data)
        place = _PLACE.unpack(body)
        self._slots[place], self._heads[place] = slot, head

    def of(self, key: StreamKey) -> int:
        return self._heads.get(key[2:], 0)

    def reached(self, key: StreamKey, head: int) -> None:
        place = key[2:]
        self._heads[place] = head
        self._over.pop(place, None)
        slot = self._slots.get(place)
        if slot is None:
            slot = self._slots[place] = self._free.pop() if self._free else len(self._slots)
        with suppress(OSError):  # no room: a successor takes the stream for a little shorter than it is
            os.pwrite(self._fd, seal.record(_HEAD, head, _PLACE.pack(*place)), slot * _SLOT)

    def ended(self, key: StreamKey) -> None:
        """It goes no further."""
        if key[2:] in self._heads:
            self._over[key[2:]] = None
        while len(self._over) > MOST:
            oldest = next(iter(self._over))
            del self._over[oldest], self._heads[oldest]
            self._free.append(self._slots.pop(oldest))

    def over(self, pid: int) -> dict[StreamKey, int]:
        """Of streams that have ended."""
        return {StreamKey(self._host, pid, *place): self._heads[place] for place in self._over}

    def all(self, pid: int) -> dict[StreamKey, int]:
        return {StreamKey(self._host, pid, *place): head for place, head in self._heads.items()}

    def close(self) -> None:
        os.close(self._fd)

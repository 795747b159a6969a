"""Small writers of capture's inputs: perf records, ring files, and a producer that follows the kernel's rules."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np

from capture.live import ring
from capture.perf.records import MISC_SWITCH_OUT, AuxFlag, RecordType

MULT, SHIFT, ZERO = 1 << 20, 21, 0  # half a nanosecond a tick: ns = tsc / 2, exact for even ticks


def trailer(pid: int, tid: int, ns: int, cpu: int, ident: int = 1) -> bytes:
    return struct.pack("<iiQiIQ", pid, tid, ns, cpu, 0, ident)


def record(kind: int, body: bytes, tail: bytes, misc: int = 0) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, misc, 8 + len(body) + len(tail)) + body + tail


def aux(offset: int, size: int, flags: int = 0, *, pid: int = 7, tid: int = 7, ns: int = 0, cpu: int = 0) -> bytes:
    return record(RecordType.AUX, struct.pack("<3Q", offset, size, flags), trailer(pid, tid, ns, cpu))


def lost(count: int, *, ns: int = 0, cpu: int = 0) -> bytes:
    return record(RecordType.LOST, struct.pack("<QQ", 1, count), trailer(0, 0, ns, cpu))


def itrace_start(pid: int, tid: int, *, ns: int = 0, cpu: int = 0) -> bytes:
    return record(RecordType.ITRACE_START, struct.pack("<ii", pid, tid), trailer(pid, tid, ns, cpu))


def switch(pid: int, tid: int, *, out: bool = False, ns: int = 0, cpu: int = 0) -> bytes:
    misc = MISC_SWITCH_OUT if out else 0
    return record(RecordType.SWITCH_CPU_WIDE, struct.pack("<ii", 0, 0), trailer(pid, tid, ns, cpu), misc)


def comm(pid: int, tid: int, name: str, *, ns: int = 0, cpu: int = 0) -> bytes:
    return record(RecordType.COMM, struct.pack("<ii", pid, tid) + name.encode() + b"\0", trailer(pid, tid, ns, cpu))


def mmap2(pid: int, tid: int, address: int, size: int, name: str, *, ns: int = 0, cpu: int = 0) -> bytes:
    body = struct.pack("<iiQQQIIQQII", pid, tid, address, size, 0, 0, 0, 0, 0, 5, 2) + name.encode() + b"\0"
    return record(RecordType.MMAP2, body, trailer(pid, tid, ns, cpu))


def task(kind: RecordType, pid: int, parent: int, tid: int, parent_tid: int, *, ns: int = 0, cpu: int = 0) -> bytes:
    return record(kind, struct.pack("<iiiiQ", pid, parent, tid, parent_tid, ns), trailer(pid, tid, ns, cpu))


class Producer:
    """Writes a ring file as the kernel (or the emulated PT) does: never over unread bytes, TRUNCATED and LOST when
    there is no room."""

    def __init__(self, path: Path, *, data_pages: int = 1, aux_pages: int = 1) -> None:
        self.path = path
        data, aux_size = data_pages * ring.PAGE, aux_pages * ring.PAGE
        if not path.exists():
            page = bytearray(ring.PAGE)
            struct.pack_into("<Q", page, ring.CAPABILITIES, ring.CAP_USER_TIME_ZERO)
            struct.pack_into("<HI", page, ring.TIME_SHIFT, SHIFT, MULT)
            struct.pack_into("<Q", page, ring.TIME_ZERO, ZERO)
            struct.pack_into("<4Q", page, ring.DATA_HEAD, 0, 0, ring.PAGE, data)
            struct.pack_into("<4Q", page, ring.AUX_HEAD, 0, 0, ring.PAGE + data, aux_size)
            new = path.with_suffix(".new")
            new.write_bytes(bytes(page) + bytes(data + aux_size))
            new.rename(path)
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.lost = 0
        self.truncated = 0

    def close(self) -> None:
        self.map.close()

    def get(self, field: int) -> int:
        return int(struct.unpack_from("<Q", self.map, field)[0])

    def set(self, field: int, value: int) -> None:
        struct.pack_into("<Q", self.map, field, value)

    def _put(self, head_at: int, data: bytes) -> None:
        offset, size = self.get(head_at + 16), self.get(head_at + 24)
        head = self.get(head_at)
        for i in range(0, len(data), ring.PAGE):  # in pieces, so that each wraps at most once
            piece = data[i : i + ring.PAGE]
            at = (head + i) % size
            first = min(len(piece), size - at)
            self.map[offset + at : offset + at + first] = piece[:first]
            self.map[offset : offset + len(piece) - first] = piece[first:]
        self.set(head_at, head + len(data))

    def room(self, head_at: int) -> int:
        return self.get(head_at + 24) - (self.get(head_at) - self.get(head_at + 8))

    def records(self, *records: bytes) -> None:
        for each in records:
            pending = lost(self.lost) if self.lost else b""
            if len(pending) + len(each) > self.room(ring.DATA_HEAD):
                self.lost += 1
                continue
            self._put(ring.DATA_HEAD, pending + each)
            self.lost = 0

    def trace(self, data: bytes, ns: int = 0) -> int:
        """Appends as many bytes as fit, with their AUX record, TRUNCATED when not all did; the number of bytes that did
        not."""
        fits = data[: self.room(ring.AUX_HEAD)]
        offset, size = self.get(ring.AUX_HEAD + 16), self.get(ring.AUX_HEAD + 24)
        head = self.get(ring.AUX_HEAD)
        index = (head + np.arange(len(fits))) % size
        np.frombuffer(self.map, np.uint8, size, offset)[index] = np.frombuffer(fits, np.uint8)
        # the kernel writes the AUX record before it publishes aux_head (perf_aux_output_end)
        self.records(aux(head, len(fits), AuxFlag.TRUNCATED if len(fits) < len(data) else 0, ns=ns))
        self.set(ring.AUX_HEAD, head + len(fits))
        self.truncated += len(data) - len(fits)
        return len(data) - len(fits)

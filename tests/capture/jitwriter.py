"""Writes JIT records and a ring as the agent does (docs/jit-export.md)."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from jvm.export import ring as jit_ring
from jvm.export.records import HEADER, PAD, RecordType

HEAD, TAIL, DROPPED, REPLAY_REQUESTED = 128, 192, 256, 320


def record(kind: RecordType, payload: bytes, tsc: int = 0, tid: int = 1) -> bytes:
    payload += bytes(-len(payload) % 8)
    return HEADER.pack(HEADER.size + len(payload), kind, 0, tsc, tid, 0) + payload


def thread_start(tid: int, name: str, tsc: int = 0) -> bytes:
    return record(RecordType.THREAD_START, struct.pack("<II", tid, len(name)) + name.encode(), tsc)


def dynamic_code(address: int, code: bytes, name: str = "stub", tsc: int = 0) -> bytes:
    text = name.encode() + bytes(-(HEADER.size + 24 + len(name)) % 8)
    fields = struct.pack("<QIIII", address, len(code), len(code), len(name), 0)
    return record(RecordType.DYNAMIC_CODE, fields + text + code, tsc)


def code_cache(low: int, high: int) -> bytes:
    return record(RecordType.CODE_CACHE, struct.pack("<QQII", low, high, 0, 0))


class Agent:
    """The producer of one ring file."""

    def __init__(self, path: Path, pid: int, size: int = 1 << 16) -> None:
        self.size = size
        header = struct.pack("<8sIIQIIIIQQQ", jit_ring.RING_MAGIC, 1, jit_ring.PAGE, size, pid, 1, 1, 0, 0, 0, 0)
        new = path.with_suffix(".new")
        new.write_bytes(header.ljust(jit_ring.PAGE + size, b"\0"))
        new.rename(path)
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def get(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self.map, at)[0])

    def window(self) -> int:
        return self.get(328) & 0xFFFFFFFF

    def write(self, *records: bytes) -> None:
        for each in records:
            head = self.get(HEAD)
            to_end = self.size - head % self.size
            pad = struct.pack("<IHH", to_end, PAD, 0).ljust(to_end, b"\0") if to_end < len(each) else b""
            if head + len(pad) + len(each) - self.get(TAIL) > self.size:
                struct.pack_into("<Q", self.map, DROPPED, self.get(DROPPED) + 1)
                continue
            for piece in (pad, each):
                at = jit_ring.PAGE + head % self.size
                self.map[at : at + len(piece)] = piece
                head += len(piece)
            struct.pack_into("<Q", self.map, HEAD, head)

    def close(self) -> None:
        self.map.close()

"""Writes JIT-export records: the test's own idea of docs/jit-export.md, apart from the agent's C and the parser.

data = Writer().method(1, "LFoo;", "bar", "()V").nmethod_load(0x1000, code, 1, pcs=[(4, [(1, 0)])]).bytes()
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Self, TypeAlias

from jvm.export.records import FRAME_DTYPE, RecordType
from jvm.export.ring import FILE_MAGIC

assert FRAME_DTYPE.itemsize == 8
Data: TypeAlias = bytes  # in a class of which `bytes` is a method


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


class Writer:
    """Each method appends one record and returns self. `tsc` counts up by `step` with each record."""

    def __init__(self, tsc: int = 1000, step: int = 10, tid: int = 77) -> None:
        self._parts: list[bytes] = []
        self.tsc, self.step, self.tid = tsc, step, tid

    def bytes(self) -> Data:
        return b"".join(self._parts)

    def file(self, pid: int = 42) -> Data:
        return FILE_MAGIC + struct.pack("<IIII40x", 1, 64, pid, 0) + self.bytes()

    def at(self, tsc: int) -> Self:
        self.tsc = tsc
        return self

    def record(self, kind: int, payload: Data, flags: int = 0) -> Self:
        body = padded(payload)
        self._parts.append(struct.pack("<IHHQII", 24 + len(body), kind, flags, self.tsc, self.tid, 0) + body)
        self.tsc += self.step
        return self

    def pad(self, size: int) -> Self:
        self._parts.append(struct.pack("<IHH", size, 0, 0) + bytes(size - 8))
        return self

    def agent_info(self, pid: int = 42, vm: str = "VM", version: str = "25", options: str = "") -> Self:
        names = [s.encode() for s in (vm, version, options)]
        head = struct.pack("<IIQQHHHH", 1, pid, 0, 0, *map(len, names), 0)
        return self.record(RecordType.AGENT_INFO, head + b"".join(names))

    def code_cache(self, low: int, high: int, heaps: Sequence[tuple[str, int, int, int]] = ()) -> Self:
        payload = struct.pack("<QQII", low, high, len(heaps), 0)
        for name, lo, hi, committed in heaps:
            payload += struct.pack("<QQQII", lo, hi, committed, len(name.encode()), 0) + padded(name.encode())
        return self.record(RecordType.CODE_CACHE, payload)

    def interpreter(self, start: int, code: Data) -> Self:
        return self.record(RecordType.INTERPRETER, struct.pack("<QQII", start, start + len(code), len(code), 0) + code)

    def codelet(self, start: int, end: int, bytecode: int, description: str) -> Self:
        text = description.encode()
        return self.record(RecordType.CODELET, struct.pack("<QQiI", start, end, bytecode, len(text)) + text)

    def dispatch_table(self, address: int, rows: Sequence[Sequence[int]]) -> Self:
        payload = struct.pack("<QII", address, len(rows), len(rows[0]))
        return self.record(RecordType.DISPATCH_TABLE, payload + b"".join(struct.pack("<Q", e) for r in rows for e in r))

    def class_(self, id_: int, signature: str, definition: int = 0, loader: int = 0, modifiers: int = 1) -> Self:
        text = signature.encode()
        head = struct.pack("<IIIIII", id_, definition, loader, modifiers, len(text), 0)
        return self.record(RecordType.CLASS, head + text)

    def class_def(self, id_: int, name: str, data: Data, loader: int = 0) -> Self:
        text = name.encode()
        head = struct.pack("<IIII", id_, loader, len(text), len(data))
        return self.record(RecordType.CLASS_DEF, head + padded(text) + data)

    def method(
        self,
        id_: int,
        holder: str,
        name: str,
        signature: str = "()V",
        modifiers: int = 1,
        code_size: int = 10,
        class_id: int = 1,
    ) -> Self:
        texts = [s.encode() for s in (holder, name, signature)]
        head = struct.pack("<IIIIHHHH", id_, class_id, modifiers, code_size, *map(len, texts), 0)
        return self.record(RecordType.METHOD, head + b"".join(texts))

    def nmethod_load(
        self,
        address: int,
        code: Data,
        method: int,
        pcs: Sequence[tuple[int, Sequence[tuple[int, int]]]] = (),
        *,
        level: int = 4,
        compile_id: int = 1,
        entry: int = 0,
        verified_entry: int = 0,
        osr_entry: int = 0,
        blob: int = 0,
        entry_bci: int = -1,
        state: int = 0,
        exception_offset: int = -1,
        deopt_offset: int = -1,
        stub_offset: int = -1,
        locations: Sequence[tuple[int, int]] = (),
        flags: int = 0,
    ) -> Self:
        """`pcs`: (offset, frames innermost first as (method id, bci)), ascending."""
        frames = [frame for _, stack in pcs for frame in stack]
        frame_at = [0]
        for _, stack in pcs:
            frame_at.append(frame_at[-1] + len(stack))
        payload = struct.pack("<QQQQQ", address, entry, verified_entry, osr_entry, blob)
        payload += struct.pack("<IIii", method, compile_id, level, entry_bci)
        payload += struct.pack("<iiii", exception_offset, deopt_offset, stub_offset, state)
        payload += struct.pack("<IIII", len(code), len(pcs), len(frames), len(locations))
        offsets = b"".join(struct.pack("<I", offset) for offset, _ in pcs)
        payload += padded(offsets + b"".join(struct.pack("<I", n) for n in frame_at))
        payload += b"".join(struct.pack("<Ii", *pair) for pair in (*frames, *locations))
        return self.record(RecordType.NMETHOD_LOAD, payload + code, flags)

    def nmethod_unload(self, address: int, method: int) -> Self:
        return self.record(RecordType.NMETHOD_UNLOAD, struct.pack("<QII", address, method, 0))

    def nmethod_state(self, address: int, compile_id: int, state: int) -> Self:
        return self.record(RecordType.NMETHOD_STATE, struct.pack("<Qii", address, compile_id, state))

    def code_patch(self, address: int, before: int, after: int, code: Data) -> Self:
        return self.at(after).record(20, struct.pack("<QQQII", address, before, after, len(code), 0) + code)

    def dynamic_code(self, address: int, name: str, code: Data, size: int | None = None) -> Self:
        return self._code(RecordType.DYNAMIC_CODE, address, name, code, size, 0)

    def blob(self, address: int, name: str, code: Data, kind: int = 2, size: int | None = None) -> Self:
        return self._code(RecordType.BLOB, address, name, code, size, kind)

    def _code(self, kind: int, address: int, name: str, code: Data, size: int | None, blob_kind: int) -> Self:
        text = name.encode()
        size = len(code) if size is None else size
        head = struct.pack("<QIIII", address, size, len(code), len(text), blob_kind)
        return self.record(kind, head + padded(text) + code)

    def thread_start(self, os_tid: int, name: str, flags: int = 0) -> Self:
        text = name.encode()
        return self.record(RecordType.THREAD_START, struct.pack("<II", os_tid, len(text)) + text, flags)

    def thread_end(self, os_tid: int) -> Self:
        return self.record(RecordType.THREAD_END, struct.pack("<II", os_tid, 0))

    def overflow(self, records: int, lost: int) -> Self:
        return self.record(RecordType.OVERFLOW, struct.pack("<QQ", records, lost))

    def replay_begin(self, number: int) -> Self:
        return self.record(RecordType.REPLAY_BEGIN, struct.pack("<II", number, 0))

    def replay_end(self, number: int) -> Self:
        return self.record(RecordType.REPLAY_END, struct.pack("<II", number, 0))

    def vm_death(self) -> Self:
        return self.record(RecordType.VM_DEATH, b"")

    def class_unload(self, id_: int) -> Self:
        return self.record(RecordType.CLASS_UNLOAD, struct.pack("<II", id_, 0))

    def stack(
        self, os_tid: int, frames: Sequence[tuple[int, int, int]], flags: int = 1, before: int | None = None
    ) -> Self:
        """`frames`: (pc, method, bci), innermost first."""
        head = struct.pack("<IIIIQ", os_tid, len(frames), flags, 0, self.tsc - 1 if before is None else before)
        return self.record(RecordType.STACK, head + b"".join(struct.pack("<QIi", *frame) for frame in frames))

    def mount(self, tid: int, thread: int) -> Self:
        self.tid, before = tid, self.tid
        self.record(RecordType.MOUNT, struct.pack("<Q", thread))
        self.tid = before
        return self

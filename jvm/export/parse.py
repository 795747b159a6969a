"""Bytes → JIT-export records (jvm.export.records). Everything read here may be hostile or cut: each length is checked
against the record that holds it, and nothing is copied but names."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.export.records import (
    ALIGNMENT,
    FRAME_DTYPE,
    HEADER,
    LOCATION_DTYPE,
    PAD,
    STACK_FRAME_DTYPE,
    AgentInfo,
    Blob,
    Buffer,
    Class,
    ClassDef,
    ClassUnload,
    CodeCache,
    Codelet,
    CodePatch,
    DispatchTable,
    DynamicCode,
    ExportError,
    Heap,
    Interpreter,
    Method,
    Mount,
    NmethodLoad,
    NmethodState,
    NmethodUnload,
    Overflow,
    Record,
    RecordType,
    ReplayBegin,
    ReplayEnd,
    Stack,
    ThreadEnd,
    ThreadStart,
    VmDeath,
)


def text(data: memoryview) -> str:
    raw = bytes(data)
    if raw.isascii():
        return raw.decode("ascii")
    # The JVM's modified UTF-8 (JVMS 4.4.7): NUL as C0 80, characters beyond the BMP as surrogate pairs.
    try:
        wide = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return wide.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


class _Payload:
    """A cursor over one record's payload; running past its end is an ExportError."""

    __slots__ = ("at", "data", "offset")

    def __init__(self, data: memoryview, offset: int) -> None:
        self.data, self.offset, self.at = data, offset, 0

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self.data):
            raise ExportError("a field runs past its record", self.offset)
        part = self.data[self.at : end]
        self.at = end
        return part

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def array(self, dtype: np.dtype, count: int) -> NDArray:  # type: ignore[type-arg]
        return np.frombuffer(self.take(dtype.itemsize * count), dtype)

    def text(self, size: int) -> str:
        return text(self.take(size))

    def align(self) -> None:
        self.at += -self.at % ALIGNMENT


_AGENT_INFO = struct.Struct("<IIQQHHHH")
_CODE_CACHE = struct.Struct("<QQII")
_HEAP = struct.Struct("<QQQII")
_INTERPRETER = struct.Struct("<QQII")
_CODELET = struct.Struct("<QQiI")
_DISPATCH = struct.Struct("<QII")
_CLASS = struct.Struct("<IIIIII")
_CLASS_DEF = struct.Struct("<IIII")
_METHOD = struct.Struct("<IIIIHHHH")
_NMETHOD = struct.Struct("<QQQQQIIiiiiiiIIII")
_UNLOAD = struct.Struct("<QII")
_STATE = struct.Struct("<Qii")
_CODE = struct.Struct("<QIIII")
_THREAD = struct.Struct("<II")
_OVERFLOW = struct.Struct("<QQ")
_NUMBER = struct.Struct("<II")
_STACK = struct.Struct("<IIIIQ")
_MOUNT = struct.Struct("<Q")
_PATCH = struct.Struct("<QQQII")

_U4 = np.dtype("<u4")
_U8 = np.dtype("<u8")
_Head = tuple[int, int, int]  # tsc, tid, flags


def _agent_info(head: _Head, p: _Payload) -> Record:
    version, pid, mono, wall, name, vm_version, options, _ = p.fields(_AGENT_INFO)
    return AgentInfo(*head, version, pid, mono, wall, p.text(name), p.text(vm_version), p.text(options))


def _code_cache(head: _Head, p: _Payload) -> Record:
    low, high, count, _ = p.fields(_CODE_CACHE)
    heaps = []
    for _ in range(count):  # each turn takes bytes, so a wild count ends at the record's end
        lo, hi, committed, size, _ = p.fields(_HEAP)
        heaps.append(Heap(p.text(size), lo, hi, committed))
        p.align()
    return CodeCache(*head, low, high, tuple(heaps))


def _interpreter(head: _Head, p: _Payload) -> Record:
    start, end, size, _ = p.fields(_INTERPRETER)
    return Interpreter(*head, start, end, p.take(size))


def _codelet(head: _Head, p: _Payload) -> Record:
    start, end, bytecode, size = p.fields(_CODELET)
    return Codelet(*head, start, end, bytecode, p.text(size))


def _dispatch(head: _Head, p: _Payload) -> Record:
    address, rows, columns = p.fields(_DISPATCH)
    return DispatchTable(*head, address, p.array(_U8, rows * columns).reshape(rows, columns))


def _class(head: _Head, p: _Payload) -> Record:
    id_, definition, loader, modifiers, size, _ = p.fields(_CLASS)
    return Class(*head, id_, definition, loader, modifiers, p.text(size))


def _class_def(head: _Head, p: _Payload) -> Record:
    id_, loader, name, size = p.fields(_CLASS_DEF)
    text = p.text(name)
    p.align()
    return ClassDef(*head, id_, loader, text, p.take(size))


def _method(head: _Head, p: _Payload) -> Record:
    id_, class_id, modifiers, code_size, holder, name, signature, _ = p.fields(_METHOD)
    return Method(*head, id_, class_id, modifiers, code_size, p.text(holder), p.text(name), p.text(signature))


def _nmethod_load(head: _Head, p: _Payload) -> Record:
    fields = p.fields(_NMETHOD)
    code_size, pcs, frames, locations = fields[13:]
    pc_offset = p.array(_U4, pcs)
    frame_at = p.array(_U4, pcs + 1)
    p.align()
    frame_array = p.array(FRAME_DTYPE, frames)
    location_array = p.array(LOCATION_DTYPE, locations)
    if int(frame_at[0]) or int(frame_at[-1]) != frames or bool((frame_at[1:] < frame_at[:-1]).any()):
        raise ExportError("inline stacks do not add up", p.offset)
    arrays = p.take(code_size), pc_offset, frame_at, frame_array, location_array
    return NmethodLoad(*(*head, *fields[:13], *arrays))


def _nmethod_unload(head: _Head, p: _Payload) -> Record:
    address, method, _ = p.fields(_UNLOAD)
    return NmethodUnload(*head, address, method)


def _nmethod_state(head: _Head, p: _Payload) -> Record:
    return NmethodState(*head, *p.fields(_STATE))


def _dynamic_code(head: _Head, p: _Payload) -> Record:
    address, size, code, name, _ = p.fields(_CODE)
    text = p.text(name)
    p.align()
    return DynamicCode(*head, address, size, text, p.take(code))


def _blob(head: _Head, p: _Payload) -> Record:
    address, size, code, name, kind = p.fields(_CODE)
    text = p.text(name)
    p.align()
    return Blob(*head, address, size, text, p.take(code), kind)


def _thread_start(head: _Head, p: _Payload) -> Record:
    tid, size = p.fields(_THREAD)
    return ThreadStart(*head, tid, p.text(size))


def _thread_end(head: _Head, p: _Payload) -> Record:
    return ThreadEnd(*head, p.fields(_THREAD)[0])


def _overflow(head: _Head, p: _Payload) -> Record:
    return Overflow(*head, *p.fields(_OVERFLOW))


def _replay_begin(head: _Head, p: _Payload) -> Record:
    return ReplayBegin(*head, p.fields(_NUMBER)[0])


def _replay_end(head: _Head, p: _Payload) -> Record:
    return ReplayEnd(*head, p.fields(_NUMBER)[0])


def _vm_death(head: _Head, p: _Payload) -> Record:
    return VmDeath(*head)


def _class_unload(head: _Head, p: _Payload) -> Record:
    return ClassUnload(*head, p.fields(_NUMBER)[0])


def _code_patch(head: _Head, p: _Payload) -> Record:
    address, before, after, size, _ = p.fields(_PATCH)
    return CodePatch(*head, address, before, after, p.take(size))


def _stack(head: _Head, p: _Payload) -> Record:
    tid, count, flags, _, before = p.fields(_STACK)
    return Stack(*head, tid, flags, before, p.array(STACK_FRAME_DTYPE, count))


def _mount(head: _Head, p: _Payload) -> Record:
    return Mount(*head, *p.fields(_MOUNT))


def code_patch(address: int, before: int, after: int, code: bytes) -> bytes:
    """A CODE_PATCH record."""
    payload = _PATCH.pack(address, before, after, len(code), 0) + code
    payload += bytes(-len(payload) % ALIGNMENT)
    return HEADER.pack(HEADER.size + len(payload), RecordType.CODE_PATCH, 0, after, 0, 0) + payload


_PARSERS: dict[int, Callable[[_Head, _Payload], Record]] = {
    RecordType.AGENT_INFO: _agent_info,
    RecordType.CODE_CACHE: _code_cache,
    RecordType.INTERPRETER: _interpreter,
    RecordType.CODELET: _codelet,
    RecordType.DISPATCH_TABLE: _dispatch,
    RecordType.CLASS: _class,
    RecordType.CLASS_DEF: _class_def,
    RecordType.METHOD: _method,
    RecordType.NMETHOD_LOAD: _nmethod_load,
    RecordType.NMETHOD_UNLOAD: _nmethod_unload,
    RecordType.DYNAMIC_CODE: _dynamic_code,
    RecordType.BLOB: _blob,
    RecordType.THREAD_START: _thread_start,
    RecordType.THREAD_END: _thread_end,
    RecordType.OVERFLOW: _overflow,
    RecordType.REPLAY_BEGIN: _replay_begin,
    RecordType.REPLAY_END: _replay_end,
    RecordType.VM_DEATH: _vm_death,
    RecordType.NMETHOD_STATE: _nmethod_state,
    RecordType.CODE_PATCH: _code_patch,
    RecordType.CLASS_UNLOAD: _class_unload,
    RecordType.STACK: _stack,
    RecordType.MOUNT: _mount,
}


def iter_records(
    buffer: Buffer, skipped: Counter[int] | None = None, only: Container[int] | None = None
) -> Iterator[Record]:
    """The records of `buffer`, in order; with `only`, those of these types. Types not known here are left out and
    counted in `skipped`.

    Raises ExportError at the first record that is cut or contradicts itself.
    """
    view = octets(buffer)
    for offset, kind, flags, tsc, tid, size in _frames(view):
        if only is not None and kind not in only:
            continue
        parser = _PARSERS.get(kind)
        if parser is not None:
            yield parser((tsc, tid, flags), _Payload(view[offset + HEADER.size : offset + size], offset))
        elif skipped is not None:
            skipped[kind] += 1


def placed_records(buffer: Buffer) -> Iterator[tuple[int, int, Record]]:
    """As `iter_records`, with where in `buffer` each record begins and its size."""
    view = octets(buffer)
    for offset, kind, flags, tsc, tid, size in _frames(view):
        parser = _PARSERS.get(kind)
        if parser is not None:
            yield offset, size, parser((tsc, tid, flags), _Payload(view[offset + HEADER.size : offset + size], offset))


def octets(buffer: Buffer) -> memoryview:
    if not len(buffer):
        return memoryview(b"")  # an empty array cannot be cast
    return (buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)).cast("B")


def _frames(view: memoryview) -> Iterator[tuple[int, int, int, int, int, int]]:
    at, end = 0, len(view)
    while at < end:
        if end - at < ALIGNMENT:
            raise ExportError("a record is cut", at)
        size, kind, flags = struct.unpack_from("<IHH", view, at)
        if size % ALIGNMENT or size < (ALIGNMENT if kind == PAD else HEADER.size):
            raise ExportError(f"a record cannot have the size {size}", at)
        if size > end - at:
            raise ExportError("a record is cut", at)
        if kind != PAD:
            _, _, _, tsc, tid, _ = HEADER.unpack_from(view, at)
            yield at, kind, flags, tsc, tid, size
        at += size


def parts(buffer: Buffer, most: int) -> Iterator[slice]:
    """Of all of `buffer`, in order: as many whole records as there are in `most` bytes, or one that is larger. From
    bytes that are no record on, the rest is one."""
    begin = 0
    with suppress(ExportError):
        for at, *_, size in _frames(octets(buffer)) if len(buffer) > most else ():
            if at + size - begin > most and at > begin:
                yield slice(begin, at)
                begin = at
    yield slice(begin, len(buffer))


def whole_records(buffer: Buffer) -> int:
    """Length of the longest prefix of `buffer` that consists of whole records: the content of a file whose writer died.
    Raises ExportError if the bytes behind are not a cut record but no record at all."""
    view = octets(buffer)
    at, end = 0, len(view)
    while end - at >= ALIGNMENT:
        size, kind, _ = struct.unpack_from("<IHH", view, at)
        if size % ALIGNMENT or size < (ALIGNMENT if kind == PAD else HEADER.size):
            raise ExportError(f"a record cannot have the size {size}", at)
        if size > end - at:
            break
        at += size
    return at

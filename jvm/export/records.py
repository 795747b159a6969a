"""JIT-export records: what the agent says about the code of a JVM, as it stands in its ring and in export files.

The format is described in docs/jit-export.md; the C side is jvm/agent/record.h. Everything read here may be
hostile or cut: each length is checked against the record that holds it, and nothing is copied but names. Arrays
and code are views into the buffer that was parsed, so they live as long as it does.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<IHHQII")  # size with this header, type, flags, tsc, tid, checksum (jvm.export.seal) or 0
PAD = 0  # fills the ring up to its end; only its first 8 bytes (size, type, flags) need exist
ALIGNMENT = 8

Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]


class ExportError(ValueError):
    """The bytes are no JIT export; `offset` says where in the buffer."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"JIT export: {message} at byte {offset}")
        self.offset = offset


class RecordType(IntEnum):
    AGENT_INFO = 1
    CODE_CACHE = 2
    INTERPRETER = 3
    CODELET = 4
    DISPATCH_TABLE = 5
    CLASS = 6
    CLASS_DEF = 7
    METHOD = 8
    NMETHOD_LOAD = 9
    NMETHOD_UNLOAD = 10
    DYNAMIC_CODE = 11
    BLOB = 12
    THREAD_START = 13
    THREAD_END = 14
    OVERFLOW = 15
    REPLAY_BEGIN = 16
    REPLAY_END = 17
    VM_DEATH = 18
    NMETHOD_STATE = 19
    CODE_PATCH = 20
    CLASS_UNLOAD = 21


class RecordFlag(IntFlag):
    REPLAYED = 1  # tells of the state found, not of an event: its TSC is the time of the replay
    RECONSTRUCTED = 2  # CLASS_DEF: put together from JVMTI, without fields, exception tables, attributes


class BlobKind(IntEnum):
    """CodeBlob kinds that matter to a decoder (JDK: CodeBlobKind in codeBlob.hpp)."""

    UNKNOWN = 0
    NMETHOD = 1
    BUFFER = 2
    ADAPTER = 3
    VTABLE = 4
    MH_ADAPTER = 5
    RUNTIME_STUB = 6
    DEOPTIMIZATION = 7
    SAFEPOINT = 8
    EXCEPTION = 9
    UNCOMMON_TRAP = 10
    UPCALL = 11


class NmethodStatus(IntEnum):
    """nmethod::_state, with the same numbers for every JDK. A not-entrant one is entered no more."""

    UNKNOWN = -2
    NOT_INSTALLED = -1
    IN_USE = 0
    NOT_ENTRANT = 1
    GONE = 2


FRAME_DTYPE = np.dtype([("method", "<u4"), ("bci", "<i4")])
LOCATION_DTYPE = np.dtype([("offset", "<u4"), ("bci", "<i4")])


class Heap(NamedTuple):
    """One code heap: reserved [low, high), mapped so far up to `committed`."""

    name: str
    low: int
    high: int
    committed: int


@dataclass(frozen=True, slots=True)
class Record:
    """What every record has: TSC when it was made, OS tid of the thread that made it, `RecordFlag` bits."""

    tsc: int
    tid: int
    flags: int


@dataclass(frozen=True, slots=True)
class AgentInfo(Record):
    """First record of each export and of each replay. The two clocks (ns) were read beside `tsc`."""

    agent_version: int
    pid: int
    monotonic_ns: int
    wall_ns: int
    vm_name: str
    vm_version: str
    options: str


@dataclass(frozen=True, slots=True)
class CodeCache(Record):
    """Reserved bounds [low, high) of the whole code cache, and its heaps."""

    low: int
    high: int
    heaps: tuple[Heap, ...]


@dataclass(frozen=True, slots=True)
class Interpreter(Record):
    """The template interpreter's code [start, end)."""

    start: int
    end: int
    code: memoryview


@dataclass(frozen=True, slots=True)
class Codelet(Record):
    """One template [start, end) of the interpreter; `bytecode` −1: none (entries, exits, exception handlers)."""

    start: int
    end: int
    bytecode: int
    description: str


@dataclass(frozen=True, slots=True)
class DispatchTable(Record):
    """`entries[tos_state, bytecode]`: where the interpreter jumps. Which table it is: see docs/jit-export.md."""

    address: int
    entries: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Class(Record):
    """A class: `signature` as the JVM gives it (``Ljava/lang/String;``; hidden classes have ``.0x…`` or ``/0x…`` in
    it). `definition` names the CLASS_DEF that it was loaded from, 0 if it was loaded before the agent looked."""

    id: int
    definition: int
    loader: int
    modifiers: int
    signature: str


@dataclass(frozen=True, slots=True)
class ClassDef(Record):
    """Class-file bytes as they were loaded, or RECONSTRUCTED. `name` as the loader gave it (``java/lang/String``; may
    be empty); if reconstructed, as in the signature."""

    id: int
    loader: int
    name: str
    data: memoryview


@dataclass(frozen=True, slots=True)
class Method(Record):
    """Stands before the first record that uses its `id`. `class_signature`, `name`, `signature` in JVM form."""

    id: int
    class_id: int
    modifiers: int
    code_size: int
    class_signature: str
    name: str
    signature: str


@dataclass(frozen=True, slots=True)
class NmethodLoad(Record):
    """Compiled code. Frames of pc i: `frames[frame_at[i]:frame_at[i + 1]]`, innermost first.

    `pc_offset` (n,) u4 ascending, relative to `address`; `frame_at` (n + 1,) u4; `frames` FRAME_DTYPE (method id,
    bci; −1: method entry); `locations` LOCATION_DTYPE: JVMTI's own address-location map. The state before a pc
    describes the instructions that end at it. Fields that the vmStructs did not yield are 0 (offsets: −1).
    """

    address: int
    entry: int
    verified_entry: int
    osr_entry: int
    blob: int  # address of the nmethod itself, 0: unknown
    method: int
    compile_id: int
    level: int  # 1–3: C1, 4: C2, 0: native wrapper (or unknown: blob == 0)
    entry_bci: int  # −1: normal entry; else OSR
    exception_offset: int
    deopt_offset: int
    stub_offset: int
    state: int  # NmethodStatus
    code: memoryview
    pc_offset: NDArray[np.uint32]
    frame_at: NDArray[np.uint32]
    frames: NDArray[np.void]
    locations: NDArray[np.void]

    @property
    def end(self) -> int:
        return self.address + len(self.code)


@dataclass(frozen=True, slots=True)
class NmethodUnload(Record):
    address: int
    method: int


@dataclass(frozen=True, slots=True)
class NmethodState(Record):
    """An nmethod was found in another state than before (seen by polling: true from somewhat earlier on)."""

    address: int
    compile_id: int
    state: int  # NmethodStatus


@dataclass(frozen=True, slots=True)
class DynamicCode(Record):
    """A stub, adapter or the like, from JVMTI's DynamicCodeGenerated. `code` may be shorter than `size`."""

    address: int
    size: int
    name: str
    code: memoryview

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(frozen=True, slots=True)
class Blob(DynamicCode):
    """A live code blob found by walking the code heaps."""

    kind: int


@dataclass(frozen=True, slots=True)
class ThreadStart(Record):
    """`os_tid` runs the Java thread `name` (from `tsc` on, unless REPLAYED: then already before)."""

    os_tid: int
    name: str


@dataclass(frozen=True, slots=True)
class ThreadEnd(Record):
    os_tid: int


@dataclass(frozen=True, slots=True)
class Overflow(Record):
    """Records were dropped since the record before it. The counts are totals since the start."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReplayBegin(Record):
    """From here to REPLAY_END with the same number: the whole state anew."""

    number: int


@dataclass(frozen=True, slots=True)
class ReplayEnd(Record):
    number: int


@dataclass(frozen=True, slots=True)
class VmDeath(Record):
    pass


@dataclass(frozen=True, slots=True)
class ClassUnload(Record):
    """The class is gone, and its methods with it: their ids do not come again. Found by polling, so its code may have
    been unloaded before or be unloaded after it."""

    id: int


@dataclass(frozen=True, slots=True)
class CodePatch(Record):
    """Bytes that were found in the process's memory instead of those known before. The change happened after `before`,
    when they were still the old ones, and not after `after`. Without bytes (`code` empty): all that changed before
    `before` has been told."""

    address: int
    before: int
    after: int
    code: memoryview

    @property
    def end(self) -> int:
        return self.address + len(self.code)


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


def whole_records(buffer: Buffer) -> int:
    """Length of the longest prefix of `buffer` that consists of whole records: what a file whose writer died holds.
    Raises ExportError if what follows is not a cut record but no record at all."""
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

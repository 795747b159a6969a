"""JIT-export records: the agent's statements about the code of a JVM, as they stand in its ring and in export files.

The format is described in docs/jit-export.md; the C side is jvm/agent/record.h; `jvm.export.parse` reads it. Arrays
and code are views into the buffer that was parsed, so they live as long as it does.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.faults import ExpectedError

HEADER = struct.Struct("<IHHQII")  # size with this header, type, flags, tsc, tid, checksum (jvm.export.seal) or 0
PAD = 0  # fills the ring up to its end; only its first 8 bytes (size, type, flags) need exist
ALIGNMENT = 8

Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]


class ExportError(ExpectedError, ValueError):
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
    STACK = 22
    MOUNT = 23


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


class StackFlag(IntFlag):
    WHOLE = 1  # the bottom was reached


class NmethodStatus(IntEnum):
    """nmethod::_state, with the same numbers for every JDK. A not-entrant one is entered no more."""

    UNKNOWN = -2
    NOT_INSTALLED = -1
    IN_USE = 0
    NOT_ENTRANT = 1
    GONE = 2


FRAME_DTYPE = np.dtype([("method", "<u4"), ("bci", "<i4")])
LOCATION_DTYPE = np.dtype([("offset", "<u4"), ("bci", "<i4")])

STACK_FRAME_DTYPE = np.dtype([("pc", "<u8"), ("method", "<u4"), ("bci", "<i4")])


class Heap(NamedTuple):
    """One code heap: reserved [low, high), mapped so far up to `committed`."""

    name: str
    low: int
    high: int
    committed: int


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of every record: TSC when it was made, OS tid of the thread that made it, `RecordFlag` bits."""

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
    """Stands before the first record that uses its `id`. `class_signature`, `name`, `signature` in JVM form. Without a
    class (id 0): met in a stack (jvm.export.unowned)."""

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


@dataclass(frozen=True, slots=True)
class Stack(Record):
    """The Java frames of thread `os_tid`, which did not change from `before` (a TSC) to `tsc`; innermost first.

    `frames` STACK_FRAME_DTYPE: where control goes on in that frame; of interpreted frames the method's id (else 0) and
    the bci (else, and of native methods, −1).
    """

    os_tid: int
    stack_flags: int  # StackFlag
    before: int
    frames: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Mount(Record):
    """From `tsc` on, the virtual thread `thread` (Thread.threadId()) runs on the carrier `tid`. Thread 0: from here on
    mounts were not told, so of no carrier it is known what runs there, until it is told of that one again."""

    thread: int

"""What the stages say to each other.

Every message is a frozen dataclass. Inside a group of stages it is passed by direct call; between groups the
codec (`streamer.transport.codec`) sends it as a ZeroMQ multipart: small fields in a msgpack header, every field
of type ``bytes`` or ``numpy.ndarray`` as a raw frame. So a field is either a small scalar (int, float, str, bool,
None, IntEnum), a key, a tuple of those, or one bulk array.

All times are TSC ticks (uint64) of the traced machine; wall time is made at the edge from `Clock`.
Offsets are positions in a stream, in bytes since it was opened: what `aux_head` counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]


class Loss(IntEnum):
    """Why something was not seen. Never one number: each kind has its own counter and its own remedy."""

    OVERFLOW = 1  # OVF packet: the processor's internal buffer was full
    AUX_FULL = 2  # AUX record TRUNCATED: we drained the kernel's (or emulator's) AUX ring too late
    SIDEBAND_LOST = 3  # LOST record: the data ring (switches, mmaps) was full
    JIT_LOST = 4  # the agent's export ring was full (healed by replay)
    TRANSPORT = 5  # our own socket was full, or a message went missing (sequence gap)
    CAPTURE_DOWN = 6  # drained by a capture process that died before sending
    WORKER_DOWN = 7  # sent to a worker that died before reporting
    CODE_MISSING = 8  # the trace went to code nobody told us about
    CODE_PENDING = 9  # the code's load event did not arrive within the watermark
    DESYNC = 10  # the trace contradicts the code: wrong from the last confirmed point on
    BAD_PACKET = 11  # bytes that are no packet: skipped to the next PSB
    NO_SYNC = 12  # bytes before the first PSB of a stream (after a start or a loss)
    SHED = 13  # not followed on purpose, because we were behind: of these bytes only the addresses were read
    UNKNOWN_THREAD = 14  # no switch record says which thread these bytes belong to
    HUB_DOWN = 15  # reported to a hub that died before it noted it


class StreamKey(NamedTuple):
    """One AUX buffer: a CPU (tid −1) or a thread (cpu −1). Thread ids come again: `number` tells the buffers of two
    threads with one id apart."""

    host: str
    pid: int
    cpu: int
    tid: int
    number: int = 0


class ThreadKey(NamedTuple):
    host: str
    pid: int
    tid: int


class LossMark(NamedTuple):
    """A loss that lies just before stream position `offset`. `lost` counts bytes that never entered the stream
    (0 = the source does not know); they are not part of the offsets."""

    offset: int
    cause: Loss
    lost: int
    tsc: int


class Clock(NamedTuple):
    """TSC → perf/CLOCK_MONOTONIC ns, as in struct perf_event_mmap_page: ns = zero + (tsc * mult >> shift), and
    the wall time (ns since the epoch) of ns = 0."""

    mult: int
    shift: int
    zero: int
    wall_zero: int

    def ns(self, tsc: int) -> int:
        # quotient and remainder as perf_event.h says, so that nothing overflows in C; Python only needs the sum
        return self.zero + ((tsc * self.mult) >> self.shift)

    def tsc(self, ns: int) -> int:
        return ((ns - self.zero) << self.shift) // self.mult

    @property
    def hz(self) -> float:
        return 1e9 * (1 << self.shift) / self.mult


class PtConfig(NamedTuple):
    """How the trace was made: what a decoder must know (perf's AUXTRACE_INFO carries the same)."""

    family: int = 0  # CPU family and model, for errata; 0 = none
    model: int = 0
    filter_lo: int = 0  # IP filter [lo, hi); lo == hi: no filter
    filter_hi: int = 0
    mtc_shift: int = -1  # IA32_RTIT_CTL.MTCFreq; −1: no MTC
    ctc_num: int = 0  # CPUID.15H: EBX (numerator, TSC) and EAX (denominator, crystal clock)
    ctc_den: int = 0
    noretcomp: bool = False
    cyc: bool = False


@dataclass(frozen=True, slots=True)
class StreamOpen:
    """A stream begins (or is introduced again to a new worker)."""

    stream: StreamKey
    config: PtConfig
    clock: Clock


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """All of a stream has been told. What is known of it is dropped when it has been handled."""

    stream: StreamKey
    tsc: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream as drained."""

    stream: StreamKey
    seq: int  # +1 a chunk in each stream; a gap is a TRANSPORT loss, in bytes: offset − expected offset
    offset: int
    data: U8
    losses: tuple[LossMark, ...] = ()
    tsc: int = 0  # when it was drained (upper bound of what it holds)


class SideKind(IntEnum):
    SWITCH_IN = 1  # from tsc on `cpu` runs (pid, tid)
    SWITCH_OUT = 2
    ITRACE_START = 3  # tracing of (pid, tid) began on `cpu`
    COMM = 4
    FORK = 5
    EXIT = 6
    AUX = 7  # aux_offset/aux_size/flags in `a`, `b`, `c`
    LOST = 8  # count in `a`
    MMAP2 = 9


SIDE_DTYPE = np.dtype(
    [("tsc", "<u8"), ("kind", "<i4"), ("cpu", "<i4"), ("pid", "<i4"), ("tid", "<i4"),
     ("a", "<u8"), ("b", "<u8"), ("c", "<u8")]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sideband:
    """Records of one stream's data ring. Sent before the chunk whose bytes they explain: capture reads aux_head
    first and the data ring after it, so a chunk's switches are never behind it."""

    stream: StreamKey
    seq: int
    records: NDArray[np.void]  # SIDE_DTYPE, in ring order
    tsc: int = 0


@dataclass(frozen=True, slots=True)
class JitBatch:
    """JIT-export records as the agent wrote them (see `jvm.export.records`), whole records only, in order."""

    host: str
    pid: int
    seq: int
    data: U8
    dropped: int = 0  # the ring's drop counter so far
    tsc: int = 0  # every record with an earlier TSC that will ever come has come, but for replays


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed at the source though nothing was written: lets panes close."""

    host: str
    pid: int
    tsc: int


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """Nothing more will come from `source`; acknowledged by the receiver before the sender closes."""

    source: str


class MarkKind(IntEnum):
    """The rare packets: where a stream can be entered or must be cut, and what time it is there."""

    PSB = 1  # ip = FUP address in PSB+ (0: none: tracing was off), tsc = TSC in PSB+
    OVF = 2
    PGE = 3
    PGD = 4
    TIME = 5  # TSC packet, or the estimate at an MTC
    BAD = 6  # undecodable from here to the next PSB


MARK_DTYPE = np.dtype([("offset", "<u8"), ("ip", "<u8"), ("tsc", "<u8"), ("kind", "<i4"), ("size", "<i4")])


@dataclass(frozen=True, slots=True)
class Decoded:
    """A chunk after the packet layer: whole packets only (a packet cut by the chunk's end comes with the next)."""

    stream: StreamKey
    offset: int
    data: U8
    marks: NDArray[np.void]  # MARK_DTYPE, offsets absolute in the stream
    losses: tuple[LossMark, ...]  # those of the chunk, BAD_PACKET and NO_SYNC; an OVF is a mark
    last_ip: int  # decoder state before data[0]
    tsc: int  # time estimate before data[0]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of one thread's trace with no loss inside, or a piece of one (`continues`)."""

    thread: ThreadKey
    stream: StreamKey
    number: int  # counts up in each thread; pieces of one segment share it
    offset: int
    data: U8
    marks: NDArray[np.void]
    last_ip: int
    tsc: int  # time before data[0]
    tsc_end: int
    continues: bool  # True: follows the piece before it without a hole
    hole: tuple[LossMark, ...] = ()  # what lies before it, if not


@dataclass(frozen=True, slots=True)
class ThreadEnd:
    """All segments of a thread have been told, the last of them of `stream`; its id may come again for another."""

    thread: ThreadKey
    stream: StreamKey
    tsc: int  # of its exit


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes of one stream from `start` to `end`: every one decoded, or in a hole of a named cause.
    Consecutive accounts of a stream join without a gap; the hub makes a hole of any gap it finds."""

    stream: StreamKey
    start: int
    end: int
    decoded: int
    holes: tuple[tuple[Loss, int], ...]  # sums with `decoded` to end − start
    never_written: tuple[tuple[Loss, int], ...] = ()  # events × lost bytes outside the stream's offsets
    events: tuple[tuple[Loss, int], ...] = ()  # how many holes of each cause
    shed: int = 0  # of `decoded`, those that were not followed: only the addresses in them were read


PROFILE_DTYPE = np.dtype(
    [("method", "<i4"), ("tid", "<i4"), ("kind", "<i4"), ("_", "<i4"),
     ("hits", "<u8"), ("instructions", "<u8"), ("ticks", "<u8"), ("invocations", "<u8"),
     ("untold", "<u8"), ("uncounted", "<u8")]
)  # fmt: skip
"""`untold`: how often an unknown number of invocations was counted as few (a cycle that leaves no packet), so that they
are a lower bound; `uncounted`: how often code ran that may have made some, and none were counted."""


class CodeKind(IntEnum):
    """What kind of code a profile row's method id was seen running in."""

    UNKNOWN = 0
    INTERPRETED = 1
    C1 = 2
    C2 = 3
    NATIVE_WRAPPER = 4
    STUB = 5  # stubs, adapters, blobs: `method` names the stub


class Break(IntEnum):
    """How the trace contradicts the code that is known: why `stages.flow` broke a walk off, numbered as there. An OVF
    breaks it off too, but contradicts nothing."""

    TNT_AT_TIP = 1  # a conditional branch's packet at a place that takes an address
    TIP_AT_TNT = 2  # an address where a conditional branch stands
    RETURN_BIT = 3  # a return that is said not to be taken
    NO_RETURN = 4  # a compressed return, and nobody called
    OFF_CODE = 5  # went where no code is known
    STUCK = 6  # no instruction, or a loop that nothing ends
    NOT_DISABLED = 7  # left the IP filter, and tracing goes on
    FUP_OFF_PATH = 8  # an interrupt at an address that is not on the way
    PSB_OFF_PATH = 9  # PSB+ names an address that is not on the way
    BAD_PACKET = 11
    ENABLED_TWICE = 12
    WHILE_DISABLED = 13
    WRONG_TARGET = 14  # a stub's jump to where it never leads
    GAVE_UP = 15  # any of these, where a search for another explanation had to leave off
    OTHER_MODE = 16  # 16- or 32-bit code, which is not followed


class Contradiction(NamedTuple):
    """A place where the trace contradicted the code, and how often. `start` 0: no code is known there (`offset` is
    the address), or (`code` = "other") these are places that there was no room to name."""

    cause: Break
    code: str  # what the blob is called, and what kind of code it is
    start: int  # address of the blob
    offset: int  # of the last instruction that the walk had reached, from there
    site: str  # innermost method and bytecode index at that instruction, "" where unknown
    times: int
    suspect: int = 0  # instructions that the walk had passed since the trace last confirmed it


@dataclass(frozen=True, slots=True)
class PaneReport:
    """What one worker saw of one process in one pane. Additive: reports of one pane are summed."""

    host: str
    pid: int
    worker: int
    pane: int  # tsc // ticks per pane
    profile: NDArray[np.void]  # PROFILE_DTYPE
    names: tuple[tuple[int, str], ...]  # method ids first used here → display name (pkg.Class.method)
    accounts: tuple[Account, ...]
    closed: bool = False  # this worker will say nothing more of this pane
    gauges: tuple[tuple[str, float], ...] = field(default=())
    contradictions: tuple[Contradiction, ...] = ()  # found since the worker's last report

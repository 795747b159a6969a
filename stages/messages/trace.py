"""Trace on its way to the walker: streams, chunks, sideband, JIT export, time, segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stages.messages.clock import Clock, PtConfig
from stages.messages.keys import StreamKey, ThreadKey
from stages.messages.loss import LossMark

U8 = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class StreamOpen:
    """A stream begins (or is introduced again to a new worker)."""

    stream: StreamKey
    config: PtConfig
    clock: Clock


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """All of a stream has been told. Its state is dropped when this has been handled."""

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
    tsc: int = 0  # when it was drained (upper bound of the times in it)


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
    records: NDArray[np.void] = field(metadata={"dtype": SIDE_DTYPE})  # in ring order
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
class OffDuty:
    """From `begin` to `end` the process was not traced, on purpose: its counts stand for more than they hold.
    Consecutive messages do not overlap; one comes before any trace that was drained behind `end`."""

    host: str
    pid: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """Nothing more will come from `source`; acknowledged by the receiver before the sender closes."""

    source: str


class MarkKind(IntEnum):
    """The rare packets: where a stream can be entered or must be cut, and the time there."""

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
    marks: NDArray[np.void] = field(metadata={"dtype": MARK_DTYPE})  # offsets absolute in the stream
    losses: tuple[LossMark, ...]  # those of the chunk, BAD_PACKET and NO_SYNC; an OVF is a mark
    last_ip: int  # decoder state before data[0]
    tsc: int  # time estimate before data[0]


class Arrival(IntEnum):
    """How a piece comes in its thread's order of time."""

    IN_ORDER = 0
    LATE = 1  # bytes of a CPU that the thread had left came into view when later ones had gone on: it continues nothing
    BEHIND_LATE = 2  # nothing is lost between it and the piece before the late ones; it does not continue these


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of one thread's trace with no loss inside, or a piece of one (`continues`)."""

    thread: ThreadKey
    stream: StreamKey
    number: int  # counts up in each thread; pieces of one segment share it
    offset: int
    data: U8
    marks: NDArray[np.void] = field(metadata={"dtype": MARK_DTYPE})
    last_ip: int
    tsc: int  # time before data[0]
    tsc_end: int
    continues: bool  # True: follows the piece before it without a hole
    hole: tuple[LossMark, ...] = ()  # the losses before it, if not
    arrival: int = Arrival.IN_ORDER


@dataclass(frozen=True, slots=True)
class ThreadEnd:
    """All segments of a thread have been told, the last of them of `stream`; its id may come again for another."""

    thread: ThreadKey
    stream: StreamKey
    tsc: int  # of its exit

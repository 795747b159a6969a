"""Records of a perf data ring, as far as a trace needs them (linux/perf_event.h, enum perf_event_type).

A record is `struct perf_event_header {u32 type; u16 misc; u16 size}`, a body, and with `sample_id_all` a trailer
whose fields `sample_type` chooses. All fields that matter here are 4 or 8 bytes and aligned, so records are read as
8-byte words: one short loop finds where each begins, then every column is gathered for all records at once.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.messages import SIDE_DTYPE, Clock, Loss, LossMark, SideKind

Words = NDArray[np.uint64]
Side = NDArray[np.void]


class RecordError(Exception):
    """The bytes are no perf records from word `good` on; the rows before it are in `records`."""

    def __init__(self, message: str, records: Side, good: int) -> None:
        super().__init__(message)
        self.records = records
        self.good = good


class RecordType(IntEnum):
    MMAP = 1
    LOST = 2
    COMM = 3
    EXIT = 4
    FORK = 7
    SAMPLE = 9
    MMAP2 = 10
    AUX = 11
    ITRACE_START = 12
    LOST_SAMPLES = 13
    SWITCH = 14
    SWITCH_CPU_WIDE = 15


MISC_SWITCH_OUT = 1 << 13


class AuxFlag(IntFlag):
    """A bit mask: several can be set, and only TRUNCATED says that trace was lost for want of room."""

    TRUNCATED = 1
    OVERWRITE = 2  # snapshot mode: the record describes a ring that wraps; nothing is lost by it
    PARTIAL = 4  # tracing was impossible for a while (VMX); the packets themselves say so (PGD, PGE)
    COLLISION = 8
    OFF_DUTY = 1 << 32  # not the kernel's: with PARTIAL, the consumer switched tracing off behind these bytes


class SampleType(IntFlag):
    """Bits of perf_event_attr.sample_type that put a field in the trailer, in the trailer's order but for TID first."""

    TID = 1 << 1
    TIME = 1 << 2
    ID = 1 << 6
    CPU = 1 << 7
    STREAM_ID = 1 << 9
    IDENTIFIER = 1 << 16


class SampleFormat(NamedTuple):
    """Where the trailer's fields lie, in words before the record's end (0: not there)."""

    words: int
    tid: int
    time: int
    cpu: int

    @classmethod
    def of(cls, sample_type: int) -> SampleFormat:
        """Of an event with `sample_type` and sample_id_all (struct sample_id in perf_event_open(2))."""
        order = (
            SampleType.TID,
            SampleType.TIME,
            SampleType.ID,
            SampleType.STREAM_ID,
            SampleType.CPU,
            SampleType.IDENTIFIER,
        )
        present = [bit for bit in order if sample_type & bit]
        words = len(present)
        at = {bit: words - i for i, bit in enumerate(present)}
        return cls(words, at.get(SampleType.TID, 0), at.get(SampleType.TIME, 0), at.get(SampleType.CPU, 0))


# The fields of our own events, and of the emulated PT: those that perf record asks for with intel_pt.
SAMPLE_TYPE = int(SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.IDENTIFIER)
FORMAT = SampleFormat.of(SAMPLE_TYPE)

# Words of the fixed body after the header, for the types that become sideband records.
_BODY = {
    RecordType.LOST: 2,  # id, lost
    RecordType.COMM: 1,  # pid tid, then the name
    RecordType.EXIT: 3,  # pid ppid, tid ptid, time
    RecordType.FORK: 3,
    RecordType.MMAP2: 7,  # pid tid, addr, len, pgoff, (maj min, ino, ino_generation) or build id, prot flags: 8 in all
    RecordType.AUX: 3,  # offset, size, flags
    RecordType.ITRACE_START: 1,  # pid tid
    RecordType.LOST_SAMPLES: 1,  # lost
    RecordType.SWITCH: 0,
    RecordType.SWITCH_CPU_WIDE: 1,  # the other task's pid tid
}
KINDS = frozenset(_BODY)
_KIND: dict[int, SideKind] = {
    RecordType.LOST: SideKind.LOST,
    RecordType.LOST_SAMPLES: SideKind.LOST,
    RecordType.COMM: SideKind.COMM,
    RecordType.EXIT: SideKind.EXIT,
    RecordType.FORK: SideKind.FORK,
    RecordType.MMAP2: SideKind.MMAP2,
    RecordType.AUX: SideKind.AUX,
    RecordType.ITRACE_START: SideKind.ITRACE_START,
}
_AUX, _LOST = int(SideKind.AUX), int(SideKind.LOST)
_TELLING = np.uint64(AuxFlag.TRUNCATED | AuxFlag.OFF_DUTY)  # of a loss
_TYPES = max(_BODY) + 1  # any later type is read as this one, which is not known
_BODY_WORDS = np.array([_BODY.get(t, 0) for t in range(_TYPES + 1)], np.int64)  # type: ignore[call-overload]
_KNOWN = np.array([t in _BODY for t in range(_TYPES + 1)])
# The body begins with the task the record is about, which did not always cause it.
_BODY_OWNER = (RecordType.COMM, RecordType.MMAP2, RecordType.ITRACE_START)
_SWITCHES, _LIVES = (RecordType.SWITCH, RecordType.SWITCH_CPU_WIDE), (RecordType.FORK, RecordType.EXIT)
_OUT_IN = int(SideKind.SWITCH_OUT), int(SideKind.SWITCH_IN)
# Fields a, b, c of a row: words of the body.
_FIELDS: dict[int, tuple[tuple[str, int], ...]] = {
    RecordType.LOST: (("a", 1), ("b", 0)),
    RecordType.LOST_SAMPLES: (("a", 0),),
    RecordType.AUX: (("a", 0), ("b", 1), ("c", 2)),
    RecordType.MMAP2: (("a", 1), ("b", 2), ("c", 3)),
}


def starts(words: Words) -> tuple[NDArray[np.int64], str]:
    """Word index of each record, with the end of the last one appended, and a description of the words there if they
    are no record ("" when the records fill the array)."""
    sizes = (words >> np.uint64(48)).tolist()
    found = [0]
    at, end = 0, len(sizes)
    while at < end:
        size = sizes[at]
        if size < 8 or size % 8:
            return np.array(found, np.int64), f"a record cannot have the size {size}"
        if size // 8 > end - at:
            return np.array(found, np.int64), f"a record of {size} bytes is cut"
        at += size // 8
        found.append(at)
    return np.array(found, np.int64), ""


def parse(words: Words, clock: Clock, format: SampleFormat = FORMAT) -> Side:
    """The records of `words` that a trace needs, as SIDE_DTYPE rows in order; their ns become TSC ticks by `clock`.

    Raises RecordError, which has the rows up to the first malformed record."""
    bounds, fault = starts(words)
    at, end, good = bounds[:-1], bounds[1:], int(bounds[-1])
    kind = np.minimum(words[at] & np.uint64(0xFFFFFFFF), np.uint64(_TYPES)).astype(np.int64)
    known = _KNOWN[kind]
    at, end, kind = at[known], end[known], kind[known]
    short = np.flatnonzero(end - at < 1 + _BODY_WORDS[kind] + format.words)
    if len(short):
        cut = int(short[0])
        fault = f"a record of type {RecordType(int(kind[cut])).name} has only {8 * int(end[cut] - at[cut])} bytes"
        good, at, end, kind = int(at[cut]), at[:cut], end[:cut], kind[:cut]
    rows = _rows(words, at, end, kind, clock, format)
    if fault:
        raise RecordError(fault, rows, good)
    return rows


def _rows(
    words: Words, at: NDArray[np.int64], end: NDArray[np.int64], kind: NDArray[np.int64], clock: Clock, f: SampleFormat
) -> Side:
    rows = np.zeros(len(at), SIDE_DTYPE)
    rows["cpu"] = -1
    if f.time:
        rows["tsc"] = ns_to_tsc(words[end - f.time], clock)
    if f.cpu:
        rows["cpu"] = words[end - f.cpu] & np.uint64(0xFFFFFFFF)
    if f.tid:
        _set_task(rows, slice(None), words[end - f.tid])
    for record in {*kind.tolist()}:
        which = kind == record
        body = at[which] + 1
        if record in _SWITCHES:
            out = words[body - 1] >> np.uint64(32) & np.uint64(MISC_SWITCH_OUT) != 0
            rows["kind"][which] = np.where(out, *_OUT_IN)
            continue
        rows["kind"][which] = _KIND[record]
        if record in _LIVES:  # pid ppid, tid ptid
            low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
            processes, threads = words[body], words[body + 1]
            _set_task(rows, which, processes & low | (threads & low) << high)
            rows["a"][which], rows["b"][which] = processes >> high, threads >> high
            continue
        if record in _BODY_OWNER:
            _set_task(rows, which, words[body])
        for field, word in _FIELDS.get(record, ()):
            rows[field][which] = words[body + word]
    return rows


def _set_task(rows: Side, which: NDArray[np.bool_] | slice, task: Words) -> None:
    """`task`: u32 pid, u32 tid in one word; the idle task is 0, a task outside our pid namespace −1."""
    rows["pid"][which] = (task & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    rows["tid"][which] = (task >> np.uint64(32)).astype(np.uint32).view(np.int32)


def ns_to_tsc(ns: Words, clock: Clock) -> Words:
    """`Clock.tsc` for an array, by quotient and remainder so that 64 bits are enough; 0 for times before it."""
    since = ns.astype(np.int64) - np.int64(clock.zero)
    since[since < 0] = 0
    quotient, rest = np.divmod(since.view(np.uint64), np.uint64(clock.mult))
    shift = np.uint64(clock.shift)
    return (quotient << shift) + (rest << shift) // np.uint64(clock.mult)


def loss_marks(rows: Side, seen: int) -> list[LossMark]:
    """The losses that `rows` tell of. TRUNCATED and OFF_DUTY lie behind the bytes that their AUX record describes. LOST
    has no place of its own: it came after the data ring was last read empty, when the stream had reached `seen`."""
    kind = rows["kind"]
    lost = rows["tsc"][kind == _LOST].tolist()
    flagged = kind == _AUX
    flagged &= rows["c"] & _TELLING != 0
    if not lost and not flagged.any():
        return []
    marks = [
        LossMark(int(row["a"]) + int(row["b"]), cause, 0, int(row["tsc"]))
        for flag, cause in ((AuxFlag.TRUNCATED, Loss.AUX_FULL), (AuxFlag.OFF_DUTY, Loss.OFF_DUTY))
        for row in rows[flagged]
        if int(row["c"]) & flag
    ]
    marks += [LossMark(seen, Loss.SIDEBAND_LOST, 0, tsc) for tsc in lost]
    return marks


def mmap2_path(record: bytes, format: SampleFormat = FORMAT) -> tuple[int, int, int, str]:
    """(address, length, file offset, file name) of an MMAP2 record; the name ends at the first NUL."""
    address, length, offset = struct.unpack_from("<3Q", record, 16)
    name = record[72 : len(record) - 8 * format.words].split(b"\0", 1)[0]
    return address, length, offset, name.decode("utf-8", "replace")

"""A recording's notes beyond perf's own events, so that it gives back exactly the messages that were recorded.

perf.data has a place for trace and for records, but none for sequence numbers, loss marks, the moment a JIT batch
came. These stand in notes, each before its subject, in events of a type that perf no longer uses and passes over
(HEADER_EVENT_TYPE): u64 mark, u32 length, u32 CRC-32 (zlib's) of all that follows, u32 number, then msgpack [kind,
field, …]. Notes are numbered from 0 on, so that a missing one is found, and those of trace and of records carry the
CRC-32 of these. Recordings of earlier versions have another mark, no checksums and no numbers.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import msgpack

from capture.perf.perf_data import PerfDataError
from stages.messages import (
    Clock,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    OffDuty,
    PtConfig,
    StreamKey,
    StreamOpen,
    Tick,
)

MARK = int.from_bytes(b"JTSNOTE2", "little")
HEAD = struct.Struct("<QIII")
_UNSEALED_MARK = int.from_bytes(b"JTSNOTE1", "little")
_UNSEALED_HEAD = struct.Struct("<QI")
_NUMBER = struct.Struct("<I")
MAX_LOSSES = 1000  # in one note, which has to fit into 64 KiB


class OpenNote(NamedTuple):
    """A StreamOpen. `stream` is its number in the notes to come, and the AUXTRACE event's idx."""

    stream: int
    opened: StreamOpen
    sample_type: int


class SideNote(NamedTuple):
    """A Sideband: the records of the next `size` bytes. `crc` is None in an earlier recording."""

    stream: int
    seq: int
    tsc: int
    size: int
    crc: int | None


class LossNote(NamedTuple):
    """Losses of the next chunk, before those in its ChunkNote."""

    stream: int
    losses: tuple[LossMark, ...]


class ChunkNote(NamedTuple):
    """A Chunk: the trace of the next AUXTRACE event, or nothing if `size` is 0. `crc` is None in an earlier
    recording."""

    stream: int
    seq: int
    offset: int
    size: int
    tsc: int
    losses: tuple[LossMark, ...]
    crc: int | None


class CloseNote(NamedTuple):
    """A StreamEnd."""

    stream: int
    tsc: int


class JitNote(NamedTuple):
    """A JitBatch: the next `size` bytes of the process's export file."""

    host: str
    pid: int
    seq: int
    size: int
    dropped: int
    tsc: int

    @classmethod
    def of(cls, batch: JitBatch) -> JitNote:
        return cls(batch.host, batch.pid, batch.seq, len(batch.data), batch.dropped, batch.tsc)


Note = OpenNote | SideNote | LossNote | ChunkNote | CloseNote | JitNote | Tick | OffDuty | EndOfStream
_OPEN, _SIDE, _LOSS, _CHUNK, _JIT, _TICK, _END, _CLOSE, _OFF = range(9)


def pack(note: Note, number: int) -> bytes:
    """The payload of the event of the note with that number."""
    match note:
        case OpenNote(stream, opened, sample_type):
            fields = [_OPEN, stream, opened.stream, opened.config, opened.clock, sample_type]
        case SideNote():
            fields = [_SIDE, *note]
        case LossNote():
            fields = [_LOSS, *note]
        case ChunkNote():
            fields = [_CHUNK, *note]
        case CloseNote():
            fields = [_CLOSE, *note]
        case JitNote():
            fields = [_JIT, *note]
        case Tick(host, pid, tsc):
            fields = [_TICK, host, pid, tsc]
        case OffDuty(host, pid, begin, end):
            fields = [_OFF, host, pid, begin, end]
        case EndOfStream(source):
            fields = [_END, source]
    body: bytes = msgpack.packb(fields)
    return HEAD.pack(MARK, len(body), zlib.crc32(_NUMBER.pack(number) + body), number) + body


class Unpacker:
    """Takes the notes of a file in their order."""

    def __init__(self) -> None:
        self._number = 0

    def unpack(self, payload: memoryview) -> Note | None:
        """The note of an event; None if the event is not one of ours. Raises PerfDataError."""
        try:
            body = self._body(payload)
            return None if body is None else _note(*msgpack.unpackb(body, use_list=False))
        except (ValueError, TypeError, KeyError, struct.error, msgpack.UnpackException, RecursionError) as error:
            raise PerfDataError("a damaged note") from error

    def _body(self, payload: memoryview) -> memoryview | None:
        mark = int.from_bytes(payload[:8], "little")
        if mark == _UNSEALED_MARK:
            _, size = _UNSEALED_HEAD.unpack_from(payload)
            return _cut(payload[_UNSEALED_HEAD.size :], size)
        if mark != MARK:
            return None
        _, size, crc, number = HEAD.unpack_from(payload)
        start = HEAD.size - _NUMBER.size
        sealed = _cut(payload[start:], _NUMBER.size + size)
        if zlib.crc32(sealed) != crc:
            raise ValueError
        if number != self._number:
            raise PerfDataError(f"note {number} where note {self._number} should be")
        self._number += 1
        return sealed[_NUMBER.size :]


def _cut(data: memoryview, size: int) -> memoryview:
    if size > len(data):
        raise ValueError
    return data[:size]


def _note(kind: object, *fields: object) -> Note:
    """Every field is checked: a ValueError or TypeError for impossible values."""
    match kind, fields:
        case 0, (stream, key, config, clock, sample_type):
            opened = StreamOpen(_key(key), _config(config), _clock(clock))
            return OpenNote(_count(stream), opened, _count(sample_type))
        case 1, (stream, seq, tsc, size, *crc):
            return SideNote(_count(stream), _number(seq), _count(tsc), _count(size), _crc(*crc))
        case 2, (stream, losses):
            return LossNote(_count(stream), _losses(losses))
        case 3, (stream, seq, offset, size, tsc, losses, *crc):
            counts = _count(offset), _count(size), _count(tsc)
            return ChunkNote(_count(stream), _number(seq), *counts, _losses(losses), _crc(*crc))
        case 4, (host, pid, seq, size, dropped, tsc):
            return JitNote(_text(host), _count(pid), _number(seq), _count(size), _count(dropped), _count(tsc))
        case 5, (host, pid, tsc):
            return Tick(_text(host), _count(pid), _count(tsc))
        case 6, (source,):
            return EndOfStream(_text(source))
        case 7, (stream, tsc):
            return CloseNote(_count(stream), _count(tsc))
        case 8, (host, pid, begin, end):
            return OffDuty(_text(host), _count(pid), _count(begin), _count(end))
    raise ValueError


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError
    return value


def _count(value: object) -> int:
    number = _number(value)
    if number < 0:
        raise ValueError
    return number


def _crc(value: object = None) -> int | None:
    return None if value is None else _count(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _tuple(value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise ValueError
    return value


def _key(value: object) -> StreamKey:
    host, pid, cpu, tid, *number = _tuple(value)  # older recordings have no number
    if len(number) > 1:
        raise ValueError
    return StreamKey(_text(host), _number(pid), _number(cpu), _number(tid), *map(_count, number))


def _config(value: object) -> PtConfig:
    *numbers, noretcomp, cyc = _tuple(value)
    if not isinstance(noretcomp, bool) or not isinstance(cyc, bool):
        raise ValueError
    family, model, lo, hi, mtc_shift, ctc_num, ctc_den = map(_number, numbers)
    return PtConfig(family, model, lo, hi, mtc_shift, ctc_num, ctc_den, noretcomp, cyc)


def _clock(value: object) -> Clock:
    mult, shift, zero, wall_zero = map(_number, _tuple(value))
    if not 0 < mult < 1 << 32 or not 0 <= shift <= 32 or not -(1 << 63) <= zero < 1 << 63:
        raise ValueError
    return Clock(mult, shift, zero, wall_zero)


def _losses(value: object) -> tuple[LossMark, ...]:
    marks = []
    for each in _tuple(value):
        offset, cause, lost, tsc = map(_count, _tuple(each))
        marks.append(LossMark(offset, Loss(cause), lost, tsc))
    return tuple(marks)

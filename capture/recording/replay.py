"""Gives a recording back as the messages it was made of.

A recording of ours has notes and yields exactly what the Drain yielded. A file of perf record has none: then each
AUXTRACE event is a chunk (cut to a bounded size), and the records go, by their CPU or thread, to the stream that
they belong to.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import trio

from capture.auxdata import header_text, place, pt_settings
from capture.live.drain import Message
from capture.perf.perf_data import AUXTRACE, Event, Feature, FileEvent, PerfDataError, Reader
from capture.perf.records import KINDS, RecordError, SampleFormat, Side, loss_marks, parse
from capture.recording import metadata as notes
from capture.recording.export_reader import ExportReader
from jvm.inputfile import read_input
from stages.messages import (
    U8,
    Chunk,
    Clock,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    OffDuty,
    PtConfig,
    Sideband,
    StreamEnd,
    StreamKey,
    StreamOpen,
    Tick,
)

CHUNK = 256 << 10  # bytes of trace in one message, of files that do not say themselves
MAX_RECORDS = 1 << 16  # of such files, records that are parsed at once
MAX_ROWS = 1 << 23  # … records: all are held, to be put in order
BATCH = 4 << 20
MAX_MANIFEST = 1 << 20
MAX_PID = 1 << 31


class _CutShortError(Exception):
    """Behind the last note of a file that was never closed, its data is missing."""


class Replay:
    """A recording: its manifest (`NAME.json`), or its perf.data alone with the export files beside it."""

    def __init__(self, path: Path) -> None:
        """`path`: NAME.json, NAME.perf.data, either of them .zst, or any file of perf record. Files that the manifest
        names may have been packed to .zst since. Raises PerfDataError, OSError."""
        self.path = path
        self.options: dict[str, Any] = {}
        self.incomplete = ""
        """Why it ends before the trace did; empty: it does not."""
        if path.name.endswith(".json"):
            data, exports = self._read_manifest(path)
        else:
            data, exports = path, _exports_beside(path)
        self._exports = {pid: ExportReader(file) for pid, file in exports.items()}
        self._reader = Reader(data)
        if not self.incomplete and not self._reader.complete:
            self.incomplete = "its writer did not end it"

    def _read_manifest(self, path: Path) -> tuple[Path, dict[int, Path]]:
        try:
            manifest = json.loads(read_input(path, MAX_MANIFEST))
            if not isinstance(manifest, dict):
                raise ValueError("no object in JSON")
            if manifest["version"] != 1:
                raise ValueError(f"its version is {manifest['version']!r}, and 1 is known")
            names = {int(pid): str(name) for pid, name in manifest["exports"].items()}
            if not all(0 < pid < MAX_PID for pid in names):
                raise ValueError("a process has no such number")
            data = str(manifest["perf_data"])
            self.options = dict(manifest["options"])
            if not manifest.get("complete", True):
                self.incomplete = str(manifest.get("cut") or "its writer did not end it")
        except UnicodeDecodeError:
            raise PerfDataError(f"{path} is no manifest of a recording: it is no text") from None
        except KeyError as error:
            raise PerfDataError(f"{path} is no manifest of a recording: it has no {error}") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise PerfDataError(f"{path} is no manifest of a recording: {error}") from error
        return _beside(path, data), {pid: _beside(path, name) for pid, name in names.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()

    def trace_bytes(self) -> int:
        """Bytes of trace in it. Raises PerfDataError where the file is damaged."""
        return sum(len(event.trace) for event in self._reader.events())

    def messages(self) -> Iterator[Message]:
        """All messages in order, `EndOfStream` last; arrays are views of the mapped file. Raises PerfDataError where
        the file is damaged; damage that could be left out comes so in place of EndOfStream, when all else is out."""
        unpacker = notes.Unpacker()
        own = any(self._note(event, unpacker) is not None for event in self._first_events())
        source = ""
        for export in self._exports.values():
            export.rewind()
        for message in self._own() if own else _Foreign(self._reader, self._exports).messages():
            if isinstance(message, EndOfStream):
                source = message.source
            else:
                yield message
        if damaged := [export for export in self._exports.values() if export.damaged]:
            places = sum(export.damaged for export in damaged)
            raise PerfDataError(damaged[0].told + (f"; {places} places in all" if places > 1 else ""))
        yield EndOfStream(source or f"replay:{self.path.name}")

    async def play(self, send: Callable[[Message], Awaitable[object]], pace: float | None = None) -> None:
        """Sends every message and waits for each. `pace`: 1.0 as fast as it was recorded, 2.0 twice as fast, None as
        fast as `send` takes them."""
        began: tuple[int, float] | None = None
        hz = 0.0
        for message in self.messages():
            if isinstance(message, StreamOpen):
                hz = message.clock.hz
            tsc = getattr(message, "tsc", 0)
            if pace and hz and tsc:
                began = began or (tsc, trio.current_time())
                await trio.sleep_until(began[1] + (tsc - began[0]) / hz / pace)
            else:
                await trio.lowlevel.checkpoint()
            await send(message)

    def _first_events(self) -> Iterator[FileEvent]:
        for number, event in enumerate(self._reader.events()):
            if number >= 16:
                return
            yield event

    def _note(self, event: FileEvent, unpacker: notes.Unpacker) -> notes.Note | None:
        if event.kind != Event.HEADER_EVENT_TYPE:
            return None
        try:
            return unpacker.unpack(event.payload)
        except PerfDataError as error:
            raise self._damaged(event, str(error)) from error

    def _damaged(self, event: FileEvent, what: str) -> PerfDataError:
        return PerfDataError(f"{self._reader.path}: {what} at byte {event.offset}")

    def _own(self) -> Iterator[Message]:
        with suppress(_CutShortError):
            yield from self._recorded()

    def _recorded(self) -> Iterator[Message]:
        """From the notes. Events between them without a note (perf's own, our MMAP2 of the code) are left out."""
        streams: dict[int, tuple[StreamOpen, SampleFormat]] = {}
        losses: tuple[LossMark, ...] = ()
        jit_lost: LossMark | None = None  # told with the next chunk, whichever stream's it is
        events, unpacker = self._reader.events(), notes.Unpacker()
        for event in events:
            note = self._note(event, unpacker)
            if note is None and event.kind in (Event.HEADER_EVENT_TYPE, Event.AUXTRACE):
                raise self._damaged(event, "an event without the note that belongs to it")
            if note is None:
                continue
            if (
                isinstance(note, notes.SideNote | notes.LossNote | notes.ChunkNote | notes.CloseNote)
                and note.stream not in streams
            ):
                raise self._damaged(event, f"a note of stream {note.stream}, which was not opened,")
            match note:
                case notes.OpenNote(stream, opened, sample_type):
                    streams[stream] = opened, SampleFormat.of(sample_type)
                    yield opened
                case notes.SideNote():
                    yield self._sideband(note, event, *streams[note.stream], events)
                case notes.LossNote():
                    losses += note.losses
                case notes.ChunkNote():
                    key = streams[note.stream][0].stream
                    data = self._trace(note, event, events)
                    if jit_lost is not None:
                        losses += (jit_lost._replace(offset=note.offset),)
                    yield Chunk(key, note.seq, note.offset, data, losses + note.losses, note.tsc)
                    losses, jit_lost = (), None
                case notes.CloseNote():
                    yield StreamEnd(streams.pop(note.stream)[0].stream, note.tsc)
                case notes.JitNote():
                    if note.pid not in self._exports:
                        raise self._damaged(event, f"no export file of process {note.pid}, of which a note speaks")
                    export = self._exports[note.pid]
                    damaged = export.damaged
                    data = export.take(note.size)
                    if export.damaged > damaged:
                        jit_lost = LossMark(0, Loss.JIT_LOST, 0, note.tsc)
                    yield JitBatch(note.host, note.pid, note.seq, data, note.dropped + export.damaged, note.tsc)
                case Tick() | OffDuty() | EndOfStream():
                    yield note

    def _sideband(
        self,
        note: notes.SideNote,
        at: FileEvent,
        opened: StreamOpen,
        sample: SampleFormat,
        events: Iterator[FileEvent],
    ) -> Sideband:
        records, size = [], 0
        while size < note.size:
            event = next(events, None)
            if event is None and not self._reader.complete:
                raise _CutShortError
            if event is None or event.kind >= Event.USER_FIRST:
                raise self._damaged(at, f"a note of {note.size} bytes of records has {size}")
            records.append(event.record)
            size += len(event.record)
        data = b"".join(records)
        self._check(data, note.crc, at, "records")
        try:
            rows = parse(np.frombuffer(data, np.uint64), opened.clock, sample)
        except RecordError as error:
            raise self._damaged(at, f"sideband: {error}") from error
        return Sideband(opened.stream, note.seq, rows, note.tsc)

    def _trace(self, note: notes.ChunkNote, at: FileEvent, events: Iterator[FileEvent]) -> U8:
        if note.size == 0:
            return np.zeros(0, np.uint8)
        event = next(events, None)
        if event is None and not self._reader.complete:
            raise _CutShortError
        if event is None or len(event.trace) != note.size:
            raise self._damaged(at, f"a note of {note.size} bytes of trace has no such trace behind it,")
        self._check(event.trace, note.crc, event, "trace")
        return np.frombuffer(event.trace, np.uint8)

    def _check(self, data: bytes | memoryview, crc: int | None, event: FileEvent, what: str) -> None:
        """`crc`: that of `data`, if its note has one."""
        if crc is not None and zlib.crc32(data) != crc:
            raise self._damaged(event, f"the checksum of {len(data)} bytes of {what} is wrong")


class _Foreign:
    """A file of perf record: the meaning of its events for us."""

    def __init__(self, reader: Reader, exports: dict[int, ExportReader]) -> None:
        self._reader, self._exports = reader, exports
        self._format = reader.sample_format
        self._pid = min(exports, default=0)
        self._host = header_text(reader, Feature.HOSTNAME) or "unknown"
        self._config, self._clock = PtConfig(), Clock(1, 0, 0, 0)
        self._opened: dict[tuple[int, int], StreamKey] = {}  # by (cpu, tid), one of them −1
        self._next: dict[StreamKey, tuple[int, int]] = {}  # numbers of the next Chunk and Sideband
        self._marks: dict[StreamKey, list[LossMark]] = {}

    def messages(self) -> Iterator[Message]:
        for pid, export in self._exports.items():
            seq = 0
            while len(data := export.take_some(BATCH)):
                yield JitBatch(self._host, pid, seq, data, export.damaged)
                seq += 1
        yield from self._streams()
        damaged = sum(export.damaged for export in self._exports.values())
        for marks in [*self._marks.values()][: 1 if damaged else 0]:
            marks.append(LossMark(0, Loss.JIT_LOST, 0, 0))
        rows, traces = self._by_time()
        told = 0
        for event, reference in traces:
            until = int(np.searchsorted(rows["tsc"], np.uint64(reference), "right"))
            yield from self._sideband(rows[told:until])
            told = max(told, until)
            yield from self._trace(event)
        yield from self._sideband(rows[told:])
        for key, marks in self._marks.items():
            if marks:
                end = max(mark.offset for mark in marks)
                yield Chunk(key, self._next[key][0], end, np.zeros(0, np.uint8), tuple(marks))

    def _streams(self) -> Iterator[StreamOpen]:
        """All streams of the file, before anything else: records of each can come before its first trace."""
        for event in self._reader.events():
            if event.kind == Event.AUXTRACE_INFO:
                self._config, self._clock = pt_settings(self._reader, event)
            elif event.kind == Event.AUXTRACE and (where := place(event)) not in self._opened:
                key = StreamKey(self._host, self._pid, *where)
                self._opened[where], self._next[key], self._marks[key] = key, (0, 0), []
        for key in self._opened.values():
            yield StreamOpen(key, self._config, self._clock)

    def _by_time(self) -> tuple[Side, list[tuple[FileEvent, int]]]:
        """All records, and all trace with the time when it was drained, each in the order of time: perf's own tools
        write them in another (perf inject: all trace first)."""
        traces: list[tuple[FileEvent, int]] = []
        rows: list[Side] = []
        records: list[memoryview] = []
        for event in self._reader.events():
            if event.kind == Event.AUXTRACE:
                traces.append((event, AUXTRACE.unpack_from(event.payload)[2]))
            elif event.kind in KINDS:
                records.append(event.record)
            if len(records) >= MAX_RECORDS:
                rows.append(self._rows(records))
                records = []
            if len(rows) * MAX_RECORDS > MAX_ROWS:
                raise PerfDataError(f"{self._reader.path}: more than {MAX_ROWS} records")
        all_ = np.concatenate([*rows, self._rows(records)])
        return all_[np.argsort(all_["tsc"], kind="stable")], sorted(traces, key=lambda trace: trace[1])

    def _rows(self, records: list[memoryview]) -> Side:
        try:
            return parse(np.frombuffer(b"".join(records), np.uint64), self._clock, self._format)
        except RecordError as error:
            raise PerfDataError(f"{self._reader.path}: sideband: {error}") from error

    def _sideband(self, rows: Side) -> Iterator[Message]:
        """Records, each to its stream."""
        for (cpu, tid), key in self._opened.items():
            mine = rows[rows["cpu"] == cpu] if cpu >= 0 else rows[rows["tid"] == tid]
            if len(mine):
                chunks, sidebands = self._next[key]
                self._next[key] = chunks, sidebands + 1
                self._marks[key] += loss_marks(mine, 0)
                yield Sideband(key, sidebands, mine, int(mine["tsc"].max()))

    def _trace(self, event: FileEvent) -> Iterator[Message]:
        _, offset, reference, *_ = AUXTRACE.unpack_from(event.payload)
        key = self._opened[place(event)]
        start = 0
        while start < len(event.trace):
            at = offset + start
            due = tuple(mark for mark in self._marks[key] if mark.offset <= at)
            self._marks[key] = [mark for mark in self._marks[key] if mark.offset > at]
            size = min(CHUNK, min((mark.offset for mark in self._marks[key]), default=at + CHUNK) - at)
            data = np.frombuffer(event.trace[start : start + size], np.uint8)
            chunks, sidebands = self._next[key]
            self._next[key] = chunks + 1, sidebands
            yield Chunk(key, chunks, at, data, due, reference)
            start += len(data)


def _beside(path: Path, name: str) -> Path:
    """A file that a manifest names: in its own folder, as it is or packed."""
    if not name.isprintable() or not name or "/" in name or name.startswith("."):  # half a surrogate pair is no text
        raise PerfDataError(f"{path}: no file name: {name!r}")
    plain = path.parent / name
    packed = path.parent / f"{name}.zst"
    return packed if packed.exists() and not plain.exists() else plain


def _exports_beside(data: Path) -> dict[int, Path]:
    stem = re.sub(r"\.perf\.data(\.zst)?$|\.data(\.zst)?$", "", data.name)
    found: dict[int, Path] = {}
    for file in sorted(data.parent.iterdir()) if data.parent.is_dir() else ():
        match = re.fullmatch(re.escape(stem) + r"-(\d{1,9})\.export(\.zst)?", file.name)
        if match:
            found.setdefault(int(match[1]), file)
    return found

"""Writes the messages of a `Drain` into files: a recording.

A recording NAME is
- `NAME.perf.data`: trace, sideband, and notes (`capture.recording.metadata`), as perf reads it;
- `NAME-<pid>.export`: the JIT export of each process, a file of its own kind (docs/jit-export.md);
- `NAME-<pid>.elf`: the code at the end and its names, only for perf and the like, which know no other source of code;
- `NAME.json`: which of these belong together, the options of the run, and whether that is all.

A disk that is full, or fails, cuts a recording: the part written before stays readable, later messages are counted.
`NAME.reserve` keeps the room that it takes to end in order then; it goes with the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from capture.code_poller import memory
from capture.live.drain import Message
from capture.perf import perf_data as perfdata
from capture.perf.elf import CODE_OFFSET, CodeElf
from capture.perf.perf_data import Event, Feature, PerfDataError
from capture.perf.records import SAMPLE_TYPE, RecordType, SampleFormat, SampleType, Words, starts
from capture.perf.symbols import Symbols
from capture.recording import metadata as notes
from jvm.export.parse import iter_records
from jvm.export.records import DynamicCode, ExportError, Interpreter, NmethodLoad
from jvm.export.ring import file_header
from jvm.private import new_file
from stages.messages import (
    Chunk,
    EndOfStream,
    JitBatch,
    Loss,
    OffDuty,
    Sideband,
    StreamEnd,
    StreamKey,
    StreamOpen,
    Tick,
)

VERSION = 1
# attribute flags: exclude_kernel, exclude_hv, mmap, comm, task, sample_id_all, mmap2, context_switch
_FLAGS = sum(1 << bit for bit in (5, 6, 8, 9, 13, 18, 23, 26))
_SOFTWARE, _DUMMY = 1, 9  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY
_RESERVE = 1 << 20  # an AUXTRACE index of 16 GB of trace in chunks of 256 KiB


class Recorder:
    """Takes every message of a Drain, in order, whether or not the transport takes it too."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        sample_type: int = SAMPLE_TYPE,
        options: dict[str, Any] | None = None,
        reread_seconds: float | None = 1.0,
    ) -> None:
        """Creates `directory/name.*`. `options` go into the manifest as they are. The ELF file is filled from the JIT
        export, and every `reread_seconds` from the process itself if that is permitted: code is patched, and some
        stubs are filled in, without an event. Raises OSError, later no more."""
        directory.mkdir(parents=True, exist_ok=True)
        self.cut: OSError | None = None
        """Why the recording ends before the trace does."""
        self.lost_bytes = 0
        """Of trace, that came after the cut."""
        self.directory, self.name = directory, name
        self._options = options or {}
        self._sample_type, self._format = sample_type, SampleFormat.of(sample_type)
        self._reserve = directory / f"{name}.reserve"
        with os.fdopen(new_file(self._reserve), "wb") as reserve:
            os.posix_fallocate(reserve.fileno(), 0, _RESERVE)
        self._first: StreamOpen | None = None
        self._streams: dict[StreamKey, tuple[int, StreamOpen]] = {}  # until their end
        self._expected: dict[StreamKey, int] = {}  # offset of the next chunk
        self._exports: dict[int, FileIO] = {}
        self._elves: dict[int, CodeElf] = {}
        self._symbols: dict[int, Symbols] = {}  # by process, also before it has an ELF file
        self._last: dict[tuple[Any, ...], int] = {}  # last number written, of each numbered sequence
        self._ids: set[int] = set()
        self._numbered = 0
        self._notes = 0  # in the file
        self._reread_seconds = reread_seconds
        self._reread_next = 0 if reread_seconds else 1 << 64  # TSC
        self._write_manifest(complete=False)
        self._file = perfdata.Writer(directory / f"{name}.perf.data")

    def write(self, message: Message, raw: Words | None = None) -> None:
        """`raw`: for a Sideband, its records as the kernel wrote them (`Drain.raw`). A message that was written
        before (it was refused, and the Drain sends it again) is not written twice."""
        if self.cut is None:
            try:
                self._write(message, raw)
                self._file.mark(self._notes)
            except OSError as error:
                self._end_here(error)
        if self.cut is not None and isinstance(message, Chunk):
            self.lost_bytes += len(message.data)

    def _write(self, message: Message, raw: Words | None) -> None:
        match message:
            case StreamOpen():
                self._open(message)
            case Sideband():
                if self._is_new(message.seq, "side", message.stream):
                    if raw is None:
                        raise ValueError("a Sideband is recorded with its records")
                    self._sideband(message, raw)
            case JitBatch():
                if self._is_new(message.seq, "jit", message.host, message.pid):
                    _write_whole(self._export(message.pid), message.data.data)
                    self._note(notes.JitNote.of(message))
                    self._code(message)
            case Chunk():
                self._chunk(message)
            case StreamEnd():
                self._close(message)
            case Tick():
                self._note(message)
                self._reread(message)
            case OffDuty() | EndOfStream():
                self._note(message)

    def _note(self, note: notes.Note) -> None:
        self._file.event(Event.HEADER_EVENT_TYPE, notes.pack(note, self._notes))
        self._notes += 1

    def _is_new(self, seq: int, *sequence: object) -> bool:
        if seq <= self._last.get(sequence, -1):
            return False
        self._last[sequence] = seq
        return True

    def _open(self, message: StreamOpen) -> None:
        key, config, clock = message.stream, message.config, message.clock
        if key in self._streams and self._streams[key][1] is message:
            return  # refused, and sent again
        if self._first is None:
            self._first = message
            elf = self._elf_name(key.pid)
            has_filter = config.filter_lo < config.filter_hi
            size = config.filter_hi - config.filter_lo
            # perf looks at a filter's file and the offset there, not at addresses
            text = f"filter {CODE_OFFSET:#x}/{size:#x}@{elf}" if has_filter else ""
            self._file.event(Event.AUXTRACE_INFO, perfdata.auxtrace_info(config, clock, key.cpu >= 0, text))
            zero = clock.zero & (1 << 64) - 1
            self._file.event(Event.TIME_CONV, struct.pack("<3Q", clock.shift, clock.mult, zero))
            if has_filter:
                try:
                    self._elves[key.pid] = CodeElf(self.directory / elf, config.filter_lo, config.filter_hi)
                except ValueError as error:
                    raise PerfDataError(str(error)) from error
                self._map_code(key.pid, bytes(8 * self._format.words))
        index = self._numbered
        self._numbered += 1
        self._streams[key] = index, message
        self._expected[key] = 0
        for sequence in [s for s in self._last if s[0] == "side" and s[1] == key]:
            del self._last[sequence]
        self._note(notes.OpenNote(index, message, self._sample_type))

    def _close(self, message: StreamEnd) -> None:
        if message.stream not in self._streams:
            return  # refused, and sent again
        index, _ = self._streams.pop(message.stream)
        self._note(notes.CloseNote(index, message.tsc))
        del self._expected[message.stream]
        self._last = {s: n for s, n in self._last.items() if message.stream not in s}

    def _sideband(self, message: Sideband, raw: Words) -> None:
        index, opened = self._streams[message.stream]
        self._note(notes.SideNote(index, message.seq, message.tsc, raw.nbytes, zlib.crc32(raw.data)))
        self._file.records(raw.data)
        bounds, fault = starts(raw)
        if fault:
            raise ValueError(f"a Sideband's records: {fault}")
        if self._sample_type & SampleType.IDENTIFIER and len(bounds) > 1:
            self._ids.update(np.unique(raw[bounds[1:] - 1]).tolist())
        # Other mappings over the code cache: for perf the code is in our file.
        mapped = np.flatnonzero(raw[bounds[:-1]] & np.uint64(0xFFFFFFFF) == RecordType.MMAP2)
        low, high = opened.config.filter_lo, opened.config.filter_hi
        for i in mapped.tolist():
            record = raw[bounds[i] : bounds[i + 1]]
            address, length = int(record[2]), int(record[3])
            if address < high and low < address + length:
                self._map_code(message.stream.pid, record[len(record) - self._format.words :].tobytes())

    def _map_code(self, pid: int, trailer: bytes) -> None:
        """An MMAP2 record of the ELF file, as if made at the time in `trailer`."""
        elf = self._elves.get(pid)
        if elf is None:
            return
        name = elf.path.name.encode() + b"\0"
        body = struct.pack("<IIQQQIIQQII", pid, pid, elf.low, elf.high - elf.low, CODE_OFFSET, 0, 0, 0, 0, 5, 2) + name
        self._file.event(RecordType.MMAP2, body + bytes(-len(body) % 8) + trailer, misc=2)  # MISC_USER

    def _chunk(self, message: Chunk) -> None:
        index, _ = self._streams[message.stream]
        losses = message.losses
        if message.offset == self._expected[message.stream]:  # chunks that the transport refused are here all the same
            losses = tuple(mark for mark in losses if mark.cause != Loss.TRANSPORT)
        while len(losses) > notes.MAX_LOSSES:
            self._note(notes.LossNote(index, losses[: notes.MAX_LOSSES]))
            losses = losses[notes.MAX_LOSSES :]
        size = len(message.data)
        crc = zlib.crc32(message.data.data)
        self._note(notes.ChunkNote(index, message.seq, message.offset, size, message.tsc, losses, crc))
        if size:
            key = message.stream
            self._file.auxtrace(message.data.data, message.offset, message.tsc, index, key.tid, key.cpu)
        self._expected[message.stream] = message.offset + size

    def _export(self, pid: int) -> FileIO:
        if pid not in self._exports:
            path = self.directory / self._export_name(pid)
            file = FileIO(new_file(path), "wb")
            try:
                _write_whole(file, file_header(pid))
            except OSError:
                file.close()
                path.unlink()
                raise
            self._exports[pid] = file
            self._write_manifest(complete=False)
        return self._exports[pid]

    def _export_name(self, pid: int) -> str:
        return f"{self.name}-{pid}.export"

    def _elf_name(self, pid: int) -> str:
        return f"{self.name}-{pid}.elf"

    def _code(self, message: JitBatch) -> None:
        elf = self._elves.get(message.pid)
        symbols = self._symbols.setdefault(message.pid, Symbols())
        with contextlib.suppress(ExportError):  # recorded as it is; its reader will say so
            for record in iter_records(message.data):
                symbols.add(record)
                match record:
                    case _ if elf is None:
                        pass
                    case NmethodLoad(address=address, code=code) | DynamicCode(address=address, code=code):
                        elf.put(address, code)
                    case Interpreter(start=address, code=code):
                        elf.put(address, code)

    def _reread(self, now: Tick) -> None:
        elf = self._elves.get(now.pid)
        if elf is None or now.tsc < self._reread_next:
            return
        assert self._first is not None  # it has told of the code's place
        hz = self._first.clock.hz
        self._reread_next = now.tsc + int(hz * (self._reread_seconds or 0))
        for address, code in memory.pages(now.pid, elf.low, elf.high):
            elf.put(address, code)

    def flush(self) -> None:
        """Everything written can be read, should this process die. The notes last: they speak of the rest."""
        self._file.flush()

    def _end_here(self, error: OSError) -> None:
        self.cut = error
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)
            self._notes = self._file.cut()
            self._note(EndOfStream("cut"))  # perf takes a file without any data for one that was not closed

    def close(self) -> Path:
        """Completes the files, as far as there is room; the manifest's path."""
        try:
            self._complete()
        except OSError as error:
            self._end_here(error)
            with contextlib.suppress(OSError):
                self._complete()  # of the rest
        for file in self._exports.values():
            file.close()
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)
            self._write_manifest(complete=self.cut is None)
        for pid, elf in self._elves.items():
            with contextlib.suppress(OSError):
                elf.close(self._symbols[pid].standing() if pid in self._symbols else ())
        return self.directory / f"{self.name}.json"

    def _complete(self) -> None:
        opened = self._first
        config = perfdata.pt_config_bits(opened.config) if opened else 0
        # PERF_SAMPLE_IP: for the samples that perf makes of the trace; records are not changed by it
        trace = perfdata.attribute(perfdata.PMU_TYPE, config, self._sample_type | 1, _FLAGS)
        dummy = perfdata.attribute(_SOFTWARE, _DUMMY, self._sample_type | 1, _FLAGS)
        attrs = [(trace, sorted(self._ids), "intel_pt//u"), (dummy, [], "dummy:u")]
        features = {
            Feature.HOSTNAME: perfdata.text_feature(opened.stream.host if opened else ""),
            Feature.ARCH: perfdata.text_feature("x86_64"),
            Feature.CMDLINE: perfdata.text_list_feature(["streamer", "record"]),
        }
        if opened and opened.config.family:
            cpu = f"GenuineIntel,{opened.config.family},{opened.config.model},0"
            features[Feature.CPUID] = perfdata.text_feature(cpu)
        self._file.close(attrs, features)

    def _write_manifest(self, complete: bool) -> None:
        manifest = self.directory / f"{self.name}.json"
        new = self.directory / f"{self.name}.json.new"
        exports = {str(pid): self._export_name(pid) for pid in self._exports}
        described = {
            "version": VERSION,
            "perf_data": f"{self.name}.perf.data",
            "exports": exports,
            "code": {str(pid): elf.path.name for pid, elf in self._elves.items()},
            "options": self._options,
            "complete": complete,
            "cut": self.cut.strerror if self.cut is not None else None,
        }
        with os.fdopen(new_file(new), "w") as text:
            text.write(json.dumps(described, indent=1) + "\n")
        new.replace(manifest)


def _write_whole(file: FileIO, data: bytes | memoryview) -> None:
    """All, or nothing and OSError."""
    start, view = file.tell(), memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError:
        file.truncate(start)
        raise

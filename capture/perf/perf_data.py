"""The perf.data file format (Linux: tools/perf/Documentation/perf.data-file-format.txt, tools/perf/util/header.h).

`Writer` makes a file that `perf script --itrace` reads as one with Intel PT; `Reader` goes through any such file by
a mapping, one event at a time, and believes nothing it finds there. The meaning of events is for others.

A file: header; data section (events); feature sections; attributes. The attributes come last because they list the
event's ids, one a ring, and rings appear while the recording runs. perf finds each part by its offset.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from capture.perf.compressed import CompressedError, Unpacker
from capture.perf.records import SampleFormat
from capture.recording.packed import map_file
from jvm.faults import ExpectedError
from jvm.private import new_file
from stages.messages import Clock, PtConfig

MAGIC = b"PERFILE2"
HEADER = struct.Struct("<8sQQ QQ QQ QQ 4Q")  # magic, size, attr_size; attrs, data, event_types: offset, size; features
EVENT = struct.Struct("<IHH")
SECTION = struct.Struct("<QQ")
ATTR_SIZE = 128  # sizeof(struct perf_event_attr), PERF_ATTR_SIZE_VER7
AUXTRACE = struct.Struct("<QQQIIII")  # size, offset, reference, idx, tid, cpu, reserved
MAX_ATTRS = 1 << 16


class PerfDataError(ExpectedError):
    """The file is no perf.data, or is damaged; one line that says where."""


class Event(IntEnum):
    """Events of perf itself, beyond the kernel's records (tools/lib/perf/include/perf/event.h)."""

    HEADER_EVENT_TYPE = 65  # not used any more: every perf passes over it; we keep notes in it
    ID_INDEX = 69
    AUXTRACE_INFO = 70
    AUXTRACE = 71
    TIME_CONV = 79
    COMPRESSED = 81  # its size is that of its contents, not padded
    COMPRESSED2 = 83  # padded; u64 length before its contents
    USER_FIRST = 64


class Feature(IntEnum):
    HOSTNAME = 3
    VERSION = 5
    ARCH = 6
    CPUID = 9
    CMDLINE = 11
    EVENT_DESC = 12
    AUXTRACE = 18


# ---- Intel PT's part: struct perf_record_auxtrace_info and its words (tools/perf/util/intel-pt.h)

INTEL_PT = 1  # enum auxtrace_type
PMU_TYPE = 8  # any number that the attribute and AUXTRACE_INFO agree on
# bits of IA32_RTIT_CTL as they stand in perf_event_attr.config (/sys/bus/event_source/devices/intel_pt/format)
PT, CYC, MTC, TSC, NORETCOMP, BRANCH, MTC_PERIOD = 1 << 0, 1 << 1, 1 << 9, 1 << 10, 1 << 11, 1 << 13, 0xF << 14


def pt_config_bits(config: PtConfig) -> int:
    bits = PT | TSC | BRANCH
    if config.noretcomp:
        bits |= NORETCOMP
    if config.cyc:
        bits |= CYC
    if config.mtc_shift >= 0:
        bits |= MTC | config.mtc_shift << 14
    return bits


def auxtrace_info(config: PtConfig, clock: Clock, per_cpu: bool, filter_text: str) -> bytes:
    """Payload of the AUXTRACE_INFO event. With a ring a CPU perf has to look for the threads in SWITCH_CPU_WIDE
    records (3); with a ring a thread it must not (0)."""
    words = [
        PMU_TYPE, clock.shift, clock.mult, clock.zero & (1 << 64) - 1, 1, TSC, NORETCOMP, 3 if per_cpu else 0, 0,
        int(per_cpu), MTC, MTC_PERIOD, config.ctc_num, config.ctc_den, CYC, 0,
    ]  # fmt: skip
    text = filter_text.encode()
    padded = text + bytes(8 - len(text) % 8) if text else b""
    return struct.pack(f"<II{len(words)}QQ", INTEL_PT, 0, *words, len(text)) + padded


def parse_auxtrace_info(payload: memoryview) -> tuple[PtConfig, Clock, int] | None:
    """(configuration, clock, PMU type) if it is Intel PT's. Facts of the attribute alone are not in it."""
    if len(payload) < 8 + 16 * 8 or struct.unpack_from("<I", payload)[0] != INTEL_PT:
        return None
    words = struct.unpack_from("<16Q", payload, 8)
    clock = Clock(words[2] & 0xFFFFFFFF, words[1], words[3] - (words[3] >> 63 << 64), 0)
    if clock.mult == 0 or clock.shift > 32:
        return None
    return PtConfig(ctc_num=words[12] & 0xFFFFFFFF, ctc_den=words[13] & 0xFFFFFFFF), clock, words[0]


# ---- writing


class Writer:
    """Appends events; `close` makes the file complete. Not closed, it still has every event written so far. After an
    OSError (a full disk) it is as good as closed, unless `cut` is called."""

    def __init__(self, path: Path) -> None:
        """Creates `path` (mode 0600). Raises OSError."""
        fd = new_file(path)
        try:
            os.write(fd, HEADER.pack(MAGIC, HEADER.size, ATTR_SIZE + SECTION.size, 0, 0, HEADER.size, *(0,) * 7))
        except OSError:
            os.close(fd)
            raise
        self._file: BinaryIO = os.fdopen(fd, "wb")
        self._index: list[tuple[int, int]] = []
        # more than there can be events in the file's buffer; each with the token that its caller gave
        self._marks = deque([(HEADER.size, 0)], 4096)

    def mark(self, token: int = 0) -> None:
        """The file up to here is whole: a place for `cut`."""
        self._marks.append((self._file.tell(), token))

    def cut(self) -> int:
        """Takes off all behind the last mark before which everything has got to the disk; that mark's token, 0 if all
        is taken off. Raises OSError."""
        descriptor = os.dup(self._file.fileno())
        with suppress(OSError):
            self._file.close()  # the rest of its buffer may still not fit
        size = os.fstat(descriptor).st_size
        end, token = max((mark for mark in self._marks if mark[0] <= size), default=(HEADER.size, 0))
        os.ftruncate(descriptor, end)
        self._index = [entry for entry in self._index if entry[0] < end]
        self._file = os.fdopen(descriptor, "r+b")
        self._file.seek(end)
        return token

    def event(self, kind: int, payload: bytes, misc: int = 0) -> None:
        """One event; `payload` is padded to 8 bytes."""
        payload += bytes(-len(payload) % 8)
        self._file.write(EVENT.pack(kind, misc, EVENT.size + len(payload)) + payload)

    def records(self, data: bytes | memoryview) -> None:
        """Records as the kernel wrote them."""
        self._file.write(data)

    def auxtrace(self, data: memoryview, offset: int, reference: int, index: int, tid: int, cpu: int) -> None:
        """A piece of trace. `reference` must not be 0: perf takes its order, and with CYC packets its time, from it."""
        low = 0xFFFFFFFF
        size = EVENT.size + AUXTRACE.size
        self._index.append((self._file.tell(), size))
        self._file.write(EVENT.pack(Event.AUXTRACE, 0, size))
        self._file.write(AUXTRACE.pack(len(data), offset, reference or 1, index, tid & low, cpu & low, 0))
        self._file.write(data)

    def close(self, attrs: list[tuple[bytes, list[int], str]], features: dict[Feature, bytes]) -> None:
        """`attrs`: perf_event_attr, ids, and name of each event. The AUXTRACE index is added to `features`."""
        end = self._file.tell()
        index = struct.pack("<Q", len(self._index)) + b"".join(SECTION.pack(*each) for each in self._index)
        features = features | {Feature.AUXTRACE: index, Feature.EVENT_DESC: _event_desc(attrs)}
        at, table, bodies = end + SECTION.size * len(features), b"", b""
        for _, body in sorted(features.items()):
            table += SECTION.pack(at + len(bodies), len(body))
            bodies += body
        at += len(bodies)
        ids, attr_table = b"", b""
        for attr, numbers, _ in attrs:
            attr_table += attr + SECTION.pack(at + len(ids), 8 * len(numbers))
            ids += struct.pack(f"<{len(numbers)}Q", *numbers)
        self._file.write(table + bodies + ids + attr_table)
        bits = sum(1 << feature for feature in features)
        self._file.seek(0)
        self._file.write(
            HEADER.pack(
                MAGIC, HEADER.size, ATTR_SIZE + SECTION.size, at + len(ids), len(attr_table),
                HEADER.size, end - HEADER.size, 0, 0, bits, 0, 0, 0,
            )
        )  # fmt: skip
        self._file.flush()  # or it is still open, for `cut`
        self._file.close()

    def flush(self) -> None:
        self._file.flush()


def attribute(kind: int, config: int, sample_type: int, flags: int) -> bytes:
    """struct perf_event_attr; `flags` are its bit fields from `disabled` on."""
    return struct.pack("<IIQQQQQ", kind, ATTR_SIZE, config, 1, sample_type, 0, flags).ljust(ATTR_SIZE, b"\0")


def text_feature(text: str) -> bytes:
    """A string as feature sections have it: length, then NUL-terminated and padded text."""
    data = text.encode() + b"\0"
    data += bytes(-len(data) % 64)
    return struct.pack("<I", len(data)) + data


def text_list_feature(texts: list[str]) -> bytes:
    return struct.pack("<I", len(texts)) + b"".join(text_feature(text) for text in texts)


def _event_desc(attrs: list[tuple[bytes, list[int], str]]) -> bytes:
    out = struct.pack("<II", len(attrs), ATTR_SIZE)
    for attr, ids, name in attrs:
        out += attr + struct.pack("<I", len(ids)) + text_feature(name) + struct.pack(f"<{len(ids)}Q", *ids)
    return out


# ---- reading


class FileEvent(NamedTuple):
    """One event of the data section; `payload` (after the header) and `trace` (AUXTRACE) are views of the mapping."""

    kind: int
    misc: int
    record: memoryview
    trace: memoryview
    offset: int

    @property
    def payload(self) -> memoryview:
        return self.record[EVENT.size :]


class Attr(NamedTuple):
    kind: int
    config: int
    sample_type: int
    sample_id_all: bool


class Reader:
    """A perf.data file, or one packed with zstd (named .zst: unpacked into a temporary file first)."""

    def __init__(self, path: Path) -> None:
        """Raises PerfDataError when `path` is no perf.data, OSError when it cannot be read."""
        self.path = path
        self._view = map_file(path)
        try:
            self._read_header()
        except PerfDataError:
            self.close()
            raise

    def _read_header(self) -> None:
        view, size = self._view, len(self._view)
        if size < 16 or view[:8] != MAGIC:
            what = "does not begin as one" if size else "is empty"
            raise PerfDataError(f"{self.path} is no perf.data: the file {what}")
        header_size = struct.unpack_from("<Q", view, 8)[0]
        if header_size == 16:
            raise PerfDataError(f"{self.path}: a perf.data made for a pipe; record to a file")
        if size < HEADER.size or header_size < HEADER.size:
            raise PerfDataError(f"{self.path}: the header is cut")
        fields = HEADER.unpack_from(view)
        attr_size, attrs, attrs_size, data, data_size = fields[2:7]
        if data < HEADER.size or data > size or (data_size and data + data_size > size):
            raise PerfDataError(f"{self.path}: the data section ends at {data + data_size}, the file at {size}")
        # perf writes the size of the data when it ends well; without it the file holds the part that its writer got to
        # disk
        self.complete = data_size != 0
        self._begin, self._end = data, data + data_size if data_size else size
        self.attrs = self._read_attrs(attr_size, attrs, attrs_size)

    def _read_attrs(self, size: int, at: int, total: int) -> list[Attr]:
        if total == 0:
            return []
        least = 48 + SECTION.size
        if size < least or size > 4096 or total // size > MAX_ATTRS or at + total > len(self._view):
            raise PerfDataError(f"{self.path}: the attributes are damaged")
        found = []
        for start in range(at, at + total - size + 1, size):
            kind, _, config, _, sample_type, _, flags = struct.unpack_from("<IIQQQQQ", self._view, start)
            found.append(Attr(kind, config, sample_type, bool(flags >> 18 & 1)))
        return found

    @property
    def sample_format(self) -> SampleFormat:
        """Where times, threads and CPUs stand in the records. PerfDataError if that differs between events."""
        formats = {SampleFormat.of(attr.sample_type if attr.sample_id_all else 0) for attr in self.attrs}
        if len(formats) > 1:
            raise PerfDataError(f"{self.path}: events with different sample formats")
        return formats.pop() if formats else SampleFormat.of(0)

    def events(self) -> Iterator[FileEvent]:
        """All events in file order; of a file that was never closed, those that are whole. Raises PerfDataError at
        the first that is damaged."""
        view, at, end = self._view, self._begin, self._end
        unpacker = Unpacker(len(view))
        while at < end:
            kind, misc, size = EVENT.unpack_from(view, at) if end - at >= EVENT.size else (0, 0, EVENT.size)
            if size < EVENT.size or (size % 8 and kind != Event.COMPRESSED):
                raise PerfDataError(f"{self.path}: an event cannot have the size {size}, at byte {at}")
            if size > end - at:
                return self._cut(at)
            trace = view[:0]
            if kind == Event.AUXTRACE:
                if size < EVENT.size + AUXTRACE.size:
                    raise PerfDataError(f"{self.path}: AUXTRACE has only {size} bytes, at byte {at}")
                length = struct.unpack_from("<Q", view, at + EVENT.size)[0]
                if length > end - at - size:
                    return self._cut(at)
                trace = view[at + size : at + size + length]
            if kind in (Event.COMPRESSED, Event.COMPRESSED2):
                yield from self._unpacked(unpacker, view[at : at + size], at)
            else:
                yield FileEvent(kind, misc, view[at : at + size], trace, at)
            at += size + len(trace)
        if not unpacker.whole and self.complete:
            raise PerfDataError(f"{self.path}: the last of the packed events is cut")
        return None

    def _unpacked(self, unpacker: Unpacker, packed: memoryview, at: int) -> Iterator[FileEvent]:
        """The events in a COMPRESSED or COMPRESSED2, which stands at byte `at`."""
        start, end = EVENT.size, len(packed)
        if EVENT.unpack_from(packed)[0] == Event.COMPRESSED2:
            start += 8
            end = start + struct.unpack_from("<Q", packed, EVENT.size)[0] if end >= start else -1
        if not start <= end <= len(packed):
            raise PerfDataError(f"{self.path}: packed events are cut, at byte {at}")
        try:
            for record in unpacker.events(packed[start:end]):
                kind, misc, _ = EVENT.unpack_from(record)
                if kind >= Event.USER_FIRST:
                    raise CompressedError(f"an event of type {kind} among packed ones")
                yield FileEvent(kind, misc, record, self._view[:0], at)
        except CompressedError as error:
            raise PerfDataError(f"{self.path}: {error}, at byte {at}") from error

    def _cut(self, at: int) -> None:
        if self.complete:
            raise PerfDataError(f"{self.path}: an event is cut at byte {at}")

    def feature(self, feature: Feature) -> memoryview | None:
        """A feature section's bytes; None if the file has not got it (also if it was not closed)."""
        words = HEADER.unpack_from(self._view)[9:13]
        if not self.complete or not words[feature // 64] >> feature % 64 & 1:
            return None
        before = sum((word & (1 << max(0, min(64, feature - 64 * i))) - 1).bit_count() for i, word in enumerate(words))
        at = self._end + SECTION.size * before
        if at + SECTION.size > len(self._view):
            raise PerfDataError(f"{self.path}: the feature table is cut")
        offset, size = SECTION.unpack_from(self._view, at)
        if offset + size > len(self._view):
            raise PerfDataError(f"{self.path}: a feature section is cut")
        return self._view[offset : offset + size]

    def close(self) -> None:
        self._view.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

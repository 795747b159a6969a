"""The trace in a perf.data by itself, a stream at a time, for tools that look at packets.

A stream is a CPU's ring or a thread's (perf's `idx`). Its bytes stand in AUXTRACE events, each with its offset in the
stream; where the next one does not begin at the end of the one before, trace was lost, and a new run begins.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capture.perf.perf_data import (
    AUXTRACE,
    CYC,
    MAGIC,
    MTC,
    NORETCOMP,
    Event,
    Feature,
    FileEvent,
    PerfDataError,
    Reader,
    parse_auxtrace_info,
)
from jvm.inputfile import map_descriptor, map_input
from stages.messages import U8, Clock, PtConfig

MOST_STREAMS = 1 << 16


class Run(NamedTuple):
    """Trace without a gap."""

    offset: int  # in the stream
    data: U8


def is_perf_data(path: Path, most: int) -> bool:
    """By its first bytes, or by the name of a packed one (.zst). Raises OSError."""
    return path.suffix == ".zst" or map_input(path, most)[: len(MAGIC)] == MAGIC


def place(event: FileEvent) -> tuple[int, int]:
    """(cpu, −1) of an AUXTRACE event of a CPU's ring, (−1, tid) of a thread's."""
    *_, tid, cpu, _ = AUXTRACE.unpack_from(event.payload)
    return (cpu, -1) if cpu < 1 << 31 else (-1, tid - (tid >> 31 << 32))


def pt_settings(reader: Reader, event: FileEvent) -> tuple[PtConfig, Clock]:
    """How the trace was made, by the AUXTRACE_INFO `event`, the header and the attributes. Raises PerfDataError."""
    found = parse_auxtrace_info(event.payload)
    if found is None:
        raise PerfDataError(f"{reader.path}: AUXTRACE_INFO is not that of Intel PT, or damaged")
    config, clock, pmu = found
    if cpu := re.match(r"GenuineIntel,(\d{1,3}),(\d{1,3})(,|$)", header_text(reader, Feature.CPUID)):
        config = config._replace(family=int(cpu[1]), model=int(cpu[2]))
    for attr in reader.attrs:
        if attr.kind == pmu:
            config = config._replace(
                noretcomp=bool(attr.config & NORETCOMP),
                cyc=bool(attr.config & CYC),
                mtc_shift=attr.config >> 14 & 15 if attr.config & MTC else -1,
            )
    return config, clock


def header_text(reader: Reader, feature: Feature) -> str:
    """A string of the header; "" if it has none. Raises PerfDataError."""
    data = reader.feature(feature)
    return bytes(data[4:]).split(b"\0", 1)[0].decode("utf-8", "replace") if data else ""


class AuxData:
    """The streams of a perf.data that has Intel PT in it."""

    def __init__(self, reader: Reader) -> None:
        """Goes through the events once. Raises PerfDataError."""
        self._reader = reader
        self.config = PtConfig()
        self.sizes: dict[str, int] = {}  # bytes by stream: cpu0, tid4711; tid4711.2 for the second thread of that id
        self._index: dict[str, int] = {}
        names: dict[int, str] = {}
        for event in reader.events():
            if event.kind == Event.AUXTRACE_INFO:
                self.config, _ = pt_settings(reader, event)
            elif event.kind == Event.AUXTRACE:
                index = _index(event)
                if index not in names:
                    names[index] = self._new_name(event)
                    self._index[names[index]] = index
                self.sizes[names[index]] += len(event.trace)

    def _new_name(self, event: FileEvent) -> str:
        if len(self.sizes) >= MOST_STREAMS:
            raise PerfDataError(f"{self._reader.path}: more than {MOST_STREAMS} streams of trace")
        cpu, tid = place(event)
        name = first = f"tid{tid}" if cpu < 0 else f"cpu{cpu}"
        count = 1
        while name in self.sizes:
            count += 1
            name = f"{first}.{count}"
        self.sizes[name] = 0
        return name

    def runs(self, name: str) -> Iterator[Run]:
        """The trace of a stream of `sizes`, in file order. Joined in a temporary file that is mapped: memory holds
        none of it. Raises OSError, PerfDataError."""
        index = self._index[name]
        bounds: list[tuple[int, int]] = []  # offset in the stream, and in the file, of each run
        expected = -1
        with tempfile.TemporaryFile() as file:
            for event in self._reader.events():
                if event.kind != Event.AUXTRACE or _index(event) != index or not event.trace:
                    continue
                offset = int(AUXTRACE.unpack_from(event.payload)[1])
                if offset != expected:
                    bounds.append((offset, file.tell()))
                file.write(event.trace)
                expected = offset + len(event.trace)
            file.flush()
            trace = np.frombuffer(map_descriptor(file.fileno()), np.uint8)
        ends = [at for _, at in bounds[1:]] + [len(trace)]
        for (offset, at), end in zip(bounds, ends, strict=True):
            yield Run(offset, trace[at:end])


def _index(event: FileEvent) -> int:
    return int(AUXTRACE.unpack_from(event.payload)[3])

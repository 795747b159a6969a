"""Traces to race over: streams, the code that they ran, and how much of either there is."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import exact
from capture.recording.replay import Replay
from jvm.code.image import CodeImage
from jvm.code.snapshot import CodeView
from jvm.kernels import kernel
from stages.messages import Chunk, JitBatch, PtConfig, StreamKey, StreamOpen
from stages.pointers import addresses, load64, u8_at
from stages.pt.packets import TIP, TNT_8, TNT_64, find_psb, frozen, packet_at
from stages.pt.tnt import count, long_bits, short_bits


class BenchmarkError(Exception):
    """Said in one line; exit status 1."""


class Stream(NamedTuple):
    key: StreamKey
    config: PtConfig
    data: NDArray[np.uint8]


FIRST, UNSEEN, AGAIN = "first pass", "unseen half", "same again"
ROWS = (FIRST, UNSEEN, AGAIN)


@dataclass
class Case:
    streams: list[Stream]
    view: CodeView
    recording: Path | None = None
    repeat: int = 1
    parts: dict[str, list[Stream]] = field(init=False)  # by row: the timed streams; "seen half": those that warm
    size: dict[str, int] = field(init=False)
    branches: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        halves = [_halves(stream) for stream in self.streams]
        again = [s._replace(data=np.tile(s.data, self.repeat)) for s in self.streams]
        self.parts = {FIRST: self.streams, AGAIN: again}
        self.parts |= {"seen half": [seen for seen, _ in halves], UNSEEN: [unseen for _, unseen in halves]}
        self.size = {row: sum(len(s.data) for s in self.parts[row]) for row in ROWS}
        self.branches = {row: sum(branches(s.data) for s in self.parts[row]) for row in ROWS}
        if not self.size[FIRST]:
            raise BenchmarkError("there is no trace in it")


def _halves(stream: Stream) -> tuple[Stream, Stream]:
    """Up to the first PSB in the second half, and from there; without one the second is empty."""
    data = stream.data
    at = int(find_psb(frozen(data), len(data) // 2, len(data)))
    at = len(data) if at < 0 else at
    return stream._replace(data=data[:at]), stream._replace(data=data[at:])


@kernel
def _branches(where, end):  # type: ignore[no-untyped-def]
    data = u8_at(where[0])
    n, at = 0, 0
    while at < end:
        kind, size = packet_at(data, at, 0)
        if kind == TNT_8:
            n += count(short_bits(np.int64(data[at])))
        elif kind == TNT_64:
            n += count(long_bits(load64(data, at)))
        elif kind == TIP:
            n += 1
        at += max(size, 1)
    return n


def branches(data: NDArray[np.uint8]) -> int:
    """TNT bits and TIPs."""
    padded = np.zeros(len(data) + 32, np.uint8)
    padded[: len(data)] = data
    return int(_branches(addresses(padded), len(data)))


def from_pages(trace: Path, pages: str, ranges: tuple[int, int], repeat: int, noretcomp: bool) -> Case:
    address_file, _, dump_file = pages.partition(":")
    addresses = np.fromfile(address_file, dtype=np.uint64)
    dump = Path(dump_file).read_bytes()
    if not len(addresses) or len(dump) != 4096 * len(addresses):
        raise BenchmarkError(f"{dump_file}: not one page for each address in {address_file}")
    view = CodeView.of([(int(a), dump[4096 * i : 4096 * (i + 1)]) for i, a in enumerate(addresses)])
    data = np.fromfile(trace, dtype=np.uint8)
    while len(data) and data[-1] == 0x55:  # filler behind the last packet
        data = data[:-1]
    config = PtConfig(filter_lo=ranges[0], filter_hi=ranges[1], noretcomp=noretcomp)
    return Case([Stream(StreamKey("file", 1, 0, -1), config, data)], view, None, repeat)


def from_recording(path: Path, repeat: int) -> Case:
    images: dict[int, CodeImage] = {}
    configs: dict[StreamKey, PtConfig] = {}
    parts: dict[StreamKey, list[NDArray[np.uint8]]] = {}
    with Replay(path) as replay:
        for message in replay.messages():
            match message:
                case StreamOpen():
                    configs[message.stream] = message.config
                case Chunk():
                    parts.setdefault(message.stream, []).append(np.array(message.data))
                case JitBatch():
                    images.setdefault(message.pid, CodeImage()).feed(message.data.tobytes(), message.tsc)
    if len(images) != 1:
        raise BenchmarkError(f"{path}: code of {len(images)} processes; this benchmark takes one")
    view = next(iter(images.values())).view()
    streams = [Stream(key, configs[key], np.concatenate(data)) for key, data in parts.items() if data]
    data_file = path if path.suffix == ".data" else path.with_name(f"{path.stem}.perf.data")
    return Case(streams, view, data_file if data_file.exists() else None, repeat)


def from_part(path: Path, most: int, repeat: int) -> Case:
    part = exact.longest(path, most)
    if part is None:
        raise BenchmarkError(f"{path}: no part of {most / 8e6:.1f} MB of which the code is known")
    print(f"stream {part.stream.cpu}: {len(part.data) / 1e6:.2f} MB", file=sys.stderr)
    return Case([Stream(part.stream, part.config, part.data)], part.code, None, repeat)

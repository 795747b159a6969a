"""The files that `streamer pt` is given: traces, and the code that was traced."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from capture.auxdata import AuxData, Run, is_perf_data
from capture.perf.perf_data import Reader
from jvm.code.snapshot import CodeView
from jvm.inputfile import map_input, read_input
from stages.messages import PtConfig
from stages.pt.packets import find_psb
from streamer.cli import Failure
from streamer.number import number

_LARGEST_TRACE = 1 << 40  # mapped
_LARGEST_CODE = 1 << 30
_STREAMS_SHOWN = 8


def _load(path: Path) -> bytes:
    try:
        return read_input(path, _LARGEST_CODE)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


class Trace(NamedTuple):
    """A raw trace, or a stream of a perf.data."""

    runs: list[Run]
    config: PtConfig  # as the file says it; of a raw trace nothing is known


def trace(path: Path, stream: str | None, *, sync: bool = True) -> Trace:
    """The trace in the file `path`; `stream` names one of a perf.data. `sync`: it is read from a PSB on, so there has
    to be one. Raises Failure, PerfDataError."""
    found = _trace(path, stream)
    size = sum(len(run.data) for run in found.runs)
    if not size:
        raise Failure(f"{path} is empty: no trace of Intel PT")
    if sync and all(find_psb(run.data, 0, len(run.data)) < 0 for run in found.runs):
        raise Failure(f"{path}: no trace of Intel PT, or too short a piece of one: no PSB packet in {size} bytes")
    return found


def _trace(path: Path, stream: str | None) -> Trace:
    try:
        if not is_perf_data(path, _LARGEST_TRACE):
            if stream is not None:
                raise Failure(f"--stream is for a perf.data: {path} is a raw trace")
            return Trace([Run(0, np.frombuffer(map_input(path, _LARGEST_TRACE), np.uint8))], PtConfig())
        with Reader(path) as reader:
            aux = AuxData(reader)
            return Trace([*aux.runs(_chosen(path, aux.sizes, stream))], aux.config)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


def _chosen(path: Path, sizes: dict[str, int], stream: str | None) -> str:
    if not sizes:
        raise Failure(f"{path} has no trace of Intel PT in it")
    if stream in sizes:
        return stream
    if stream is None and len(sizes) == 1:
        return next(iter(sizes))
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} ({size} bytes)" for name, size in largest[:_STREAMS_SHOWN])
    more = f" and {len(sizes) - _STREAMS_SHOWN} smaller ones" if len(sizes) > _STREAMS_SHOWN else ""
    raise Failure(f"{path} has the streams {named}{more}: choose one with --stream")


def gap(before: Run, behind: Run) -> str:
    """The line that stands for the loss between two runs."""
    end = before.offset + len(before.data)
    return f"[{end:x}: {behind.offset - end} bytes of trace are missing]"


def image(text: str) -> CodeView:
    """BIN[@ORG]: a flat binary and the address of its first byte."""
    path, at, origin = text.rpartition("@")
    address = 0
    if at:
        try:
            address = number(origin)
        except ValueError:
            path, at = text, ""
    file = Path(path if at else text)
    if not (code := _load(file)):
        raise Failure(f"--image: {file} is empty")
    if address < 0 or address + len(code) > 1 << 64:
        raise Failure(f"--image: address {address:#x} is out of range")
    return CodeView.of([(address, code)])


def pages(text: str) -> CodeView:
    """ADDRFILE:DUMPFILE: little-endian u64 addresses, and a 4 KiB page for each."""
    addresses_path, colon, dump_path = text.partition(":")
    if not colon:
        raise Failure("--pages wants ADDRFILE:DUMPFILE")
    raw, code = _load(Path(addresses_path)), _load(Path(dump_path))
    if len(raw) % 8 or len(code) != len(raw) // 8 * 4096:
        raise Failure(f"--pages: {dump_path} must have 4096 bytes for each 8-byte address in {addresses_path}")
    if not raw:
        raise Failure(f"--pages: {addresses_path} is empty")
    addresses = np.frombuffer(raw, "<u8").tolist()
    if max(addresses) > (1 << 64) - 4096:
        raise Failure(f"--pages: {addresses_path} has an address out of range")
    pages = {address: code[4096 * i : 4096 * (i + 1)] for i, address in enumerate(addresses)}
    try:
        return CodeView.of(sorted(pages.items()))
    except ValueError as error:
        raise Failure(f"--pages: {error}") from None

"""libipt's block and instruction decoders as an oracle (`ipt_blocks.c`, Debian's libipt-dev)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from capture.emulator.truth import Region, Runs, Truth, Version, merge
from jvm import cbuild

ROW_DTYPE = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
        ("time", "<u8"),
        ("region", "<u4"),
        ("count", "<u2"),
        ("kind", "u1"),
        ("_", "u1"),
    ]
)


class Kind(IntEnum):
    BLOCK = 0  # start, end (behind the last instruction), count of instructions
    ENABLED = 1
    DISABLED = 2
    ASYNC_DISABLED = 3
    OVERFLOW = 4
    FAILED = 5  # start: where; end: offset in the stream; count: pt_error_code
    TICK = 6
    OTHER = 7
    RUNAWAY = 8  # far more blocks than the bytes can mean


@dataclass(frozen=True, slots=True)
class IptConfig:
    filter: tuple[int, int]
    mtc: int = -1
    ctc_num: int = 0
    ctc_den: int = 0
    nom_freq: int = 0


def program() -> Path:
    """The compiled oracle; skips the test when there is no libipt or no compiler."""
    if not Path("/usr/include/intel-pt.h").exists():
        pytest.skip("libipt is missing (Debian: apt-get install libipt-dev)")
    here = Path(__file__).resolve().parent
    include = here.parents[1] / "capture" / "emulator"
    sources = [here / "ipt_blocks.c", include / "insn.c", include / "insn.h"]
    try:
        cc = cbuild.compiler()
    except cbuild.BuildError as error:
        pytest.skip(str(error))
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", str(include)]
    return cbuild.compiled(
        "ipt-blocks", sources, [[cc, *flags, "-o", "{out}", str(sources[0]), str(sources[1]), "-lipt"]]
    )


def decode(
    trace: NDArray[np.uint8],
    code: Iterable[Version],
    config: IptConfig,
    regions: Sequence[tuple[int, int, int]] | None = None,
    instructions: bool = False,
    timeout: float = 600,
) -> NDArray[np.void]:
    """(n,) ROW_DTYPE, libipt's decoding of a stream. `regions` are (begin, end, tsc): each is decoded by a fresh
    decoder with the code as of `tsc`; default: the whole stream with the last code."""
    if regions is None:
        regions = [(0, len(trace), (1 << 64) - 1)]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        trace.tofile(directory / "trace")
        with (directory / "code").open("wb") as file:
            for version in code:
                file.write(np.array([version.tsc, version.address, len(version.code)], "<u8").tobytes())
                file.write(version.code + bytes(-len(version.code) & 7))
        np.array(regions, "<u8").tofile(directory / "regions")
        out = directory / "out"
        subprocess.run(
            [
                *(program(), directory / "trace", directory / "code", directory / "regions", out),
                *map(str, (*config.filter, config.mtc, config.ctc_num, config.ctc_den, config.nom_freq)),
                "insn" if instructions else "block",
            ],
            check=True,
            timeout=timeout,
        )
        return np.fromfile(out, ROW_DTYPE)


@dataclass(slots=True)
class Comparison:
    """libipt against the truth, for one stream."""

    instructions: int = 0  # that ran, traced
    runs: int = 0  # runs of consecutive instructions, traced
    wrong_runs: int = 0  # that libipt decoded otherwise or not at all
    overrun: int = 0  # instructions that libipt walked on past a region's end, for want of a packet
    cut: int = 0  # runs behind the last packet before an OVF, which libipt reports before it walks them
    errors: list[tuple[int, int, int]] = field(default_factory=list)  # (offset of the region, offset, pt_error_code)
    first: str = ""  # where it first went wrong

    def __iadd__(self, other: Comparison) -> Comparison:
        self.instructions += other.instructions
        self.runs += other.runs
        self.wrong_runs += other.wrong_runs
        self.overrun += other.overrun
        self.cut += other.cut
        self.errors += other.errors
        self.first = self.first or other.first
        return self


def compare(
    truth: Truth, stream: int, trace: NDArray[np.uint8], config: IptConfig, instructions: bool = False
) -> Comparison:
    """Every region of a stream: the runs of instructions that libipt sees must be those that ran."""
    result = Comparison()
    regions = truth.regions(stream)
    parts = [region for region in regions if not region.overflow]
    bounds = [part.offset for part in parts[1:]] + [len(trace)]
    rows = decode(
        trace,
        truth.code,
        config,
        [(part.offset, end, part.tsc) for part, end in zip(parts, bounds, strict=True)],
        instructions,
    )
    # An OVF packet begins a region of its own, within the output of one decoder.
    step = (rows["region"][1:] != rows["region"][:-1]) | (rows["kind"][1:] == Kind.OVERFLOW)
    cuts = np.concatenate(([0], np.flatnonzero(step) + 1, [len(rows)])) if len(rows) else np.zeros(1, np.int64)
    groups: dict[tuple[int, int], NDArray[np.void]] = {}
    for begin, end in pairwise(cuts.tolist()):
        part = int(rows[begin]["region"])
        number = sum(1 for key in groups if key[0] == part) if rows[begin]["kind"] == Kind.OVERFLOW else 0
        groups[part, number + (rows[begin]["kind"] == Kind.OVERFLOW and number == 0)] = rows[begin:end]
    part, number = -1, 0
    for at, region in enumerate(regions):
        part, number = (part, number + 1) if region.overflow else (part + 1, 0)
        overflows = at + 1 < len(regions) and regions[at + 1].overflow
        result += _region(truth, region, overflows, groups.get((part, number), rows[:0]))
    return result


def _region(truth: Truth, region: Region, overflows: bool, rows: NDArray[np.void]) -> Comparison:
    pieces = [truth.runs(*piece) for piece in region.pieces]
    if not pieces:
        return Comparison()
    ran = merge(*(np.concatenate([piece[i] for piece in pieces]) for i in range(3)))
    blocks = rows[rows["kind"] == Kind.BLOCK]
    seen = merge(blocks["start"], blocks["end"], blocks["count"].astype(np.int64))
    cut = max(0, len(ran.start) - len(seen.start)) if overflows else 0
    if cut <= CUT_MAX:
        keep = len(ran.start) - cut
        ran = Runs(ran.start[:keep], ran.end[:keep], ran.instructions[:keep])
    result = _runs(ran, seen, region, overflows)
    result.cut = cut
    # An error counts if something that ran had not been seen yet.
    until = np.cumsum(np.where(rows["kind"] == Kind.BLOCK, rows["count"], 0))
    failed = ((rows["kind"] == Kind.FAILED) | (rows["kind"] == Kind.RUNAWAY)) & (until < result.instructions)
    result.errors = [(region.offset, int(row["end"]), int(row["count"])) for row in rows[failed]]
    return result


CUT_MAX = 8


def _runs(ran: Runs, seen: Runs, region: Region, overflows: bool) -> Comparison:
    result = Comparison(int(ran.instructions.sum()), len(ran.start))
    if not len(ran.start):
        return result
    both = min(len(ran.start), len(seen.start))
    equal = np.zeros(len(ran.start), np.bool_)
    equal[:both] = (
        (ran.start[:both] == seen.start[:both])
        & (ran.end[:both] == seen.end[:both])
        & (ran.instructions[:both] == seen.instructions[:both])
    )
    last = len(ran.start) - 1
    if last < both and seen.start[last] == ran.start[last] and (seen.end[last] >= ran.end[last] or overflows):
        equal[last] = True  # libipt may walk on until it needs a packet; an OVF stops it at its last one
    result.overrun = max(0, int(seen.instructions[last:].sum()) - int(ran.instructions[last]))
    result.wrong_runs = int((~equal).sum())
    if result.wrong_runs:
        at = int(np.argmin(equal))
        result.first = (
            f"region at {region.offset} (tsc {region.tsc}), run {at} of {len(ran.start)}: "
            f"ran {ran.start[at]:#x}-{ran.end[at]:#x} ({ran.instructions[at]}), "
            + (f"seen {seen.start[at]:#x}-{seen.end[at]:#x} ({seen.instructions[at]})" if at < both else "seen nothing")
        )
    return result

"""Reads the records of `--truth`: which blocks each thread really ran, and every version of the code.

Numbers of blocks are row numbers of `Truth.blocks`. A mark stands before position `index` of its thread's sequence
of blocks. See docs/emulator.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_DTYPE = np.dtype(
    [("start", "<u8"), ("last", "<u8"), ("end", "<u8"), ("target", "<u8"), ("tsc", "<u8"), ("lengths_at", "<u8"),
     ("id", "<u4"), ("instructions", "<u2"), ("flow", "u1"), ("rep", "u1")]
)  # fmt: skip
MARK_DTYPE = np.dtype(
    [("index", "<u8"), ("tsc", "<u8"), ("ip", "<u8"), ("offset", "<u8"), ("kind", "<u4"), ("stream", "<u4")]
)


class Mark(IntEnum):
    COME = 1  # the thread has this stream now
    GO = 2  # and has lost it
    STOP = 3  # its stream stopped writing (AUX full, overflow)
    RESUME = 4
    PARTIAL = 5  # block `index` ran only up to `ip`: a fault
    TIME = 6  # a packet said what time it is: `tsc`
    PSB = 7  # a PSB+ begins at `offset`
    SIGNAL = 8  # block `index` - 1 ran to its end and led to `ip`, where a signal came


class Branch(IntEnum):
    """How a block ends (`flow`; capture/emulator/insn.h)."""

    NEXT = 0  # with no branch: cut at a page's end, or a string instruction with REP
    COND = 1
    JUMP = 2
    CALL = 3
    JUMP_INDIRECT = 4
    CALL_INDIRECT = 5
    RETURN = 6
    FAR = 7


class Version(NamedTuple):
    """A piece of code as it was translated. `changed`: some of it was known with other bytes."""

    tsc: int
    address: int
    code: bytes
    changed: bool


@dataclass(frozen=True, slots=True)
class ThreadTruth:
    tid: int
    ran: NDArray[np.uint32]  # (n,) block numbers in the order they were entered
    marks: NDArray[np.void]  # MARK_DTYPE
    partial: NDArray[np.void]  # those of kind PARTIAL
    gone: NDArray[np.int64]  # positions in `marks` of those of kind GO


class Runs(NamedTuple):
    """Control flow as maximal runs of consecutive instructions: the same whichever way it was cut into blocks."""

    start: NDArray[np.uint64]
    end: NDArray[np.uint64]  # behind the last instruction
    instructions: NDArray[np.int64]


class Piece(NamedTuple):
    """Blocks `begin` to `end` of a thread, traced without a gap on one stream."""

    thread: int  # position in Truth.threads
    begin: int
    end: int


class Region(NamedTuple):
    """A part of a stream that is decoded with one state of the code, from a PSB or a loss on."""

    offset: int  # in the stream
    tsc: int  # which versions of the code hold
    overflow: bool  # it follows an OVF packet, in the middle of the bytes of the region before
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class Truth:
    blocks: NDArray[np.void]  # BLOCK_DTYPE
    lengths: NDArray[np.uint8]
    code: list[Version]
    threads: list[ThreadTruth]

    @classmethod
    def load(cls, directory: Path) -> Truth:
        """Raises OSError or ValueError when it is not there or cut short."""
        blocks = np.fromfile(directory / "blocks.bin", BLOCK_DTYPE)
        threads = []
        for path in sorted(directory.glob("*.ran"), key=lambda p: int(p.stem.partition("-")[2])):
            marks = np.fromfile(path.with_suffix(".marks"), MARK_DTYPE)
            partial = marks[marks["kind"] == Mark.PARTIAL]
            gone = np.flatnonzero(marks["kind"] == Mark.GO)
            tid = int(path.stem[1:].partition("-")[0])
            threads.append(ThreadTruth(tid, _mapped(path), marks, partial, gone))
        lengths = np.fromfile(directory / "lengths.bin", np.uint8)
        return cls(blocks[np.argsort(blocks["id"])], lengths, _versions((directory / "code.bin").read_bytes()), threads)

    def runs(self, thread: int, begin: int = 0, end: int | None = None) -> Runs:
        """The runs of instructions of blocks `begin` to `end` of a thread."""
        of = self.threads[thread]
        rows = self.blocks[of.ran[begin:end]]
        start, stop = rows["start"].copy(), rows["end"].copy()
        count = rows["instructions"].astype(np.int64)
        low, high = np.searchsorted(of.partial["index"], [begin, begin + len(rows)])
        for mark in of.partial[low:high]:
            at = int(mark["index"]) - begin
            stop[at] = mark["ip"]
            first = int(rows[at]["lengths_at"])
            sizes = self.lengths[first : first + int(count[at])].cumsum()
            count[at] = int(np.searchsorted(sizes, int(mark["ip"] - start[at]), side="right"))
        # A string instruction with REP makes a block an iteration, all but the first beginning at itself: one for PT.
        again = (rows["rep"][:-1] == 1) & (start[1:] == rows["last"][:-1])
        stop[:-1][again] = rows["last"][:-1][again]
        count[:-1][again] -= 1
        return merge(start, stop, count)

    def regions(self, stream: int) -> list[Region]:
        """The contents of a stream (by its id), in its order."""
        spans = sorted(
            (int(thread.marks["tsc"][at]), number, int(at))
            for number, thread in enumerate(self.threads)
            for at in np.flatnonzero((thread.marks["kind"] == Mark.COME) & (thread.marks["stream"] == stream))
        )
        changes = np.array([version.tsc for version in self.code if version.changed], np.uint64)
        regions = [Region(0, spans[0][0] if spans else 0, False, [])]
        stopped = False
        for _, number, at in spans:
            stopped = _span(regions, self.threads[number], number, at, changes, stopped)
        return regions


def _span(
    regions: list[Region], thread: ThreadTruth, number: int, at: int, changes: NDArray[np.uint64], stopped: bool
) -> bool:
    """From a COME mark to the next GO. Returns whether the stream is stopped at the end."""
    begin = int(thread.marks[at]["index"])
    restarted = False  # by a PSB+: the AUX area was full; otherwise by an OVF packet

    def close(end: int) -> int:
        if not stopped and end > begin:
            regions[-1].pieces.append(Piece(number, begin, end))
        return end

    gone = np.searchsorted(thread.gone, at)
    marks = thread.marks[at + 1 : thread.gone[gone] + 1 if gone < len(thread.gone) else None]
    for row in marks[np.isin(marks["kind"], (Mark.GO, Mark.STOP, Mark.RESUME, Mark.PSB))]:
        kind, index, offset, tsc = Mark(row["kind"]), int(row["index"]), int(row["offset"]), int(row["tsc"])
        if kind == Mark.GO:
            close(index)
            return stopped
        if kind == Mark.STOP:
            begin = close(index)
            stopped, restarted = True, False
        elif kind == Mark.RESUME:
            if not restarted:
                regions.append(Region(offset, regions[-1].tsc, True, []))
            stopped, begin = False, index
        elif stopped:
            regions.append(Region(offset, tsc, False, []))
            restarted = True
        elif np.diff(np.searchsorted(changes, [regions[-1].tsc, tsc], side="right"))[0]:
            begin = close(index)
            regions.append(Region(offset, tsc, False, []))
    close(len(thread.ran))
    return stopped


def merge(start: NDArray[np.uint64], end: NDArray[np.uint64], instructions: NDArray[np.int64]) -> Runs:
    """Joins ranges that follow without a gap, and leaves out empty ones."""
    some = start != end
    start, end, instructions = start[some], end[some], instructions[some]
    if not len(start):
        return Runs(start, end, instructions)
    first = np.concatenate(([True], start[1:] != end[:-1]))
    at = np.flatnonzero(first)
    last = np.concatenate((at[1:] - 1, [len(start) - 1]))
    return Runs(start[at], end[last], np.add.reduceat(instructions, at))


def _mapped(path: Path) -> NDArray[np.uint32]:
    """The numbers in a file, read as they are used: there may be more than fit into memory."""
    ran: NDArray[np.uint32] = np.zeros(0, "<u4")
    if path.stat().st_size:
        ran = np.memmap(path, "<u4", "r").view(np.ndarray)
    ran.flags.writeable = False  # a kernel is compiled for one kind of array
    return ran


def _versions(data: bytes) -> list[Version]:
    versions = []
    at = 0
    while at < len(data):
        tsc, address = (int(value) for value in np.frombuffer(data, "<u8", 2, at))
        size, changed = (int(value) for value in np.frombuffer(data, "<u4", 2, at + 16))
        if at + 24 + size > len(data):
            raise ValueError("code.bin is cut short")
        versions.append(Version(tsc, address, data[at + 24 : at + 24 + size], bool(changed)))
        at += 24 + (size + 7 & ~7)
    return versions

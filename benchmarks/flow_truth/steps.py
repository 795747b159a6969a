"""The truth laid along the trace: which blocks ran between two branch packets.

A *step* is the blocks from one branch's outcome to the next: a decoder has to know them by itself. The emulator says
which blocks each thread entered, and at which block and stream position a stream changed hands, a PSB stands, a fault
or a signal came (docs/emulator.md). Between those the walk (benchmarks.flow_truth.walk) goes along packets and blocks
together: every TNT bit and every address must be the one that the next block calls for. So a step's place in the stream
is not estimated but proved, packet by packet (benchmarks.flow_truth.walk); where truth and trace disagree it stops with
an error.

A cycle without a packet (recursion by direct calls) is one step, ended by a fault, a signal or a PSB. Of how often it
went round the trace says nothing, so a decoder is asked for the way to where it ended, first come there; the blocks of
the other rounds are counted apart.

Nothing here knows code bytes, return stacks or the decoder under test.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth.spans import Span, spans
from benchmarks.flow_truth.walk import (
    DONE,
    END,
    FULL,
    LONGEST_PACKET,
    ROOM,
    T_AT,
    T_BITS,
    T_BLOCKS,
    T_CUT,
    T_FRESH,
    T_FUP,
    T_MARK,
    T_POS,
    T_PSB,
    T_RAW,
    T_ROUNDS,
    T_SIZE,
    T_STEPS,
    T_TIPS,
    T_TRACING,
    WRONG,
    follow,
)
from capture.emulator.truth import Mark, Truth

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


class Blocks(NamedTuple):
    """Translated blocks by number."""

    start: I64
    last: I64
    end: I64
    target: I64
    flow: U8
    rep: U8

    @classmethod
    def of(cls, truth: Truth) -> Blocks:
        rows = truth.blocks

        def wide(name: str) -> I64:
            return np.ascontiguousarray(rows[name]).view(np.int64)

        flow, rep = np.ascontiguousarray(rows["flow"]), np.ascontiguousarray(rows["rep"])
        return cls(wide("start"), wide("last"), wide("end"), wide("target"), flow, rep)


class Steps(NamedTuple):
    """(n,) steps and (m,) blocks of a piece of a stream. Blocks are their executed parts: without the part behind a
    fault; the iterations of a string instruction are one; never empty."""

    first: I64  # (n + 1,) where each step's blocks begin
    kind: U8
    offset: I64  # in the stream: of the packet that ended it
    ip: I64  # in that packet; 0: none
    start: I64  # (m,)
    end: I64
    last: I64  # address of the last instruction

    def __len__(self) -> int:
        return len(self.kind)


class Part(NamedTuple):
    """Steps lo to hi (positions) are of this thread (position in Truth.threads)."""

    thread: int
    lo: int
    hi: int


class StreamSteps:
    """One stream's walk. Bytes go in by `put`, in order; `steps` and `skip` take them out again."""

    def __init__(self, truth: Truth, blocks: Blocks, stream: int, filter_range: tuple[int, int]) -> None:
        """`stream`: its id."""
        self.name = str(stream)
        self._truth, self._blocks, self._filter = truth, blocks, filter_range
        self.spans = spans(truth, stream)
        self.taken = 0  # blocks, of steps
        self._next = 0  # span to begin
        self._span: Span | None = None
        self._data = np.zeros(1 << 16, np.uint8)
        self._size = 0  # bytes in it; behind them zeros, as many as a packet can have
        self._base = 0  # stream position of the first
        self.at = 0  # stream position up to which steps have been taken
        self._x = np.zeros(T_SIZE, np.int64)
        self._room(1 << 16, 2 * ROOM)

    def _room(self, steps: int, blocks: int) -> None:
        old: tuple[Any, ...] = getattr(self, "_out", ())
        sizes = steps + 1, steps, steps, steps, blocks, blocks, blocks
        new = tuple(np.zeros(n, np.uint8 if i == 1 else np.int64) for i, n in enumerate(sizes))
        for a, b in zip(old, new, strict=False):
            b[: len(a)] = a
        self._out: tuple[Any, ...] = new

    def put(self, offset: int, data: U8) -> None:
        if offset != self.end:
            raise FlowTruthError(f"stream {self.name}: bytes are missing before {offset}: was the run kept whole?")
        if self._size + len(data) + LONGEST_PACKET > len(self._data):  # make room: by the bytes taken, or more
            rest = self._data[self.at - self._base : self._size].copy()
            if 2 * (len(rest) + len(data)) + LONGEST_PACKET > len(self._data):
                self._data = np.zeros(4 * (len(rest) + len(data)) + LONGEST_PACKET, np.uint8)
            self._data[: len(rest)] = rest
            self._size, self._base = len(rest), self.at
        self._data[self._size : self._size + len(data)] = data
        self._size += len(data)
        self._data[self._size : self._size + LONGEST_PACKET] = 0

    @property
    def end(self) -> int:
        return self._base + self._size

    def take(self, to: int) -> tuple[Steps, list[Part]]:
        """The steps up to stream position `to`, and their thread. The arrays are valid until the next call. Blocks left
        without a packet at the end of a span are a step of kind END."""
        if to > self.end:
            raise FlowTruthError(f"stream {self.name}: bytes are missing before {to}: was the run kept whole?")
        parts: list[Part] = []
        x = self._x
        x[T_STEPS] = x[T_BLOCKS] = 0
        while self._span is not None or self._begin(to):
            span = self._span
            assert span is not None
            before = int(x[T_STEPS])
            self._follow(span, min(to, span.stop))
            if to >= span.stop:
                self._end(span)
            if x[T_STEPS] > before:
                parts.append(Part(span.thread, before, int(x[T_STEPS])))
            if to < span.stop:
                break
        self.at = to
        n, m = int(x[T_STEPS]), int(x[T_BLOCKS])
        self.taken += m
        first, kind, offset, ip, *columns = self._out
        return Steps(first[: n + 1], kind[:n], offset[:n], ip[:n], *(column[:m] for column in columns)), parts

    def _begin(self, to: int) -> bool:
        """The next span, if it begins before `to`."""
        if self._next == len(self.spans) or self.spans[self._next].offset >= to:
            return False
        span = self._span = self.spans[self._next]
        self._next += 1
        x = self._x
        x[T_POS], x[T_AT] = max(span.offset, self.at), span.begin
        x[T_TRACING] = x[T_PSB] = x[T_FUP] = x[T_MARK] = x[T_CUT] = x[T_FRESH] = 0
        self._marks = np.column_stack((span.psb["index"], span.psb["offset"])).astype(np.int64)
        fault = span.cuts["kind"] == Mark.PARTIAL
        self._cuts = np.column_stack((span.cuts["index"], span.cuts["ip"], fault)).astype(np.int64)
        return True

    def _follow(self, span: Span, limit: int) -> None:
        x = self._x
        while True:
            ran = self._truth.threads[span.thread].ran
            result = follow(
                self._data, self._base, limit, x, ran, span.end, self._marks, self._cuts, tuple(self._blocks),
                *self._filter, self._out,
            )  # fmt: skip
            if result == DONE:
                return
            if result != FULL:
                raise FlowTruthError(
                    f"truth and trace disagree in stream {self.name} at {int(x[T_POS])}, thread "
                    f"{self._truth.threads[span.thread].tid}, block {int(x[T_AT])}: {WRONG[result]}"
                )
            self._room(2 * len(self._out[1]), 2 * len(self._out[4]))

    def _end(self, span: Span) -> None:
        x, b = self._x, self._blocks
        self._span = None
        left = np.asarray(self._truth.threads[span.thread].ran[int(x[T_AT]) : span.end])
        x[T_RAW] += len(left)
        x[T_AT] = span.end
        left = left[b.end[left] > b.start[left]]
        if not len(left):
            return
        n, m = int(x[T_STEPS]), int(x[T_BLOCKS])
        while n + 2 > len(self._out[1]) or m + len(left) + 1 > len(self._out[4]):
            self._room(2 * len(self._out[1]), 2 * len(self._out[4]))
        first, kind, offset, ip, start, end, last = self._out
        start[m : m + len(left)], end[m : m + len(left)] = b.start[left], b.end[left]
        last[m : m + len(left)] = b.last[left]
        x[T_STEPS], x[T_BLOCKS] = n + 1, m + len(left)
        first[n + 1], kind[n], offset[n], ip[n] = m + len(left), END, span.stop, 0

    @property
    def branches(self) -> tuple[int, int]:
        """TNT bits and addresses of branches so far."""
        return int(self._x[T_BITS]), int(self._x[T_TIPS])

    @property
    def rounds(self) -> int:
        """Blocks in the rounds of cycles without a packet, but for the first, so far."""
        return int(self._x[T_ROUNDS])

    @property
    def blocks(self) -> int:
        """Blocks as the emulator counts them, so far."""
        return int(self._x[T_RAW])

"""A recording of an emulated JVM, made as dense in time as real hardware would have written it.

An emulated JVM runs some fifteen times slower than a native one, so at recorded speed a piece of 20 ms holds some kB
of trace where hardware gives 0.1 to 4 MB, and the cost of each piece hides all others. All times of a recording
(packets, sideband, JIT export, code read again, drains) are TSC ticks, and only the clock says how long a tick is. So
the clock is changed: with ticks a fifteenth as long everything in the recording happens fifteen times as fast, and
nothing of it has to be written anew. A drain's length is not in ticks: as many drains become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from capture.live.drain import Message
from stages.messages import Chunk, Clock, EndOfStream, JitBatch, Sideband, StreamKey, StreamOpen, Tick

CHUNK = 256 << 10
"""Largest chunk, as capture drains them by default."""


def faster(clock: Clock, times: float) -> Clock:
    """The clock by which `times` as many ticks pass in a second. Wall time begins where it began."""
    shift = clock.shift + 8  # so that the quotient keeps its precision
    return clock._replace(mult=max(1, round((clock.mult << 8) / times)), shift=shift)


@dataclass(slots=True)
class _Drain:
    """Messages of several drains, by subject."""

    tsc: int = 0
    drains: int = 0
    opened: list[StreamOpen] = field(default_factory=list)
    jit: dict[tuple[str, int], list[JitBatch]] = field(default_factory=dict)
    side: dict[StreamKey, list[Sideband]] = field(default_factory=dict)
    chunks: dict[StreamKey, list[Chunk]] = field(default_factory=dict)
    ticks: dict[tuple[str, int], Tick] = field(default_factory=dict)


class _Numbers:
    """Sequence numbers anew, for there are fewer messages."""

    def __init__(self) -> None:
        self._next: dict[object, int] = {}

    def take(self, *sequence: object) -> int:
        number = self._next.get(sequence, 0)
        self._next[sequence] = number + 1
        return number


def dense(messages: Iterable[Message], times: float) -> Iterator[Message]:
    """The same trace, `times` as fast, in drains as long as they were. Raises ValueError for `times` below 1."""
    if times < 1:
        raise ValueError("a recording can be made faster, not slower")
    numbers, held = _Numbers(), _Drain()
    for message in messages:
        tsc = getattr(message, "tsc", 0)
        if tsc > held.tsc:
            if held.drains >= times:
                yield from _told(held, numbers)
                held = _Drain()
            held.tsc, held.drains = tsc, held.drains + 1
        match message:
            case StreamOpen():
                if message.stream in held.chunks:  # the key comes again, for another stream
                    yield from _told(held, numbers)
                    held = _Drain(held.tsc, held.drains)
                held.opened.append(replace(message, clock=faster(message.clock, times)))
            case JitBatch():
                held.jit.setdefault((message.host, message.pid), []).append(message)
            case Sideband():
                held.side.setdefault(message.stream, []).append(message)
            case Chunk():
                held.chunks.setdefault(message.stream, []).append(message)
            case Tick():
                held.ticks[message.host, message.pid] = message
            case EndOfStream():
                yield from _told(held, numbers)
                held = _Drain()
                yield message
    yield from _told(held, numbers)


def _told(held: _Drain, numbers: _Numbers) -> Iterator[Message]:
    """As capture sends a drain: the messages that explain the trace before the trace."""
    yield from held.opened
    for (host, pid), batches in held.jit.items():
        data = np.concatenate([batch.data for batch in batches])
        yield JitBatch(host, pid, numbers.take("jit", host, pid), data, batches[-1].dropped, held.tsc)
    for stream, sides in held.side.items():
        yield Sideband(stream, numbers.take("side", stream), np.concatenate([s.records for s in sides]), held.tsc)
    for stream, chunks in held.chunks.items():
        for run in _runs(chunks):
            data = np.concatenate([chunk.data for chunk in run])
            losses = tuple(mark for chunk in run for mark in chunk.losses)
            for at in range(0, max(len(data), 1), CHUNK):
                part = data[at : at + CHUNK]
                offset = run[0].offset + at
                last = at + CHUNK >= len(data)
                here = tuple(m for m in losses if m.offset < offset + len(part) or last)
                losses = losses[len(here) :]
                yield Chunk(stream, numbers.take("chunk", stream), offset, part, here, held.tsc)
    for tick in held.ticks.values():
        yield replace(tick, tsc=held.tsc)


def _runs(chunks: list[Chunk]) -> Iterator[list[Chunk]]:
    """Chunks that lie behind one another, together."""
    run: list[Chunk] = []
    for chunk in chunks:
        if run and run[-1].offset + len(run[-1].data) != chunk.offset:
            yield run
            run = []
        run.append(chunk)
    if run:
        yield run

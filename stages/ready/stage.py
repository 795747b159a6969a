"""Segments wait until the code of their time is known; then they go on, those of one release together.

Loads are told late, by `lateness` at most, so a segment waits until all records up to its end plus that have come. How
far they have come is known from the messages: all of one drain have the same time, so when a later time appears, those
of the one before are complete. Then the result of a segment depends on the trace and the records alone, not on when
they came: a replay counts what the live run counted. A segment that would wait beyond `max_held` bytes becomes a hole
CODE_PENDING.

A JVM tells at once what code there is when its beginning is over, and trace of before waits for that. Under emulation a
beginning takes seconds, and a live process does not wait: there it goes on `PATIENCE_SECONDS` later than other trace,
once the interpreter is told. Of a recording it waits as long as it takes.

What is complete waits a little longer for others (`hold_seconds`, or until there is `ENOUGH` of it): the stages behind
have costs of each message, and of each piece, that a drain of a few kilobytes would not be worth. It does not wait when
a pane is complete, which can close then.

The ends of streams and threads keep their place behind their last segment. A `Watermark` follows each release that
moves it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import NamedTuple

import numpy as np

from jvm.code.version import FOREVER
from stages.images import Images, Process
from stages.messages import (
    PIECE_DTYPE,
    Arrival,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    Pieces,
    Segment,
    StreamEnd,
    StreamOpen,
    ThreadEnd,
    Tick,
    Watermark,
    accounts,
)
from stages.messages.columns import joined

MOST_BYTES = 4 << 20
"""Of trace in one message."""
HOLD_SECONDS = 0.5
"""So long complete segments wait for others in a chain of a worker; with panes of the default length, for the pane."""
PATIENCE_SECONDS = 0.5
"""So much longer than other trace that of a JVM's beginning waits, in a chain that does not wait itself."""
MARK_SECONDS = 0.1
"""Between two watermarks at most, where panes are known."""
ENOUGH = 1 << 20
"""So many bytes of complete segments wait no longer."""


class Last(NamedTuple):
    """Of one thread."""

    began: int = 0  # its latest piece
    late: bool = False  # its last one was
    hole: tuple[LossMark, ...] = ()  # before late pieces: somewhere between their neighbours in time


@dataclass(slots=True)
class Held:
    """Of one process."""

    process: Process
    segments: deque[Segment] = field(default_factory=deque)
    bytes: int = 0
    given: int = 0  # segments that came
    taken: int = 0  # … and have gone on, or become a hole
    ends: deque[tuple[int, StreamEnd | ThreadEnd]] = field(default_factory=deque)  # behind so many segments
    last: dict[int, Last] = field(default_factory=dict)  # of threads, until they end
    now: int = 0  # time of the drain whose messages are coming
    complete: int = 0  # time of the one before
    watermark: int = 0


_FIRST = Last()


class Ready:
    """Segment, JitBatch, Tick → Pieces, Watermark, Account; StreamEnd, ThreadEnd in their places. All else passes but
    Ticks, which tell the stages behind nothing that a `Watermark` does not."""

    def __init__(
        self, images: Images | None = None, *, max_held: int = 128 << 20, hold_seconds: float = 0.0,
        patience_seconds: float = math.inf, pane_seconds: float = math.inf,
    ) -> None:  # fmt: skip
        """`max_held`: bytes; `hold_seconds`: so long complete segments wait for others, but not beyond the end of a
        pane of `pane_seconds`; `patience_seconds`: so much longer than others those of a JVM's beginning wait for its
        end."""
        self.images = images or Images()
        self.counts: Counter[str] = Counter()
        self._max_held, self._hold_seconds, self._patience = max_held, hold_seconds, patience_seconds
        self._pane_seconds = pane_seconds
        self._held: dict[tuple[str, int], Held] = {}

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed`, one message after the other: the fate of one is known before the next is made. None between two
        steps of much code."""
        match message:
            case Segment():
                h = self._of(message.stream.host, message.stream.pid)
                h.segments.append(message)
                h.given += 1
                h.bytes += len(message.data)
                if h.now == 0 or h.bytes > self._max_held:  # a source that tells no times has told all before
                    yield from self._release(h)
            case JitBatch() | StreamOpen():
                yield from self.images.steps(message)
                yield message
            case Tick():
                yield from self._tick(self._of(message.host, message.pid), message.tsc)
            case StreamEnd() | ThreadEnd():
                h = self._of(message.stream.host, message.stream.pid)
                h.ends.append((h.given, message))
                yield from self._ended(h)
            case EndOfStream():
                yield from self.flush_steps()
                yield message
            case _:
                yield message

    def flush(self) -> list[object]:
        """Nothing more comes: everything that is held goes on."""
        return list(self.flush_steps())

    def flush_steps(self) -> Iterator[object]:
        """`flush`, as `steps` is `feed`."""
        self.images.end()
        for h in self._held.values():
            yield from self._take(h, len(h.segments), ended=True)

    def statistics(self) -> dict[str, int | float]:
        return {
            **{f"ready_{name}": n for name, n in sorted(self.counts.items())},
            "ready_held_bytes": sum(h.bytes for h in self._held.values()),
            "ready_held_segments": sum(len(h.segments) for h in self._held.values()),
            **self.images.statistics(),
        }

    def introduce(self) -> list[object]:
        """A receiver has begun anew: the clock of each process."""
        return self.images.introduce()

    def _of(self, host: str, pid: int) -> Held:
        known = self._held.get((host, pid))
        if known is None:
            known = self._held[host, pid] = Held(self.images.of(host, pid))
        return known

    def _tick(self, h: Held, tsc: int) -> Iterator[object]:
        if tsc <= h.now:
            return
        h.complete, h.now = h.now, tsc
        h.process.image.complete_until = h.complete
        yield from self._release(h)
        if not h.process.clocked:
            return
        first_held = min((s.tsc for s in h.segments), default=h.complete)
        done = min(first_held, h.complete - h.process.lateness)
        if self._tells(h, done):
            h.watermark = done
            mark = Watermark(*h.process.key, done)
            yield mark  # panes close before the code of their time is forgotten
            yield from self.images.steps(mark)

    def _tells(self, h: Held, done: int) -> bool:
        """Whether the watermark moves: where panes are known only at their ends, and now and then for all else that
        goes by it."""
        if done <= h.watermark or self._pane_seconds == math.inf:
            return done > h.watermark
        ticks = max(1, round(self._pane_seconds * h.process.hz))
        return done // ticks > h.watermark // ticks or done - h.watermark >= round(MARK_SECONDS * h.process.hz)

    def _release(self, h: Held) -> Iterator[object]:
        """The segments that need not wait any longer."""
        p = h.process
        timeless = h.now == 0 and p.image.primed_at < FOREVER
        if p.clocked:
            until = self._until(h)
            due = list(h.segments if timeless else takewhile(lambda s: s.tsc_end <= until, h.segments))
            full = timeless or h.bytes > self._max_held
            if full or self._is_time(h, due, until):
                yield from self._take(h, len(due))
        while h.bytes > self._max_held:
            (segment,) = self._first(h, 1)
            size = len(segment.data)
            self.counts["pending_bytes"] += size
            yield accounts.hole(segment.stream, segment.offset, segment.offset + size, Loss.CODE_PENDING)
        yield from self._ended(h)

    def _until(self, h: Held) -> int:
        """Segments that have ended by then do not wait for code; −1: all do."""
        p, until = h.process, h.complete - h.process.lateness
        if p.image.settled(h.complete):
            return until
        hurries = self._patience < math.inf and p.image.begins
        return max(until - round(self._patience * p.hz), -1) if hurries else -1

    def _is_time(self, h: Held, due: list[Segment], until: int) -> bool:
        """Whether these go on: one has waited long enough, they are enough, or the pane in which the first begins is
        complete with them."""
        if not due:
            return False
        hz = h.process.hz
        if any(s.tsc_end <= until - round(self._hold_seconds * hz) for s in due):
            return True
        if sum(len(s.data) for s in due) >= ENOUGH:
            return True
        if self._pane_seconds == math.inf:
            return False
        ticks = max(1, round(self._pane_seconds * hz))
        end = (due[0].tsc // ticks + 1) * ticks
        return until >= end and all(s.tsc >= end for s in islice(h.segments, len(due), None))

    def _take(self, h: Held, count: int, *, ended: bool = False) -> Iterator[object]:
        """The first segments that are held go on, in order of time; an end among them keeps its place."""
        while count:
            upto = min(count, h.ends[0][0] - h.taken) if h.ends else count
            # Streams are told of one after the other, so a thread's pieces of two CPUs need not come in its order.
            in_order = self._in_order(h, sorted(self._first(h, upto), key=lambda s: s.tsc))
            for part in _parts(in_order):
                yield _pieces(h, part, ended)
            yield from self._ended(h)
            count -= upto

    def _in_order(self, h: Held, segments: list[Segment]) -> list[Segment]:
        """A CPU's last bytes may come into view so late that what the thread did on another CPU since has gone on: such
        a piece continues nothing, nor does the thread's next one continue it; but nothing is lost between them."""
        for n, s in enumerate(segments):
            last = h.last.get(s.thread.tid, _FIRST)
            late, hole = s.tsc_end < last.began, last.hole
            if late:
                self.counts["late"] += 1
                hole += s.hole
                segments[n] = replace(s, continues=False, hole=(), arrival=Arrival.LATE)
            elif last.late:
                arrival = Arrival.BEHIND_LATE if s.continues and not hole else Arrival.IN_ORDER
                segments[n] = replace(s, continues=False, hole=hole + s.hole, arrival=arrival)
                hole = ()
            h.last[s.thread.tid] = Last(max(last.began, s.tsc), late, hole)
        return segments

    @staticmethod
    def _first(h: Held, count: int) -> list[Segment]:
        h.taken += count
        taken = [h.segments.popleft() for _ in range(count)]
        h.bytes -= sum(len(s.data) for s in taken)
        return taken

    @staticmethod
    def _ended(h: Held) -> Iterator[object]:
        while h.ends and h.ends[0][0] <= h.taken:
            end = h.ends.popleft()[1]
            if isinstance(end, ThreadEnd):
                h.last.pop(end.thread.tid, None)
            yield end


def _parts(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Of about `MOST_BYTES` of trace."""
    begin, size = 0, 0
    for n, segment in enumerate(segments, 1):
        size += len(segment.data)
        if size >= MOST_BYTES or n == len(segments):
            yield segments[begin:n]
            begin, size = n, 0


def _pieces(h: Held, segments: list[Segment], ended: bool) -> Pieces:
    # A thread that goes from one CPU to another has pieces in several streams: the earlier one comes first.
    segments.sort(key=lambda s: (s.thread.tid, s.tsc))
    streams = {s.stream: 0 for s in segments}
    streams = {stream: n for n, stream in enumerate(streams)}
    rows = np.zeros(len(segments), PIECE_DTYPE)
    columns = ("tid", "stream", "number", "offset", "last_ip", "tsc", "tsc_end", "continues", "arrival")
    values = [
        (s.thread.tid, streams[s.stream], s.number, s.offset, s.last_ip, s.tsc, s.tsc_end, s.continues, s.arrival)
        for s in segments
    ]
    for name, column in zip(columns, zip(*values, strict=True), strict=True):
        rows[name] = np.array(column, PIECE_DTYPE[name])
    rows["end"] = np.cumsum([len(s.data) for s in segments])
    rows["begin"][1:] = rows["end"][:-1]
    rows["mark_end"] = np.cumsum([len(s.marks) for s in segments])
    rows["mark"][1:] = rows["mark_end"][:-1]
    holes = tuple((n, mark) for n, s in enumerate(segments) for mark in s.hole)
    data = segments[0].data if len(segments) == 1 else np.concatenate([s.data for s in segments])
    marks = segments[0].marks if len(segments) == 1 else joined([s.marks for s in segments])
    return Pieces(*h.process.key, h.now, tuple(streams), rows, data, marks, holes, ended)

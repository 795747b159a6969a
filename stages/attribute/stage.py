"""Fidelity `ip`: segments and the code image → which code the addresses in the trace belong to, pane by pane.

A segment waits until everything about the code of its time has been told: loads come late (by `lateness`), so until
the records up to its end plus that have come. How far they have come is known from the messages: all of one drain have
the same time, so when a later time appears, those of the one before are complete. Then the answer depends only on the
trace and the records, not on when they came: a replay counts what the live run counted. What would wait beyond
`max_held` bytes becomes a hole CODE_PENDING.

What is counted: `hits`, the packets with an address in this code, and `ticks`, the time from there to the next address
(`stages.attribute.addresses`). Which Java method the interpreter runs cannot be seen from addresses: its codelets are
counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.sites import Sites
from jvm.code.version import FOREVER
from stages.attribute.addresses import ADDRESSES, AT_SIZE, OUTSIDE, SITE, UNKNOWN, attribute
from stages.messages import (
    PROFILE_DTYPE,
    Account,
    EndOfStream,
    JitBatch,
    Loss,
    MarkKind,
    PaneReport,
    Segment,
    StreamEnd,
    StreamKey,
    StreamOpen,
    ThreadEnd,
    ThreadKey,
    Tick,
    accounts,
)
from stages.messages.accounts import Ledger
from stages.profile.panes import COLUMNS, ROW_DTYPE, Pane, Rows

MAX_PANES = 4096
"""Panes that one piece of a segment may reach over; one that reaches further has a broken clock."""
KEEP_PANES = 10
"""So many panes behind, code that is gone is forgotten."""
SPARE_SITES = 1024
_PSB, _TIME = int(MarkKind.PSB), int(MarkKind.TIME)
_END_OF_TIME = (1 << 64) - 1
ProcessKey = tuple[str, int]


@dataclass(slots=True)
class Traced:
    key: ProcessKey
    image: CodeImage
    pane_ticks: int
    lateness: int
    clocked: bool  # both are known: before, no pane has a length and nothing is counted
    early: list[JitBatch] = field(default_factory=list)  # came before the clock, so before the lateness was known
    held: deque[Segment] = field(default_factory=deque)
    held_bytes: int = 0
    panes: dict[int, Pane] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    ledgers: dict[StreamKey, Ledger] = field(default_factory=dict)
    site: dict[StreamKey, tuple[int, int, int]] = field(default_factory=dict)  # offset, thread, site in effect there
    given: int = 0  # segments that came
    taken: int = 0  # … and have been counted, or become a hole
    ends: deque[tuple[int, StreamEnd | ThreadEnd]] = field(default_factory=deque)  # behind so many segments
    over: dict[StreamKey, StreamEnd] = field(default_factory=dict)  # streams whose last accounts are still to be told
    now: int = 0  # time of the drain whose messages are coming
    complete: int = 0  # time of the one before
    closed: int = -1  # last pane that was closed
    dropped: int = 0
    opened: StreamOpen | None = None  # its first stream


class Attribute:
    """Segment, JitBatch, Account, Tick → PaneReport. All else passes (StreamOpen and Tick pass too; StreamEnd behind
    the last accounts of its stream)."""

    def __init__(
        self,
        worker: int = 0,
        *,
        pane_seconds: float = 1.0,
        lateness_seconds: float = 0.25,
        pane_ticks: int = 0,
        lateness_ticks: int = -1,
        max_held: int = 128 << 20,
    ) -> None:
        """Seconds become ticks by the first stream's clock, unless ticks are given."""
        self.worker = worker
        self.sites = Sites()
        self.counts: Counter[str] = Counter()
        self._pane_seconds, self._lateness_seconds, self._max_held = pane_seconds, lateness_seconds, max_held
        self._pane_ticks, self._lateness_ticks = pane_ticks, lateness_ticks
        self._sites_kept = 0  # when some were dropped last
        self._processes: dict[ProcessKey, Traced] = {}
        self._hits = np.zeros(1024, np.uint64)
        self._ticks = np.zeros(1024, np.uint64)

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps of which none takes long: None between two of them, when somebody else may have a turn.
        Nothing else may be fed until it has come to its end."""
        match message:
            case Segment():
                p = self._process(message.stream.host, message.stream.pid)
                p.held.append(message)
                p.given += 1
                p.held_bytes += len(message.data)
                yield from self._release(p)
            case JitBatch():
                self._jit(message)
            case Account():
                p = self._process(message.stream.host, message.stream.pid)
                p.ledgers.setdefault(message.stream, Ledger()).add(message)
            case Tick():
                yield from self._tick(self._process(message.host, message.pid), message.tsc)
                yield message
            case StreamOpen():
                self._clock(message)
                yield message
            case StreamEnd() | ThreadEnd():
                p = self._process(message.stream.host, message.stream.pid)
                p.ends.append((p.given, message))
                self._end(p)
            case EndOfStream():
                yield from self.flush_steps()
                yield message
            case _:
                yield message

    def flush(self) -> list[object]:
        """Nothing more comes: everything that is held is counted and told, and every pane closed."""
        return [out for out in self.flush_steps() if out is not None]

    def flush_steps(self) -> Iterator[object]:
        """`flush`, as `steps` is `feed`."""
        for p in self._processes.values():
            for batch in p.early:
                p.image.feed(batch.data)
            p.early.clear()
            yield from self._count_first(p, len(p.held))
            yield from self._report(p, max(p.panes, default=p.closed))

    def statistics(self) -> dict[str, int | float]:
        total: Counter[str] = Counter()
        for p in self._processes.values():
            total.update(p.image.statistics())
        return {
            **{f"attribute_{name}": n for name, n in sorted(self.counts.items())},
            "attribute_held_bytes": sum(p.held_bytes for p in self._processes.values()),
            "attribute_held_segments": sum(len(p.held) for p in self._processes.values()),
            "attribute_sites": self.sites.known,
            "attribute_streams": sum(len(p.ledgers) for p in self._processes.values()),
            **dict(sorted(total.items())),
        }

    def introduce(self) -> list[object]:
        """A receiver has begun anew: the clock of each process. Names come again with the reports that use them."""
        for p in self._processes.values():
            p.named.clear()
        return [p.opened for p in self._processes.values() if p.opened is not None]

    # What a process is known by

    def _process(self, host: str, pid: int) -> Traced:
        known = self._processes.get((host, pid))
        if known is None:
            lateness = max(self._lateness_ticks, 0)
            image = CodeImage(lateness, self.sites)
            known = Traced((host, pid), image, self._pane_ticks or 1 << 31, lateness, self._pane_ticks > 0)
            self._processes[host, pid] = known
        return known

    def _clock(self, opened: StreamOpen) -> None:
        p = self._process(opened.stream.host, opened.stream.pid)
        p.opened = p.opened or opened
        if p.clocked:
            return
        p.clocked = True
        if not self._pane_ticks:
            p.pane_ticks = max(1, round(self._pane_seconds * opened.clock.hz))
        if self._lateness_ticks < 0:
            p.lateness = p.image.lateness = max(0, round(self._lateness_seconds * opened.clock.hz))
        for batch in p.early:
            p.image.feed(batch.data)
        p.early.clear()

    def _jit(self, batch: JitBatch) -> None:
        p = self._process(batch.host, batch.pid)
        if p.clocked:
            p.image.feed(batch.data)
        else:
            p.early.append(batch)
        if batch.dropped > p.dropped:
            self.counts["jit_dropped"] += batch.dropped - p.dropped
            p.dropped = batch.dropped

    def _tick(self, p: Traced, tsc: int) -> Iterator[object]:
        if tsc <= p.now:
            return
        p.complete, p.now = p.now, tsc
        p.image.complete_until = p.complete
        yield from self._release(p)
        if not p.clocked:
            return
        first_held = min((s.tsc for s in p.held), default=p.complete)
        done = min(first_held, p.complete - p.lateness) // p.pane_ticks - 1
        if done > p.closed and done >= 0:
            yield from self._report(p, done)
            p.image.forget_before(min(first_held, p.complete - KEEP_PANES * p.pane_ticks))
            self._drop_sites()

    # Segments

    def _release(self, p: Traced) -> Iterator[None]:
        """Counts what need not wait any longer. A source that tells no times (`now` is 0) has told all before."""
        timeless = p.now == 0 and p.image.primed_at < FOREVER
        if p.clocked and (timeless or p.image.settled(p.complete)):
            due = p.held if timeless else takewhile(lambda s: s.tsc_end + p.lateness <= p.complete, p.held)
            yield from self._count_first(p, sum(1 for _ in due))
        while p.held_bytes > self._max_held:
            (segment,) = self._taken(p, 1)
            size = len(segment.data)
            self.counts["pending_bytes"] += size
            self._ledger(p, segment).add(
                accounts.hole(segment.stream, segment.offset, segment.offset + size, Loss.CODE_PENDING)
            )
        self._end(p)

    def _count_first(self, p: Traced, count: int) -> Iterator[None]:
        """Of the segments that are held; what ends between two of them is dropped there."""
        while count:
            upto = min(count, p.ends[0][0] - p.taken) if p.ends else count
            yield from self._count_all(p, self._taken(p, upto))
            self._end(p)
            count -= upto

    @staticmethod
    def _taken(p: Traced, count: int) -> list[Segment]:
        """The first segments that are held."""
        p.taken += count
        taken = [p.held.popleft() for _ in range(count)]
        p.held_bytes -= sum(len(s.data) for s in taken)
        return taken

    # What is dropped

    def _end(self, p: Traced) -> None:
        """Drops what is known of streams and threads whose last segment has been counted."""
        while p.ends and p.ends[0][0] <= p.taken:
            _, message = p.ends.popleft()
            if isinstance(message, StreamEnd):
                p.site.pop(message.stream, None)
                p.over[message.stream] = message
            else:
                self._forget(p, message.thread)

    def _forget(self, p: Traced, thread: ThreadKey) -> None:
        """It has ended."""

    def _drop_sites(self) -> None:
        """When there are many that no code and no open pane has."""
        if self.sites.known <= 2 * self._sites_kept + SPARE_SITES:
            return
        used = np.zeros(len(self.sites), np.bool_)
        for p in self._processes.values():
            for sites in self._sites_of(p):
                used[sites] = True
        gone = self.sites.drop(~used)
        for p in self._processes.values():
            p.named -= gone
        self._sites_kept = self.sites.known

    def _sites_of(self, p: Traced) -> Iterator[NDArray[np.int32] | NDArray[np.int64]]:
        """Those that are in use, in several arrays."""
        yield from p.image.sites_used()
        yield from (rows["site"] for pane in p.panes.values() for rows in pane.rows)
        yield np.array([site for *_, site in p.site.values() if site >= 0], np.int64)

    @staticmethod
    def _ledger(p: Traced, segment: Segment) -> Ledger:
        return p.ledgers.setdefault(segment.stream, Ledger())

    def _count_all(self, p: Traced, segments: list[Segment]) -> Iterator[None]:
        for segment in segments:
            self._count(p, segment)
            yield None

    def _count(self, p: Traced, s: Segment) -> None:
        self.counts["bytes"] += len(s.data)
        self._ledger(p, s).add(accounts.decoded(s.stream, s.offset, s.offset + len(s.data)))
        self._addresses(p, s)

    def _addresses(self, p: Traced, s: Segment) -> None:
        point, tscs = _points(s)
        first, last = int(tscs[0]) // p.pane_ticks, int(tscs[-1]) // p.pane_ticks
        if last - first >= MAX_PANES:
            self.counts["time_jumps"] += 1
            tscs, last = np.full_like(tscs, tscs[0]), first
        before, tid, site = p.site.get(s.stream, (-1, 0, OUTSIDE))
        at = np.zeros(AT_SIZE, np.int64)
        at[SITE] = site if before == s.offset and tid == s.thread.tid else OUTSIDE
        when = np.array([s.last_ip, tscs[0]], np.uint64)
        data = s.data if s.data.flags.writeable else s.data.copy()  # kernels are compiled for writable arrays
        table = p.image.table()
        if len(self.sites) > len(self._hits):
            self._hits = np.zeros(2 * len(self.sites), np.uint64)
            self._ticks = np.zeros(2 * len(self.sites), np.uint64)
        hits, ticks = self._hits, self._ticks
        for number in range(first, last + 1):
            hi = np.uint64(min((number + 1) * p.pane_ticks, _END_OF_TIME))
            attribute(data, table, point, tscs, hi, at, when, hits, ticks)
            touched = np.flatnonzero(hits | ticks)
            if len(touched):
                rows = np.zeros(len(touched), ROW_DTYPE)
                rows["site"], rows["tid"] = touched, s.thread.tid
                rows["hits"], rows["ticks"] = hits[touched], ticks[touched]
                hits[touched] = ticks[touched] = 0
                p.panes.setdefault(number, Pane()).add(rows)
        p.site[s.stream] = s.offset + len(s.data), s.thread.tid, int(at[SITE])
        self.counts["addresses"] += int(at[ADDRESSES])
        self.counts["unknown_addresses"] += int(at[UNKNOWN])

    # Reports

    def _report(self, p: Traced, upto: int) -> list[object]:
        """One report of each pane up to `upto` that has something to say, and of `upto` itself: it closes them."""
        told = tuple(a for ledger in p.ledgers.values() if (a := ledger.take()) is not None)
        ended, p.over = p.over, {}
        for stream in ended:
            p.ledgers.pop(stream, None)
        numbers = sorted(n for n in p.panes if n <= upto)
        if upto not in numbers and (upto > p.closed or told):
            numbers.append(upto)
        out: list[object] = []
        for number in numbers:
            last = number == numbers[-1]
            rows = p.panes.pop(number, Pane()).sum()
            out.append(
                PaneReport(
                    p.key[0], p.key[1], self.worker, number, self._profile(rows), self._names(p, rows),
                    told if last else (), number > p.closed and last, self._gauges(p) if last else (),
                )
            )  # fmt: skip
        p.closed = max(p.closed, upto)
        return [*out, *ended.values()]

    def _profile(self, rows: Rows) -> NDArray[np.void]:
        profile = np.zeros(len(rows), PROFILE_DTYPE)
        sites = rows["site"].tolist()
        profile["method"] = [self.sites.label_of[s] for s in sites]
        profile["kind"] = [self.sites.kind_of[s] for s in sites]
        for column in ("tid", *COLUMNS):
            profile[column] = rows[column]
        return profile

    def _names(self, p: Traced, rows: Rows) -> tuple[tuple[int, str], ...]:
        new = {self.sites.label_of[s] for s in rows["site"].tolist()} - p.named
        p.named |= new
        return tuple((label, self.sites.labels[label]) for label in sorted(new))

    @staticmethod
    def _gauges(p: Traced) -> tuple[tuple[str, float], ...]:
        statistics = p.image.statistics()
        names = ("code_versions", "code_bytes", "code_evicted", "code_patched", "code_detail")
        gauges = [(name, float(statistics[name])) for name in names if name in statistics]
        return (*gauges, ("jit_dropped", float(p.dropped)))


def _points(s: Segment) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """(m,) positions in a segment's bytes, from 0 to their number, at which the time is known, and (m,) times."""
    kind = s.marks["kind"]
    timed = s.marks[(kind == _PSB) | (kind == _TIME)]
    point = np.concatenate(
        (np.zeros(1, np.int64), timed["offset"].astype(np.int64) - s.offset, np.array([len(s.data)], np.int64))
    )
    tsc = np.concatenate((np.array([s.tsc], np.uint64), timed["tsc"], np.array([s.tsc_end], np.uint64)))
    first = int(np.count_nonzero(timed["offset"] == s.offset))  # a PSB at the very beginning says what time it is there
    return point[first:], np.maximum.accumulate(tsc)[first:]


def make(worker: int = 0, pane_seconds: float = 1.0, lateness_seconds: float = 0.25) -> Attribute:
    return Attribute(worker, pane_seconds=pane_seconds, lateness_seconds=lateness_seconds)

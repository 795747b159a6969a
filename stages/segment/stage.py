"""Decoded streams → segments of threads.

The bytes of a stream are cut where its thread changes (`stages.segment.thread_attribution` says where that was) and at
every loss. All is decided from time mark to time mark: the bytes behind the last one wait for the next, so that it is
known which switches fall before it, and pieces end at time marks wherever nothing else ends them. Python looks at the
marks of those stretches only in which a switch or a loss lies; all else is one slice.

A stream that writes little has no time mark for long. So a drain (Tick) settles the time of its tail too: its bytes are
from before the drain and, where a switch record says that no thread runs since, from before that switch.

A per-thread stream is the same with one thread; its switch records tell when that did not run.

A stream is forgotten at its end, a thread as `stages.segment.threads` says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from stages.messages import (
    MARK_DTYPE,
    Account,
    Decoded,
    EndOfStream,
    Loss,
    LossMark,
    Segment,
    Sideband,
    StreamEnd,
    StreamKey,
    StreamOpen,
    ThreadEnd,
    ThreadKey,
    Tick,
    accounts,
)
from stages.messages.columns import joined
from stages.messages.loss import RESYNC
from stages.segment.stream import (
    BAD,
    MOST_SWITCHES,
    OVF,
    PGD,
    PGE,
    PSB,
    TIME,
    Piece,
    Run,
    Stream,
    is_tracing,
    overflows,
    was_tracing,
)
from stages.segment.thread_attribution import NEAR, Bounds, Owner, Special, assign, thread
from stages.segment.threads import Threads

MAX_WAITING = 4 << 20
"""Bytes that wait for a time mark at most (a trace without TSC packets): then they are decided without one."""
HOLD_SECONDS = 0.1
"""How long the bytes of a thread that runs on wait for a time mark. Less than panes wait for reports."""
MAX_HOLES = 32
"""Marks kept of the losses before a segment."""
_CUTS = RESYNC | {Loss.OVERFLOW, Loss.BAD_PACKET, Loss.NO_SYNC}
_END_OF_TIME = (1 << 64) - 1


class Segmentation:
    """Decoded and Sideband → Segment, and Accounts of bytes whose thread is not known. All else passes."""

    def __init__(self) -> None:
        self._streams: dict[StreamKey, Stream] = {}
        self._threads = Threads()
        self._drained: dict[tuple[str, int], int] = {}  # time of the last drain of a process
        self._hz: dict[tuple[str, int], float] = {}  # of processes
        self.counts: Counter[str] = Counter()

    def feed(self, message: object) -> list[object]:
        match message:
            case Decoded():
                return self._decoded(message)
            case Sideband():
                for end in self._stream(message.stream).take(message):
                    self._threads.exits[end.thread] = end
                return []
            case StreamOpen():
                self._hz[message.stream[:2]] = message.clock.hz
                if message.stream in self._streams:
                    self._streams[message.stream].numbered_anew()
                return [message]
            case StreamEnd():
                return [*self._ended(message), message]
            case Account():
                known = self._streams.get(message.stream)
                if known is not None and message.holes and message.start >= known.end:
                    known.cut = known.end
                return [message]
            case Tick():
                return [*self._tick(message), *self._look_through(message), message]
            case EndOfStream():
                return [*self.flush(), message]
            case _:
                return [message]

    def flush(self) -> list[object]:
        """Nothing more comes: the bytes that wait are decided with the records known."""
        out: list[object] = []
        for stream in self._streams.values():
            self._decide(stream, out, to_the_end=True)
        self._streams.clear()
        return out

    def statistics(self) -> dict[str, int | float]:
        return {
            **{f"segment_{name}": n for name, n in sorted(self.counts.items())},
            "segment_streams": len(self._streams),
            "segment_threads": len(self._threads.known),
            "segment_exits": len(self._threads.exits),
            "segment_waiting_bytes": sum(len(r.data) for s in self._streams.values() for r in s.runs),
        }

    def _stream(self, key: StreamKey) -> Stream:
        known = self._streams.get(key)
        if known is None:
            known = self._streams[key] = Stream(key, Owner(0, key.tid if key.tid >= 0 else Special.NOBODY), self.counts)
        return known

    def _look_through(self, tick: Tick) -> list[ThreadEnd]:
        return self._threads.look_through(tick, self._hz.get((tick.host, tick.pid), 0.0), self._streams.values())

    def _ended(self, message: StreamEnd) -> list[object]:
        out: list[object] = []
        stream, key = self._streams.pop(message.stream, None), message.stream
        if stream is not None:
            self._decide(stream, out, to_the_end=True)
        if key.tid >= 0:
            thread = ThreadKey(key.host, key.pid, key.tid)
            end = self._threads.exits.get(thread, ThreadEnd(thread, key, message.tsc))
            if end.stream == key:
                out.append(self._threads.forget(end))
        return out

    # Trace

    def _decoded(self, d: Decoded) -> list[object]:
        out: list[object] = []
        stream = self._stream(d.stream)
        if stream.at >= 0 and d.offset < stream.end:  # the key came again: another stream
            self._decide(stream, out, to_the_end=True)
            stream = Stream(stream.key, stream.owner, self.counts, coming=stream.coming, last_record=stream.last_record)
            self._streams[d.stream] = stream
        if stream.at < 0:
            stream.at = d.offset
        for mark in d.losses:
            if mark.cause == Loss.SIDEBAND_LOST:
                stream.lost_before(mark.tsc)
        losses = [m for m in d.losses if m.cause in _CUTS]
        marks = d.marks
        broken = bool(losses) or d.offset != stream.end
        losses += overflows(d.marks)
        if broken:
            cut = np.zeros(1, MARK_DTYPE)
            cut["offset"], cut["kind"], cut["tsc"] = stream.end, BAD, stream.tsc
            marks = joined((cut, marks))
        stream.losses += losses
        stream.marks = joined((stream.marks, marks))
        if stream.runs and not broken:
            run = stream.runs[-1]
            stream.runs[-1] = run._replace(data=np.concatenate((run.data, d.data)))
        else:
            # Kernels are compiled for writable arrays; an array that came over a socket is not.
            stream.runs.append(Run(d.offset, d.data if d.data.flags.writeable else d.data.copy(), d.last_ip))
        waiting = sum(len(run.data) for run in stream.runs)
        self._decide(stream, out, to_the_end=waiting > MAX_WAITING)
        return out

    def _tick(self, tick: Tick) -> list[object]:
        """All of the drain before this one has come: trace, and the switches up to it."""
        out: list[object] = []
        process = tick.host, tick.pid
        drained = self._drained.get(process, 0)
        self._drained[process] = max(drained, tick.tsc)
        for stream in self._streams.values():
            if stream.key[:2] == process:
                if stream.runs:
                    heard = stream.heard_until(tick.tsc)
                    settled = self._settle(stream, drained, min(heard, drained), out)
                    if not settled and heard <= drained and (stream.is_cut or len(stream.coming) > MOST_SWITCHES):
                        self._give_up(stream, heard, out)
                stream.shorten()
        return out

    def _settle(self, s: Stream, drained: int, heard: int, out: list[object]) -> bool:
        """Gives the tail behind the last time mark to its thread, if it can only be one's and need not wait: of those
        that ran before `heard`, when it had been written.

        Switches stay undecided: a processor's last packets can come into view after the record of the switch behind
        them (perf notes a switch before it stops the event), so the bytes behind may still be that thread's.
        """
        told = bisect_right(s.coming, heard, key=lambda owner: owner.since)
        owners = [s.owner, *s.coming[:told]]
        ran = [i for i, owner in enumerate(owners) if owner.tid != Special.NOBODY]
        tids = {owners[i].tid for i in ran}
        if len(tids) != 1 or Special.LOST in tids:
            return False
        tracing = is_tracing(s.marks[s.passed :], s.tracing)
        if owners[-1].tid == Special.NOBODY:
            until = owners[-1].since
            due = until > s.tsc and not tracing
        else:
            until = min((drained, *(owner.since for owner in s.coming[told : told + 1])))
            due = drained - s.tsc >= round(HOLD_SECONDS * self._hz.get(s.key[:2], float(_END_OF_TIME)))
        if not due:
            return False
        self.counts["settled_by_drain"] += 1
        tid = s.key.tid if s.key.tid >= 0 else tids.pop()
        slept = len(ran) > 1 and not s.tracing and owners[ran[0] + 1].since == s.tsc
        begin = max(s.tsc, min(owners[ran[slept]].since, until))
        self._give(s, owners, tid, s.at, s.end, begin, until, out)
        losses = [m for m in s.losses if m.offset <= s.end]
        self._mark_holes(s, owners, losses, out)
        s.losses = [m for m in s.losses if m.offset > s.end]
        s.owner = owners[ran[-1]]  # those before it are the same thread, or none
        del s.coming[: ran[-1]]
        s.at, s.tsc, s.tracing, s.lone, s.passed = s.end, until, tracing, False, len(s.marks)
        self._emit(s, out)
        s.trim()
        return True

    def _give_up(self, s: Stream, heard: int, out: list[object]) -> None:
        """Decides a tail that may be of several threads: the next mark would not tell more, because it stands behind a
        hole, or none has come for very long. Else as long as nothing is read of a stream its tail would wait, and each
        thread that has ended."""
        told = bisect_right(s.coming, heard, key=lambda owner: owner.since)
        s.coming, later = s.coming[:told], s.coming[told:]
        self.counts["undated"] += 1
        self._slot(s, len(s.marks), s.end, _END_OF_TIME, bool(s.coming), out)
        s.coming, s.lone = later, False
        self._emit(s, out)
        s.trim()

    def _decide(self, s: Stream, out: list[object], *, to_the_end: bool) -> None:
        """Goes from time mark to time mark as far as there are any, and on request to the end without one."""
        kind = s.marks["kind"][s.passed :]
        timed = np.flatnonzero((kind == PSB) | (kind == TIME)) + s.passed
        times = s.marks["tsc"][timed]
        at = 0  # into `timed`
        while at < len(timed):
            switch = s.coming[0].since if s.coming else _END_OF_TIME
            before = int(np.searchsorted(times, np.uint64(switch), side="left"))
            switching = before <= at
            at = at if switching else before - 1
            mark = s.marks[timed[at]]
            self._slot(s, int(timed[at]), int(mark["offset"]), max(int(mark["tsc"]), s.tsc), switching, out)
            s.lone = int(mark["kind"]) == TIME
            at += 1
        if to_the_end and s.at < s.end:
            self.counts["undated"] += 1
            self._slot(s, len(s.marks), s.end, _END_OF_TIME, bool(s.coming), out)
        self._emit(s, out)
        s.trim()

    def _slot(self, s: Stream, index: int, to: int, tsc: int, switching: bool, out: list[object]) -> None:
        """Decides the bytes up to `to`, where mark `index` stands, of time `tsc` (_END_OF_TIME: no mark, no time)."""
        dated = tsc if tsc != _END_OF_TIME else s.tsc
        inside = s.marks[s.passed : index]
        tracing = is_tracing(s.marks[s.passed : index + 1], s.tracing)
        owners = [s.owner]
        if switching:
            while s.coming and s.coming[0].since <= tsc:
                owners.append(s.coming.pop(0))
            self._spans(s, inside, owners, to, dated, tsc != _END_OF_TIME, tracing, out)
        else:
            tid = s.owner.tid
            if tid == Special.NOBODY and (s.tracing or was_tracing(inside)):
                tid = int(Special.LOST)  # a thread ran
            if tid == Special.LOST and s.at < to and s.key.tid < 0:
                doubt = LossMark(s.at, Loss.UNKNOWN_THREAD, 0, s.tsc)
                self._mark_holes(s, [Owner(0, tid)], [doubt], out, dated)
            self._give(s, owners, tid, s.at, to, s.tsc, dated, out)
        due = [m for m in s.losses if m.offset <= to]
        self._mark_holes(s, owners, due, out)
        s.losses = [m for m in s.losses if m.offset > to]
        s.owner, s.at, s.tsc, s.tracing = owners[-1], to, dated, tracing
        s.passed = min(index + 1, len(s.marks))

    def _spans(
        self, s: Stream, inside: NDArray[np.void], owners: list[Owner], to: int, dated: int, known_end: bool,
        tracing: bool, out: list[object],
    ) -> None:  # fmt: skip
        """The bytes up to `to` among `owners`."""
        columns = (inside[name].tolist() for name in ("kind", "offset", "size"))
        pge: list[int] = []
        starts, traced = [s.at], [s.tracing]
        if not s.tracing:
            starts.append(s.at)
            traced.append(False)
        for kind, offset, size in zip(*columns, strict=True):
            if kind == PGE:
                pge.append(offset)
            elif kind in (PGD, OVF, BAD):
                starts.append(offset + (size if kind == PGD else 0))
                traced.append(kind != PGD)
        ends = [*starts[1:], to]
        code = [
            start < end and (on or bisect_left(pge, start) < bisect_left(pge, end))
            for start, end, on in zip(starts, ends, traced, strict=True)
        ]
        came = [owner.since for owner in owners[1:]]
        near_start = sum(since - s.tsc <= NEAR for since in came) if s.lone and not s.tracing else 0
        near_end = sum(dated - since <= NEAR for since in came) if known_end and not tracing else 0
        bounds = assign(owners, code, s.tracing, tracing and known_end, near_start, near_end)
        spans: list[tuple[int, int, int, Bounds, int, int]] = []
        for start, end, on, bound in zip(starts, ends, code, bounds, strict=True):
            tid = s.key.tid if s.key.tid >= 0 else thread(owners, bound)
            # Bytes without code (timing packets behind a PGD) go with those before them, and spans of one owner too:
            # the slot's time is theirs together.
            if spans and (not on or spans[-1][2:4] == (tid, bound)):
                spans[-1] = (spans[-1][0], end, *spans[-1][2:])
                continue
            exact = bound.lo == bound.hi
            since = max(owners[bound.lo].since, s.tsc) if exact else s.tsc
            until = owners[bound.hi + 1].since if exact and bound.hi + 1 < len(owners) else dated
            since, until = min(since, dated), max(since, min(until, dated))
            if spans and spans[-1][2] == tid and spans[-1][5] > since:  # a thread's time goes on
                since = max(since, spans[-1][4])
                spans[-1], until = (*spans[-1][:5], since), max(since, until)
            spans.append((start, end, tid, bound, since, until))
        for start, end, tid, bound, since, until in spans:
            if tid == Special.LOST and start < end:
                doubt = LossMark(start, Loss.UNKNOWN_THREAD, 0, s.tsc)
                self._mark_holes(s, owners[bound.lo : bound.hi + 1], [doubt], out, until)
            self._give(s, owners, tid, start, end, since, until, out)

    def _mark_holes(
        self, s: Stream, owners: list[Owner], marks: list[LossMark], out: list[object], until: int = _END_OF_TIME
    ) -> None:
        """These losses may have taken trace of these threads, behind what they have been given so far; of any, if it
        is not known of which, but of those that have been given trace of later than `until`."""
        if not marks:
            return
        self._emit(s, out)
        tids = {s.key.tid} if s.key.tid >= 0 else {owner.tid for owner in owners}
        if not tids or Special.LOST in tids:
            tids |= self._threads.tids(s.key.host, s.key.pid, until)
        for tid in tids:
            if tid >= 0:
                holes = self._threads.of(ThreadKey(s.key.host, s.key.pid, tid)).holes
                holes += marks[: MAX_HOLES - len(holes)]

    def _give(
        self, s: Stream, owners: list[Owner], tid: int, start: int, end: int, tsc: int, tsc_end: int, out: list[object]
    ) -> None:
        """The bytes [start, end), from `tsc` to `tsc_end`, are the thread's; or it is not known whose. Cut at
        losses."""
        for run in s.runs:
            at, stop = max(start, run.offset), min(end, run.end)
            while at < stop:
                due = [m for m in s.losses if m.offset <= at]
                if due:
                    self._mark_holes(s, owners, due, out)
                    s.losses = [m for m in s.losses if m.offset > at]
                to = min([stop, *(m.offset for m in s.losses)])
                since = tsc if at == start else max(tsc, s.time_at(at))
                # When a loss began is not known: the time up to it is that of the last mark before it.
                whole = to == end and not any(m.offset == to for m in s.losses)
                until = tsc_end if whole else max(since, min(tsc_end, s.time_at(to)))
                self._add(s, tid, at, to, since, until, out)
                at = to

    def _add(self, s: Stream, tid: int, start: int, end: int, tsc: int, tsc_end: int, out: list[object]) -> None:
        if tid < 0:
            self._emit(s, out)
            self.counts["unknown_thread_bytes"] += end - start
            out.append(accounts.hole(s.key, start, end, Loss.UNKNOWN_THREAD, event=start != s.unknown_to))
            s.unknown_to = end
            return
        last = s.pieces[-1] if s.pieces else None
        if last is not None and (last.tid, last.end, last.tsc_end) == (tid, start, tsc):
            last.end, last.tsc_end = end, tsc_end
        else:
            self._emit(s, out)
            s.pieces.append(Piece(tid, start, end, tsc, tsc_end))

    def _emit(self, s: Stream, out: list[object]) -> None:
        for piece in s.pieces:
            key = ThreadKey(s.key.host, s.key.pid, piece.tid)
            exit_ = self._threads.exits.get(key)
            if exit_ is not None and exit_.tsc <= piece.tsc and (s.key.tid < 0 or exit_.stream != s.key):
                out.append(self._threads.forget(exit_))  # another thread of that id
            known = self._threads.of(key)
            continues = not known.ended and not known.holes
            if not continues:
                known.number += 1
                self.counts["segments"] += 1
            run = s.run_at(piece.start)
            last_ip, begin, end = s.before(run, piece.start, piece.end)
            marks = s.marks[begin:end]
            out.append(
                Segment(
                    key, s.key, known.number, piece.start, run.data[piece.start - run.offset : piece.end - run.offset],
                    marks[marks["kind"] != BAD], last_ip, piece.tsc, piece.tsc_end,
                    continues, tuple(known.holes),
                )
            )  # fmt: skip
            self.counts["pieces"] += 1
            known.ended, known.holes, known.stream, known.last = False, [], s.key, piece.tsc_end
        s.pieces.clear()


def make() -> Segmentation:
    return Segmentation()

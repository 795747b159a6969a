"""Chunks → packets on whole boundaries, their rare kinds as marks, and every byte that is no packet in a hole.

A stream is entered at a PSB and read until something breaks it: a loss that the source tells of, a gap in the offsets
(the transport lost a chunk), bytes that are no packet. Then the rest of a cut packet belongs to the hole, and the bytes
up to the next PSB are a hole of their own: NO_SYNC after a loss or at the start, BAD_PACKET after bad bytes. A packet
that the chunk's end cuts comes with the next chunk, so the result does not depend on where chunks end.

A live process does not wait. Where even the reading of addresses takes longer than the writing of trace
(`stages.shed`), a chunk that has waited too long is not read: it is a hole UNREAD, as of a chunk that never came. Not
behind a short stall, though: to read what came meanwhile takes less than `GRACE_SECONDS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.messages import (
    MARK_DTYPE,
    U8,
    Account,
    Chunk,
    Decoded,
    EndOfStream,
    Loss,
    LossMark,
    PtConfig,
    StreamEnd,
    StreamKey,
    StreamOpen,
    Tick,
    accounts,
)
from stages.messages.loss import RESYNC, UNWRITTEN
from stages.pt.packets import PSB_SIZE, find_psb
from stages.pt.scan import BAD, DONE, LAST_IP, MARK_WORDS, PADDING, STATE_SIZE, TIME, walk
from stages.shed import Shedder

MARKS = 1 << 15
GRACE_SECONDS = 0.15
"""Chunks are late for so long before one is not read."""
_NOTHING = np.empty(0, np.uint8)
_PADDING = np.zeros(PADDING, np.uint8)


@dataclass(slots=True)
class _Stream:
    key: StreamKey
    config: PtConfig = field(default_factory=PtConfig)
    offset: int = -1  # of carry[0]; −1: no chunk yet
    carry: U8 = field(default_factory=lambda: _NOTHING)
    synced: bool = False
    skipping: Loss = Loss.NO_SYNC  # cause of the bytes skipped while not synced
    skipped: bool = False  # some of them have been told
    reopened: bool = False
    drained: int = 0  # when its last chunk was
    losses: list[LossMark] = field(default_factory=list)  # to be told with the next Decoded
    state: Any = field(default_factory=lambda: np.zeros(STATE_SIZE, np.uint64))

    @property
    def expected(self) -> int:
        return self.offset + len(self.carry)

    @property
    def tsc(self) -> int:
        return int(self.state[TIME])


@dataclass(slots=True)
class _Line:
    """Chunks of a process, on their way from capture to here."""

    now: Callable[[], int]
    shedder: Shedder
    grace: int  # ticks
    since: int = 0  # when it became too long; 0: it is not

    def too_long(self, drained: int) -> bool:
        """Whether a chunk of that drain is not to be read."""
        if not self.shedder.behind(drained):
            self.since = 0
            return False
        now = self.now()
        self.since = self.since or now
        return now - self.since >= self.grace


class Decode:
    """Chunk → Decoded, Accounts of holes, and a Tick with the time of each drain. Everything else passes."""

    def __init__(
        self, marks: int = MARKS, *, first: bool = False, now: Callable[[], int] | None = None,
        most_behind_seconds: float = 0.75, grace_seconds: float = GRACE_SECONDS,
    ) -> None:  # fmt: skip
        """`marks`: most marks of one Decoded. `first`: these streams were not decoded before, so all that is missing
        before a stream's first chunk was lost on its way here. `now` is the clock that stamps drains, in ticks: chunks
        older than `most_behind_seconds` are not read. None: all are, because the source waits."""
        self._first = first
        self._now, self._most_behind_seconds, self._grace_seconds = now, most_behind_seconds, grace_seconds
        self._lines: dict[tuple[str, int], _Line] = {}  # of processes, as long as the worker lives
        self._streams: dict[StreamKey, _Stream] = {}  # until their end
        self._marks = np.empty(MARK_WORDS * marks, np.int64)
        self._times: dict[tuple[str, int], int] = {}
        self.counts: Counter[str] = Counter()

    def feed(self, message: object) -> list[object]:
        match message:
            case StreamOpen():
                stream = self._streams.setdefault(message.stream, _Stream(message.stream))
                stream.config, stream.reopened = message.config, stream.offset >= 0
                if self._now is not None:
                    hz = message.clock.hz
                    most, grace = round(self._most_behind_seconds * hz), round(self._grace_seconds * hz)
                    self._lines.setdefault(message.stream[:2], _Line(self._now, Shedder(self._now, most), grace))
                return [message]
            case Chunk():
                return self._chunk(message)
            case StreamEnd():
                out: list[object] = []
                if (known := self._streams.pop(message.stream, None)) is not None:
                    self._end(known, out)
                return [*out, message]
            case EndOfStream():
                return [*self.flush(), message]
            case _:
                return [message]

    def flush(self) -> list[object]:
        """No stream goes on: the rest of each is told."""
        out: list[object] = []
        for stream in self._streams.values():
            self._end(stream, out)
        return out

    def statistics(self) -> dict[str, int | float]:
        return {
            **{f"decode_{name}": n for name, n in sorted(self.counts.items())},
            "decode_streams": len(self._streams),
            "decode_carried_bytes": sum(len(s.carry) for s in self._streams.values()),
        }

    def _chunk(self, chunk: Chunk) -> list[object]:
        out: list[object] = []
        process = chunk.stream.host, chunk.stream.pid
        if chunk.tsc > self._times.get(process, 0):
            # Before the first chunk of a drain: all that the drains before it held has come, code and switches too.
            self._times[process] = chunk.tsc
            out.append(Tick(*process, chunk.tsc))
        stream = self._streams.setdefault(chunk.stream, _Stream(chunk.stream))
        data, offset = chunk.data, chunk.offset
        self.counts["chunks"] += 1
        if stream.offset >= 0 and stream.reopened and offset < stream.expected:
            self._end(stream, out)  # the key came again (a thread id was reused): another stream
            stream = self._streams[chunk.stream] = _Stream(chunk.stream, stream.config)
        stream.reopened, stream.drained = False, chunk.tsc
        if stream.offset < 0:
            stream.offset = start = 0 if self._first else offset
            out.append(Account(stream.key, start, start, 0, ()))  # from here on every byte is accounted for
            stream.state[TIME] = max(0, chunk.tsc - (1 << 55))  # TSC packets have 56 bits: near which time?
        marks = sorted(chunk.losses)
        if offset > stream.expected:
            self._gap(stream, offset, marks, chunk.tsc, out)
        elif offset < stream.expected:
            twice = min(len(data), stream.expected - offset)
            self.counts["bytes_told_twice"] += twice
            data, offset = data[twice:], offset + twice
        end = offset + len(data)
        if process in self._lines and self._lines[process].too_long(chunk.tsc):
            data = data[:0]
        for mark in marks:
            at = min(max(mark.offset, stream.expected), offset + len(data))
            self._bytes(stream, data[: at - offset], False, out)
            data, offset = data[at - offset :], at
            self._loss(stream, mark._replace(offset=at), out)
        if offset + len(data) < end:
            self._unread(stream, end, chunk.tsc, out)
        else:
            self._bytes(stream, data, False, out)
        return out

    def _unread(self, stream: _Stream, offset: int, tsc: int, out: list[object]) -> None:
        """The bytes up to `offset` are not read. One hole of all chunks in a row."""
        start = stream.expected
        self.counts["unread_bytes"] += offset - start
        if stream.losses and stream.losses[-1].cause == Loss.UNREAD and stream.losses[-1].offset == start:
            out.append(accounts.hole(stream.key, start, offset, Loss.UNREAD, event=False))
            stream.offset, stream.losses[-1] = offset, LossMark(offset, Loss.UNREAD, 0, tsc)
        else:
            self._gap(stream, offset, [], tsc, out, Loss.UNREAD)

    def _gap(
        self, stream: _Stream, offset: int, marks: list[LossMark], tsc: int, out: list[object],
        cause: Loss = Loss.TRANSPORT,
    ) -> None:  # fmt: skip
        """Bytes of the stream are missing. A mark says why those before it are (of a chunk that was refused behind
        the place where capture died there are two); behind the last one it is `cause`: our transport lost them."""
        start = stream.expected
        why = [mark for mark in marks if start < mark.offset <= offset and mark.cause in RESYNC - UNWRITTEN]
        for mark in why:
            marks.remove(mark)
        if not why or why[-1].offset < offset:
            why.append(LossMark(offset, cause, 0, tsc))
        for mark in why:
            self._loss(stream, mark._replace(offset=start), out)
            out.append(accounts.hole(stream.key, start, mark.offset, mark.cause, event=False))
            stream.offset = start = mark.offset
            stream.losses[-1] = mark

    def _loss(self, stream: _Stream, mark: LossMark, out: list[object]) -> None:
        self.counts[f"losses_{mark.cause.name.lower()}"] += 1
        stream.losses.append(mark if mark.tsc else mark._replace(tsc=stream.tsc))
        if mark.cause not in RESYNC:
            out.append(accounts.event(stream.key, mark))
            return
        start, end = stream.offset, stream.expected  # the rest of a cut packet
        out.append(accounts.hole(stream.key, start, end, mark.cause, lost=mark.lost))
        self._lose_sync(stream, Loss.NO_SYNC)
        stream.offset, stream.carry = end, _NOTHING

    @staticmethod
    def _lose_sync(stream: _Stream, cause: Loss) -> None:
        stream.synced, stream.skipping, stream.skipped = False, cause, False

    def _end(self, stream: _Stream, out: list[object]) -> None:
        if stream.offset < 0:
            return
        self._bytes(stream, _NOTHING, True, out)
        if len(stream.carry):
            self.counts["cut_packets"] += 1
            out.append(accounts.hole(stream.key, stream.offset, stream.expected, Loss.BAD_PACKET))
            stream.offset, stream.carry = stream.expected, _NOTHING
            self._lose_sync(stream, Loss.NO_SYNC)

    def _bytes(self, stream: _Stream, new: U8, last: bool, out: list[object]) -> None:
        """Goes through the carried bytes and `new` as far as packets are whole."""
        # A copy of its own: kernels are compiled for writable arrays only.
        padded = np.concatenate((stream.carry, new, _PADDING))
        data = padded[:-PADDING]
        base, at = stream.offset, 0
        while at < len(data):
            if not stream.synced:
                psb = int(find_psb(data, at, len(data)))
                # Where a run of PSB bytes goes on to the end, its last 16 bytes are not known yet.
                open_ended = psb >= 0 and psb + PSB_SIZE + 1 >= len(data) and not last
                if psb < 0:
                    psb = len(data) if last else max(at, len(data) - PSB_SIZE + 1)
                    open_ended = True
                self._skip(stream, base + at, base + psb, out)
                at = psb
                if open_ended:
                    break
                stream.synced = True
            at, why = self._walk(stream, padded, at, base, last, out)
            if why == BAD:
                mark = LossMark(base + at, Loss.BAD_PACKET, 0, stream.tsc)
                self.counts["losses_bad_packet"] += 1
                stream.losses.append(mark)
                out.append(accounts.event(stream.key, mark))
                self._lose_sync(stream, Loss.BAD_PACKET)
                # One byte on: if this were the beginning of a PSB, it would have been a packet.
                self._skip(stream, base + at, base + at + 1, out)
                at += 1
            elif why == DONE:
                break
        stream.offset = base + at
        stream.carry = np.array(data[at:]) if at < len(data) else _NOTHING

    def _skip(self, stream: _Stream, start: int, end: int, out: list[object]) -> None:
        if end > start:
            self.counts["skipped_bytes"] += end - start
            count = stream.skipping == Loss.NO_SYNC and not stream.skipped
            if count and not stream.losses:
                stream.losses.append(LossMark(start, Loss.NO_SYNC, 0, stream.tsc))
            out.append(accounts.hole(stream.key, start, end, stream.skipping, event=count))
            stream.skipped = True

    def _walk(self, stream: _Stream, padded: U8, at: int, base: int, last: bool, out: list[object]) -> tuple[int, int]:
        config, state = stream.config, stream.state
        last_ip, before = int(state[LAST_IP]), stream.tsc
        to, n, overflows, why = walk(
            padded,
            at,
            len(padded) - PADDING,
            base,
            last,
            state,
            config.mtc_shift,
            config.ctc_num,
            config.ctc_den,
            np.uint64(stream.drained),
            self._marks,
        )
        if to > at:
            marks = self._taken(n)
            losses = tuple(stream.losses)
            stream.losses.clear()
            if overflows:
                self.counts["losses_overflow"] += overflows
                out.append(accounts.event(stream.key, LossMark(base + at, Loss.OVERFLOW, 0, before), overflows))
            self.counts["bytes"] += to - at
            self.counts["marks"] += n
            out.append(Decoded(stream.key, base + at, padded[at:to], marks, losses, last_ip, before))
        return int(to), int(why)

    def _taken(self, n: int) -> NDArray[np.void]:
        """The first n marks, for good: a copy of a few, of many the array itself."""
        found = self._marks[: MARK_WORDS * n]
        if 2 * len(found) < len(self._marks):
            found = found.copy()
        else:
            self._marks = np.empty(len(self._marks), np.int64)
        return found.view(MARK_DTYPE)


def make(
    *, first: bool = False, now: Callable[[], int] | None = None, most_behind_seconds: float = 0.75
) -> Decode:  # fmt: skip
    return Decode(first=first, now=now, most_behind_seconds=most_behind_seconds)

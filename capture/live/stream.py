"""One stream while it is drained: its ring, its sequence numbers, and the losses that wait for their place.

A loss lies at a position of the stream. It is learnt from the data ring, which can be ahead of the bytes that have
been sent, or from the transport that refused a chunk. So it waits here until a chunk begins at its position (chunks
are cut there), or until the end, when an empty chunk carries the rest.
"""

from __future__ import annotations

import numpy as np

from capture.live.ring import ENDED, NOT_WRITTEN, PerfRing, RingError
from capture.live.sideband_journal import Told
from capture.perf.records import FORMAT, RecordError, SampleFormat, Words, loss_marks, parse
from stages.messages import (
    U8,
    Chunk,
    Clock,
    Loss,
    LossMark,
    PtConfig,
    Sideband,
    SideKind,
    StreamKey,
    StreamOpen,
)

MAX_MARKS = 4096  # waiting losses of one stream; more only a corrupt ring can have


class Stream:
    """Drains one ring. Every poll: `look`, then `sideband`, then `chunk` (at most one)."""

    def __init__(
        self,
        key: StreamKey,
        ring: PerfRing,
        config: PtConfig,
        clock: Clock,
        now: int,
        sample: SampleFormat = FORMAT,
        told: Told | None = None,
    ) -> None:
        """A ring whose tail is not at its start was drained by a predecessor. Bytes that it took and did not send are a
        gap in the offsets, marked CAPTURE_DOWN; the records that explain the bytes it did not take are in `told`, and
        told again; if they are not, they are lost."""
        self.opened = StreamOpen(key, config, clock)
        self.key, self.ring, self._sample = key, ring, sample
        self._chunks = self._sidebands = 0
        self._waiting: dict[tuple[int, Loss], LossMark] = {}
        self.head = self._seen = ring.aux_tail
        if self.head:
            self._wait(LossMark(self.head, Loss.CAPTURE_DOWN, 0, now))
        self._not_written = 0
        self.fault = ""  # why the ring is no longer read
        self.ended = False  # this ring's producer has ended
        self._looked_last = False
        self.raw: Words = np.zeros(0, np.uint64)  # the records behind the last Sideband
        self._told = told or Told()
        self._left = self._told.left  # records read by a predecessor, until they are told again
        if ring.data_tail < self._told.left_end <= ring.data_head:
            ring.free_records(self._told.left_end)  # it died before it could say that it had read them
        elif self._told.left_end != ring.data_tail:
            self._left = self._left[:0]
            self._wait(LossMark(self.head, Loss.SIDEBAND_LOST, 0, now))
        self.drained = self.refused_bytes = self.refused_chunks = self.lost_records = self.truncated = 0

    @property
    def backlog(self) -> int:
        """Bytes seen by the last `look` and not drained yet."""
        return 0 if self.fault else self.head - self.ring.aux_tail

    def look(self, last: bool = False) -> None:
        """How far has the trace been written? Before the data ring is read, so that this is never ahead of it. After
        the `last` look it stays with that, even if a producer writes on."""
        self._seen = self.head
        if not self.fault and not self._looked_last:
            self._looked_last = last
            self.ended = self.ring.counter(ENDED) != 0  # before the head, which is final if this is true
            try:
                self.head = self.ring.aux_head()
            except RingError as error:
                self._give_up(error)

    def _give_up(self, error: RingError) -> None:
        self.fault, self.ended = str(error), True

    def sideband(self, tsc: int) -> Sideband | None:
        """The records in the data ring, if it holds any; its bytes are in `raw` until the next call."""
        if self.fault:
            return None
        try:
            words, end = self.ring.records()
        except RingError as error:
            self._give_up(error)
            return None
        left, self._left = self._left, self._left[:0]
        self.raw = np.concatenate((left, words)) if len(left) else words
        if not len(self.raw):
            return None
        try:
            rows = parse(self.raw, self.opened.clock, self._sample)
        except RecordError as error:
            # Where the next record would begin is not known: all that was in the ring is lost.
            rows, self.raw = error.records, self.raw[: error.good]
            self._wait(LossMark(self._seen, Loss.SIDEBAND_LOST, 0, tsc))
        rows["a"][rows["kind"] == SideKind.AUX] += np.uint64(self.ring.base)
        keep = self._told.restart if len(left) else self._told.add
        keep(rows, self.raw, end)
        self.ring.free_records(end)
        for mark in loss_marks(rows, self._seen):
            placed = mark.cause in (Loss.AUX_FULL, Loss.OFF_DUTY)
            if not len(left) or (placed and mark.offset >= self.ring.aux_tail):
                self._wait(mark)
                self.truncated += mark.cause == Loss.AUX_FULL
        self.lost_records += int(rows["a"][rows["kind"] == SideKind.LOST].sum())
        self._sidebands += 1
        return Sideband(self.key, self._sidebands - 1, rows, tsc)

    def told_again(self, tsc: int) -> Sideband | None:
        """The records that explain the bytes still to come, for a receiver that does not know them; not a new
        message."""
        rows = self._told.rows
        return Sideband(self.key, self._sidebands - 1, rows, tsc) if len(rows) else None

    def chunk(self, most: int, tsc: int) -> Chunk | None:
        """The next piece, at most `most` bytes, up to the next waiting loss."""
        if not self.backlog:
            return None
        tail = self.ring.aux_tail
        end = min((at for at, _ in self._waiting if at > tail), default=self.head)
        try:
            offset, data = self.ring.take_aux(min(end, self.head), most)
        except RingError as error:
            self._give_up(error)
            return None
        self.drained += len(data)
        self._told.taken(offset + len(data))
        return self._numbered_chunk(offset, data, tsc)

    def last_chunk(self, tsc: int) -> Chunk | None:
        """The last chunk when the ring is empty and its producer has ended: losses without bytes."""
        self._waiting = {
            (min(at, self.head), c): m._replace(offset=min(at, self.head)) for (at, c), m in self._waiting.items()
        }
        return self._numbered_chunk(self.head, np.zeros(0, np.uint8), tsc) if self._waiting else None

    def _numbered_chunk(self, offset: int, data: U8, tsc: int) -> Chunk:
        due = sorted(place for place in self._waiting if place[0] <= offset)
        losses = tuple(self._counted(self._waiting.pop(place)) for place in due)
        self._chunks += 1
        return Chunk(self.key, self._chunks - 1, offset, data, losses, tsc)

    def _counted(self, mark: LossMark) -> LossMark:
        """With the bytes that were not written, where the source counts them; the sum over all marks is right."""
        if mark.cause != Loss.AUX_FULL or mark.lost:
            return mark
        total = self.ring.counter(NOT_WRITTEN)
        mark, self._not_written = mark._replace(lost=max(0, total - self._not_written)), total
        return mark

    def refused(self, chunk: Chunk) -> None:
        """The transport had no room for `chunk`: its bytes become a hole, its losses come with the next chunk."""
        self.refused_chunks += 1
        self.refused_bytes += len(chunk.data)
        for mark in chunk.losses:
            if mark.cause != Loss.TRANSPORT:  # the hole before this one: now one with it
                self._waiting[mark.offset, mark.cause] = mark
        self._wait(LossMark(chunk.offset + len(chunk.data), Loss.TRANSPORT, 0, chunk.tsc))

    def sideband_lost(self, sideband: Sideband) -> None:
        """The transport never had room for `sideband`."""
        self._wait(LossMark(self.ring.aux_tail, Loss.SIDEBAND_LOST, 0, sideband.tsc))

    def jit_lost(self, tsc: int) -> None:
        """Records of the process's JIT export were lost: of no stream, told with one."""
        self._wait(LossMark(self.ring.aux_tail, Loss.JIT_LOST, 0, tsc))

    def switch(self, on: bool, tsc: int) -> None:
        """Tracing on or off, after a `look` whose head is the last one before that. A kernel's event tells no switches
        while it is off: on a CPU, the running thread is not known then."""
        if self.fault or self.ended:
            return
        if self.ring.switch(on):
            try:
                self.head = self.ring.aux_head()
            except RingError as error:
                self._give_up(error)
                return
            self._wait(LossMark(self.head, Loss.OFF_DUTY, 0, tsc))
            if self.key.tid < 0:
                self._wait(LossMark(self.head, Loss.SIDEBAND_LOST, 0, tsc))

    def _wait(self, mark: LossMark) -> None:
        """One mark a place and cause: a full ring says TRUNCATED again and again. The first tells when that loss
        began; of records lost, the last tells when it was over."""
        # No AUX record speaks of more than a ring's size from here: a larger one is corrupt, its loss is real.
        place = min(mark.offset, self.head + self.ring.aux_size), mark.cause
        if mark.cause == Loss.SIDEBAND_LOST or (place not in self._waiting and len(self._waiting) < MAX_MARKS):
            self._waiting[place] = mark._replace(offset=place[0])

    def counts(self) -> dict[str, int]:
        return {
            "drained_bytes": self.drained,
            "refused_bytes": self.refused_bytes,
            "refused_chunks": self.refused_chunks,
            "lost_records": self.lost_records,
            "truncated": self.truncated,
        }

    def close(self) -> None:
        self.ring.close()
        self._told.close()

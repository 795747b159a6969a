"""JIT export on its way from the agent's ring to the workers, by way of a file.

The agent's ring is emptied into `jit-<pid>.export` at once, so that the JVM never waits for us; batches to send are
read back from that file (it is in the page cache). So nothing has to be kept in memory for a worker that is slow, and a
worker or capture process that starts later is fed from the file. Records are sealed on their way there
(jvm.export.seal); a file that was damaged since is found out when it is opened, and the agent is asked to tell all
again.

The file is made anew without the records that do not matter any more (`capture.live.compaction`) when it has grown by a
quarter of those that did, and by `SPARE`. Records younger than `RECENT` seconds, or not yet sent, stay as they were
told: a worker that begins anew still gets trace of that time.

The changes that `capture.code_poller.poller` finds in the process's memory go into the same file.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from capture.code_poller.poller import CodePoller
from capture.live.compaction import Compaction
from jvm.export.parse import whole_records
from jvm.export.records import ExportError
from jvm.export.ring import STATE_ENDED, RingReader, file_header
from jvm.export.seal import Span, sealed, spans
from stages.messages import JitBatch

BATCH = 4 << 20  # bytes of records sent at once, unless a single record is larger
MAX_RECORD = 1 << 30
RECENT = 10.0
SPARE = 8 << 20  # bytes
MARK = 1.0  # seconds between two places of which it is known how old they are


class JitSpool:
    """One process's JIT export."""

    def __init__(
        self,
        path: Path,
        host: str,
        pid: int,
        poller: CodePoller | None = None,
        *,
        spare: int = SPARE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens or makes the export file at `path`. A record that a dead writer left cut is taken off; it is still
        in the ring. Damage is taken out, and stands in `faults`. Raises OSError, or ExportError when the file is no
        export of `pid`."""
        self.path, self.host, self.pid, self.poller = path, host, pid, poller
        header = file_header(pid)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(fd, "r+b", buffering=0)
        there = self._file.read(len(header))
        if len(there) < len(header):
            self._file.truncate(0)
            os.pwrite(fd, header, 0)
        elif there != header:
            self._file.close()
            raise ExportError(f"{path} is no JIT export of process {pid}", 0)
        self._start = len(header)
        self._damage = self._take_out()
        self._end = os.fstat(fd).st_size
        self._sent = self._learnt = self._start
        self._seq = 0
        self._spare, self._clock = spare, clock
        self._matters = 0  # bytes of the file when it was last made anew
        self._compaction: Compaction | None = None
        self._marks: deque[tuple[float, int]] = deque()  # when the file ended where; the first is RECENT seconds old
        self._ring: RingReader | None = None
        self._replay_of = -1 if self._damage else 0  # drop counter for which a replay was asked
        self.dropped = 0  # records not written to the ring, and places where the file was damaged
        self.taken = 0
        self.replays = self.compactions = 0
        self.fault = ""
        self.no_room = ""  # why something could not be spooled, the last time

    def _take_out(self) -> list[Span]:
        """Moves whole records to where damage was, and cuts the file behind the last; the damage, at its offsets."""
        fd = self._file.fileno()
        size = os.fstat(fd).st_size
        if size == self._start:
            return []
        with mmap.mmap(fd, size, access=mmap.ACCESS_READ) as view:
            found = spans(memoryview(view)[self._start :])
        at = self._start
        for span in found:
            if span.fault:
                continue
            start, end = self._start + span.start, self._start + span.end
            for block in range(start, end, BATCH) if at < start else ():
                os.pwrite(fd, os.pread(fd, min(BATCH, end - block), block), at + block - start)
            at += end - start
        self._file.truncate(at)
        return [span for span in found if span.fault and not span.cut]

    def _whole(self, at: int, end: int, most: int = BATCH) -> int:
        """Bytes of whole records from file position `at` on: at most `most`, or one record; 0: none before `end`."""
        data = os.pread(self._file.fileno(), min(most, end - at), at)
        whole = whole_records(data)
        if not whole and len(data) >= 4:
            size = int.from_bytes(data[:4], "little")
            whole = size if size <= min(end - at, MAX_RECORD) else 0
        return whole

    def attach(self, ring: Path) -> None:
        """From now on `fill` empties this ring. Raises OSError or ExportError."""
        self._ring = RingReader(ring)

    def tell_window(self, on: bool | None) -> None:
        """Whether tracing is on, as `RingReader.tell_window`."""
        if self._ring is None or self.fault:
            return
        try:
            self._ring.tell_window(on)
        except ExportError as error:
            self.fault = f"{self._ring.path}: {error}"

    def fill(self) -> None:
        """Moves all that is in the ring to the file. Lost records are asked for again when there is room."""
        ring = self._ring
        if ring is None or self.fault:
            return
        try:
            while ring.pending:
                data, position = ring.peek(BATCH)
                if not self._append(sealed(data)):
                    break
                ring.commit(position)
                if not data:  # nonsense in the ring: skipped to its head
                    break
            dropped = ring.dropped
            self.dropped = dropped + len(self._damage)
            if dropped != self._replay_of:
                self._replay_of = dropped
                self.replays += 1
                ring.request_replay()
        except ExportError as error:  # also when the file was cut short under us
            self.fault = f"{ring.path}: {error}"

    def reread(self) -> None:
        """Changes of the process's code since the last time go to the file, too."""
        poller = self.poller
        if poller is None or self._ring is None or self.fault:
            return
        try:
            if self._ring.state == STATE_ENDED:
                return
        except ExportError as error:
            self.fault = f"{self._ring.path}: {error}"
            return
        while self._learnt < self._end and (size := self._whole(self._learnt, self._end)):
            poller.learn(os.pread(self._file.fileno(), size, self._learnt))
            self._learnt += size
        records = sealed(poller.look())
        if self._append(records):
            self._learnt += len(records)

    def compact(self) -> None:
        """A step towards a file without records that do not matter any more, if they are many. Where that cannot be
        done (no room for two files) it is tried again when there is as much more."""
        self._mark()
        if self._compaction is None and not self._begin_compaction():
            return
        compaction = self._compaction
        assert compaction is not None
        try:
            fd = compaction.step(self._end)
        except (OSError, ExportError):
            self._compaction, self._matters = None, self._end
            return
        if fd is None:
            return
        self._file.close()
        self._file = os.fdopen(fd, "r+b", buffering=0)
        self._compaction = None
        moved = compaction.moved
        self._matters = compaction.cut - moved
        self._end, self._sent = self._end - moved, self._sent - moved
        self._learnt = max(self._learnt - moved, self._start)
        self._marks = deque((at, max(end - moved, self._start)) for at, end in self._marks)
        self.compactions += 1

    def _mark(self) -> None:
        now = self._clock()
        if not self._marks or now - self._marks[-1][0] >= MARK:
            self._marks.append((now, self._end))
        while len(self._marks) > 1 and now - self._marks[1][0] >= RECENT:
            self._marks.popleft()

    def _begin_compaction(self) -> bool:
        if not self._has_grown(self._end) or self._clock() - self._marks[0][0] < RECENT:
            return False
        cut = min(self._marks[0][1], self._sent)
        if self.poller is not None and self._ring is not None:
            cut = min(cut, self._learnt)
        if not self._has_grown(cut):  # all that is new is recent
            return False
        try:
            self._compaction = Compaction(self.path, self._file.fileno(), self._start, cut)
        except OSError:
            self._matters = self._end
        return self._compaction is not None

    def _has_grown(self, end: int) -> bool:
        """Up to `end`, by so much that it is worth it."""
        return end - self._matters > max(self._matters // 4, self._spare)

    def _append(self, data: bytearray) -> bool:
        """All of it, or, where there is no room, nothing: then it is still in the ring, and when that is full, too, the
        agent counts the records it drops and is asked for them again."""
        view, at = memoryview(data), self._end
        try:
            while view:
                written = os.pwrite(self._file.fileno(), view, at)
                at += written
                view = view[written:]
        except OSError as error:
            self.no_room = f"{self.path}: {error.strerror}"
            with suppress(OSError):
                self._file.truncate(self._end)
            return False
        self.taken += len(data)
        self._end = at
        return True

    @property
    def faults(self) -> list[str]:
        """Present and past faults, one line each."""
        found = [self.fault, self.no_room, self.poller.fault if self.poller else ""]
        found += [f"{self.path}: {span.told(self._start)}" for span in self._damage]
        return [text for text in found if text]

    @property
    def unsent(self) -> int:
        """Bytes in the file that no batch has had."""
        return self._end - self._sent

    def batch(self, tsc: int) -> JitBatch | None:
        """The next records that have not been sent."""
        size = self._whole(self._sent, self._end) if self._sent < self._end else 0
        if not size:
            return None
        batch = self._read(self._sent, size, self._seq, tsc)
        self._sent += size
        self._seq += 1
        return batch

    def all_sent(self, tsc: int) -> Iterator[JitBatch]:
        """Everything that has been sent so far, for a receiver that knows nothing. The last batch has the number
        before that of the next one, so the receiver sees no gap."""
        at, sizes = self._start, []
        while at < self._sent and (size := self._whole(at, self._sent)):
            sizes.append(size)
            at += size
        at = self._start
        for i, size in enumerate(sizes):
            yield self._read(at, size, self._seq - len(sizes) + i, tsc)
            at += size

    def _read(self, at: int, size: int, seq: int, tsc: int) -> JitBatch:
        data = np.empty(size, np.uint8)
        os.preadv(self._file.fileno(), [data.data], at)
        return JitBatch(self.host, self.pid, seq, data, self.dropped, tsc)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._end

    def close(self) -> None:
        if self._compaction is not None:
            self._compaction.abandon()
        self._file.close()
        if self._ring is not None:
            self._ring.close()

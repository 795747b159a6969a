"""Empties the rings of one traced process into messages.

One `poll` looks at everything once, in the order that keeps a receiver's knowledge ahead of the trace: how far each
stream has been written, then the data rings, then the JIT ring; out go the JIT records, the sideband, and at last one
chunk of each stream. Nothing here waits. Messages that the transport refuses are told by `refused`: a chunk becomes a
hole, everything else is sent again.

All state that has to outlive this process is in files: tails in the rings, JIT records in the export file. So a new
`Drain` on the same session goes on where a dead one stopped.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import trio

from capture.code_poller import poller as reread
from capture.code_poller.poller import CodePoller
from capture.live import tsc
from capture.live.checkpoints import Heads
from capture.live.duty import Duty
from capture.live.jit import JitSpool
from capture.live.ring import RingError
from capture.live.sideband_journal import Told
from capture.live.source import EmulatedSource, Source, told_file
from capture.live.stream import Stream
from capture.perf.records import SampleFormat, Words
from jvm.export.records import ExportError
from stages.messages import (
    Chunk,
    Clock,
    EndOfStream,
    JitBatch,
    OffDuty,
    Sideband,
    StreamEnd,
    StreamKey,
    StreamOpen,
    Tick,
)

Message = StreamOpen | Sideband | JitBatch | Chunk | StreamEnd | Tick | OffDuty | EndOfStream
CALM = 32
"""A ring is calm while a poll finds no more than this part of it."""
FASTEST = 210e6
"""Bytes a second that a CPU running Java writes at most; 150 to 210 MB is usual."""
QUIET = 4096
"""Bytes of trace: a process that makes no more while it is traced does next to nothing."""
MAX_BATCHES = 8  # JIT batches of one process in one poll
MAX_FAULTS = 1000  # told; each thread's ring may have one
MAX_KEPT = 16 << 20  # bytes of refused sideband that are kept for another try


class Drain:
    """The rings of one session. `ended` is true when the target is gone and everything, `EndOfStream` too, is out."""

    def __init__(
        self,
        session: Path,
        *,
        host: str,
        chunk_bytes: int = 256 << 10,
        tick_seconds: float = 0.05,
        source: Source | None = None,
        reread_share: float = reread.SHARE,
        now: Callable[[], int] = tsc.now,
        duty: Duty | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`session` holds the agent's rings (`jit-<pid>.ring`) and gets the export files; `source` has the trace
        (default: the emulated PT in `session/pt`). `reread_share`: how much of one CPU may be spent on finding changes
        in the code of running JVMs; 0: none. `now` reads the TSC. `duty`: when to
        trace, by `clock` (seconds); always, without one."""
        self.session, self.host = session, host
        self.source: Source = source or EmulatedSource(session / "pt", host)
        self.ended = False
        self.streams: dict[StreamKey, Stream] = {}
        self.faults: list[str] = []
        self._chunk_bytes, self._tick_seconds, self._now = chunk_bytes, tick_seconds, now
        self._reread_share = reread_share
        self._duty, self._clock = duty, clock
        self._on = True
        self._off_told = 0  # TSC up to which it has been told that tracing was off
        self._heads: Heads | None = None  # where the rings do not keep them
        if not self.source.lasting:
            session.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._heads = Heads(session / "heads", host)
            if self._heads.damage:
                self._fault(self._heads.damage)
        self._spools: dict[int, JitSpool] = {}
        self._names: set[str] = set()  # in the session's directory, at the last look
        self._jit_seen: set[str] = set()
        self._jit_lost: Counter[int] = Counter()  # drop counters that a loss mark has told of, by process
        self._stopping = False
        self._kept: list[Message] = []  # refused, to be sent again before anything else
        self._withheld = False  # something of this poll was refused that has to come before its trace
        self._kept_bytes = 0
        self._raw: dict[tuple[StreamKey, int], Words] = {}
        self._last_tick = 0
        self._calm = False
        self._since_on = 0  # bytes of trace, since tracing was last switched on
        self._past: Counter[str] = Counter()  # sums over closed streams
        self._tick_after = 1 << 26

    # ---- one look at everything

    def poll(self) -> list[Message]:
        """The new messages, in order; at most one chunk a stream. Raises SessionError when emulator.json is none."""
        if self.ended:
            return []
        over = self._stopping or self.source.ended()  # before the heads are read: so they are final if it is true
        out, may_send_jit = self._again()
        self._open_streams(out)
        for stream in self.streams.values():
            stream.look(last=over)
        now = self._now()
        self._switch(out, now, over)
        sideband = self._sideband(now)
        jit_is_out = self._jit(out, now, may_send_jit, over)
        out += sideband
        if not jit_is_out:
            return out  # no trace before the code it runs in
        idle = self._chunks(out, now, over)
        left = self._stopping and all(
            isinstance(message, JitBatch) for message in out
        )  # a caller that goes on would for ever
        if over and not self.streams and (left or not out):
            self.ended = True
            out.append(EndOfStream(f"capture:{self.host}:{self.source.pid}"))
        elif idle and not over and self.source.pid and now - self._last_tick >= self._tick_after:
            self._last_tick = now
            out.append(Tick(self.host, self.source.pid, now))
        return out

    def _again(self) -> tuple[list[Message], bool]:
        """The refused messages, and whether there was no JIT batch among them."""
        out = self._kept
        self._kept, self._kept_bytes, self._withheld = [], 0, False
        self._raw.clear()
        return out, not any(isinstance(message, JitBatch) for message in out)

    def _open_streams(self, out: list[Message]) -> None:
        config = self.source.config()
        if config is None:
            return
        found = [*self.source.new_rings()]
        while self.source.faults:
            self._fault(self.source.faults.pop(0))
        for key, ring in found:
            try:
                mult, shift, zero = ring.time_conversion
            except RingError as error:
                self._fault(str(error))
                ring.close()
                continue
            if key in self.streams:  # a thread id came again before its first ring was empty
                self._close_stream(self.streams[key])
            clock = Clock(mult, shift, zero, self.source.wall_zero() or 0)
            now = self._now()
            if not clock.wall_zero:
                clock = clock._replace(wall_zero=time.time_ns() - clock.ns(now))
            self._tick_after = int(clock.hz * self._tick_seconds)
            if self._heads is not None:
                ring.base = self._heads.of(key)
            told = Told(told_file(self.session, key) if self.source.lasting else None)
            if told.damage:
                self._fault(told.damage)
            stream = Stream(key, ring, config, clock, now, SampleFormat.of(self.source.sample_type), told)
            self.streams[key] = stream
            if self.source.lasting or not self._on:  # a reader before us may have died with tracing off
                stream.switch(self._on, now)
            out.append(stream.opened)

    def _switch(self, out: list[Message], now: int, over: bool) -> None:
        """Tracing off or on, if it is time to; the time for which it was off is told now and then, ahead of newer
        trace."""
        if self._duty is None or not self.streams or not self._tick_after:
            return
        on = over or self._duty.at(self._clock())
        if not self._on and (on or now - self._off_told >= self._tick_after):
            out.append(OffDuty(self.host, self.source.pid, self._off_told, now))
            self._off_told = now
        if on != self._on:
            self._on, self._off_told = on, now
            if on:
                self._since_on = 0
            for stream in self.streams.values():
                stream.switch(on, now)
            for spool in self._spools.values():
                spool.tell_window(on)

    def _sideband(self, now: int) -> list[Message]:
        found: list[Message] = []
        for key, stream in self.streams.items():
            message = stream.sideband(now)
            if message is not None:
                self._raw[key, message.seq] = stream.raw
                found.append(message)
        return found

    def _jit(self, out: list[Message], now: int, may_send: bool, over: bool) -> bool:
        """Empties the agents' rings; true when all they said is in `out` or waits for a receiver that refused it."""
        self._find_jit()
        complete = True
        for spool in self._spools.values():
            spool.fill()
            if not over:
                spool.reread()
                spool.compact()
            for fault in spool.faults:
                self._fault(fault)
            if spool.dropped > self._jit_lost[spool.pid] and self.streams:
                self._jit_lost[spool.pid] = spool.dropped
                next(iter(self.streams.values())).jit_lost(now)
            if may_send:
                for _ in range(MAX_BATCHES):
                    batch = spool.batch(now)
                    if batch is None:
                        break
                    out.append(batch)
                complete &= not spool.unsent
        return complete

    def _find_jit(self) -> None:
        try:
            names = {entry.name for entry in os.scandir(self.session)}
        except FileNotFoundError:
            return
        new, self._names = names - self._names, names
        for name in sorted(new):
            match = re.fullmatch(r"jit-(\d{1,9})\.(ring|export)", name)
            if match is None or name in self._jit_seen:
                continue
            self._jit_seen.add(name)
            pid = int(match[1])
            try:
                if pid not in self._spools:
                    poller = CodePoller(pid, share=self._reread_share, now=self._now) if self._reread_share else None
                    self._spools[pid] = JitSpool(self.session / f"jit-{pid}.export", self.host, pid, poller)
                if match[2] == "ring":
                    self._spools[pid].attach(self.session / name)
                    self._spools[pid].tell_window(None if self._duty is None else self._on)
            except (OSError, ExportError) as error:
                self._fault(str(error))

    def _chunks(self, out: list[Message], now: int, over: bool) -> bool:
        """One chunk of each stream; true when nothing stands in the rings any more. A stream whose source is gone
        is closed one poll after its last chunk, when it is known that this was not refused."""
        idle = self._calm = True
        for stream in list(self.streams.values()):
            chunk = stream.chunk(self._chunk_bytes, now)
            if chunk is None and (over or stream.ended):
                chunk = stream.last_chunk(now)
                if chunk is None:
                    self._close_stream(stream)
                    if not over:
                        out.append(StreamEnd(stream.key, now))
                        if self._heads is not None:
                            self._heads.ended(stream.key)
            if chunk is not None:
                if self._heads is not None:
                    self._heads.reached(stream.key, chunk.offset + len(chunk.data))
                out.append(chunk)
                self._since_on += len(chunk.data)
                idle &= not stream.backlog
                self._calm &= CALM * len(chunk.data) <= stream.ring.aux_size
        return idle

    def _close_stream(self, stream: Stream) -> None:
        if stream.fault:
            self._fault(stream.fault)
        self._past.update(stream.counts())
        self.streams.pop(stream.key, None)
        stream.close()

    def _fault(self, text: str) -> None:
        if text not in self.faults and len(self.faults) < MAX_FAULTS:
            self.faults.append(text)

    # ---- the transport's side

    def raw(self, sideband: Sideband) -> Words:
        """The records behind a Sideband of the last poll, as the kernel wrote them; empty for one sent again."""
        return self._raw.get((sideband.stream, sideband.seq), np.zeros(0, np.uint64))

    def must_wait(self, message: Message) -> bool:
        """Trace of this poll must not be sent, it has to be `refused`: the messages that explain it were."""
        return self._withheld and isinstance(message, Chunk)

    def refused(self, message: Message) -> None:
        """The transport had no room for a message of the last poll. A chunk is gone: the next one of its stream
        says so. All else comes again with the next poll, before anything new; sideband only up to `MAX_KEPT`."""
        self._withheld |= isinstance(message, StreamOpen | JitBatch | Sideband)
        match message:
            case Chunk():
                if message.stream in self.streams:
                    self.streams[message.stream].refused(message)
            case Tick():
                self._last_tick = 0
            case EndOfStream():
                self.ended = False
            case Sideband():
                self._kept_bytes += message.records.nbytes
                if self._kept_bytes <= MAX_KEPT:
                    self._kept.append(message)
                elif message.stream in self.streams:
                    self.streams[message.stream].sideband_lost(message)
            case _:
                self._kept.append(message)

    def introduction(self) -> Iterator[Message]:
        """The introduction of a receiver that knows nothing (a worker that was started again), before the next poll."""
        now = self._now()
        for stream in self.streams.values():
            yield stream.opened
        for spool in self._spools.values():
            yield from spool.all_sent(now)
        for stream in self.streams.values():
            told = stream.told_again(now)
            if told is not None:
                yield told

    def stop(self) -> None:
        """Treat the target as ended: the next polls drain the present contents of the rings, then comes EndOfStream."""
        self._stopping = True

    @property
    def on(self) -> bool:
        """Whether tracing is on."""
        return self._on

    def wait(self) -> float:
        """Seconds until tracing is to be switched; inf: not at all."""
        return math.inf if self._duty is None else self._duty.wait(self._clock())

    @property
    def backlog(self) -> int:
        """Bytes of trace that the last poll saw and left in the rings."""
        return sum(stream.backlog for stream in self.streams.values())

    @property
    def calm_seconds(self) -> float:
        """So long every ring has room for, even if a burst begins now; 0: the last poll found more than next to nothing
        in one."""
        if not self._calm:
            return 0.0
        return min((stream.ring.aux_size for stream in self.streams.values()), default=math.inf) / FASTEST

    @property
    def quiet(self) -> bool:
        """Whether tracing is off, and next to nothing has come since it was last on: then nobody waits for a pane."""
        return not self._on and self._since_on <= QUIET

    @property
    def pressed(self) -> bool:
        """Whether a ring was more than half full at the last poll: bytes left there longer may be lost."""
        return any(2 * stream.backlog > stream.ring.aux_size for stream in self.streams.values())

    def heads(self) -> dict[StreamKey, int]:
        """How far each stream has been drained, where only this process knows it (`Source.lasting` is false)."""
        return self._heads.all(self.source.pid) if self._heads is not None else {}

    def heads_of_ended(self) -> dict[StreamKey, int]:
        """Those of `heads` that go no further."""
        return self._heads.over(self.source.pid) if self._heads is not None else {}

    def statistics(self) -> dict[str, int]:
        """Totals since this object was made."""
        total = Counter(self._past)
        for name in ("looks", "pages", "patches"):
            total[f"reread_{name}"] = sum(s.poller.counts[name] for s in self._spools.values() if s.poller)
        for stream in self.streams.values():
            total.update(stream.counts())
        return dict(total) | {
            "streams": len(self.streams),
            "backlog_bytes": self.backlog,
            "jit_bytes": sum(spool.taken for spool in self._spools.values()),
            "jit_dropped_records": sum(spool.dropped for spool in self._spools.values()),
            "jit_replays": sum(spool.replays for spool in self._spools.values()),
            "jit_file_bytes": sum(spool.size for spool in self._spools.values()),
            "jit_compactions": sum(spool.compactions for spool in self._spools.values()),
            "faults": len(self.faults),
            "on_duty": int(self._on),
        }

    def close(self) -> None:
        for stream in list(self.streams.values()):
            self._close_stream(stream)
        while self._spools:
            self._spools.popitem()[1].close()
        if self._heads is not None:
            self._heads.close()
            self._heads = None


async def run(drain: Drain, send: Callable[[Message], Awaitable[bool]], *, poll_seconds: float = 0.01) -> None:
    """Polls until the target has ended and all is out. `send` says whether it took the message; it may wait, but
    for a Chunk it must not. Cancelled, it has lost nothing that was not handed to `send`."""
    while not drain.ended:
        for message in drain.poll():
            if drain.must_wait(message) or not await send(message):
                drain.refused(message)
        if drain.backlog or drain.ended:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(poll_seconds)

"""Where a topology's messages come from: the rings of a live session, or a recording.

Both never let the pipeline slow their input: capture hands a chunk over or makes a hole of it. A recording can wait, so
nothing of it is lost.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
import trio

from capture.live.drain import Drain, Message
from capture.live.duty import Budget, Duty
from capture.live.perf_event import HardwareError
from capture.live.sideband_journal import Told
from capture.live.source import Source as RingSource
from capture.perf.perf_data import PerfDataError
from capture.recording.record import Recorder
from capture.recording.replay import Replay
from jvm.export.records import ExportError
from stages.messages import Chunk, EndOfStream, JitBatch, Sideband, StreamEnd, StreamKey, StreamOpen
from streamer.config import CaptureConfig, budget_cpus
from streamer.lossy import count
from streamer.pipeline.topology import InputError
from streamer.transport.output import Output

log = structlog.get_logger()

PATIENCE = 0.05
"""Seconds for which capture waits for room in a socket before it looks at its rings again."""
CALM_PAUSE = 3
"""So many times as long is the pause, at most, while rings hold next to nothing: a look at a few kilobytes, with the
messages that come of it, costs as much as one at a megabyte. It ends before a sudden burst could fill a ring."""
OFF_SECONDS = 0.1
"""Between two looks while tracing is off: at the JVM's export, at new threads."""
QUIET_SECONDS = 0.25
"""The same, where the process does next to nothing."""
REREAD_PART = 0.1
"""Of a CPU budget, the part for finding changes of code."""


class CaptureSource:
    """Drains the rings of a session; with a recorder, everything drained is also written down."""

    def __init__(
        self,
        session: Path,
        config: CaptureConfig,
        record: tuple[Path, str] | None = None,
        source: RingSource | None = None,
        must_record: bool = True,
    ) -> None:
        """`source`: default is the session's emulated PT. `run` raises InputError where the kernel refuses to trace.
        Raises OSError where nothing can be recorded, unless it need not: then that is counted, like a recording that
        ends before the trace does."""
        self._budget: Budget | None = None
        duty = Duty() if config.cpu_budget is not None else None
        if duty is not None and config.cpu_budget is not None:
            self._budget = Budget(budget_cpus(config.cpu_budget, len(os.sched_getaffinity(0))), duty)
        self._drain = Drain(
            session,
            host=socket.gethostname(),
            chunk_bytes=config.chunk_kib << 10,
            reread_share=min(
                config.reread_cpu_percent / 100, REREAD_PART * self._budget.cpus if self._budget else math.inf
            ),
            source=source,
            duty=duty,
        )
        self._heads: dict[StreamKey, int] = {}
        self._recorder: Recorder | None = None
        self._not_recorded: OSError | None = None  # why, once it has been told
        try:
            self._recorder = Recorder(*record) if record else None
        except OSError as error:
            if must_record:
                raise
            self._record_no_more(error)
        self._faults_told = 0
        self._poll_seconds = config.poll_ms / 1000

    async def run(self, output: Output) -> None:
        drain = self._drain
        try:
            while not drain.ended:
                await output.heal(drain.introduction)
                messages = drain.poll()
                for message in messages:
                    self._record(message)
                # the end of a member's messages is said by the member itself, acknowledged
                refused = self._send(output, [m for m in messages if not isinstance(m, EndOfStream)])
                for fault in drain.faults[self._faults_told :]:
                    self._faults_told += 1
                    log.warning("capture", fault=fault)
                if refused:  # trace not taken yet is best kept in the rings, as long as they have room themselves
                    with trio.move_on_after(self._poll_seconds if drain.pressed else PATIENCE):
                        await output.wait_room()
                elif drain.backlog:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.sleep(min(self._pause(), drain.wait()))
        except HardwareError as error:
            raise InputError(str(error)) from error
        finally:
            if self._recorder is not None:
                self._recorder.close()
            self._heads = drain.heads()
            drain.close()

    def _send(self, output: Output, messages: list[Message]) -> bool:
        """Whether some were refused. What one look has found goes together where it can: each message by itself costs
        both sides as much as tens of kilobytes of trace."""
        if not messages:
            return False
        together = output.try_send_together(messages)
        refused = False
        for message in messages if not together else ():
            if together is False or self._drain.must_wait(message) or not output.try_send(message):
                self._drain.refused(message)
                refused = True
        return refused

    def _pause(self) -> float:
        """Seconds until the rings are to be looked at again, when all has been taken."""
        if self._drain.on:
            return max(self._poll_seconds, min(CALM_PAUSE * self._poll_seconds, self._drain.calm_seconds))
        return QUIET_SECONDS if self._drain.quiet else OFF_SECONDS

    def _record(self, message: Message) -> None:
        """The live run goes on, even if the recording fails."""
        if self._recorder is not None:
            self._recorder.write(message, self._drain.raw(message) if isinstance(message, Sideband) else None)
            if self._recorder.cut is not None and self._not_recorded is None:
                self._record_no_more(self._recorder.cut)
        if self._not_recorded is not None and isinstance(message, Chunk):
            count("recording", self._not_recorded, len(message.data))

    def _record_no_more(self, why: OSError) -> None:
        self._not_recorded = why
        log.warning("the recording is incomplete from here on", why=why.strerror)

    def stop(self) -> None:
        self._drain.stop()

    def spent(self, cpu_seconds: float) -> None:
        """By the whole pipeline, since it began."""
        if self._budget is not None:
            self._budget.spent(cpu_seconds, time.monotonic())

    def statistics(self) -> dict[str, Any]:
        heads = {"heads": self._heads or self._drain.heads(), "ended": self._drain.heads_of_ended()}
        told = {name: [[*key, head] for key, head in of.items()] for name, of in heads.items() if of}
        budget = self._budget.statistics() if self._budget else {}
        return {**self._drain.statistics(), **budget, **told}


class ReplaySource:
    """Plays a recording: `pace` 1.0 as it was recorded, None as fast as the pipeline takes it."""

    def __init__(self, path: Path, pace: float | None, seconds: float | None = None) -> None:
        """Raises PerfDataError, OSError. `seconds`: stop after so much time. `run` raises InputError where the
        recording is damaged."""
        self._replay = Replay(path)
        self._pace, self._seconds = pace, seconds
        self._scope = trio.CancelScope()
        self._said: list[Message] = []  # the messages that a worker started again has to know, and of each stream
        self._told: dict[StreamKey, tuple[int, Told]] = {}  # number of the last Sideband, records that matter still
        self._sent = 0
        self._heads: dict[StreamKey, int] = {}  # how far each stream has been played
        self._first_tsc = 0  # of all messages
        self._wall_zero = 0

    async def run(self, output: Output) -> None:
        async def send(message: Message) -> None:
            await output.heal(self._introduction)
            message = self._as_of_now(message)
            if isinstance(message, EndOfStream):
                return
            await output.deliver(message, self._introduction)
            self._sent += 1
            match message:
                case StreamOpen() | JitBatch():
                    self._said.append(message)
                case StreamEnd(stream):
                    self._said = [m for m in self._said if not isinstance(m, StreamOpen) or m.stream != stream]
                    self._told.pop(stream, None)
                case Sideband():
                    told = self._told.get(message.stream, (0, Told()))[1]
                    told.add(message.records)
                    self._told[message.stream] = message.seq, told
                case Chunk():
                    self._heads[message.stream] = end = message.offset + len(message.data)
                    if message.stream in self._told:
                        self._told[message.stream][1].taken(end)

        with self._replay, self._scope:
            if self._seconds is not None:
                self._scope.deadline = trio.current_time() + self._seconds
            try:
                self._first_tsc = next((tsc for m in self._replay.messages() if (tsc := getattr(m, "tsc", 0))), 0)
                await self._replay.play(send, self._pace)
            except (PerfDataError, ExportError) as error:
                raise InputError(" ".join(str(error).split())) from error

    def _introduction(self) -> Iterator[Message]:
        yield from list(self._said)
        for stream, (seq, told) in self._told.items():
            yield Sideband(stream, seq, told.rows)

    def _as_of_now(self, message: Message) -> Message:
        """Move the recording's wall time to now, so that lag means how far the pipeline is behind the replay."""
        if isinstance(message, StreamOpen):
            clock = message.clock
            self._wall_zero = self._wall_zero or time.time_ns() - clock.ns(self._first_tsc)
            return replace(message, clock=clock._replace(wall_zero=self._wall_zero))
        return message

    def stop(self) -> None:
        self._scope.cancel()

    def statistics(self) -> dict[str, Any]:
        return {"messages": self._sent, "heads": [[*key, head] for key, head in self._heads.items()]}

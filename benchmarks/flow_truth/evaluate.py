"""Decodes a kept run as the product does and compares what it hands on with what ran.

Messages go from the recording through decode, segment and reconstruct, made and set as in `streamer run`. What the
reconstructing stage gets from its walker is seen by a listener at `Flow.steps`; nothing of the stage is replaced.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow_truth import FlowTruthError, compare
from benchmarks.flow_truth.compare import COUNTS, INCIDENT_DTYPE, LOST, Decoded
from benchmarks.flow_truth.record import NAME, Run
from benchmarks.flow_truth.steps import Blocks, Part, Steps, StreamSteps
from benchmarks.listening import listening
from capture.emulator.truth import Truth
from capture.live.source import ring_name
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from jvm.calls.stubs import Stub, stub_of
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from jvm.code.version import Kind
from jvm.export.records import ExportError
from stages.decode import stage as decode
from stages.follow import stage as reconstruct
from stages.follow.flow import Flow, FlowOutput
from stages.follow.stage import Reconstruct
from stages.follow.walk import path_sequence as orders
from stages.follow.walk.state import BREAK_NAMES
from stages.messages import Account, Chunk, Loss, Segment, StreamKey, StreamOpen, ThreadKey
from stages.segment import stage as segment
from streamer.pipeline.topology import feed_chain, flush_chain

CAUSES = {
    **{LOST + n: f"break:{name}" for n, name in enumerate(BREAK_NAMES, 1)},
    LOST: "hole:before any address",
    LOST + compare.L_HOLE: "hole:before any address",
    LOST + compare.L_OUTSIDE: "no code known there",
    LOST + compare.L_MISALIGNED: "misaligned",
    LOST + compare.L_END: "end:no packet confirmed it",
}

MISALIGNED_EACH = 5_000_000
"""Blocks; more often than once in so many may the orders not come out even. What is compared with nothing then, as far
as the next place where both are known, counts as silently wrong."""


@dataclass
class Result:
    """Blocks, but where another unit is named."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(COUNTS, np.int64))
    holes: Counter[str] = field(default_factory=Counter)  # in bytes that were not handed to the walker
    untraced: int = 0  # while the AUX area was full
    rounds: int = 0  # of cycles without a packet, of which the trace does not tell; on no side
    wrong: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # how it ended, site, truth, decoded
    runs: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # the same, how often it came to that
    bits: int = 0  # TNT bits
    tips: int = 0  # packets with a branch's address
    bytes: int = 0
    seconds: float = 0.0  # CPU, of all stages
    breaks: Counter[str] = field(default_factory=Counter)  # how often

    @property
    def flagged(self) -> Counter[str]:
        """By kind."""
        out = Counter(self.holes)
        for at, n in enumerate(self.counts[LOST:].tolist(), LOST):
            if n:
                out[CAUSES.get(at, f"cause {at - LOST}")] += n
        for at, name in ((compare.SUSPECT_RIGHT, "suspect, and right"), (compare.SUSPECT_WRONG, "suspect, and wrong")):
            if self.counts[at]:
                out[name] += int(self.counts[at])
        if self.untraced:
            out["hole:never written (AUX full, overflow)"] += self.untraced
        return out

    @property
    def right(self) -> int:
        return int(self.counts[compare.RIGHT])

    @property
    def silent(self) -> int:
        """Handed on as observed, but not what ran."""
        return int(self.counts[[compare.WRONG, compare.EXTRA, compare.FOREIGN]].sum())

    @property
    def blocks(self) -> int:
        """All that ran in the filter and count."""
        missing = int(self.counts[[compare.WRONG, compare.FOREIGN]].sum())
        return self.right + missing + self.flagged.total()


class Place(NamedTuple):
    """A piece of code, by what it is."""

    name: str
    kind: SiteKind
    osr_entry: bool  # the very block at which on-stack replacement enters


FLAGGED = LOST
"""In `Evaluation.places`: any cause."""


@dataclass
class _Thread:
    state: NDArray[np.int64] = field(default_factory=lambda: np.zeros(compare.C_SIZE, np.int64))
    carry: Steps | None = None  # PSBs in a step that is not over


class Evaluation:
    def __init__(self, directory: Path, after: float = 0.0, *, by_place: bool = False) -> None:
        """`after`: what ran earlier than so many seconds after the start (or the attach) does not count. `by_place`:
        fill `places`, which is slow."""
        self.places: Counter[tuple[Place | None, int]] | None = Counter() if by_place else None
        self.run = Run.load(directory)
        try:
            self._emulator = json.loads((directory / "emulator.json").read_text())
            self.truth = Truth.load(directory / "truth")
        except (OSError, ValueError) as error:
            raise FlowTruthError(f"{directory}: the truth cannot be read: {error}") from error
        if self._emulator.get("state") != "ended":
            raise FlowTruthError(f"{directory}: the JVM was killed, its truth is cut off")
        if self._emulator["unexplained"]:
            raise FlowTruthError(
                f"{directory}: {self._emulator['unexplained']} transfers that the emulator cannot explain"
            )
        self.result = Result()
        self.directory, self._after = directory, after
        blocks = Blocks.of(self.truth)
        filter_range = self._emulator["filter"][0], self._emulator["filter"][1]
        self._streams = {
            of["name"]: StreamSteps(self.truth, blocks, of["id"], filter_range) for of in self._emulator["streams"]
        }
        self._tids = [thread.tid for thread in self.truth.threads]
        self._from = 0  # TSC from which on it counts
        self._threads: dict[ThreadKey, _Thread] = defaultdict(_Thread)
        self._holes: dict[StreamKey, list[tuple[int, int, Loss]]] = defaultdict(list)
        self._not_counted = np.zeros(COUNTS, np.int64)
        self._incidents = np.zeros(compare._INCIDENTS, INCIDENT_DTYPE)
        self._ic = (0, 0)
        self._ic_epoch = -1
        self._image: CodeImage | None = None
        self._in_holes = 0
        self._heard = 0  # pieces that the walker was given
        self._own = 0.0  # CPU seconds of this comparison

    def evaluate(self, say: Callable[[str], None] = lambda _: None) -> Result:
        """Raises FlowTruthError."""
        began = time.process_time()
        stage = reconstruct.make()
        chain: list[Any] = [decode.make(first=True), segment.make(), _Listening(self, stage)]

        def heard(_: Flow, segment: Segment, outputs: list[FlowOutput]) -> None:
            self._heard += 1
            with self._not_the_product():
                self._compare(segment, outputs, stage)

        try:
            with Replay(self.directory / f"{NAME}.json") as replay, listening(heard):
                for message in replay.messages():
                    if isinstance(message, Chunk):
                        with self._not_the_product():
                            self._stream(message.stream).put(message.offset, message.data)
                        self.result.bytes += len(message.data)
                        say(f"decoding: {self.result.bytes / 1e6:.0f} of {self.run.trace_bytes / 1e6:.0f} MB")
                    for _ in feed_chain(chain, message):
                        pass
                for _ in flush_chain(chain):
                    pass
        except (PerfDataError, ExportError, OSError) as error:
            raise FlowTruthError(" ".join(str(error).split())) from error
        self.result.seconds = time.process_time() - began - self._own
        for thread in self._threads.values():
            if thread.carry is not None:
                self._lost(thread.carry, CAUSES[LOST + compare.L_END], self.result.counts)
        for stream in self._streams.values():
            steps, _ = stream.take(stream.end)
            self._lost(steps, "end:behind the last segment", self.result.counts)
            bits, tips = stream.branches
            self.result.bits += bits
            self.result.tips += tips
        if not self._heard:
            raise FlowTruthError("nothing was decoded: the walker was given no piece of the trace")
        self._check()
        return self.result

    def _check(self) -> None:
        for of in self._emulator["streams"]:
            stream = self._streams[of["name"]]
            if stream.branches != (of["tnt_bits"], of["tips"]):
                raise FlowTruthError(
                    f"stream {of['name']}: {stream.branches} branches in the trace, "
                    f"{(of['tnt_bits'], of['tips'])} in the emulator's books"
                )
        ran = sum(len(thread.ran) for thread in self.truth.threads)
        self.result.untraced = ran - sum(stream.blocks for stream in self._streams.values())
        self.result.rounds = sum(stream.rounds for stream in self._streams.values())
        booked = self._not_counted + self.result.counts
        booked[[compare.EXTRA, compare.MISALIGNED, compare.COMPARED]] = 0
        taken, told = sum(s.taken for s in self._streams.values()), int(booked.sum()) + self._in_holes
        if taken != told:
            raise FlowTruthError(f"{taken} blocks were laid along the trace, {told} have been compared: void")
        counts = self.result.counts
        if counts[compare.MISALIGNED] > 1 + taken // MISALIGNED_EACH:
            raise FlowTruthError(
                f"{counts[compare.MISALIGNED]} times the decoder's order and the trace do not come out even: the "
                "comparison is void"
            )
        counts[compare.WRONG] += counts[compare.LOST + compare.L_MISALIGNED]  # nobody knows: the worst is taken
        counts[compare.LOST + compare.L_MISALIGNED] = 0

    def _stream(self, key: StreamKey) -> StreamSteps:
        return self._streams[ring_name(key)]

    @contextmanager
    def _not_the_product(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self._own += time.process_time() - began

    # What the stage says

    def account(self, account: Account) -> None:
        """A hole: bytes that are given to no thread."""
        if account.holes and account.end > account.start:
            self._holes[account.stream].append((account.start, account.end, account.holes[0][0]))

    def opened(self, hz: float, first_tsc: int) -> None:
        if not self._from and self._after:
            self._from = (self.run.attached or first_tsc) + round(self._after * hz)

    def _look(self, stage: Reconstruct, segment: Segment) -> None:
        """Where inline-cache stubs lie."""
        self._image = stage._processes[segment.stream.host, segment.stream.pid].image
        if self._ic[1] == 0 and self._ic_epoch != self._image.epoch:
            self._ic_epoch = self._image.epoch
            for version in self._image.versions():
                if stub_of(version) == Stub.INLINE_CACHE:
                    self._ic = version.start, version.end

    # Comparing

    def _compare(self, segment: Segment, outputs: list[FlowOutput], stage: Reconstruct) -> None:
        self._look(stage, segment)
        stream = self._stream(segment.stream)
        counted = segment.tsc >= self._from
        counts = self.result.counts if counted else self._not_counted
        if segment.offset > stream.at:
            steps, _ = stream.take(segment.offset)
            self._lost(steps, self._hole(segment.stream, segment.offset), counts)
        steps, parts = stream.take(segment.offset + len(segment.data))
        foreign = self._foreign(parts, segment.thread.tid, len(steps))
        thread = self._threads[segment.thread]
        if not segment.continues:
            if thread.carry is not None:
                self._lost(thread.carry, "hole:before any address", counts)
            thread.carry = None
            thread.state[:] = 0
            thread.state[compare.C_CAUSE] = compare.L_HOLE
        if thread.carry is not None:
            steps = _joined(thread.carry, steps)
            foreign = np.concatenate((np.zeros(len(thread.carry), np.uint8), foreign))
            thread.carry = None
        verdict = np.zeros(len(steps.start), np.uint8)
        used = 0
        for number, output in enumerate(outputs):
            used, n = compare._compare(
                _decoded(output), steps, used, number == len(outputs) - 1, foreign, *self._ic, thread.state, counts,
                verdict,
                self._incidents.view(np.int64).reshape(-1, 6),
            )  # fmt: skip
            if counted:
                self._note(self._incidents[:n], segment.tsc_end)
                for cause, times in zip(*np.unique(output.breaks["cause"], return_counts=True), strict=True):
                    self.result.breaks[BREAK_NAMES[int(cause) - 1]] += int(times)
        if used < len(steps):
            thread.carry = _rest(steps, used)
        if self.places is not None and counted:
            self._place(steps.start[: steps.first[used]], verdict, segment.tsc_end)

    def _place(self, start: NDArray[np.int64], verdict: NDArray[np.uint8], tsc: int) -> None:
        assert self.places is not None
        assert self._image is not None
        keys, counts = np.unique(start << 8 | verdict[: len(start)], return_counts=True)  # addresses have 47 bits
        for key, n in zip(keys.tolist(), counts.tolist(), strict=True):
            address, what = key >> 8, key & 0xFF
            version = self._image.at(address, tsc)
            place = Place(version.name, version.site_kind, address == version.osr_entry) if version else None
            self.places[place, FLAGGED if what >= LOST else what] += n

    def _foreign(self, parts: list[Part], tid: int, n: int) -> NDArray[np.uint8]:
        """(n,) steps that another thread ran than the one they were given to."""
        out = np.zeros(n, np.uint8)
        for thread, lo, hi in parts:
            if self._tids[thread] != tid:
                out[lo:hi] = 1
        return out

    def _lost(self, steps: Steps, kind: str, counts: NDArray[np.int64]) -> None:
        before = int(counts[compare.EXTRA])
        verdict = np.empty(len(steps.start), np.uint8)
        compare.count_lost(steps.first, steps.start, *self._ic, counts, verdict, compare.EXTRA)
        n = int(counts[compare.EXTRA]) - before
        counts[compare.EXTRA] = before
        self._in_holes += n
        if n and counts is self.result.counts:
            self.result.holes[kind] += n

    def _hole(self, stream: StreamKey, upto: int) -> str:
        """Why the bytes before `upto` were not given to the walker."""
        holes = self._holes[stream]
        at = bisect_right([start for start, _, _ in holes], upto)
        cause = holes[at - 1][2].name.lower() if at else "not handed on"
        del holes[: max(at - 1, 0)]
        return f"hole:{cause}"

    def _note(self, incidents: NDArray[np.void], tsc: int) -> None:
        for site, truth, decoded, wrong, extra, ended in incidents.tolist():
            how = f"till {BREAK_NAMES[ended - 1]}" if ended else "came back"
            key = how, self._where(site, tsc), self._where(truth, tsc), self._where(decoded, tsc)
            self.result.wrong[key] += wrong + extra
            self.result.runs[key] += 1

    def _where(self, address: int, tsc: int) -> str:
        """What kind of code that is."""
        if not address or self._image is None:
            return "-"
        version = self._image.at(address, tsc)
        if version is None:
            return "unknown code"
        if version.kind != Kind.NMETHOD:
            return version.name
        entries = version.verified_entry, version.entry, version.osr_entry
        return f"{version.site_kind.name.lower()} {'entry' if address in entries else 'body'}"


class _Listening:
    """The reconstructing stage, with an ear for what passes."""

    def __init__(self, evaluation: Evaluation, stage: Reconstruct) -> None:
        self._evaluation, self._stage = evaluation, stage
        self._hz = 0.0

    def feed(self, message: Any) -> list[object]:
        if isinstance(message, Account):
            self._evaluation.account(message)
        elif isinstance(message, StreamOpen):
            self._hz = message.clock.hz
        elif isinstance(message, Segment):
            self._evaluation.opened(self._hz, message.tsc)
        return self._stage.feed(message)

    def flush(self) -> list[object]:
        return self._stage.flush()

    def statistics(self) -> dict[str, Any]:
        return dict(self._stage.statistics())


def _decoded(output: FlowOutput) -> Decoded:
    t = output.tables
    suspect = np.zeros(len(output.order), np.uint8)
    for sure, at in output.breaks[["sure", "order"]].tolist():
        suspect[sure:at] = 1
    count = orders.parts(t, output.order)
    return Decoded(
        orders.plain(t, output.order), np.repeat(suspect, count),
        np.ascontiguousarray(output.breaks["offset"]), np.ascontiguousarray(output.breaks["cause"]),
        t.path, t.pool, t.stretch, t.address, t.ranges,
    )  # fmt: skip


def _joined(a: Steps, b: Steps) -> Steps:
    pairs: Any = zip(a[1:], b[1:], strict=True)
    return Steps(np.concatenate((a.first, b.first[1:] + a.first[-1])), *(np.concatenate(pair) for pair in pairs))


def _rest(steps: Steps, used: int) -> Steps:
    at = int(steps.first[used])
    by_step: Any = steps[1:4]
    by_block: Any = steps[4:]
    columns = *(column[used:].copy() for column in by_step), *(column[at:].copy() for column in by_block)
    return Steps(steps.first[used:] - at, *columns)

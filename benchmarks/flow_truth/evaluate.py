"""Decodes a kept run as the product does and compares its output with the blocks that ran.

Messages go from the recording through the stages from decode to follow, made and set as in `streamer run`. Their
control flow is known from `Paths` alone: nothing of the stages is replaced or looked into, and they may run elsewhere.
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow_truth import FlowTruthError, compare
from benchmarks.flow_truth.compare import COUNTS, INCIDENT_DTYPE, LOST
from benchmarks.flow_truth.reader import Code, Reader, Taken, cause_name
from benchmarks.flow_truth.record import NAME, Run
from benchmarks.flow_truth.result import CAUSES, FLAGGED, Place, Result
from benchmarks.flow_truth.steps import Blocks, Part, Steps, StreamSteps
from capture.emulator.truth import Truth
from capture.live.source import ring_name
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from jvm.calls.stubs import Stub, stub_of
from jvm.code.image import CodeImage
from jvm.code.version import Kind
from jvm.export.records import ExportError
from stages.images import Images, ProcessKey
from stages.messages import Account, Chunk, JitBatch, Loss, Paths, StreamKey, StreamOpen, ThreadKey, Watermark
from streamer import config
from streamer.pipeline.topology import MIDDLE, feed_chain, flush_chain, make_chain
from streamer.pipeline.topology import Place as Where

FIDELITY = "flow"
STAGES = MIDDLE[FIDELITY][: MIDDLE[FIDELITY].index("follow") + 1]
MISALIGNED_EACH = 5_000_000
"""Blocks; more often than once in so many may the orders not come out even. Blocks compared with nothing then, as far
as the next place where both are known, count as silently wrong."""


@dataclass
class _Thread:
    state: NDArray[np.int64] = field(default_factory=lambda: np.zeros(compare.C_SIZE, np.int64))
    carry: Steps | None = None  # PSBs in a step that is not over


class Evaluation:
    """Of one run. Either `evaluate` does everything, or the caller gives it the trace (`trace`), then all messages that
    come out of `STAGES` (`take`), and asks for the result (`finish`)."""

    def __init__(self, directory: Path, after: float = 0.0, *, by_place: bool = False) -> None:
        """`after`: blocks that ran earlier than so many seconds after the start (or the attach) do not count.
        `by_place`: fill `places`, which is slow."""
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
        self._images = Images()
        self._image: CodeImage | None = None  # of the process whose row is compared
        self._readers: dict[ProcessKey, Reader] = defaultdict(Reader)
        self._hz = 0.0
        self._in_holes = 0
        self._rows = 0
        self._own = 0.0  # CPU seconds of this comparison

    def evaluate(self, say: Callable[[str], None] = lambda _: None) -> Result:
        """Raises FlowTruthError."""
        began = time.process_time()
        chain = make_chain(STAGES, Where(config.load(fidelity=FIDELITY), self.directory, 0))
        try:
            with Replay(self.directory / f"{NAME}.json") as replay:
                for message in replay.messages():
                    if isinstance(message, Chunk):
                        with self._not_the_product():
                            self.trace(message)
                        say(f"decoding: {self.result.bytes / 1e6:.0f} of {self.run.trace_bytes / 1e6:.0f} MB")
                    for out in feed_chain(chain, message):
                        with self._not_the_product():
                            self.take(out)
                for out in flush_chain(chain):
                    with self._not_the_product():
                        self.take(out)
        except (PerfDataError, ExportError, OSError) as error:
            raise FlowTruthError(" ".join(str(error).split())) from error
        self.result.seconds = time.process_time() - began - self._own
        return self.finish()

    def trace(self, chunk: Chunk) -> None:
        """The bytes of a stream, in order, not later than the messages about them."""
        self._stream(chunk.stream).put(chunk.offset, chunk.data)
        self.result.bytes += len(chunk.data)

    def take(self, message: object) -> None:
        """The messages of the stages, in their order. Raises FlowTruthError, DictionaryError."""
        match message:
            case Paths():
                self._paths(message)
            case Account():
                self._account(message)
            case JitBatch() | Watermark():
                self._images.take(message)
            case StreamOpen():
                self._images.take(message)
                self._hz = message.clock.hz

    def finish(self) -> Result:
        """Nothing more comes. Raises FlowTruthError."""
        for thread in self._threads.values():
            if thread.carry is not None:
                self._lost(thread.carry, CAUSES[LOST + compare.L_END], self.result.counts)
        for stream in self._streams.values():
            steps, _ = stream.take(stream.end)
            self._lost(steps, "end:behind the last segment", self.result.counts)
            bits, tips = stream.branches
            self.result.bits += bits
            self.result.tips += tips
        if not self._rows:
            raise FlowTruthError("nothing was decoded: the stages told of no control flow")
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
        counts[compare.WRONG] += counts[compare.LOST + compare.L_MISALIGNED]  # not known: the worst is taken
        counts[compare.LOST + compare.L_MISALIGNED] = 0

    def _stream(self, key: StreamKey) -> StreamSteps:
        return self._streams[ring_name(key)]

    @contextmanager
    def _not_the_product(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self._own += time.process_time() - began

    # The messages of the stages

    def _account(self, account: Account) -> None:
        """A hole: bytes that are given to no thread."""
        if account.holes and account.end > account.start:
            self._holes[account.stream].append((account.start, account.end, account.holes[0][0]))

    def _paths(self, message: Paths) -> None:
        key = message.host, message.pid
        self._look(key)
        if not self._from and self._after:
            self._from = (self.run.attached or int(message.rows["tsc"].min())) + round(self._after * self._hz)
        reader = self._readers[key]
        for row, taken in reader.rows(message):
            self._rows += 1
            self._compare(ThreadKey(*key, int(row["tid"])), message.streams[row["stream"]], row, taken, reader.code)

    def _look(self, key: ProcessKey) -> None:
        """Where inline-cache stubs lie."""
        self._image = self._images.of(*key).image
        if self._ic[1] == 0 and self._ic_epoch != self._image.epoch:
            self._ic_epoch = self._image.epoch
            for version in self._image.versions():
                if stub_of(version) == Stub.INLINE_CACHE:
                    self._ic = version.start, version.end

    # Comparing

    def _compare(self, key: ThreadKey, of: StreamKey, row: np.void, taken: Taken, code: Code) -> None:
        stream = self._stream(of)
        begin, end, tsc_end = int(row["offset"]), int(row["end"]), int(row["tsc_end"])
        counted = int(row["tsc"]) >= self._from
        counts = self.result.counts if counted else self._not_counted
        if begin < stream.at:
            raise FlowTruthError(f"stream {stream.name}: {begin} comes behind {stream.at}")
        if begin > stream.at:
            steps, _ = stream.take(begin)
            self._lost(steps, self._hole(of, begin), counts)
        steps, parts = stream.take(end)
        foreign = self._foreign(parts, key.tid, len(steps))
        thread = self._threads[key]
        if not row["continues"]:
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
        used, n = compare.compare(
            taken, code, steps, not row["goes_on"], foreign, *self._ic, thread.state, counts, verdict,
            self._incidents.view(np.int64).reshape(-1, 6),
        )  # fmt: skip
        if counted:
            self._note(self._incidents[:n], tsc_end)
            for cause, times in zip(*np.unique(taken.break_cause, return_counts=True), strict=True):
                self.result.breaks[cause_name(int(cause))] += int(times)
        if used < len(steps):
            thread.carry = _rest(steps, used)
        if self.places is not None and counted:
            self._place(steps.start[: steps.first[used]], verdict, tsc_end)

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
            how = f"till {cause_name(ended)}" if ended else "came back"
            key = how, self._where(site, tsc), self._where(truth, tsc), self._where(decoded, tsc)
            self.result.wrong[key] += wrong + extra
            self.result.runs[key] += 1

    def _where(self, address: int, tsc: int) -> str:
        """The kind of code there."""
        if not address or self._image is None:
            return "-"
        version = self._image.at(address, tsc)
        if version is None:
            return "unknown code"
        if version.kind != Kind.NMETHOD:
            return version.name
        entries = version.verified_entry, version.entry, version.osr_entry
        return f"{version.site_kind.name.lower()} {'entry' if address in entries else 'body'}"


def _joined(a: Steps, b: Steps) -> Steps:
    pairs: Any = zip(a[1:], b[1:], strict=True)
    return Steps(np.concatenate((a.first, b.first[1:] + a.first[-1])), *(np.concatenate(pair) for pair in pairs))


def _rest(steps: Steps, used: int) -> Steps:
    at = int(steps.first[used])
    by_step: Any = steps[1:4]
    by_block: Any = steps[4:]
    columns = *(column[used:].copy() for column in by_step), *(column[at:].copy() for column in by_block)
    return Steps(steps.first[used:] - at, *columns)

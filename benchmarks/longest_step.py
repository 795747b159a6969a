"""How long a worker is busy at a stretch, and with which stage.

    python -m benchmarks.longest_step [--json] [--worst N] [--joined N] RECORDING …

RECORDING is an output of `streamer record` (its .json). Its messages go through the stages of a worker as in `streamer
run --fidelity flow`, and each step of each stage is timed: its work between two places where its member may turn to its
sockets and its heartbeat (`streamer.pipeline.topology.Stage`). CPU time of the thread, so that a busy machine changes
little; kernels are compiled before. `--joined N` makes one chunk of N that follow each other in a stream: an emulated
JVM is 13 to 20 times slower than a native one, and its trace that much thinner.

Exit status 1 if a step took longer than `LIMIT`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from jvm.export.records import ExportError
from stages.messages import Chunk, JitBatch, Pieces, Segment
from streamer import config
from streamer.pipeline.topology import MIDDLE, Place, feed_chain, flush_chain, make_chain
from streamer.pipeline.warm import freeze_heap, warm

LIMIT = 0.1
"""Seconds."""
PERCENTILES = (50, 90, 99, 99.9)
SECONDS = itemgetter(0)  # of a `Step`


class Step(NamedTuple):
    seconds: float
    stage: str
    cause: str  # the message that the stage was fed
    counted: dict[str, float]  # how much the stage's counters moved in it


class Timed:
    """A stage of which each step is timed."""

    def __init__(self, name: str, stage: Any) -> None:
        self._name, self._stage = name, stage
        self.steps_seen: list[float] = []
        self.long: list[Step] = []

    def feed(self, message: Any) -> Iterable[Any]:
        return self.steps(message)

    def flush(self) -> Iterable[Any]:
        return self.flush_steps()

    def statistics(self) -> dict[str, Any]:
        return dict(self._stage.statistics())

    def steps(self, message: Any) -> Iterator[Any]:
        yield from self._timed(getattr(self._stage, "steps", self._stage.feed), _said(message), message)

    def flush_steps(self) -> Iterator[Any]:
        yield from self._timed(getattr(self._stage, "flush_steps", self._stage.flush), "the end")

    def _timed(self, work: Any, cause: str, *message: Any) -> Iterator[Any]:
        before = self.statistics()
        out: Iterator[Any] | None = None
        while True:
            began = time.thread_time()
            if out is None:
                out = iter(work(*message))
            said = next(out, self)
            seconds = time.thread_time() - began
            self.steps_seen.append(seconds)
            if seconds > LIMIT / 10:
                now = self.statistics()
                moved = {k: now[k] - before.get(k, 0) for k in now if now[k] != before.get(k, 0)}
                self.long.append(Step(seconds, self._name, cause, moved))
                before = now
            if said is self:
                return
            yield said


def _said(message: Any) -> str:
    match message:
        case Chunk() | Segment() | Pieces() | JitBatch():
            return f"{type(message).__name__} of {len(message.data)} B"
        case _:
            return type(message).__name__


def joined(messages: Iterable[Any], most: int) -> Iterator[Any]:
    """`most` chunks of a stream that lie behind each other as one, in the place of the last."""
    held: dict[Any, list[Chunk]] = defaultdict(list)
    for message in messages:
        if not isinstance(message, Chunk):
            yield message
            continue
        chunks = held[message.stream]
        if chunks and (message.losses or chunks[-1].offset + len(chunks[-1].data) != message.offset):
            yield _one(chunks)
        chunks.append(message)
        if len(chunks) == most:
            yield _one(chunks)
    for chunks in held.values():
        if chunks:
            yield _one(chunks)


def _one(chunks: list[Chunk]) -> Chunk:
    one = replace(chunks[0], data=np.concatenate([c.data for c in chunks]), seq=chunks[-1].seq, tsc=chunks[-1].tsc)
    chunks.clear()
    return one


def _place() -> Place:
    return Place(config.load(fidelity="flow"), Path(), 0)


def measure(path: Path, join: int = 1) -> list[Timed]:
    """The stages after a run over the recording. Raises PerfDataError, ExportError, OSError."""
    names = MIDDLE["flow"]
    chain = [Timed(name, stage) for name, stage in zip(names, make_chain(names, _place()), strict=True)]
    with Replay(path) as replay:
        for message in joined(replay.messages(), join):
            for _ in feed_chain(chain, message):
                pass
        for _ in flush_chain(chain):
            pass
    return chain


def report(chain: list[Timed], worst: int) -> str:
    lines = [f"{'':12}{'steps':>9}" + "".join(f"{f'p{p:g}':>10}" for p in PERCENTILES) + f"{'longest':>10}   (ms)"]
    for stage in chain:
        times = 1e3 * np.array(stage.steps_seen)
        values = [*np.percentile(times, PERCENTILES), times.max()]
        lines.append(f"{stage._name:12}{len(times):9}" + "".join(f"{v:10.2f}" for v in values))
    for step in sorted((step for stage in chain for step in stage.long), key=SECONDS, reverse=True)[:worst]:
        moved = ", ".join(f"{k} {v:+.6g}" for k, v in step.counted.items())
        lines.append(f"{1e3 * step.seconds:8.1f} ms  {step.stage}, {step.cause}: {moved or 'no counter moved'}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.longest_step", description=__doc__.split("\n")[0])
    parser.add_argument("recording", type=Path, nargs="+")
    parser.add_argument("--joined", type=int, default=1, metavar="N", help="chunks that are made one")
    parser.add_argument("--worst", type=int, default=5, metavar="N", help="steps shown with what moved in them")
    parser.add_argument("--json", action="store_true", help="all of the worst, on standard output")
    options = parser.parse_args(argv)
    warm(MIDDLE["flow"], _place())
    freeze_heap()  # as a worker does
    longest = 0.0
    for path in options.recording:
        try:
            chain = measure(path, options.joined)
        except (PerfDataError, ExportError, OSError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        longest = max(longest, *(max(stage.steps_seen) for stage in chain))
        if options.json:
            steps = sorted((step for stage in chain for step in stage.long), key=SECONDS, reverse=True)
            print(json.dumps({"recording": str(path), "steps": [s._asdict() for s in steps[: options.worst]]}))
        else:
            print(f"{path}\n{report(chain, options.worst)}\n")
    return 1 if longest > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())

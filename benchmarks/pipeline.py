"""Costs of the whole chain, from the bytes of a recording to pane reports: in one process, on one core, by stage.

    python -m benchmarks.pipeline RECORDING [--speed-up 15] [--fidelity flow] [--no-contexts] [--steady MB]
        [--copies N] [--first SHARE] [--end MB] [--profile N] [--json]

RECORDING is an output of `streamer record`. --speed-up makes it as dense in time as hardware writes it
(benchmarks/density.py). Every byte is seen once, so nothing is remembered of it; there may be more or less of them
(benchmarks/amount.py). Kernels are compiled and messages read
into memory beforehand: measured is CPU time inside the stages' `feed` and `flush`, each stage's own.

Parts are told apart. Warm-up: until nearly all compiled methods have been told (or until --steady MB before the end);
steady: the rest, without the last --end MB, which are a part of their own: at its end a program runs much for the first
time. A stage holds trace until the code of its time is known, so a part pays for some of the trace of the one before.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.amount import copies, first
from benchmarks.branches import Branches
from benchmarks.density import dense
from capture.live.drain import Message
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from jvm.export.parse import iter_records
from jvm.export.records import RecordType
from stages.messages import Chunk, JitBatch, PaneReport, Paths, Segment, StreamOpen
from streamer import config
from streamer.config import Settings
from streamer.pipeline.topology import MIDDLE, Place, make_chain, middle
from streamer.pipeline.warm import freeze_heap, warm

SETTLED = 0.95
"""Share of all compiled methods by which the JIT is said to have settled."""
PARTS = ("warm-up", "steady", "end")


@dataclass
class Cost:
    """Of one stage in one part."""

    cpu_seconds: float = 0.0
    messages: int = 0  # taken
    given: int = 0
    longest_ms: float = 0.0  # CPU time of one step
    memory_bytes: int = 0  # by which the process grew in its calls


@dataclass
class Part:
    name: str
    trace_bytes: int = 0
    trace_seconds: float = 0.0  # by the recording's clock
    begin: int = 0  # TSC
    end: int = 0
    pieces: int = 0
    reports: int = 0
    branches: int = 0
    stages: dict[str, Cost] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        return sum(cost.cpu_seconds for cost in self.stages.values())

    @property
    def mb_per_second(self) -> float:
        return self.trace_bytes / 1e6 / self.cpu_seconds if self.cpu_seconds else 0.0

    def figures(self) -> dict[str, Any]:
        own = {"cpu_seconds": self.cpu_seconds, "mb_per_second": self.mb_per_second}
        return {**{k: v for k, v in asdict(self).items() if k != "stages"}, **own,
                "stages": {name: asdict(cost) for name, cost in self.stages.items()}}  # fmt: skip


class Chain:
    """The stages of a worker, each call of them measured."""

    def __init__(self, names: Sequence[str], place: Place) -> None:
        self.stages = list(zip(names, make_chain(names, place), strict=True))
        self._branches = Branches()
        self._page = resource.getpagesize()
        self._statm = os.open("/proc/self/statm", os.O_RDONLY)

    def run(self, message: Any, part: Part, level: int = 0) -> None:
        if level == len(self.stages):
            part.reports += isinstance(message, PaneReport)
            return
        part.pieces += isinstance(message, Segment)
        for out in self._measured(level, part, message):
            if isinstance(out, Paths) and self.stages[level][0] == "follow":
                part.branches += self._branches.of(out)
            self.run(out, part, level + 1)

    def flush(self, part: Part) -> None:
        for level in range(len(self.stages)):
            for out in self._measured(level, part):
                self.run(out, part, level + 1)

    def _measured(self, level: int, part: Part, *message: Any) -> Iterator[Any]:
        """The stage's output for the message or, without one, at the end. As in a worker each goes on before the next
        is made."""
        name, stage = self.stages[level]
        cost = part.stages.setdefault(name, Cost())
        how = ("steps", stage.feed) if message else ("flush_steps", stage.flush)
        steps: Iterator[Any] | None = None
        cost.messages += len(message)
        while True:
            memory, begin = self._memory(), time.thread_time_ns()
            steps = iter(getattr(stage, *how)(*message)) if steps is None else steps
            out = next(steps, self)
            spent = time.thread_time_ns() - begin
            cost.cpu_seconds += spent / 1e9
            cost.longest_ms = max(cost.longest_ms, spent / 1e6)
            cost.memory_bytes += self._memory() - memory
            if out is self:
                return
            if out is not None:
                cost.given += 1
                yield out

    def _memory(self) -> int:
        return int(os.pread(self._statm, 64, 0).split()[1]) * self._page

    def statistics(self) -> dict[str, Any]:
        return {name: dict(stage.statistics()) for name, stage in self.stages}


def settled_at(messages: Iterable[Message]) -> int:
    """TSC by which `SETTLED` of all compiled methods had been told; 0 if there is none."""
    only = {int(RecordType.NMETHOD_LOAD)}
    times = sorted(r.tsc for m in messages if isinstance(m, JitBatch) for r in iter_records(m.data, only=only))
    return times[int(SETTLED * (len(times) - 1))] if times else 0


def _parts(messages: list[Message], steady_bytes: int | None, end_bytes: int) -> list[int]:
    """Of each message, to which of PARTS it belongs."""
    sizes = np.array([len(m.data) if isinstance(m, Chunk) else 0 for m in messages], np.int64)
    left = sizes.sum() - np.cumsum(sizes)
    times = np.array([getattr(m, "tsc", 0) for m in messages], np.uint64)
    steady = np.maximum.accumulate(times) > settled_at(messages) if steady_bytes is None else left < steady_bytes
    return np.where(left < end_bytes, 2, steady).tolist()  # type: ignore[no-any-return]


def measure(
    messages: list[Message], settings: Settings, steady_bytes: int | None, profile: cProfile.Profile | None,
    end_bytes: int = 0,
) -> tuple[list[Part], Chain]:  # fmt: skip
    """Runs the chain over the messages. `steady_bytes`: so many at the end are the steady part, of which the last
    `end_bytes` are that of the end."""
    with tempfile.TemporaryDirectory() as directory:
        place = Place(settings, Path(directory), 0)
        names = middle(settings)
        warm(names, place)
        chain = Chain(names, place)
        freeze_heap()  # as a worker does
        parts = [Part(name) for name in PARTS]
        hz = next(m.clock.hz for m in messages if isinstance(m, StreamOpen))
        if profile is not None:
            profile.enable()
        for message, number in zip(messages, _parts(messages, steady_bytes, end_bytes), strict=True):
            part = parts[number]
            if isinstance(message, Chunk):
                part.trace_bytes += len(message.data)
            if tsc := int(getattr(message, "tsc", 0)):
                part.begin, part.end = part.begin or tsc, tsc
            chain.run(message, part)
        chain.flush(parts[2 if end_bytes else 1])
        if profile is not None:
            profile.disable()
        for part in parts:
            part.trace_seconds = (part.end - part.begin) / hz
    return parts if end_bytes else parts[:2], chain


def show(parts: list[Part], console: Console) -> None:
    for part in parts:
        if not part.cpu_seconds:
            continue
        table = Table(box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, title_style="bold")
        table.title = (
            f"{part.name}: {part.trace_bytes / 1e6:.1f} MB of {part.trace_seconds:.1f} s in {part.cpu_seconds:.2f} s "
            f"of CPU, {part.mb_per_second:.1f} MB/s; {part.pieces:,} pieces, "
            f"{part.branches:,} branches, {part.reports:,} pane reports"
        )
        table.add_column("stage")
        for name in ("CPU s", "share", "µs a piece", "ns a byte", "ns a branch", "messages", "longest ms", "memory MB"):
            table.add_column(name, justify="right")
        for name, cost in part.stages.items():
            table.add_row(
                name, f"{cost.cpu_seconds:.2f}", f"{cost.cpu_seconds / part.cpu_seconds:.0%}",
                f"{1e6 * cost.cpu_seconds / max(part.pieces, 1):.0f}",
                f"{1e9 * cost.cpu_seconds / max(part.trace_bytes, 1):.1f}",
                f"{1e9 * cost.cpu_seconds / part.branches:.2f}" if part.branches else "", f"{cost.messages:,}",
                f"{cost.longest_ms:.1f}", f"{cost.memory_bytes / 1e6:+.0f}",
            )  # fmt: skip
        console.print(table)
    console.print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pipeline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--speed-up", type=float, default=1.0, metavar="N", help="as if it had run N times as fast (1)")
    parser.add_argument("--fidelity", choices=list(MIDDLE), default="flow")
    parser.add_argument(
        "--contexts", action=argparse.BooleanOptionalAction, default=True, help="also calling-context trees (yes)"
    )
    parser.add_argument("--copies", type=int, default=1, metavar="N", help="the recording of N such processes (1)")
    parser.add_argument("--first", type=float, default=1.0, metavar="SHARE", help="so much of its trace (1)")
    parser.add_argument("--steady", type=float, metavar="MB", help="the last MB are the steady part")
    parser.add_argument("--end", type=float, default=0.0, metavar="MB", help="of these, the last MB are the end")
    parser.add_argument("--profile", type=int, metavar="N", help="also the N slowest Python functions")
    parser.add_argument("--json", action="store_true", help="figures as JSON, with the stages' statistics")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    profile = cProfile.Profile() if options.profile else None
    try:
        with Replay(options.recording) as replay:
            messages = first(list(dense(replay.messages(), options.speed_up)), options.first)
            messages = list(copies(messages, options.copies))
            if not any(isinstance(m, Chunk) and len(m.data) for m in messages):
                raise ValueError("there is no trace in it")
            steady = None if options.steady is None else int(options.steady * 1e6)
            settings = config.load(fidelity=options.fidelity, flow={"contexts": options.contexts})
            parts, chain = measure(messages, settings, steady, profile, int(options.end * 1e6))
    except (OSError, PerfDataError, ValueError) as error:
        sys.exit(f"benchmarks.pipeline: {options.recording}: {error}")
    if options.json:
        figures = {
            "speed_up": options.speed_up,
            "fidelity": options.fidelity,
            "parts": {part.name: part.figures() for part in parts},
            "statistics": chain.statistics(),
        }
        print(json.dumps(figures, indent=1))
    else:
        show(parts, Console(width=110))
    if profile is not None:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(options.profile)


if __name__ == "__main__":
    main()

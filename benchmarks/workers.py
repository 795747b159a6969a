"""One JVM on N workers: how the cost of its trace is shared out among them.

    python -m benchmarks.workers RECORDING [--workers 2 --workers 4 …] [--speed-up 15] [--steady MB] [--json]

RECORDING should be of a program with several busy threads, with a stream a thread (`streamer record --emulate
--per-thread`, or of hardware): streams of CPUs are one worker's (streamer/transport/routing.py). Each worker's share of
the messages goes through a chain of its own, one after the other on one core, by CPU time; all workers have the code.
*Speed-up* is the CPU time of one worker over that of the busiest of N: as many times as fast N workers would be, each
on a core of its own. It cannot be more than `most`, the bytes of all over those of the worker that has most of them,
which depends on the program's threads. *Efficiency* is the speed-up over N; the aim is 0.8.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.density import dense
from benchmarks.pipeline import Part, measure
from capture.live.drain import Message
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from stages.messages import Chunk
from streamer import config
from streamer.config import Settings
from streamer.transport.routing import route


@dataclass(frozen=True)
class Row:
    """A part of the recording on so many workers."""

    part: str
    workers: int
    megabytes: tuple[float, ...]  # of each worker
    cpu_seconds: tuple[float, ...]
    speed_up: float
    most: float

    @property
    def efficiency(self) -> float:
        return self.speed_up / self.workers


def shares(messages: Sequence[Message], workers: int) -> list[list[Message]]:
    """The messages of each worker, as capture sends them."""
    found: list[list[Message]] = [[] for _ in range(workers)]
    for message in messages:
        for worker in route(message, 0, 1, workers):
            found[worker].append(message)
    return found


def rows(messages: list[Message], counts: Sequence[int], settings: Settings, steady: int | None) -> Iterator[Row]:
    """One of each part and number of workers, one worker first."""
    alone: dict[str, Part] = {}
    begin = 0 if steady is None else _steady_from(messages, steady)
    for workers in (1, *counts):
        each = []
        for share in shares(messages, workers):
            own = None if steady is None else sum(len(m.data) for m in share if isinstance(m, Chunk) and m.tsc >= begin)
            parts, _ = measure(share, settings, own, None)
            each.append({part.name: part for part in parts})
        if workers == 1:
            alone = each[0]
        for name, whole in alone.items():
            if not whole.trace_bytes:
                continue
            of = [parts[name] for parts in each]
            spent = [part.cpu_seconds for part in of]
            sizes_of = [part.trace_bytes for part in of]
            yield Row(
                name, workers, tuple(n / 1e6 for n in sizes_of), tuple(spent),
                whole.cpu_seconds / max(spent), sum(sizes_of) / max(sizes_of),
            )  # fmt: skip


def _steady_from(messages: Sequence[Message], steady: int) -> int:
    """TSC from which on the last `steady` bytes of trace are drained; 0: there are no more."""
    for message in reversed(messages):
        if isinstance(message, Chunk):
            steady -= len(message.data)
            if steady <= 0:
                return message.tsc
    return 0


def show(found: Sequence[Row], console: Console) -> None:
    table = Table()
    for name in ("part", "workers", "MB of each", "CPU s of each", "speed-up", "most", "efficiency"):
        table.add_column(name, justify="right")
    for row in found:
        table.add_row(
            row.part, str(row.workers), " ".join(f"{n:.1f}" for n in row.megabytes),
            " ".join(f"{n:.2f}" for n in row.cpu_seconds), f"{row.speed_up:.2f}", f"{row.most:.2f}",
            f"{row.efficiency:.2f}",
        )  # fmt: skip
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.workers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--workers", type=int, action="append", metavar="N", help="repeatable (2, 4)")
    parser.add_argument("--speed-up", type=float, default=15.0, metavar="N", help="as in benchmarks.pipeline (15)")
    parser.add_argument("--steady", type=float, metavar="MB", help="the last MB are the steady part")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    steady = None if options.steady is None else int(options.steady * 1e6)
    try:
        with Replay(options.recording) as replay:
            messages = list(dense(replay.messages(), options.speed_up))
        if not any(isinstance(m, Chunk) and len(m.data) for m in messages):
            raise ValueError("there is no trace in it")
        found = list(rows(messages, options.workers or (2, 4), config.load(fidelity="flow"), steady))
    except (OSError, PerfDataError, ValueError) as error:
        sys.exit(f"benchmarks.workers: {options.recording}: {error}")
    if options.json:
        print(json.dumps([asdict(row) | {"efficiency": row.efficiency} for row in found], indent=1))
    else:
        show(found, Console(width=120))


if __name__ == "__main__":
    main()

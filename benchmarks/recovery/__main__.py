"""How much of the control flow that is lost the stage `recover` brings back, and how much of that is true.

    python -m benchmarks.recovery RECORDING … [--lose 25%] [--burst 4096] [--seed 1] [--most MB] [--window MIB]
        [--planted N] [--published] [--guess] [--json]

The recording, which should be without losses, is followed twice: as it is, and with bursts of trace bytes cut out of
its streams, as a full socket loses them. Bursts have an exponentially distributed length around `--burst` bytes and go
on to the next PSB; so many of them are cut, at random, that about `--lose` of the bytes are lost.

Of each thread the steps (blocks, and the ways out of them) that were observed in spite of the losses, and those with
which holes were filled, are compared with all that it took:

1. *Where a hole lies.* What was observed between two holes has time marks, which the lossless run has too: by the first
   of them both are laid beside each other, where the next `SAME` steps are the same within `AROUND` steps, and compared
   step by step. Holes are the steps between. A stretch without such a place counts as lost, whatever is in it.
2. *What of a filling is true.* Filling and hole are gone through together from their beginnings. Where they differ,
   the nearest place within `LOOK` steps is taken at which three steps in a row are the same again; if there is none,
   the nearest within `FAR` steps at which `FAR_SAME` are; else one step of each is false. So the pairs found stand in
   the same order in both, no step is in two of them, and their number is at most that of a longest common subsequence:
   it can be too low, not too high. It takes O(n) for given LOOK and FAR. A filling longer than its hole gains nothing
   by it.

*Recovery* is the part of the lost steps that is matched so; *precision* the part of the filled-in steps that is;
*overall* the part of all steps that was observed or recovered rightly. `--planted N` puts a false step in the place of
every Nth of each filling first: recovery must fall by about that share. `--published` runs JPortal's own search in the
place of `stages.recover.filling`, on the same windows and holes. `--guess` has ways through the holes that nothing
fills guessed: steps of these, and the part of them that is right, are counted apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.recovery import published
from benchmarks.recovery.bursts import Bursts
from benchmarks.recovery.compare import compare
from benchmarks.recovery.control_flow import Numbers, follow
from capture.live.drain import Message
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from stages.messages import Chunk
from stages.recover import filling
from stages.recover.stage import Recover
from stages.recover.window import Window
from streamer.pipeline.warm_recover import compile_recover


class Timed:
    """`Recover`, one hole a step, with the time that each took."""

    def __init__(self, window_bytes: int, published_: bool = False, guesses: bool = False) -> None:
        self._fill = published.fill if published_ else filling.fill
        self._stage = Recover(window_bytes=window_bytes, holes_at_once=1, search=self._search, guesses=guesses)
        self.of_holes: list[float] = []
        self.seconds = self.longest = 0.0

    def feed(self, message: object) -> Iterator[object]:
        return self._timed(self._stage.steps(message))

    def flush(self) -> Iterator[object]:
        return self._timed(self._stage.flush_steps())

    def statistics(self) -> dict[str, int | float]:
        return self._stage.statistics()

    def _search(self, window: Window, holes: NDArray[np.int64], first: int, end: int) -> None:
        begin = time.thread_time()
        self._fill(window, holes, first, end)
        self.of_holes.append(time.thread_time() - begin)

    def _timed(self, outputs: Iterator[object]) -> Iterator[object]:
        begin = time.thread_time()
        for out in outputs:
            spent = time.thread_time() - begin
            self.seconds += spent
            self.longest = max(self.longest, spent)
            yield out
            begin = time.thread_time()
        self.seconds += time.thread_time() - begin


def limited(messages: Iterable[Message], most: float) -> list[Message]:
    """The messages of the first `most` bytes of trace."""
    out: list[Message] = []
    size = 0
    for message in messages:
        out.append(message)
        size += len(message.data) if isinstance(message, Chunk) else 0
        if size >= most:
            break
    return out


def measure(recording: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    with Replay(recording) as replay:
        messages = limited(replay.messages(), options.most * 1e6)
    compile_recover()
    numbers, rows = Numbers(), []
    truth, _ = follow(messages, numbers)
    for lose in options.lose:
        for burst in options.burst:
            bursts = Bursts(lose, burst, Random(options.seed))
            stage = Timed(options.window << 20, options.published, options.guess)
            seen, fillings = follow(bursts(messages), numbers, stage)
            found = compare(truth, seen, fillings, options.planted)
            spent = np.array(stage.of_holes or [0.0])
            steps = max(int(stage.statistics()["recover_steps"]), 1)
            rows.append(
                {"recording": recording.parent.name, "cut": bursts.cut / max(bursts.all, 1), "burst": burst,
                 **found.figures(), "p50_us": float(np.quantile(spent, 0.5)) * 1e6,
                 "p99_us": float(np.quantile(spent, 0.99)) * 1e6, "longest_ms": stage.longest * 1e3,
                 "ns_a_step": (stage.seconds - spent.sum()) / steps * 1e9}
            )  # fmt: skip
    return rows


def share(text: str) -> float:
    part = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    if not 0 < part < 1:
        raise argparse.ArgumentTypeError("a share between 0 and 100 %")
    return part


def show(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table()
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) and v < 10 else f"{v:.0f}" if isinstance(v, float)
                        else f"{v:,}" if isinstance(v, int) else v for v in row.values()))  # fmt: skip
    console.print(table)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path, nargs="+")
    parser.add_argument("--lose", type=share, action="append", help="of the bytes; repeatable (25%%)")
    parser.add_argument("--burst", type=int, action="append", help="mean bytes, before the next PSB; repeatable (4096)")
    parser.add_argument("--most", type=float, default=100, metavar="MB", help="of the recording's beginning (100)")
    parser.add_argument("--window", type=int, default=64, metavar="MIB", help="as flow.recover_mib (64)")
    parser.add_argument("--planted", type=int, default=0, metavar="N", help="every Nth step of a filling is made false")
    parser.add_argument("--published", action="store_true", help="with JPortal's own search: takes long")
    parser.add_argument("--guess", action="store_true", help="as flow.guess: a way through holes that nothing fills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    options.lose, options.burst = options.lose or [0.25], options.burst or [4096]
    try:
        rows = [row for recording in options.recording for row in measure(recording, options)]
    except (OSError, PerfDataError, ValueError) as error:
        sys.exit(f"benchmarks.recovery: {error}")
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows, Console(width=200))


if __name__ == "__main__":
    main()

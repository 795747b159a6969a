"""The cost of the whole streamer for a native JVM, at each budget, but for what it would follow.

    python -m benchmarks.agent_overhead.at_budgets [--turns N] [--programs fop h2] [--rounds N]
        [--budgets 0 5 10 25] [--java PATH] [--json FILE]

The processor need not have PT: the JVM runs natively with the agent, and the pipeline (capture, worker, hub,
supervisor) beside it as `streamer run` starts it, on a PT that writes nothing. It takes in code, classes and names,
looks at its ring, switches it on and off, and serves its windows. The trace to follow comes on top, and is held to the
budget (`benchmarks.duty budget`). Budget 0: none.

Told are medians over the turns, in which the JVM alone (the peer) and the JVM with each budget run one after the other:
CPU time of the JVM, from its start to the end of the first round (*start*) and in the second half of the rounds
(*steady*), and its ratio to the peer of the same turn; and of the pipeline, as a share of one CPU, in these two parts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import trio
from rich.console import Console
from rich.table import Table

from benchmarks.agent_overhead.__main__ import JAVA_OPTIONS, STEADY, compiled, in_rounds, rounds_of
from benchmarks.cpu import Used
from benchmarks.real_programs import JARS, PROGRAMS
from streamer import config
from streamer.pipeline.runner import Runner
from streamer.pipeline.topology import topology
from streamer.session.session import session
from streamer.target import launch
from streamer.target.process import TargetProcess
from tests.capture.perfwriter import MULT, SHIFT, ZERO, Producer

AUX_PAGES = 256
LOOK_SECONDS = 0.1  # between two looks at what has been spent
QUIET = {
    "version": 1, "state": "running", "filter": [0x1000, 1 << 47], "mtc": 9, "cyc": -1, "ctc_num": 204, "ctc_den": 2,
    "retcomp": True, "family": 6, "model": 142, "sample_type": 0x10086,
    "clock": {"mult": MULT, "shift": SHIFT, "zero": ZERO, "wall_zero": 5},
}  # fmt: skip
"""emulator.json of a PT that writes nothing."""


def quiet_pt(directory: Path, pid: int) -> None:
    """The files of an emulated PT for a process of which nothing is in the filter: a ring that stays empty."""
    directory.mkdir(mode=0o700, exist_ok=True)
    Producer(directory / "cpu0.ring", aux_pages=AUX_PAGES).close()
    (directory / "new").write_text(json.dumps({**QUIET, "pid": pid}))
    (directory / "new").rename(directory / "emulator.json")


class Untraced(TargetProcess):
    """The JVM, natively, with a PT that writes nothing."""

    def __init__(self, argv: Sequence[str], directory: Path, patience: float) -> None:
        super().__init__(argv, lambda _: None, patience)
        self._pt = directory / "pt"

    def start(self) -> None:
        super().start()
        quiet_pt(self._pt, self.pid)


def beside(java_argv: Sequence[str], budget: float) -> list[tuple[float, float]]:
    """Runs the JVM with the pipeline beside it: (wall time, CPU seconds spent so far by the pipeline) from the JVM's
    start on; the kernels are there by then. The budget in percent of a CPU."""
    options: dict[str, Any] = {"capture.cpu_budget": f"{budget}%"} if budget else {}
    settings = config.load(**options, **{"web.port": 0})
    seen: list[tuple[float, float]] = []

    async def look(runner: Runner, jvm: TargetProcess) -> None:
        used = Used()
        while not jvm.over.is_set():
            if jvm.started:
                runs = (member.run for member in runner.supervisor.members.values())
                pids = [os.getpid(), *(run.pid for run in runs if run is not None and run.pid)]
                seen.append((time.time(), used.total(pids)))
            await trio.sleep(LOOK_SECONDS)

    async def both(runner: Runner, jvm: TargetProcess) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look, runner, jvm)
            await runner.run()
            nursery.cancel_scope.cancel()

    with tempfile.TemporaryDirectory() as scratch, session(Path(scratch) / "run") as directory:
        argv = launch.with_agent(java_argv, directory, settings.agent)
        with (
            open("/dev/null", "w") as nowhere,  # noqa: PTH123 (no file of ours)
            Untraced(argv, directory, settings.target.stop_seconds) as jvm,
        ):
            runner = Runner(
                settings, topology(settings, live=True), directory, target=jvm, console=Console(file=nowhere)
            )
            trio.run(both, runner, jvm)
        if jvm.status:
            raise SystemExit(f"java ended with status {jvm.status}")
    return seen


def spent(seen: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """The share of a CPU spent between two times."""
    first, last = (seen[max(0, bisect_right(seen, (at, float("inf"))) - 1)] for at in (begin, end))
    return (last[1] - first[1]) / max(last[0] - first[0], LOOK_SECONDS)


@dataclass
class Row:
    program: str
    budget_percent: float
    start_ratio: float  # of the JVM's CPU time
    steady_ratio: float
    start_pipeline: float  # CPUs
    steady_pipeline: float
    runs: int

    def cells(self) -> list[str]:
        shares = (f"{part:.1%}" for part in (self.start_pipeline, self.steady_pipeline))
        budget = f"{self.budget_percent:g} %" if self.budget_percent else "none"
        return [self.program, budget, f"{self.start_ratio:.3f}", f"{self.steady_ratio:.3f}", *shares]


def with_pipeline(command: list[str], budget: float) -> dict[str, float]:
    """One run in a process of its own: seconds of the JVM, shares of the pipeline."""
    arguments = [sys.executable, "-m", __spec__.name, "--one", str(budget), "--", *command]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"at {budget} %: {result.stderr[-500:]}")
    jvm, walls = rounds_of(result.stderr)
    seen = json.loads(result.stdout.splitlines()[-1])
    seen = [(at, cpu) for at, cpu in seen]
    began, half = seen[0][0], walls[len(walls) // 2 - 1]
    return {**jvm, "start_pipeline": spent(seen, began, walls[0]), "steady_pipeline": spent(seen, half, walls[-1])}


def measure(program: str, java: str, turns: int, rounds: int, budgets: Sequence[float]) -> list[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        PROGRAMS[program](directory)  # its input
        command = [java, *JAVA_OPTIONS, "-Djava.awt.headless=true", "-cp", compiled(directory), "Rounds", program,
                   str(directory / STEADY[program]), str(rounds)]  # fmt: skip
        in_rounds(command)  # files into the page cache
        peers: list[dict[str, float]] = []
        found: list[list[dict[str, float]]] = [[] for _ in budgets]
        for _ in range(turns):
            peers.append(in_rounds(command))
            for runs, budget in zip(found, budgets, strict=True):
                runs.append(with_pipeline(command, budget))

    def typical(runs: list[dict[str, float]], budget: float) -> Row:
        start, steady = (
            statistics.median(run[part] / peer[part] for run, peer in zip(runs, peers, strict=True))
            for part in ("start", "steady")
        )
        of_start, of_steady = (
            statistics.median(run[f"{part}_pipeline"] for run in runs) for part in ("start", "steady")
        )
        return Row(program, budget, start, steady, of_start, of_steady, len(runs))

    return [typical(runs, budget) for budget, runs in zip(budgets, found, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agent_overhead.at_budgets", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--programs", nargs="*", choices=[*STEADY], default=[*STEADY])
    parser.add_argument("--rounds", type=int, default=12, help="of the work in one JVM (default 12)")
    parser.add_argument("--budgets", nargs="*", type=float, default=[0, 5, 10, 25], help="percent of a CPU; 0: none")
    parser.add_argument("--java", default="java")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--one", type=float, metavar="BUDGET", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    of = parser.parse_args()
    if of.one is not None:
        print(json.dumps(beside(of.command, of.one)))
        return
    if of.turns < 1 or of.rounds < 2:
        parser.error("--turns must be at least 1, --rounds at least 2")
    if absent := [name for name in of.programs if not (JARS / f"{name}.jar").exists()]:
        sys.exit(f"at_budgets: no {', '.join(absent)}.jar in {JARS}: install the Debian package")
    table = Table(title="JVM: CPU time with / without; pipeline: part of a CPU")
    for name in ("program", "budget", "JVM, start", "JVM, steady", "pipeline, start", "pipeline, steady"):
        table.add_column(name, justify="right")
    rows = [row for name in of.programs for row in measure(name, of.java, of.turns, of.rounds, of.budgets)]
    for row in rows:
        table.add_row(*row.cells())
    Console(width=110).print(table)
    if of.json:
        of.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()

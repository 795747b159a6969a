"""The agent's cost for an untraced JVM: real programs with and without it, in turns.

    python -m benchmarks.agent_overhead [--turns N] [--java PATH] [--json FILE]
        [--programs fop h2 jython] [--steady fop h2] [--rounds N]

*Whole runs* (`benchmarks.real_programs`): the JVM's start, the program, its end. *Start and steady*: fop and H2 do
their work many times in one JVM (`Rounds.java`); the start is all up to the end of the first round, steady is the
second half of the rounds. Runs with and without the agent take turns; told are the medians, and the median of the
ratios of neighbours. The agent exports all it can, class bytes included, into a ring without a reader on the temporary
directory's file system.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.real_programs import FOP_JARS, JARS, PROGRAMS
from jvm.agent.build import library
from jvm.cbuild import BuildError
from jvm.export.ring import RingReader

HERE = Path(__file__).parent
STEADY = {"fop": "in.fo", "h2": "script.sql"}  # the file of the work
JAVA_OPTIONS = ("-Xmx600m",)


@dataclass
class Cost:
    """Seconds of each run, in order; run i without and run i with the agent were neighbours. By clock: `wall` and `cpu`
    of a whole run, `start` and `steady` (CPU time) of one in rounds."""

    program: str
    without: dict[str, list[float]] = field(default_factory=dict)
    with_agent: dict[str, list[float]] = field(default_factory=dict)
    exported_bytes: int = 0  # of the last run
    dropped: int = 0  # records, of all runs

    def ratio(self, clock: str) -> float:
        """Median of with / without over the turns."""
        pairs = zip(self.with_agent[clock], self.without[clock], strict=True)
        return statistics.median(a / b for a, b in pairs)


def run(command: list[str]) -> tuple[float, float, str]:
    """Wall and CPU seconds of a command, and its stderr; ends the benchmark if it fails."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace")
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"{' '.join(command)[:200]} failed: {said[-500:]}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, said


def whole(command: list[str]) -> dict[str, float]:
    wall, cpu, _ = run(command)
    return {"wall": wall, "cpu": cpu}


def rounds_of(said: str) -> tuple[dict[str, float], list[float]]:
    """Of the output of `Rounds`: CPU seconds of the start and in steady state; when each round ended, seconds since the
    epoch."""
    cpu, walls = ([int(n) for n in re.findall(rf"^{name} ([\d ]+)$", said, re.MULTILINE)[-1].split()]
                  for name in ("rounds", "ended"))  # fmt: skip
    spent = [ns / 1e9 for ns in cpu]
    return {"start": spent[0], "steady": spent[-1] - spent[len(spent) // 2 - 1]}, [ms / 1e3 for ms in walls]


def in_rounds(command: list[str]) -> dict[str, float]:
    _, _, said = run(command)
    return rounds_of(said)[0]


def turns(
    name: str, java: str, arguments: Sequence[str], directory: Path, count: int,
    measure: Callable[[list[str]], dict[str, float]],
) -> Cost:  # fmt: skip
    cost = Cost(name)
    ring = directory / "jit.ring"
    plain = [java, *JAVA_OPTIONS, *arguments]
    traced = [java, f"-agentpath:{library()}=ring={ring}", *plain[1:]]
    measure(plain)  # files into the page cache
    for turn in range(count):
        for with_agent in (turn % 2 == 1, turn % 2 == 0):  # the first of the two alternates
            into = cost.with_agent if with_agent else cost.without
            for clock, seconds in measure(traced if with_agent else plain).items():
                into.setdefault(clock, []).append(seconds)
            if with_agent:
                with RingReader(ring) as reader:
                    cost.exported_bytes, cost.dropped = reader.pending, cost.dropped + reader.dropped
    return cost


def compiled(directory: Path) -> str:
    """The class path of `Rounds`."""
    jars = ":".join(str(JARS / f"{name}.jar") for name in (*FOP_JARS, "h2"))
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", directory, HERE / "Rounds.java"], check=True)
    return f"{directory}:{jars}"


def measure_whole(name: str, java: str, count: int) -> Cost:
    with tempfile.TemporaryDirectory() as scratch:
        return turns(name, java, PROGRAMS[name](Path(scratch)), Path(scratch), count, whole)


def measure_steady(name: str, java: str, count: int, rounds: int) -> Cost:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        PROGRAMS[name](directory)  # its input
        of_rounds = ["-Djava.awt.headless=true", "-cp", compiled(directory), "Rounds"]
        arguments = [*of_rounds, name, str(directory / STEADY[name]), str(rounds)]
        return turns(name, java, arguments, directory, count, in_rounds)


def told(cost: Cost, first: bool) -> Cost:
    """Prints it as a row; the first of a table with the table's head."""
    if first:
        heads = [cell for clock in cost.without for cell in (f"{clock} without", "with", "ratio")]
        print(f"\n| program | {' | '.join(heads)} | exported |", "|---" * (len(heads) + 2) + "|", sep="\n")
    cells = [cost.program]
    for clock in cost.without:
        without, with_agent = (statistics.median(side[clock]) for side in (cost.without, cost.with_agent))
        cells += [f"{without:.2f} s", f"{with_agent:.2f} s", f"{cost.ratio(clock):.3f}"]
    lost = f" ({cost.dropped} dropped)" if cost.dropped else ""
    print(f"| {' | '.join(cells)} | {cost.exported_bytes / 1e6:.1f} MB{lost} |", flush=True)
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agent_overhead",
        description="Cost of the agent for programs that are not traced: whole runs, and their start and steady state.",
    )
    parser.add_argument("--turns", type=int, default=7, help="pairs of runs, with and without (default 7)")
    parser.add_argument("--java", default="java")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all seconds of all runs")
    parser.add_argument("--programs", nargs="*", choices=[*PROGRAMS], default=[*PROGRAMS], help="as whole runs")
    parser.add_argument("--steady", nargs="*", choices=[*STEADY], default=[*STEADY], help="in rounds in one JVM")
    parser.add_argument("--rounds", type=int, default=12, help="of the work in one JVM (default 12)")
    arguments = parser.parse_args()
    if arguments.turns < 1 or arguments.rounds < 2:
        parser.error("--turns must be at least 1, --rounds at least 2")
    try:
        library()
    except BuildError as error:
        sys.exit(f"agent_overhead: {error}")
    if absent := [name for name in {*arguments.programs, *arguments.steady} if not (JARS / f"{name}.jar").exists()]:
        sys.exit(f"agent_overhead: no {', '.join(sorted(absent))}.jar in {JARS}: install the Debian package")
    wholes = [
        told(measure_whole(name, arguments.java, arguments.turns), n == 0) for n, name in enumerate(arguments.programs)
    ]
    steadies = [
        told(measure_steady(name, arguments.java, arguments.turns, arguments.rounds), n == 0)
        for n, name in enumerate(arguments.steady)
    ]
    if arguments.json:
        clocks = [(c, {clock: c.ratio(clock) for clock in c.without}) for c in (*wholes, *steadies)]
        arguments.json.write_text(json.dumps([asdict(c) | {"ratio": ratios} for c, ratios in clocks], indent=2) + "\n")


if __name__ == "__main__":
    main()

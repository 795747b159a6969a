"""How long after its execution work is seen in /metrics, of live programs, and the cost of that.

    python -m benchmarks.lag [--programs shop fop h2 lucene xint] [--scale X] [--java PATH] [--json FILE]
                             [-- OPTIONS of `streamer run`]

Each program runs once under the emulated PT, traced at default settings: the shop of the demo, fop, H2 and Lucene of
`benchmarks.flow_truth.table`, and the shop under `-Xint` with no pause between its requests. `--scale` is of their
work. The machine should have a CPU for the program and one for the pipeline.

Delays are those of `streamer_delay_seconds` of the whole run, its end included (`streamer.hub.delay`): a quantile is
the upper bound of its bucket. CPU time is that of QEMU (program, translation and PT together) against that of all parts
of the pipeline from when the program began; their start, which is of all programs the same, stands apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from benchmarks.cpu import cpu_seconds
from benchmarks.flow_truth.table import lucene
from benchmarks.real_programs import fop, h2
from streamer import config
from streamer.pipeline.topology import Place, middle
from streamer.pipeline.warm import warm
from tests.e2e.harness import Ended, Streamer

RUN_SECONDS = 1800.0  # a run is given up after
EVERY = 0.25
"""Seconds between two looks at the CPU time of QEMU; so much of its last is not seen."""
LIMIT = 2.0  # seconds of delay


def shop(directory: Path, seconds: float, rate: int) -> list[str]:
    source = str(files("streamer.demo") / "Shop.java")
    subprocess.run(["javac", "--release", "17", "-d", str(directory), source], check=True)
    return ["-cp", str(directory), "Shop", f"{seconds:g}", str(rate)]


PROGRAMS: dict[str, Callable[[Path, float], list[str]]] = {
    "shop": lambda directory, scale: shop(directory, 60 * scale, 60),
    "fop": lambda directory, scale: fop(directory, 0.3 * scale),
    "h2": lambda directory, scale: h2(directory, 0.2 * scale),
    "lucene": lambda directory, scale: lucene(directory, 0.1 * scale),
    "xint": lambda directory, scale: ["-Xint", *shop(directory, 30 * scale, 1_000_000)],
}


@dataclass(frozen=True)
class Lag:
    program: str
    seconds: float
    """Of the whole run, from the program's start on."""
    trace_bytes: int
    lost_bytes: int
    shed_bytes: int
    """Decoded, but not followed."""
    qemu_seconds: float
    start_seconds: float
    """CPU time of the pipeline until the program began: of each run the same."""
    cpu_seconds: dict[str, float]
    """… from then on, by part of the pipeline."""
    delays: dict[str, int]
    """Numbers of delays up to a bound in seconds (`+Inf` the last)."""

    @classmethod
    def of(cls, program: str, seconds: float, qemu_seconds: float, at_start: Mapping[str, float], ended: Ended) -> Lag:
        """`at_start`: CPU time of the parts of the pipeline when the program began. Raises ValueError where the program
        did not end well."""
        if ended.status or ended.summary.get("target_status") != 0:
            raise ValueError(f"{program} ended with {ended.status}: {ended.err[-2000:]}")
        return cls(
            program,
            seconds,
            ended.written,
            sum(ended.lost.values()),
            sum(s["shed"] for s in ended.summary["streams"]),
            qemu_seconds,
            sum(at_start.values()),
            {part: used - at_start.get(part, 0.0) for part, used in ended.summary["cpu_seconds"].items()},
            ended.summary["delays"],
        )

    @property
    def pipeline_seconds(self) -> float:
        """Without its start."""
        return sum(self.cpu_seconds.values())

    def quantile(self, q: float) -> float:
        """The least bound that a part q of the delays is within; infinity beyond the last, NaN without delays."""
        total = self.delays["+Inf"]
        return min((float(b) for b, n in self.delays.items() if n >= q * total), default=0.0) if total else float("nan")

    def within(self, seconds: float) -> float:
        """The part of all delays up to a bound."""
        return {float(b): n for b, n in self.delays.items()}[seconds] / max(1, self.delays["+Inf"])


def _emulators(streamer: Streamer) -> list[int]:
    return [pid for pid, line in streamer.processes().items() if "qemu" in line.partition(" ")[0]]


def _used(streamer: Streamer) -> dict[str, float]:
    """CPU seconds by group of members, as in the summary."""
    found = defaultdict[str, float](float, supervisor=cpu_seconds(streamer.process.pid))
    for member, pid in streamer.members().items():
        found[member.partition("/")[0]] += cpu_seconds(pid)
    return dict(found)


def measure(program: str, java: str, scale: float, options: list[str]) -> Lag:
    """Raises ValueError where the program did not end well."""
    with tempfile.TemporaryDirectory(prefix="lag-") as scratch:
        root = Path(scratch)
        command = [java, "-Xmx600m", *PROGRAMS[program](root, scale)]
        streamer = Streamer(
            root, "run", "--emulate", "--port", "0", "--summary", "summary.json", *options, "--", *command
        )
        try:
            began, used, at_start = 0.0, dict[int, float](), dict[str, float]()
            while streamer.process.poll() is None:
                used |= {pid: cpu_seconds(pid) for pid in _emulators(streamer)}
                if used and not began:
                    began, at_start = time.monotonic(), _used(streamer)
                if began and time.monotonic() > began + RUN_SECONDS:
                    break
                time.sleep(EVERY)
            seconds = time.monotonic() - began
            return Lag.of(program, seconds, sum(used.values()), at_start, streamer.wait(1))
        finally:
            streamer.end()


def _row(lag: Lag) -> tuple[str, ...]:
    return (
        lag.program, f"{lag.seconds:.0f}", f"{lag.trace_bytes / 1e6:.0f}", f"{lag.lost_bytes:,}",
        f"{lag.shed_bytes / max(1, lag.trace_bytes):.1%}", f"{lag.qemu_seconds:.1f}", f"{lag.pipeline_seconds:.1f}",
        ", ".join(f"{part} {used:.1f}" for part, used in lag.cpu_seconds.items()),
        f"{lag.qemu_seconds / lag.pipeline_seconds:.2f}", f"{lag.start_seconds:.1f}", f"≤ {lag.quantile(0.5):g} s",
        f"≤ {lag.quantile(0.99):g} s", f"{lag.within(LIMIT):.2%}",
    )  # fmt: skip


def table(found: list[Lag]) -> str:
    """Markdown."""
    head = ("program", "s", "trace, MB", "lost, B", "shed", "CPU s of QEMU", "of the pipeline", "by part",
            "QEMU/pipeline", "before, s", "delay, median", "p99", f"within {LIMIT:g} s")  # fmt: skip
    lines = [head, ("---", *["--:"] * (len(head) - 1)), *map(_row, found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _kernels() -> None:
    """That they are compiled is no part of a run."""
    settings = config.load(fidelity="flow")
    with tempfile.TemporaryDirectory() as directory:
        warm(middle(settings), Place(settings, Path(directory), 0))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lag", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--java", default="java")
    parser.add_argument("--json", type=Path)
    parser.add_argument("options", nargs="*", help="of `streamer run`, behind --")
    options = parser.parse_args()
    _kernels()
    found: list[Lag] = []
    failed = False
    for program in options.programs:
        try:
            found.append(measure(program, options.java, options.scale, options.options))
        except (OSError, ValueError, AssertionError, subprocess.CalledProcessError) as error:
            print(f"benchmarks.lag: {program}: {error}", file=sys.stderr)
            failed = True
            continue
        print(table(found[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps([asdict(lag) for lag in found], indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

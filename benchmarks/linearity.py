"""Whether the chain's cost is linear in bytes of trace, and its memory flat: the second table of docs/performance.md.

    python -m benchmarks.linearity [NAME=]RECORDING [--growing [NAME=]RECORDING] [--speed-up 15]  > table.md

`benchmarks.pipeline`, each row in a process of its own: 1, 2, 4 and 8 times the recording, as of so many processes
(`benchmarks.amount`); then the first 1/8, 1/4 and 1/2 and all of another (by default the same) recording, one process
that goes on. *Stages* is the memory by which the process grew within the stages.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from benchmarks.performance import measured, named

TIMES = (1, 2, 4, 8)
HEAD = ("trace", "MB", "CPU s", "MB/s", "stages, MB", "stages, MB a process", "longest step, ms")


def row(name: str, figures: Mapping[str, Any], processes: int = 1) -> str:
    parts = figures["parts"].values()
    size = sum(part["trace_bytes"] for part in parts) / 1e6
    seconds = sum(part["cpu_seconds"] for part in parts)
    stages = [stage for part in parts for stage in part["stages"].values()]
    memory = sum(stage["memory_bytes"] for stage in stages) / 1e6
    longest = max(stage["longest_ms"] for stage in stages)
    cells = (name, f"{size:.1f}", f"{seconds:.2f}", f"{size / seconds:.1f}", f"{memory:.0f}",
             f"{memory / processes:.0f}", f"{longest:.0f}")  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.linearity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", metavar="[NAME=]RECORDING")
    parser.add_argument("--growing", metavar="[NAME=]RECORDING")
    parser.add_argument("--speed-up", type=float, default=15.0, metavar="N", help="as in benchmarks.pipeline (15)")
    options = parser.parse_args()
    passed = ["--speed-up", str(options.speed_up)]
    (name, recording), (other, growing) = map(named, (options.recording, options.growing or options.recording))
    lines = [f"| {' | '.join(HEAD)} |", f"| --- {'| --: ' * (len(HEAD) - 1)}|"]
    with Console(stderr=True).status("measuring …"):
        try:
            for n in TIMES:
                figures = measured(recording, [*passed, "--copies", str(n)])
                lines.append(row(f"{n} × {name}", figures, n))
                print(lines[-1], file=sys.stderr)
            for n in reversed(TIMES):
                figures = measured(growing, [*passed, "--first", str(1 / n)])
                lines.append(row(f"the first 1/{n} of {other}" if n > 1 else f"all of {other}", figures))
                print(lines[-1], file=sys.stderr)
        except subprocess.CalledProcessError as error:  # it has said why
            sys.exit(error.returncode)
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""The table of docs/performance.md: `benchmarks.pipeline` on several recordings, each in a process of its own.

    python -m benchmarks.performance [--speed-up 15] [--steady MB] [NAME=]RECORDING …  > table.md

Each row is a recording and a part of it; the stages' columns are nanoseconds of CPU a byte of trace.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console


def measured(recording: Path, options: Sequence[str]) -> dict[str, Any]:
    """The figures of `benchmarks.pipeline --json`. Raises CalledProcessError."""
    words = [sys.executable, "-m", "benchmarks.pipeline", str(recording), *options, "--json"]
    figures: dict[str, Any] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return figures


def named(word: str) -> tuple[str, Path]:
    """Of `[NAME=]RECORDING`."""
    name, _, path = word.rpartition("=")
    return name or Path(path).stem, Path(path)


def rows(name: str, figures: Mapping[str, Any]) -> Iterable[list[str]]:
    """One of each part that has trace."""
    for part, of in figures["parts"].items():
        size = of["trace_bytes"]
        if not size:
            continue
        each = [f"{1e9 * stage['cpu_seconds'] / size:.1f}" for stage in of["stages"].values()]
        longest = max(stage["longest_ms"] for stage in of["stages"].values())
        branches = f"{of['branches'] / size:.1f}"
        yield [name, part, f"{size / 1e6:.1f}", branches, f"{of['mb_per_second']:.1f}", *each, f"{longest:.0f}"]


def table(measurements: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown; figures by name of their recording."""
    stages = list(next(iter(next(iter(measurements.values()))["parts"].values()))["stages"])
    head = ["recording", "part", "MB", "branches a byte", "MB/s", *stages, "longest step, ms"]
    lines = [head, ["---", "---", *["--:"] * (len(head) - 2)]]
    for name, figures in measurements.items():
        lines += rows(name, figures)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recordings", nargs="+", metavar="[NAME=]RECORDING")
    parser.add_argument("--speed-up", type=float, default=15.0, metavar="N", help="as in benchmarks.pipeline (15)")
    parser.add_argument("--steady", type=float, metavar="MB", help="as in benchmarks.pipeline")
    options = parser.parse_args()
    passed = ["--speed-up", str(options.speed_up), *(["--steady", str(options.steady)] if options.steady else [])]
    console = Console(stderr=True)
    found = {}
    for word in options.recordings:
        name, recording = named(word)
        with console.status(f"{recording} …"):
            try:
                found[name] = measured(recording, passed)
            except subprocess.CalledProcessError as error:  # it has said why
                sys.exit(error.returncode)
    print(table(found))


if __name__ == "__main__":
    main()

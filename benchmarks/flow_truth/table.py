"""The table in docs/flow-truth.md: real programs, JDKs, collectors, a small code cache, a late attach.

    python -m benchmarks.flow_truth.table [--programs fop h2 lucene sunflow] [--cases serial g1 parallel z …]
                                          [--jdk 17=PATH --jdk 25=PATH] [--scale X] [--keep DIR] [--markdown FILE]

Programs (Debian packages fop, libh2-java, liblucene8-java, sunflow): fop sets a long document, H2 runs a script of
joins and updates, Lucene indexes and searches, sunflow renders with four worker threads. Every case is one run of
`benchmarks.flow_truth`; rows are printed as they come.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import real_programs
from benchmarks.flow_truth import FlowTruthError, report
from benchmarks.flow_truth.evaluate import Evaluation
from benchmarks.flow_truth.record import record

JARS = Path("/usr/share/java")
SOURCES = Path(__file__).parent / "programs"


def _compiled(directory: Path, name: str, jars: list[str]) -> list[str]:
    path = ":".join(str(JARS / f"{jar}.jar") for jar in jars)
    subprocess.run(
        ["javac", "--release", "17", "-cp", path, "-d", str(directory), str(SOURCES / f"{name}.java")], check=True
    )
    return ["-Djava.awt.headless=true", "-cp", f"{path}:{directory}", name]


def lucene(directory: Path, scale: float) -> list[str]:
    jars = ["lucene-core-8.7.0", "lucene-analyzers-common-8.7.0"]
    return [*_compiled(directory, "Lucene", jars), str(round(1200 * scale))]


def sunflow(directory: Path, scale: float) -> list[str]:
    return [*_compiled(directory, "Render", ["sunflow", "janino"]), str(round(64 * scale**0.5)), "4"]


PROGRAMS: dict[str, Callable[[Path, float], list[str]]] = {
    "fop": real_programs.fop,
    "h2": real_programs.h2,
    "lucene": lucene,
    "sunflow": sunflow,
}


@dataclass(frozen=True)
class Case:
    what: str
    options: tuple[str, ...] = ()
    attach: float | None = None
    after: float = 0.0


CASES = {
    "serial": Case("Serial", ("-XX:+UseSerialGC",)),
    "g1": Case("G1", ("-XX:+UseG1GC",)),
    "parallel": Case("Parallel", ("-XX:+UseParallelGC",)),
    "z": Case("Z", ("-XX:+UseZGC",)),
    "shenandoah": Case("Shenandoah", ("-XX:+UseShenandoahGC",)),
    "small": Case("Serial, 5 MB of code cache", ("-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=5m")),
    "late": Case("G1, attached after 10 s, from 1 s later", ("-XX:+UseG1GC",), attach=10, after=1),
}
HEAD = "| program | JDK | | branches | MB | right | flagged | silent | rereading | MB/s |\n" + "|---" * 10 + "|"


def row(program: str, jdk: str, case: Case, f: dict[str, Any]) -> str:
    return (
        f"| {program} | {jdk} | {case.what} | {f['branches'] / 1e6:.0f} M | {f['bytes'] / 1e6:.0f} "
        f"| {f['right_share']:.4%} | {f['flagged_share']:.1e} | {f['silent_share']:.1e} "
        f"| {f['reread_cpu_share']:.1%} | {f['decode_mb_s']:.1f} |"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flow_truth.table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--jdk", action="append", metavar="NAME=PATH", help="default: 17=java of the PATH")
    parser.add_argument("--scale", type=float, default=1.0, help="of the programs' work")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep every run in a directory of its own in DIR")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    lines = [HEAD]
    print(HEAD)
    failed = 0
    for jdk in options.jdk or ["17=java"]:
        name, _, path = jdk.partition("=")
        java = str(Path(path) / "bin" / "java") if Path(path).is_dir() else path
        for program in options.programs:
            for key in options.cases:
                case = CASES[key]
                with tempfile.TemporaryDirectory(prefix="flow-truth-") as scratch:
                    kept = (options.keep or Path(scratch)) / f"{program}-{name}-{key}"
                    try:
                        words = [java, *case.options, *PROGRAMS[program](Path(scratch), options.scale)]
                        record(words, kept, attach_after=case.attach)
                        evaluation = Evaluation(kept, case.after)
                        figures = report.figures(evaluation.run, evaluation.evaluate())
                    except (FlowTruthError, OSError, subprocess.CalledProcessError) as error:
                        print(f"{program}, JDK {name}, {case.what}: {error}", file=sys.stderr)
                        failed = 1
                        continue
                    lines.append(row(program, name, case, figures))
                    print(lines[-1], flush=True)
                    if figures["jvm_status"]:
                        print(f"    the JVM ended with {figures['jvm_status']}", flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""The truth of a program: executed bytecodes and invocations by method.

    python -m benchmarks.accuracy [--jdk PATH] [--thread NAME] [--top N] [--json] [--keep DIR] -- JAVA_ARGS …

The program runs under -Xint with an agent that sees every bytecode, which takes long. It should be deterministic, and
of a single thread (`--thread main` counts that one).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.accuracy.counts import Counts, count
from benchmarks.accuracy.truth import TruthError, record


def figures(counts: Counts, top: int) -> dict[str, object]:
    bytecodes = counts.bytecodes()

    def rows(by: dict[int, int]) -> list[dict[str, object]]:
        heaviest = sorted(by, key=lambda method: -by[method])[:top]
        return [
            {"method": "{}.{}{}".format(*counts.methods[m]), "count": by[m]} for m in heaviest if m in counts.methods
        ]

    return {
        "bytecodes": sum(bytecodes.values()), "invocations": sum(counts.invocations.values()), "cut": counts.cut,
        "by_bytecodes": rows(bytecodes), "by_invocations": rows(counts.invocations),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        usage="python -m benchmarks.accuracy [options] -- JAVA_ARGS …",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jdk", metavar="PATH", help="a JDK's directory (default: java in PATH)")
    parser.add_argument("--thread", action="append", metavar="NAME", help="count these threads only")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="methods to show (default 10)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the logs in DIR, which is made")
    parser.add_argument("java", nargs="+", metavar="JAVA_ARGS")
    options = parser.parse_args(arguments)
    java = str(Path(options.jdk) / "bin" / "java") if options.jdk else "java"
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep or Path(scratch) / "truth"
        try:
            record([java, *options.java], directory)
            found = figures(count(directory, options.thread), options.top)
        except (TruthError, OSError) as error:
            print(f"accuracy: {error}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        if isinstance(value, list):
            print(f"{name}:", *(f"{row['count']:>16,}  {row['method']}" for row in value), sep="\n")
        else:
            print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

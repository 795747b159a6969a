"""How much of a JVM's executed code is decoded right, by kind of error.

    python -m benchmarks.flow_truth [--jdk PATH] [--json] [--after S] [--attach S] [--seconds S]
                                    [--keep DIR] -- JAVA_ARGS …
    python -m benchmarks.flow_truth [--json] [--after S] --from DIR

The JVM runs under the emulated PT, recorded at stock settings, with the emulator's truth beside it. Then the recording
is decoded as `streamer run --fidelity flow` does, and every block of code that ran in the code cache is looked up in
the decoder's output, thread by thread, in order:

    decoded right     handed on as observed, and it did run, there
    flagged           not handed on as observed, and said so: by the break's cause, or the hole it lies in
    silently wrong    handed on as observed, but something else ran; by where it went wrong (kind of code), the block
                      that ran and the decoded one, and how it ended

Blocks in inline-cache stubs count on neither side. Examples:

    python -m benchmarks.flow_truth -- -XX:+UseSerialGC -cp app.jar Main
    python -m benchmarks.flow_truth --jdk /usr/lib/jvm/java-25 --keep /tmp/run -- -jar app.jar
    python -m benchmarks.flow_truth --from /tmp/run                 the same run, decoded again
    python -m benchmarks.flow_truth --attach 10 --after 1 -- …      agent attached after 10 s, counted 1 s later

A program is 10 to 20 times slower under emulation. Truth and trace take about 15 bytes a branch on disk.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.flow_truth import FlowTruthError, report
from benchmarks.flow_truth.evaluate import Evaluation
from benchmarks.flow_truth.record import record


def _java(jdk: str | None) -> str:
    if jdk is None:
        return "java"
    path = Path(jdk)
    found = path if path.is_file() else path / "bin" / "java"
    if not found.is_file():
        raise FlowTruthError(f"{jdk} is no JDK: there is no {path / 'bin' / 'java'}")
    return str(found)


def _progress() -> Callable[[str], None]:
    """Says how far it is, twice a second, on a terminal."""
    if not sys.stderr.isatty():
        return lambda _: None
    last = 0.0

    def say(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > 0.5:
            last = time.monotonic()
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    return say


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flow_truth",
        usage="python -m benchmarks.flow_truth [options] -- JAVA_ARGS …",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jdk", metavar="PATH", help="a JDK's or JRE's directory, or its java (default: java in PATH)")
    parser.add_argument("--json", action="store_true", help="all figures, on standard output")
    late = "count only what ran S seconds after the start, or after the agent was attached"
    parser.add_argument("--after", type=float, default=0.0, metavar="S", help=late)
    parser.add_argument("--attach", type=float, metavar="S", help="start without the agent, attach it after S seconds")
    parser.add_argument("--seconds", type=float, metavar="S", help="end the JVM (SIGTERM) after S seconds")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="DIR", help="keep recording and truth in DIR, which is made")
    where.add_argument(
        "--from", type=Path, metavar="DIR", dest="kept", help="evaluate a run that was kept; no JVM runs"
    )
    parser.add_argument("java", nargs="*", metavar="JAVA_ARGS", help="as for java")
    options = parser.parse_args(arguments)
    if bool(options.kept) == bool(options.java):
        parser.error("give the arguments for java behind --, or a run that was kept with --from")
    for name in ("after", "attach", "seconds"):
        if (getattr(options, name) or 0) < 0:
            parser.error(f"--{name} must not be negative")
    say = _progress()
    try:
        with tempfile.TemporaryDirectory(prefix="flow-truth-") as scratch:
            directory = options.kept or options.keep or Path(scratch) / "run"
            if not options.kept:
                java = [_java(options.jdk), *options.java]
                record(java, directory, attach_after=options.attach, seconds=options.seconds, say=say)
            evaluation = Evaluation(directory, options.after)
            figures = report.figures(evaluation.run, evaluation.evaluate(say))
    except FlowTruthError as error:
        print(f"\nbenchmarks.flow_truth: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.json:
        json.dump(figures, sys.stdout, indent=1)
        print()
    else:
        print(report.text(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The fate of every byte of fop's trace, with nothing lost and with forced loss of each kind.

    python -m benchmarks.books [--cases NAME …] [--paragraphs N] [--json FILE] [--markdown FILE]

fop (Debian package) sets a document under the emulated PT, traced live, once for each case. In each the JVM must run
to its end with status 0 and the bytes written must be those decoded and those in holes, to the byte.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.real_programs import FOP_JARS, JARS
from tests.e2e.harness import TIMES_FULL, Ended, Streamer, until

RUN_SECONDS = 3600.0  # a run is given up after
FO = "http://www.w3.org/1999/XSL/Format"
WORDS = ("the quick brown fox jumps over a lazy dog while seven dwarfs count every byte", "of this long trace")


@dataclass(frozen=True)
class Case:
    what: str
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    meanwhile: Callable[[Streamer], None] = lambda _: None


def stop_capture(streamer: Streamer) -> None:
    """Until a ring has been full."""
    streamer.when_written(1 << 20)
    pid = streamer.pid("capture/0")
    os.kill(pid, signal.SIGSTOP)
    streamer.when_counter(TIMES_FULL, streamer.counter(TIMES_FULL) + 1)
    os.kill(pid, signal.SIGCONT)


def stop_worker(streamer: Streamer) -> None:
    """Until the socket to it has been full."""
    streamer.when_written(1 << 20)
    pid = streamer.pid("decode/0")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: streamer.component("capture/0")["statistics"]["stages"]["refused_bytes"], "a full socket")
    os.kill(pid, signal.SIGCONT)


def kill_worker(streamer: Streamer) -> None:
    streamer.when_written(1 << 20)
    streamer.kill("decode/0")


def kill_capture(streamer: Streamer) -> None:
    streamer.when_written(1 << 20)
    streamer.kill("capture/0")


ROOMY = {"STREAMER_TRANSPORT__HWM": "100000"}
CASES = {
    "plain": Case("nothing forced", env=ROOMY),
    "aux": Case("AUX rings of 64 KiB, capture stopped", ("--aux-kib", "64"), ROOMY, stop_capture),
    "ovf": Case("the processor writes 1 MB/s at most", ("--ovf-mb-s", "1"), ROOMY),
    "socket": Case("a socket for 1 message, worker stopped", (), {"STREAMER_TRANSPORT__HWM": "1"}, stop_worker),
    "worker": Case("kill -9 of the decode worker", (), ROOMY, kill_worker),
    "capture": Case("kill -9 of capture", (), ROOMY, kill_capture),
    "split": Case(
        "a ring a thread, 2 workers a stage, tcp",
        ("--per-thread", "--workers", "2", "--transport", "tcp", "--split", "segment", "--split", "attribute"),
        ROOMY,
    ),
    "inproc": Case("all in one process", ("--transport", "inproc"), ROOMY),
}


@dataclass(frozen=True)
class Result:
    case: str
    jvm_status: int
    streams: int
    written: int
    decoded: int
    lost: dict[str, int]
    holes: dict[str, int]
    unwritten: dict[str, int]
    restarts: int
    difference: int
    """Written − decoded − in holes; 0."""

    @classmethod
    def of(cls, case: str, ended: Ended) -> Result:
        summary: dict[str, Any] = ended.summary
        if not summary:
            raise SystemExit(f"{case}: {ended.err}")
        decoded = sum(s["decoded"] for s in summary["streams"])
        lost = sum(sum(s["holes"].values()) for s in summary["streams"])
        return cls(
            case,
            summary["target_status"],
            len(summary["streams"]),
            ended.written,
            decoded,
            ended.lost,
            ended.holes,
            summary["run"]["unwritten"],
            sum(summary["restarts"].values()),
            ended.written - decoded - lost,
        )


def document(path: Path, paragraphs: int) -> Path:
    """An XSL-FO document of so many paragraphs."""
    blocks = "".join(
        f"<fo:block space-after='4pt'>{i} {' '.join(WORDS[i % (2 + j) == 0] for j in range(10))}</fo:block>"
        for i in range(paragraphs)
    )
    path.write_text(
        f"<fo:root xmlns:fo='{FO}'><fo:layout-master-set><fo:simple-page-master master-name='p' page-width='21cm' "
        "page-height='29.7cm' margin='2cm'><fo:region-body/></fo:simple-page-master></fo:layout-master-set>"
        f"<fo:page-sequence master-reference='p'><fo:flow flow-name='xsl-region-body'>{blocks}</fo:flow>"
        "</fo:page-sequence></fo:root>"
    )
    return path


def measure(name: str, case: Case, paragraphs: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="books-") as directory:
        root = Path(directory)
        jars = ":".join(str(JARS / f"{jar}.jar") for jar in FOP_JARS)
        fop = ["-Djava.awt.headless=true", "-cp", jars, "org.apache.fop.cli.Main", "-q"]
        files = ["-fo", str(document(root / "in.fo", paragraphs)), "-pdf", str(root / "out.pdf")]
        options = ["--emulate", "--fidelity", "ip", "--port", "0", "--summary", "summary.json", *case.options]
        streamer = Streamer(root, "run", *options, "--", "java", *fop, *files, env=case.env)
        try:
            case.meanwhile(streamer)
            result = Result.of(name, streamer.wait(RUN_SECONDS))
            streamer.check_gone()
        finally:
            streamer.end()
        if result.jvm_status == 0 and not (root / "out.pdf").stat().st_size:
            raise SystemExit(f"{name}: fop made no PDF")
        return result


def markdown(results: list[Result]) -> str:
    lines = [
        "| case | written, B | decoded, B | in holes, B | holes | never written, B | restarts | JVM | difference |",
        "|---|--:|--:|---|---|---|--:|--:|--:|",
    ]
    for r in results:
        lost, holes, unwritten = (
            ", ".join(f"{n:,} {cause.replace('_', ' ')}" for cause, n in counts.items()) or "0"
            for counts in (r.lost, r.holes, r.unwritten)
        )
        lines.append(
            f"| {CASES[r.case].what} | {r.written:,} | {r.decoded:,} | {lost} | {holes} | {unwritten} | {r.restarts} "
            f"| {r.jvm_status} | {r.difference} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--paragraphs", type=int, default=20, help="length of the document")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    results = []
    for name in options.cases:
        results.append(measure(name, CASES[name], options.paragraphs))
        print(markdown(results[-1:]), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(results))
    sys.exit(any(r.difference or r.jvm_status for r in results))


if __name__ == "__main__":
    main()

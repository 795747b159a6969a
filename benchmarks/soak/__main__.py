"""Does anything grow? A live run in which classes, code and threads come and go, measured all the time.

    python -m benchmarks.soak [--minutes 20] [--java PATH] [--rate 10] [--json FILE] [-- OPTIONS of `streamer run`]
    python -m benchmarks.soak --judge FILE    an earlier measurement

A JVM with 5 MB of code cache (`Tide.java`) runs under the emulated PT. Every few seconds these are measured: each
number in the statistics of the hub and of every member, the files in the runtime directory (bytes and how many, by
name without digits), and the memory of every process. After a warm-up of a third of the time each has its verdict:

- a gauge that the configuration bounds (`bounds`) may not be beyond its bound, at any time. The benchmark sets the
  bounds that can be set, so that all is full when the warm-up ends; a gauge that still fills then is marked.
- of all others a robust slope may not rise beyond noise (`slopes`).
- the memory of a process rises and falls with its tables, so its slope is that from the least of each sixth of the time
  to the next. In 20 minutes a leak of 0.4 MB a minute is told, in 6 minutes one of 1.2 MB a minute.

The bytes written have to be those decoded and in holes at the end. If anything is wrong, the status is 1. Counters of
events since the start are no gauges: `COUNTERS` names them, and a new one has to be put there or be flat. Shown and not
judged is the memory of the emulated JVM, for QEMU keeps its translations until its buffer is full.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.soak.bounds import NAMES, beyond, bounds, environment
from benchmarks.soak.slopes import Trend, lasting, trend

EVERY = 5.0  # seconds
STARTUP = 400.0
FLOORS = {"memory": 4e6, "bytes": 1e6, "": 64.0}
JVM = ("-XX:ReservedCodeCacheSize=5m", "-XX:+UseSerialGC", "-Xmx64m")
COUNTERS = re.compile(
    r"""
    \.pid$ | cpu_seconds | \.(restarts|incarnation|failures)$ | \.(lag|age)
    | (sent|received|refused|dropped|missing|skipped|reopened)(_\w+)?$
    | \.(steps|panes|late_reports|expired_reports|trimmed_rows|folded_names)$
    | \.decode_(bytes|chunks|marks|skipped_bytes|losses_\w+|cut_packets|bytes_told_twice|unread_bytes)$
    | \.segment_(pieces|segments|switches|undated|unknown_thread_bytes|told_twice|settled_\w+)$
    | \.search_\w+$
    | \.cct_(holes|shared_holes|links|strange_returns|overflow|presumed\w*|rebuilt|not_profiled|stacks\w*)$
    | \.reconstruct_(stacks_\w+|unexplained_\w+)$ | \.recover_holes_\w+$
    | \.attribute_(bytes|addresses|unknown_addresses|time_jumps)$
    | \.(ready_pending_bytes|profile_instructions)$
    | \.follow_(bytes|shed_bytes|desync|code_missing)$
    | \.code_(loads|unloads|evicted|repeated|patches|patched|patches_nowhere|epoch|stale|unknown_\w+|healed_unloads
        |overflows|jit_dropped|bad_\w+)$
    | \.flow_(bytes|window_bytes|symbols|paths_taken|instructions|misses|context_misses|context_full|generations
        |code_changes|died|patches|trapped|suspect_\w+|break_\w+|cuts)$
    | \.(drained_bytes|refused_\w+|lost_records|truncated|reread_\w+|jit_bytes|jit_dropped_records|jit_replays
        |jit_compactions)$
    | ^hub\.(hub_received|refused_\w+)
    """,
    re.VERBOSE,
)


UNBALANCED = "THE BOOKS DO NOT BALANCE"
"""Of the summary (`streamer.views.summary`), where bytes written are not those decoded and in holes."""


def numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Every number in a JSON value, by its way."""
    match value:
        case bool():
            return
        case int() | float():
            yield name, float(value)
        case dict():
            for key, inner in value.items():
                yield from numbers(f"{name}.{_bare(str(key))}" if name else _bare(str(key)), inner)
        case list():
            yield f"{name}[]", float(len(value))


def _bare(name: str) -> str:
    """Without the numbers by which threads and processes are told apart."""
    return re.sub(r"\d{2,}", "N", name)


def _apart(name: str) -> bool:
    """It is to be judged: no counter of events."""
    return COUNTERS.search(name) is None and "JVM (emulated)" not in name


class Run:
    """`streamer run` on the churning JVM."""

    def __init__(self, root: Path, java: str, seconds: float, rate: int, options: list[str]) -> None:
        classes = root / "classes"
        here = Path(__file__).parent
        sources = [str(path) for path in here.glob("*.java")]
        subprocess.run(["javac", "--release", "17", "-d", str(classes), *sources], check=True)
        self.runtime, self._err = root / "rt", root / "err"
        self._mark = f"STREAMER_RUNTIME_DIR={self.runtime}".encode()
        command = [str(Path(sys.executable).with_name("streamer")), "run", "--emulate", "--port", "0", *options, "--"]
        command += [java, *JVM, "-cp", str(classes), "Tide"]
        command += [str(round(seconds)), str(rate), str(NAMES)]
        with self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=err, stderr=err, cwd=root,
                env={**environment(), **os.environ, "STREAMER_RUNTIME_DIR": str(self.runtime)},
            )  # fmt: skip

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def url(self) -> str:
        end = time.monotonic() + STARTUP
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"serving (http://\S+?)/? \(page\)", self.err)
            if found:
                return found[1]
            time.sleep(0.2)
        raise SystemExit(f"it did not start: {self.err}")

    def measure(self, url: str) -> dict[str, float]:
        found = defaultdict[str, float](float)
        try:
            with urllib.request.urlopen(f"{url}/api/statistics", timeout=30) as answer:
                said = json.loads(answer.read())
        except (OSError, urllib.error.URLError, ValueError):
            said = {}
        for member, status in said.pop("components", {}).items():
            for name, value in numbers("", status):
                found[f"{member}.{name}"] += value
        for name, value in numbers("hub", said):
            found[name] += value
        found.update(self._files())
        found.update(self._memory())
        return dict(found)

    def _files(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for path in self.runtime.rglob("*"):
            try:
                status = path.stat()
            except OSError:
                continue  # removed in between
            # a ring is as large as it is, however much of it was written yet
            size = status.st_size if path.suffix == ".ring" else status.st_blocks * 512
            name = re.sub(r"\d+", "N", path.relative_to(self.runtime).as_posix().split("/", 1)[-1])
            found[f"file {name}: bytes"] += size
            found[f"file {name}: how many"] += 1
        return found

    def _memory(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark not in (directory / "environ").read_bytes().split(b"\0"):
                    continue
                line = (directory / "cmdline").read_bytes().split(b"\0")
                pages = int((directory / "statm").read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue
            words = [Path(word.decode(errors="replace")).name for word in line[:8]]
            name = "JVM (emulated)" if "qemu" in words[0] else " ".join(w for w in words if not w.isdigit()).strip()
            found[f"memory of {name}"] += pages * os.sysconf("SC_PAGE_SIZE")
        return found

    def end(self) -> int:
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            return self.process.wait(120)


def judge(times: list[float], measured: list[dict[str, float]], warm_up: float) -> dict[str, Trend]:
    """Of every gauge, after the warm-up (minutes)."""
    names = {name for values in measured for name in values}
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for at, values in zip(times, measured, strict=True):
        if at >= warm_up:
            for name in names if values else ():
                if name in values or name.startswith("file "):  # a file that is not there has no bytes
                    series[name].append((at, values.get(name, 0.0)))
    found = {}
    for name, points in series.items():
        minutes, values_ = np.array(points).T
        if "memory" in name:
            found[name] = lasting(minutes, values_, FLOORS["memory"])
        else:
            found[name] = trend(minutes, values_, FLOORS["bytes" if "bytes" in name else ""])
    return found


def report(trends: Mapping[str, Trend], bounded: Container[str] = ()) -> list[str]:
    """Prints the series that move; returns those that grow, but for `bounded`."""
    growing = []
    print(f"{'':8}{'per minute':>14} {'rise':>14} {'noise':>14} {'last':>16}")
    for name, t in sorted(trends.items()):
        grows = t.grows and name not in bounded and _apart(name)
        if grows:
            growing.append(name)
        if grows or "memory" in name or (name.startswith("file") and t.rise):
            mark = "GROWS" if grows else ""
            print(f"{mark:8}{t.per_minute:14,.1f} {t.rise:14,.1f} {t.noise:14,.1f} {t.last:16,.1f}  {name}")
    return growing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--java", default="java")
    parser.add_argument("--rate", type=int, default=10, help="classes and threads a second")
    parser.add_argument("--json", type=Path, help="every measurement")
    parser.add_argument("options", nargs="*", help="of `streamer run`, behind --")
    parser.add_argument("--judge", type=Path, help="no run: what --json has kept of one")
    arguments = parser.parse_args()
    if arguments.judge:
        kept = json.loads(arguments.judge.read_text())
        return 1 if _verdict(kept["minutes"], kept["measured"], kept["minutes"][-1] / 3) else 0
    with tempfile.TemporaryDirectory(prefix="soak-") as root:
        run = Run(Path(root), arguments.java, 60 * arguments.minutes, arguments.rate, arguments.options)
        url = run.url()
        begin = time.monotonic()
        times: list[float] = []
        measured: list[dict[str, float]] = []
        while run.process.poll() is None and time.monotonic() - begin < 60 * arguments.minutes:
            time.sleep(EVERY)
            times.append((time.monotonic() - begin) / 60)
            measured.append(run.measure(url))
            if arguments.json:
                arguments.json.write_text(json.dumps({"minutes": times, "measured": measured}))
        status = run.end()
        said = run.err
    print("\n".join(said.splitlines()[-12:]))
    if status:
        print(f"`streamer run` ended with {status}")
    if UNBALANCED in said or "written" not in said:
        status = status or 1
        print("no balance of the bytes, or one that is none")
    return 1 if _verdict(times, measured, arguments.minutes / 3) or status else 0


def _verdict(times: list[float], measured: list[dict[str, float]], warm_up: float) -> list[str]:
    bound, trends = bounds(times, measured, warm_up), judge(times, measured, warm_up)
    growing = report(trends, bound)
    print(f"{len(growing)} of {len({n for m in measured for n in m})} numbers grow: {', '.join(growing) or 'none'}")
    return growing + beyond(bound, measured, trends)


if __name__ == "__main__":
    sys.exit(main())

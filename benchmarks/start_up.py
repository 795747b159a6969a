"""How soon after a JVM's start its first window is served, with kernels that are compiled and with none.

    python -m benchmarks.start_up [--turns N] [--cold N] [--java PATH] [--checkout DIRECTORY]
                                  [-- OPTIONS of `streamer run`]

Each turn runs the demo's shop under the emulated PT at default settings, and asks /metrics until a method has a share.
Its times are counted from the JVM's start (its process's, by the kernel), and from when the command was typed. A cold
turn has an empty kernel cache. `streamer --help` is timed beside it.

`--checkout` clones that one, without its environment, and times `make demo` there from typing it to its page: what is
installed is downloaded, so the network counts.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from benchmarks.lag import shop
from tests.e2e.harness import COMMAND, Streamer

PATIENCE = 300.0  # seconds
EVERY = 0.05  # between two looks
_SHARE = re.compile(r"^streamer_method_share_ratio\{[^}]*\} (\S+)$", re.MULTILINE)


class Start(NamedTuple):
    """Seconds."""

    jvm: float
    """From typing the command to the JVM's start."""
    window: float
    """From there to the first window."""


def _since_boot(pid: int) -> float:
    """When a process began (proc_pid_stat(5): starttime)."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(stat[19]) / os.sysconf("SC_CLK_TCK")


def measure(java: str, options: list[str], cold: bool) -> Start:
    """Raises AssertionError where `streamer` ends before its time, and TimeoutError where no window comes."""
    with tempfile.TemporaryDirectory(prefix="start-") as scratch:
        root = Path(scratch)
        command = [java, "-Xmx600m", *shop(root, PATIENCE, 60)]
        env = {"XDG_CACHE_HOME": str(root / "cache")} if cold else None
        typed, jvm = time.clock_gettime(time.CLOCK_BOOTTIME), 0.0
        streamer = Streamer(root, "run", "--emulate", "--port", "0", *options, "--", *command, env=env)
        try:
            while time.clock_gettime(time.CLOCK_BOOTTIME) < typed + PATIENCE:
                emulators = [pid for pid, line in streamer.processes().items() if "qemu" in line.partition(" ")[0]]
                if emulators and not jvm:
                    jvm = _since_boot(min(emulators))
                if jvm and any(float(share) > 0 for share in _SHARE.findall(streamer.get("/metrics"))):
                    return Start(jvm - typed, time.clock_gettime(time.CLOCK_BOOTTIME) - jvm)
                time.sleep(EVERY)
            raise TimeoutError(f"no window in {PATIENCE:.0f} s: {streamer.err}")
        finally:
            streamer.end()


def help_seconds(turns: int) -> float:
    """Of `streamer --help`, the median."""
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        subprocess.run([COMMAND, "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def demo_seconds(checkout: Path) -> float:
    """From typing `make demo` in a fresh clone to the first answer of its page. Raises TimeoutError, and
    CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="demo-") as scratch:
        clone = Path(scratch) / "clone"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", checkout, clone], check=True)
        env = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
        }
        env |= {"NUMBA_CACHE_DIR": f"{scratch}/numba", "XDG_CACHE_HOME": f"{scratch}/cache"}
        began = time.monotonic()
        make = subprocess.Popen(["make", "demo"], cwd=clone, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            while time.monotonic() < began + PATIENCE and make.poll() is None:
                try:
                    with urllib.request.urlopen("http://127.0.0.1:9464/", timeout=5) as page:
                        if page.status == 200:
                            return time.monotonic() - began
                except OSError:
                    time.sleep(EVERY)
            raise TimeoutError(f"no page in {time.monotonic() - began:.0f} s")
        finally:
            os.killpg(make.pid, signal.SIGTERM)
            make.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start_up", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cold", type=int, default=1)
    parser.add_argument("--java", default="java")
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("options", nargs="*", help="of `streamer run`, behind --")
    options = parser.parse_args()
    print("| kernels | JVM's start after typing, s | first window after the JVM's start, s |\n| --- | --: | --: |")
    for cold in (*[True] * options.cold, *[False] * options.turns):
        start = measure(options.java, options.options, cold)
        print(f"| {'to compile' if cold else 'compiled'} | {start.jvm:.1f} | {start.window:.1f} |", flush=True)
    print(f"\n`streamer --help`: {help_seconds(5):.2f} s")
    if options.checkout:
        print(f"`make demo` in a fresh clone: page after {demo_seconds(options.checkout):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

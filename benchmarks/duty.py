"""A CPU budget: whether it is kept, and whether shares lie within the intervals that are said of them.

    python -m benchmarks.duty intervals RECORDING [--draws 20] [--json]
    python -m benchmarks.duty budget [--seconds 150] [--budget 5 --budget 10 …] [--json] -- ARGS OF JAVA

`intervals`: the recording is decoded once, at full duty, in panes of 10 ms. From these, windows are drawn as
`capture.live.duty` draws them, at duties of 5, 10 and 25 %, and the shares of the 20 methods that are hottest at full
duty are estimated as the hub does it, for each window of 10 s: how often does the interval hold the share at full duty?
In each window the two hottest methods of any 10 s are compared as well, as an alert would: how often is the hottest the
hottest?

`budget`: the program is run under the emulated PT with each budget (percent of one CPU); the pipeline's spending in
each minute from the tenth second on, as a part of the budget. The machine should have a CPU to spare.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from capture.live.duty import Duty
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from stages.messages import PaneReport
from streamer import config
from streamer.hub import estimate
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from streamer.pipeline.warm import warm

FINE = 0.01
"""Seconds of a pane of `intervals`: windows of the duty cycle are whole numbers of them."""
DUTIES = (0.05, 0.10, 0.25)
WINDOW, PANE, HOTTEST = 10.0, config.WindowConfig().pane_seconds, 20
F64 = NDArray[np.float64]


def panes(recording: Path) -> list[Counter[str]]:
    """Instructions by method, of each pane of `FINE` seconds."""
    settings = config.load(fidelity="flow", **{"window.pane_seconds": FINE})
    found: dict[int, Counter[str]] = {}
    names: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as directory, Replay(recording) as replay:
        place = Place(settings, Path(directory), 0)
        stages = middle(settings)
        warm(stages, place)
        chain = make_chain(stages, place)
        outputs = [out for message in replay.messages() for out in feed_chain(chain, message)]
        for out in [*outputs, *flush_chain(chain)]:
            if isinstance(out, PaneReport):
                names.update(out.names)
                sums = found.setdefault(out.pane, Counter())
                for row in out.profile:
                    sums[names[int(row["method"])]] += int(row["instructions"])
    return [found.get(n, Counter()) for n in range(min(found), max(found) + 1)]


def drawn(seconds: float, share: float, rng: Random) -> NDArray[np.bool_]:
    """Which panes of `FINE` are traced."""
    duty = Duty(share, rng)
    return np.array([duty.at(k * FINE) for k in range(round(seconds / FINE))])


def intervals(table: list[Counter[str]], draws: int, seed: int) -> dict[str, dict[str, float]]:
    """By duty: the part of (window, method) whose interval holds the share, the mean half width of the hottest method's
    share and of all, the part of windows whose hottest method is found, and the number of windows."""
    rng, size, pane = Random(seed), round(WINDOW / FINE), round(PANE / FINE)
    result = {}
    for duty in DUTIES:
        inside, halves, first, found, windows = 0, [], [], 0, 0
        for start in range(0, len(table) - size + 1, size):
            of = table[start : start + size]
            whole = sum(of, Counter[str]())
            if not whole:
                continue
            hot = [name for name, _ in whole.most_common(HOTTEST)]
            weights = np.array([[p[name] for name in hot] for p in of], float)
            totals = np.array([p.total() for p in of], float)
            true = weights.sum(axis=0) / totals.sum()
            for _ in range(draws):
                on = drawn(WINDOW, duty, rng)
                parts = (weights * on[:, None]).reshape(-1, pane, len(hot)).sum(axis=1)
                sums = (totals * on).reshape(-1, pane).sum(axis=1)
                windows += 1
                if not sums.any():
                    continue
                half = estimate.half_widths(parts, sums, float(on.mean()))
                share = parts.sum(axis=0) / sums.sum()
                inside += int((np.abs(share - true) <= half).sum())
                halves += half.tolist()
                first.append(half[0])
                found += int(np.argmax(share)) == 0
        result[f"{duty:.0%}"] = {
            "inside": inside / max(1, len(halves)),
            "half_width": float(np.mean(halves)) if halves else 0.0,
            "half_width_of_hottest": float(np.mean(first)) if first else 0.0,
            "hottest_found": found / max(1, windows),
            "windows": windows,
        }
    return result


def spent(metrics: str) -> float:
    """CPU seconds of all members."""
    return sum(float(n) for n in re.findall(r"^streamer_cpu_seconds_total\{[^}]*\} (\S+)$", metrics, re.M))


def budget(percent: float, seconds: float, java: list[str]) -> dict[str, Any]:
    """The spending in each minute, in parts of the budget, and the mean duty."""
    command = [str(Path(sys.executable).with_name("streamer")), "run", "--emulate", "--port", "0", "--no-live",
               "--cpu-budget", f"{percent}%", "--", "java", *java]  # fmt: skip
    seen: list[tuple[float, float]] = []
    duties: list[float] = []
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < seconds + 120:
            time.sleep(1)
            log.seek(0)
            url = re.search(r"serving (http://\S+?)/? \(page\)", log.read())
            if url is None:
                continue
            try:
                with urllib.request.urlopen(f"{url[1]}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
            except OSError:
                continue
            part = re.search(r"^streamer_window_duty_ratio\{[^}]*10s[^}]*\} (\S+)$", text, re.M)
            if part is None or not re.search(r"^streamer_kernels_ready\{[^}]*\} 1.0$", text, re.M):
                continue
            seen.append((time.monotonic(), spent(text)))
            duties.append(float(part[1]))
        process.terminate()
    seen = [s for s in seen if s[0] >= seen[0][0] + 10] if seen else []
    minutes = [
        (b[1] - a[1]) / (b[0] - a[0]) / (percent / 100)
        for a in seen
        for b in [next((s for s in seen if s[0] >= a[0] + 60), None)]
        if b is not None
    ]
    if not minutes:
        raise ValueError("the program did not run for a minute and ten seconds")
    return {"budget_percent": percent, "least": min(minutes), "mean": float(np.mean(minutes)), "most": max(minutes),
            "duty": float(np.mean(duties)), "minutes": len(minutes)}  # fmt: skip


def show(title: str, rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.duty", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    of = commands.add_parser("intervals")
    of.add_argument("recording", type=Path)
    of.add_argument("--draws", type=int, default=20, help="of each window (20)")
    of.add_argument("--seed", type=int, default=1)
    live = commands.add_parser("budget")
    live.add_argument("--seconds", type=float, default=150, help="longest run of the program (150)")
    live.add_argument("--budget", type=float, action="append", help="percent of one CPU; repeatable (5, 10, 25)")
    live.add_argument("java", nargs="+")
    for each in (of, live):
        each.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        if options.command == "intervals":
            found = intervals(panes(options.recording), options.draws, options.seed)
            rows = [{"duty": name, **row} for name, row in found.items()]
        else:
            rows = [budget(percent, options.seconds, options.java) for percent in options.budget or (5, 10, 25)]
    except (OSError, PerfDataError, ValueError) as error:
        sys.exit(f"benchmarks.duty: {error}")
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        show(options.command, rows, Console(width=120))


if __name__ == "__main__":
    main()

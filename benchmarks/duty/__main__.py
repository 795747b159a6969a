"""A CPU budget: whether it is kept, and how sure and how soon the hub's figures are with less than all of the trace.

    python -m benchmarks.duty intervals RECORDING [--draws 20] [--json]
    python -m benchmarks.duty shift RECORDING METHOD [--draws 20] [--older 150] [--json]
    python -m benchmarks.duty budget [--seconds 150] [--budget 5 --budget 10 …] [--json] -- ARGS OF JAVA

`intervals` and `shift`: the recording is decoded once, at full duty, in panes of 10 ms. From these, windows are drawn
as `capture.live.duty` draws them, at duties of 5, 10 and 25 %.

`intervals`: the shares of the 20 methods that are hottest at full duty are estimated as the hub does it, for each
window of 10 s: how often does the interval hold the share at full duty? And how often is the hottest method the
hottest?

`shift`: METHOD becomes hot within the recording. In how many windows of 10 s from then on does the hub tell that it
gained most, and when does the shipped alert's condition hold? With `--older` the process runs for longer before that:
as long as its start-up is remembered (`streamer.hub.shift`, 150 s) a score is small, at any duty.

`budget`: the program is run under the emulated PT with each budget (percent of one CPU); the pipeline's spending in
each minute from the tenth second on, as a part of the budget. The machine should have a CPU to spare.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.duty.budget import budget
from benchmarks.duty.cut import panes
from benchmarks.duty.intervals import intervals
from benchmarks.duty.shift import aged, shifts
from capture.perf.perf_data import PerfDataError


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
    of, moves = commands.add_parser("intervals"), commands.add_parser("shift")
    for each, draws in ((of, "of each window (20)"), (moves, "of the whole recording (20)")):
        each.add_argument("recording", type=Path)
        each.add_argument("--draws", type=int, default=20, help=draws)
        each.add_argument("--seed", type=int, default=1)
    moves.add_argument("method", help="which becomes hot in the recording, as the hub shows it")
    moves.add_argument("--older", type=float, default=0, help="seconds of the time before the shift, played again (0)")
    moves.add_argument("--settled", type=float, default=15, help="when the program has started up (15)")
    live = commands.add_parser("budget")
    live.add_argument("--seconds", type=float, default=150, help="longest run of the program (150)")
    live.add_argument("--budget", type=float, action="append", help="percent of one CPU; repeatable (5, 10, 25)")
    live.add_argument("java", nargs="+")
    for each in (of, moves, live):
        each.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        if options.command == "budget":
            rows = [budget(percent, options.seconds, options.java) for percent in options.budget or (5, 10, 25)]
        else:
            table = panes(options.recording)
            if options.command == "shift":
                table = aged(table, options.method, options.settled, options.older)
                found = shifts(table, options.method, options.draws, options.seed)
            else:
                found = intervals(table, options.draws, options.seed)
            rows = [{"duty": name, **row} for name, row in found.items()]
    except (OSError, PerfDataError, ValueError) as error:
        sys.exit(f"benchmarks.duty: {error}")
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        show(options.command, rows, Console(width=120))


if __name__ == "__main__":
    main()

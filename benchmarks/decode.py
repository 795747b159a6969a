"""How fast the trace is decoded, against libipt, libxdc and perf, in one run.

    python -m benchmarks.decode RECORDING [--peers libipt,perf] [--libxdc PATH] [--rounds N] [--json]
    python -m benchmarks.decode RECORDING --exact 4 --repeat 25 …
    python -m benchmarks.decode TRACE --pages ADDR:DUMP --filter LO-HI [--noretcomp] [--repeat N] …

RECORDING is an output of `streamer record` (its .json or .perf.data): each AUX stream is decoded as one thread, over
the code as it was at the end. With --exact MB it is the longest part of it, up to so many MB, that one state of the
code explains (benchmarks/exact.py), with that code. With --pages, TRACE is raw packets and the code is a list of page
addresses and the pages.

Three rows of each contender, because trace seen before is fast to decode, here and with libxdc, which remembers the
targets of TNT bits, and less so with libipt, which remembers code alone:

    first pass      over bytes and code never seen (fresh tables, compiled kernels)
    unseen half     warmed on the trace up to a PSB near its middle, timed behind it: the figure to quote
    same again      bytes that were decoded before; --repeat lays the trace behind itself for this row and for packets

Contenders take turns, round after round, and CPU time is measured, so that a busy machine changes figures but not
ratios. libxdc (a libxdc.so, --libxdc) tells every edge, or fills its own bitmap of edges and tells nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import (
    AGAIN,
    FIRST,
    ROWS,
    UNSEEN,
    BenchmarkError,
    Case,
    Stream,
    from_pages,
    from_part,
    from_recording,
)
from benchmarks.peer_decoders import PEERS, Peers, perf_pass
from capture.perf.perf_data import PerfDataError
from stages.decode.stage import Decode
from stages.follow.flow import Flow
from stages.messages import Chunk, Decoded, Segment, StreamOpen, ThreadKey

CHUNK = 256 << 10


@dataclass
class Result:
    """CPU seconds of each round, by contender and row; the contender's counts."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, name: tuple[str, str], seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)


# -- us


def decoded(streams: list[Stream]) -> list[Segment]:
    """The pieces that the packet layer makes of each stream, each stream a thread."""
    decode = Decode()
    out: list[Segment] = []
    for stream in streams:
        thread = ThreadKey(stream.key.host, stream.key.pid, max(stream.key.cpu, stream.key.tid))
        continues = False  # a pass begins anew
        for message in packet_layer(decode, stream):
            if isinstance(message, Decoded):
                m = message
                end = int(m.marks["tsc"][-1]) if len(m.marks) else m.tsc
                out.append(Segment(thread, m.stream, 0, m.offset, m.data, m.marks, m.last_ip, m.tsc, end, continues))
                continues = True
    return out


def packet_layer(decode: Decode, stream: Stream) -> Iterable[object]:
    decode.feed(StreamOpen(stream.key, stream.config, None))  # type: ignore[arg-type]
    for seq, at in enumerate(range(0, len(stream.data), CHUNK)):
        yield from decode.feed(Chunk(stream.key, seq, at, stream.data[at : at + CHUNK]))


def packet_pass(case: Case) -> None:
    decode = Decode()
    for stream in case.parts[AGAIN]:
        for _ in packet_layer(decode, stream):
            pass


class OurFlow:
    """With fresh tables."""

    def __init__(self, case: Case, context: bool) -> None:
        self.flow = Flow(case.streams[0].config, context=context)
        self.flow.set_code(case.view)

    def __call__(self, segments: list[Segment]) -> float:
        """CPU seconds."""
        return timed(lambda: [self.flow.feed(segment) for segment in segments])


def timed(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


# -- the race


def race(case: Case, peers: list[str], rounds: int, directory: Path, libxdc: Path | None) -> Result:
    result = Result()
    segments = {part: decoded(streams) for part, streams in case.parts.items()}
    for context in (False, True):  # compile
        OurFlow(case, context)(segments[FIRST][:1])
    others = Peers(case, directory, libxdc) if "libipt" in peers or libxdc else None
    programs: dict[str, Callable[..., list[tuple[float, float, float, float]]]] = {}
    if others and "libipt" in peers:
        programs["libipt blocks"] = others.blocks
    if others and libxdc:
        programs["libxdc edges"], programs["libxdc bitmap"] = (
            partial(others.xdc, mode) for mode in ("edges", "bitmap")
        )
    for number in range(rounds):
        result.add(("packets", AGAIN), timed(lambda: packet_pass(case)))
        for name, context in (("flow", False), ("flow+context", True)):
            runner = OurFlow(case, context)
            result.add((name, FIRST), runner(segments[FIRST]))
            result.add((name, AGAIN), runner(segments[AGAIN]))
            runner = OurFlow(case, context)
            runner(segments["seen half"])
            result.add((name, UNSEEN), runner(segments[UNSEEN]))
            result.counts[name] = runner.flow.statistics()
        if others and "libipt" in peers:
            result.add(("libipt packets", AGAIN), others.packets()[0])
        for name, run in programs.items():
            first, again = run(FIRST, AGAIN)
            result.add((name, FIRST), first[0])
            result.add((name, AGAIN), again[0])
            result.add((name, UNSEEN), run("seen half", UNSEEN)[1][0])
            result.counts[name] = dict(zip(("items", "instructions", "errors"), first[1:], strict=True))
        if "perf" in peers:
            result.add(("perf script", FIRST), perf_pass(case))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return result


RATIOS = (
    ("libipt packets", "packets", AGAIN, 2.0),
    *(("libipt blocks", "flow", row, None) for row in ROWS),
    ("libipt blocks", "flow+context", FIRST, 3.0),
    ("libipt blocks", "flow+context", UNSEEN, 15.0),
    ("libipt blocks", "flow+context", AGAIN, None),
    *((f"libxdc {mode}", name, row, None) for mode in ("edges", "bitmap") for name in ("flow", "flow+context")
      for row in ROWS),
    ("perf script", "flow+context", FIRST, None),
)  # fmt: skip


def report(case: Case, result: Result) -> dict[str, Any]:
    contenders: dict[str, dict[str, Any]] = {}
    for (name, row), seconds in result.seconds.items():
        median, size, count = statistics.median(seconds), case.size[row], max(case.branches[row], 1)
        contenders.setdefault(name, {})[row] = {
            "mb_s": [size / max(s, 1e-9) / 1e6 for s in (max(seconds), median, min(seconds))],
            "ns_a_branch": [s / count * 1e9 for s in (min(seconds), median, max(seconds))],
        }
    ratios = []
    for peer, ours, row, bar in RATIOS:
        if (peer, row) in result.seconds:
            pairs = zip(result.seconds[peer, row], result.seconds[ours, row], strict=True)
            each = sorted(p / max(o, 1e-9) for p, o in pairs)
            times = [each[0], statistics.median(each), each[-1]]
            ratios.append({"ours": ours, "peer": peer, "row": row, "times": times, "bar": bar})
    return {
        "bytes": case.size,
        "branches": case.branches,
        "streams": len(case.streams),
        "contenders": contenders,
        "ratios": ratios,
        "counts": result.counts,
    }


def show(figures: dict[str, Any]) -> None:
    for row in ROWS:
        print(f"{row:12} {figures['bytes'][row] / 1e6:8.1f} MB {figures['branches'][row] / 1e6:8.1f} M branches")
    print(f"{figures['streams']} streams\n")
    print(f"{'CPU time (min, median, max)':32}{'MB/s':>24}{'ns a branch':>24}")
    for name, rows in figures["contenders"].items():
        for row, c in rows.items():
            cells = (f"{' '.join(f'{x:7.2f}' for x in c[k]):>24}" for k in ("mb_s", "ns_a_branch"))
            print(f"{name:18}{row:14}" + "".join(cells))
    print(f"\n{'times as fast (min, median, max)':56}{'':8}bar")
    for r in figures["ratios"]:
        name = f"{r['ours']} / {r['peer']}, {r['row']}"
        print(f"{name:48}{' '.join(f'{x:7.2f}' for x in r['times']):>24}  {r['bar'] or ''}")
    for name, counts in figures["counts"].items():
        print(f"{name}: " + ", ".join(f"{k} {v:.6g}" for k, v in counts.items() if v))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path, metavar="RECORDING")
    parser.add_argument("--peers", default="libipt", help="of " + ", ".join(PEERS))
    parser.add_argument("--libxdc", type=Path, metavar="PATH", help="a libxdc.so to race")
    parser.add_argument("--pages", metavar="ADDR:DUMP", help="TRACE is raw packets, and this the code")
    parser.add_argument("--filter", default="0-0", metavar="LO-HI", help="the IP filter, with --pages")
    parser.add_argument(
        "--exact", type=float, metavar="MB", help="the part of a JVM recording of which the code is known"
    )
    parser.add_argument("--noretcomp", action="store_true", help="return compression was off, with --pages")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    peers = [p for p in options.peers.split(",") if p]
    if set(peers) - set(PEERS):
        parser.error(f"peers are {', '.join(PEERS)}")
    try:
        if options.pages:
            lo, _, hi = options.filter.partition("-")
            ranges = int(lo, 0), int(hi or "0", 0)
            case = from_pages(options.trace, options.pages, ranges, options.repeat, options.noretcomp)
        elif options.exact:
            case = from_part(options.trace, round(options.exact * 1e6), options.repeat)
        else:
            case = from_recording(options.trace, options.repeat)
        with tempfile.TemporaryDirectory() as directory:
            figures = report(case, race(case, peers, options.rounds, Path(directory), options.libxdc))
    except (BenchmarkError, PerfDataError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"benchmarks.decode: {error}", file=sys.stderr)
        return 1
    if options.json:
        json.dump(figures, sys.stdout, indent=1)
        print()
    else:
        show(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

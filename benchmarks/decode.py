"""How fast the trace is decoded, against libipt and perf, in one run.

    python -m benchmarks.decode RECORDING [--peers libipt,perf] [--rounds N] [--json]
    python -m benchmarks.decode RECORDING --exact 4 --repeat 25 …
    python -m benchmarks.decode TRACE --pages ADDR:DUMP --filter LO-HI [--noretcomp] [--repeat N] …

RECORDING is what `streamer record` wrote (its .json or .perf.data): each AUX stream is decoded as one thread, over
the code as it was at the end. With --exact MB it is the longest part of it, up to so many MB, that one state of the
code explains (benchmarks/exact.py), with that code. With --pages, TRACE is raw packets and the code is a list of page
addresses and the pages; --repeat lays the trace behind itself.

Contenders take turns, round after round, and CPU time is measured, so that a busy machine changes figures but not
ratios. "Cold" is the first pass over code never seen (fresh tables, compiled kernels; libipt: a fresh image and block
cache); "warm" is a later pass in the same process.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import exact
from capture.perfdata import PerfDataError
from capture.replay import Replay
from jvm.codeimage import CodeImage
from jvm.codeview import CodeView
from jvm.kernels import kernel
from stages.decode import Decode
from stages.flow.code import Code, Image
from stages.flow.flow import Flow
from stages.flow.raw import addresses, u8_at
from stages.flow.size import size_of
from stages.messages import Chunk, Decoded, JitBatch, PtConfig, Segment, StreamKey, StreamOpen, ThreadKey

CHUNK = 256 << 10
PEERS = ("libipt", "perf")


class BenchmarkError(Exception):
    """Said in one line; exit status 1."""


class Stream(NamedTuple):
    key: StreamKey
    config: PtConfig
    data: NDArray[np.uint8]


@dataclass
class Case:
    streams: list[Stream]
    view: CodeView
    recording: Path | None = None
    size: int = 0
    branches: int = 0

    def __post_init__(self) -> None:
        self.size = sum(len(s.data) for s in self.streams)
        self.branches = sum(branches(s.data) for s in self.streams)
        if not self.size:
            raise BenchmarkError("there is no trace in it")


@dataclass
class Result:
    """CPU seconds of each round, by contender; what it counted."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)


@kernel
def _branches(where, end):  # type: ignore[no-untyped-def]
    data = u8_at(where[0])
    n, at = 0, 0
    while at < end:
        size = size_of(data, at, 0)
        b = data[at]
        if size == 0:
            size = 1
        elif b & 1 == 0 and b > 2:
            while b > 3:
                n += 1
                b >>= 1
        elif b == 2 and data[at + 1] == 0xA3:
            k = 7
            while data[at + k] == 0:
                k -= 1
            n += 8 * (k - 2) - 1
            b = data[at + k]
            while b:
                n += 1
                b >>= 1
        elif b & 0x1F == 0x0D:
            n += 1
        at += size
    return n


def branches(data: NDArray[np.uint8]) -> int:
    """TNT bits and TIPs."""
    padded = np.zeros(len(data) + 32, np.uint8)
    padded[: len(data)] = data
    return int(_branches(addresses(padded), len(data)))


# -- what is decoded


def from_pages(trace: Path, pages: str, ranges: tuple[int, int], repeat: int, noretcomp: bool) -> Case:
    address_file, _, dump_file = pages.partition(":")
    addresses = np.fromfile(address_file, dtype=np.uint64)
    dump = Path(dump_file).read_bytes()
    if not len(addresses) or len(dump) != 4096 * len(addresses):
        raise BenchmarkError(f"{dump_file}: not one page for each address in {address_file}")
    view = CodeView.of([(int(a), dump[4096 * i : 4096 * (i + 1)]) for i, a in enumerate(addresses)])
    data = np.fromfile(trace, dtype=np.uint8)
    while len(data) and data[-1] == 0x55:  # filler behind the last packet
        data = data[:-1]
    config = PtConfig(filter_lo=ranges[0], filter_hi=ranges[1], noretcomp=noretcomp)
    return Case([Stream(StreamKey("file", 1, 0, -1), config, np.tile(data, repeat))], view)


def from_recording(path: Path, repeat: int) -> Case:
    images: dict[int, CodeImage] = {}
    configs: dict[StreamKey, PtConfig] = {}
    parts: dict[StreamKey, list[NDArray[np.uint8]]] = {}
    with Replay(path) as replay:
        for message in replay.messages():
            match message:
                case StreamOpen():
                    configs[message.stream] = message.config
                case Chunk():
                    parts.setdefault(message.stream, []).append(np.array(message.data))
                case JitBatch():
                    images.setdefault(message.pid, CodeImage()).feed(message.data.tobytes(), message.tsc)
    if len(images) != 1:
        raise BenchmarkError(f"{path}: code of {len(images)} processes; this benchmark takes one")
    view = next(iter(images.values())).view()
    streams = [Stream(key, configs[key], np.tile(np.concatenate(data), repeat)) for key, data in parts.items() if data]
    data_file = path if path.suffix == ".data" else path.with_name(f"{path.stem}.perf.data")
    return Case(streams, view, data_file if data_file.exists() and repeat == 1 else None)


def from_part(path: Path, most: int, repeat: int) -> Case:
    part = exact.longest(path, most)
    if part is None:
        raise BenchmarkError(f"{path}: no part of {most / 8e6:.1f} MB of which the code is known")
    print(f"stream {part.stream.cpu}: {len(part.data) / 1e6:.2f} MB", file=sys.stderr)
    return Case([Stream(part.stream, part.config, np.tile(part.data, repeat))], part.code)


# -- us


def decoded(case: Case) -> list[Segment]:
    """The pieces that the packet layer makes of each stream, each stream a thread."""
    decode = Decode()
    out: list[Segment] = []
    for stream in case.streams:
        thread = ThreadKey(stream.key.host, stream.key.pid, max(stream.key.cpu, stream.key.tid))
        for message in packet_layer(decode, stream):
            if isinstance(message, Decoded):
                m = message
                end = int(m.marks["tsc"][-1]) if len(m.marks) else m.tsc
                out.append(Segment(thread, m.stream, 0, m.offset, m.data, m.marks, m.last_ip, m.tsc, end, bool(out)))
    return out


def packet_layer(decode: Decode, stream: Stream) -> Iterable[object]:
    decode.feed(StreamOpen(stream.key, stream.config, None))  # type: ignore[arg-type]
    for seq, at in enumerate(range(0, len(stream.data), CHUNK)):
        yield from decode.feed(Chunk(stream.key, seq, at, stream.data[at : at + CHUNK]))


def packet_pass(case: Case) -> None:
    decode = Decode()
    for stream in case.streams:
        for _ in packet_layer(decode, stream):
            pass


class OurFlow:
    def __init__(self, case: Case, segments: list[Segment], context: bool) -> None:
        self.flow = Flow(case.streams[0].config, context=context)
        self.flow.set_code(case.view)
        self.segments = segments
        self.packed = 0

    def __call__(self) -> None:
        for number, segment in enumerate(self.segments):
            if number == 0:  # a pass begins anew
                segment = replace(segment, continues=False)
            self.flow.feed(segment)


def timed(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


# -- peers


def build_libipt(directory: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchmarkError("libipt: no C compiler")
    program = directory / "libipt"
    source = Path(__file__).with_name("peers") / "libipt.c"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(source), "-lipt"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(
            f"libipt: {source.name} does not build (Debian: libipt-dev): {done.stderr.splitlines()[-1]}"
        )
    return program


class Libipt:
    """The C program over each stream, in files of its own."""

    GAP = 1 << 20  # blobs nearer than this share a section: few large ones are what libipt is fast on

    def __init__(self, case: Case, directory: Path) -> None:
        self.program = build_libipt(directory)
        self.case = case
        self.traces = []
        for n, stream in enumerate(case.streams):
            file = directory / f"stream{n}"
            stream.data.tofile(file)
            self.traces.append(file)
        self.image, self.sections = directory / "image", directory / "sections"
        image = Image()
        image.update(case.view)
        self._pack(image.code)

    def _pack(self, code: Code) -> None:
        lines: list[tuple[int, int, int]] = []
        with self.image.open("wb") as image:
            for start, end, at in zip(code.start.tolist(), code.end.tolist(), code.data_at.tolist(), strict=True):
                here = image.tell()
                if lines and start - (lines[-1][0] + lines[-1][2]) < self.GAP:
                    address, offset, size = lines.pop()
                    image.write(b"\xf4" * (start - address - size))  # HLT: nothing runs through it
                    lines.append((address, offset, end - address))
                else:
                    lines.append((start, here, end - start))
                image.write(code.code[at : at + end - start].tobytes())
        self.sections.write_text("".join(f"{a & (1 << 64) - 1:x} {o:x} {n:x}\n" for a, o, n in lines))

    def run(self, what: str, passes: int) -> list[tuple[float, dict[str, float]]]:
        """CPU seconds and counts of each pass over all streams."""
        sums = [(0.0, {"items": 0.0, "instructions": 0.0, "errors": 0.0}) for _ in range(passes)]
        config = self.case.streams[0].config
        more = [self.image, self.sections, f"{config.filter_lo:x}", f"{config.filter_hi:x}"]
        for trace in self.traces:
            command = [str(x) for x in (self.program, what, trace, passes, *(more if what == "blocks" else ()))]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
            lines = done.stdout.splitlines()
            if done.returncode or len(lines) != passes or "endless" in lines:
                raise BenchmarkError(f"libipt: {done.stderr.strip() or 'goes round in circles on this image'}")
            for k, line in enumerate(lines):
                seconds, items, instructions, errors = map(float, line.split())
                before, counts = sums[k]
                counts["items"] += items
                counts["instructions"] += instructions
                counts["errors"] += errors
                sums[k] = (before + seconds, counts)
        return sums


def perf_pass(case: Case) -> float:
    """perf script over the recording, asked for one sample in 10⁹ instructions: it decodes all and prints nothing."""
    if case.recording is None:
        raise BenchmarkError("perf: needs a recording (perf.data), once")
    perf = shutil.which("perf")
    if perf is None:
        raise BenchmarkError("perf: not installed (Debian: linux-perf)")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [perf, "script", "-i", str(case.recording), "--itrace=i1000000000i", "-F", "ip"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=3600,
    )
    if done.returncode:
        raise BenchmarkError(f"perf: {(done.stderr.splitlines() or ['failed'])[-1]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# -- the race


def race(case: Case, peers: list[str], rounds: int, directory: Path) -> Result:
    result = Result()
    segments = decoded(case)
    for context in (False, True):  # compile
        warm_up = OurFlow(case, segments[:1], context)
        warm_up()
    libipt = Libipt(case, directory) if "libipt" in peers else None
    cold: dict[str, OurFlow] = {}
    for number in range(rounds):
        result.add("packets", timed(lambda: packet_pass(case)))
        for name, context in (("flow", False), ("flow+context", True)):
            runner = OurFlow(case, segments, context)
            result.add(f"{name} cold", timed(runner))
            result.add(name, timed(runner))
            cold[name] = runner
        if libipt:
            (seconds, counts), *_ = libipt.run("packets", 1)
            result.add("libipt packets", seconds)
            result.counts["libipt packets"] = counts
            first, *later = libipt.run("blocks", 2)
            result.add("libipt blocks cold", first[0])
            result.add("libipt blocks", later[-1][0])
            result.counts["libipt blocks"] = later[-1][1]
        if "perf" in peers:
            result.add("perf script", perf_pass(case))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    for name, runner in cold.items():
        result.counts[name] = runner.flow.statistics()
    return result


RATIOS = (
    ("libipt packets", "packets", 2.0),
    ("libipt blocks", "flow", None),
    ("libipt blocks", "flow+context", 15.0),
    ("libipt blocks cold", "flow+context cold", 3.0),
    ("perf script", "flow+context cold", None),
)
NS_A_BRANCH = 3.0


def report(case: Case, result: Result) -> dict[str, Any]:
    contenders = {}
    for name, seconds in result.seconds.items():
        median = statistics.median(seconds)
        contenders[name] = {
            "mb_s": [case.size / s / 1e6 for s in (max(seconds), median, min(seconds))],
            "ns_a_branch": [s / case.branches * 1e9 for s in (min(seconds), median, max(seconds))],
        }
    ratios = {}
    for peer, ours, bar in RATIOS:
        if peer in result.seconds:
            each = sorted(p / o for p, o in zip(result.seconds[peer], result.seconds[ours], strict=True))
            ratios[f"{ours} / {peer}"] = {"times": [each[0], statistics.median(each), each[-1]], "bar": bar}
    return {
        "bytes": case.size,
        "branches": case.branches,
        "streams": len(case.streams),
        "contenders": contenders,
        "ratios": ratios,
        "counts": result.counts,
    }


def show(figures: dict[str, Any]) -> None:
    print(f"{figures['bytes'] / 1e6:.1f} MB, {figures['branches'] / 1e6:.1f} M branches, {figures['streams']} streams")
    print(f"{'CPU time (min, median, max)':32}{'MB/s':>24}{'ns a branch':>24}")
    for name, c in figures["contenders"].items():
        print(f"{name:32}" + "".join(f"{' '.join(f'{x:7.2f}' for x in c[k]):>24}" for k in ("mb_s", "ns_a_branch")))
    print(f"{'times as fast (min, median, max)':48}{'':8}bar")
    for name, r in figures["ratios"].items():
        print(f"{name:40}{' '.join(f'{x:7.2f}' for x in r['times']):>24}  {r['bar'] or ''}")
    for name, counts in figures["counts"].items():
        print(f"{name}: " + ", ".join(f"{k} {v:.6g}" for k, v in counts.items() if v))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path, metavar="RECORDING")
    parser.add_argument("--peers", default="libipt", help="of " + ", ".join(PEERS))
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
            figures = report(case, race(case, peers, options.rounds, Path(directory)))
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

"""How fast the trace is decoded, against libipt, libxdc and perf, in one run.

    python -m benchmarks.decode RECORDING [--peers libipt,perf] [--libxdc PATH] [--rounds N] [--json]
    python -m benchmarks.decode RECORDING --exact 4 --repeat 25 …
    python -m benchmarks.decode TRACE --pages ADDR:DUMP --filter LO-HI [--noretcomp] [--repeat N] …

RECORDING is what `streamer record` wrote (its .json or .perf.data): each AUX stream is decoded as one thread, over
the code as it was at the end. With --exact MB it is the longest part of it, up to so many MB, that one state of the
code explains (benchmarks/exact.py), with that code. With --pages, TRACE is raw packets and the code is a list of page
addresses and the pages.

Three rows of each contender, because what has been seen before is fast to decode, here and with libxdc, which remembers
what TNT bits led to, and less so with libipt, which remembers code alone:

    first pass      over bytes and code never seen (fresh tables, compiled kernels)
    unseen half     warmed on the trace up to a PSB near its middle, timed behind it: the figure to quote
    same again      bytes that were decoded before; --repeat lays the trace behind itself for this row and for packets

Contenders take turns, round after round, and CPU time is measured, so that a busy machine changes figures but not
ratios. libxdc (a libxdc.so, --libxdc) tells every edge, or fills its own bitmap of edges and tells nothing.
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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import exact
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from jvm.code.image import CodeImage
from jvm.code.snapshot import CodeView
from jvm.kernels import kernel
from stages.decode.stage import Decode
from stages.follow.code.code_copy import Code, Image
from stages.follow.flow import Flow
from stages.messages import Chunk, Decoded, JitBatch, PtConfig, Segment, StreamKey, StreamOpen, ThreadKey
from stages.pointers import addresses, load64, u8_at
from stages.pt.packets import TIP, TNT_8, TNT_64, find_psb, frozen, packet_at
from stages.pt.tnt import count, long_bits, short_bits

CHUNK = 256 << 10
PEERS = ("libipt", "perf")


class BenchmarkError(Exception):
    """Said in one line; exit status 1."""


class Stream(NamedTuple):
    key: StreamKey
    config: PtConfig
    data: NDArray[np.uint8]


FIRST, UNSEEN, AGAIN = "first pass", "unseen half", "same again"
ROWS = (FIRST, UNSEEN, AGAIN)


@dataclass
class Case:
    streams: list[Stream]
    view: CodeView
    recording: Path | None = None
    repeat: int = 1
    parts: dict[str, list[Stream]] = field(init=False)  # by row: what is timed; "seen half": what warms
    size: dict[str, int] = field(init=False)
    branches: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        halves = [_halves(stream) for stream in self.streams]
        again = [s._replace(data=np.tile(s.data, self.repeat)) for s in self.streams]
        self.parts = {FIRST: self.streams, AGAIN: again}
        self.parts |= {"seen half": [seen for seen, _ in halves], UNSEEN: [unseen for _, unseen in halves]}
        self.size = {row: sum(len(s.data) for s in self.parts[row]) for row in ROWS}
        self.branches = {row: sum(branches(s.data) for s in self.parts[row]) for row in ROWS}
        if not self.size[FIRST]:
            raise BenchmarkError("there is no trace in it")


def _halves(stream: Stream) -> tuple[Stream, Stream]:
    """Up to the first PSB in the second half, and from there; without one the second is empty."""
    data = stream.data
    at = int(find_psb(frozen(data), len(data) // 2, len(data)))
    at = len(data) if at < 0 else at
    return stream._replace(data=data[:at]), stream._replace(data=data[at:])


@dataclass
class Result:
    """CPU seconds of each round, by contender and row; what it counted."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, name: tuple[str, str], seconds: float) -> None:
        self.seconds.setdefault(name, []).append(seconds)


@kernel
def _branches(where, end):  # type: ignore[no-untyped-def]
    data = u8_at(where[0])
    n, at = 0, 0
    while at < end:
        kind, size = packet_at(data, at, 0)
        if kind == TNT_8:
            n += count(short_bits(np.int64(data[at])))
        elif kind == TNT_64:
            n += count(long_bits(load64(data, at)))
        elif kind == TIP:
            n += 1
        at += max(size, 1)
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
    return Case([Stream(StreamKey("file", 1, 0, -1), config, data)], view, None, repeat)


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
    streams = [Stream(key, configs[key], np.concatenate(data)) for key, data in parts.items() if data]
    data_file = path if path.suffix == ".data" else path.with_name(f"{path.stem}.perf.data")
    return Case(streams, view, data_file if data_file.exists() else None, repeat)


def from_part(path: Path, most: int, repeat: int) -> Case:
    part = exact.longest(path, most)
    if part is None:
        raise BenchmarkError(f"{path}: no part of {most / 8e6:.1f} MB of which the code is known")
    print(f"stream {part.stream.cpu}: {len(part.data) / 1e6:.2f} MB", file=sys.stderr)
    return Case([Stream(part.stream, part.config, part.data)], part.code, None, repeat)


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


# -- peers


def build(name: str, directory: Path, *libraries: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchmarkError(f"{name}: no C compiler")
    program = directory / name
    source = Path(__file__).with_name("peers") / f"{name}.c"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(source), *libraries], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"{name}: {source.name} does not build: {done.stderr.splitlines()[-1]}")
    return program


class Peers:
    """Other decoders' programs over each stream, in files of its own."""

    GAP = 1 << 20  # blobs nearer than this share a section: few large ones are what libipt is fast on

    def __init__(self, case: Case, directory: Path, libxdc: Path | None = None) -> None:
        self._case, self._library = case, libxdc
        self._libipt = build("libipt", directory, "-lipt")  # Debian: libipt-dev
        self._libxdc = build("libxdc", directory, "-ldl") if libxdc else None
        self._files: dict[str, list[Path]] = {}
        for number, (row, streams) in enumerate(case.parts.items()):
            self._files[row] = [directory / f"trace{number}.{n}" for n in range(len(streams))]
            for file, stream in zip(self._files[row], streams, strict=True):
                stream.data.tofile(file)
        self._image, self._sections = directory / "image", directory / "sections"
        image = Image()
        image.update(case.view)
        self._pack(image.code)

    def _pack(self, code: Code) -> None:
        lines: list[tuple[int, int, int]] = []
        with self._image.open("wb") as image:
            for start, end, at in zip(code.start.tolist(), code.end.tolist(), code.data_at.tolist(), strict=True):
                here = image.tell()
                if lines and start - (lines[-1][0] + lines[-1][2]) < self.GAP:
                    address, offset, size = lines.pop()
                    image.write(b"\xf4" * (start - address - size))  # HLT: nothing runs through it
                    lines.append((address, offset, end - address))
                else:
                    lines.append((start, here, end - start))
                image.write(code.code[at : at + end - start].tobytes())
        self._sections.write_text("".join(f"{a:x} {o:x} {n:x}\n" for a, o, n in lines))

    def packets(self) -> tuple[float, float]:
        """libipt's packet decoder: CPU seconds and packets."""
        seconds, packets, *_ = np.sum(
            [self._run(self._libipt, "packets", 1, file)[0] for file in self._files[AGAIN]], axis=0
        ).tolist()
        return seconds, packets

    def blocks(self, *rows: str) -> list[tuple[float, float, float, float]]:
        """libipt's block decoder over one row after the other: CPU seconds, blocks, instructions, errors of each."""
        return self._flow(rows, self._libipt, "blocks")

    def xdc(self, mode: str, *rows: str) -> list[tuple[float, float, float, float]]:
        """libxdc: CPU seconds, edges, 0, streams that it did not decode to their end."""
        assert self._libxdc is not None
        return self._flow(rows, self._libxdc, self._library, mode)

    def _flow(self, rows: tuple[str, ...], program: Path, *words: object) -> list[tuple[float, float, float, float]]:
        config = self._case.streams[0].config
        filters = f"{config.filter_lo:x}", f"{config.filter_hi:x}"
        each = [
            self._run(program, *words, len(rows), self._image, self._sections, *filters, *traces)
            for traces in zip(*(self._files[row] for row in rows), strict=True)
        ]
        return [tuple(row) for row in np.sum(each, axis=0).tolist()]

    @staticmethod
    def _run(program: Path, *words: object) -> list[list[float]]:
        done = subprocess.run(
            [str(x) for x in (program, *words)], capture_output=True, text=True, check=False, timeout=3600
        )
        lines = done.stdout.splitlines()
        if done.returncode or not lines or "endless" in lines:
            raise BenchmarkError(f"{program.name}: {done.stderr.strip() or 'goes round in circles on this image'}")
        return [[float(x) for x in line.split()] for line in lines]


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

"""The targets of the bytes. A target takes one input and raises (or dies) at anything that must not be: it must end,
stay within its buffers, account for every byte where it promises to, and refuse bytes that it cannot read by its own
exception.

Traces lie between fences (`tests.fuzz.fence`), and so do the tables of the flow kernels, which have no bounds of their
own to check.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

import streamer.demo
from capture.live.ring import PerfRing, RingError
from capture.perf.compressed import CompressedError, Unpacker
from capture.perf.perf_data import PerfDataError
from capture.perf.records import RecordError, parse
from capture.recording.export_reader import ExportReader
from capture.recording.replay import Replay
from jvm.code.image import CodeImage
from jvm.code.snapshot import CodeView
from jvm.export import records as export
from jvm.export import seal
from jvm.export.parse import iter_records, whole_records
from jvm.export.ring import RingReader, file_header
from stages.decode.stage import Decode
from stages.follow.cfg.block import PACKET_BLOCKS
from stages.follow.cfg.graph import Tables
from stages.follow.flow import Capacity, Flow
from stages.follow.walk import path_sequence as orders
from stages.follow.walk.segment_walk import Buffers, Thread
from stages.messages import Account, Chunk, Clock, PtConfig, StreamKey, StreamOpen
from stages.pt import packet_scan as ps
from stages.pt import packets as p
from streamer.transport.codec import CodecError, decode, decode_all, encode
from tests.capture import perfwriter
from tests.capture.session import Session
from tests.capture.test_recording import HIGH, LOW, example
from tests.flow.helpers import THREAD, segment
from tests.fuzz import fence, pt_fuzz
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Processor, program
from tests.pt.vectors import HARDWARE, VECTORS

MOST = 1 << 16  # bytes of an input
END = fence.HIGH if os.environ.get("FENCE", "high") == "high" else fence.LOW
KEY = StreamKey("h", 1, 0, -1)
DEMO = Path(streamer.demo.__file__).parent


class Target(NamedTuple):
    run: Callable[[bytes], None]
    corpus: Callable[[], list[bytes]]
    size: int  # of an input, at most


# ---- corpora


@cache
def traces() -> list[bytes]:
    """Intel's vectors and pieces of real traces, where they are; traces of made-up programs; every packet."""
    found = [file.read_bytes() for file in sorted(VECTORS.glob("*.pt"))]
    for name in ("foo", "mruby"):
        file = HARDWARE / name / "trace"
        if file.exists():
            data = file.read_bytes()
            found += [data[at : at + 600] for at in range(0, len(data), max(len(data) // 40, 600))]
    for seed in range(30):
        found.append(_made(seed)[1])
    rng = random.Random(5)
    found += [b"".join(f(rng.randrange(256), rng.randrange(256)) for f in pt_fuzz.FILLED) for _ in range(20)]
    return found


def _made(seed: int) -> tuple[bytes, bytes]:
    rng = random.Random(seed)
    code, instructions = program(rng, 40)
    processor = Processor(rng, instructions, bool(seed % 3))
    processor.run(150)
    return code, processor.trace


@cache
def exports() -> list[bytes]:
    """Records of the demo's JVM, some of each type."""
    packed = next(DEMO.glob("*.export.zst"))
    data = zstandard.ZstdDecompressor().decompress(packed.read_bytes())[64:]
    found: dict[int, list[bytes]] = {}
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from("<IH", data, at)
        kept = found.setdefault(kind, [])
        if len(kept) < 12 and size < 3000:
            kept.append(data[at : at + size])
        at += size
    return [*itertools.chain(*found.values()), *(b"".join(kept) for kept in found.values())]


@cache
def sealed_exports() -> list[bytes]:
    return [bytes(seal.sealed(records)) for records in exports()]


@cache
def compressed_events() -> list[bytes]:
    records = b"".join(perfwriter.comm(1, n, "x" * (n % 15), ns=n) for n in range(100))
    return [bytes([cut]) + zstandard.ZstdCompressor().compress(records) for cut in (0, 77, 128, 255)]


@cache
def recordings() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder) / "s")
        session.write_state(filter=[LOW, HIGH])
        run = example(session)
        run.finish()
        run.drain.close()
        return [(session.path / "rec/x.perf.data").read_bytes()]


@cache
def rings() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        producer = perfwriter.Producer(Path(folder) / "r")
        producer.records(perfwriter.comm(7, 7, "java", ns=900), perfwriter.lost(3), perfwriter.aux(0, 16))
        producer.trace(w.psb() + bytes(100), ns=1000)
        producer.close()
        data = (Path(folder) / "r").read_bytes()
    record = (
        perfwriter.comm(7, 7, "java", ns=900) + perfwriter.switch(1, 2) + perfwriter.mmap2(1, 1, 4096, 4096, "//anon")
    )
    return [data, record, data[1024:1120]]


@cache
def wires() -> list[bytes]:
    """Frames of the demo's messages, each behind its length."""
    found: list[bytes] = []
    kinds: set[str] = set()
    with Replay(DEMO / "shop.json") as replay:
        for message in itertools.islice(replay.messages(), 400):
            frames = [bytes(f) for f in encode(message, "capture", 7)]
            if type(message).__name__ not in kinds or sum(map(len, frames)) < 300:
                kinds.add(type(message).__name__)
                found.append(b"".join(len(f).to_bytes(3, "little") + f for f in frames)[:MOST])
    return found


# ---- targets

_TRACE = fence.Bytes(MOST, END)
_PACKETS = fence.zeros(64, ps.PACKET_DTYPE, END)


def packets(data: bytes) -> None:
    """The packet kernel, in chunks; the first byte says which errata and where it is cut."""
    if not data:
        return
    context = (p.SKD007 if data[0] & 1 else 0) | (p.SKZ84 if data[0] & 2 else 0)
    array = p.frozen(_TRACE.put(data[1:]))
    state = ps.scanner(context, synced=bool(data[0] & 4))
    at = expected = 0
    for end in (len(array) * (data[0] >> 3) // 31, len(array)):
        while True:
            n, at = ps.scan(array, at, max(end, at), 0, state, _PACKETS)
            offsets, sizes = _PACKETS["offset"][:n].tolist(), _PACKETS["size"][:n].tolist()
            for offset, size in zip(offsets, sizes, strict=True):
                assert expected - 16 < offset <= expected, "a gap between packets"
                expected = offset + size
            if n < len(_PACKETS):
                break
    assert expected == at <= len(array)


def events(data: bytes) -> None:
    """Event layer and exact flow."""
    pt_fuzz.one(data, _TRACE)


def _zeros(size: int, dtype: type[Any]) -> NDArray[Any]:
    return fence.zeros(size, dtype, END)


class _FencedFlow(Flow):
    """Every array that kernels see lies between fences."""

    def _use(self, tables: Tables, before: tuple[Tables, NDArray[np.int64]] | None = None) -> None:
        code = {"code", "blob_start", "blob_end", "blob_at"}  # changed by the image, in its own arrays
        fenced = {
            name: array if fence.is_fenced(array) and name not in code else fence.copy(array, END)
            for name, array in tables._asdict().items()
        }
        super()._use(Tables(**fenced))  # addresses of arrays that are new: none is as before

    def room(self, size: int) -> None:
        """Buffers as small as a trace of `size` bytes allows."""
        self._buffers = Buffers(size, size // 50 + 1, _zeros)
        if THREAD not in self._threads:
            self._threads[THREAD] = Thread(1, _zeros)


_SMALL = Capacity(int(4 * PACKET_BLOCKS), 4096, 4096, int(16 * PACKET_BLOCKS), 1 << 17, 256, 1024)


@cache
def _flow(seed: int) -> _FencedFlow:
    filter_ = (BASE + 40, BASE + 120) if seed & 4 else (0, 0)
    flow = _FencedFlow(
        PtConfig(filter_lo=filter_[0], filter_hi=filter_[1], noretcomp=seed % 3 == 0), context=bool(seed & 1),
        capacity=_SMALL,
    )  # fmt: skip
    code = _made(seed)[0]
    flow.set_code(CodeView.of([(BASE, code[: len(code) - seed % 5])]))  # the last instruction may be cut
    return flow


def flow(data: bytes) -> None:
    """The flow kernels; the first byte chooses the program."""
    if not data:
        return
    walker = _flow(data[0] % 16)
    walker.room(len(data) - 1)
    times = [(at, at + 1) for at in range(7, len(data) - 1, 50)]
    for output in walker.feed(segment(data[1:], times=times, tsc=(1, len(data)))):
        assert output.times.sum() == len(orders.paths(orders.plain(output.tables, output.observed)))
        assert (np.diff(output.breaks["order"]) >= 0).all()
        assert (output.breaks["offset"] <= len(data) - 1).all()
        assert (output.breaks["confirmed"] <= output.breaks["order"]).all()


def decode_stage(data: bytes) -> None:
    """The decode stage, in chunks that the first bytes cut: every byte is handed on or accounted for."""
    if len(data) < 4:
        return
    trace = data[3:]
    cuts = sorted({0, *(len(trace) * data[k] // 256 for k in range(3)), len(trace)})
    stage = Decode(64)
    out: list[object] = list(stage.feed(StreamOpen(KEY, PtConfig(6, 0x4E if data[0] & 1 else 0), Clock(1, 0, 0, 0))))
    for seq, (a, b) in enumerate(itertools.pairwise(cuts)):
        out += stage.feed(Chunk(KEY, seq, a, fence.copy(trace[a:b], END), (), 10))
    out += stage.flush()
    runs = sorted(_runs(out))
    assert sum(b - a for a, b in runs) == len(trace)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(runs))


def _runs(out: list[object]) -> Iterator[tuple[int, int]]:
    for message in out:
        if isinstance(message, Account):
            if message.end > message.start:
                yield message.start, message.end
        elif (data := getattr(message, "data", None)) is not None and len(data):
            offset = message.offset  # type: ignore[attr-defined]
            yield offset, offset + len(data)


def export_records(data: bytes) -> None:
    """The export parser, and the code image fed with its records."""
    with suppress(export.ExportError):
        for _ in iter_records(data):
            pass
    with suppress(export.ExportError):
        size = whole_records(data)
        assert 0 <= size <= len(data)
    for checked in (False, True):
        spans = seal.spans(data, checked)
        assert [0, *(span.end for span in spans)] == [*(span.start for span in spans), len(data)]
    image = CodeImage(100)
    image.feed(data)
    image.sites_of(np.array([0, 1 << 40, (1 << 64) - 1], np.uint64), np.array([0, 1 << 40, (1 << 64) - 1], np.uint64))
    view = image.view()
    assert (view.start < view.end).all()
    image.view(1 << 62)
    image.forget_before(1 << 63)
    image.statistics()


def export_file(data: bytes) -> None:
    """An export file, handed out in pieces as of a recording without notes: damage costs nothing but itself."""
    path = _file("fuzz.export", file_header(7) + data)
    reader = ExportReader(path)
    size = 0
    while len(records := reader.take_some(4096)):
        size += len(records)
        assert whole_records(records) == len(records)
    assert size <= len(data) + 40 * reader.damaged
    reader.rewind()
    records = reader.take(len(data))
    assert whole_records(records) == len(records)


def compressed(data: bytes) -> None:
    """Events that perf record -z packed, in pieces that the first byte cuts."""
    unpacker = Unpacker(len(data))
    cut = len(data) * data[0] // 256 if data else 0
    with suppress(CompressedError):
        for piece in (data[1:cut], data[max(cut, 1) :]):
            for event in unpacker.events(memoryview(piece)):
                assert len(event) == int.from_bytes(event[6:8], "little") >= 8


_FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def _file(name: str, data: bytes) -> Path:
    path = Path(_FOLDER.name) / name
    path.write_bytes(data)
    return path


def perf_data(data: bytes) -> None:
    """A perf.data file, read as a recording."""
    path = _file("fuzz.perf.data", data)
    try:
        with Replay(path) as replay:
            size = sum(len(m.data) for m in replay.messages() if isinstance(m, Chunk))
    except PerfDataError:
        return
    assert size <= len(data)


def ring_reader(data: bytes) -> None:
    """Rings of perf and of the agent, and the records in a data ring."""
    path = _file("fuzz.ring", data)
    with suppress(RingError):
        ring = PerfRing.open(path)
        try:
            with suppress(RingError):
                ring.take_aux(ring.aux_head(), 4096)
            with suppress(RingError, RecordError):
                parse(ring.take_records(), Clock(1, 0, 0, 0))
            with suppress(RingError):
                ring.time_conversion  # noqa: B018
        finally:
            ring.close()
    words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
    with suppress(RecordError):
        parse(words, Clock(perfwriter.MULT, perfwriter.SHIFT, 0, 0))
    with suppress(export.ExportError, OSError, ValueError), RingReader(path) as reader:
        reader.drain(4096)


def codec(data: bytes) -> None:
    """A message off the wire: frames, each behind its length."""
    frames = []
    at = 0
    while at + 3 <= len(data):
        size = int.from_bytes(data[at : at + 3], "little")
        frames.append(data[at + 3 : at + 3 + size])
        at += 3 + size
    with suppress(CodecError):
        message = decode(frames).message
        assert type(decode(encode(message)).message) is type(message)
    with suppress(CodecError):
        decode_all(frames)


TARGETS = {
    "packets": Target(packets, traces, 400),
    "events": Target(events, traces, 300),
    "flow": Target(flow, traces, 600),
    "decode": Target(decode_stage, traces, 1000),
    "export": Target(export_records, exports, 4000),
    "exportfile": Target(export_file, sealed_exports, 8000),
    "compressed": Target(compressed, compressed_events, 4000),
    "perfdata": Target(perf_data, recordings, 1 << 16),
    "ring": Target(ring_reader, rings, 1 << 15),
    "codec": Target(codec, wires, 1 << 14),
}

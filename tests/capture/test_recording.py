"""Recordings: every message comes out as it went in; perf reads them; nonsense is one clear error."""

from __future__ import annotations

import dataclasses
import re
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import trio
import trio.testing
import zstandard
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capture.live import ring
from capture.live.drain import Message
from capture.perf import perf_data as perfdata
from capture.perf.perf_data import PerfDataError, Reader
from capture.perf.records import RecordType
from capture.recording import metadata as notes
from capture.recording.packed import map_file, pack_file
from capture.recording.record import Recorder
from capture.recording.replay import Replay
from jvm.export.parse import iter_records
from jvm.export.ring import open_export
from stages.messages import (
    Chunk,
    Clock,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    OffDuty,
    PtConfig,
    Sideband,
    SideKind,
    StreamKey,
    StreamOpen,
)
from tests.capture import jitwriter
from tests.capture import perfwriter as w
from tests.capture.session import CPU0, PID, Session, of
from tests.narrowed import present

LOW, HIGH = 0x7F0000001000, 0x7F0000009000
PSB = bytes.fromhex("0282" * 8 + "0223")  # PSB, PSBEND


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path / "s")
    session.write_state(filter=[LOW, HIGH])
    yield session
    for drain in session.drains:
        drain.close()


def plain(message: Message) -> list[Any]:
    """Comparable: arrays as lists."""
    values = [getattr(message, field.name) for field in dataclasses.fields(message)]
    return [type(message).__name__, *(v.tolist() if isinstance(v, np.ndarray) else v for v in values)]


def replayed(path: Path) -> list[list[Any]]:
    with Replay(path) as replay:
        return [plain(message) for message in replay.messages()]


class Run:
    """Polls a session's drain into a recorder, and remembers the messages."""

    def __init__(self, session: Session, **options: Any) -> None:
        self.session = session
        self.drain = session.drain(**options)
        self.recorder = Recorder(session.path / "rec", "x", options={"argv": ["java"]}, reread_seconds=None)
        self.seen: list[Message] = []

    def poll(self) -> list[Message]:
        messages = self.drain.poll()
        for message in messages:
            self.recorder.write(message, self.drain.raw(message) if isinstance(message, Sideband) else None)
        self.seen += messages
        return messages

    def finish(self) -> Path:
        self.drain.stop()
        while not self.drain.ended:
            self.poll()
        return self.recorder.close()


def example(session: Session) -> Run:
    """Two CPUs, a thread that moves, code, a full AUX ring."""
    first, second, agent, run = session.ring("cpu0"), session.ring("cpu1"), session.agent(), Run(session)
    agent.write(jitwriter.dynamic_code(LOW + 16, b"\x90" * 100), jitwriter.thread_start(PID, "main"))
    first.records(w.comm(PID, PID, "java", ns=900), w.mmap2(PID, PID, LOW, HIGH - LOW, "//anon", ns=1000))
    first.records(w.itrace_start(PID, PID, ns=1001))
    for i in range(4):
        first.trace(PSB + bytes(i), ns=2000 + 10 * i)
        first.records(w.switch(PID, PID, out=True, ns=2001 + 10 * i))
        second.records(w.switch(PID, PID, ns=2002 + 10 * i, cpu=1))
        second.trace(PSB, ns=2003 + 10 * i)
        run.poll()
    agent.write(jitwriter.dynamic_code(LOW + 50, b"\xc3" * 4), jitwriter.dynamic_code(HIGH - 1, b"\xcc\xcc"))
    second.trace(PSB + bytes(2 * ring.PAGE), ns=3000)
    run.poll()
    second.trace(PSB, ns=4000)
    return run


def test_a_recording_gives_back_what_was_drained(session: Session) -> None:
    run = example(session)
    manifest = run.finish()
    assert replayed(manifest) == [plain(m) for m in run.seen]
    assert replayed(manifest.with_name("x.perf.data")) == [plain(m) for m in run.seen]
    with Replay(manifest) as replay:
        assert replay.options == {"argv": ["java"]}
        assert list(map(plain, replay.messages())) == list(map(plain, replay.messages()))  # again from the start


def test_the_jit_export_is_a_file_of_its_own_kind(session: Session) -> None:
    run = example(session)
    run.finish()
    sent = b"".join(m.data.tobytes() for m in of(JitBatch, run.seen))
    export = open_export(session.path / f"rec/x-{PID}.export")
    assert (export.pid, bytes(export.records)) == (PID, sent)


def test_the_code_is_an_elf_file(session: Session) -> None:
    example(session).finish()
    with (session.path / f"rec/x-{PID}.elf").open("rb") as file:
        elf = ELFFile(file)
        (segment,) = elf.iter_segments()
        assert (segment["p_vaddr"], segment["p_filesz"], elf.get_machine_arch()) == (LOW, HIGH - LOW, "x64")
        assert present(elf.get_section_by_name(".text"))["sh_addr"] == LOW
        code = segment.data()
    assert code[16:116] == b"\x90" * 34 + b"\xc3" * 4 + b"\x90" * 62
    assert (code[:16], code[-2:]) == (bytes(16), b"\0\xcc")


def test_what_was_refused_is_recorded_once_and_whole(session: Session) -> None:
    producer, agent, run = session.ring(), session.agent(), Run(session)
    agent.write(jitwriter.thread_start(1, "one"))
    for i in range(3):
        producer.records(w.switch(1, 1 + i))
        producer.trace(b"abc")
        for message in run.poll():
            run.drain.refused(message)
    with Replay(run.finish()) as replay:
        messages = list(replay.messages())
    assert b"".join(c.data.tobytes() for c in of(Chunk, messages)) == b"abc" * 3
    assert [c.losses for c in of(Chunk, messages)] == [(), (), (), ()]
    assert [m.seq for m in of(Sideband, messages)] == [0, 1, 2]
    assert len(of(JitBatch, messages)) == len(of(StreamOpen, messages)) == 1


def test_more_losses_than_a_note_holds(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "x")
    recorder.write(opened := StreamOpen(CPU0, *example_config()))
    losses = tuple(LossMark(i, Loss.AUX_FULL, 2**63, 2**64 - 1) for i in range(3500))
    chunk = Chunk(CPU0, 0, 5000, np.zeros(0, np.uint8), losses, 9)
    recorder.write(chunk)
    assert replayed(recorder.close())[:2] == [plain(opened), plain(chunk)]


def test_time_off_duty_comes_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "x")
    recorder.write(told := OffDuty("h", PID, 5, 2**63))
    assert replayed(recorder.close())[0] == plain(told)


def example_config() -> tuple[PtConfig, Clock]:
    return PtConfig(6, 142, LOW, HIGH, -1, 0, 0, True, True), Clock(w.MULT, w.SHIFT, -5, 7)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(("trace", "switch", "jit", "poll")), st.integers(0, 3000)), max_size=30))
def test_any_run_comes_back(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    session = Session(tmp_path_factory.mktemp("r") / "s")
    producer, agent = session.ring(), session.agent()
    run = Run(session, chunk_bytes=700)
    for step, n in steps:
        if step == "trace":
            producer.trace(bytes(n % 251 for _ in range(n)), ns=n)
        elif step == "switch":
            producer.records(w.switch(n, n + 1, ns=n, out=bool(n & 1)))
        elif step == "jit":
            agent.write(jitwriter.thread_start(n, "t" * (n % 50), n))
        else:
            run.poll()
    assert replayed(run.finish()) == [plain(m) for m in run.seen]
    run.drain.close()
    producer.close()
    agent.close()


def test_packed_files_are_found_and_read(session: Session) -> None:
    run = example(session)
    manifest = run.finish()
    expected = replayed(manifest)
    for name in ("x.perf.data", f"x-{PID}.export"):
        pack_file(manifest.with_name(name))
    assert replayed(manifest) == expected
    assert replayed(manifest.with_name("x.perf.data.zst")) == expected


def test_an_unfinished_recording_is_read_as_far_as_it_goes(session: Session) -> None:
    run = example(session)
    run.recorder.flush()
    copy = session.path / "copy"
    shutil.copytree(session.path / "rec", copy)
    seen = [plain(m) for m in run.seen]
    assert replayed(copy / "x.perf.data")[:-1] == seen
    data = (copy / "x.perf.data").read_bytes()
    (copy / "x.perf.data").write_bytes(data[:-5])  # inside the last event
    assert replayed(copy / "x.perf.data")[:-1] in (seen[:-1], seen[:-2])
    run.finish()


async def test_play_keeps_the_pace(session: Session, autojump_clock: trio.testing.MockClock) -> None:
    run = example(session)
    hz = of(StreamOpen, run.poll() + run.seen)[0].clock.hz
    manifest = run.finish()
    at: list[tuple[float, int]] = []

    async def send(message: Message) -> None:
        tsc = getattr(message, "tsc", 0)
        if tsc:
            at.append((trio.current_time(), tsc))

    with Replay(manifest) as replay:
        await replay.play(send, pace=2.0)
        assert at[-1][0] - at[0][0] == pytest.approx((at[-1][1] - at[0][1]) / hz / 2)
        start = trio.current_time()
        await replay.play(send)
        assert trio.current_time() == start


# ---- damaged and foreign files


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    session = Session(tmp_path_factory.mktemp("recorded") / "s")
    session.write_state(filter=[LOW, HIGH])
    run = example(session)
    run.finish()
    run.drain.close()
    return session.path / "rec"


def test_every_truncation_is_an_error_or_a_shorter_recording(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "r")
    path = tmp_path / "r/x.perf.data"
    data = path.read_bytes()
    for size in range(0, len(data), 61):
        path.write_bytes(data[:size])
        with pytest.raises(PerfDataError) as failure:
            replayed(path)
        assert "\n" not in str(failure.value)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_damaged_bytes_are_an_error_or_messages(recorded: Path, data: st.DataObject) -> None:
    good = (recorded / "x.perf.data").read_bytes()
    bad = bytearray(good)
    for at in data.draw(st.lists(st.integers(0, len(good) - 1), min_size=1, max_size=6)):
        bad[at] = data.draw(st.sampled_from((0, 1, 8, 0x7F, 0x80, 0xFF)))
    path = recorded / "bad.perf.data"
    path.write_bytes(bad)
    shutil.copy(recorded / f"x-{PID}.export", recorded / f"bad-{PID}.export")
    try:
        messages = replayed(path)
    except PerfDataError as error:
        assert str(path) in str(error) or ".export" in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert messages[-1][0] == "EndOfStream"


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_are_an_error(recorded: Path, data: bytes, magic: bool) -> None:
    path = recorded / "random.data"
    path.write_bytes(perfdata.MAGIC + data if magic else data)
    try:
        assert replayed(path) == [["EndOfStream", "replay:random.data"]]
    except PerfDataError as error:
        assert str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no manifest"),
        ("[]", "no manifest of a recording: no object in JSON"),
        ("{}", "no manifest of a recording: it has no 'version'"),
        ('{"version": 2}', "its version is 2, and 1 is known"),
        ("\udcff", "no manifest of a recording: it is no text"),
        ('{"version": 1, "exports": {}, "perf_data": "../../etc/passwd", "options": {}}', "no file name"),
        ('{"version": 1, "exports": {"x": "y"}, "perf_data": "x.perf.data", "options": {}}', "no manifest"),
        ("[" * 5000, "no manifest"),
    ],
)
def test_manifests_that_are_none(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "x.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(PerfDataError, match=what):
        Replay(tmp_path / "x.json")


def test_damaged_companions(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "r")
    manifest, export = tmp_path / "r/x.json", tmp_path / f"r/x-{PID}.export"
    whole = export.read_bytes()
    export.write_bytes(whole[:-8])
    with pytest.raises(PerfDataError, match="cut at"):
        replayed(manifest)
    export.write_bytes(b"x" * 100)
    with pytest.raises(PerfDataError, match="no JIT export"):
        replayed(manifest)
    export.write_bytes(whole)
    packed = pack_file(export)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(OSError, match=r"cut|no zstd file"):
        replayed(manifest)
    packed.write_bytes(b"junk")
    with pytest.raises(OSError, match="no zstd file"):
        replayed(manifest)


def test_damage_of_the_jit_export_is_told_and_left_out(recorded: Path, tmp_path: Path) -> None:
    """One record's size zeroed; the records before and after it are used, and so is the trace."""
    shutil.copytree(recorded, tmp_path / "r")
    manifest, export = tmp_path / "r/x.json", tmp_path / f"r/x-{PID}.export"
    good = replayed(manifest)
    bad = bytearray(export.read_bytes())
    bad[64:68] = bytes(4)
    export.write_bytes(bad)
    first = len(jitwriter.dynamic_code(0, b"\x90" * 100))
    line = re.escape(f"x-{PID}.export: a record cannot have the size 0: {first} bytes are damaged from byte 64 on")
    with Replay(manifest) as replay:
        told = replay.messages()
        messages = [next(told) for _ in good[:-1]]
        with pytest.raises(PerfDataError, match=f"{line}$"):
            next(told)
    assert [type(m).__name__ for m in messages] == [m[0] for m in good[:-1]]
    records = [[*iter_records(batch.data)] for batch in of(JitBatch, messages)]
    assert [[type(r).__name__ for r in batch] for batch in records] == [
        ["Overflow", "ThreadStart"],
        ["DynamicCode", "DynamicCode"],
    ]
    assert [batch.dropped for batch in of(JitBatch, messages)] == [1, 1]
    marks = [(chunk.offset, mark.cause) for chunk in of(Chunk, messages) for mark in chunk.losses]
    assert marks[0] == (0, Loss.JIT_LOST)
    assert [cause for _, cause in marks].count(Loss.JIT_LOST) == 1


def test_an_export_without_checksums_is_read_still(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "r")
    export = tmp_path / f"r/x-{PID}.export"
    good = [r for m in of(JitBatch, list(Replay(recorded / "x.json").messages())) for r in iter_records(m.data)]
    old = bytearray(export.read_bytes())
    old[8] = 1
    at = 64
    while at < len(old):
        old[at + 20 : at + 24] = bytes(4)
        at += int.from_bytes(old[at : at + 4], "little")
    export.write_bytes(old)
    with Replay(tmp_path / "r/x.json") as replay:
        assert [r for m in of(JitBatch, list(replay.messages())) for r in iter_records(m.data)] == good
    old[64:68] = bytes(4)  # the rest of the batch is lost, not of the file
    export.write_bytes(old)
    with Replay(tmp_path / "r/x.json") as replay, pytest.raises(PerfDataError, match="bytes are damaged from byte 64"):
        list(replay.messages())


def test_packed_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a size that is claimed nor one that shows only while it is unpacked."""
    path = tmp_path / "x.perf.data"
    path.write_bytes(bytes(1 << 20))
    packed = pack_file(path)
    assert len(map_file(packed)) == 1 << 20  # 20,000 times as much, but little
    with pytest.raises(OSError, match="more than 1000 bytes"):
        map_file(packed, most=1000)
    monkeypatch.setattr("capture.recording.packed.FREE", 1000)
    limit = 1000 + 1000 * packed.stat().st_size
    with pytest.raises(OSError, match=f"more than {limit} bytes"):
        map_file(packed)
    claims_nothing = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    assert zstandard.frame_content_size(claims_nothing) == -1
    packed.write_bytes(claims_nothing)
    with pytest.raises(OSError, match=r"more than \d+ bytes"):
        map_file(packed)


def test_a_file_without_notes_is_read_from_its_events(tmp_path: Path) -> None:
    """As perf record writes it: trace and records of two CPUs, TRUNCATED once."""
    config, clock = example_config()
    writer = perfdata.Writer(tmp_path / "f.data")
    writer.event(perfdata.Event.AUXTRACE_INFO, perfdata.auxtrace_info(config, clock, True, ""))
    for cpu in (0, 1):
        writer.records(w.itrace_start(7, 8 + cpu, ns=100, cpu=cpu) + w.record(9, bytes(40), b""))
        writer.records(w.aux(0, 1000, cpu, ns=200, cpu=cpu))
        data = np.full(300000, cpu, np.uint8)
        writer.auxtrace(data.data, 0, 450, cpu, -1, cpu)
    writer.records(w.switch(7, 8, ns=300, cpu=1) + w.aux(300000, 0, 1, ns=400, cpu=1))
    attr = perfdata.attribute(perfdata.PMU_TYPE, perfdata.pt_config_bits(config), 0x10087, 1 << 18)
    features = {perfdata.Feature.HOSTNAME: "box", perfdata.Feature.CPUID: "GenuineIntel,6,158,10"}
    writer.close([(attr, [1], "intel_pt//")], {name: perfdata.text_feature(text) for name, text in features.items()})
    with Replay(tmp_path / "f.data") as replay:
        messages = list(replay.messages())
    opened = of(StreamOpen, messages)
    assert [m.stream for m in opened] == [StreamKey("box", 0, 0, -1), StreamKey("box", 0, 1, -1)]
    assert opened[0].config[:2] == (6, 158)  # for the processor's errata
    assert opened[0].config.noretcomp
    assert opened[0].config.cyc
    assert opened[0].clock.zero == -5
    chunks = [(c.stream.cpu, c.seq, c.offset, len(c.data), c.losses) for c in of(Chunk, messages)]
    tsc = 2 * 405
    assert chunks == [
        (0, 0, 0, 262144, ()),
        (0, 1, 262144, 37856, ()),
        (1, 0, 0, 1000, ()),
        (1, 1, 1000, 262144, (LossMark(1000, Loss.AUX_FULL, 0, 2 * 205),)),
        (1, 2, 263144, 36856, ()),
        (1, 3, 300000, 0, (LossMark(300000, Loss.AUX_FULL, 0, tsc),)),
    ]
    kinds = [(m.stream.cpu, m.records["kind"].tolist()) for m in of(Sideband, messages)]
    assert kinds == [
        (0, [SideKind.ITRACE_START, SideKind.AUX]),
        (1, [SideKind.ITRACE_START, SideKind.AUX]),
        (1, [SideKind.SWITCH_IN, SideKind.AUX]),
    ]
    assert isinstance(messages[-1], EndOfStream)


# ---- perf as a peer


def perf(*arguments: str, cwd: Path) -> str:
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed (Debian: linux-perf)")
    result = subprocess.run(["perf", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode:
        raise AssertionError(result.stderr)
    return result.stdout


def counts(text: str) -> Counter[str]:
    return Counter(re.findall(r": PERF_RECORD_([A-Z0-9_]+)", text))


@pytest.mark.peer
def test_perf_reads_a_recording(recorded: Path) -> None:
    dump = perf("script", "-D", "-i", "x.perf.data", cwd=recorded)
    ours: Counter[str] = Counter()
    trace = 0
    with Reader(recorded / "x.perf.data") as reader:
        for event in reader.events():
            names = {65: "EVENT_TYPE", 70: "AUXTRACE_INFO", 71: "AUXTRACE", 79: "TIME_CONV"}
            ours[names.get(event.kind) or RecordType(event.kind).name] += 1
            trace += len(event.trace)
    assert counts(dump) == ours
    assert sum(int(size, 16) for size in re.findall(r"PERF_RECORD_AUXTRACE size: (0x[0-9a-f]+|0)", dump)) == trace
    assert len(re.findall(r"^\.  [0-9a-f]{8}:.* PSB$", dump, re.MULTILINE)) == 10
    assert f"filter 0x1000/0x8000@x-{PID}.elf" in dump
    maps = perf("script", "--show-mmap-events", "-i", "x.perf.data", cwd=recorded)
    assert len(re.findall(rf"\[{LOW:#x}\(0x8000\) @ 0x1000 .*x-{PID}\.elf", maps)) == 2
    header = perf("report", "--header-only", "-i", "x.perf.data", cwd=recorded)
    assert "contains AUX area data" in header
    assert "cpuid : GenuineIntel,6,142,0" in header


@pytest.mark.peer
@pytest.mark.parametrize("options", [["-e", "dummy"], ["-e", "cpu-clock"], ["-e", "dummy:u", "--switch-events"]])
def test_files_of_perf_record_are_read(tmp_path: Path, options: list[str]) -> None:
    try:
        perf("record", *options, "-o", "f.data", "--", "sh", "-c", "true | true", cwd=tmp_path)
    except AssertionError as error:
        pytest.skip(f"perf record is not permitted here: {str(error).splitlines()[0]}")
    dump = perf("script", "-D", "-F", "comm", "-i", "f.data", cwd=tmp_path)
    with Reader(tmp_path / "f.data") as reader:
        kinds = Counter(event.kind for event in reader.events())
        assert kinds[RecordType.COMM] == counts(dump)["COMM"] > 0
        assert kinds[RecordType.MMAP2] == counts(dump)["MMAP2"] > 0
        assert reader.sample_format.time
    assert [m[0] for m in replayed(tmp_path / "f.data")] == ["EndOfStream"]  # no trace in it


@pytest.mark.peer
def test_files_of_perf_record_z_are_read(tmp_path: Path) -> None:
    """Packed by the kernel's own tool; `perf script` says which events are in it."""
    try:
        perf("record", "-z", "-e", "dummy:u", "-o", "z.data", "--", "sh", "-c", "true | true", cwd=tmp_path)
    except AssertionError as error:
        pytest.skip(f"perf record is not permitted here: {str(error).splitlines()[0]}")
    dump = perf("script", "-D", "-F", "comm", "-i", "z.data", cwd=tmp_path)
    with Reader(tmp_path / "z.data") as reader:
        kinds = Counter(event.kind for event in reader.events())
    for kind in (RecordType.COMM, RecordType.MMAP2, RecordType.FORK, RecordType.EXIT):
        assert kinds[kind] == counts(dump)[kind.name] > 0


@pytest.mark.peer
def test_a_recording_after_perf_inject(recorded: Path, tmp_path: Path) -> None:
    """It leaves out our notes, and puts all trace before all records: the times say which belong where."""
    shutil.copytree(recorded, tmp_path / "r")
    perf("inject", "-b", "-i", "x.perf.data", "-o", "inj.perf.data", cwd=tmp_path / "r")
    shutil.copy(tmp_path / f"r/x-{PID}.export", tmp_path / f"r/inj-{PID}.export")
    with Reader(tmp_path / "r/inj.perf.data") as reader:
        order = [event.kind for event in reader.events() if event.kind in (perfdata.Event.AUXTRACE, RecordType.SWITCH)]
    assert order == sorted(order, reverse=True)
    with Replay(recorded / "x.json") as replay:
        good = list(replay.messages())
    with Replay(tmp_path / "r/inj.perf.data") as replay:
        messages = list(replay.messages())

    def trace(of_: list[Message]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for chunk in of(Chunk, of_):
            found[chunk.stream.cpu] = found.get(chunk.stream.cpu, b"") + chunk.data.tobytes()
        return found

    assert trace(messages) == trace(good)
    first = {type(m): n for n, m in reversed([*enumerate(messages)])}
    assert first[Sideband] < first[Chunk]
    reached = 0
    for message in messages:
        if isinstance(message, Chunk):
            reached = max(reached, message.tsc)
        elif isinstance(message, Sideband):
            assert (message.records["tsc"] >= reached).all()


def replayed_until_damage(path: Path) -> tuple[list[list[Any]], str]:
    """The messages, and the error for the damage at which they end."""
    messages: list[list[Any]] = []
    try:
        with Replay(path) as replay:
            messages += (plain(message) for message in replay.messages())
    except PerfDataError as error:
        return messages, str(error)
    return messages, ""


def test_no_damaged_byte_of_a_recording_goes_unseen(session: Session) -> None:
    """Whichever bytes of perf.data are damaged: the messages are as before, or the error says where."""
    manifest = example(session).finish()
    good = replayed(manifest)
    data = manifest.with_name("x.perf.data")
    whole = data.read_bytes()
    with Reader(data) as reader:
        events = [(event.offset, event.kind) for event in reader.events()]
    note_at = [at for at, kind in events if kind == perfdata.Event.HEADER_EVENT_TYPE]
    found = 0
    for at in range(events[0][0], events[-1][0] + 8, 11):
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        messages, told = replayed_until_damage(manifest)
        if told:
            where = re.search(r"at byte (\d+)", told)
            assert where is not None, told
            assert int(where[1]) >= max(place for place in [0, *note_at] if place <= at), told
            found += 1
        else:
            assert messages[:-1] == good[:-1], at
            assert messages[-1][0] == "EndOfStream"
    assert found > len(whole) // 44


@pytest.mark.parametrize("what", ["trace", "records", "a note"])
def test_damage_in_a_recording_has_its_place(session: Session, what: str) -> None:
    manifest = example(session).finish()
    data = manifest.with_name("x.perf.data")
    damaged = bytearray(data.read_bytes())
    with Reader(data) as reader:
        events = [(event.kind, event.offset, len(event.record), len(event.trace)) for event in reader.events()]
    kind = {"trace": perfdata.Event.AUXTRACE, "records": 12, "a note": perfdata.Event.HEADER_EVENT_TYPE}[what]
    at, size, trace = next(event[1:] for event in events if event[0] == kind)
    damaged[at + size + trace // 2 if trace else at + size - 9] ^= 1
    data.write_bytes(bytes(damaged))
    place = at if what != "records" else max(event[1] for event in events if event[0] == 65 and event[1] < at)
    text = "a damaged note" if what == "a note" else rf"the checksum of \d+ bytes of {what} is wrong"
    with pytest.raises(PerfDataError, match=rf"x\.perf\.data: {text} at byte {place}$"):
        replayed(manifest)


def test_a_note_that_is_missing_is_missed(session: Session) -> None:
    manifest = example(session).finish()
    data = manifest.with_name("x.perf.data")
    damaged = bytearray(data.read_bytes())
    with Reader(data) as reader:
        second = [event.offset for event in reader.events() if event.kind == perfdata.Event.HEADER_EVENT_TYPE][1]
    damaged[second] = 200  # an event of a type that perf does not know either
    data.write_bytes(bytes(damaged))
    with pytest.raises(PerfDataError, match="note 2 where note 1 should be at byte"):
        replayed(manifest)


def test_recordings_from_before_there_were_checksums(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their notes have another mark, no number, and no checksum of the bytes that follow."""
    expected = replayed(example(session).finish())

    def unsealed(note: notes.Note, number: int) -> bytes:
        sealed = pack(note, number)
        fields = msgpack.unpackb(sealed[notes.HEAD.size :], use_list=False)
        body: bytes = msgpack.packb(fields[:-1] if isinstance(note, notes.ChunkNote | notes.SideNote) else fields)
        return struct.pack("<8sI", b"JTSNOTE1", len(body)) + body

    pack = notes.pack
    monkeypatch.setattr(notes, "pack", unsealed)
    before = Session(session.path.parent / "before")
    before.write_state(filter=[LOW, HIGH])
    old = example(before)
    manifest = old.finish()
    old.drain.close()
    assert b"JTSNOTE2" not in manifest.with_name("x.perf.data").read_bytes()
    assert replayed(manifest) == expected

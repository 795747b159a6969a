"""JVMs under the emulated PT: libipt must find in the packets exactly the instructions that ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from capture.emulator.truth import Mark, Version
from capture.live.ring import PSB
from capture.perf.records import AuxFlag
from jvm import cbuild
from jvm.code.snapshot import CodeView
from stages.messages import SideKind
from stages.pt.exact.decoder import AddressFilter, FlowDecoder, Options
from stages.pt.exact.instructions import Instructions
from stages.pt.packets import TSC
from tests.emulator.cycles import times
from tests.emulator.harness import Run, Stream, emulate
from tests.jdks import JDKS
from tests.jdks import java as jdk
from tests.oracles import ipt

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]

XINT = ["-Xint", "-Xshare:auto"]


def java(classes: Path, *flags: str, n: int = 60) -> list[str]:
    return ["java", *flags, "-Xmx64m", "-cp", str(classes), "Ways", str(n)]


def books(run: Run) -> None:
    """The counters agree with each other, with the rings and with the truth."""
    assert run.config["state"] == "ended"
    assert run.config["unexplained"] == 0
    for stream in run.streams:
        assert stream.counters["aux_head"] == len(stream.trace)
        aux = stream.side[stream.side["kind"] == SideKind.AUX]
        assert aux["a"].tolist() == [0, *np.cumsum(aux["b"])[:-1].tolist()]  # the records join
        assert int(aux["b"].sum()) == len(stream.trace)
        assert int((aux["c"] & 1).sum()) == stream.counters["aux_full"]
        assert stream.counters["lost"] == 0
    ran = sum(len(thread.ran) for thread in run.truth.threads)
    assert sum(stream.counters["blocks"] for stream in run.streams) == ran


def same(run: Run, all_of_it: bool = True, least: int = 1_000_000) -> None:
    """libipt's flow is the truth's, of everything that was traced, at least so many instructions; `all_of_it`: that
    is everything that ran."""
    books(run)
    seen = run.compare()
    assert (seen.wrong_runs, seen.errors, seen.first) == (0, [], "")
    if all_of_it:
        ran = sum(int(run.truth.runs(i).instructions.sum()) for i in range(len(run.truth.threads)))
        assert seen.instructions == ran
    assert seen.instructions > least


@pytest.mark.peer
@pytest.mark.parametrize(
    "options",
    [{}, {"per_thread": True, "retcomp": False, "long_tnt": True}],
    ids=["per-cpu", "per-thread, no return compression, long TNT"],
)
def test_interpreter(classes: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    run = emulate(tmp_path, java(classes, *XINT), options)
    same(run)
    side(run)


@pytest.mark.peer
@pytest.mark.parametrize(
    "options",
    [{}, {"per_thread": True, "retcomp": False}],
    ids=["per-cpu", "per-thread, no return compression"],
)
def test_compilers(classes: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    run = emulate(tmp_path, java(classes, n=1500), {"psb_on_code_change": True, **options})
    assert any(version.changed for version in run.truth.code)
    same(run)


def compiled(name: str) -> str:
    """A program in C."""
    source = Path(__file__).with_name(f"{name}.c")
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    return str(cbuild.compiled(name, [source], [[cbuild.compiler(), *flags, str(source), "-o", "{out}"]]))


@pytest.mark.peer
@pytest.mark.parametrize("stream", ["old", "new"])
def test_a_thread_goes_on_in_code_that_its_stream_does_not_have(stream: str, plugin: Path, tmp_path: Path) -> None:
    """On a stream that says already that this code has changed; on a stream that does not say so yet."""
    run = emulate(tmp_path, [compiled("moved"), stream], {"psb_on_code_change": True})
    assert sum(version.changed for version in run.truth.code) == 1
    same(run, least=3)


@pytest.mark.peer
@pytest.mark.parametrize("options", [{}, {"per_thread": True}], ids=["cpu", "thread"])
def test_a_thread_comes_into_code_that_is_old_meanwhile(options: dict[str, Any], plugin: Path, tmp_path: Path) -> None:
    """It was on its way there when another one changed that code and ran it: of three hundred times now and then."""
    roomy = {"aux_kib": 1 << 18}  # a thread goes round until the other has had its turns
    run = emulate(tmp_path, [compiled("raced"), "300"], {"psb_on_code_change": True, **roomy, **options})
    assert sum(version.changed for version in run.truth.code) == 300
    same(run, least=1000)


@pytest.mark.peer
@pytest.mark.parametrize("version", JDKS[1:])
def test_newer_jdks(version: int, classes: Path, tmp_path: Path) -> None:
    argv = [jdk(version), *java(classes, n=1000)[1:]]
    run = emulate(tmp_path, argv, {"psb_on_code_change": True})
    same(run)


@pytest.mark.peer
def test_aux_area_full(classes: Path, tmp_path: Path) -> None:
    """A consumer that is too slow: pieces are missing, and the others are right."""
    run = emulate(tmp_path, java(classes, *XINT), {"aux_kib": 256}, slow_consumer=True)
    same(run, all_of_it=False)
    for stream in run.streams:
        assert bool(stream.counters["aux_full"]) == bool(stream.counters["aux_dropped"])
    assert sum(stream.counters["aux_full"] for stream in run.streams) > 2


@pytest.mark.peer
@pytest.mark.parametrize("options", [{}, {"per_thread": True}], ids=["cpu", "thread"])
def test_tracing_is_switched_off_and_on(classes: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """The trace there is right, a record says where the rest is missing, and nothing is written meanwhile."""
    run = emulate(tmp_path, java(classes, *XINT), options, duty=True)
    same(run, all_of_it=False)
    for stream in run.streams:
        aux = stream.side[stream.side["kind"] == SideKind.AUX]
        told = aux[aux["c"] & np.uint64(AuxFlag.OFF_DUTY) != 0]
        assert len(told) == stream.counters["offs"]
        assert stream.counters["off_dropped"] == 0 or len(told)
        off = np.sort(told["a"] + told["b"])
        for at in off[off < len(stream.trace)].tolist():  # it begins again with a PSB
            assert stream.trace[at : at + 16].tobytes() == PSB
    dropped = sum(stream.counters["off_dropped"] for stream in run.streams)
    written = sum(len(stream.trace) for stream in run.streams)
    assert sum(stream.counters["offs"] for stream in run.streams) > 4
    assert 0.2 < dropped / (dropped + written) < 0.8
    assert len(run.late) > 4
    assert max(run.late) < 100, run.late  # it is looked for each 16 bytes, behind a block


def test_strict_return_compression(classes: Path, tmp_path: Path) -> None:
    """Only a decoder that pops at every return can read it: ours, instruction by instruction."""
    run = emulate(tmp_path, java(classes, *XINT, n=1), {"retcomp_strict": True, "per_thread": True})
    books(run)
    assert not any(version.changed for version in run.truth.code)
    lo, hi = run.config["filter"]
    code = Instructions(CodeView.of(pages(run.truth.code)), 64)
    for stream in run.streams:
        decoder = FlowDecoder(stream.trace, code, Options(filters=(AddressFilter(lo, hi - 1),)))
        ips = np.concatenate([batch.ips.copy() for batch in decoder] or [np.zeros(0, np.uint64)])
        for region in run.truth.regions(stream.id):
            for piece in region.pieces:
                ran = run.truth.runs(*piece)
                behind = np.cumsum(ran.instructions)
                # It stops at the last packet, or walks on to the next one.
                assert abs(len(ips) - int(behind[-1])) < 1000
                whole = behind <= len(ips)
                first = (behind - ran.instructions)[whole]
                assert np.array_equal(ips[first], ran.start[whole])
                last = ips[behind[whole] - 1]
                assert ((last >= ran.start[whole]) & (last < ran.end[whole])).all()
    assert sum(int(run.truth.runs(i).instructions.sum()) for i in range(len(run.truth.threads))) > 1_000_000


def pages(code: list[Version]) -> list[tuple[int, bytes]]:
    """All code that was ever translated, by page."""
    found: dict[int, bytearray] = {}
    for version in code:
        for at, byte in enumerate(version.code, version.address):
            found.setdefault(at & ~4095, bytearray(4096))[at & 4095] = byte
    return [(address, bytes(page)) for address, page in found.items()]


def test_no_consumer(classes: Path, tmp_path: Path) -> None:
    """No reader: the JVM runs to its end, each area is filled once and stays so."""
    run = emulate(tmp_path, java(classes, *XINT), {"aux_kib": 64, "data_kib": 64})
    books(run)
    assert sum(stream.counters["aux_full"] for stream in run.streams) >= 1
    assert all(stream.counters["aux_full"] <= 1 and len(stream.trace) <= 64 << 10 for stream in run.streams)


@pytest.mark.peer
def test_overflow(classes: Path, tmp_path: Path) -> None:
    run = emulate(tmp_path, java(classes, *XINT), {"ovf_mb_s": 0.1, "per_thread": True})
    same(run, all_of_it=False, least=100_000)
    assert sum(stream.counters["overflows"] for stream in run.streams) > 2
    assert sum(stream.counters["ovf_dropped"] for stream in run.streams) > 0


@pytest.mark.peer
@pytest.mark.parametrize("options", [{}, {"mtc": 3}], ids=["TSC", "MTC"])
def test_times(classes: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """A packet's time by libipt is the time at which the emulator wrote it, at the same place of the program."""
    run = emulate(tmp_path, java(classes, *XINT, n=20), {"per_thread": True, **options})
    same(run)
    stream = max(run.streams, key=lambda each: len(each.trace))
    marked, at_instruction = _marks(run, stream)
    rows = ipt.decode(stream.trace, run.truth.code, run.ipt_config)
    counts = np.where(rows["kind"] == ipt.Kind.BLOCK, rows["count"], 0).astype(np.int64)
    behind = np.cumsum(counts)
    if not options:  # TSC packets alone: exact, from the block on that follows
        blocks = rows["kind"] == ipt.Kind.BLOCK
        after = np.searchsorted(behind[blocks], at_instruction, side="right")
        known = after < int(blocks.sum())
        assert (rows["time"][blocks][after[known]] == marked[known]).all()
        return
    ticks = rows["kind"] == ipt.Kind.TICK
    time, place = rows["time"][ticks].astype(np.int64), behind[ticks]
    assert len(time) > 1000
    crystal = run.config["ctc_num"] / run.config["ctc_den"]  # TSC ticks of a tick of the crystal clock
    period = crystal * (1 << options["mtc"])
    mark = np.minimum(np.searchsorted(marked, time - crystal), len(marked) - 1)
    late = marked[mark] - time
    assert (np.diff(time) >= 0).all()
    assert (late <= period + crystal).all()
    assert (np.abs(place - at_instruction[mark]) < 100).mean() > 0.95


def test_cycles(classes: Path, tmp_path: Path) -> None:
    """Counting cycles one arrives at each MTC and each TSC of a PSB+ when it comes, to the tick. A TSC on its own
    stands behind a pause in which the core slept."""
    mtc, run = 3, emulate(tmp_path, java(classes, *XINT, n=2), {"per_thread": True, "mtc": 3, "cyc": 1})
    books(run)
    stream = max(run.streams, key=lambda each: len(each.trace))
    marked, _ = _marks(run, stream)
    of = run.config
    for calibrate in (False, True):
        seen = times(stream.trace, mtc, of["ctc_num"], of["ctc_den"], of["cbr"], calibrate)
        late = seen.told - seen.estimated
        slept = (seen.kind == TSC) & ~seen.header
        wrong = late[~slept] != 0
        assert len(wrong) > 10_000
        assert int(wrong.sum()) <= (4 if calibrate else 0)  # before the first MTCs have told how fast the core is
        assert (late[slept] >= 0).all()
        assert set(seen.told[seen.kind == TSC].tolist()) <= set(marked.tolist())  # and those are when they were written


def _marks(run: Run, stream: Stream) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(TSC, instructions of the thread before it) of each time packet of a per-thread stream."""
    (thread,) = (each for each in run.truth.threads if (each.marks["stream"] == stream.id).any())
    marks = thread.marks[thread.marks["kind"] == Mark.TIME]
    before = np.concatenate(([0], np.cumsum(run.truth.blocks["instructions"][thread.ran].astype(np.int64))))
    return marks["tsc"].astype(np.int64), before[marks["index"].astype(np.int64)]


def side(run: Run) -> None:
    """The sideband names every thread before its bytes, in order of time."""
    lo, hi = run.config["filter"]
    for stream in run.streams:
        rows = stream.side
        assert (np.diff(rows["tsc"].astype(np.int64)) >= -1).all()  # ns and back
        maps = rows[rows["kind"] == SideKind.MMAP2]
        assert ((maps["a"] == lo) & (maps["b"] == hi - lo)).any()
        started = set(rows["tid"][rows["kind"] == SideKind.ITRACE_START].tolist())
        threads = [
            thread
            for thread in run.truth.threads
            if ((thread.marks["kind"] == Mark.COME) & (thread.marks["stream"] == stream.id)).any()
        ]
        assert started == {thread.tid for thread in threads}
        come = sorted(
            (int(mark["tsc"]), thread.tid)
            for thread in threads
            for mark in thread.marks
            if mark["kind"] == Mark.COME and mark["stream"] == stream.id
        )
        switched = rows[rows["kind"] == SideKind.SWITCH_IN]
        assert [tid for _, tid in come] == switched["tid"].tolist()
        assert (np.abs(np.array([tsc for tsc, _ in come]) - switched["tsc"].astype(np.int64)) < 10).all()

"""Intel PT of a session's JVM, against a kernel that is made up."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TypedDict

import pytest

from capture.live import perf_event
from capture.live.drain import Drain
from capture.live.hardware import SessionHardware
from capture.live.perf_event import HardwareError, HardwareSource
from capture.live.ring import PAGE
from capture.live.source import process_start
from stages.messages import Chunk, EndOfStream, Loss, OffDuty, PtConfig, StreamKey, StreamOpen
from tests.capture import jitwriter
from tests.capture.fakekernel import FakeKernel
from tests.capture.session import Plan, of

LOW, HIGH = 0x7F0000000000, 0x7F000F000000


class Sizes(TypedDict):
    data_size: int
    aux_size: int


SIZES: Sizes = {"data_size": PAGE, "aux_size": 4 * PAGE}


def key(tid: int) -> StreamKey:
    return StreamKey("h", os.getpid(), -1, tid, process_start(tid))


def threads() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


def drain(session: Path, *, per_cpu: bool = False) -> Drain:
    source = SessionHardware(session, "h", **SIZES, per_cpu=per_cpu)
    return Drain(session, host="h", source=source, reread_share=0)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    (tmp_path / "s").mkdir()
    return tmp_path / "s"


@pytest.fixture
def agent(session: Path) -> jitwriter.Agent:
    return jitwriter.Agent(session / f"jit-{os.getpid()}.ring", os.getpid())


def tell_code_cache(agent: jitwriter.Agent) -> None:
    agent.write(jitwriter.thread_start(1, "main"), jitwriter.code_cache(LOW, HIGH))


@pytest.mark.parametrize("takes_filters", [True, False])
def test_a_jvm_is_traced_when_it_has_told_where_its_code_is(
    session: Path, agent: jitwriter.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_filters: bool
) -> None:
    kernel = FakeKernel(**SIZES, takes_filters=takes_filters, code=(LOW, HIGH))
    kernel.install(monkeypatch, tmp_path / "pmu")
    drained = drain(session)
    agent.write(jitwriter.thread_start(0, "early"))
    messages = [*drained.poll(), *drained.poll()]
    assert of(StreamOpen, messages) == []
    tell_code_cache(agent)
    messages = [*drained.poll(), *drained.poll()]
    assert {m.stream for m in of(StreamOpen, messages)} == {key(tid) for tid in threads()}
    assert {(m.offset, len(m.data)) for m in of(Chunk, messages)} == {(0, kernel.trace_size)}
    enabled = [event for event in kernel.events.values() if event.enabled]
    assert {event.filter for event in enabled} == {(LOW, HIGH) if takes_filters else None}
    assert {event.kernel_too for event in enabled} == {takes_filters}  # else it would trace the kernel as well
    config = of(StreamOpen, messages)[0].config
    assert (config.filter_lo, config.filter_hi) == ((LOW, HIGH) if takes_filters else (0, 0))
    assert drained.heads() == {key(tid): kernel.trace_size for tid in threads()}
    drained.stop()
    while not drained.ended:
        messages += drained.poll()
    assert of(EndOfStream, messages)
    drained.close()


def test_a_cpu_each(session: Path, agent: jitwriter.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeKernel(**SIZES).install(monkeypatch, tmp_path / "pmu")
    drained = drain(session, per_cpu=True)
    tell_code_cache(agent)
    messages = [*drained.poll(), *drained.poll()]
    assert {m.stream for m in of(StreamOpen, messages)} == {
        StreamKey("h", os.getpid(), cpu, -1) for cpu in os.sched_getaffinity(0)
    }
    drained.close()


def test_threads_that_come_later(
    session: Path, agent: jitwriter.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeKernel(**SIZES).install(monkeypatch, tmp_path / "pmu")
    drained = drain(session)
    tell_code_cache(agent)
    drained.poll(), drained.poll()
    stop = threading.Event()
    late = threading.Thread(target=stop.wait)
    late.start()
    try:
        assert [m.stream.tid for m in of(StreamOpen, drained.poll())] == [late.native_id]
    finally:
        stop.set()
        late.join()
        drained.close()


def test_after_a_restart_streams_go_on_where_they_were(
    session: Path, agent: jitwriter.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events died with the process: new ones begin at 0, the streams do not."""
    kernel = FakeKernel(**SIZES)
    kernel.install(monkeypatch, tmp_path / "pmu")
    tell_code_cache(agent)
    first = drain(session)
    first.poll(), first.poll()
    first.close()
    second = drain(session)
    messages = [*second.poll(), *second.poll()]
    size = kernel.trace_size
    assert {(m.offset, len(m.data), m.losses[0].cause) for m in of(Chunk, messages)} == {
        (size, size, Loss.CAPTURE_DOWN)
    }
    assert set(second.heads().values()) == {2 * size}
    second.close()


def test_what_the_kernel_refuses(
    session: Path, agent: jitwriter.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = FakeKernel(**SIZES)
    kernel.install(monkeypatch, tmp_path / "pmu")
    tell_code_cache(agent)
    drained = drain(session)
    drained.poll()
    for number, words in [
        (errno.EACCES, "perf_event_paranoid"), (errno.EPERM, "CAP_PERFMON"), (errno.EBUSY, "in use"),
        (errno.EMFILE, "ulimit"), (errno.ENODEV, "No such device"),
    ]:  # fmt: skip
        kernel.refuses = number
        with pytest.raises(HardwareError, match=words):
            perf_event.check()
        with pytest.raises(HardwareError, match=words):
            drained.poll()
    drained.close()


def test_a_jvm_that_is_gone_before_it_can_be_traced(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = FakeKernel(**SIZES, refuses=errno.ESRCH)
    kernel.install(monkeypatch, tmp_path / "pmu")
    tell_code_cache(jitwriter.Agent(session / f"jit-{2**22 + 1}.ring", 2**22 + 1))
    drained = drain(session)
    messages = [*drained.poll(), *drained.poll(), *drained.poll()]
    assert isinstance(messages[-1], EndOfStream)
    drained.close()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (-1, 0, 0)),
        ({"caps__mtc": "1\n", "caps__mtc_periods": "249\n", "tsc_art_ratio": "204:2\n"}, (3, 204, 2)),
        ({"caps__mtc": "0\n", "caps__mtc_periods": "249\n", "tsc_art_ratio": "204:2\n"}, (-1, 0, 0)),
        ({"caps__mtc": "1\n", "caps__mtc_periods": "249\n", "tsc_art_ratio": "0:0\n"}, (-1, 0, 0)),
        ({"caps__mtc": "1\n", "caps__mtc_periods": "1\n", "tsc_art_ratio": "204:2\n"}, (-1, 0, 0)),
    ],
)
def test_time_packets_where_the_processor_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: tuple[int, int, int]
) -> None:
    FakeKernel(**SIZES).install(monkeypatch, tmp_path / "pmu", **files)
    source = HardwareSource(os.getpid(), "h", (LOW, HIGH), **SIZES)
    config = source.config()
    assert (config.mtc_shift, config.ctc_num, config.ctc_den) == expected
    assert isinstance(config, PtConfig)
    for found in source.new_rings():
        found.ring.close()


@pytest.mark.parametrize("per_cpu", [False, True])
def test_tracing_is_switched_off_and_on_by_the_kernel(
    session: Path, agent: jitwriter.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_cpu: bool
) -> None:
    """The place is where the event had written to; on a CPU the running thread is not known when it goes on."""
    kernel = FakeKernel(**SIZES)
    kernel.install(monkeypatch, tmp_path / "pmu")
    plan = Plan()
    source = SessionHardware(session, "h", **SIZES, per_cpu=per_cpu)
    drained = Drain(session, host="h", source=source, reread_share=0, duty=plan)
    tell_code_cache(agent)
    messages = [*drained.poll(), *drained.poll()]
    plan.on = False
    messages += drained.poll()
    enabled = {event.enabled for event in kernel.events.values()}
    assert enabled == {False}
    drained.stop()
    while not drained.ended:
        messages += drained.poll()
    assert all(event.enabled for event in kernel.events.values())
    marks = [mark for chunk in of(Chunk, messages) for mark in chunk.losses]
    causes = {Loss.OFF_DUTY, Loss.SIDEBAND_LOST} if per_cpu else {Loss.OFF_DUTY}
    assert {(mark.offset, mark.cause) for mark in marks} == {(kernel.trace_size, cause) for cause in causes}
    assert of(OffDuty, messages)
    drained.close()

"""perf_event_open against the kernel that is here: a dummy event's ring is the same as Intel PT's but for the trace."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from capture.live import perf_event, tsc
from capture.live.drain import Drain
from capture.live.perf_event import DUMMY, FLAGS, IOC_ENABLE, PMU, SOFTWARE, EventRing, HardwareError, HardwareSource
from capture.live.ring import ENDED, RingError
from capture.perf import perf_data
from capture.perf.records import parse
from stages.messages import Clock, EndOfStream, PtConfig, Sideband, SideKind, StreamOpen

NANOSECONDS = Clock(1, 0, 0, 0)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"


@pytest.fixture
def dummy() -> Iterator[EventRing]:
    """A dummy event with switch records on this thread."""
    tid = threading.get_native_id()
    try:
        fd = perf_event.open_event(SOFTWARE, DUMMY, FLAGS, tid, -1)
    except HardwareError as error:
        pytest.skip(str(error))
    ring = perf_event.map_event(fd, "dummy", 16 << 12, 0)
    fcntl.ioctl(fd, IOC_ENABLE)
    yield ring
    ring.close()


def test_switches_of_this_thread(dummy: EventRing) -> None:
    try:
        clock: Clock | None = Clock(*dummy.time_conversion, 0)
    except RingError:  # a guest whose kernel takes its time from the hypervisor
        clock = None
    before = tsc.now()
    words = np.zeros(0, np.uint64)

    def switched() -> bool:
        nonlocal words
        os.sched_yield()
        threading.Event().wait(0.001)  # blocks: the thread is switched out and in
        words = np.concatenate((words, dummy.take_records()))
        return int((parse(words, clock or NANOSECONDS)["kind"] == SideKind.SWITCH_IN).sum()) >= 4

    until(switched)
    after = tsc.now()
    rows = parse(words, clock or NANOSECONDS)
    rows = rows[(rows["kind"] == SideKind.SWITCH_OUT) | (rows["kind"] == SideKind.SWITCH_IN)]
    assert (rows["kind"][1:] != rows["kind"][:-1]).all()  # out and in, in turn
    assert set(rows["tid"].tolist()) == {threading.get_native_id()}
    assert set(rows["pid"].tolist()) == {os.getpid()}
    assert (rows["cpu"] >= 0).all()
    assert (np.diff(rows["tsc"].astype(np.int64)) >= 0).all()
    if clock is None:
        pytest.skip("all but the TSC: the kernel's clock is not the TSC here")
    slack = int(clock.hz * 1e-5)  # the kernel's factor is of 32 bits
    assert before - slack <= int(rows["tsc"][0])
    assert int(rows["tsc"][-1]) <= after + slack


def test_commands_and_maps_of_a_child(dummy: EventRing) -> None:
    """COMM of this thread, as the kernel writes it."""
    name = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
    old = name.read_text()
    name.write_text("renamed")
    name.write_text(old)
    rows = parse(dummy.take_records(), NANOSECONDS)
    assert rows["kind"].tolist().count(SideKind.COMM) == 2


def test_an_event_ends_with_its_thread() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        fd = perf_event.open_event(SOFTWARE, DUMMY, FLAGS, child.pid, -1)
    except HardwareError as error:
        pytest.skip(str(error))
    finally:
        child.kill()
    ring = perf_event.map_event(fd, "x", 4096, 0, Path(f"/proc/{child.pid}/task/{child.pid}"))
    child.wait()
    assert ring.counter(ENDED) == 1
    assert ring.counter(0) == 0
    ring.close()


def test_what_cannot_be_opened() -> None:
    with pytest.raises(HardwareError, match=r"no process or thread|not permitted"):
        perf_event.open_event(SOFTWARE, DUMMY, FLAGS, 2**22 + 1, -1)
    with pytest.raises(HardwareError):
        perf_event.open_event(SOFTWARE, 10**9, FLAGS, 0, -1)


def test_rings_that_cannot_be_mapped() -> None:
    try:
        fd = perf_event.open_event(SOFTWARE, DUMMY, FLAGS, 0, -1)
    except HardwareError as error:
        pytest.skip(str(error))
    with pytest.raises(HardwareError, match=r"cannot map|more than"):
        perf_event.map_event(fd, "x", 3 * 4096, 0)
    fd = perf_event.open_event(SOFTWARE, DUMMY, FLAGS, 0, -1)
    with pytest.raises(HardwareError, match=r"cannot map|more than"):
        perf_event.map_event(fd, "x", 4096, 4096)  # a software event has no AUX area


def test_no_intel_pt(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="no Intel PT"):
        HardwareSource(os.getpid(), "h", (1, 2), pmu=tmp_path / "none")
    (tmp_path / "type").write_text("what")
    with pytest.raises(HardwareError, match="type"):
        HardwareSource(os.getpid(), "h", (1, 2), pmu=tmp_path)


def test_a_process_that_is_not(tmp_path: Path) -> None:
    (tmp_path / "type").write_text("8\n")
    with pytest.raises(HardwareError, match="no process"):
        HardwareSource(2**22 + 1, "h", (1, 2), pmu=tmp_path)


CHILD = """
import sys, threading
stop = threading.Event()
for _ in range(2):
    threading.Thread(target=stop.wait).start()
print("ready", flush=True)
sys.stdin.readline()
late = threading.Thread(target=stop.wait)
late.start()
sys.stdin.readline()
stop.set()
"""


def test_all_threads_of_a_process_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way of Intel PT but the trace: dummy events in its place."""
    (tmp_path / "type").write_text(f"{SOFTWARE}\n")
    monkeypatch.setattr(perf_data, "pt_config_bits", lambda config: DUMMY)
    monkeypatch.setattr(EventRing, "time_conversion", (1, 0, 0))
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin
    assert child.stdout
    child.stdout.readline()
    try:
        source = HardwareSource(child.pid, "h", (0x1000, 0x2000), aux_size=0, data_size=4096, pmu=tmp_path)
        assert source.config() == PtConfig(*perf_event._cpu())  # a dummy event takes no filter
        drain = Drain(tmp_path / "session", host="h", source=source)
        messages = drain.poll()
        assert len(drain.streams) == 3
        child.stdin.write(b"\n")
        child.stdin.flush()

        def polled(kind: type, count: int) -> bool:
            messages.extend(drain.poll())
            return sum(isinstance(message, kind) for message in messages) >= count

        until(lambda: polled(StreamOpen, 4))
        child.stdin.write(b"\n")
        child.stdin.flush()
        until(lambda: polled(EndOfStream, 1))
    except HardwareError as error:
        pytest.skip(str(error))
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    tids = {message.stream.tid for message in messages if isinstance(message, StreamOpen)}
    assert child.pid in tids
    rows = np.concatenate([message.records for message in messages if isinstance(message, Sideband)])
    assert set(rows["tid"][rows["kind"] == SideKind.SWITCH_IN].tolist()) <= tids
    exits = rows[rows["kind"] == SideKind.EXIT]
    assert set(exits["tid"].tolist()) <= tids
    assert len(exits) >= 3
    assert source.faults == []
    drain.close()


@pytest.mark.skipif(not PMU.exists(), reason="this machine has no Intel PT")
def test_intel_pt_of_this_process() -> None:
    source = HardwareSource(os.getpid(), "h", (0x1000, 0x2000))
    assert [found.key.tid for found in source.new_rings()]

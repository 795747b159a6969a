"""A source and a capture as processes of their own: capture is killed again and again, the source never waits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capture.live import ring
from jvm.export.parse import iter_records
from jvm.export.ring import open_export
from stages.messages import Loss
from tests.capture.child import LINE
from tests.capture.perfwriter import Producer

ROOT = Path(__file__).parents[2]


Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def child() -> Iterator[Spawn]:
    """Starts tests.capture.child with arguments; processes that still run at the end are killed."""
    started = []

    def spawn(*arguments: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-m", "tests.capture.child", *arguments], cwd=ROOT))
        return started[-1]

    yield spawn
    for process in started:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], seconds: float = 250) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.005)


def lines(log: Path) -> list[tuple[int, int, bool, int]]:
    data = log.read_bytes() if log.exists() else b""
    whole = len(data) // LINE.size * LINE.size
    return list(LINE.iter_unpack(data[:whole]))


def full(path: Path) -> bool:
    producer = Producer(path)
    try:
        return producer.get(ring.AUX_HEAD) == 16 * ring.PAGE
    finally:
        producer.close()


@pytest.mark.slow
def test_capture_killed_in_mid_run(tmp_path: Path, child: Spawn) -> None:
    session, logs = tmp_path / "s", [tmp_path / f"log{i}" for i in range(3)]
    source = child("produce", str(session))
    for log in logs[:-1]:
        victim = child("capture", str(session), str(log))
        until(lambda log=log: len(lines(log)) > 20)  # type: ignore[misc]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    last = child("capture", str(session), str(logs[-1]))
    until(lambda: len(lines(logs[-1])) > 20)
    (session / "stop").touch()
    assert source.wait(250) == 0
    assert last.wait(250) == 0
    producer = Producer(session / "pt/cpu0.ring")
    head, tail = producer.get(ring.AUX_HEAD), producer.get(ring.AUX_TAIL)
    producer.close()
    assert head == tail
    at = gaps = 0
    for number, log in enumerate(logs):
        for first, (offset, size, right, causes) in zip([True] + [False] * 10**6, lines(log), strict=False):
            assert right
            assert offset >= at  # nothing twice
            if first and number:
                assert causes >> Loss.CAPTURE_DOWN & 1
                gaps += offset - at
            else:
                assert offset == at
            at = offset + size
    assert at == head
    assert gaps <= 2 * 8192  # bytes that a killed capture had taken and not yet written: a chunk each time
    pid = next(int(file.stem[4:]) for file in session.glob("jit-*.export"))
    export = open_export(session / f"jit-{pid}.export")
    tids = [record.os_tid for record in iter_records(export.records)]  # type: ignore[attr-defined]
    assert sorted(set(tids)) == list(range(max(tids) + 1))


@pytest.mark.slow
def test_nobody_drains(tmp_path: Path, child: Spawn) -> None:
    """The source goes on with full rings, and says so; a late reader gets the bytes that are there."""
    source = child("produce", str(tmp_path / "s"))
    ring_file = tmp_path / "s/pt/cpu0.ring"
    until(lambda: ring_file.exists() and full(ring_file))
    (tmp_path / "s/stop").touch()
    assert source.wait(250) == 0
    capture = child("capture", str(tmp_path / "s"), str(tmp_path / "log"))
    assert capture.wait(250) == 0
    rows = lines(tmp_path / "log")
    assert sum(size for _, size, _, _ in rows) == 16 * ring.PAGE
    assert all(right for _, _, right, _ in rows)
    assert rows[-1][1] == 0
    assert rows[-1][3] >> Loss.AUX_FULL & 1

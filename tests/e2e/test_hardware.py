"""`streamer run` and `record` without --emulate: a real JVM with the real agent, and a kernel that is made up, since
few machines have Intel PT. All in this process, so that the kernel can be."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capture.live import perf_event
from capture.recording.replay import Replay
from stages.messages import Chunk, EndOfStream, StreamOpen
from streamer.cli import cli
from tests.capture.fakekernel import Event, FakeKernel

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]
KIB = {"STREAMER_HARDWARE__AUX_KIB": "16", "STREAMER_HARDWARE__DATA_KIB": "4"}


@pytest.fixture
def kernel(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    def enough(_: Event) -> None:
        (root / "enough").touch()

    kernel = FakeKernel(data_size=4096, aux_size=16384, on_enable=enough)
    kernel.install(monkeypatch, root / "pmu")
    for name, value in {**KIB, "STREAMER_RUNTIME_DIR": str(root / "rt")}.items():
        monkeypatch.setenv(name, value)
    return kernel


def invoke(*arguments: str | Path, jvm: list[str]) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--", *jvm])


@pytest.fixture
def tiny(classes: Path, root: Path) -> list[str]:
    return ["java", "-Xint", "-XX:+UseSerialGC", "-cp", str(classes), "Tiny", str(root / "enough")]


@pytest.mark.parametrize("takes_filters", [True, False])
def test_a_jvm_is_traced_from_its_own_events(
    root: Path, kernel: FakeKernel, tiny: list[str], takes_filters: bool
) -> None:
    kernel.takes_filters = takes_filters
    options = ["--transport", "inproc", "--port", "0", "--summary", str(root / "summary.json"), "--fidelity", "ip"]
    result = invoke("run", *options, jvm=tiny)
    assert result.exit_code == 0, result.output
    summary = json.loads((root / "summary.json").read_text())
    assert (summary["target_status"], summary["failed"]) == (0, [])
    assert summary["streams"]
    for stream in summary["streams"]:
        assert stream["written"] == kernel.trace_size
        assert stream["written"] == stream["decoded"] + sum(stream["holes"].values())
    filters = {event.filter for event in kernel.events.values() if event.enabled}
    assert len(filters) == 1
    assert (filters != {None}) == takes_filters
    assert not list((root / "rt").iterdir())


def test_it_is_recorded(root: Path, kernel: FakeKernel, tiny: list[str]) -> None:
    result = invoke("record", "-o", root / "rec", jvm=tiny)
    assert result.exit_code == 0, result.output
    with Replay(root / "rec" / "trace.json") as replay:
        messages = list(replay.messages())
    opened = [m for m in messages if isinstance(m, StreamOpen)]
    chunks = [m for m in messages if isinstance(m, Chunk)]
    (filter_,) = {event.filter for event in kernel.events.values() if event.enabled}
    assert {(m.config.filter_lo, m.config.filter_hi) for m in opened} == {filter_}
    assert sum(len(m.data) for m in chunks) == kernel.trace_size * len(opened) > 0
    assert isinstance(messages[-1], EndOfStream)


@pytest.mark.parametrize("command", [["run", "--port", "0"], ["record"]])
@pytest.mark.parametrize(
    ("number", "words"), [(errno.EACCES, "perf_event_paranoid"), (errno.EBUSY, "in use"), (errno.ENODEV, "such device")]
)
def test_what_is_refused_is_one_line_and_no_jvm_is_started(
    root: Path, kernel: FakeKernel, tiny: list[str], command: list[str], number: int, words: str
) -> None:
    kernel.refuses = number
    result = invoke(*command, jvm=tiny)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert words in line


def test_refused_only_when_the_jvm_runs(root: Path, kernel: FakeKernel, tiny: list[str]) -> None:
    """Tracing fails for good, the program runs on."""
    opened = kernel.open
    seen: list[int] = []

    def refuse(number: int, attr: object, pid: int, cpu: int) -> int:
        seen.append(pid)
        if len(seen) > 1:  # the first is the check
            kernel.refuses = errno.EBUSY
            threading.Timer(0, (root / "enough").touch).start()
        return opened(number, attr, pid, cpu)  # type: ignore[arg-type]

    perf_event._perf_event_open = refuse  # restored by the fixture's monkeypatch
    result = invoke("run", "--transport", "inproc", "--port", "0", jvm=tiny)
    assert result.exit_code == 0  # the program's
    assert "did not work to the end: capture/0" in result.output
    assert "in use" in result.output
    assert "Traceback" not in result.output


def test_no_such_program(kernel: FakeKernel) -> None:
    result = invoke("run", "--port", "0", jvm=["no-such-java", "Main"])
    assert result.exit_code == 1
    assert "no-such-java" in result.output
    assert os.getpid() not in {event.pid for event in kernel.events.values() if event.enabled}

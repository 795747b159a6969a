"""The JVM goes on to its own end, even if we fail: no room, no reader of our output, a fault of ours, a JVM that does
not end, a machine that has much else to do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from capture.live.drain import Drain
from capture.recording.replay import Replay
from stages.messages import Chunk
from streamer.cli import cli
from streamer.pipeline.runner import Runner
from tests.disk import fill, small_disk
from tests.e2e.harness import Ended, Streamer, until

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
Run = Callable[..., Streamer]
JVM = ["java", "-Xint", "-XX:+UseSerialGC", "-cp"]


def check_unharmed(ended: Ended) -> None:
    ended.check_books()
    assert re.search(r"^sum (true|false)$", ended.out, re.MULTILINE)
    assert "Traceback" not in ended.err


# ---- no room


def test_the_runtime_directory_fills_up(run: Run, root: Path) -> None:
    """In mid-run: nothing that is mapped into the JVM has a hole in it."""
    with small_disk(root / "rt", 96 << 20) as disk:
        streamer = run("Tiny enough", "--aux-kib", "4096")
        streamer.when_decoded()
        ballast = fill(disk)
        streamer.when_written(streamer.written() + (8 << 20))  # each AUX ring's pages have all been written
        streamer.enough()
        ended = streamer.wait()
        ballast.unlink()
        streamer.check_gone()
    check_unharmed(ended)
    assert ended.summary["restarts"] == {"capture/0": 0, "decode/0": 0, "hub/0": 0}


def test_a_runtime_directory_that_is_too_small(run: Run, root: Path) -> None:
    """For a second CPU's ring, and for the code."""
    with small_disk(root / "rt", 12 << 20):
        streamer = run("Tiny enough")
        until(lambda: "No space left on device" in streamer.err, "it was told")
        streamer.enough()
        ended = streamer.wait()
        streamer.check_gone()
    assert (ended.status, ended.summary["target_status"]) == (0, 0)
    assert re.search(r"^sum (true|false)$", ended.out, re.MULTILINE)
    assert "Traceback" not in ended.err
    for stream in ended.summary["streams"]:
        assert stream["written"] == stream["decoded"] + sum(stream["holes"].values()), stream


@pytest.mark.parametrize("command", ["run", "record"])
def test_no_room_for_a_session(start: Run, classes: Path, root: Path, command: str) -> None:
    (root / "enough").touch()
    with small_disk(root / "rt", 1 << 20) as disk:
        ballast = fill(disk)
        streamer = start(command, "--emulate", "--", *JVM, classes, "Tiny", "enough")
        ended = streamer.wait()
        ballast.unlink()
    assert (ended.status, ended.out) == (0, "sum false\n"), ended.err
    (line,) = ended.err.splitlines()
    assert "No space left on device" in line
    assert "runs without tracing" in line


# ---- our output


def test_nobody_reads_stderr_any_more(run: Run, root: Path) -> None:
    reading, writing = os.pipe()
    streamer = run("Tiny enough", err=writing)
    os.close(writing)
    said = b""
    while b"(page)" not in said:
        said += os.read(reading, 4096)
    url = re.search(rb"serving (\S+)", said)
    assert url is not None
    (root / "err").write_bytes(said)
    streamer.when_decoded()
    os.close(reading)
    lost = 'streamer_lost_output_bytes_total{cause="EPIPE",component="hub/0",output="stderr"}'
    until(lambda: streamer.metric(lost) > 0, "what nobody read is counted")
    streamer.when_decoded(1 << 20)
    streamer.enough()
    ended = streamer.wait()
    streamer.check_gone()
    check_unharmed(ended)
    assert ended.summary["lost_output"]["stderr/EPIPE"] > 0
    assert re.search(r"output lost: .* of stderr \(EPIPE\)", ended.out)


def read_back(path: Path) -> int:
    """Bytes of trace in a recording that was cut."""
    with Replay(path) as replay:
        assert replay.incomplete == "No space left on device"
        return sum(len(m.data) for m in replay.messages() if isinstance(m, Chunk))


def test_live_profiling_goes_on_without_the_recording(run: Run, root: Path) -> None:
    with small_disk(root / "rec", 40 << 20):
        streamer = run("Tiny enough", "--record", "rec")
        streamer.when_decoded()
        fill(root / "rec", leave=1 << 20)
        until(lambda: "the recording is incomplete from here on" in streamer.err, "it was told")
        streamer.when_decoded(1 << 20)
        streamer.enough()
        ended = streamer.wait()
        streamer.check_gone()
        check_unharmed(ended)
        assert ended.summary["restarts"] == {"capture/0": 0, "decode/0": 0, "hub/0": 0}
        assert (
            read_back(root / "rec" / "trace.json") + ended.summary["lost_output"]["recording/ENOSPC"] <= ended.written
        )


def test_a_recording_on_a_full_disk(start: Run, classes: Path, root: Path) -> None:
    with small_disk(root / "rec", 40 << 20):
        streamer = start("record", "--emulate", "-o", "rec", "--", *JVM, classes, "Tiny", "enough")
        streamer.when_written(300 << 10)
        fill(root / "rec", leave=1 << 20)
        streamer.when_written(streamer.written() + (4 << 20))
        streamer.enough()
        ended = streamer.wait()
        streamer.check_gone()
        assert (ended.status, ended.out[:4]) == (0, "sum "), ended.err
        assert re.search(r"the recording is incomplete: No space left on device; \S+ \S+ more were lost", ended.err)
        assert read_back(root / "rec" / "trace.json") > 0


def test_a_second_recording_that_cannot_be_made(run: Run, root: Path) -> None:
    """Capture is started again, and there is nowhere to record: the live run goes on."""
    streamer = run("Tiny enough", "--record", "rec")
    streamer.when_decoded()
    (root / "rec").rename(root / "elsewhere")
    (root / "rec").write_text("")
    streamer.kill("capture/0")
    until(lambda: "the recording is incomplete from here on" in streamer.err, "it was told")
    streamer.when_decoded(1 << 20)
    streamer.enough()
    ended = streamer.wait()
    streamer.check_gone()
    check_unharmed(ended)
    assert ended.summary["lost_output"]["recording/EEXIST"] > 0
    with Replay(root / "elsewhere" / "trace.json") as replay:
        assert replay.incomplete == "its writer did not end it"
        assert any(isinstance(m, Chunk) for m in replay.messages())


# ---- a fault of ours


@pytest.fixture
def from_here(root: Path, classes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The command line of `Tiny enough`, for commands in this process."""
    monkeypatch.setenv("STREAMER_RUNTIME_DIR", str(root / "rt"))
    monkeypatch.chdir(root)
    yield ["--emulate", "--", *JVM, str(classes), "Tiny", "enough"]
    assert list((root / "rt").glob("*")) == []


def bug(root: Path) -> None:
    (root / "enough").touch()  # only now may the JVM end
    raise ZeroDivisionError("a bug")


def test_a_bug_in_run(root: Path, from_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(_: Runner) -> None:
        bug(root)

    monkeypatch.setattr(Runner, "_tell", tell)
    result = CliRunner().invoke(cli, ["run", "--transport", "inproc", "--port", "0", *from_here])
    assert result.exit_code == 0, result.output
    assert "tracing failed: ZeroDivisionError: a bug" in result.output


def test_a_bug_in_record(root: Path, from_here: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drain, "poll", lambda _: bug(root))
    result = CliRunner().invoke(cli, ["record", "-o", "rec", *from_here])
    assert result.exit_code == 0, result.output
    assert "tracing failed: ZeroDivisionError: a bug; the program runs on" in result.output


# ---- a JVM that does not end


@pytest.mark.parametrize(
    ("command", "by"),
    [
        ("run", "a second signal"),
        pytest.param("run", "the limit", marks=pytest.mark.nightly),
        ("record", "the limit"),
    ],
)
def test_a_jvm_that_does_not_end_is_left(start: Run, classes: Path, root: Path, command: str, by: str) -> None:
    env = {"STREAMER_TARGET__STOP_SECONDS": "1"} if by == "the limit" else {}
    options = ["--summary", "summary.json", "--port", "0"] if command == "run" else ["-o", "rec"]
    streamer = start(command, "--emulate", *options, "--", *JVM, classes, "Stuck", "enough", env=env)
    until(lambda: "stuck" in streamer.out, "its shutdown hook is there")
    streamer.process.send_signal(signal.SIGTERM)
    until(lambda: "waiting for the program" in streamer.err, "it was told")
    if by == "a second signal":
        streamer.process.send_signal(signal.SIGTERM)
    ended = streamer.wait()
    assert ended.status == 128 + signal.SIGTERM, ended.err
    (pid,) = map(int, re.findall(r"process (\d+) runs on, without tracing", ended.err))
    until(lambda: list(streamer.processes()) == [pid], "nothing but the JVM is left")
    assert list(streamer.runtime.glob("*")) == []
    if command == "run":
        assert ended.summary["target_status"] == 128 + signal.SIGTERM
        assert ended.written > 0
        for stream in ended.summary["streams"]:
            assert stream["written"] == stream["decoded"] + sum(stream["holes"].values()), stream
        assert "of trace decoded" in ended.out
    else:
        with Replay(root / "rec" / "trace.json") as replay:
            assert replay.incomplete == ""
            assert any(isinstance(m, Chunk) for m in replay.messages())
    streamer.enough()
    streamer.check_gone()
    assert "ended at last" in streamer.out


# ---- a machine with much else to do


@pytest.fixture
def busy() -> Iterator[None]:
    """Every CPU has something else to do as well."""
    count = len(os.sched_getaffinity(0))
    loop = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # it does not outlive the tests
    loops = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    yield
    for process in loops:
        assert process.poll() is None
        process.kill()
        process.wait()


def test_a_busy_machine(run: Run, busy: None) -> None:
    streamer = run("Tiny enough")
    streamer.when_decoded(1 << 20)
    streamer.enough()
    ended = streamer.wait()
    streamer.check_gone()
    check_unharmed(ended)
    ended.check_seen()
    assert ended.summary["restarts"] == {"capture/0": 0, "decode/0": 0, "hub/0": 0}

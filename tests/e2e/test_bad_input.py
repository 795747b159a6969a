"""Any bad input: one clear line, an exit status that says so, no traceback, nothing left behind."""

from __future__ import annotations

import os
import random
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from capture.perf.perf_data import Event
from capture.recording.replay import Replay
from stages.messages import Chunk
from tests.capture import test_recording
from tests.capture.session import Session
from tests.capture.test_recording import HIGH, LOW, example
from tests.e2e.harness import Ended, Streamer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Start = Callable[..., Streamer]


def check_refused(streamer: Streamer, *words: str, status: int = 1) -> Ended:
    ended = streamer.wait()
    assert ended.status == status, ended.err
    assert "Traceback" not in ended.err
    lines = [line for line in ended.err.splitlines() if line.startswith("streamer: ")]
    assert len(lines) == 1, ended.err
    assert ended.err.splitlines()[-1] == lines[0]
    for word in words:
        assert word in lines[0]
    streamer.check_gone()
    return ended


@pytest.fixture
def recording(root: Path) -> Path:
    """A small recording: `x.json`, `x.perf.data`, `x-<pid>.export`."""
    return record(root)


def record(root: Path) -> Path:
    session = Session(root / "s")
    session.write_state(filter=[LOW, HIGH])
    run = example(session)
    run.finish()
    run.drain.close()
    return session.path / "rec"


def replay(start: Start, path: Path) -> Streamer:
    return start("replay", path, "--pace", "max", "--port", "0")


# ---- recordings


def test_a_truncated_recording(start: Start, recording: Path) -> None:
    data = recording / "x.perf.data"
    data.write_bytes(data.read_bytes()[: data.stat().st_size * 2 // 3])
    check_refused(replay(start, recording / "x.json"), "x.perf.data")


def test_a_recording_damaged_in_the_middle(start: Start, recording: Path) -> None:
    """Damage found while it plays: the summary of the part before, one line, and no second try."""
    data = recording / "x.perf.data"
    whole = bytearray(data.read_bytes())
    last = whole.rindex(struct.pack("<IHH", Event.AUXTRACE, 0, 48))
    whole[last + 6 : last + 8] = bytes(2)  # an event of no size
    data.write_bytes(whole)
    ended = check_refused(replay(start, recording / "x.json"), "x.perf.data", "replay/0")
    assert "restarts: none" in ended.out


def test_random_bytes_as_a_recording(start: Start, recording: Path) -> None:
    (recording / "x.perf.data").write_bytes(random.Random(1).randbytes(100_000))
    check_refused(replay(start, recording / "x.perf.data"), "x.perf.data")


def test_random_bytes_as_trace(start: Start, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they were drained, so their checksums are right."""
    monkeypatch.setattr(test_recording, "PSB", random.Random(2).randbytes(16))
    recording = record(root)
    ended = check_refused(replay(start, recording / "x.json"), "nothing", "decoded")
    assert "no sync" in ended.out


def test_a_jit_export_cut_in_the_middle(start: Start, recording: Path) -> None:
    (export,) = recording.glob("*.export")
    export.write_bytes(export.read_bytes()[: export.stat().st_size // 2])
    ended = check_refused(replay(start, recording / "x.json"), export.name, "replay/0")
    assert "restarts: none" in ended.out


def test_a_jit_export_with_a_damaged_record(start: Start, recording: Path) -> None:
    """All else is played and counted; the damage is told, and the status says that the profile is not whole."""
    with Replay(recording / "x.json") as good:
        trace = sum(len(message.data) for message in good.messages() if isinstance(message, Chunk))
    (export,) = recording.glob("*.export")
    damaged = bytearray(export.read_bytes())
    damaged[64:68] = bytes(4)  # the size of the first record
    export.write_bytes(damaged)
    ended = check_refused(replay(start, recording / "x.json"), export.name, "from byte 64 on")
    assert "restarts: none" in ended.out
    assert f"98.1 % of {trace / 1000:.1f} kB of trace decoded" in ended.out
    assert "1 × jit lost" in ended.out


def test_no_recording(start: Start, root: Path) -> None:
    check_refused(replay(start, root / "nothing.json"), "nothing.json")


def test_a_manifest_without_its_trace(start: Start, recording: Path) -> None:
    (recording / "x.perf.data").unlink()
    check_refused(replay(start, recording / "x.json"), "x.perf.data")


# ---- the machine


def test_a_port_in_use(start: Start, recording: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check_refused(start("replay", recording / "x.json", "--port", str(port)), str(port), "in use")


def test_a_runtime_directory_that_is_open_to_others(start: Start, recording: Path, root: Path) -> None:
    (root / "open").mkdir(mode=0o755)
    env = {"STREAMER_RUNTIME_DIR": str(root / "open")}
    check_refused(start("replay", recording / "x.json", "--port", "0", env=env), "chmod 700")


def test_a_runtime_directory_that_cannot_be_made(start: Start, recording: Path, root: Path) -> None:
    (root / "file").write_text("")
    env = {"STREAMER_RUNTIME_DIR": str(root / "file" / "rt")}
    check_refused(start("replay", recording / "x.json", "--port", "0", env=env), str(root / "file"))


def test_a_setting_that_cannot_be(start: Start, recording: Path) -> None:
    env = {"STREAMER_TRANSPORT__WORKERS": "0"}
    check_refused(start("replay", recording / "x.json", env=env), "transport.workers", status=2)


@pytest.mark.parametrize(("text", "what"), [(None, "No such file"), ("web = {", "x.toml"), ("[web]\nprot = 1", "prot")])
def test_a_file_with_settings_that_cannot_be(start: Start, root: Path, text: str | None, what: str) -> None:
    if text is not None:
        (root / "x.toml").write_text(text)
    check_refused(start("replay", "x.json", env={"STREAMER_CONFIG": str(root / "x.toml")}), what, status=2)


@pytest.mark.parametrize("command", ["run", "record"])
def test_no_jdk(start: Start, root: Path, command: str) -> None:
    (root / "bin").mkdir()
    for tool in ("qemu-x86_64", "gcc", "cc", "as", "ld"):
        if path := shutil.which(tool):
            (root / "bin" / tool).symlink_to(path)
    check_refused(start(command, "--emulate", "--", "java", "Main", env={"PATH": str(root / "bin")}), "java")


@pytest.mark.parametrize("java", ["/no/such/java", "/etc/passwd", "/bin"])
def test_a_java_that_is_none(start: Start, java: str) -> None:
    check_refused(start("run", "--emulate", "--port", "0", "--", java, "Main"), java)


def test_nowhere_to_record(start: Start, classes: Path, root: Path) -> None:
    (root / "file").write_text("")
    options = ["--emulate", "--port", "0", "--record", root / "file" / "rec"]
    ended = check_refused(start("run", *options, "--", "java", "-cp", classes, "Tiny", "1"), str(root / "file"))
    assert "sum" not in ended.out  # not even started


def test_attach_to_nothing(start: Start) -> None:
    check_refused(start("attach", "999999999"), "999999999")


def test_attach_to_what_is_no_jvm(start: Start) -> None:
    check_refused(start("attach", str(os.getpid())), str(os.getpid()))


# ---- a JVM that does not work: its own message and status


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        pytest.param(["NoSuchClass"], 1, "NoSuchClass", marks=pytest.mark.nightly),
        (["-XX:NoSuchOption"], 1, "NoSuchOption"),
        (["-version"], 0, "version"),
    ],
)
def test_a_jvm_that_ends_at_once(start: Start, classes: Path, arguments: list[str], status: int, says: str) -> None:
    streamer = start("run", "--emulate", "--port", "0", "--", "java", "-cp", classes, *arguments)
    ended = streamer.wait()
    streamer.check_gone()
    assert ended.status == status, ended.err
    assert says in ended.out + ended.err
    assert "Traceback" not in ended.err
    assert "restarts: none" in ended.out

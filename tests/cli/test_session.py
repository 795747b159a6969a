from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamer.cli import cli
from streamer.session import manifest
from streamer.session.manifest import Manifest, ManifestError, Process
from streamer.session.selected import NAME, Watched
from streamer.session.session import SessionError, resumed, session, traces


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for the names of sockets; pytest's own can be too long."""
    with tempfile.TemporaryDirectory(prefix="s-") as path:
        yield Path(path)


def test_a_session_is_private_and_goes_when_it_ends(short: Path) -> None:
    with session(short / "run") as path:
        assert path.stat().st_mode & 0o777 == 0o700
        assert (path / "pt").is_dir()
    assert not path.exists()


def test_an_open_runtime_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(SessionError, match="chmod 700"), session(tmp_path):
        pass


def test_a_path_too_long_for_sockets_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="too long"), session(tmp_path / ("x" * 90)):
        pass


def test_a_file_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="Not a directory"), session(tmp_path / "file" / "run"):
        pass


@pytest.fixture
def runtime(short: Path) -> Path:
    """The runtime directory of the sessions below."""
    (short / "run").mkdir(0o700)
    return short / "run"


def crashed(runtime: Path, **fields: object) -> Path:
    """A session directory whose process is gone: the manifest is there, the lock is free."""
    directory = runtime / "000000-1"
    (directory / "pt").mkdir(mode=0o700, parents=True)
    (directory / manifest.LOCK).touch()
    made = Manifest(owner=Process(pid=1 << 22, start=1), uid=os.geteuid())
    manifest.write(directory, made.model_copy(update=fields))
    for name in ("jit-7.ring", "jit-7.export", "told-cpu0.records", "heads", "pt/cpu0.ring", "session.json"):
        (directory / name).touch()
        (directory / f"{name}.new").touch()
    (directory / "pt/emulator.json").touch()
    for name in ("decode-0.ipc", "decode-0.ipc.acks"):
        with socket.socket(socket.AF_UNIX) as made_socket:
            made_socket.bind(str(directory / name))
    return directory


def test_a_session_says_whose_it_is(short: Path) -> None:
    with session(short / "run") as path:
        own = Process.of(os.getpid())
        assert own.lives()
        assert manifest.read(path) == Manifest(owner=own, uid=os.geteuid())
        traces(path, os.getppid())
        assert manifest.read(path).target == Process.of(os.getppid())
        assert json.loads((path / "session.json").read_text())["target"]["pid"] == os.getppid()


def test_what_a_crashed_session_left_is_swept_but_a_running_one_is_not(runtime: Path) -> None:
    left = crashed(runtime)
    with session(runtime) as running:
        assert not left.exists()
        child = os.fork()
        if child == 0:  # another process beginning a session must leave ours alone
            with session(runtime / "."):
                os._exit(0 if running.exists() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert running.exists()


def test_a_crashed_session_stays_while_its_jvm_runs(runtime: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as target:
        left = crashed(runtime, target=Process.of(target.pid))
        with session(runtime):
            assert (left / "jit-7.ring").exists()
        target.send_signal(signal.SIGKILL)
        target.wait()
    with session(runtime):
        assert not left.exists()


@pytest.mark.parametrize("lock", [True, False])
def test_a_directory_without_a_manifest_stays_with_all_that_is_in_it(
    runtime: Path, lock: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "000000-1"):
        (runtime / name / "sub").mkdir(parents=True)
        (runtime / name / "sub" / "jit-1.ring").touch()
        if lock:
            (runtime / name / manifest.LOCK).touch()
    with session(runtime):
        pass
    assert all((runtime / name / "sub" / "jit-1.ring").exists() for name in ("mine", "000000-1"))
    said = "".join(capsys.readouterr())
    assert "000000-1/session.json: No such file" in said
    assert "mine" not in said  # looks like no session, and is none


def test_unknown_content_stays_and_is_said(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = crashed(runtime)
    (left / "letter.txt").write_text("dear")
    (left / "pt" / "deep").mkdir()
    (left / "pt" / "deep" / "cpu1.ring").touch()
    (left / "jit-1.ring").mkdir()
    with session(runtime):
        assert (left / "letter.txt").read_text() == "dear"
        assert not (left / "jit-7.ring").exists()
    there = sorted(str(path.relative_to(left)) for path in left.rglob("*"))
    unknown = ["jit-1.ring", "letter.txt", "pt", "pt/deep", "pt/deep/cpu1.ring"]
    assert there == [".lock", *unknown, "session.json", "session.json.new"]
    assert "not made by a session: jit-1.ring, letter.txt, pt/deep" in "".join(capsys.readouterr())


def test_nothing_is_removed_through_links(runtime: Path, short: Path, tmp_path: Path) -> None:
    for name in ("cpu0.ring", "emulator.json", "jit-1.ring", manifest.LOCK):
        (tmp_path / name).touch()
    (tmp_path / "pt").mkdir()
    (tmp_path / "pt" / "cpu9.ring").touch()
    left = crashed(runtime)
    shutil.rmtree(left / "pt")
    (left / "pt").symlink_to(tmp_path / "pt")
    (left / "jit-1.ring").symlink_to(tmp_path / "jit-1.ring")
    (short / "other").mkdir()
    elsewhere = crashed(short / "other")
    (runtime / "000000-2").symlink_to(elsewhere)
    with session(runtime):
        pass
    assert (tmp_path / "pt" / "cpu9.ring").exists()
    assert (tmp_path / "jit-1.ring").exists()
    assert (left / "jit-1.ring").is_symlink()
    assert (elsewhere / "jit-7.ring").exists()


def test_a_lock_that_is_held_keeps_a_session(runtime: Path) -> None:
    left = crashed(runtime)
    with (left / manifest.LOCK).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with session(runtime):
            assert (left / "pt" / "cpu0.ring").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "Field required"),
        ("[", "Invalid JSON"),
        ('{"version": 99, "owner": {"pid": 1, "start": 1}, "uid": 0, "files": ["*"]}', "version 99"),
        ('{"owner": {"pid": 1, "start": 1}, "uid": 4294967290, "files": ["*"]}', "user 4294967290"),
    ],
)
def test_a_manifest_that_is_not_ours_removes_nothing(runtime: Path, text: str, why: str) -> None:
    left = crashed(runtime)
    (left / "session.json").write_text(text)
    with pytest.raises(ManifestError, match=why):
        manifest.read(left)
    with session(runtime):
        assert (left / "jit-7.ring").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
def test_a_manifest_or_file_of_another_user_removes_nothing(runtime: Path) -> None:
    left = crashed(runtime)
    os.chown(left / "jit-7.ring", 65533, 65533)
    with session(runtime):
        assert (left / "jit-7.ring").exists()
        assert not (left / "jit-7.export").exists()
    os.chown(left / "jit-7.ring", 0, 0)
    os.chown(left / "session.json", 65533, 65533)
    with session(runtime):
        assert (left / "jit-7.ring").exists()


# ---- a session that is taken up


def test_a_jvm_that_runs_on_is_taken_up_by_one_and_left_again(runtime: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as jvm:
        directory = crashed(runtime, target=Process.of(jvm.pid))
        with resumed(runtime) as (path, target):
            assert (path, target.pid) == (directory, jvm.pid)
            assert manifest.read(path).owner == Process.of(os.getpid())
            with pytest.raises(SessionError, match="no JVM of an earlier session"), resumed(runtime):
                pass
        assert directory.exists()  # it lives
        with pytest.raises(SessionError, match="JVM 1 of an earlier session"), resumed(runtime, 1):
            pass
        manifest.write(directory, manifest.read(directory).model_copy(update={"owner": Process(pid=1 << 22, start=1)}))
        with resumed(runtime, jvm.pid):
            jvm.communicate(b"\n")
        assert not directory.exists()


def test_it_is_not_taken_up_before_the_earlier_processes_are_gone(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.session.session._MEMBERS_SECONDS", 0.1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as jvm:
        directory = crashed(runtime, target=Process.of(jvm.pid))
        code = (
            "import sys; from pathlib import Path; from streamer.session.session import hold; hold(Path(sys.argv[1])); "
        )
        member = subprocess.Popen(
            [sys.executable, "-c", code + "print(1, flush=True); input()", directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with member:
            assert member.stdout is not None
            member.stdout.readline()
            with pytest.raises(SessionError, match="processes of the earlier session"), resumed(runtime):
                pass
            member.kill()
        with resumed(runtime):
            jvm.communicate(b"\n")


def test_contexts_of_some_threads_are_asked_for_in_the_session_that_runs(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMER_RUNTIME_DIR", str(runtime))

    def said(*words: str) -> str:
        return CliRunner().invoke(cli, ["contexts", *words]).output

    assert said("off").startswith(f"streamer: no streamer runs here (runtime_dir: {runtime})")
    with session(runtime) as path:
        watched = Watched(path)
        assert said() == "contexts are kept of all threads\n"
        assert not watched.changed()
        assert said("on", "--thread-name", "http-*", "--thread", "7") == "contexts are kept of http-*, 7\n"
        assert (watched.changed(), watched.changed()) == (True, False)
        assert watched.words == {"on": True, "named": ["http-*"], "tids": [7]}
        assert said("off", "--thread-name", "a\x1b[0m") == "contexts are kept of all threads but a?[0m\n"
        assert said("off", "--pid", str(os.getpid())) == "contexts are kept of no thread\n"
        assert said() == "contexts are kept of no thread\n"
        assert said("off", "--pid", "1").startswith("streamer: no streamer runs here for process 1 ")
        assert "say whether these threads are on or off" in said("--thread", "7")
        assert "at most 64 threads" in said("on", *["--thread=1"] * 65)
        (path / NAME).write_text("[]")
        assert said().startswith(f"streamer: {path / NAME}: no selection of threads")
        with pytest.raises(ValueError, match="no selection"):
            watched.changed()
        assert not watched.changed()
        (runtime / "other").mkdir(0o700)
        manifest.create(runtime / "other")
        assert said("on").startswith("streamer: several streamers run: name one of ")
    assert not path.exists()

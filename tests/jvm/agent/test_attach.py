"""Attaching by pid: its success, and one clear line for each failure."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from jvm.agent import build
from jvm.attach import Attached, AttachError, execute
from jvm.cbuild import BuildError
from jvm.export import records as export
from jvm.export.parse import iter_records
from jvm.export.ring import RingReader
from streamer.commands.attach import command
from tests.jdks import JDKS, java
from tests.jvm.agent.java_process import DEADLINE, Subject, attach, classes, eventually, jcmd

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("jvm-agent")]

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act for another user")


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    (tmp_path / "session").mkdir(mode=0o700)
    return tmp_path / "session" / "jit.ring"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def exported(ring: Path | Attached) -> None:
    """The export at attach comes to its end."""
    with RingReader(ring) if isinstance(ring, Path) else ring.open() as reader:
        records: list[export.Record] = []

        def ended() -> bool:
            records.extend(iter_records(reader.drain()))
            return any(isinstance(record, export.ReplayEnd) for record in records)

        eventually("the export at attach", ended)
    assert any(isinstance(record, export.NmethodLoad) for record in records)


@pytest.mark.parametrize("version", JDKS)
def test_diagnostic_commands(version: int) -> None:
    with Subject(version) as jvm:
        assert f"JDK {version}" in jcmd(jvm.pid, "VM.version")
        assert "main" in jcmd(jvm.pid, "Thread.print")
        with pytest.raises(AttachError, match=r"refused 'jcmd': .*Unknown diagnostic command"):
            jcmd(jvm.pid, "Bogus.command")
        with pytest.raises(AttachError, match="refused 'bogus'"):
            execute(jvm.pid, "bogus")
        with pytest.raises(AttachError, match="too long"):
            jcmd(jvm.pid, "x" * 2000)


def test_a_process_that_is_no_jvm_is_left_alone(sleeper: subprocess.Popen[bytes], ring: Path) -> None:
    with pytest.raises(AttachError, match="is not a JVM"):
        attach(sleeper.pid, ring)
    assert sleeper.poll() is None


@pytest.mark.parametrize(("pid", "message"), [(2**22 + 1, "no process"), (0, "not the pid"), (-7, "not the pid")])
def test_wrong_pids(pid: int, message: str, ring: Path) -> None:
    with pytest.raises(AttachError, match=message):
        attach(pid, ring)


def test_a_process_that_has_ended(ring: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    with pytest.raises(AttachError, match="has ended"):
        attach(process.pid, ring)
    process.wait()


def test_a_jvm_without_the_mechanism(ring: Path) -> None:
    with Subject(17, ["-XX:+DisableAttachMechanism"]) as jvm:
        with pytest.raises(AttachError, match="DisableAttachMechanism"):
            attach(jvm.pid, ring)
        jvm.tell("work 1")


def test_a_jvm_that_handles_no_signals(ring: Path) -> None:
    with Subject(17, ["-Xrs"]) as jvm:  # it listens from the start
        attach(jvm.pid, ring)
        exported(ring)


def test_agents_forbidden() -> None:
    with Subject(25, ["-XX:-EnableDynamicAgentLoading"]) as jvm:
        with pytest.raises(AttachError, match="Dynamic agent loading is not enabled"):
            attach(jvm.pid, Path("/tmp/x/jit.ring"))
        jvm.tell("work 1")


@pytest.mark.parametrize("known", [False, True], ids=["first", "socket there"])
def test_a_stopped_jvm_is_not_waited_for_for_ever(known: bool, ring: Path) -> None:
    with Subject(17) as jvm:
        if known:
            jcmd(jvm.pid, "VM.version")
        os.kill(jvm.pid, signal.SIGSTOP)
        eventually("stopped", lambda: "T (" in Path(f"/proc/{jvm.pid}/status").read_text())
        begin = time.monotonic()
        with pytest.raises(AttachError, match="stopped" if not known else "in time"):
            attach(jvm.pid, ring, timeout=0.5)
        assert time.monotonic() - begin < DEADLINE
        os.kill(jvm.pid, signal.SIGCONT)
        jvm.tell("work 1")
        attach(jvm.pid, ring)
        exported(ring)


def test_a_jvm_that_is_just_starting(ring: Path) -> None:
    process = subprocess.Popen([java(25), "-version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with contextlib.suppress(AttachError):  # not a JVM yet, or gone already; the JVM must not die of it
        attach(process.pid, ring)
    assert process.wait(DEADLINE) == 0


def test_a_socket_left_behind_by_an_earlier_process(ring: Path) -> None:
    with Subject(17) as jvm:
        path = Path(f"/tmp/.java_pid{jvm.pid}")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        attach(jvm.pid, ring)
        exported(ring)


def test_a_ring_that_cannot_be_made() -> None:
    with Subject(17) as jvm:
        with pytest.raises(AttachError, match="did not take the agent"):
            attach(jvm.pid, Path("/proc/nowhere/jit.ring"))
        with pytest.raises(AttachError, match="comma"):
            attach(jvm.pid, Path("/tmp/a,b/jit.ring"))
        with pytest.raises(AttachError, match="did not take the agent"):
            attach(jvm.pid, Path("/tmp/jit.ring"), size="63m")
        jvm.tell("work 1")


@as_root
def test_a_jvm_of_another_user(ring: Path) -> None:
    with Subject(17, user=NOBODY, cwd=Path("/")) as jvm:
        attached = attach(jvm.pid, ring)
        assert attached.ring != ring
        assert attached.ring.stat().st_uid == NOBODY
        assert attached.ring.parent.stat().st_mode & 0o777 == 0o700
        exported(attached)
        shutil.rmtree(attached.ring.parent)


@as_root
def test_a_socket_of_root_stands_where_the_jvm_of_another_user_listens(ring: Path) -> None:
    """Left behind by an earlier JVM of root with that pid it is removed; one that listens is not."""
    ring = ring.parent.with_name("in-the-way") / ring.name  # the user's directory has a name for each session
    with Subject(17, user=NOBODY, cwd=Path("/")) as jvm, socket.socket(socket.AF_UNIX) as listener:
        path = Path(f"/tmp/.java_pid{jvm.pid}")
        path.unlink(missing_ok=True)  # of a JVM of before that had this id and was killed
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(AttachError, match=f"{path} belongs to user root and is in the JVM's way"):
            attach(jvm.pid, ring)
        listener.close()
        attached = attach(jvm.pid, ring)
        assert path.stat().st_uid == NOBODY
        exported(attached)
        shutil.rmtree(attached.ring.parent)


@as_root
def test_without_permission() -> None:
    program = """
import os, sys
from jvm.attach import Attached, AttachError, execute
from jvm.cbuild import BuildError
os.setuid(65534)
try:
    execute(int(sys.argv[1]), "jcmd", "VM.version")
except AttachError as error:
    print(error)
"""
    with Subject(17) as jvm:
        command_line = [sys.executable, "-c", program, str(jvm.pid)]
        result = subprocess.run(command_line, capture_output=True, text=True, timeout=DEADLINE, check=True)
        assert f"process {jvm.pid} belongs to user root" in result.stdout


@as_root
def test_a_jvm_in_a_container(ring: Path, tmp_path: Path) -> None:
    """Mount and pid namespaces of its own: another /tmp, another pid."""
    inside = 'mount -t tmpfs none $1 && cp $0/* $1 && mount --move $1 /tmp && cd /tmp && shift && exec "$@"'
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    prefix = [*unshare, "sh", "-c", inside, str(classes()), str(tmp_path)]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare is not allowed here")
    with Subject(17, prefix=prefix, classpath="/tmp") as outer:
        jvm_pid = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
        attached = attach(jvm_pid, ring)
        assert attached.inner_pid != jvm_pid
        assert str(attached.ring).startswith(f"/proc/{jvm_pid}/root/tmp/")
        assert "JDK 17" in jcmd(jvm_pid, "VM.version")
        exported(attached)
        outer.finish()


def test_the_command(ring: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMER_RUNTIME_DIR", str(tmp_path / "run"))
    with Subject(25) as jvm:
        result = CliRunner().invoke(command, [str(jvm.pid), "--no-classes"])
        assert result.exit_code == 0, result.output
        assert "JDK 25" in result.output
        exported(tmp_path / "run" / "default" / f"jit-{jvm.pid}.ring")


@pytest.mark.parametrize(
    "arguments",
    [
        ["999999999"], ["1", "--timeout", "0"], ["x"], ["5", "--size", "1"], ["5", "--stacks", "9"],
        ["5", "--mounts", "99"],
    ],
)  # fmt: skip
def test_the_command_fails_with_one_line(arguments: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from streamer.cli import main; main()", "attach", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert result.stderr.strip()


def test_no_headers_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def message(change: Callable[[], None]) -> str:
        with monkeypatch.context():
            change()
            with pytest.raises(BuildError) as error:
                build.library()
        return str(error.value)

    monkeypatch.setenv("CC", "no-such-compiler")
    assert "C compiler" in message(lambda: None)
    monkeypatch.delenv("CC")
    monkeypatch.setattr(build, "include_dir", lambda: tmp_path)
    assert "cannot compile" in message(lambda: None)

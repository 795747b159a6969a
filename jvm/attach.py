"""HotSpot's attach protocol: commands to a running JVM by pid, and the agent loaded into it.

The JVM listens on a socket that it makes when asked: by a file .attach_pid<pid> in its working directory or /tmp and
a SIGQUIT (JDK: src/hotspot/os/posix/attachListener_posix.cpp, src/jdk.attach/linux/.../VirtualMachineImpl.java).
SIGQUIT kills a process that does not handle it, so nothing is sent before it is certain that this is a JVM whose
handler is in place; and it is sent by pidfd, so that it cannot reach another process that got the same pid.

Paths: the JVM may live in another mount or pid namespace (a container). Then it is reached through /proc/<pid>/root,
and it is given a copy of the agent and a ring in its own /tmp.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jvm.agent.build import library

_MAX_ARGUMENT = 1024  # protocol version 1
_MAX_REPLY = 256 << 20


class AttachError(RuntimeError):
    """Why the JVM could not be reached, in one line for the user."""


@dataclass(frozen=True, slots=True)
class Attached:
    """`ring` as this process sees it; `inner_pid` as the JVM sees itself."""

    pid: int
    inner_pid: int
    ring: Path


@dataclass(frozen=True, slots=True)
class _Target:
    pid: int
    pidfd: int
    inner_pid: int
    uid: int
    gid: int
    root: Path  # its root directory, as seen from here
    foreign: bool  # its file system is not ours

    def inside(self, path: str) -> Path:
        """The JVM's absolute `path` as seen from here."""
        return self.root / path.lstrip("/")


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextlib.contextmanager
def _examine(pid: int) -> Iterator[_Target]:
    """Makes sure that `pid` is a JVM that we may attach to."""
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, OverflowError):
        raise AttachError(f"there is no process {pid}") from None
    except OSError as error:
        raise AttachError(f"{pid} is not the pid of a process: {error.strerror}") from None
    try:
        yield _target(pid, pidfd)
    except (FileNotFoundError, ProcessLookupError):
        raise AttachError(f"process {pid} ended, or its files cannot be reached") from None
    except PermissionError as error:
        raise AttachError(f"no permission for {error.filename or f'process {pid}'}: be its user, or root") from None
    except OSError as error:
        raise AttachError(f"cannot attach to process {pid}: {error}") from None
    finally:
        os.close(pidfd)


def _target(pid: int, pidfd: int) -> _Target:
    status = _status(pid)
    if status["State"].strip()[0] in "ZX":
        raise AttachError(f"process {pid} has ended")
    uid, gid = int(status["Uid"].split()[1]), int(status["Gid"].split()[1])
    if os.geteuid() not in (0, uid):
        raise AttachError(f"process {pid} belongs to user {_user(uid)}: attach as that user, or as root")
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    if not any(line.endswith("/libjvm.so") for line in maps.splitlines()):
        raise AttachError(f"process {pid} is not a JVM (HotSpot's libjvm.so is not loaded in it)")
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if b"-XX:+DisableAttachMechanism" in arguments:
        raise AttachError(f"JVM {pid} was started with -XX:+DisableAttachMechanism; start it with the agent instead")
    root = Path(f"/proc/{pid}/root")
    foreign = not root.samefile("/") or not Path(f"/proc/{pid}/ns/mnt").samefile("/proc/self/ns/mnt")
    inner = int(status.get("NSpid", str(pid)).split()[-1])
    return _Target(pid, pidfd, inner, uid, gid, root if foreign else Path("/"), foreign)


def _listens(target: _Target) -> bool:
    path = target.inside(f"/tmp/.java_pid{target.inner_pid}")
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _connect(target: _Target, deadline: float) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(max(0.01, deadline - time.monotonic()))
    try:
        link.connect(str(target.inside(f"/tmp/.java_pid{target.inner_pid}")))
    except BaseException:
        link.close()
        raise
    return link


def _wake(target: _Target, deadline: float) -> None:
    """Makes the JVM open its socket."""
    while True:  # a stopped JVM would find the signal later, and without the file print its stacks
        status = _status(target.pid)
        stopped = status["State"].strip()[0] in "Tt"
        if int(status["SigCgt"], 16) >> (signal.SIGQUIT - 1) & 1 and not stopped:
            break
        if time.monotonic() > deadline:
            why = "it is stopped" if stopped else "it does not handle SIGQUIT yet, so it is still starting"
            raise AttachError(f"JVM {target.pid} cannot answer: {why}")
        time.sleep(0.02)
    name = f".attach_pid{target.inner_pid}"
    trigger = Path(f"/proc/{target.pid}/cwd") / name
    try:
        trigger.touch(0o600)
    except OSError:
        trigger = target.inside("/tmp") / name
        trigger.touch(0o600)
    try:
        if os.geteuid() != target.uid:
            os.chown(trigger, target.uid, target.gid)
        signal.pidfd_send_signal(target.pidfd, signal.SIGQUIT)
        pause = 0.005
        while not _listens(target):
            if time.monotonic() > deadline:
                raise AttachError(f"JVM {target.pid} did not answer in time (busy, or attaching is switched off in it)")
            time.sleep(pause)
            pause = min(0.1, 2 * pause)
    finally:
        with contextlib.suppress(OSError):
            trigger.unlink()


def _converse(target: _Target, arguments: tuple[str, ...], deadline: float) -> tuple[int, str]:
    words = [word.encode() for word in (*arguments, "", "", "")[:4]]
    if any(len(word) >= _MAX_ARGUMENT or b"\0" in word for word in words):
        raise AttachError("a path or an option is too long for the attach protocol")
    if not _listens(target):
        _wake(target, deadline)
    try:
        link = _connect(target, deadline)
    except ConnectionRefusedError:  # left behind by an earlier process of this pid
        target.inside(f"/tmp/.java_pid{target.inner_pid}").unlink()
        _wake(target, deadline)
        link = _connect(target, deadline)
    with link:
        link.sendall(b"1\0" + b"".join(word + b"\0" for word in words))
        reply = bytearray()
        while True:
            link.settimeout(max(0.01, deadline - time.monotonic()))
            part = link.recv(1 << 16)
            if not part:
                break
            reply += part
            if time.monotonic() > deadline or len(reply) > _MAX_REPLY:
                raise TimeoutError
    code, _, text = bytes(reply).decode(errors="replace").partition("\n")
    try:
        return int(code), text
    except ValueError:
        raise AttachError(f"JVM {target.pid} gave no answer to '{arguments[0]}'") from None


def execute(pid: int, *arguments: str, timeout: float = 10.0) -> str:
    """Sends one attach command with up to three arguments and returns what the JVM prints.

    Raises AttachError; never blocks for much longer than `timeout` seconds.
    """
    with _examine(pid) as target:
        return _execute(target, arguments, time.monotonic() + timeout)


def _execute(target: _Target, arguments: tuple[str, ...], deadline: float) -> str:
    try:
        code, text = _converse(target, arguments, deadline)
    except TimeoutError:
        raise AttachError(f"JVM {target.pid} did not answer '{arguments[0]}' in time") from None
    if code:
        line = next((line for line in text.splitlines() if line.strip()), f"code {code}")
        raise AttachError(f"JVM {target.pid} refused '{arguments[0]}': {line}")
    return text


def jcmd(pid: int, command: str, timeout: float = 10.0) -> str:
    """Runs a diagnostic command, such as ``Compiler.codelist``."""
    return execute(pid, "jcmd", command, timeout=timeout)


def attach(pid: int, ring: Path, *, classes: bool = True, size: str = "64m", timeout: float = 10.0) -> Attached:
    """Loads the agent into the running JVM `pid` (again: it tells everything anew) with its ring at `ring`.

    If the JVM cannot reach that path (another user's process, a container) the ring is made in a private directory
    of its own: use the path that is returned. Raises AttachError, and BuildError of `jvm.cbuild`.
    """
    agent = library()
    deadline = time.monotonic() + timeout
    with _examine(pid) as target:
        inner_agent, inner_ring = agent, ring.absolute()
        if target.foreign or target.uid != os.geteuid():
            inner_ring = Path("/tmp" if target.foreign else tempfile.gettempdir()) / f"streamer-{target.uid}"
            inner_agent = inner_ring / agent.name
            inner_ring = inner_ring / ring.parent.name / ring.name
            _private_directory(target, target.inside(str(inner_agent.parent)))
            _private_directory(target, target.inside(str(inner_ring.parent)))
            _hand_over(target, agent, target.inside(str(inner_agent)))
        if "," in str(inner_ring):
            raise AttachError(f"the path of the ring must not hold a comma: {inner_ring}")
        options = f"ring={inner_ring},size={size},classes={'on' if classes else 'off'}"
        text = _execute(target, ("load", str(inner_agent), "true", options), deadline)
        if "return code: 0" not in text:
            line = next((line for line in text.splitlines() if line.strip()), "no reason given")
            raise AttachError(f"JVM {pid} did not take the agent: {line} (its stderr may say more)")
        outer = target.inside(str(inner_ring))
        if not outer.exists():
            raise AttachError(f"JVM {pid} took the agent, but made no ring at {outer}")
        return Attached(pid, target.inner_pid, outer)


def _private_directory(target: _Target, path: Path) -> None:
    """Makes `path` a directory of the JVM's user alone. Someone else's, or a link, is refused."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700)
        os.chown(path, target.uid, target.gid)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != target.uid or status.st_mode & 0o077:
        raise AttachError(f"{path} must be a directory of user {_user(target.uid)} alone")


def _hand_over(target: _Target, agent: Path, path: Path) -> None:
    """Copies the agent to where the JVM can load it; always anew, for what stands there may not be ours."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as copy, agent.open("rb") as original:
        shutil.copyfileobj(original, copy)
    temporary.chmod(0o755)
    os.chown(temporary, target.uid, target.gid)
    temporary.replace(path)

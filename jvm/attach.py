"""HotSpot's attach protocol: commands to a running JVM by pid, and the agent loaded into it.

The JVM listens on a socket that it makes when asked: by a file .attach_pid<pid> in its working directory or /tmp and
a SIGQUIT (JDK: src/hotspot/os/posix/attachListener_posix.cpp, src/jdk.attach/linux/.../VirtualMachineImpl.java).
SIGQUIT kills a process that does not handle it, so nothing is sent before it is certain that this is a JVM whose
handler is in place; and it is sent by pidfd, so that it cannot reach another process that got the same pid.

Paths: the JVM may be another user's, or live in another mount or pid namespace (a container). Then it is given a copy
of the agent and a ring in its own /tmp. Its user can write there, and so can others in /tmp: so all that is done in
these places is done with that user's rights (`jvm.asuser`), by names below directories that are open, and never
through a link. The kernel says which process has answered.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jvm.agent.build import library
from jvm.asuser import NotDoneError, User, as_user
from jvm.export.records import ExportError
from jvm.export.ring import RingReader
from jvm.faults import ExpectedError
from jvm.private import PrivacyError, open_below, open_file_below

_MAX_ARGUMENT = 1024  # protocol version 1
_MAX_REPLY = 256 << 20
_GRACE = 1.0  # seconds after the deadline for work that keeps it by itself


class AttachError(ExpectedError, RuntimeError):
    """Why the JVM could not be reached, in one line for the user."""


@dataclass(frozen=True, slots=True)
class Attached:
    """`inner_pid` as the JVM sees itself; `ring` is where the ring lies as this process sees it. Where another user can
    exchange the path's target, it is only for people: `open` goes by safe steps."""

    pid: int
    inner_pid: int
    ring: Path
    uid: int
    below_tmp: tuple[str, ...] = ()  # names from the JVM's /tmp to the ring; empty: the ring is at a path of our own

    def open(self) -> RingReader:
        """Raises AttachError, OSError, ExportError."""
        if not self.below_tmp:
            return RingReader(self.ring)
        with _examine(self.pid) as target:
            return self.open_in(target.tmp)

    def open_in(self, tmp: int) -> RingReader:
        """The same, below the JVM's open /tmp."""
        with contextlib.ExitStack() as stack:
            for name in self.below_tmp[:-1]:
                tmp = open_below(tmp, name, self.uid)
                stack.callback(os.close, tmp)
            return RingReader(self.ring, open_file_below(tmp, self.below_tmp[-1], self.uid))


@dataclass(frozen=True, slots=True)
class _Target:
    pid: int
    pidfd: int
    inner_pid: int
    user: User
    root: Path  # its root directory, as seen from here
    foreign: bool  # its file system is not ours
    tmp: int  # its /tmp, open
    cwd: int | None  # its working directory, open


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
    """Makes sure that `pid` is a JVM that we may attach to, and holds it and its directories meanwhile."""
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, OverflowError):
        raise AttachError(f"there is no process {pid}") from None
    except OSError as error:
        raise AttachError(f"{pid} is not the pid of a process: {error.strerror}") from None
    with contextlib.ExitStack() as stack, _explained(pid):
        stack.callback(os.close, pidfd)
        target = _target(pid, pidfd, stack)
        if os.geteuid() == 0 and target.user.uid != 0:
            _clear(target)
        yield target


@contextlib.contextmanager
def _explained(pid: int) -> Iterator[None]:
    """An error of the system, of the directories or of the child becomes an AttachError."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise AttachError(f"process {pid} ended, or its files cannot be reached") from None
    except PermissionError as error:
        raise AttachError(f"no permission for {error.filename or f'process {pid}'}: be its user, or root") from None
    except (OSError, PrivacyError) as error:
        raise AttachError(f"cannot attach to process {pid}: {error}") from None
    except NotDoneError as error:
        raise AttachError(str(error)) from None


def _target(pid: int, pidfd: int, stack: contextlib.ExitStack) -> _Target:
    status = _status(pid)
    if status["State"].strip()[0] in "ZX":
        raise AttachError(f"process {pid} has ended")
    groups = tuple(int(group) for group in status["Groups"].split())
    user = User(int(status["Uid"].split()[1]), int(status["Gid"].split()[1]), groups)
    if os.geteuid() != 0 and not user.is_us():
        raise AttachError(f"process {pid} belongs to user {_user(user.uid)}: attach as that user, or as root")
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    if not any(line.endswith("/libjvm.so") for line in maps.splitlines()):
        raise AttachError(f"process {pid} is not a JVM (HotSpot's libjvm.so is not loaded in it)")
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if b"-XX:+DisableAttachMechanism" in arguments:
        raise AttachError(f"JVM {pid} was started with -XX:+DisableAttachMechanism; start it with the agent instead")
    root = Path(f"/proc/{pid}/root")
    foreign = not root.samefile("/") or not Path(f"/proc/{pid}/ns/mnt").samefile("/proc/self/ns/mnt")

    def opened(path: str, flags: int = 0, dir_fd: int | None = None) -> int:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | flags, dir_fd=dir_fd)
        stack.callback(os.close, fd)
        return fd

    # a link in another root would lead into ours
    tmp = opened("tmp", os.O_NOFOLLOW, opened(str(root))) if foreign else opened("/tmp")
    try:
        cwd = opened(f"/proc/{pid}/cwd")
    except OSError:
        cwd = None
    signal.pidfd_send_signal(pidfd, 0)  # it lives, so all of this was said of it, and of no later process of its pid
    inner = int(status.get("NSpid", str(pid)).split()[-1])
    return _Target(pid, pidfd, inner, user, root if foreign else Path("/"), foreign, tmp, cwd)


def _entry(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _socket(target: _Target) -> str:
    return f".java_pid{target.inner_pid}"


def _listens(target: _Target) -> bool:
    entry = _entry(target.tmp, _socket(target))
    if entry is None:
        return False
    if entry.st_uid != target.user.uid:  # the JVM cannot replace it: the directory is sticky
        raise AttachError(f"/tmp/{_socket(target)} belongs to user {_user(entry.st_uid)} and is in the JVM's way")
    return stat.S_ISSOCK(entry.st_mode)


def _clear(target: _Target) -> None:
    """Removes what an earlier JVM of root, of the same pid, has left where this JVM of another user would listen."""
    entry = _entry(target.tmp, _socket(target))
    if entry is None or entry.st_uid != 0 or not stat.S_ISSOCK(entry.st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.setblocking(False)
        try:
            link.connect(f"/proc/self/fd/{target.tmp}/{_socket(target)}")
        except ConnectionRefusedError:  # nobody listens
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_socket(target), dir_fd=target.tmp)
        except OSError:
            pass  # whatever it is, it is in the way


def _connect(target: _Target, deadline: float) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(max(0.01, deadline - time.monotonic()))
    try:
        link.connect(f"/proc/self/fd/{target.tmp}/{_socket(target)}")
        pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if pid != target.pid:
            raise AttachError(f"/tmp/{_socket(target)} is not JVM {target.pid}'s: process {pid} of user {uid} answers")
    except BaseException:
        link.close()
        raise
    return link


def _ask(target: _Target, directory: int) -> bool:
    """Makes the file that asks the JVM to listen; False if it was there already, by another client that will remove
    it. Anything else of that name is removed, as far as the JVM's user may: the JVM would obey no other file. Raises
    AttachError, OSError."""
    name = f".attach_pid{target.inner_pid}"
    for _ in range(3):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory))
            return True
        entry = _entry(directory, name)
        if entry is None:
            continue
        if stat.S_ISREG(entry.st_mode) and entry.st_uid in (0, target.user.uid):
            return False
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise AttachError(f"{name} of user {_user(entry.st_uid)} is in the way: {error.strerror}") from None
    raise AttachError(f"{name} is put in the way again and again")


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
    directory = target.tmp if target.cwd is None else target.cwd
    try:
        made = _ask(target, directory)
    except OSError:  # its working directory is closed to it, or gone
        made = _ask(target, directory := target.tmp)
    try:
        signal.pidfd_send_signal(target.pidfd, signal.SIGQUIT)
        pause = 0.005
        while not _listens(target):
            if time.monotonic() > deadline:
                raise AttachError(f"JVM {target.pid} did not answer in time (busy, or attaching is switched off in it)")
            time.sleep(pause)
            pause = min(0.1, 2 * pause)
    finally:
        if made:
            with contextlib.suppress(OSError):
                os.unlink(f".attach_pid{target.inner_pid}", dir_fd=directory)


def _converse(target: _Target, arguments: tuple[str, ...], deadline: float) -> tuple[int, str]:
    words = [word.encode() for word in (*arguments, "", "", "")[:4]]
    if any(len(word) >= _MAX_ARGUMENT or b"\0" in word for word in words):
        raise AttachError("a path or an option is too long for the attach protocol")
    if not _listens(target):
        _wake(target, deadline)
    try:
        link = _connect(target, deadline)
    except ConnectionRefusedError:  # left behind by an earlier process of this pid
        os.unlink(_socket(target), dir_fd=target.tmp)
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
    """Sends one attach command with up to three arguments and returns the JVM's output.

    Raises AttachError; never blocks for much longer than `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    with _examine(pid) as target:
        return _as_its_user(target, lambda: _execute(target, arguments, deadline), deadline)


def _as_its_user(target: _Target, work: Callable[[], str], deadline: float) -> str:
    def explained() -> str:
        with _explained(target.pid):
            return work()

    return as_user(target.user, explained, deadline + _GRACE - time.monotonic(), _MAX_REPLY)


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


def attach(
    pid: int,
    ring: Path,
    *,
    classes: bool = True,
    size: str = "64m",
    stacks_ms: int = 100,
    mounts: int = 10000,
    timeout: float = 10.0,
) -> Attached:
    """Loads the agent into the running JVM `pid` (again: it tells everything anew) with its ring at `ring`.

    If the JVM cannot reach that path (another user's process, a container) the ring is made in a private directory of
    its own: use the returned one. Raises AttachError, and BuildError of `jvm.cbuild`.
    """
    agent = library()
    deadline = time.monotonic() + timeout
    with _examine(pid) as target:
        below, inner_agent, inner_ring, machine_code = tuple[str, ...](), agent, ring.absolute(), b""
        if target.foreign or not target.user.is_us():
            below = (f"streamer-{target.user.uid}", ring.parent.name, ring.name)
            inner_agent, inner_ring = Path("/tmp", below[0], agent.name), Path("/tmp", *below)
            machine_code = agent.read_bytes()
        if "," in str(inner_ring):
            raise AttachError(f"the path of the ring must not hold a comma: {inner_ring}")
        options = f"ring={inner_ring},size={size},classes={'on' if classes else 'off'}"
        options += f",stacks={stacks_ms},mounts={mounts}"

        def work() -> str:
            if below:
                _hand_over(target, below[:-1], agent.name, machine_code)
            text = _execute(target, ("load", str(inner_agent), "true", options), deadline)
            if "return code: 0" not in text:
                line = next((line for line in text.splitlines() if line.strip()), "no reason given")
                raise AttachError(f"JVM {pid} did not take the agent: {line} (its stderr may say more)")
            return text

        _as_its_user(target, work, deadline)
        outer = target.root / str(inner_ring).lstrip("/")
        attached = Attached(pid, target.inner_pid, outer, target.user.uid, below)
        try:
            (attached.open_in(target.tmp) if below else attached.open()).close()
        except (FileNotFoundError, ExportError):
            raise AttachError(f"JVM {pid} took the agent, but made no ring at {outer}") from None
        return attached


def _hand_over(target: _Target, names: tuple[str, ...], name: str, machine_code: bytes) -> None:
    """Makes private directories one below the other in the JVM's /tmp, and a file in the first, from which the JVM will
    load; always anew, for a file that stands there may not be ours. Raises PrivacyError, OSError."""
    above = os.fstat(target.tmp)
    if above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX:
        raise PrivacyError("/tmp of the JVM can be written by others, who could exchange the agent in it")
    at, opened = target.tmp, list[int]()
    try:
        for directory in names:
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700, dir_fd=at)
            opened.append(at := open_below(at, directory, target.user.uid))
        new = f"{name}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=opened[0])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=opened[0]), "wb") as file:
            file.write(machine_code)
        os.rename(new, name, src_dir_fd=opened[0], dst_dir_fd=opened[0])
    finally:
        for fd in opened:
            os.close(fd)

"""One session of tracing: a private directory with everything that belongs to it.

`<runtime_dir>/<name>/` holds the rings, the spooled JIT export and the sockets; docs/architecture.md lists them.
It goes when the session ends. An earlier session's remains go when a new one begins, if its manifest names them
(`streamer.session.manifest`), its lock is free, and the JVM that it traced has ended too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from jvm.faults import ExpectedError
from jvm.private import PrivacyError, private_directory
from streamer.session import manifest
from streamer.session.manifest import ManifestError, Process

# sun_path holds 108 bytes (unix(7)); a socket's name needs some 24 of them
_LONGEST_DIRECTORY = 80
_MEMBERS_SECONDS = 10.0
_NAME = re.compile(r"\d{6}-\d+")

log = structlog.get_logger()


class SessionError(ExpectedError):
    """The directory cannot be made or is not private."""


class NoRoomError(SessionError):
    """The directory cannot be made because its disk is full."""


def _private(path: Path) -> None:
    try:
        private_directory(path)
    except PrivacyError as error:
        raise SessionError(
            f"the runtime directory cannot be used: {error}; STREAMER_RUNTIME_DIR can name another"
        ) from error


def _lock(directory: Path) -> int:
    """The descriptor that holds the session. Raises OSError: BlockingIOError if another process holds it."""
    fd = os.open(directory / manifest.LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _sweep(runtime_dir: Path) -> None:
    for directory in sorted(runtime_dir.iterdir()):
        try:
            known = manifest.read(directory)
            target = known.target
            if target is None or not target.lives():
                _sweep_one(directory)
            elif not known.owner.lives():
                log.info("a JVM of an earlier session runs on untraced: `streamer resume`", pid=target.pid)
        except ManifestError as error:
            if _NAME.fullmatch(directory.name):
                log.warning("not swept", why=str(error))


def _sweep_one(directory: Path) -> None:
    try:
        held = _lock(directory)
    except OSError:
        return  # it is in use, or another process sweeps it
    try:
        _remove(directory)
    finally:
        os.close(held)


def _remove(directory: Path) -> None:
    """Logs the names that stay."""
    with suppress(FileNotFoundError):  # another process swept it
        try:
            left = manifest.remove(directory)
        except (ManifestError, OSError) as error:
            log.warning("a session's directory stays", directory=str(directory), why=str(error))
        else:
            if left:
                why = f"not made by a session: {', '.join(left[:5])}{' …' if len(left) > 5 else ''}"
                log.warning("a session's directory stays", directory=str(directory), why=why)


def traces(directory: Path, pid: int) -> None:
    """Notes that the session traces process `pid`: its files stay for as long as that lives."""
    try:
        manifest.note_target(directory, pid)
    except (ManifestError, OSError) as error:
        log.warning("the session's manifest does not name its target", pid=pid, why=str(error))


def untraced(runtime_dir: Path) -> list[tuple[Path, Process]]:
    """Sessions whose JVM runs and whose own process is gone: the directory, and the JVM."""
    found = []
    for directory in sorted(runtime_dir.iterdir()) if runtime_dir.is_dir() else []:
        with suppress(ManifestError):
            known = manifest.read(directory)
            if known.target is not None and known.target.lives() and not known.owner.lives():
                found.append((directory, known.target))
    return found


def running(runtime_dir: Path) -> list[tuple[Path, tuple[int, ...]]]:
    """Sessions whose own process runs: the directory, and the pids of that and of the JVM."""
    found = []
    for directory in sorted(runtime_dir.iterdir()) if runtime_dir.is_dir() else []:
        with suppress(ManifestError):
            known = manifest.read(directory)
            if known.owner.lives():
                target = () if known.target is None else (known.target.pid,)
                found.append((directory, (known.owner.pid, *target)))
    return found


@contextmanager
def resumed(runtime_dir: Path, pid: int | None = None) -> Iterator[tuple[Path, Process]]:
    """A session of `untraced`, taken up by this process; that of process `pid`, or the only one. Its directory is
    removed at the end if the JVM has ended too. Raises SessionError."""
    _private(runtime_dir)
    found = [(path, target) for path, target in untraced(runtime_dir) if pid in (None, target.pid)]
    if not found:
        raise SessionError(f"no JVM{'' if pid is None else f' {pid}'} of an earlier session runs on untraced")
    if len(found) > 1:
        raise SessionError(f"several JVMs run on untraced: name one of {', '.join(str(t.pid) for _, t in found)}")
    path, target = found[0]
    try:
        held = _lock(path)
    except OSError as error:
        raise SessionError(f"process {target.pid} is traced already: {error.strerror}") from error
    try:
        _wait_for_members(path)
        manifest.write(path, manifest.read(path).model_copy(update={"owner": Process.of(os.getpid())}))
        yield path, target
    finally:
        try:
            if not target.lives():
                _remove(path)
        finally:
            os.close(held)


def hold(directory: Path) -> None:
    """To be called by each process of a session that reads its rings: until it has ended, the session is not taken up
    by another."""
    with suppress(OSError):  # no room for a file: it dies with its session's process all the same
        fd = os.open(directory / manifest.MEMBERS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _wait_for_members(directory: Path) -> None:
    """Until no process of the earlier session is left. They die with it, or a little later."""
    fd = os.open(directory / manifest.MEMBERS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + _MEMBERS_SECONDS
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise SessionError("processes of the earlier session are still there") from None
                time.sleep(0.05)
            else:
                return
    finally:
        os.close(fd)


@contextmanager
def session(runtime_dir: Path) -> Iterator[Path]:
    """A new session directory with a manifest, removed at the end.

    Raises SessionError: not private, not writable, or a path too long for the sockets in it; NoRoomError.
    """
    _private(runtime_dir)
    _sweep(runtime_dir)
    path = runtime_dir / f"{time.strftime('%H%M%S')}-{os.getpid()}"
    if len(os.fsencode(path)) > _LONGEST_DIRECTORY:
        raise SessionError(
            f"the runtime directory {runtime_dir} is too long a path for sockets: set STREAMER_RUNTIME_DIR"
        )
    _private(path)
    try:
        held = _lock(path)
    except OSError as error:
        raise SessionError(f"{path / manifest.LOCK} cannot be locked: {error.strerror}") from error
    try:
        manifest.create(path)
    except OSError as error:
        with suppress(OSError):
            for name in (f"{manifest.NAME}.new", manifest.LOCK):
                (path / name).unlink(missing_ok=True)
            path.rmdir()
        os.close(held)
        kind = NoRoomError if error.errno in (errno.ENOSPC, errno.EDQUOT) else SessionError
        raise kind(f"the runtime directory {runtime_dir} cannot be used: {error.strerror}") from error
    try:
        _private(path / "pt")
        yield path
    finally:
        try:
            _remove(path)
        finally:
            os.close(held)

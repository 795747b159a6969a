"""One session of tracing: a private directory with everything that belongs to it.

`<runtime_dir>/<name>/` holds the rings, the spooled JIT export and the sockets; docs/architecture.md lists them.
It goes when the session ends. What an earlier session left behind goes when a new one begins, if its manifest says
what that is (`streamer.manifest`), nobody holds its lock, and the JVM that it traced has ended too.
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

from jvm.private import PrivacyError, private_directory
from streamer import manifest
from streamer.manifest import ManifestError

# sun_path holds 108 bytes (unix(7)); a socket's name needs some 24 of them
_LONGEST_DIRECTORY = 80
_NAME = re.compile(r"\d{6}-\d+")

log = structlog.get_logger()


class SessionError(Exception):
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
            target = manifest.read(directory).target
            if target is None or not target.lives():
                _sweep_one(directory)
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
    """Says what stays."""
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

"""One session of tracing: a private directory with everything that belongs to it.

`<runtime_dir>/<name>/` holds the rings, the spooled JIT export and the sockets; docs/architecture.md lists them.
It goes when the session ends; what an earlier session left behind after a crash is swept when a new one begins.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# sun_path holds 108 bytes (unix(7)); a socket's name needs some 24 of them
_LONGEST_DIRECTORY = 80


class SessionError(Exception):
    """The directory cannot be made or is not private."""


def _private(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SessionError(f"cannot make the runtime directory {path}: {error.strerror}") from error
    status = path.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise SessionError(f"the runtime directory {path} must be yours and closed to others (chmod 700 {path})")


def _sweep(runtime_dir: Path) -> None:
    """Remove directories of sessions whose process is gone: nobody holds their lock."""
    for lock in runtime_dir.glob("*/.lock"):
        with suppress(OSError), lock.open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)


@contextmanager
def session(runtime_dir: Path, keep: bool = False) -> Iterator[Path]:
    """A new session directory, removed at the end unless `keep`.

    Raises SessionError: not private, not writable, or a path too long for the sockets in it.
    """
    _private(runtime_dir)
    _sweep(runtime_dir)
    path = runtime_dir / f"{time.strftime('%H%M%S')}-{os.getpid()}"
    if len(os.fsencode(path)) > _LONGEST_DIRECTORY:
        raise SessionError(
            f"the runtime directory {runtime_dir} is too long a path for sockets: set STREAMER_RUNTIME_DIR"
        )
    _private(path)
    _private(path / "pt")
    with (path / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield path
        finally:
            if not keep:
                shutil.rmtree(path, ignore_errors=True)

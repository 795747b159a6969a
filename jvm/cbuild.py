"""Builds C libraries when they are asked for, and keeps them in the user's cache, keyed by sources and commands."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from jvm.faults import ExpectedError
from jvm.private import PrivacyError, is_ours, safe_directory

log = logging.getLogger(__name__)

TIMEOUT = 300.0  # seconds for one command


class BuildError(ExpectedError, RuntimeError):
    """It cannot be built; the message names in one line the missing thing."""


def cache_dir() -> Path:
    """The directory of all that is made once and kept, for this user's processes: $XDG_CACHE_HOME/streamer or
    ~/.cache/streamer, else `streamer-cache-<uid>` in the temporary directory. It is there, and safe from other users
    (`jvm.private`): files in it are loaded as code. Where none is, as when another user came first with that name, a
    fresh one, of this process alone, until it ends. Raises BuildError if that is not safe either."""
    why = ""
    for wanted in _wanted():
        try:
            directory = safe_directory(wanted)
        except PrivacyError as error:
            why = why or str(error)
        else:
            if why:
                _say(f"{why}: {directory} is the cache instead")
            return directory
    directory = _fresh(os.getpid())
    _say(f"{why}: {directory} is the cache of this process instead")
    return directory


def _wanted() -> Iterator[Path]:
    if base := os.environ.get("XDG_CACHE_HOME"):
        yield Path(base) / "streamer"
    elif base := os.environ.get("HOME"):
        yield Path(base) / ".cache" / "streamer"
    yield Path(tempfile.gettempdir()) / f"streamer-cache-{os.geteuid()}"


@cache
def _fresh(pid: int) -> Path:
    """One for each process: a child does not rely on its parent's, which goes with that."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="streamer-cache-"))
        atexit.register(lambda: shutil.rmtree(directory, ignore_errors=True) if os.getpid() == pid else None)
        return safe_directory(directory)
    except (OSError, PrivacyError) as error:
        raise BuildError(f"no place for a cache: {error}") from error


@cache
def _say(text: str) -> None:
    """Once."""
    log.warning(text)


def compiler() -> str:
    """Path of a C compiler: $CC, else cc or gcc. Raises BuildError."""
    wanted = os.environ.get("CC")
    for name in [wanted] if wanted else ["cc", "gcc"]:
        if found := shutil.which(name):
            return found
    raise BuildError(f"no C compiler{f' {wanted}' if wanted else ''} (Debian: apt-get install gcc libc6-dev)")


def compiled(name: str, sources: Sequence[Path], commands: Sequence[Sequence[str]]) -> Path:
    """The file that `commands` make from `sources`, from the cache if they and it are the same as before. In the
    commands `{out}` is the file to make and `{dir}` a directory to work in. Raises BuildError."""
    digest = hashlib.sha256(repr([list(words) for words in commands]).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    target = cache_dir() / f"{digest.hexdigest()[:16]}-{name}"
    with suppress(FileNotFoundError):
        if is_ours(target.lstat()):
            return target
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as directory:
            out = Path(directory) / name
            for words in commands:
                argv = [word.format(out=out, dir=directory) for word in words]
                done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
                if done.returncode:
                    said = done.stderr.strip().splitlines() or ["no message"]
                    raise BuildError(f"cannot compile {name}: {next((s for s in said if 'error' in s), said[0])}")
            out.chmod(0o755)
            out.replace(target)  # whole or not at all, also when several build at once
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{name} cannot be built: {error}") from error
    return target

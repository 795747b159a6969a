"""A session directory's owner and contents: `session.json`, written before anything else stands there.

A session's files are made by several processes, the traced JVM among them, as threads and CPUs appear. So the manifest
names the patterns of their names, not each of them. Clearing up goes by it: an entry that no pattern names, that is not
this user's, or that is neither a file nor a socket was not made by a session, and stays. Links are not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from capture.live.source import process_start
from jvm.private import is_ours

VERSION = 1
NAME = "session.json"
LOCK = ".lock"  # held by the process whose session it is, for as long as that lives
MEMBERS = "members.lock"  # held, shared, by the processes that read the rings
MOST_BYTES = 1 << 16
FILES = (  # each of them also with .new behind its name, until it is whole
    *("jit-*.ring", "jit-*.export", "told-*.records", "heads"),  # the agent, capture
    *("pt/*.ring", "pt/emulator.json"),  # the emulator
    *("*.ipc", "*.ipc.acks", "keys/own.key", "keys/own.key_secret", "keys/peers/own.key"),
    *("hub.state", "hub.state.*", "contexts.json", MEMBERS),
)


class ManifestError(Exception):
    """There is none, or it is not one of this user and version; one line."""


class Process(BaseModel):
    """A process that no later one of the same pid is taken for."""

    model_config = ConfigDict(frozen=True)

    pid: int
    start: int  # clock ticks since boot, proc(5)

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid=pid, start=process_start(pid))

    def lives(self) -> bool:
        return self.start != 0 and process_start(self.pid) == self.start


class Manifest(BaseModel):
    """New fields need a default; a new meaning of an old one, a new version."""

    model_config = ConfigDict(frozen=True)

    version: int = VERSION
    owner: Process  # holds the lock
    uid: int
    target: Process | None = None  # the traced JVM, once it runs
    files: tuple[str, ...] = FILES  # patterns, relative to the directory


def create(directory: Path) -> Manifest:
    """The manifest of a new session of this process. Raises OSError."""
    manifest = Manifest(owner=Process.of(os.getpid()), uid=os.geteuid())
    write(directory, manifest)
    return manifest


def note_target(directory: Path, pid: int) -> None:
    """Notes that the session traces process `pid`. Raises ManifestError, OSError."""
    write(directory, read(directory).model_copy(update={"target": Process.of(pid)}))


def write(directory: Path, manifest: Manifest) -> None:
    """Whole or not at all. Raises OSError."""
    new = directory / f"{NAME}.new"
    new.unlink(missing_ok=True)
    with new.open("x") as file:
        file.write(manifest.model_dump_json(indent=1) + "\n")
    new.replace(directory / NAME)


def read(directory: Path) -> Manifest:
    """Raises ManifestError."""
    with _opened(directory) as fd:
        return _read(fd, directory)


def remove(directory: Path) -> list[str]:
    """Removes the files that the manifest names, then itself and the directory. Returns the names that stay; then the
    directory and its manifest stay too. The caller holds the lock. Raises ManifestError, OSError."""
    with _opened(directory) as fd:
        files = _read(fd, directory).files
        own = (f"{NAME}.new", NAME, LOCK)
        left = [name for name in _clear(fd, "", files) if name not in own]
        if not left:
            for name in own:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=fd)
            directory.rmdir()
    return left


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ManifestError(f"{directory} is no session's directory: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _read(fd: int, directory: Path) -> Manifest:
    try:
        file = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        with os.fdopen(file, "rb") as opened:
            if not is_ours(os.fstat(file)):
                raise ManifestError(f"{directory / NAME} is not yours")
            manifest = Manifest.model_validate_json(opened.read(MOST_BYTES))
    except OSError as error:
        raise ManifestError(f"{directory / NAME}: {error.strerror}") from error
    except ValidationError as error:
        raise ManifestError(f"{directory / NAME}: {error.errors()[0]['msg']}") from error
    if manifest.version != VERSION or manifest.uid != os.geteuid():
        raise ManifestError(f"{directory / NAME} is of version {manifest.version} and user {manifest.uid}")
    return manifest


def _clear(fd: int, prefix: str, files: tuple[str, ...]) -> list[str]:
    """Removes the entries that `files` names from the open directory, which the session knows as `prefix`; the names
    that stay."""
    left = []
    for entry in sorted(os.listdir(fd)):
        name = prefix + entry
        status = os.stat(entry, dir_fd=fd, follow_symlinks=False)
        ours = status.st_uid == os.geteuid()
        if ours and stat.S_ISDIR(status.st_mode) and any(pattern.startswith(f"{name}/") for pattern in files):
            below = os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                inside = _clear(below, f"{name}/", files)
            finally:
                os.close(below)
            if not inside:
                os.rmdir(entry, dir_fd=fd)
            left += inside
        elif ours and (stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)) and _named(name, files):
            os.unlink(entry, dir_fd=fd)
        else:
            left.append(name)
    return left


def _named(name: str, files: tuple[str, ...]) -> bool:
    name = name.removesuffix(".new")
    return any(name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) for pattern in files)

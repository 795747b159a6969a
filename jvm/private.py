"""Directories in which no other user can put something, or exchange it.

A path is as safe as each step of it: a user that may write a directory may exchange its entries. So the path is walked
from the root, and each directory must belong to this user or to root and be writable by its owner alone. One exception,
the temporary directory: with the sticky bit only the owner of an entry can take it away, so a step through it is safe
if the entry is this user's or root's. A link counts as an entry: it is followed if its owner is one of the two.
(systemd's chase() with CHASE_SAFE and OpenSSH's StrictModes ask for the same.) A path that has passed cannot be changed
by others afterwards, so paths below it may be used as they are.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from jvm.faults import ExpectedError

MOST_LINKS = 40  # as the kernel (MAXSYMLINKS)


class PrivacyError(ExpectedError):
    """A directory that others can write to, or that cannot be had; one line, with the path."""


def safe_directory(path: Path) -> Path:
    """The real path of directory `path`, made (0700, as are the missing ones above it) if it was not there. No user but
    this one and root can change what is in it or above it. Raises PrivacyError."""
    at = root = Path("/")
    status = at.lstat()
    steps = list(reversed(path.absolute().parts[1:]))
    links = 0
    try:
        while steps:
            _check(at, status, passing=True)
            name = steps.pop()
            if name == "..":
                at, status = at.parent, at.parent.lstat()
                continue
            step = at / name
            entry = _entry(step)
            if stat.S_ISLNK(entry.st_mode):
                links += 1
                _check_owner(step, entry)
                if links > MOST_LINKS:
                    raise PrivacyError(f"{path}: too many links")
                to = step.readlink()
                steps += reversed([part for part in to.parts if part != "/"])
                if to.is_absolute():
                    at, status = root, root.lstat()
                continue
            if not stat.S_ISDIR(entry.st_mode):
                raise PrivacyError(f"{step}: Not a directory")
            at, status = step, entry
            _check_owner(at, status)
        _check(at, status, passing=False)
    except OSError as error:
        raise PrivacyError(f"{error.filename or path}: {error.strerror}") from error
    return at


def private_directory(path: Path) -> Path:
    """The same for a directory that is this user's alone and that others cannot even look into. Raises PrivacyError."""
    at = safe_directory(path)
    status = at.lstat()
    if status.st_uid != os.geteuid():
        raise PrivacyError(f"{path} must belong to you, not to user {status.st_uid}")
    if status.st_mode & 0o077:
        raise PrivacyError(f"{path} is open to others (chmod 700 {path})")
    return at


def is_ours(status: os.stat_result) -> bool:
    """A regular file of this user that only this user can write."""
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def new_file(path: Path, mode: int = 0o600) -> int:
    """A new file at `path`, open to read and write, in place of what stands there: a link is not followed, a FIFO not
    waited for, and a process that has the old file open does not see the new content. Raises OSError."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def output_file(path: Path) -> int:
    """`path` as a user of a command gave it, open to write: a device, a FIFO or a link of this user or root is written
    to as it is (/dev/stdout), in place of anything else stands a new file. A FIFO that nobody reads is an error: its
    reader may never come. Raises PrivacyError, OSError."""
    with suppress(FileNotFoundError):
        entry = path.lstat()
        if not stat.S_ISREG(entry.st_mode):
            _check_owner(path, entry)
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                raise OSError(errno.ENXIO, "a FIFO that nobody reads: start its reader first", str(path)) from None
            os.set_blocking(fd, True)
            return fd
    return new_file(path, 0o666)


# ---- below an open directory, in places where another user may change names


def open_below(parent: int, name: str, uid: int) -> int:
    """The directory `name` in the open directory `parent`, itself and not through a link; it must be user `uid`'s
    alone. Raises PrivacyError, OSError."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    status = os.fstat(fd)
    if status.st_uid != uid or status.st_mode & 0o077:
        os.close(fd)
        raise PrivacyError(f"{name} must be a directory of user {uid} alone")
    return fd


def open_file_below(parent: int, name: str, uid: int) -> int:
    """The regular file `name` of user `uid` in the open directory `parent`, to read and write. Nothing else is opened,
    not even to look: opening a device or a FIFO may do something. Raises PrivacyError, OSError."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise PrivacyError(f"{name} is not a file of user {uid}")
        return os.open(f"/proc/self/fd/{found}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(found)


def _entry(step: Path) -> os.stat_result:
    try:
        return step.lstat()
    except FileNotFoundError:
        with suppress(FileExistsError):  # another process of ours was faster, or another user: the owner tells
            step.mkdir(0o700)
        return step.lstat()


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise PrivacyError(f"{path} belongs to another user ({status.st_uid})")


def _check(path: Path, status: os.stat_result, *, passing: bool) -> None:
    """`passing`: the path goes on to an entry whose owner is checked."""
    if status.st_mode & 0o022 and not (passing and status.st_mode & stat.S_ISVTX):
        raise PrivacyError(f"{path} can be written by others")

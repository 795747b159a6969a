"""Files from outside: recordings, traces, code, settings. All are opened here, for all readers.

A name may be that of a pipe (open and read would wait), of a device (it never ends), of a folder, or of a file larger
than memory. So nothing is waited for, the kind of file is looked at on the opened file, and every reader says how much
it takes. Errors are OSErrors with the file's name, as those of a missing file are.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip


def open_input(path: Path, most: int) -> int:
    """A descriptor of the regular file `path`, of at most `most` bytes now. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:  # a NUL, or half a surrogate pair
        raise OSError(errno.EINVAL, "no name of a file", repr(str(path))) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
            raise OSError(errno.EINVAL, f"{kind}, no regular file", str(path))
        check_size(path, status.st_size, most)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_size(path: Path, size: int, most: int) -> None:
    """Raises OSError if `size` bytes are more than `most`."""
    if size > most:
        raise OSError(errno.EFBIG, f"{size} bytes are more than {most}", str(path))


def read_input(path: Path, most: int) -> bytes:
    """The whole file, at most `most` bytes, also if it grows meanwhile. Raises OSError."""
    with os.fdopen(open_input(path, most), "rb") as file:
        data = file.read(most + 1)
    check_size(path, len(data), most)
    return data


def map_input(path: Path, most: int) -> memoryview:
    """The bytes of the file, mapped. Raises OSError."""
    fd = open_input(path, most)
    try:
        return map_descriptor(fd)
    finally:
        os.close(fd)


def map_descriptor(fd: int) -> memoryview:
    """All bytes of an open file; they stay mapped as long as the view lives."""
    size = os.fstat(fd).st_size
    return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ) if size else b"")

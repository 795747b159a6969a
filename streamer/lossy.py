"""Standard output and error that cannot fail: bytes that cannot be written are lost and counted, by output and errno.

A reader that went away (EPIPE), a terminal that was closed (EIO), a log on a full disk (ENOSPC) are no reason to end
a tracer, and with it, maybe, a JVM's supervision. Nor is a reader that stopped reading: bytes not taken for longer than
`PATIENCE` are lost as EAGAIN, and from then on no writer waits until something is taken again. (The descriptor itself
stays blocking: it is the JVM's, too.)

The streams are replaced at the very bottom, below the text layer, so that rich, click, structlog, warnings and
tracebacks write as ever.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections import Counter

PATIENCE = 0.1  # seconds
_PIECE = select.PIPE_BUF  # a pipe that polls as writable takes so much without blocking

lost: Counter[str] = Counter()
"""Bytes of this process, by `output/ERRNO`; not only of these streams."""


def count(output: str, error: OSError, size: int) -> None:
    lost[f"{output}/{errno.errorcode.get(error.errno or 0, 'other')}"] += size


class _Raw(io.RawIOBase):
    def __init__(self, name: str, descriptor: int) -> None:
        self.name, self._descriptor = name, descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._stalled = False

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        at = 0
        try:
            while at < len(view):
                self._stalled = not self._poll.poll(0 if self._stalled else PATIENCE * 1000)
                if self._stalled:
                    raise BlockingIOError(errno.EAGAIN, "nobody reads")
                at += os.write(self._descriptor, view[at : at + _PIECE])
        except OSError as error:
            count(self.name, error, len(view) - at)
        return len(view)


def never_fail(*names: str) -> None:
    """Makes it so of "stdout" or "stderr", unless something else stands there already (a test's)."""
    for descriptor in range(3):  # a descriptor closed from the start must not become a socket's
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in names:
        now, original = getattr(sys, name), getattr(sys, f"__{name}__")
        if now is original:
            raw = _Raw(name, {"stdout": 1, "stderr": 2}[name])
            encoding = original.encoding if original is not None else "utf-8"
            text = io.TextIOWrapper(
                raw,
                encoding=encoding, errors="backslashreplace", line_buffering=True, write_through=True,
            )  # fmt: skip
            setattr(sys, name, text)

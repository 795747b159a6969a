"""A JVM that was started by a session whose process is gone, and is traced again: waited for, and never signalled."""

from __future__ import annotations

import os

import trio

from streamer.session.manifest import Process


class AdoptedProcess:
    """Where `TargetProcess` stands in a session that is taken up. Its exit status cannot be known."""

    started = True
    status = 0

    def __init__(self, process: Process) -> None:
        self.pid = process.pid
        self.ended = False
        self._process = process
        self.over = trio.Event()
        """It has ended, or was left."""
        self.told = trio.Event()
        """A signal came that is meant to end us."""

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    def start(self) -> None:
        """It runs."""

    def leave(self) -> None:
        """It runs on without us, as it did before."""
        self.told.set()
        self.over.set()

    async def attend(self) -> None:
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            fd = -1
        try:
            if fd >= 0 and self._process.lives():  # and no other of this pid
                await trio.lowlevel.wait_readable(fd)
        finally:
            if fd >= 0:
                os.close(fd)
        self.ended = True
        self.over.set()

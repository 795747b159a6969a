"""How a member is started: as a process of its own (`streamer.pipeline.worker`), or as tasks in this process."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any, Protocol

import trio

from streamer.pipeline import boot
from streamer.pipeline.spec import Spec
from streamer.pipeline.worker import Failed, Member
from streamer.transport.control import Control
from streamer.transport.transport import Transport


class Run(Protocol):
    """A started member. `wait` returns when nothing of it is left."""

    pid: int

    async def wait(self) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Starter(Protocol):
    """Starts members that are not in this process; they hear their `Spec` over `theirs`, which the starter closes, and
    inherit `descriptors`. Raises OSError."""

    async def __call__(self, name: str, theirs: socket.socket, descriptors: Sequence[int]) -> Run: ...


class _ProcessRun:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    async def wait(self) -> None:
        if self._process.poll() is None:
            fd = os.pidfd_open(self.pid)
            try:
                await trio.lowlevel.wait_readable(fd)
            finally:
                os.close(fd)
            self._process.wait()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


async def start_process(name: str, theirs: socket.socket, descriptors: Sequence[int]) -> Run:
    with theirs:
        return _ProcessRun(_popen(name, theirs.fileno(), descriptors))


def _popen(name: str, descriptor: int, others: Sequence[int]) -> subprocess.Popen[bytes]:
    """By this thread, not by a pool's, which would end before us: the member dies with the thread. `name` is for
    listings of processes."""
    words = boot.command("streamer.pipeline.worker", str(descriptor), name)
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=(descriptor, *others), start_new_session=True)


class TaskRun:
    """A member in this process; `run` is its task."""

    pid = 0

    def __init__(self, spec: Spec, transport: Transport, theirs: socket.socket, stages: Sequence[Any] | None) -> None:
        self._control = Control.of_descriptor(theirs.detach())
        self._member = Member(spec, transport, self._control, stages)
        self._scope = trio.CancelScope()
        self._over = trio.Event()

    async def run(self) -> None:
        try:
            with self._scope:
                await self._member.run()
        except Exception as error:
            await self._control.say(**Failed.by(error).words())
        finally:
            self._over.set()
            with trio.CancelScope(shield=True):
                await self._control.close()

    async def wait(self) -> None:
        await self._over.wait()

    def terminate(self) -> None:
        self._member.stop()

    def kill(self) -> None:
        self._scope.cancel()

"""How a member is started: as a process of its own (`streamer.worker`), or as tasks in this process."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import trio

from streamer.transport.control import Control
from streamer.transport.transport import Transport
from streamer.worker import Failed, Member, Spec


class Run(Protocol):
    """A started member. `wait` returns when nothing of it is left."""

    pid: int

    async def wait(self) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Starter(Protocol):
    """Starts members that are not in this process; they hear their `Spec` over `theirs`, which the starter closes."""

    async def __call__(self, name: str, theirs: socket.socket) -> Run: ...


class _ProcessRun:
    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def wait(self) -> None:
        await self._process.wait()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


async def start_process(name: str, theirs: socket.socket) -> Run:
    with theirs:
        # -P: with -m alone the working directory, which may be anybody's, comes first among the places of modules
        command = [sys.executable, "-P", "-m", "streamer.worker", str(theirs.fileno())]
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
        )
    return _ProcessRun(process)


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

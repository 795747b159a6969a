"""Supervisor, members and links as they are, on a model of processes and sockets: in one task tree, on a virtual clock.

A process can be killed or stopped at any of its steps: a step is each request to the world (a word said or heard on the
control line, a message sent, a look for one). Sockets are those of libzmq as far as the protocol leans on them: nothing
is queued towards an endpoint that is not bound, a bounded number of messages towards a bound one; messages that a
receiver has not read are gone when either side closes.
"""

from __future__ import annotations

import socket as stdlib_socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import trio
import trio.testing
import zmq

import streamer.pipeline.supervisor
from stages.messages import Chunk
from streamer.config import Settings, TransportConfig
from streamer.pipeline.keeper import Policy, State
from streamer.pipeline.spec import Spec
from streamer.pipeline.supervisor import Supervisor
from streamer.pipeline.topology import Group, Topology
from streamer.pipeline.worker import Failed, Member
from streamer.transport.control import Control
from streamer.transport.output import Output
from streamer.transport.routing import shard
from tests.supervisor.scene import HOST, STATE_FILE, Ledger, Numbers, source_state, stream

Fault = Literal["kill", "stop"]
HWM = 4
PIDS = [next(p for p in range(1, 99) if shard((HOST, p), 2) == w) for w in (0, 1)]


@dataclass
class Socket:
    """One of libzmq's, in the model."""

    net: Net
    owner: Process
    kind: int
    endpoint: str
    inbox: deque[tuple[Socket, list[bytes]]] = field(default_factory=deque)  # of a bound one, and of a DEALER
    closed: bool = False

    @property
    def _peer(self) -> Socket | None:
        return self.net.bound.get(self.endpoint) if self.kind in (zmq.PUSH, zmq.DEALER) else None

    @property
    def writable(self) -> bool:
        peer = self._peer
        return peer is not None and sum(1 for sender, _ in peer.inbox if sender is self) < HWM

    async def checkpoint(self) -> None:
        await self.owner.step("look")
        self._check()

    def _check(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError("socket is closed")

    def try_send(self, frames: list[Any]) -> bool:
        self.owner.world.stepped(self.owner, "send")
        if self.owner.stopped or self.owner.killed:
            return False
        if self.kind == zmq.ROUTER:
            target = next((s for s in self.net.dealers if str(id(s)).encode() == bytes(frames[0])), None)
            if target is not None and not target.closed:
                target.inbox.append((self, [bytes(f) for f in frames[1:]]))
            self.net.notify()
            return True
        peer = self._peer
        if peer is None or not self.writable:
            return False
        frames = [bytes(f) for f in frames]
        peer.inbox.append((self, [str(id(self)).encode(), *frames] if self.kind == zmq.DEALER else frames))
        self.net.notify()
        return True

    async def send(self, frames: list[Any]) -> None:
        await self.checkpoint()
        while not self.try_send(frames):
            await self.wait_writable()

    async def wait_writable(self) -> None:
        await self.owner.until(lambda: self.closed or self.writable)
        self._check()

    async def wait_readable(self) -> None:
        await self.owner.until(lambda: self.closed or bool(self.inbox))
        self._check()

    def try_receive(self) -> list[bytes] | None:
        self._check()
        if not self.inbox:
            return None
        self.owner.world.stepped(self.owner, "receive")
        if self.owner.stopped or self.owner.killed:
            return None
        _, frames = self.inbox.popleft()
        self.net.notify()
        return frames

    async def receive(self) -> list[bytes]:
        await self.checkpoint()
        while (frames := self.try_receive()) is None:
            await self.wait_readable()
        return frames

    def close(self, linger_ms: int = 0) -> None:
        if not self.closed:
            self.closed = True
            self.net.forget(self)

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Net:
    """All sockets of all processes."""

    def __init__(self) -> None:
        self.bound: dict[str, Socket] = {}
        self.dealers: list[Socket] = []
        self._changed = trio.Event()

    def notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    def forget(self, socket: Socket) -> None:
        if self.bound.get(socket.endpoint) is socket:
            del self.bound[socket.endpoint]
        for other in self.bound.values():
            other.inbox = deque(entry for entry in other.inbox if entry[0] is not socket)
        socket.inbox.clear()
        self.notify()


class Transport:
    """A process's view of the net; stands for `streamer.transport.transport.Transport`."""

    turned_away = 0  # every member of the model has the session's keys

    def __init__(self, net: Net, owner: Process) -> None:
        self._net, self._owner = net, owner
        self.sockets: list[Socket] = []

    def bind(self, kind: int, endpoint: str) -> Socket:
        socket = Socket(self._net, self._owner, kind, endpoint)
        self.sockets.append(socket)
        self._net.bound[endpoint] = socket
        self._net.notify()
        return socket

    def connect(self, kind: int, endpoint: str) -> Socket:
        socket = Socket(self._net, self._owner, kind, endpoint)
        self.sockets.append(socket)
        if kind == zmq.DEALER:
            self._net.dealers.append(socket)
        return socket


class _Line(trio.abc.Stream):
    """A control line whose every use is a step of its process."""

    def __init__(self, process: Process, stream: trio.SocketStream) -> None:
        self._process, self._stream = process, stream

    async def send_all(self, data: Any) -> None:
        await self._process.step("say")
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        await self._process.step("hear")
        return data

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Process:
    """A run of a member."""

    pid = 1

    def __init__(self, world: World, name: str, line: stdlib_socket.socket) -> None:
        self.world, self.name = world, name
        self.control = Control(_Line(self, trio.SocketStream(trio.socket.from_stdlib_socket(line))))
        self.transport = Transport(world.net, self)
        self.dead = self.killed = self.stopped = False
        self._scope = trio.CancelScope()
        self._over = trio.Event()

    async def step(self, what: str) -> None:
        """A place where the process can be hit."""
        await trio.lowlevel.checkpoint()
        self.world.stepped(self, what)
        await self.until(lambda: not self.stopped)

    async def until(self, condition: Callable[[], bool]) -> None:
        await trio.lowlevel.checkpoint()
        while self.stopped or not condition():
            await self.world.net.changed()

    async def main(self) -> None:
        try:
            with self._scope:
                words = await self.control.hear()
                if words is not None:
                    try:
                        member = Member(Spec.of(words), self.transport, self.control)  # type: ignore[arg-type]
                        await member.run()
                    except Exception as error:
                        await self.control.say(**Failed.by(error).words())
        finally:
            self.dead = True
            for socket in self.transport.sockets:
                socket.close()
            with trio.CancelScope(shield=True):
                await self.control.close()
            self._over.set()

    async def wait(self) -> None:
        await self._over.wait()

    def terminate(self) -> None:
        """SIGTERM to a process that does not listen any more; SIGKILL comes a little later."""

    def kill(self) -> None:
        self.killed = True
        self._scope.cancel()


class World:
    """Everything of one run. `hit` gives the faults of processes: (number of the step, name of the member) → fault."""

    def __init__(self, faults: dict[int, list[tuple[str, Fault]]]) -> None:
        self.net = Net()
        self.steps = 0
        self.trail: list[tuple[str, str]] = []  # member, kind of step
        self._faults = faults
        self.processes: list[Process] = []
        self.nursery: trio.Nursery | None = None

    def stepped(self, process: Process, what: str) -> None:
        self.trail.append((process.name, what))
        for name, fault in self._faults.get(self.steps, ()):
            self.hit(name, fault)
        self.steps += 1

    def hit(self, name: str, fault: Fault) -> None:
        for process in self.processes:
            if process.name == name and not process.dead:
                if fault == "kill":
                    process.kill()
                else:
                    process.stopped = True

    async def start(self, name: str, theirs: stdlib_socket.socket, descriptors: Sequence[int]) -> Process:
        assert self.nursery is not None
        self.processes.append(Process(self, name, theirs))
        self.nursery.start_soon(self.processes[-1].main)
        return self.processes[-1]


class Insisting(Numbers):
    """Holes for chunks without room, like capture; and like capture it does not end before its last word is taken."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self._limit -= 1

    async def run(self, output: Output) -> None:
        await super().run(output)
        for i, pid in enumerate(self._pids):
            at = int(self._state["position"][i])
            while at <= self._limit and not output.try_send(
                Chunk(stream(pid), at, at, np.full(10, at % 251, np.uint8))
            ):
                await trio.sleep(0.05)
                await output.heal(self.introduction)
            self._state["position"][i] = at + 1


LEDGERS: dict[Path, list[Ledger]] = {}


def sink(place: Any) -> Ledger:
    """A new ledger for each incarnation: nothing is known of the last one's accounts."""
    LEDGERS.setdefault(place.directory, []).append(Ledger())
    return LEDGERS[place.directory][-1]


@dataclass(frozen=True)
class Result:
    seconds: float
    steps: int
    trail: list[tuple[str, str]]
    seen: Counter[tuple[int, int]]  # (pid, position) → reports, in all ledgers
    wrong: int
    sent: dict[int, dict[str, int]]  # by pid: of the source
    states: dict[str, State]
    killed: list[str]
    alive: list[str]

    def lost(self, pid: int) -> int:
        """Chunks of a stream that were made and are in no report."""
        return sum((pid, at) not in self.seen for at in range(self.sent[pid]["position"])) if self.sent else 0


def run(
    directory: Path,
    faults: dict[int, list[tuple[str, Fault]]],
    policy: Policy,
    *,
    stop_at: float | None = None,
    chunks: int = 6,
    limit: float = 1000.0,
) -> Result:
    """One run of [source] → [work] × 2 → [sink]: until the source has made its chunks, or has been told to stop at a
    time. Raises trio.TooSlowError at `limit` seconds of virtual time."""
    directory.mkdir(mode=0o700)
    stages = "tests.supervisor.scene"
    options = {"pids": PIDS, "chunks": chunks if stop_at is None else 1 << 60, "burst": 2}
    topology = Topology(
        (
            Group("source", ("tests.supervisor.model:Insisting",), 1, options),
            Group("work", (f"{stages}:Tally",), 2, options),
            Group("sink", ("tests.supervisor.model:sink",), 1, options),
        )
    )
    settings = Settings(transport=TransportConfig(mode="ipc"), runtime_dir=directory)
    world = World(faults)
    supervisor = Supervisor(settings, topology, directory, policy=policy, start=world.start)

    @asynccontextmanager
    async def no_transport(_: Any) -> AsyncIterator[None]:
        yield None  # no member lives in the supervisor's process

    async def main() -> float:
        with trio.fail_after(limit):
            async with trio.open_nursery() as world.nursery:
                if stop_at is not None:
                    world.nursery.start_soon(_stop_later, supervisor, stop_at)
                await supervisor.run()
                world.nursery.cancel_scope.cancel()
        return trio.current_time()

    with patch.object(streamer.pipeline.supervisor, "open_transport", no_transport):
        # so that a step is the same one in each run
        trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc] # Final, and there for tests
        trio._core._run._r.seed(0)
        clock = trio.testing.MockClock(autojump_threshold=0)
        began = clock.current_time()
        seconds = trio.run(main, clock=clock) - began
    alive = [p.name for p in world.processes if not p.dead]
    seen: Counter[tuple[int, int]] = Counter()
    ledgers = LEDGERS.pop(directory, [])
    for ledger in ledgers:
        for pid, counts in ledger.seen.items():
            seen.update({(pid, at): n for at, n in counts.items()})
    return Result(
        seconds,
        world.steps,
        world.trail,
        seen,
        sum(ledger.wrong for ledger in ledgers),
        source_state(directory, PIDS) if (directory / STATE_FILE).exists() else {},
        {k.name: k.state for k in supervisor.members.values()},
        supervisor.killed,
        alive,
    )


async def _stop_later(supervisor: Supervisor, seconds: float) -> None:
    await trio.sleep(seconds)
    supervisor.stop()

"""Starts the members of a topology, watches them, starts again what dies, and ends them in order.

One task keeps one member: start → hear what it says → when it is gone: finished, or wait (exponential back-off,
bounded, counted) and start it again. Before and after a restart its senders are told (`down`, `up`), so that nothing
is queued towards a dead process, and the source is told to introduce the new one to what was before.

The end is in order by itself: the source sends an end of stream, each member passes it on after its last message and
exits when the next group has acknowledged it. `stop` only tells the source. What has not ended `shutdown_seconds`
later is killed.

A member runs in a process of its own (`streamer.worker`), or as tasks in this one: always with `mode = "inproc"`, and
for the groups in `here`, whose stages the caller made (the hub, which it wants to ask and serve).
"""

from __future__ import annotations

import logging
import math
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
import trio

from streamer.config import Settings
from streamer.topology import Group, Topology
from streamer.transport.control import Control, Words, control_pair
from streamer.transport.transport import Transport, addresses, open_transport
from streamer.worker import Failed, Member, Spec

log = structlog.get_logger()


@dataclass(frozen=True)
class Policy:
    """How patient the supervisor is. Seconds."""

    first_delay: float = 0.1  # before the first restart; doubles each time …
    longest_delay: float = 5.0  # … up to this
    healthy_after: float = 20.0  # a member that lived so long has its failures forgiven
    most_failures: int = 8  # in a row, then it is given up
    startup: float = 300.0  # until it is ready (kernels may be compiling), then it is killed
    silence: float = 60.0  # without a heartbeat after that, then it is killed
    shutdown_seconds: float = 30.0  # from `stop` to the end
    term_seconds: float = 1.0  # of that, between SIGTERM and SIGKILL
    exit_seconds: float = 5.0  # for a process that has said its last word


class Run(Protocol):
    """A started member."""

    pid: int

    async def wait(self) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


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


class _TaskRun:
    pid = 0

    def __init__(self, member: Member) -> None:
        self._member = member
        self._scope = trio.CancelScope()
        self._over = trio.Event()
        self.why: str | None = None

    async def run(self, control: Control) -> None:
        try:
            with self._scope:
                await self._member.run()
        except Exception as error:
            await control.say(**Failed.by(error).words())
        finally:
            self._over.set()
            with trio.CancelScope(shield=True):
                await control.close()

    async def wait(self) -> None:
        await self._over.wait()

    def terminate(self) -> None:
        self._member.stop()

    def kill(self) -> None:
        self._scope.cancel()


class Keeper:
    """What is known of one member."""

    def __init__(self, group: Group, level: int, index: int) -> None:
        self.group, self.level, self.index = group, level, index
        self.name = f"{group.name}/{index}"
        self.up = False
        self.ended = False  # for good: complete, or given up
        self.given_up = False
        self.incarnation = 0
        self.failures = 0  # in a row
        self.restarts = 0
        self.why = ""
        self.failed = False  # it has said why it cannot work
        self.hopeless = False  # … and that it never will
        self.statistics: dict[str, Any] = {}
        self.control: Control | None = None
        self.run: Run | None = None
        self.last_beat = -math.inf
        self.ready = trio.Event()  # the first incarnation is

    def status(self) -> dict[str, Any]:
        """In the words of a heartbeat to the hub."""
        return {
            "component": self.name,
            "up": self.up or (self.ended and not self.given_up),
            "restarts": self.restarts,
            "pid": self.run.pid if self.run else 0,
            "why": self.why,
            "cpu_seconds": float(self.statistics.get("cpu_seconds", 0.0)),
            "memory_bytes": int(self.statistics.get("memory_bytes", 0)),
            "statistics": self.statistics,
        }


class Supervisor:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        directory: Path,
        *,
        here: Mapping[str, Sequence[Any]] | None = None,
        policy: Policy | None = None,
        on_status: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """`directory` is the session's. `here`: group name → its stage objects (groups of one member). `on_status`
        is called with `Keeper.status()` at every heartbeat and change. Raises `TransportError`."""
        self.settings, self.topology, self.directory = settings, topology, directory
        self.policy = policy or Policy()
        self._here = dict(here or {})
        self._on_status = on_status or (lambda _: None)
        self._levels = [[Keeper(g, level, i) for i in range(g.workers)] for level, g in enumerate(topology.groups)]
        self.members = {k.name: k for level in self._levels for k in level}
        receiving = [k.name for level in self._levels[1:] for k in level]
        self._addresses = addresses(settings.transport, directory, receiving)
        self._stopping = trio.Event()
        self.killed: list[str] = []  # members that did not end in time

    # ---- for the caller

    async def run(self) -> None:
        """Until every member has ended. Cancelled, it kills them all."""
        async with open_transport(self.settings.transport) as transport, trio.open_nursery() as nursery:
            async with trio.open_nursery() as keepers:
                nursery.start_soon(self._hurry, keepers.cancel_scope)
                for keeper in self.members.values():
                    keepers.start_soon(self._keep, keeper, transport)
            nursery.cancel_scope.cancel()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin the end, in order. `run` returns when it has come."""
        self._stopping.set()

    def status(self) -> list[dict[str, Any]]:
        return [k.status() for k in self.members.values()]

    def statistics(self) -> dict[str, Any]:
        """By member, with `restarts` of all and who was given up or killed."""
        return {
            "restarts": sum(k.restarts for k in self.members.values()),
            "given_up": [k.name for k in self.members.values() if k.given_up],
            "killed": list(self.killed),
            "members": {k.name: k.status() for k in self.members.values()},
        }

    # ---- one member

    async def _keep(self, keeper: Keeper, transport: Transport) -> None:
        policy = self.policy
        while True:
            started = trio.current_time()
            if await self._live(keeper, transport):
                break
            lived = trio.current_time() - started
            keeper.failures = 1 if lived > policy.healthy_after else keeper.failures + 1
            # it said why, before it ever worked; or that another try would not help
            hopeless = keeper.hopeless or (keeper.failed and not keeper.ready.is_set())
            if keeper.failures >= policy.most_failures or hopeless:
                keeper.given_up = keeper.ended = True
                level = logging.INFO if keeper.hopeless else logging.ERROR  # whoever started us says it
                log.log(level, "given up", member=keeper.name, failures=keeper.failures, why=keeper.why)
                for before in self._before(keeper):
                    await self._tell(before, do="gone", worker=keeper.index)
                break
            delay = min(policy.longest_delay, policy.first_delay * 2 ** (keeper.failures - 1))
            keeper.restarts += 1
            log.warning("died", member=keeper.name, why=keeper.why, again_in=delay)
            self._on_status(keeper.status())
            await trio.sleep(delay)
        for after in self._after(keeper):
            await self._tell(after, do="ended", source=keeper.name)
        keeper.ready.set()
        self._on_status(keeper.status())

    async def _live(self, keeper: Keeper, transport: Transport) -> bool:
        """One incarnation, from start to end; whether it has ended for good."""
        keeper.incarnation += 1
        keeper.why, keeper.failed, keeper.run = "died without a word", False, None
        control, theirs = control_pair()
        async with trio.open_nursery() as nursery:
            here = keeper.group.name in self._here_groups()
            if not here:  # the interpreter starts while others get ready
                keeper.run = await self._spawn(theirs)
            try:
                if not keeper.level:  # no source begins before there is somebody to hear it
                    for other in self.members.values():
                        if other.level:
                            await other.ready.wait()
                keeper.control = control  # from here on told of its neighbours, after what the spec says of them
                if here:
                    keeper.run = self._here_run(keeper, theirs, transport, nursery)
                else:
                    await control.say(do="start", **self._spec(keeper).words())
                if self._stopping.is_set() and keeper.level == 0:
                    await control.say(do="stop")
                keeper.last_beat = trio.current_time()
                nursery.start_soon(self._watch, keeper)
                while (words := await control.hear()) is not None:
                    await self._heard(keeper, words)
            finally:
                keeper.up, keeper.control = False, None
                with trio.CancelScope(shield=True):
                    await self._bury(keeper, control)
            for before in self._before(keeper):
                await self._tell(before, do="down", worker=keeper.index)
            nursery.cancel_scope.cancel()
        return keeper.ended

    async def _bury(self, keeper: Keeper, control: Control) -> None:
        await control.close()
        if keeper.run is not None:
            with trio.move_on_after(self.policy.exit_seconds if keeper.ended else 0):
                await keeper.run.wait()
            keeper.run.kill()
            await keeper.run.wait()

    async def _spawn(self, theirs: socket.socket) -> Run:
        with theirs:
            command = [sys.executable, "-m", "streamer.worker", str(theirs.fileno())]
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
            )
        return _ProcessRun(process)

    def _here_run(self, keeper: Keeper, theirs: socket.socket, transport: Transport, nursery: trio.Nursery) -> Run:
        control = Control.of_descriptor(theirs.detach())
        run = _TaskRun(Member(self._spec(keeper), transport, control, self._here.get(keeper.group.name)))
        nursery.start_soon(run.run, control)
        return run

    def _here_groups(self) -> set[str]:
        inproc = self.settings.transport.mode == "inproc"
        return {g.name for g in self.topology.groups if inproc or g.name in self._here}

    def _spec(self, keeper: Keeper) -> Spec:
        after = self._after(keeper)
        return Spec(
            group=keeper.group.name,
            index=keeper.index,
            workers=keeper.group.workers,
            incarnation=keeper.incarnation,
            stages=keeper.group.stages,
            options=keeper.group.options,
            directory=str(self.directory),
            settings=self.settings.model_dump(mode="json"),
            address=self._addresses.get(keeper.name),
            upstream=tuple(k.name for k in self._before(keeper)),
            ended=tuple(k.name for k in self._before(keeper) if k.ended),
            downstream=tuple(self._addresses[k.name] for k in after),
            down=tuple(k.index for k in after if k.ready.is_set() and not k.up),
            gone=tuple(k.index for k in after if k.given_up),
        )

    async def _heard(self, keeper: Keeper, words: Words) -> None:
        keeper.last_beat = trio.current_time()
        match words:
            case {"is": "ready"}:
                keeper.up = True
                keeper.ready.set()
                again = keeper.incarnation > 1
                for before in self._before(keeper) if again else []:
                    await self._tell(before, do="up", worker=keeper.index, stranger=keeper.level == 1)
                for source in self._levels[0] if again and keeper.level > 1 else []:
                    await self._tell(source, do="introduce")
            case {"is": "beat", "statistics": dict(statistics)}:
                keeper.statistics = statistics
            case {"is": "ended", "complete": bool(complete), "statistics": dict(statistics), **rest}:
                keeper.statistics = statistics
                keeper.ended = complete
                keeper.why = "ended" if complete else "ended before its input did"
                if not rest.get("acknowledged", True):
                    keeper.why += "; its end was not acknowledged"
            case {"is": "failed", "why": str(why), "again": bool(again)}:
                keeper.why, keeper.failed, keeper.hopeless = why, True, not again
        self._on_status(keeper.status())

    async def _watch(self, keeper: Keeper) -> None:
        """Kill what has gone silent."""
        while True:
            silent = trio.current_time() - keeper.last_beat
            patience = self.policy.silence if keeper.up else self.policy.startup
            if silent > patience and keeper.run is not None:
                keeper.why = f"silent for {silent:.0f} s"
                keeper.run.kill()
                return
            await trio.sleep(max(0.2, min(patience, self.policy.silence) - silent))

    # ---- the neighbours

    def _before(self, keeper: Keeper) -> list[Keeper]:
        return self._levels[keeper.level - 1] if keeper.level else []

    def _after(self, keeper: Keeper) -> list[Keeper]:
        return self._levels[keeper.level + 1] if keeper.level + 1 < len(self._levels) else []

    async def _tell(self, keeper: Keeper, **words: Any) -> None:
        if keeper.control is not None:
            await keeper.control.say(**words)

    # ---- the end

    async def _hurry(self, keepers: trio.CancelScope) -> None:
        await self._stopping.wait()
        for source in self._levels[0]:
            await self._tell(source, do="stop")
        await trio.sleep(self.policy.shutdown_seconds - self.policy.term_seconds)
        late = [k for k in self.members.values() if not k.ended]
        self.killed += [k.name for k in late]
        log.error("did not end in time", members=self.killed)
        for keeper in late:
            if keeper.up and keeper.run is not None:
                keeper.run.terminate()
        await trio.sleep(self.policy.term_seconds)
        keepers.cancel()

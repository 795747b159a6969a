"""Starts the members of a topology, watches them, starts dead ones again, and ends them in order.

One task keeps one member: start → hear its messages → when it is gone: finished, or wait (exponential back-off,
bounded, without end) and start it again. Before and after a restart its senders are told (`down`, `up`), so that
nothing is queued towards a dead process, and the source is told to introduce the new one to what was before.

The end is a protocol with a limit at each edge (docs/shutdown.md). It begins when the source has sent all it had, or
is told to stop; each member says so too when it has sent all (`ending`), passes the end on, and exits when the next
group has acknowledged it. A member that dies when another start would change nothing is not started again.

A member runs in a process of its own (`streamer.pipeline.worker`), or as tasks in this one: always with
`mode = "inproc"`, and for the groups in `here`, whose stages the caller made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import trio

from streamer.config import Settings
from streamer.lossy import lost
from streamer.pipeline.keeper import SAID_ALL, Keeper, Policy, State
from streamer.pipeline.members import Starter, TaskRun, start_process
from streamer.pipeline.spec import Spec
from streamer.pipeline.spending import Spending, begun
from streamer.pipeline.topology import Topology
from streamer.session.selected import Watched
from streamer.transport.control import Control, Words, control_pair
from streamer.transport.transport import Transport, addresses, open_transport, with_keys

WATCH_SECONDS = 0.5
INFORM_SECONDS = 0.2
BEATS_SECONDS = 1.0
SPENT_SECONDS = 1.0

log = structlog.get_logger()


class Supervisor:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        directory: Path,
        *,
        here: Mapping[str, Sequence[Any]] | None = None,
        policy: Policy | None = None,
        start: Starter = start_process,
        descriptors: Mapping[str, Sequence[int]] | None = None,
        informs: bool = False,
    ) -> None:
        """`directory` is the session's. `here`: group name → its stage objects (groups of one member). `descriptors`:
        group name → descriptors that its processes inherit. `informs`: the last member is told the status of all, over
        its control line, now and then. Raises `TransportError`."""
        transport = with_keys(settings.transport, directory)
        self.settings = settings.model_copy(update={"transport": transport})
        self.topology, self.directory = topology, directory
        self.policy = policy or Policy()
        self._here = dict(here or {})
        self._descriptors, self._informs = dict(descriptors or {}), informs
        self._news: set[str] = set()  # names of members whose status the last one has not heard
        self._pressing = False  # some of it is not to wait for the next beat …
        self._pressed = trio.Event()  # … and this is set, and replaced
        self._start = start
        self._levels = [[Keeper(g, level, i) for i in range(g.workers)] for level, g in enumerate(topology.groups)]
        self.members = {k.name: k for level in self._levels for k in level}
        receiving = [k.name for level in self._levels[1:] for k in level]
        self._addresses = addresses(transport, directory, receiving)
        self._selected = Watched(directory)
        self._stopping = trio.Event()
        self._ending = trio.Event()
        self._stopped_at = math.inf
        self._changed = trio.Event()  # set, and replaced, at each change of a member's state, and by `stop`
        self.killed: list[str] = []  # members that did not end in time

    # ---- for the caller

    async def run(self) -> None:
        """Until every member has ended. Cancelled, it kills them all."""
        async with open_transport(self.settings.transport) as transport, trio.open_nursery() as nursery:
            async with trio.open_nursery() as keepers:
                nursery.start_soon(self._pass_stop_on)
                nursery.start_soon(self._tell_the_selection)
                if self.settings.capture.cpu_budget is not None:
                    nursery.start_soon(self._tell_what_is_spent)
                nursery.start_soon(self._bound_the_end, keepers.cancel_scope)
                for keeper in self.members.values():
                    keepers.start_soon(self._keep, keeper, transport)
            nursery.cancel_scope.cancel()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin the end, in order. `run` returns `Policy.shutdown_seconds` later at the latest."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._stopped_at = trio.current_time()
            self._wake()

    def expect_the_end(self) -> None:
        """The sources will come to their end by themselves: from now on, members have to make progress."""
        self._ending.set()
        self._wake()

    @property
    def _in_the_end(self) -> bool:
        return self.stopping or self._ending.is_set()

    async def in_the_end(self) -> None:
        """Returns when the end has begun."""
        while not self._in_the_end:
            await self._changed.wait()

    def status(self) -> list[dict[str, Any]]:
        return [self._status_of(k) for k in self.members.values()]

    def statistics(self) -> dict[str, Any]:
        """By member, with `restarts` of all and the members that were given up or killed."""
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
            await self._live(keeper, transport)
            if keeper.state is State.ENDED:
                break
            keeper.failures += 1
            if keeper.hopeless:  # no error of ours: INFO
                log.info("given up", member=keeper.name, why=keeper.why)
                await self._final(keeper, State.GIVEN_UP)
                break
            delay = policy.delay(keeper.failures)
            if not self._pointless(keeper):
                log.warning("died", member=keeper.name, why=keeper.why, in_a_row=keeper.failures, again_in=delay)
            with trio.move_on_after(delay):
                await self._until(lambda: self._pointless(keeper))
            if self._pointless(keeper):
                log.warning("died at the end", member=keeper.name, why=keeper.why)
                await self._final(keeper, State.LOST)
                break
            keeper.restarts += 1
        for after in self._after(keeper):
            await self._tell(after, do="ended", source=keeper.name)
        keeper.ready.set()

    def _pointless(self, keeper: Keeper) -> bool:
        """Whether another start would change nothing: it had said all it had to say, or nothing more comes to it, or
        it dies at every start and the end waits for it."""
        before = self._before(keeper)
        nothing_comes = bool(before) and all(k.state in SAID_ALL for k in before)
        return keeper.said_all or nothing_comes or (self._in_the_end and keeper.failures >= self.policy.deaths_at_end)

    async def _final(self, keeper: Keeper, state: State) -> None:
        self._change(keeper, state)
        for before in self._before(keeper):
            await self._tell(before, do="gone", worker=keeper.index)

    def _change(self, keeper: Keeper, state: State) -> None:
        keeper.state = state
        if keeper.level == 0 and state in SAID_ALL:
            self._ending.set()
        self._wake()
        self._on_status(keeper)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Until it is true after a change of some member's state."""
        while not condition():
            await self._changed.wait()

    async def _live(self, keeper: Keeper, transport: Transport) -> None:
        """One incarnation, from start to end."""
        keeper.incarnation += 1
        keeper.last_words, keeper.run, keeper.quiet = "", None, False
        self._change(keeper, State.STARTING)
        control, theirs = control_pair()
        async with trio.open_nursery() as nursery:
            here = keeper.group.name in self._here_groups()
            try:
                if not here:  # the interpreter starts while others get ready
                    inherited = self._descriptors.get(keeper.group.name, ())
                    keeper.run = await self._start(keeper.name, theirs, inherited)
                if not keeper.level:
                    with trio.move_on_after(keeper.patience):
                        await self._until(self._somebody_hears)
                keeper.control = control  # from here on told of its neighbours, after their state in the spec
                if here:
                    run = TaskRun(self._spec(keeper), transport, theirs, self._here.get(keeper.group.name))
                    nursery.start_soon(run.run)
                    keeper.run = run
                else:
                    await self._tell(keeper, do="start", **self._spec(keeper).words())
                if self._stopping.is_set() and keeper.level == 0:
                    await self._tell(keeper, do="stop")
                keeper.last_beat = trio.current_time()
                nursery.start_soon(self._watch, keeper)
                if self._informs and keeper.level == len(self._levels) - 1:
                    nursery.start_soon(self._inform, control)
                while (words := await control.hear()) is not None:
                    await self._heard(keeper, words)
            except OSError as error:  # no process to be had
                keeper.last_words = f"cannot be started: {error.strerror}"
            finally:
                keeper.control = None
                with trio.CancelScope(shield=True):
                    await control.close()
                    await self._bury(keeper)
            keeper.why = keeper.last_words or "died without a word"
            if keeper.state is not State.ENDED:
                self._change(keeper, State.WAITING)
            for before in self._before(keeper):
                await self._tell(before, do="gone" if keeper.ended else "down", worker=keeper.index)
            nursery.cancel_scope.cancel()

    def _somebody_hears(self) -> bool:
        return self.stopping or all(k.ready.is_set() for level in self._levels[1:] for k in level)

    async def _bury(self, keeper: Keeper) -> None:
        if keeper.run is not None:
            with trio.move_on_after(self.policy.exit_seconds if keeper.ended else 0):
                await keeper.run.wait()
            keeper.run.kill()
            with trio.move_on_after(self.policy.exit_seconds) as limit:
                await keeper.run.wait()
            if limit.cancelled_caught:  # the kernel holds it: a broken disk, a debugger
                log.error("cannot be killed", member=keeper.name, pid=keeper.run.pid)

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
            down=tuple(k.index for k in after if not k.up and not k.ended),
            gone=tuple(k.index for k in after if k.ended),
        )

    async def _heard(self, keeper: Keeper, words: Words) -> None:
        keeper.last_beat = trio.current_time()
        match words:
            case {"is": "ready"}:
                self._change(keeper, State.UP)
                keeper.ready.set()
                if self._selected.words is not None:
                    await self._tell(keeper, do="contexts", selection=self._selected.words)
                for before in self._before(keeper):
                    again = keeper.incarnation > 1
                    await self._tell(before, do="up", worker=keeper.index, stranger=keeper.level == 1, again=again)
                between = 1 < keeper.level < len(self._levels) - 1  # the last is introduced by those before it
                for source in self._levels[0] if keeper.incarnation > 1 and between else []:
                    await self._tell(source, do="introduce")
            case {"is": "beat", "statistics": dict(statistics)}:
                keeper.statistics = statistics
            case {"is": "ending"}:
                keeper.said_all = True
                self._change(keeper, State.ENDING)
            case {"is": "ended", "complete": bool(complete), "statistics": dict(statistics), **rest}:
                keeper.statistics = statistics
                keeper.last_words = "ended" if complete else "ended before its input did"
                if not rest.get("acknowledged", True):
                    keeper.last_words += "; its end was not acknowledged"
                if complete:
                    self._change(keeper, State.ENDED)
            case {"is": "failed", "why": str(why), "again": bool(again)}:
                keeper.last_words = why
                keeper.hopeless = not again and not keeper.said_all
        self._on_status(keeper, soon=words.get("is") != "beat")

    def _on_status(self, keeper: Keeper, soon: bool = True) -> None:
        self._news.add(keeper.name)
        if soon:
            self._pressing = True
            self._pressed.set()
            self._pressed = trio.Event()

    def _status_of(self, keeper: Keeper) -> dict[str, Any]:
        """Output that this process could not write is told with the last member's."""
        status = keeper.status()
        if keeper.level == len(self._levels) - 1:
            status["supervisor_lost"] = dict(lost)
        return status

    async def _inform(self, control: Control) -> None:
        """The last member, of all. One message at a time: changes meanwhile go with the next, and all that members say
        in a second of how they are with one."""
        self._news, self._pressing = set(self.members), True
        while True:
            if not self._pressing:
                with trio.move_on_after(BEATS_SECONDS - INFORM_SECONDS):
                    await self._pressed.wait()
            names, self._news, self._pressing = sorted(self._news), set(), False
            if names:
                await control.say(do="heard", members=[self._status_of(self.members[name]) for name in names])
            await trio.sleep(INFORM_SECONDS)

    # ---- limits

    async def _watch(self, keeper: Keeper) -> None:
        """Tells of silent members, and kills them in the end; kills a newcomer that is not needed any more. Forgives
        the failures of members that live."""
        policy, began = self.policy, trio.current_time()
        while True:
            await trio.sleep(WATCH_SECONDS)
            if not keeper.up:
                began = trio.current_time()
            elif keeper.failures and trio.current_time() - began > policy.healthy_after:
                keeper.failures = 0
            silent = trio.current_time() - keeper.last_beat
            if keeper.quiet != (silent > policy.quiet):
                keeper.quiet = not keeper.quiet
                self._on_status(keeper)
            patience = policy.silence if keeper.up else policy.startup
            if self._in_the_end:
                patience = min(patience, policy.silence_at_end if keeper.up else policy.silence)
            if silent > patience:
                self._kill(keeper, f"silent for {silent:.0f} s")
            elif not keeper.up and keeper.level and self._pointless(keeper):
                self._kill(keeper, "was not ready when the end came")

    def _kill(self, keeper: Keeper, why: str) -> None:
        if keeper.run is not None and not keeper.ended:
            keeper.last_words = why
            keeper.run.kill()

    async def _tell(self, keeper: Keeper, **words: Any) -> None:
        """A member that takes no words for too long is killed: half a line may be on its way to it."""
        if keeper.control is not None:
            with trio.move_on_after(self.policy.tell_seconds) as limit:
                await keeper.control.say(**words)
            if limit.cancelled_caught:
                self._kill(keeper, "takes no words")

    async def _tell_what_is_spent(self) -> None:
        """From when the work has begun."""
        spending = Spending()
        await self._until(self._somebody_hears)
        while True:
            await trio.sleep(SPENT_SECONDS)
            if not begun(self.members.values()):
                continue
            for source in self._levels[0]:
                await self._tell(source, do="spent", cpu_seconds=spending.total(self.members.values()))

    async def _tell_the_selection(self) -> None:
        """Of which threads contexts are kept (`streamer contexts`)."""
        while True:
            try:
                if self._selected.changed():
                    for keeper in self.members.values():
                        await self._tell(keeper, do="contexts", selection=self._selected.words)
            except (OSError, ValueError) as error:
                log.warning("the selection of threads cannot be read", why=str(error))
            await trio.sleep(WATCH_SECONDS)

    async def _pass_stop_on(self) -> None:
        await self._stopping.wait()
        for source in self._levels[0]:
            await self._tell(source, do="stop")

    async def _bound_the_end(self, keepers: trio.CancelScope) -> None:
        """Ends the members that have not ended in time."""
        policy = self.policy
        last, since = self._progress(), trio.current_time()
        while (
            trio.current_time() + policy.term_seconds
            < min(self._stopped_at + policy.shutdown_seconds, since + policy.idle_at_end)
        ):  # fmt: skip
            await trio.sleep(WATCH_SECONDS)
            if (now := self._progress()) != last or not self._ending.is_set():
                last, since = now, trio.current_time()
        late = [k for k in self.members.values() if not k.ended]
        self.killed += [k.name for k in late]
        log.error("did not end in time", members=self.killed)
        for keeper in late:
            if keeper.up and keeper.run is not None:
                keeper.run.terminate()
        await trio.sleep(policy.term_seconds)
        keepers.cancel()

    def _progress(self) -> list[Any]:
        return [k.progress() for k in self.members.values()]

    # ---- the neighbours

    def _before(self, keeper: Keeper) -> list[Keeper]:
        return self._levels[keeper.level - 1] if keeper.level else []

    def _after(self, keeper: Keeper) -> list[Keeper]:
        return self._levels[keeper.level + 1] if keeper.level + 1 < len(self._levels) else []

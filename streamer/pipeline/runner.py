"""Runs a topology to its end, and gives its result.

`streamer run` and `streamer replay` are this with another source. This process keeps the others going, and the target
JVM if there is one, and computes nothing: the hub has a process of its own, too (docs/decisions/0001-hub-process.md).
The socket of the page is this process's, so a scrape that comes while the hub is started again waits, and is answered.
"""

from __future__ import annotations

import importlib
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from capture.live.source import EmulatedSource
from streamer.config import Settings
from streamer.hub.listing import arranged
from streamer.hub.screen import room, screen
from streamer.hub.text import headline, plain
from streamer.pipeline.supervisor import Supervisor
from streamer.pipeline.topology import Topology
from streamer.pipeline.warm import is_warm, needed
from streamer.session.session import traces
from streamer.target.adopted import AdoptedProcess
from streamer.target.process import TargetProcess
from streamer.views import listener

if TYPE_CHECKING:
    from streamer.pipeline.outcome import Outcome

REFRESH_SECONDS = 1.0
TELL_SECONDS = 5.0
START_SECONDS = 60.0  # that a JVM waits for processes which only have to be loaded
NOTHING_SHED_SECONDS = 300.0  # … and that have to compile, if nothing may be shed


class Runner:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        session: Path,
        *,
        target: TargetProcess | AdoptedProcess | None = None,
        console: Console | None = None,
        live: bool = False,
    ) -> None:
        """`target`: the JVM to start. `live`: a table on `console` that is refreshed; else only messages. Raises
        `listener.WebError` where the page cannot be served."""
        self.settings, self.session, self.target = settings, session, target
        self.console = console or Console(stderr=True)
        self.live = live
        self._listener = listener.listen(settings.web)
        self.url = listener.url_of(self._listener, settings.web)
        hub = topology.groups[-1]
        hub = replace(hub, options={**hub.options, "listener": self._listener.fileno(), "terminal": live})
        self.supervisor = Supervisor(
            settings,
            Topology((*topology.groups[:-1], hub)),
            session,
            descriptors={hub.name: [self._listener.fileno()]},
            informs=True,
        )
        self._hub = self.supervisor.members[hub.members[0]]

    async def run(self, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> Outcome:
        """Started (with the page's URL) when the target may start. Raises `TransportError`."""
        with self._listener:
            async with trio.open_nursery() as work:
                if self.target is not None:
                    work.start_soon(self.target.attend)
                    work.start_soon(self._follow, self.target)
                work.start_soon(self._supervise, work.cancel_scope)
                work.start_soon(self._foresee_the_end)
                starting = "starting (on first use kernels are compiled: less than a minute)"
                if not self.console.is_terminal:
                    self.console.print(starting)
                with self.console.status(starting):
                    await self._members_ready()
                self.console.print(f"serving {self.url} (page), {self.url.rstrip('/')}/metrics", highlight=False)
                task_status.started(self.url)
                work.start_soon(self._show if self.live else self._tell)
                if self.target is not None and not self.supervisor.statistics()["given_up"]:
                    self.target.start()
                    if self.target.started:
                        traces(self.session, self.target.pid)
        return self._outcome()

    def _outcome(self) -> Outcome:
        """By the hub's last note."""
        from streamer.pipeline.outcome import outcome_of  # with numba, which nothing before needs

        return outcome_of(self.settings, self.session, self.supervisor, self.target)

    async def _foresee_the_end(self) -> None:
        """Loads what `_outcome` needs while the members still work off what is left."""
        await self.supervisor.in_the_end()
        await trio.to_thread.run_sync(importlib.import_module, "streamer.pipeline.outcome")

    async def _members_ready(self) -> None:
        """A recording waits for all. A JVM waits for capture alone where kernels have to be compiled first, or else for
        all, so that nothing of its trace is lost; but never without a limit."""
        members = self.supervisor.members.values()
        if self.target is None:
            for member in members:
                await member.ready.wait()
            return
        with trio.move_on_after(START_SECONDS):
            for member in members:
                if not member.level:
                    await member.ready.wait()
        if self.settings.flow.most_behind_seconds and not is_warm(needed(self.settings)):
            self.console.print("kernels are being compiled: until they are there, trace is shed", highlight=False)
            return
        with trio.move_on_after(START_SECONDS if self.settings.flow.most_behind_seconds else NOTHING_SHED_SECONDS):
            for member in members:
                await member.ready.wait()

    async def _supervise(self, work: trio.CancelScope) -> None:
        await self.supervisor.run()
        # a pipeline that failed is no reason to end the program that it looked at
        if self.target is not None and self.target.started:
            if not self.target.is_over and self.supervisor.statistics()["given_up"]:
                self.console.print("tracing has ended; the program runs on (Ctrl-C ends it)")
            await self.target.over.wait()
        work.cancel()

    async def _follow(self, target: TargetProcess | AdoptedProcess) -> None:
        """The end of tracing. Capture finds out by itself that a JVM has ended, unless that never made a trace."""
        await target.over.wait()
        self.supervisor.expect_the_end()
        if not target.ended or not EmulatedSource(self.session / "pt", socket.gethostname()).ended():
            self.supervisor.stop()
        await target.told.wait()
        self.supervisor.stop()

    def _view(self) -> dict[str, Any]:
        """The hub's present view (`HubStage.statistics`); empty before the first."""
        return dict(self._hub.statistics.get("stages", {}).get("view", {}))

    async def _show(self) -> None:
        with Live(console=self.console, auto_refresh=False, vertical_overflow="crop") as table:
            while True:
                if view := self._view():
                    foot = Text(f"{self.url}  ·  Ctrl-C stops", "dim")
                    shown = arranged(view, "share", "", min(len(view["methods"]), room(self.console.height)))
                    table.update(Group(*screen(shown), foot), refresh=True)
                await trio.sleep(REFRESH_SECONDS)

    async def _tell(self) -> None:
        """Progress where there is no terminal: one line now and then."""
        while True:
            await trio.sleep(TELL_SECONDS)
            if view := self._view():
                hottest = ", ".join(f"{m['share']:.0%} {plain(m['method'])}" for m in view["methods"][:3])
                text = f"{headline(view)}: {hottest or 'nothing yet'}"
                self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """The orderly end of a run without a target of its own: everything read is counted."""
        if isinstance(self.target, AdoptedProcess):
            self.target.leave()
        self.supervisor.stop()

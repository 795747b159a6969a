"""Runs a topology to its end, with the hub and its web page in this process, and says what came of it.

`streamer run` and `streamer replay` are this with another source. The target JVM, if there is one, is started when
every member is ready, so that nothing of its trace waits for a process that is still importing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from capture.session import EmulatedSource, SessionError
from stages.messages import Account, PaneReport, StreamKey, StreamOpen
from streamer import summary, web
from streamer.config import Settings
from streamer.hub import Balance, Hub
from streamer.hub.screen import screen
from streamer.hub.text import headline, plain
from streamer.session import traces
from streamer.supervisor import Supervisor
from streamer.targetprocess import TargetProcess
from streamer.topology import Topology

REFRESH_SECONDS = 1.0
CLOSE_SECONDS = 1.0
TELL_SECONDS = 5.0


class HubStage:
    """The last group: everything ends in the hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.received = 0

    def feed(self, message: Any, /) -> Iterable[Any]:
        self.received += 1
        match message:
            case PaneReport():
                self._hub.feed(message)
            case Account():
                self._hub.account(message)
            case StreamOpen():
                self._hub.introduce(message.stream.host, message.stream.pid, message.clock)
            case _:
                pass
        return ()

    def flush(self) -> Iterable[Any]:
        return ()

    def statistics(self) -> Mapping[str, Any]:
        return {"hub_received": self.received}


@dataclass
class Outcome:
    hub: Hub
    balances: list[Balance] = field(default_factory=list)
    target_status: int | None = None
    restarts: int = 0
    failed: list[str] = field(default_factory=list)  # members that were given up or had to be killed, and why

    @property
    def books_balance(self) -> bool:
        return all(balance.error == 0 for balance in self.balances)


def aux_heads(session: Path) -> dict[StreamKey, int]:
    """How many bytes were written to each ring of a session: what the ledger must come to."""
    source = EmulatedSource(session / "pt", socket.gethostname())
    source.config()
    heads: dict[StreamKey, int] = {}
    for key, ring in source.new_rings():
        heads[key] = max(heads.get(key, 0), ring.aux_head())
        ring.close()
    return heads


class Runner:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        session: Path,
        *,
        target: TargetProcess | None = None,
        hub: Hub | None = None,
        console: Console | None = None,
        live: bool = False,
    ) -> None:
        """`target`: the JVM to start. `live`: a table on `console` that is refreshed; else only messages."""
        self.settings, self.session, self.target = settings, session, target
        self.hub = hub or Hub(settings.window, fidelity=settings.fidelity)
        self.console = console or Console(stderr=True)
        self.live = live
        self.url = ""
        self._gone: set[StreamKey] = set()  # streams that ended, as long as their source tells of them
        self._closed: dict[tuple[str, int], Balance] = {}  # sums of streams that ended, by process
        self.supervisor = Supervisor(
            settings, topology, session, here={"hub": [HubStage(self.hub)]}, on_status=self._status
        )

    def _status(self, status: dict[str, Any]) -> None:
        """A member's heartbeat in the hub's words."""
        said = status.get("statistics", {})
        queues = {
            name: int(value)
            for name, value in {**said.get("stages", {}), **said.get("output", {})}.items()
            if name in ("backlog_bytes", "attribute_held_bytes")
        }
        turned_away = said.get("input", {}).get("turned_away", 0)
        # of a process of its own, or of this one, once
        lost = said.get("lost_output", {}) if status["pid"] or status["component"] == "hub/0" else {}
        self.hub.heartbeat({**status, "queues": queues, "turned_away": turned_away, "lost_output": lost})

    async def run(self, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> Outcome:
        """Started when the page is served (with its URL) and all members are ready. Raises `web.WebError`,
        `TransportError`."""
        outcome = Outcome(self.hub)
        async with trio.open_nursery() as nursery:
            self.url = await nursery.start(web.serve, self.hub, self.settings.web)
            async with trio.open_nursery() as work:
                if self.target is not None:
                    work.start_soon(self.target.attend)
                    work.start_soon(self._follow, self.target)
                work.start_soon(self._supervise, work.cancel_scope)
                starting = "starting (on first use kernels are compiled: less than a minute)"
                if not self.console.is_terminal:
                    self.console.print(starting)
                with self.console.status(starting):
                    for member in self.supervisor.members.values():
                        await member.ready.wait()
                self.console.print(f"serving {self.url} (page), {self.url.rstrip('/')}/metrics", highlight=False)
                task_status.started(self.url)
                work.start_soon(self._show if self.live else self._tell)
                work.start_soon(self._close_streams)
                if self.target is not None and not self.supervisor.statistics()["given_up"]:
                    self.target.start()
                    if self.target.started:
                        traces(self.session, self.target.pid)
            told = {key: head for key, head in self._told_heads("heads").items() if key not in self._gone}
            heads = aux_heads(self.session) or told
            outcome.balances = [*self.hub.finish(heads), *self._closed.values()]
            if self.target is not None and self.target.started:
                outcome.target_status = self.target.status
            statistics = self.supervisor.statistics()
            outcome.restarts = statistics["restarts"]
            outcome.failed = [
                f"{name} ({why})" if (why := statistics["members"][name]["why"]) else name
                for name in statistics["given_up"] + statistics["killed"]
            ]
            nursery.cancel_scope.cancel()
        return outcome

    def _told_heads(self, which: str) -> dict[StreamKey, int]:
        """How far each stream has come (`heads`), or those that have `ended`, by their source: where no ring tells, a
        recording or hardware."""
        sources = [k.statistics.get("stages", {}) for k in self.supervisor.members.values() if k.level == 0]
        return {StreamKey(*key): head for said in sources for *key, head in said.get(which, [])}

    async def _supervise(self, work: trio.CancelScope) -> None:
        await self.supervisor.run()
        # a pipeline that failed is no reason to end the program that it looked at
        if self.target is not None and self.target.started:
            if not self.target.is_over and self.supervisor.statistics()["given_up"]:
                self.console.print("tracing has ended; the program runs on (Ctrl-C ends it)")
            await self.target.over.wait()
        work.cancel()

    async def _follow(self, target: TargetProcess) -> None:
        """The end of tracing. Capture finds out by itself that a JVM has ended, unless that never made a trace."""
        await target.over.wait()
        self.supervisor.expect_the_end()
        if not target.ended or not EmulatedSource(self.session / "pt", socket.gethostname()).ended():
            self.supervisor.stop()
        await target.told.wait()
        self.supervisor.stop()

    async def _close_streams(self) -> None:
        """Threads that have ended take their rings with them, once the hub knows of every byte what became of it. (What
        a worker took with it when it died is not known before the end: such a ring stays.)"""
        source = EmulatedSource(self.session / "pt", socket.gethostname())
        while True:
            await trio.sleep(CLOSE_SECONDS)
            with suppress(SessionError):  # capture says so
                told = self._told_heads("ended")
                self._gone &= self._told_heads("heads").keys()
                heads = source.read_out() | {key: head for key, head in told.items() if key not in self._gone}
                for balance in self.hub.close_ended(heads):
                    self._gone.add(balance.stream)
                    process = balance.stream[:2]
                    known = self._closed.get(process)
                    self._closed[process] = balance if known is None else known.with_(balance)
                    del heads[balance.stream]
                    source.remove(balance.stream)
                for key in [key for key, head in heads.items() if head == 0]:
                    source.remove(key)

    async def _show(self) -> None:
        with Live(console=self.console, auto_refresh=False, vertical_overflow="crop") as view:
            while True:
                foot = Text(f"{self.url}  ·  Ctrl-C stops", "dim")
                view.update(Group(*screen(self.hub.hot().json()), foot), refresh=True)
                await trio.sleep(REFRESH_SECONDS)

    async def _tell(self) -> None:
        """Progress where there is no terminal: one line now and then."""
        while True:
            await trio.sleep(TELL_SECONDS)
            view = self.hub.hot(top=3).json()
            hottest = ", ".join(f"{m['share']:.0%} {plain(m['method'])}" for m in view["methods"])
            text = f"{headline(view)}: {hottest or 'nothing yet'}"
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """The orderly end of what has no target: what was read is counted."""
        self.supervisor.stop()


def report(outcome: Outcome, color: bool) -> str:
    return summary.render(outcome.hub, outcome.balances, color=color)


def figures(outcome: Outcome) -> dict[str, Any]:
    """The summary for programs, JSON."""
    return summary.figures(outcome.hub, outcome.balances) | {
        "target_status": outcome.target_status,
        "failed": outcome.failed,
    }

"""The last group: everything ends in the hub, which has a process of its own, with the page and /metrics.

The hub's state is noted in the session's directory every few seconds and at its end (`save`). So its successor, after a
death, goes on from there: reports that came meanwhile are a hole (`Loss.HUB_DOWN`). A note is taken up a few times, no
more, so that a state that kills the hub does not kill it for ever. At the end the summary is made from the last note.
"""

from __future__ import annotations

import math
import os
import pickle
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import structlog
import trio

from capture.live.source import EmulatedSource
from jvm.private import is_ours
from stages.messages import Account, PaneReport, StatementReport, StreamKey, StreamOpen, TreeReport
from streamer.config import Settings
from streamer.hub.hub import Hub
from streamer.hub.timeline import lately
from streamer.pipeline.ended_streams import EndedStreams
from streamer.pipeline.topology import middle
from streamer.views import web

NOTE = "hub.state"
TRIES = 3
NOTE_SECONDS = 3.0
CLOSE_SECONDS = 1.0
NOTE_SHARE = 0.02  # of the hub's time, at most
NOTE_BYTES = 64 << 10  # of trace accounted for since the last note; where there are less …
QUIET_NOTE_SECONDS = 15.0  # … a note is as old as this before the next

log = structlog.get_logger()


@dataclass
class State:
    """All that the hub knows."""

    hub: Hub
    streams: EndedStreams = field(default_factory=EndedStreams)


def save(state: State, directory: Path) -> None:
    """Whole or not at all. Raises OSError."""
    _write(_noted(state), directory)


def _noted(state: State) -> bytes:
    return pickle.dumps(state, pickle.HIGHEST_PROTOCOL)


def _write(note: bytes, directory: Path) -> None:
    new = directory / f"{NOTE}.new"
    with suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(note)
    new.replace(directory / NOTE)
    for n in range(1, TRIES + 1):
        _tried(directory, n).unlink(missing_ok=True)


class Notes:
    """Written one at a time, by whatever thread; one that is overtaken by a younger one is left out."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = Lock()
        self._given = self._written = 0

    def write(self, state: State) -> None:
        """Raises OSError."""
        self._write(_noted(state), self._number())

    async def write_beside(self, state: State) -> None:
        """The state as it is now, by another thread: a busy disk takes up to a second for it. Raises OSError."""
        await trio.to_thread.run_sync(self._write, _noted(state), self._number())

    def _number(self) -> int:
        self._given += 1
        return self._given

    def _write(self, note: bytes, number: int) -> None:
        with self._lock:
            if number > self._written:
                _write(note, self._directory)
                self._written = number


def _tried(directory: Path, times: int) -> Path:
    """A note that has been taken up so many times."""
    return directory / (f"{NOTE}.{times}" if times else NOTE)


def load(directory: Path) -> State | None:
    """The hub as it was noted last; None if there is no note, or none that may be taken up again. The directory is
    private, so a note is ours."""
    for n in range(TRIES):
        taken = _tried(directory, n + 1)
        try:
            _tried(directory, n).replace(taken)
            with taken.open("rb") as file:
                state = pickle.load(file) if is_ours(os.fstat(file.fileno())) else None
        except FileNotFoundError:
            continue
        except Exception as error:  # cut, or of another version: pickle raises many types
            log.warning("the hub's note cannot be read", why=f"{type(error).__name__}: {error}")
            return None
        return state if isinstance(state, State) else None
    return None


def heartbeat(status: Mapping[str, Any]) -> dict[str, Any]:
    """A member's status in the hub's words (`Hub.heartbeat`)."""
    said = status.get("statistics", {})
    numbers = {**said.get("stages", {}), **said.get("output", {})}
    lost = Counter(said.get("lost_output", {}) if status.get("pid") else {})  # of a process of its own
    lost.update(status.get("supervisor_lost", {}))
    stages = {name: value for name, value in said.get("stages", {}).items() if name != "view"}
    return {
        **status,
        "statistics": {**said, "stages": stages},
        "turned_away": said.get("input", {}).get("turned_away", 0),
        "lost_output": dict(lost),
        **{name: bool(numbers[name]) for name in ("kernels_ready",) if name in numbers},
        **{name: int(numbers[name]) for name in ("faults",) if name in numbers},
    }


class HubStage:
    """PaneReport, TreeReport, StatementReport, Account, StreamOpen → nothing. `serve` runs beside it, `hear` takes
    heartbeats of the members."""

    def __init__(
        self, settings: Settings, directory: Path, listener: int, *, first: bool = True, terminal: bool = False
    ) -> None:
        """`first`: this session had no hub before. `listener`: descriptor of the socket that is served on; it stays
        open. `terminal`: one shows the live table."""
        self._terminal = terminal
        self._listener, self._config = listener, settings.web
        self._notes = Notes(directory)
        self._push = settings.push
        noted = load(directory)
        told = "statements" in middle(settings)
        self._state = noted or State(Hub(settings.window, fidelity=settings.fidelity, statements=told))
        self.hub = self._state.hub
        self._source = EmulatedSource(directory / "pt", socket.gethostname())
        for key in self._state.streams.gone:  # if the one before did not come to that
            self._source.remove(key)
        self._told: dict[str, list[Any]] = {}  # by the source: `heads`, `ended`
        if noted is not None or not first:
            self.hub.ledger.restored()
        self.received = 0

    def feed(self, message: Any, /) -> Iterable[Any]:
        for _ in self.steps(message):
            pass
        return ()

    def steps(self, message: Any, /) -> Iterator[None]:
        """`feed`, as `Stage` says: what is served, and noted, goes on between two steps."""
        self.received += 1
        match message:
            case PaneReport():
                self.hub.feed(message)
            case TreeReport():
                yield from self.hub.trees.steps(message)
            case StatementReport():
                if self.hub.statements is not None:
                    yield from self.hub.statements.steps(message)
            case Account():
                self.hub.account(message)
            case StreamOpen():
                self.hub.introduce(message.stream.host, message.stream.pid, message.clock)
            case _:
                pass

    def flush(self) -> Iterable[Any]:
        self._save()
        return ()

    def statistics(self) -> Mapping[str, Any]:
        """`view`: that of the run's own table, a `HotView` in JSON; for a terminal with the timeline of sparklines."""
        lanes = {"timeline": lately(self.hub)} if self._terminal else {}
        return {"hub_received": self.received, "view": self.hub.hot().json() | lanes}

    def hear(self, status: Mapping[str, Any]) -> None:
        """`Keeper.status` of a member."""
        numbers = status.get("statistics", {}).get("stages", {})
        for name in ("heads", "ended"):
            if name in numbers:
                self._told[name] = numbers[name]
        self.hub.heartbeat(heartbeat(status))

    async def serve(self) -> None:
        """For ever. Raises the web server's errors: the hub begins anew, on the same socket."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._page)
            nursery.start_soon(self._note)
            if self._push.url is not None:
                nursery.start_soon(self._pushed)
            while True:
                await trio.sleep(CLOSE_SECONDS)
                heads, ended = (self._told_heads(name) for name in ("heads", "ended"))
                if removable := self._state.streams.close(self.hub, self._source, heads, ended):
                    self._save()
                    for key in removable:
                        self._source.remove(key)

    async def _page(self) -> None:
        with socket.socket(fileno=os.dup(self._listener)) as listener:
            await web.serve(self.hub, self._config, listener)

    async def _pushed(self) -> None:
        from streamer.views.pyroscope.push import Pusher  # with protobuf, which the hub needs for nothing else

        await Pusher(self.hub, self._push).run()

    def _told_heads(self, name: str) -> dict[StreamKey, int]:
        return {StreamKey(*key): head for *key, head in self._told.get(name, [])}

    async def _note(self) -> None:
        pause, noted, when = NOTE_SECONDS, 0, -math.inf
        while True:
            await trio.sleep(pause)
            accounted, now = self.hub.ledger.totals().accounted, trio.current_time()
            if accounted - noted >= NOTE_BYTES or now - when >= QUIET_NOTE_SECONDS:
                noted, when = accounted, now
                pause = max(NOTE_SECONDS, await self._save_beside() / NOTE_SHARE)

    def _save(self) -> None:
        """Where there is no room the last note stays."""
        with self._where_there_is_room():
            self._notes.write(self._state)

    async def _save_beside(self) -> float:
        """How long it took, in seconds."""
        began = time.monotonic()
        with self._where_there_is_room():
            await self._notes.write_beside(self._state)
        return time.monotonic() - began

    @staticmethod
    @contextmanager
    def _where_there_is_room() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("the hub's state cannot be noted", why=str(error))

"""push.v1: the new panes of each process, to a Pyroscope server (docs/grafana.md).

The hub is not held up by it: trees are merged, written and sent in a thread, one push at a time, with a deadline. Where
the server does not answer, or says that it cannot now, the push waits and is tried again (`Backlog`); a push that it
refuses, or that there is no room for, is dropped and counted. `_done` and `_taken` are kept by
process, and dropped with it.
"""

from __future__ import annotations

import math
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import structlog
import trio

from jvm.inputfile import read_input
from stages.cct.merging import merged
from stages.cct.tree import Tree
from stages.cct.views import View
from streamer.config import PushConfig
from streamer.exports import pprof
from streamer.exports.formats import Export
from streamer.hub.hub import Hub, ProcessKey
from streamer.trees.file import Saved
from streamer.views.pyroscope.backlog import Backlog, Waiting
from streamer.views.pyroscope.schema import PUSH

PATH = "/push.v1.PusherService/Push"
SECONDS = 10.0
"""For a push, and for each part of its answer."""
MOST_TOKEN = 4096

log = structlog.get_logger()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is for one server."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


NOT_NOW = (408, 425, 429)
"""Of a server that may take it later, as with all from 500 on."""


@dataclass(frozen=True, slots=True)
class Told:
    """By the server; `why` it did not take a push (empty: it did), and whether it may be asked `again`."""

    why: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Panes:
    """The new ones of a process."""

    process: ProcessKey
    trees: list[Tree]
    hz: float
    began_ns: int  # since the epoch; 0: the process has no clock
    seconds: float


class Pusher:
    def __init__(self, hub: Hub, config: PushConfig, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._hub, self._config, self._wall_ns = hub, config, wall_ns
        self._done: dict[ProcessKey, int] = {}  # the last pane that was taken
        self._taken: dict[ProcessKey, list[tuple[list[int], Tree]]] = {}  # of one period
        self._backlog = Backlog(config.seconds)
        self._limit = trio.CapacityLimiter(1)  # a thread that is stuck has the place to itself: nothing piles up
        self._ill = False
        self.sent = self.failed = self.retried = 0
        """Profiles; `retried`: pushes that will be tried again."""

    async def run(self) -> None:
        """For ever."""
        again_at = -math.inf
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_always)
            while True:
                numbers = {"push_sent": self.sent, "push_failed": self.failed, "push_retried": self.retried}
                self._hub.heartbeat({"component": "push", "up": True, "statistics": {"stages": numbers}})
                await trio.sleep(self._config.seconds)
                await self._write(self.new())
                if trio.current_time() >= again_at:
                    again_at = trio.current_time() + await self._work_off()

    async def _write(self, new: list[Panes]) -> None:
        if not new:
            return
        body: bytes | str = f"not written within {SECONDS:.0f} s"
        with trio.move_on_after(SECONDS):
            body = await trio.to_thread.run_sync(_written, new, abandon_on_cancel=True, limiter=self._limit)
        if isinstance(body, str):
            self.failed += len(new)
            self._tell(body)
        else:
            self.failed += self._backlog.add(Waiting(body, len(new)))

    async def _work_off(self) -> float:
        """Sends what waits. Returns how long the server is to be left alone, in seconds."""
        while (first := self._backlog.first) is not None:
            told = Told(f"no answer within {SECONDS:.0f} s", again=True)
            with trio.move_on_after(SECONDS):
                told = await trio.to_thread.run_sync(
                    self._push, first.body, abandon_on_cancel=True, limiter=self._limit
                )
            self._tell(told.why)
            if told.again:
                self.retried += 1
                return self._backlog.pause()
            if told.why:
                self._backlog.refused()
                self.failed += first.profiles
            else:
                self._backlog.taken()
                self.sent += first.profiles
        return 0.0

    def _tell(self, why: str) -> None:
        """Once, until one is taken again."""
        if why and not self._ill:
            log.warning("profiles are not taken", url=self._config.url, why=why)
        self._ill = bool(why)

    async def _take_always(self) -> None:
        """The hub puts panes older than ten together."""
        while True:
            self.take()
            await trio.sleep(self._hub.config.pane_seconds)

    def take(self) -> None:
        """Of each process the panes behind those taken before; the newest is left, for more may come to it."""
        self._done = {key: pane for key, pane in self._done.items() if key in self._hub.processes}
        for key in self._hub.processes:
            stretches = self._hub.trees.stretches(key)
            newest = max((panes[-1] for panes, _ in stretches), default=0)
            done = self._done.get(key, -1)
            fresh = [(panes, tree) for panes, tree in stretches if panes[0] > done and panes[-1] < newest]
            if fresh:
                self._done[key] = fresh[-1][0][-1]
                self._taken.setdefault(key, []).extend(fresh)

    def new(self) -> list[Panes]:
        """What was taken since the last call."""
        taken, self._taken = self._taken, {}
        return [self._panes(key, of) for key, of in taken.items() if key in self._hub.processes]

    def _panes(self, key: ProcessKey, of: list[tuple[list[int], Tree]]) -> Panes:
        process, (first, last) = self._hub.processes[key], (of[0][0][0], of[-1][0][-1])
        began, clock = 0, process.clock
        if clock is not None:
            now = self._wall_ns()
            began = now - round(clock.seconds_since(first * process.ticks_per_pane, now) * 1e9)
        seconds = (last + 1 - first) * self._hub.config.pane_seconds
        return Panes(key, [tree for _, tree in of], clock.hz if clock is not None else 1e9, began, seconds)

    def _push(self, body: bytes) -> Told:
        """In a thread."""
        try:
            assert self._config.url is not None
            headers = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"}
            if self._config.token_file is not None:
                token = read_input(self._config.token_file, MOST_TOKEN).decode("ascii").strip()
                headers["Authorization"] = f"Bearer {token}"
            request = urllib.request.Request(f"{self._config.url.rstrip('/')}{PATH}", body, headers, method="POST")
            with _OPENER.open(request, timeout=SECONDS) as answer:
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            with error:
                return Told(f"HTTP status {error.code}", again=error.code >= 500 or error.code in NOT_NOW)
        except (OSError, ValueError) as error:  # http.client's errors that are neither are of no server
            why = " ".join(f"{getattr(error, 'reason', error)}".split()) or type(error).__name__
            return Told(why, again=isinstance(error, OSError))
        except Exception as error:  # of whatever answers there
            return Told(f"{type(error).__name__}: {error}")
        return Told("")


def _written(new: list[Panes]) -> bytes | str:
    """In a thread. The message, or why there is none."""
    try:
        return message(new)
    except ValueError as error:
        return str(error)


def message(new: list[Panes]) -> bytes:
    """A PushRequest. Raises ValueError where a tree is too large for pprof."""
    out = PUSH["PushRequest"]()
    for panes in new:
        host, pid = panes.process
        tree = Export(Saved(merged(panes.trees), panes.hz, host, pid), View()).tree()
        labels = {"__name__": "jvm", "host": host, "pid": str(pid), "service_name": f"{host}/{pid}"}
        series = out.series.add(labels=[PUSH["LabelPair"](name=name, value=text) for name, text in labels.items()])
        raw = pprof.profile(tree, False, panes.hz, panes.began_ns, panes.seconds)
        series.samples.add(raw_profile=raw, ID=str(uuid.uuid4()))
    return bytes(out.SerializeToString())

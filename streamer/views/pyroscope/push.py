"""push.v1: the new panes of each process, to a Pyroscope server (docs/grafana.md).

The hub is not held up by it: trees are merged, written and sent in a thread, one push at a time, with a deadline, and
what could not be sent is dropped. `_done` and `_taken` are kept by process, and dropped with it.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import structlog
import trio

from jvm.inputfile import read_input
from stages.cct.tree import Tree, merged
from stages.cct.views import View
from streamer.config import PushConfig
from streamer.exports import pprof
from streamer.exports.formats import Export
from streamer.hub import Hub
from streamer.hub.hub import ProcessKey
from streamer.trees.file import Saved
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
        self._ill = False
        self.sent = self.failed = 0

    async def run(self) -> None:
        """For ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_always)
            limit = trio.CapacityLimiter(1)  # a thread that is stuck has the place to itself: nothing piles up
            while True:
                numbers = {"push_sent": self.sent, "push_failed": self.failed}
                self._hub.heartbeat({"component": "push", "up": True, "statistics": {"stages": numbers}})
                await trio.sleep(self._config.seconds)
                if not (new := self.new()):
                    continue
                why = f"no answer within {SECONDS:.0f} s"
                with trio.move_on_after(SECONDS):
                    why = await trio.to_thread.run_sync(self._push, new, abandon_on_cancel=True, limiter=limit)
                self.failed += len(new) if why else 0
                self.sent += 0 if why else len(new)
                if why and not self._ill:  # once, until one is taken again
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

    def _push(self, new: list[Panes]) -> str:
        """In a thread. Why it was not taken; empty if it was."""
        try:
            body = message(new)
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
                return f"HTTP status {error.code}"
        except (OSError, ValueError) as error:  # http.client's errors that are neither are of no server
            return " ".join(f"{getattr(error, 'reason', error)}".split()) or type(error).__name__
        except Exception as error:  # of whatever answers there
            return f"{type(error).__name__}: {error}"
        return ""


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

"""/api/live: server-sent events for the page (HTML standard, "Server-sent events").

`hot`: the view of /api/hot, each second. `timeline`: that of /api/timeline, as often as a bin of it ends. `trees`: how
many reports of trees have come, whenever there are more: then the page asks for the trees that it shows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from streamer.hub.hub import Hub
from streamer.hub.timeline import BANDS, bin_seconds, timeline
from streamer.views import query as ask
from streamer.views.query import HEADERS

SECONDS = 1.0
MOST_READERS = 64
LIFE_SECONDS = 300.0
"""Of a connection. One that nobody reads ends when the buffers on the way are full (`listener.STALLED_SECONDS`), which
takes many minutes, and holds its place until then."""


class Live:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._readers = 0
        self._views: dict[tuple[object, ...], tuple[float, str]] = {}  # of this second, by what is asked

    async def events(self, request: Request) -> Response:
        query = request.query_params
        hub = self._hub
        chosen = (query.get("window"), ask.top(query), query.get("weight"), ask.process(hub, query))
        hub.hot(*chosen)  # raises ValueError while a status can still be answered
        if self._readers >= MOST_READERS:
            return JSONResponse({"error": f"{MOST_READERS} pages are open already"}, status_code=503, headers=HEADERS)
        told, due = -1, -math.inf

        def events() -> str:
            nonlocal told, due
            out = _event("hot", self._once("hot", chosen, lambda: hub.hot(*chosen).json()))
            if trio.current_time() >= due:
                lanes = self._once("timeline", chosen[2:], lambda: timeline(hub, *chosen[2:]).json())
                out += _event("timeline", lanes)
                due = trio.current_time() + max(SECONDS, bin_seconds(hub)) - SECONDS / 2
            if hub.trees.fed != told:
                told = hub.trees.fed
                out += _event("trees", str(told))
            return out

        return _Events(events, self._reading)

    async def timeline(self, request: Request) -> Response:
        query = request.query_params
        top = ask.top(query)
        view = timeline(
            self._hub, query.get("weight"), ask.process(self._hub, query), window=query.get("window") or None,
            most_bands=BANDS if top is None else top,
        )  # fmt: skip
        return JSONResponse(view.json(), headers=HEADERS)

    def _once(self, name: str, asked: tuple[object, ...], make: Callable[[], object]) -> str:
        """One for all readers that ask for the same."""
        now, key = trio.current_time(), (name, *asked)
        self._views = {key: view for key, view in self._views.items() if now - view[0] < SECONDS / 2}
        if key not in self._views:
            self._views[key] = now, json.dumps(make())
        return self._views[key][1]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    def routes(self) -> list[Route]:
        return [
            Route("/api/live", ask.answered(self.events)),
            Route("/api/timeline", ask.answered(self.timeline)),
        ]


class _Events(Response):
    """`events()` each second, until the reader has gone. (StreamingResponse leaves its generator to the collector.)"""

    media_type = "text/event-stream"

    def __init__(self, events: Callable[[], str], reading: Callable[[], AbstractContextManager[None]]) -> None:
        self._events, self._reading = events, reading
        self.status_code, self.background = 200, None
        self.init_headers(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        with self._reading(), trio.move_on_after(LIFE_SECONDS) as life:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_gone, receive, nursery.cancel_scope)
                await send(start)
                while True:
                    await send({"type": "http.response.body", "body": self._events().encode(), "more_body": True})
                    await trio.sleep(SECONDS)
        if life.cancelled_caught:  # a browser connects again
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _event(name: str, data: str) -> str:
    """`data`: one line."""
    return f"event: {name}\ndata: {data}\n\n"

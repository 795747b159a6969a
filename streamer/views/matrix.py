"""/api/matrix: how often application and JDK call themselves and each other, in the shortest window."""

from __future__ import annotations

from collections import Counter

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from streamer.hub.edges import MATRIX, SIDES, Edge
from streamer.hub.hub import Hub
from streamer.views import query as ask
from streamer.views.query import HEADERS


class Matrix:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def matrix(self, request: Request) -> Response:
        process = ask.process(self._hub, request.query_params)
        window, seconds = next(iter(self._hub.windows.items()))
        calls: Counter[Edge] = Counter()
        for key in self._hub.processes if process is None else [process]:
            if self._hub.live(key, seconds):
                calls.update(self._hub.trees.edges.window(key)[MATRIX])
        return JSONResponse({"window": window, "calls": cells(calls)}, headers=HEADERS)

    def routes(self) -> list[Route]:
        return [Route("/api/matrix", ask.answered(self.matrix))]


def cells(calls: Counter[Edge]) -> dict[str, dict[str, int]]:
    """By caller, then by callee: of SIDES."""
    return {caller: {callee: calls[caller, callee] for callee in SIDES} for caller in SIDES}

"""Coverage and path frequencies of a window over HTTP: /api/coverage and /api/paths (docs/statements.md).

Panes are put together in a worker thread, as trees are (`streamer.views.trees`).
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from streamer.hub.hub import Hub
from streamer.hub.statements import Executed, together
from streamer.statements.lcov import lcov
from streamer.statements.text import rest_first, whole
from streamer.views import query as ask
from streamer.views.query import HEADERS
from streamer.views.trees import Trees

MOST_LISTED = 20_000
"""Methods."""
MOST_PATTERNS, LONGEST_PATTERN = 20, 500
OFF = "this run does not tell which bytecodes ran: start it with --statements (flow.statements), at fidelity flow"


class Statements:
    def __init__(self, hub: Hub, trees: Trees) -> None:
        """`trees`: in whose threads the work is done."""
        self._hub, self._trees = hub, trees

    async def coverage(self, request: Request) -> Response:
        parts, window = self._parts(request)
        include, most = _patterns(request), ask.share(request.query_params, "below")
        below = most if request.query_params.get("below") else 1.0
        if ask.one_of(request.query_params, "format", ("json", "lcov")) == "lcov":
            return PlainTextResponse(await self._trees.in_thread(partial(_lcov, parts, include)), headers=HEADERS)

        def answer() -> dict[str, object]:
            sums = together(parts).sums(include)
            listed = [m._asdict() for m in rest_first(sums, below)[:MOST_LISTED]]
            return {"window": window, "methods": listed, "total": whole(sums)}

        return JSONResponse(await self._trees.in_thread(answer), headers=HEADERS)

    async def paths(self, request: Request) -> Response:
        parts, window = self._parts(request)
        include, top = _patterns(request), ask.top(request.query_params)

        def answer() -> dict[str, object]:
            most = together(parts).most(20 if top is None else top, include)
            total = {name: value for name, value in most._asdict().items() if name != "listed"}
            return {"window": window, "paths": [taken._asdict() for taken in most.listed], "total": total}

        return JSONResponse(await self._trees.in_thread(answer), headers=HEADERS)

    def _parts(self, request: Request) -> tuple[list[Executed], str]:
        """Of the query's window, and its label. Raises ValueError."""
        query, hub = request.query_params, self._hub
        if hub.statements is None:
            raise ValueError(OFF)
        chosen = hub.chosen(query.get("window") or None)
        if not isinstance(chosen, int):
            raise ValueError(f"which bytecodes ran is told of a window ({', '.join(hub.windows)}), not of a stretch")
        return hub.statements.parts(chosen, ask.processes(hub, query)), hub.label(chosen)

    def routes(self) -> list[Route]:
        return [
            Route("/api/coverage", ask.answered(self.coverage)),
            Route("/api/paths", ask.answered(self.paths)),
        ]


def _lcov(parts: list[Executed], include: list[str]) -> str:
    """Raises ValueError."""
    methods = together(parts).lined(include)
    if len(methods) > MOST_LISTED:
        raise ValueError(f"{len(methods):,} methods ran, and {MOST_LISTED:,} are the most: choose some (include)")
    return "".join(f"{line}\n" for line in lcov(methods))


def _patterns(request: Request) -> list[str]:
    """Raises ValueError."""
    found = request.query_params.getlist("include")
    if len(found) > MOST_PATTERNS or any(len(pattern) > LONGEST_PATTERN for pattern in found):
        raise ValueError(f"include: at most {MOST_PATTERNS} patterns of at most {LONGEST_PATTERN} characters")
    return found

"""/api/shift: which contexts gained and which lost against the time before (`streamer.hub.context_shift`)."""

from __future__ import annotations

from collections.abc import Set

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stages.cct.measures import paired
from stages.cct.merging import merged
from stages.cct.tree import EMPTY, Tree
from stages.cct.views import View
from streamer.hub.context_shift import ContextShift, Path, compared
from streamer.hub.hub import Hub, ProcessKey
from streamer.trees.weights import WEIGHTS, weighted
from streamer.views import query as ask
from streamer.views.query import HEADERS
from streamer.views.trees import Trees

MOST_LISTS = 64
YOUNG = ContextShift("the process is younger than two of the shortest windows, or keeps no calling contexts")


class Shift:
    """Remembers what it listed, for hysteresis: of the last `MOST_LISTS` pairs of process and weight."""

    def __init__(self, hub: Hub, trees: Trees) -> None:
        self._hub, self._trees = hub, trees
        self._listed: dict[tuple[ProcessKey | None, str], frozenset[Path]] = {}

    async def shift(self, request: Request) -> Response:
        query = request.query_params
        process, weight = ask.process(self._hub, query), ask.one_of(query, "weight", tuple(WEIGHTS))
        most = ask.top(query)
        parts, listed = self._hub.shift_parts(process), self._listed.pop((process, weight), frozenset())
        found = YOUNG
        if parts is not None:
            found = await self._trees.in_thread(lambda: _compared(*parts, weight, listed))
        self._listed[process, weight] = found.paths
        while len(self._listed) > MOST_LISTS:
            del self._listed[next(iter(self._listed))]
        return JSONResponse(_json(found, weight, self._hub.config.top if most is None else most), headers=HEADERS)

    def routes(self) -> list[Route]:
        return [Route("/api/shift", ask.answered(self.shift))]


def _compared(
    before: list[Tree], now: list[Tree], panes: tuple[int, int], weight: str, listed: Set[Path]
) -> ContextShift:
    view = View(sites=False)
    sides = [weighted(view.of(merged(trees) if trees else EMPTY), weight, False) for trees in (before, now)]
    return compared(paired(sides[0], sides[1]), panes, listed, instructions=weight == "instructions")


def _json(found: ContextShift, weight: str, most: int) -> dict[str, object]:
    contexts = [
        {"path": c.path, "now": c.now, "before": c.before, "gain": c.gain, "total_now": c.total_now,
         "total_before": c.total_before}
        for c in found.contexts[:most]
    ]  # fmt: skip
    return {
        "weight": weight, "why": found.why, "distance": found.distance, "overlap": found.overlap,
        "hot_edge_coverage": found.hot_edge_coverage, "contexts": contexts,
    }  # fmt: skip

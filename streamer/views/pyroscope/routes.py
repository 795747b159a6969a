"""Where the calls are. Protobuf is loaded with the first of them: the hub needs it for nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamer.hub.hub import Hub

if TYPE_CHECKING:
    from streamer.views.pyroscope.service import Querier

PATH = "/querier.v1.QuerierService/{method}"


def routes(hub: Hub, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> list[Route]:
    querier: Querier | None = None

    async def call(request: Request) -> Response:
        nonlocal querier
        if querier is None:
            from streamer.views.pyroscope.service import Querier

            querier = Querier(hub, in_thread)
        return await querier.answer(request)

    return [Route(PATH, call, methods=["POST"])]

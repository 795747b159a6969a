"""The hub's HTTP side: /metrics, /healthz, /readyz, /api/…, and the page. Read-only; loopback unless told otherwise."""

from __future__ import annotations

import json
import logging
import socket
from functools import partial
from typing import Any, cast

import hypercorn.trio
import structlog
import trio
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from streamer.config import WebConfig
from streamer.hub.hub import Hub
from streamer.views import page, statement_metrics
from streamer.views import query as ask
from streamer.views.admission import Admission
from streamer.views.guard import Guard
from streamer.views.listener import listen
from streamer.views.live import Live
from streamer.views.matrix import Matrix
from streamer.views.metrics import registry
from streamer.views.pyroscope import routes as pyroscope
from streamer.views.query import HEADERS
from streamer.views.shift import Shift
from streamer.views.statements import Statements
from streamer.views.tls import ServerConfig
from streamer.views.token import Token
from streamer.views.trees import Trees

log = structlog.get_logger()

POLL_SECONDS = 0.25


def app(hub: Hub, config: WebConfig, token: Token | None = None) -> Starlette:
    """`token`: that of `config`, if it is refreshed elsewhere."""
    metrics, trees = registry(hub), Trees(hub)

    async def scrape(request: Request) -> Response:
        try:
            encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a version that is no number
            encoder, content_type = choose_encoder("")
        if hub.statements is not None:
            await trio.to_thread.run_sync(statement_metrics.finding(hub, hub.statements))
        return Response(encoder(metrics), headers={"Content-Type": content_type})

    async def healthz(request: Request) -> Response:
        reasons = hub.ill()
        return PlainTextResponse("\n".join(reasons or ["ok"]) + "\n", status_code=503 if reasons else 200)

    async def readyz(request: Request) -> Response:
        reasons = hub.ready()
        return PlainTextResponse("\n".join(reasons or ["ready"]) + "\n", status_code=503 if reasons else 200)

    async def hot(request: Request) -> Response:
        query = request.query_params
        view = hub.hot(query.get("window"), ask.top(query), query.get("weight"), ask.process(hub, query))
        return JSONResponse(view.json(), headers=HEADERS)

    async def report(request: Request) -> Response:
        top, process = ask.top(request.query_params), ask.process(hub, request.query_params)
        view = hub.contradictions(hub.config.top if top is None else top, process)
        return JSONResponse(view.json(), headers=HEADERS)

    async def statistics(request: Request) -> Response:
        text = json.dumps(hub.statistics(), indent=2, default=str)
        return Response(text, media_type="application/json", headers=HEADERS)

    return Starlette(
        routes=[
            Route("/metrics", scrape),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/api/hot", ask.answered(hot)),
            Route("/api/report", ask.answered(report)),
            Route("/api/statistics", statistics),
            *Live(hub).routes(),
            *trees.routes(),
            *pyroscope.routes(hub, trees.in_thread),
            *Shift(hub, trees).routes(),
            *Matrix(hub).routes(),
            *Statements(hub, trees).routes(),
            *page.routes(),
        ],
        exception_handlers={HTTPException: _refused},
        middleware=[Middleware(Guard, config), Middleware(Admission, token or Token(config.token_file))],
    )


async def _refused(request: Request, error: Exception) -> Response:
    """A path or a method that there is none of."""
    assert isinstance(error, HTTPException)
    why = {
        404: "there is nothing of that name here: / is the page, docs/metrics.md lists the paths",
        405: f"this is not for {request.method}, but for {(error.headers or {}).get('Allow', 'others')}",
    }.get(error.status_code, error.detail)
    headers = {**(error.headers or {}), **HEADERS}
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": why}, error.status_code, headers)
    return PlainTextResponse(f"{why}\n", error.status_code, headers)


async def _speaking(hub: Hub, config: WebConfig) -> ServerConfig:
    """With the certificate, once that is good; the hub's time goes on meanwhile."""
    told = False
    while True:
        try:
            return ServerConfig(config.tls_certificate, config.tls_key)
        except ValueError as error:
            if not told:
                log.error("nobody is answered until the certificate is good", why=str(error))
            told = True
        hub.poll()
        await trio.sleep(POLL_SECONDS)


async def serve(
    hub: Hub,
    config: WebConfig,
    listening: socket.socket | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled, on a copy of `listening` if that is given, and keeps the hub's time going (`Hub.poll`).
    Starts with the page's URL. Raises WebError if the address cannot be used. `listen` has found token and certificate
    good; a hub that was started again may find them spoilt: then nobody is let in, or answered, until they are good."""
    listener = listen(config) if listening is None else listening.dup()
    token, server = Token(config.token_file, later=True), await _speaking(hub, config)
    server.bind = [f"fd://{listener.detach()}"]
    server.include_server_header = False
    server.accesslog = None
    server.errorlog = logging.getLogger("streamer.views.web")
    server.loglevel = "WARNING"

    async with trio.open_nursery() as nursery:
        binds = await nursery.start(partial(hypercorn.trio.serve, cast(Any, app(hub, config, token)), server))
        task_status.started(binds[0])
        while True:
            hub.poll()
            token.refresh()
            server.refresh()
            await trio.sleep(POLL_SECONDS)

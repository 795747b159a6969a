"""The hub's HTTP side: /metrics, /healthz, /readyz, /api/…, and the page. Read-only; loopback unless told otherwise."""

from __future__ import annotations

import errno
import json
import logging
import socket
from functools import partial
from importlib.resources import files
from typing import Any, cast

import hypercorn.trio
import trio
from hypercorn.config import Config
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from streamer.config import WebConfig
from streamer.hub import Hub
from streamer.hub.hub import ProcessKey
from streamer.trees.file import Saved, packed
from streamer.views.guard import Guard
from streamer.views.metrics import registry

POLL_SECONDS = 0.25
MAX_TOP = 500

_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_HEADERS = {
    # names of methods come from the traced program: nothing on the page may run or load but our own files
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class WebError(Exception):
    """The address cannot be served on; the message names the cause and the remedy."""


def app(hub: Hub, config: WebConfig) -> Starlette:
    metrics = registry(hub)

    async def scrape(request: Request) -> Response:
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(metrics), headers={"Content-Type": content_type})

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        reasons = hub.ready()
        return PlainTextResponse("\n".join(reasons or ["ready"]) + "\n", status_code=503 if reasons else 200)

    async def hot(request: Request) -> Response:
        query = request.query_params
        try:
            top, process = _top(query), _process(hub, query)
            view = hub.hot(query.get("window"), top, query.get("weight"), process)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400, headers=_HEADERS)
        return JSONResponse(view.json(), headers=_HEADERS)

    async def report(request: Request) -> Response:
        query = request.query_params
        try:
            top, process = _top(query), _process(hub, query)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400, headers=_HEADERS)
        view = hub.contradictions(hub.config.top if top is None else top, process)
        return JSONResponse(view.json(), headers=_HEADERS)

    async def cct(request: Request) -> Response:
        query = request.query_params
        try:
            process = _process(hub, query)
            tree, hz = hub.tree(query.get("window"), process)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400, headers=_HEADERS)
        body = packed(Saved(tree, hz, *(process or ())))
        return Response(body, media_type="application/octet-stream", headers=_HEADERS)

    async def statistics(request: Request) -> Response:
        text = json.dumps(hub.statistics(), indent=2, default=str)
        return Response(text, media_type="application/json", headers=_HEADERS)

    async def page(request: Request, body: bytes, media_type: str) -> Response:
        return Response(body, media_type=media_type, headers=_HEADERS)

    static = files("streamer.views") / "static"
    return Starlette(
        routes=[
            Route("/metrics", scrape),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/api/hot", hot),
            Route("/api/report", report),
            Route("/api/cct", cct),
            Route("/api/statistics", statistics),
            *(
                Route(path, partial(page, body=(static / name).read_bytes(), media_type=kind))
                for path, (name, kind) in _PAGE.items()
            ),
        ],
        middleware=[Middleware(Guard, config)],
    )


def _top(query: QueryParams) -> int | None:
    top = _integer(query.get("top"), "top")
    return None if top is None else min(top, MAX_TOP)


def _process(hub: Hub, query: QueryParams) -> ProcessKey | None:
    pid = _integer(query.get("pid"), "pid")
    if pid is None:
        return None
    hosts = [h for h, p in hub.processes if p == pid and query.get("host") in (None, h)]
    if len(hosts) != 1:
        known = ", ".join(f"{h}/{p}" for h, p in list(hub.processes)[:20]) or "none"
        raise ValueError(f"no process {pid}, or not one only: name its host (known: {known})")
    return hosts[0], pid


def _integer(text: str | None, name: str) -> int | None:
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{name} must be a number")
    return int(text)


def listen(config: WebConfig) -> socket.socket:
    """A listening socket on the configured address. Raises WebError."""
    where = f"{config.host}:{config.port}"
    try:
        info = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(info[4][:2], family=info[0])
    except socket.gaierror as error:
        raise WebError(f"cannot serve on {where}: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise WebError(
                f"port {config.port} on {config.host} is in use: stop what uses it or choose another (0: any free one)"
            ) from None
        raise WebError(f"cannot serve on {where}: {error.strerror}") from None


def url_of(listener: socket.socket) -> str:
    """Of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    hub: Hub,
    config: WebConfig,
    listening: socket.socket | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves until cancelled, on a copy of `listening` if that is given, and keeps the hub's time going (`Hub.poll`).
    Starts with the page's URL. Raises WebError if the address cannot be used."""
    listener = listen(config) if listening is None else listening.dup()
    server = Config()
    server.bind = [f"fd://{listener.detach()}"]
    server.include_server_header = False
    server.accesslog = None
    server.errorlog = logging.getLogger("streamer.views.web")
    server.loglevel = "WARNING"

    async with trio.open_nursery() as nursery:
        binds = await nursery.start(partial(hypercorn.trio.serve, cast(Any, app(hub, config)), server))
        task_status.started(binds[0])
        while True:
            hub.poll()
            await trio.sleep(POLL_SECONDS)

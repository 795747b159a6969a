"""The page: the files in `static/`, each at its own name."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamer.views.query import HEADERS

_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


def routes() -> list[Route]:
    return list(_routes(files("streamer.views") / "static", "/"))


def _routes(directory: Traversable, path: str) -> list[Route]:
    out: list[Route] = []
    for entry in sorted(directory.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            out += _routes(entry, f"{path}{entry.name}/")
        else:
            kind = _TYPES[entry.name.rpartition(".")[2]]
            where = path if entry.name == "index.html" else path + entry.name
            out.append(Route(where, partial(_file, body=entry.read_bytes(), media_type=kind)))
    return out


async def _file(request: Request, body: bytes, media_type: str) -> Response:
    return Response(body, media_type=media_type, headers=HEADERS)

"""Questions in a URL: each parameter is looked at, and a wrong one is a clear answer with status 400."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from streamer.hub.hub import Hub, ProcessKey
from streamer.hub.kept import Which

MAX_TOP = 500
HEADERS = {
    # names of methods come from the traced program: nothing on the page may run or load but our own files
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
Query = Mapping[str, str]
Answer = Callable[[Request], Awaitable[Response]]


def answered(answer: Answer) -> Answer:
    """A handler whose ValueError is the reason of a 400."""

    @functools.wraps(answer)
    async def made(request: Request) -> Response:
        try:
            return await answer(request)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400, headers=HEADERS)
        except ClientDisconnect:  # in the middle of its body: no reader is left
            return Response(status_code=400)

    return made


async def body(request: Request, most: int, too_long: str) -> bytes:
    """A request's body of at most `most` bytes. Raises ValueError(`too_long`), starlette's ClientDisconnect."""
    if len(length := request.headers.get("content-length", "0")) > 12 or int(length) > most:
        raise ValueError(too_long)
    data = bytearray()
    async with aclosing(request.stream()) as stream:
        async for piece in stream:
            data += piece
            if len(data) > most:
                raise ValueError(too_long)
    return bytes(data)


def top(query: Query) -> int | None:
    number = integer(query, "top")
    return None if number is None else min(number, MAX_TOP)


def process(hub: Hub, query: Query) -> ProcessKey | None:
    pid = integer(query, "pid")
    if pid is None:
        return None
    hosts = [h for h, p in hub.processes if p == pid and query.get("host") in (None, h)]
    if len(hosts) != 1:
        known = ", ".join(f"{h}/{p}" for h, p in list(hub.processes)[:20]) or "none"
        raise ValueError(f"no process {pid}, or not one only: name its host (known: {known})")
    return hosts[0], pid


def processes(hub: Hub, query: Query) -> Which:
    """`process`, or with a host alone all of that."""
    host = query.get("host")
    if not host or query.get("pid"):
        return process(hub, query)
    if host not in (hosts := {h for h, _ in hub.processes}):
        raise ValueError(f"no process of host {host[:50]!r} (known: {', '.join(sorted(hosts)[:20]) or 'none'})")
    return host


def integer(query: Query, name: str) -> int | None:
    text = query.get(name)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{name} must be a number")
    return int(text)


def share(query: Query, name: str) -> float:
    """0 to 1; 0 if it is not given."""
    text = query.get(name) or "0"
    try:
        value = float(text) if len(text) <= 30 else 2.0
    except ValueError:
        value = 2.0
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a share, 0 to 1")
    return value


def flag(query: Query, name: str) -> bool:
    return one_of(query, name, ("0", "1")) == "1"


def one_of(query: Query, name: str, values: tuple[str, ...]) -> str:
    """The first if it is not given."""
    value = query.get(name) or values[0]
    if value not in values:
        raise ValueError(f"no {name} {value[:20]!r}; there are {', '.join(values)}")
    return value

"""`streamer top`: the hot methods of a running streamer, live in a terminal."""

from __future__ import annotations

import http.client
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from typing import IO, Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live

from streamer.cli import Failure
from streamer.hub.screen import screen
from streamer.hub.text import View

MAX_ANSWER = 8 << 20
SECONDS = 5.0  # for a whole answer, and for each part of it


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A streamer redirects no client."""

    def redirect_request(self, *_: object) -> None:
        return None


# the hub is on this machine or near it: a proxy meant for the web is of no use
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def fetch(url: str, query: dict[str, str | int | None], what: str = "hot") -> dict[str, Any]:
    """A view as JSON, from /api/`what`. Raises Failure with one line that names the fault; with any server there, it
    neither waits nor reads without a limit."""
    try:
        view = json.loads(fetch_bytes(url, query, what))
    except (ValueError, RecursionError):
        raise Failure(f"what answers at {url} is not a streamer") from None
    if not isinstance(view, dict):
        raise Failure(f"what answers at {url} is not a streamer")
    return view


def fetch_bytes(url: str, query: dict[str, str | int | None], what: str) -> bytes:
    """The same, as it is answered."""
    given = {key: value for key, value in query.items() if value is not None}
    try:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError
        request = urllib.request.Request(f"{url.rstrip('/')}/api/{what}?{urllib.parse.urlencode(given)}")
    except ValueError:
        raise Failure(f"{url} is not a http:// address") from None
    try:
        with _OPENER.open(request, timeout=SECONDS) as answer:
            return _read(answer)
    except urllib.error.HTTPError as error:
        try:
            with error:
                raise Failure(str(json.loads(_read(error))["error"])) from None
        except (ValueError, LookupError, TypeError, RecursionError, OSError):
            raise Failure(f"{url} answers with HTTP status {error.code}: it is not a streamer") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise Failure(f"no streamer answers at {url} ({why}): start one, or say where it is with --url") from None
    except ValueError:
        raise Failure(f"what answers at {url} is not a streamer") from None


def _read(answer: IO[bytes]) -> bytes:
    """A whole body. Raises ValueError when it is too long, TimeoutError."""
    data, until = bytearray(), time.monotonic() + SECONDS
    while piece := answer.read1(1 << 16):  # type: ignore[attr-defined]
        data += piece
        if len(data) > MAX_ANSWER:
            raise ValueError("too long")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return bytes(data)


def render(view: dict[str, Any], source: str, build: Callable[[View], Iterable[RenderableType]] = screen) -> Group:
    """`build` of a view that may come from any server. Raises Failure."""
    try:
        group = Group(*build(view))
        Console(file=io.StringIO()).print(group)  # some of it is built only when it is shown
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        raise Failure(f"{source}: that is not from a streamer of this version") from None
    return group


@click.command()
@click.option("--url", default="http://127.0.0.1:9464", show_default=True, help="Where the streamer serves.")
@click.option("--window", help="10s, 1m, 5m, … as configured; default: the shortest.")
@click.option("--weight", help="What a share is a share of: hits, instructions, time; default: the fidelity's own.")
@click.option("--top", "count", type=click.IntRange(1, 500), help="How many methods; default: as configured.")
@click.option("--pid", type=click.IntRange(0, 999_999_999), help="One process only; default: all together.")
@click.option("--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print once and exit (also when the output is no terminal).")
def command(
    url: str,
    window: str | None,
    weight: str | None,
    count: int | None,
    pid: int | None,
    interval: float,
    once: bool,
) -> None:
    """Live table of the hot methods of a running streamer. Stop with Ctrl-C."""
    query: dict[str, str | int | None] = {"window": window, "weight": weight, "top": count, "pid": pid}
    console = Console()
    first = render(fetch(url, query), url)
    if once or not console.is_terminal:
        console.print(first)
        return
    try:
        with Live(first, console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
            while True:
                time.sleep(interval)
                live.update(render(fetch(url, query), url), refresh=True)
    except KeyboardInterrupt:
        return

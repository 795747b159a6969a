"""Asks a running streamer, over HTTP."""

from __future__ import annotations

import functools
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import IO, Any

from jvm.inputfile import read_input
from streamer.cli import Failure

MAX_ANSWER = 8 << 20
TREE_SECONDS = 120.0
SECONDS = 5.0  # for a whole answer, and for each part of it


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A streamer redirects no client."""

    def redirect_request(self, *_: object) -> None:
        return None


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    """With the token and the certificate that the settings name, which a streamer on this machine serves with. Raises
    Failure, streamer.config.ConfigError."""
    from streamer import config

    web = config.load().web
    trusted = ssl.create_default_context()
    try:
        if web.tls_certificate is not None:
            trusted.load_verify_locations(web.tls_certificate)
        token = None if web.token_file is None else read_input(web.token_file, 1 << 16).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise Failure(f"{web.token_file or web.tls_certificate}: {error}") from None
    # the hub is on this machine or near it: a proxy meant for the web is of no use
    made = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _NoRedirect, urllib.request.HTTPSHandler(context=trusted)
    )
    made.addheaders = [] if token is None else [("Authorization", f"Bearer {token}")]
    return made


Asked = Mapping[str, str | int | float | Sequence[str] | None]
"""A query; a sequence is a parameter that comes several times."""


def fetch(url: str, query: Asked, what: str = "hot", seconds: float | None = None) -> dict[str, Any]:
    """A view as JSON, from /api/`what`. Raises Failure with one line that names the fault; with any server there, it
    neither waits nor reads without a limit."""
    try:
        view = json.loads(fetch_bytes(url, query, what, seconds=seconds))
    except (ValueError, RecursionError):
        raise Failure(f"what answers at {url} is not a streamer") from None
    if not isinstance(view, dict):
        raise Failure(f"what answers at {url} is not a streamer")
    return view


def fetch_bytes(url: str, query: Asked, what: str, most: int | None = None, seconds: float | None = None) -> bytes:
    """The same, as it is answered; of at most `most` bytes, within `seconds`."""
    most, seconds = most or MAX_ANSWER, seconds or SECONDS
    given = {key: value for key, value in query.items() if value is not None}
    try:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError
        request = urllib.request.Request(f"{url.rstrip('/')}/api/{what}?{urllib.parse.urlencode(given, doseq=True)}")
    except ValueError:
        raise Failure(f"{url} is not a http:// address") from None
    try:
        with _opener().open(request, timeout=seconds) as answer:
            return _read(answer, most, seconds)
    except urllib.error.HTTPError as error:
        try:
            with error:
                raise Failure(str(json.loads(_read(error, MAX_ANSWER, SECONDS))["error"])) from None
        except (ValueError, LookupError, TypeError, RecursionError, OSError):
            raise Failure(f"{url} answers with HTTP status {error.code}: it is not a streamer") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise Failure(f"no streamer answers at {url} ({why}): start one, or say where it is with --url") from None
    except ValueError:
        raise Failure(f"what answers at {url} is not a streamer") from None


def _read(answer: IO[bytes], most: int, seconds: float) -> bytes:
    """A whole body. Raises ValueError when it is too long, TimeoutError."""
    data, until = bytearray(), time.monotonic() + seconds
    while piece := answer.read1(1 << 16):  # type: ignore[attr-defined]
        data += piece
        if len(data) > most:
            raise ValueError("too long")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return bytes(data)


def fetch_tree(url: str, query: Asked) -> bytes:
    """The file of /api/cct: as large as a tree's file may be, and as late as a large one is merged and packed."""
    from streamer.trees.file import MOST_PACKED  # with numba, which those who ask for no tree do without

    return fetch_bytes(url, query, "cct", MOST_PACKED, TREE_SECONDS)

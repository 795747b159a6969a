"""Which HTTP requests are answered: those for a name of ours, framed in one way.

A page from anywhere can have a browser look its own name up again and get 127.0.0.1 (DNS rebinding); to the browser all
that then answers is of the page's origin. The Host header still has the page's name, so only names that are ours are
answered. An address in it cannot be rebound: the page that asks came from there.
A request with both Content-Length and Transfer-Encoding may end elsewhere for a proxy before us than it does for us
(RFC 9112, 6.1): such a connection ends.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamer.config import WebConfig
from streamer.views.addresses import address_of, plain

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]/@\s]+))(?::\d{1,5})?")  # RFC 9110, 7.2
_LONGEST = 300


class Guard:
    """In front of an application: 421 for another host's name, 400 for an ambiguous request."""

    def __init__(self, app: ASGIApp, config: WebConfig) -> None:
        self._app = app
        self._bound = address_of(config.host)
        self._names = {plain(name) for name in ("localhost", config.host, *config.allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            names = [name for name, _ in scope["headers"]]
            answer = self._framing(names) or self._host([v for name, v in scope["headers"] if name == b"host"])
            if answer is not None:
                status, why = answer
                headers = {"Connection": "close"} if scope["http_version"].startswith("1") else {}
                refused: Response = (
                    JSONResponse({"error": why}, status, headers)
                    if scope["path"].startswith("/api/")
                    else PlainTextResponse(f"{why}\n", status, headers)
                )
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _framing(self, names: Collection[bytes]) -> tuple[int, str] | None:
        if b"content-length" in names and b"transfer-encoding" in names:
            return 400, "a request has Content-Length or Transfer-Encoding, not both"
        return None

    def _host(self, values: list[bytes]) -> tuple[int, str] | None:
        text = values[0].decode("latin-1").lower() if len(values) == 1 else ""
        match = _HOST.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None:
            return 400, "no valid Host header"
        name = match[1] or plain(match[2])
        address = address_of(name)
        if name in self._names or (address is not None and self._is_ours(address)):
            return None
        return 421, f"{name} is no name of this server: web.allowed_hosts (--allowed-host) can add it"

    def _is_ours(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        """Loopback, the bound address, or any if all are bound."""
        return address.is_loopback or (
            self._bound is not None and (self._bound.is_unspecified or address == self._bound)
        )

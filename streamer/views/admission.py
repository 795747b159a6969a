"""Who asks without the token is turned away (`streamer.views.token`)."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamer.views.token import Token

_CHALLENGE = ("Bearer", 'Basic realm="streamer: any user, the token as password", charset="UTF-8"')


class Admission:
    """In front of an application: 401 for a request without the token, 503 where there is no token to be had."""

    def __init__(self, app: ASGIApp, token: Token) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if not self._token.admits(scope["path"], given):
                why = "not the token that is asked for here" if given else "a token is asked for here"
                if self._token.closed:
                    why = "nobody is let in: the file of the token cannot be read, the log says why"
                status = 503 if self._token.closed else 401
                answer: Response = (
                    JSONResponse({"error": why}, status)
                    if scope["path"].startswith("/api/")
                    else PlainTextResponse(f"{why}\n", status)
                )
                for challenge in _CHALLENGE if status == 401 else ():
                    MutableHeaders(raw=answer.raw_headers).append("WWW-Authenticate", challenge)
                answer.headers["Cache-Control"] = "no-store"
                if scope["http_version"].startswith("1"):
                    answer.headers["Connection"] = "close"
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

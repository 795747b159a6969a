"""The Connect protocol, unary calls (connectrpc.com/docs/protocol): a POST with a message as protobuf or as JSON, the
answer in the same encoding; an error is JSON with a code and a reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.json_format import MessageToJson, Parse, ParseError
from google.protobuf.message import DecodeError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from streamer.views import query as ask
from streamer.views.pyroscope.schema import MESSAGES
from streamer.views.query import HEADERS

PROTO, JSON = "application/proto", "application/json"
MOST_BYTES = 1 << 16
Call = Callable[[Any], Awaitable[Any]]


async def answer(request: Request, method: str, call: Call) -> Response:
    """`call`: from a message `<method>Request` to a `<method>Response`; its ValueError is the caller's fault."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (PROTO, JSON):
        return Response(status_code=415, headers={"Accept-Post": f"{PROTO}, {JSON}"})
    if request.headers.get("content-encoding", "identity") != "identity":
        return refused(501, "unimplemented", "requests are taken uncompressed")
    try:
        asked = _read(
            MESSAGES[f"{method}Request"], kind, await ask.body(request, MOST_BYTES, "the request is too long")
        )
        told = await call(asked)
    except ValueError as error:
        return refused(400, "invalid_argument", str(error))
    except ClientDisconnect:
        return Response(status_code=400)
    body = told.SerializeToString() if kind == PROTO else MessageToJson(told, indent=None).encode()
    return Response(body, media_type=kind, headers=HEADERS)


def refused(status: int, code: str, why: str) -> Response:
    return JSONResponse({"code": code, "message": why}, status_code=status, headers=HEADERS)


def _read(message: Any, kind: str, body: bytes) -> Any:
    try:
        if kind == PROTO:
            return message.FromString(body)
        return Parse(body.decode() or "{}", message(), ignore_unknown_fields=True)
    except (DecodeError, ParseError, UnicodeDecodeError, RecursionError):
        raise ValueError("that is no message of this call") from None

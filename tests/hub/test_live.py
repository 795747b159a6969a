"""Readers of /api/live who do not read do not keep their places."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from starlette.requests import Request

from streamer.config import WebConfig
from streamer.views import listener, live, web
from streamer.views.live import LIFE_SECONDS, Live
from tests.hub.scene import scene

SCOPE = {"type": "http", "method": "GET", "path": "/api/live", "query_string": b"", "headers": []}


async def never() -> Any:
    await trio.sleep_forever()


async def opened(api: Live) -> Any:
    return await api.events(Request(SCOPE))


async def test_a_connection_ends_in_order_after_its_life(autojump_clock: trio.testing.MockClock) -> None:
    api, sent = Live(scene()[0]), []

    async def taken(message: Any) -> None:
        sent.append(message)

    began = trio.current_time()
    await (await opened(api))(SCOPE, never, taken)
    assert trio.current_time() - began == pytest.approx(LIFE_SECONDS)
    assert len(sent) == pytest.approx(LIFE_SECONDS + 2, abs=2)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert all(message["more_body"] for message in sent[1:-1])


async def test_the_real_server_closes_the_connection_of_one_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "STALLED_SECONDS", 0.5)
    monkeypatch.setattr(live, "MOST_READERS", 1)
    monkeypatch.setattr(live, "_event", lambda name, data: f"event: {name}\ndata: {'x' * (16 << 20)}\n\n")
    hub, _ = scene()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(web.serve, hub, WebConfig(port=0))
            port = int(url.rpartition(":")[2])
            with socket.socket() as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.connect(("127.0.0.1", port))
                deaf.sendall(b"GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                async with httpx.AsyncClient(base_url=url) as http:
                    assert await _status(http) == 503
                    while await _status(http) == 503:  # noqa: ASYNC110 (of the server, by its answers alone)
                        await trio.sleep(0.05)
                deaf.settimeout(20)

                def rest() -> int:
                    """Bytes until the end."""
                    size = 0
                    try:
                        while piece := deaf.recv(1 << 20):
                            size += len(piece)
                    except OSError:  # reset
                        pass
                    return size

                assert await trio.to_thread.run_sync(rest) < 16 << 20
            nursery.cancel_scope.cancel()


async def _status(http: httpx.AsyncClient) -> int:
    async with http.stream("GET", "/api/live") as answer:
        return answer.status_code

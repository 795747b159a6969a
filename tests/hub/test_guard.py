"""Which requests the real server answers, byte by byte over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest
import trio
from click.testing import CliRunner

from streamer.commands.top import command
from streamer.config import Settings, WebConfig, load
from streamer.views import web
from tests.hub.scene import scene


@asynccontextmanager
async def served(config: WebConfig | None = None) -> AsyncIterator[int]:
    """A hub's real server; its port."""
    hub, _ = scene()
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(web.serve, hub, config or WebConfig(port=0))
            yield int(url.rpartition(":")[2])
            nursery.cancel_scope.cancel()


async def answered(port: int, request: str) -> str:
    """All that is answered until the server closes."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request.encode("latin-1"))
        return "".join([part.decode("latin-1") async for part in stream])


async def said(port: int, request: str) -> tuple[int, str, str]:
    """Status, head and body of the answer."""
    head, _, body = (await answered(port, request)).partition("\r\n\r\n")
    return int(head.split()[1]), head, body


def get(host: str, path: str = "/healthz", more: str = "") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:{port}",
        "LocalHost.:{port}",
        "127.0.0.1:{port}",
        "127.9.9.9",
        "[::1]:{port}",
        "localhost:1",
    ],
)
async def test_loopback_is_answered(host: str) -> None:
    async with served() as port:
        for path in ("/healthz", "/metrics", "/api/hot", "/"):
            assert (await said(port, get(host.format(port=port), path)))[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "10.1.2.3", "0.0.0.0",
     "[::2]", "0177.0.0.1", "2130706433"],
)  # fmt: skip
async def test_a_name_that_is_not_ours_is_not_answered_on_any_path(host: str) -> None:
    async with served() as port:
        for path in ("/healthz", "/metrics", "/api/hot", "/", "/main.js", "/nothing"):
            status, head, body = await said(port, get(host.format(port=port), path))
            assert status == 421
            assert "connection: close" in head.lower()
            assert "is no name of this server: web.allowed_hosts" in body
            assert body.rstrip("\n").count("\n") == 0
            assert "HashMap" not in body


@pytest.mark.parametrize(
    "host",
    ["", "a b", "user@localhost", "localhost:x", "localhost:99999999", "[::1", "local/host", "x" * 400,
     "localhost, evil.example"],
)  # fmt: skip
async def test_no_valid_host_is_400(host: str) -> None:
    async with served() as port:
        assert (await said(port, get(host, "/metrics")))[0] == 400


async def test_none_or_two_hosts_are_400() -> None:
    async with served() as port:
        assert (await said(port, "GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"))[0] == 400
        assert (await said(port, "GET /metrics HTTP/1.0\r\n\r\n"))[0] == 400
        assert (await said(port, get("localhost", "/metrics", "Host: evil.example\r\n")))[0] == 400


async def test_the_name_in_an_absolute_target_does_not_help() -> None:
    async with served() as port:
        assert (await said(port, get("evil.example", "http://localhost/metrics")))[0] == 421
        assert (await said(port, get("localhost", "http://evil.example/metrics")))[0] == 404


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_that_may_end_in_two_places_ends_the_connection(method: str) -> None:
    inner = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    start = f"{method} /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    async with served() as port:
        for length in (0, 5, 5 + len(inner)):
            for body in ("", "0\r\n\r\n"):
                status, head, said_body = await said(port, f"{start}Content-Length: {length}\r\n\r\n{body}")
                assert status == 400
                assert "connection: close" in head.lower()
                assert said_body == "a request has Content-Length or Transfer-Encoding, not both\n"
            everything = await answered(port, f"{start}Content-Length: {length}\r\n\r\n0\r\n\r\n{inner}")
            assert " 200 " not in everything
            assert "streamer_" not in everything


async def test_framing_by_one_length_is_answered_by_two_it_is_not() -> None:
    async with served() as port:
        assert (await said(port, get("localhost", "/healthz", "Content-Length: 0\r\n")))[0] == 200
        two = "Content-Length: 0\r\nContent-Length: 5\r\n"
        assert (await said(port, f"GET / HTTP/1.1\r\nHost: localhost\r\n{two}\r\nhello"))[0] == 400


async def test_http_2_is_held_to_the_same() -> None:
    """With prior knowledge, as any client on the machine may speak it."""
    h2 = pytest.importorskip("h2.connection")
    async with served() as port:
        for host, expected in ((f"localhost:{port}", b"200"), ("evil.example", b"421")):
            connection = h2.H2Connection()
            connection.initiate_connection()
            request = {":method": "GET", ":path": "/healthz", ":scheme": "http", ":authority": host}
            connection.send_headers(1, list(request.items()), end_stream=True)
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(connection.data_to_send())
                status = b""
                while not status:
                    for event in connection.receive_data(await stream.receive_some(65536)):
                        headers = dict(getattr(event, "headers", None) or {})
                        status = status or headers.get(b":status", b"")
            assert status == expected


async def test_configured_names_and_every_address_where_all_are_bound() -> None:
    config = WebConfig(host="0.0.0.0", port=0, anyone=True, allowed_hosts=("Prod-7.example.org",))
    async with served(config) as port:
        for host in ("prod-7.example.org:9464", "PROD-7.EXAMPLE.ORG.", "10.1.2.3", "[fe80::1]", "localhost"):
            assert (await said(port, get(host)))[0] == 200
        for host in ("other.example.org", "example.org", "evil.prod-7.example.org"):
            assert (await said(port, get(host)))[0] == 421


async def test_one_bound_address_is_answered_to_alone() -> None:
    async with served(WebConfig(host="127.0.0.2", port=0)):
        pass
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(web.app(scene()[0], WebConfig(host="10.1.2.3"))), base_url="http://10.1.2.3"
    ) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("http://10.1.2.4/healthz")).status_code == 421


async def test_top_says_why_it_is_not_answered() -> None:
    async with served() as port:
        host = "127.1"  # leads here, but is no address by the letter
        run = partial(CliRunner().invoke, command, ["--url", f"http://{host}:{port}", "--once"])
        result = await trio.to_thread.run_sync(run)
    assert result.exit_code == 1
    assert "127.1 is no name of this server" in result.output


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_WEB__ALLOWED_HOSTS", '["a.example"]')
    assert Settings().web.allowed_hosts == ("a.example",)
    assert load(**{"web.allowed_hosts": ("b.example",)}).web.allowed_hosts == ("b.example",)

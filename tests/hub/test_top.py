from __future__ import annotations

import http.server
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio
from click.testing import CliRunner, Result

from streamer import web
from streamer.commands.top import command
from streamer.config import WebConfig
from tests.hub.scene import scene


async def run(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(partial(CliRunner().invoke, command, list(arguments)))


async def test_once_prints_the_table_without_colour():
    hub, _ = scene()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        result = await run("--url", url, "--once", "--top", "3")
        wrong_window = await run("--url", url, "--window", "7s")
        not_ours = await run("--url", f"{url}/metrics")
        nursery.cancel_scope.cancel()
    assert result.exit_code == 0
    lines = [line.strip() for line in result.output.splitlines()]
    assert any(line.split()[:4] == ["54.9%", "█" * 12, "▲", "+54.9"] for line in lines)
    assert "99.8 % of 10.0 MB of trace decoded; lost: 12.0 kB desync, 900 B code missing" in lines
    assert "\x1b" not in result.output
    assert (wrong_window.exit_code, wrong_window.output) == (1, "streamer: no window '7s'; there are 10s, 1m, 5m\n")
    assert "HTTP status 404: it is not a streamer" in not_ours.output


async def test_an_absent_server_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = await run("--url", f"http://127.0.0.1:{port}", "--once")
    assert result.exit_code == 1
    assert "no streamer answers at" in result.output
    assert "Connection refused" in result.output
    assert len(result.output.splitlines()) == 1
    assert "is not a http:// address" in (await run("--url", "file:///etc/passwd")).output


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"processes": 3}', b'{"processes": [], "window": []}'])
async def test_what_is_no_streamer_is_one_clear_line(body):
    with answering(body) as url:
        result = await run("--url", url)
    assert result.exit_code == 1
    assert "is not a streamer" in result.output


def read_until(terminal: int, found: Callable[[bytes], bool], seconds: float = 200) -> bytes:
    seen = b""
    deadline = time.monotonic() + seconds
    while not found(seen):
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"not seen in {seconds} s; seen: {seen[-2000:]!r}"
        seen += os.read(terminal, 65536)
    return seen


def start_in_terminal(url: str) -> tuple[subprocess.Popen[bytes], int]:
    outer, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    environment.pop("NO_COLOR", None)
    main = [sys.executable, "-c", "from streamer.cli import main; main()"]
    child = subprocess.Popen(
        [*main, "top", "--url", url, "--interval", "0.1"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment,
        start_new_session=True,
    )
    os.close(inner)
    return child, outer


async def test_live_in_a_terminal_has_colour_and_refreshes_and_stops_on_ctrl_c():
    hub, _ = scene()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        child, terminal = start_in_terminal(url)
        try:
            seen = await trio.to_thread.run_sync(read_until, terminal, lambda seen: seen.count(b"PDFStream.def") >= 3)
            assert b"\x1b[1;31m" in seen
            child.send_signal(signal.SIGINT)
            assert await trio.to_thread.run_sync(partial(child.wait, 200)) == 0
        finally:
            child.kill()
            child.wait()
            os.close(terminal)
            nursery.cancel_scope.cancel()

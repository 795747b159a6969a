from __future__ import annotations

import copy
import errno
import http.server
import io
import json
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
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

import pytest
import trio
from click.testing import CliRunner, Result
from rich.cells import cell_len
from rich.console import Console, Group

from streamer import client
from streamer.cli import Failure
from streamer.commands import top
from streamer.commands.top import command
from streamer.config import WebConfig
from streamer.hub.hub import Hub
from streamer.hub.screen import FRAME, LEAST
from streamer.hub.timeline import timeline
from streamer.navigation import Place, Row
from streamer.views import web
from tests.hub.scene import scene
from tests.narrowed import of_type
from tests.views.made import NOW, tree
from tests.views.test_flame import seen


async def run(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(partial(CliRunner().invoke, command, list(arguments)))


async def test_once_prints_the_table_without_colour() -> None:
    hub, _ = scene()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        result = await run("--url", url, "--once", "--top", "3")
        wrong_window = await run("--url", url, "--window", "7s")
        not_ours = await run("--url", f"{url}/metrics")
        nursery.cancel_scope.cancel()
    assert result.exit_code == 0
    lines = [line.strip() for line in result.output.splitlines()]
    assert any(line.split()[:4] == ["54.9%", "▲", "+54.9", "██"] for line in lines)
    assert "█" in next(line for line in lines if "× lost 0.1 %" in line)
    assert "99.8 % of 10.0 MB of trace decoded; lost: 12.0 kB desync, 900 B code missing" in lines
    assert "\x1b" not in result.output
    assert (wrong_window.exit_code, wrong_window.output) == (
        1,
        "streamer: no window '7s'; there are 10s, 1m, 5m, and stretches FROM..TO of what is kept, in seconds since the "
        "epoch\n",
    )
    assert "HTTP status 404: it is not a streamer" in not_ours.output


async def test_an_absent_server_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    result = await run("--url", f"http://127.0.0.1:{port}", "--once")
    assert result.exit_code == 1
    assert "no streamer answers at" in result.output
    assert "Connection refused" in result.output
    assert len(result.output.splitlines()) == 1
    assert "is not a http:// address" in (await run("--url", "file:///etc/passwd")).output


class Server(http.server.HTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.over = threading.Event()


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


def answering(body: bytes) -> AbstractContextManager[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return serving(Handler)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"processes": 3}', b'{"processes": [], "window": []}'])
async def test_what_is_no_streamer_is_one_clear_line(body: bytes) -> None:
    with answering(body) as url:
        result = await run("--url", url)
    assert result.exit_code == 1
    assert "not a streamer" in result.output or "not from a streamer" in result.output


class Slow(http.server.BaseHTTPRequestHandler):
    """Sends a little, again and again, each time soon enough."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while not of_type(Server, self.server).over.wait(0.02):
                self.wfile.write(b" ")

    def log_message(self, *_: object) -> None: ...


async def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SECONDS", 0.3)
    with serving(Slow) as url:
        result = await run("--url", url)
    assert result.exit_code == 1
    assert "no streamer answers" in result.output
    assert "timed out" in result.output


async def test_an_answer_that_is_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 10)
    with answering(b'{"processes": []}') as url:
        result = await run("--url", url)
    assert "is not a streamer" in result.output


async def test_nobody_is_sent_elsewhere() -> None:
    class Elsewhere(Slow):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

    with serving(Elsewhere) as url:
        result = await run("--url", url)
    assert "HTTP status 302" in result.output


@pytest.mark.parametrize("url", ["http://[::1", "http://a b/", "http://\udcff/", "ftp://x", "http://x:99999999"])
async def test_what_is_no_address_is_one_clear_line(url: str) -> None:
    result = await run("--url", url)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert len(result.output.splitlines()) == 1


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            yield from places(each, (*path, key))


BAD: tuple[object, ...] = (None, "x", -1, 1e308, float("nan"), [], {}, [[[]]])


def test_any_view_is_shown_or_refused() -> None:
    """Each part of a view in turn is wrong; also where that shows only when it is printed."""
    hub, _ = scene()
    good = json.loads(json.dumps(hub.hot().json() | {"timeline": timeline(hub).json()}))
    refused = 0
    for path in places(good):
        for bad in BAD:
            view = copy.deepcopy(good)
            at = view
            for key in path[:-1]:
                at = at[key]
            if path:
                at[path[-1]] = bad
            else:
                view = bad
            try:
                top.render(view, "x")
            except Failure:
                refused += 1
    assert refused > 100


def read_until(terminal: int, found: Callable[[bytes], bool], seconds: float = 200, seen: bytes = b"") -> bytes:
    """All output behind `seen`, which is in it, until it is found in that."""
    deadline = time.monotonic() + seconds
    while not found(seen):
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"not seen in {seconds} s; seen: {seen[-2000:]!r}"
        more = read(terminal)
        assert more, f"not seen before its end; seen: {seen[-2000:]!r}"
        seen += more
    return seen


def read(terminal: int) -> bytes:
    """The bytes that are there; b"" at the end, which Linux tells by EIO once nobody has the other side open."""
    try:
        return os.read(terminal, 65536)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


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


async def test_live_in_a_terminal_has_colour_and_refreshes_and_stops_on_ctrl_c() -> None:
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


async def test_sorted_filtered_and_around_a_method() -> None:
    hub = seen()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        by_shift = await run("--url", url, "--sort", "shift", "--top", "2")
        some = await run("--url", url, "--filter", "HashMap")
        around = await run("--url", url, "--method", "org.apache.fop.fonts.GlyphTable.lookup")
        nowhere = await run("--url", url, "--method", "a.B.c")
        by_its_end = await run("--url", url, "--method", "GlyphTable.lookup")
        hub.trees.feed(tree(79, {"other$GlyphTable.lookup": 1, "org.apache.fop.fonts.GlyphTable.lookup": 1}))
        either = await run("--url", url, "--method", "GlyphTable.lookup")
        nursery.cancel_scope.cancel()
    shown = [line for line in by_shift.output.splitlines() if "org.apache" in line]
    assert [name in line for name, line in zip(("PDFStream.deflate", "GlyphTable.lookup"), shown, strict=True)] == [
        True, True,
    ]  # fmt: skip
    assert "java.util.HashMap.getNode" in some.output
    assert "org.apache" not in some.output
    assert "82.4%" in some.output  # all others
    spent, whole = 10 * (220 + 90 + 160 + 70), 10 * (sum(NOW.values()) + 90) + 50
    assert [line.strip() for line in around.output.splitlines() if line.strip()] == [
        f"org.apache.fop.fonts.GlyphTable.lookup: {spent / whole:.1%} of instructions, itself {3100 / whole:.1%}",
        "called by",
        f"{spent / whole:.1%}  org.apache.fop.area.PageSequence.layout",
        "calls",
        f"{2300 / whole:.1%}  java.util.HashMap.getNode",
    ]
    assert by_its_end.output == around.output
    assert "may be org.apache.fop.fonts.GlyphTable.lookup, other$GlyphTable.lookup: say which" in either.output
    assert nowhere.exit_code == 1
    assert "a.B.c is in no calling context" in nowhere.output


async def typed(hub: Hub, *keys: tuple[str, bytes]) -> None:
    """`top` in a terminal: behind each key those bytes are shown; q ends it."""
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        child, terminal = start_in_terminal(url)
        try:
            for key, shown in keys:
                os.write(terminal, key.encode())
                await trio.to_thread.run_sync(read_until, terminal, partial(_in, shown))
            os.write(terminal, b"q")
            await trio.to_thread.run_sync(_drain, terminal)
            assert await trio.to_thread.run_sync(child.wait) == 0
        finally:
            child.kill()
            child.wait()
            os.close(terminal)
        nursery.cancel_scope.cancel()


async def test_keys_change_window_weight_and_order() -> None:
    hub, _ = scene(fidelity="flow")
    await typed(hub, ("", b"last 10s"), ("w", b"last 1m"), ("s", b"sorted by shift"), ("b", b"share of time"))


async def test_keys_lead_to_callers_and_callees_and_back() -> None:
    await typed(
        seen(),
        ("", b"Enter callers and callees"),
        ("\x1b[B\x1b[B\x1b[B", b"\x1b[7m"),  # the third row is marked
        ("\n", b"GlyphTable.lookup: "),
        ("\x1b[B", b"\x1b[7m"),
        ("\x1bOC", b"PageSequence.layout: "),  # its caller
        ("b", b" of time, itself"),
        ("w", b"PageSequence.layout: "),
        ("\x1b[D", b"GlyphTable.lookup: "),
        ("\x7f", b"last 1m"),
    )


def seen_at(place: Place, asked: top.Asked) -> Group:
    return top._framed(asked.look(place), place, asked)


@pytest.mark.parametrize("lines", [15, 24, 40])
async def test_a_short_terminal_has_fewer_rows(lines: int) -> None:
    hub = seen()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        asked = top.Asked(url, None, None, "", lines)
        for place in (Place(), Place(way=(Row("", "app.Worker.run"),)), Place(way=(Row("", "no.such"),))):
            for width in (60, 100, 200):
                out = io.StringIO()
                framed = await trio.to_thread.run_sync(seen_at, place, asked)
                Console(file=out, width=width).print(framed)
                shown = out.getvalue().splitlines()
                assert len(shown) <= max(lines, FRAME + LEAST)
                assert all(cell_len(line) <= width for line in shown)
                assert "q quit" in " ".join(shown[-2:])
        nursery.cancel_scope.cancel()


def _in(wanted: bytes, screen: bytes) -> bool:
    return wanted in screen


def _drain(terminal: int) -> None:
    while read(terminal):
        pass

"""push.v1 to a receiver that reads it by another description of the messages, and to servers that are none."""

from __future__ import annotations

import gzip
import socket
import subprocess
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamer.config import PushConfig, Settings
from streamer.exports.protos import messages
from streamer.hub.hub import Hub
from streamer.views.pyroscope import push
from streamer.views.pyroscope.backlog import Backlog, Waiting
from streamer.views.pyroscope.push import PATH, Pusher
from tests.hub.reports import HOST, PID, Time
from tests.hub.scene import scene
from tests.views.made import BEFORE, NOW, tree
from tests.views.test_export import go_pprof

# as in the definition of the API, with numbers alone to go by
READER = messages(
    "reader",
    {
        "Request": {"a": (1, "Series[]")},
        "Series": {"a": (1, "Pair[]"), "b": (2, "Sample[]")},
        "Sample": {"a": (1, "bytes"), "b": (2, "string")},
        "Pair": {"a": (1, "string"), "b": (2, "string")},
        "Profile": {"samples": (2, "Value[]"), "strings": (6, "string[]"), "time": (9, "int64"), "long": (10, "int64")},
        "Value": {"values": (2, "int64[]")},
    },
)


def with_trees(panes: int) -> tuple[Hub, Time]:
    hub, clock = scene(fidelity="flow", seconds=panes)
    for pane in range(panes):
        hub.trees.feed(tree(pane, NOW if pane % 2 else BEFORE))
    return hub, clock


@asynccontextmanager
async def receiver(
    status: int | deque[int] = 200, seconds: float = 60
) -> AsyncIterator[tuple[str, trio.MemoryReceiveChannel[tuple[Any, bytes]]]]:
    """Its URL; headers and body of what comes to it. `status`: of all answers, or of the first ones, then 200."""
    told_in, told = trio.open_memory_channel[tuple[Any, bytes]](100)

    async def take(request: Request) -> Response:
        await told_in.send((request.headers, await request.body()))
        code = status if isinstance(status, int) else status.popleft() if status else 200
        return Response(status_code=code, media_type="application/proto")

    config = Config()
    config.bind, config.accesslog = ["127.0.0.1:0"], None
    app = Starlette(routes=[Route(PATH, take, methods=["POST"])])
    with trio.fail_after(seconds):
        async with trio.open_nursery() as nursery:
            binds = await nursery.start(partial(hypercorn.trio.serve, app, config))  # type: ignore[arg-type]
            yield binds[0], told
            nursery.cancel_scope.cancel()


def total(raw: bytes) -> int:
    """Instructions of all samples."""
    return sum(sample.values[0] for sample in READER["Profile"].FromString(gzip.decompress(raw)).samples)


async def test_new_panes_of_a_process_are_pushed_with_their_labels_and_time(tmp_path: Path) -> None:
    hub, clock = with_trees(8)
    token = tmp_path / "token"
    token.write_text("a-token-of-the-server\n")
    async with receiver() as (url, told):
        pusher = Pusher(hub, PushConfig(url=f"{url}/", seconds=1, token_file=token), clock.ns)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pusher.run)
            headers, body = await told.receive()
            assert headers["content-type"] == "application/proto"
            assert headers["authorization"] == "Bearer a-token-of-the-server"
            (series,) = READER["Request"].FromString(body).a
            labels = {"__name__": "jvm", "host": HOST, "pid": str(PID), "service_name": f"{HOST}/{PID}"}
            assert {pair.a: pair.b for pair in series.a} == labels
            (sample,) = series.b
            assert len(sample.b) == 36
            each = sum(BEFORE.values()), sum(NOW.values())
            assert total(sample.a) == 1000 * (4 * each[0] + 3 * each[1])  # all but the newest pane
            profile = READER["Profile"].FromString(gzip.decompress(sample.a))
            assert profile.long == 7e9
            assert abs(profile.time - (clock.ns() - 8.1e9)) < 1e6  # the first pane's begin

            for pane in (8, 9):
                hub.trees.feed(tree(pane, BEFORE))
            _, body = await told.receive()
            (series,) = READER["Request"].FromString(body).a
            assert total(series.b[0].a) == 1000 * sum(each)  # panes 7 and 8, no pane twice
            nursery.cancel_scope.cancel()
        assert pusher.sent >= 1
        assert pusher.failed == 0


@pytest.mark.peer
def test_the_real_pprof_opens_what_is_pushed(tmp_path: Path) -> None:
    hub, clock = with_trees(3)
    pusher = Pusher(hub, PushConfig(url="http://nowhere"), clock.ns)
    pusher.take()
    (series,) = READER["Request"].FromString(push.message(pusher.new())).a
    file = tmp_path / "a.pb.gz"
    file.write_bytes(series.b[0].a)
    shown = subprocess.run([go_pprof(), "-top", str(file)], capture_output=True, text=True, timeout=60, check=True)
    assert "Duration: 2s" in shown.stdout
    assert "org.apache.fop.pdf.PDFStream.deflate" in shown.stdout


def test_a_pane_is_taken_once_however_often_it_is_looked_and_when_it_is_put_together_with_others() -> None:
    hub, clock = with_trees(1)
    pusher = Pusher(hub, PushConfig(url="http://nowhere"), clock.ns)
    seen = []
    for pane in range(1, 60):
        hub.trees.feed(tree(pane, NOW))
        pusher.take()
        pusher.take()
        if pane % 7 == 0:
            seen += pusher.new()
    seen += pusher.new()
    assert sum(panes.seconds for panes in seen) == 59
    assert sum(int(t.nodes["observed_instructions"].sum()) for p in seen for t in p.trees) == 1000 * (
        sum(BEFORE.values()) + 58 * sum(NOW.values())
    )
    assert pusher.new() == []


def test_a_process_that_is_forgotten_leaves_nothing() -> None:
    hub, clock = with_trees(3)
    pusher = Pusher(hub, PushConfig(url="http://nowhere"), clock.ns)
    pusher.take()
    hub.processes.clear()
    pusher.take()
    assert pusher.new() == []
    assert not pusher._done


@pytest.mark.parametrize("status", [302, 400, 401])
async def test_what_is_refused_is_counted_and_dropped(status: int) -> None:
    hub, clock = with_trees(4)
    async with receiver(status) as (url, told):
        pusher = Pusher(hub, PushConfig(url=url, seconds=1), clock.ns)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pusher.run)
            await told.receive()
            while pusher.failed < 1:  # noqa: ASYNC110 (its answer is on the way)
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert (pusher.sent, pusher.failed, pusher.retried) == (0, 1, 0)
        assert pusher.new() == []


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_cannot_now_gets_it_later_and_all_of_it_in_order(status: int) -> None:
    hub, clock = with_trees(4)
    statuses = deque([status, status])
    async with receiver(statuses) as (url, told):
        pusher = Pusher(hub, PushConfig(url=url, seconds=1), clock.ns)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pusher.run)
            sent = (await told.receive())[1]
            hub.trees.feed(tree(4, NOW))
            hub.trees.feed(tree(5, NOW))
            assert (await told.receive())[1] == sent
            bodies = [(await told.receive())[1]]
            bodies.append((await told.receive())[1])
            while pusher.sent < 2:  # noqa: ASYNC110 (its answer is on the way)
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert bodies[0] == sent
        panes = [total(series.b[0].a) for body in bodies for series in READER["Request"].FromString(body).a]
        before, now = 1000 * sum(BEFORE.values()), 1000 * sum(NOW.values())
        assert panes == [2 * before + now, 2 * now]  # panes 0 to 2, then 3 and 4
        assert (pusher.sent, pusher.failed, pusher.retried) == (2, 0, 2)


def first(backlog: Backlog) -> Waiting | None:
    return backlog.first


def test_what_waits_is_bounded_and_the_pauses_grow() -> None:
    backlog = Backlog(10, most_bytes=1000)
    assert first(backlog) is None
    assert [backlog.add(Waiting(bytes(300), profiles)) for profiles in (1, 2, 4, 8)] == [0, 0, 0, 1]
    assert first(backlog) == Waiting(bytes(300), 2)
    assert [backlog.pause() for _ in range(6)] == [10, 20, 40, 80, 120, 120]
    backlog.taken()
    assert backlog.pause() == 10
    backlog.refused()
    assert backlog.pause() == 20
    assert backlog.add(Waiting(bytes(5000), 16)) == 8
    assert first(backlog) == Waiting(bytes(5000), 16)  # alone, as large as it is
    backlog.taken()
    assert first(backlog) is None
    assert Backlog(300).pause() == 300


async def test_a_server_that_never_answers_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "SECONDS", 0.2)
    hub, clock = with_trees(4)
    with socket.create_server(("127.0.0.1", 0)) as silent, trio.fail_after(60):
        pusher = Pusher(hub, PushConfig(url=f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=1), clock.ns)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pusher.run)
            pane, asked = 4, 0
            while pusher.retried < 2:
                hub.trees.feed(tree(pane, NOW))
                hub.hot()
                pane, asked = pane + 1, asked + 1
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        assert asked > 20  # the hub went on meanwhile
        assert pusher.sent == 0


def test_nothing_is_pushed_unless_it_is_told_where() -> None:
    assert Settings().push.url is None
    for wrong in ("ftp://a", "http://", "http://user:secret@a", "a:4040", "http://a/?q=1", "file:///etc/passwd"):
        with pytest.raises(ValidationError, match="must be http"):
            PushConfig(url=wrong)

"""/api/flame, /api/cct and /api/live: frames as they are sent, differences, what is refused, and events."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from stages.cct.tree import Tree
from streamer.config import WebConfig
from streamer.hub.hub import Hub
from streamer.trees.file import Saved, packed, unpacked
from streamer.views import live, trees, web
from streamer.views.trees import MOST_POSTED
from tests.hub.reports import HOST, PID
from tests.hub.scene import scene
from tests.views.made import BEFORE, NOW, SUSPECT, large, tree

FILE = {"content-type": "application/octet-stream"}


def seen() -> Hub:
    """A hub with trees of a minute, the last ten seconds after a shift."""
    hub, _ = scene(fidelity="flow")
    for pane in range(60):
        hub.trees.feed(tree(pane, BEFORE) if pane < 50 else tree(pane, NOW, SUSPECT))
    hub.trees.feed(tree(59, {"app.Worker.run": 50}, tid=8))
    return hub


def client(hub: Hub) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(web.app(hub, WebConfig())), base_url="http://localhost")


def shares(answer: dict[str, Any], column: str = "total") -> dict[str, int]:
    """By name, of the frames of that name together."""
    out: dict[str, int] = {}
    for name, value in zip(answer["name"], answer[column], strict=True):
        out[answer["names"][name]] = out.get(answer["names"][name], 0) + value
    return out


async def test_a_file_that_does_not_come_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    """So are those that wait for it; nothing of them is read before."""
    said: list[int] = []
    asked: list[int] = []
    app = web.app(seen(), WebConfig())

    async def post(client_: int) -> None:
        async def receive() -> dict[str, Any]:
            asked.append(client_)
            await trio.sleep(trees.POST_SECONDS / 4)
            return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

        async def send(message: MutableMapping[str, Any]) -> None:
            said.append(message.get("status", 0))

        scope = {
            "type": "http", "method": "POST", "path": "/api/flame", "query_string": b"", "http_version": "1.1",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/octet-stream")],
        }  # fmt: skip
        await app(scope, receive, send)

    async with trio.open_nursery() as nursery:
        for client_ in range(6):
            nursery.start_soon(post, client_)
        await trio.sleep(trees.POST_SECONDS / 2)
        assert len(set(asked)) == trees.AT_ONCE
    assert [status for status in said if status] == [400] * 6
    assert 3 * trees.POST_SECONDS <= trio.current_time() < 4 * trees.POST_SECONDS


async def test_a_client_that_goes_in_the_middle_of_its_file_is_no_fault_of_ours() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        assert message.get("status", 400) == 400

    app = web.app(seen(), WebConfig())
    for path, kind in (
        ("/api/flame", b"application/octet-stream"),
        ("/querier.v1.QuerierService/Series", b"application/json"),
    ):
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "http_version": "1.1",
            "headers": [(b"host", b"localhost"), (b"content-type", kind)],
        }  # fmt: skip
        await app(scope, receive, send)


async def test_frames_of_a_window() -> None:
    async with client(seen()) as http:
        answer = (await http.get("/api/flame")).json()
        assert (answer["weight"], answer["unit"]) == ("instructions", 1)
        whole = 1000 * (10 * (sum(NOW.values()) + 90) + 50)
        assert answer["total"][0] == whole
        assert (answer["root"], answer["hidden"]) == ("all threads", 0)
        assert answer["levels"] == [0, 1, 4, 8, 11, 12, 13]
        # a frame's children are side by side, in the order of their names
        for up in range(len(answer["parent"])):
            below = [k for k, p in enumerate(answer["parent"]) if p == up]
            assert below == list(range(below[0], below[-1] + 1)) if below else True
            names = [answer["names"][answer["name"][k]] for k in below]
            assert names == sorted(names)
        glyph = "org.apache.fop.fonts.GlyphTable.lookup"
        assert shares(answer)[glyph] == 10_000 * (220 + 90 + 160 + 70)
        assert shares(answer, "suspect")[glyph] == 10_000 * 90
        assert shares(answer, "own")[glyph] == 10_000 * (220 + 90)
        assert shares(answer, "calls")[glyph] == 1000 * (220 + 90)
        assert answer["threads"] == [[7, whole - 50_000, ""], [8, 50_000, ""]]
        sure = (await http.get("/api/flame?observed=1")).json()
        assert shares(sure)[glyph] == 10_000 * (220 + 160 + 70)
        assert set(sure["suspect"]) == {0}
        other = (await http.get("/api/flame?thread=8&weight=time")).json()
        assert (other["names"], other["root"], other["unit"]) == (["[thread]", "app.Worker.run"], "thread 8", 2e9)
        assert other["total"] == [50_000, 50_000]


async def test_narrow_frames_are_put_together() -> None:
    hub = seen()
    hub.trees.feed(large(30_000, 59))
    async with client(hub) as http:
        answer = (await http.get("/api/flame?min_share=0.01")).json()
        least = 0.01 * answer["total"][0]
        names = [answer["names"][k] for k in answer["name"]]
        assert all(n >= least for n, name in zip(answer["total"], names, strict=True) if name != "[other]")
        assert answer["hidden"] > 10_000
        few = (await http.get("/api/flame?most=100")).json()
        assert 90 <= sum(few["names"][k] != "[other]" for k in few["name"]) <= 110
        assert few["total"][0] == answer["total"][0]
        cut = unpacked((await http.get("/api/cct?min_share=0.01")).content)
        assert len(cut.tree.nodes) < 6000
        assert cut.tree.total("observed_instructions") + cut.tree.total("suspect_instructions") == answer["total"][0]


async def test_the_difference_of_two_windows() -> None:
    async with client(seen()) as http:
        answer = (await http.get("/api/flame?window=10s&base=1m")).json()
    deflate = "org.apache.fop.pdf.PDFStream.deflate"
    assert shares(answer)[deflate] == 10_000 * (380 + 150)
    assert shares(answer, "base")[deflate] == 10_000 * (380 + 150) + 50_000 * 20
    assert answer["base"][0] == 1000 * (50 * sum(BEFORE.values()) + 10 * (sum(NOW.values()) + 90) + 50)


async def test_the_difference_to_the_minute_before() -> None:
    async with client(seen()) as http:
        answer = (await http.get("/api/flame?base=before")).json()
        assert answer["total"][0] == 1000 * (10 * (sum(NOW.values()) + 90) + 50)
        assert answer["base"][0] == 50_000 * sum(BEFORE.values())
        young, _ = scene(fidelity="flow")
        young.trees.feed(tree(1, NOW))
    async with client(young) as http:
        assert set((await http.get("/api/flame?base=before")).json()["base"]) == {0}


async def test_the_difference_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    report = tree(0, {"gone.Away.run": 10})
    file = packed(Saved(Tree(report.nodes, report.names), 3e9))
    async with client(seen()) as http:
        answer = (await http.post("/api/flame?weight=time", content=file, headers=FILE)).json()
        assert shares(answer, "base")["gone.Away.run"] == 10_000
        assert shares(answer)["gone.Away.run"] == 0
        assert (answer["unit"], answer["base_unit"]) == (2e9, 3e9)
        foreign = packed(Saved(Tree(report.nodes, ("main thread", *report.names[1:])), 2e9))
        answer = (await http.post("/api/flame", content=foreign, headers=FILE)).json()
        assert (answer["levels"][:2], answer["base"][0]) == ([0, 1], 10_000)
        damaged = await http.post("/api/flame", content=file[:-9], headers=FILE)
        assert (damaged.status_code, damaged.json()) == (400, {"error": "damaged: the checksum is wrong"})
        large_ = await http.post("/api/flame", content=b"x" * (MOST_POSTED + 1), headers=FILE)
        assert (large_.status_code, large_.json()) == (400, {"error": "a file to compare with has at most 32 MiB"})
        monkeypatch.setattr(trees, "MOST_PLAIN", 100)
        bomb = await http.post("/api/flame", content=file, headers=FILE)
        assert (bomb.status_code, bomb.json()) == (400, {"error": "more than 100 bytes when unpacked"})
        form = await http.post("/api/flame", content=file, headers={"content-type": "text/plain"})
        assert form.status_code == 400  # a type that a page from elsewhere may send unasked


@pytest.mark.parametrize(
    "query",
    ["window=7s", "base=7s", "weight=hits", "observed=2", "thread=x", "min_share=2", "min_share=nan", "min_share=a",
     "most=-1", "pid=8"],
)  # fmt: skip
async def test_wrong_questions_get_a_clear_answer(query: str) -> None:
    async with client(seen()) as http:
        answer = await http.get(f"/api/flame?{query}")
        assert answer.status_code == 400
        assert answer.json()["error"]
        assert (await http.get("/api/cct?min_share=2")).status_code == 400


async def test_without_trees_it_says_so() -> None:
    async with client(scene()[0]) as http:
        assert "--fidelity flow" in (await http.get("/api/flame")).json()["why"]
    hub, _ = scene(fidelity="flow")
    async with client(hub) as http:
        answer = (await http.get("/api/flame")).json()
        assert "--no-contexts" in answer["why"]
        assert (answer["total"], answer["levels"]) == ([], [0])
        both = (await http.get("/api/flame?base=5m")).json()
        assert both["total"] == []


async def test_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SECONDS", 0.05)
    monkeypatch.setattr(live, "MOST_READERS", 1)
    hub = seen()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        async with httpx.AsyncClient(base_url=url) as http:
            with trio.fail_after(60):
                async with http.stream("GET", f"/api/live?window=1m&pid={PID}&host={HOST}") as stream:
                    assert stream.headers["content-type"].startswith("text/event-stream")
                    lines = stream.aiter_lines()
                    assert await anext(lines) == "event: hot"
                    view = json.loads((await anext(lines)).removeprefix("data: "))
                    assert (view["window"], view["methods"][0]["method"]) == (
                        "1m",
                        "org.apache.fop.fonts.GlyphTable.lookup",
                    )
                    told = [line async for line in _until(lines, "trees")]
                    assert told[-1] == f"data: {hub.trees.fed}"
                    assert (await http.get("/api/live")).status_code == 503
                    hub.trees.feed(tree(60, NOW))
                    told = [line async for line in _until(lines, "trees")]
                    assert told[-1] == f"data: {hub.trees.fed}"
                    assert (await http.get("/api/live?window=7s")).json()["error"].startswith("no window '7s'")
                while (await http.get("/healthz")).status_code != 200 or await _refused(http):
                    pass  # the closed one has left when another is let in
        nursery.cancel_scope.cancel()


async def _until(lines: Any, name: str) -> Any:
    """The lines of the next event of that name, and those before."""
    async for line in lines:
        yield line
        if line == f"event: {name}":
            yield await anext(lines)
            return


async def _refused(http: httpx.AsyncClient) -> bool:
    async with http.stream("GET", "/api/live") as stream:
        return stream.status_code == 503

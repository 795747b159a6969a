from __future__ import annotations

import re
import socket
from pathlib import Path

import httpx
import pytest
import trio

from streamer.config import WebConfig, WindowConfig
from streamer.hub.hub import Hub
from streamer.views import web
from streamer.views.listener import WebError, listen
from tests.browser import browser
from tests.hub.reports import Time, report
from tests.hub.scene import scene


def client(hub: Hub) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(web.app(hub, WebConfig())), base_url="http://localhost")


async def test_metrics_in_both_formats() -> None:
    hub, _ = scene()
    async with client(hub) as http:
        text = await http.get("/metrics")
        assert text.headers["content-type"].startswith("text/plain")
        assert 'streamer_method_share_ratio{host="h",method="java.util.HashMap.getNode"' in text.text
        openmetrics = await http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
        assert openmetrics.text.endswith("# EOF\n")
        strange = await http.get("/metrics", headers={"accept": "application/openmetrics-text;version=a;escaping=b"})
        assert strange.text.splitlines()[0] == text.text.splitlines()[0]


async def test_health_and_readiness() -> None:
    clock = Time()
    hub = Hub(WindowConfig(pane_seconds=1), now=clock)
    async with client(hub) as http:
        assert (await http.get("/healthz")).status_code == 200
        clock.seconds += 12
        ill = await http.get("/healthz")
        assert (ill.status_code, ill.text) == (503, "the hub has not closed panes for 12 s: it is stuck or starved\n")
        hub.poll()
        assert (await http.get("/healthz")).text == "ok\n"
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "no pane has closed yet\n")
        hub.feed(report(1, {"A.a": 1}))
        assert (await http.get("/readyz")).status_code == 200


async def test_hot() -> None:
    hub, _ = scene()
    async with client(hub) as http:
        view = (await http.get("/api/hot", params={"window": "10s", "top": 2})).json()
        assert [m["method"] for m in view["methods"]] == [
            "org.apache.fop.pdf.PDFStream.deflate",
            "java.util.HashMap.getNode",
        ]
        assert view["methods"][0]["moved"] == "up"
        assert view["coverage"]["lost"] == {"code_missing": 900, "desync": 12000}
        assert (await http.get("/api/hot", params={"pid": 7, "host": "h"})).json()["total"] == view["total"]


@pytest.mark.parametrize(
    "query", ["window=7s", "top=x", "top=-1", "top=9999999999", "weight=time", "pid=8", "pid=7&host=x", "pid=%EF%BC%97"]
)
async def test_wrong_questions_get_a_clear_answer(query: str) -> None:
    hub, _ = scene()
    async with client(hub) as http:
        answer = await http.get(f"/api/hot?{query}")
        assert answer.status_code == 400
        assert answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "why"),
    [
        ("GET", "/nothing", 404, "nothing of that name"), ("GET", "/api/nothing", 404, "nothing of that name"),
        ("GET", "/querier.v1.QuerierService/Series", 405, "not for GET, but for POST"),
        *((method, path, 405, f"not for {method}, but for ") for method in ("POST", "PUT", "DELETE")
          for path in ("/", "/metrics", "/api/hot", "/api/timeline", "/api/live")),
    ],
)  # fmt: skip
async def test_what_is_not_there_or_cannot_be_done_is_said(method: str, path: str, status: int, why: str) -> None:
    hub, _ = scene()
    async with client(hub) as http:
        answer = await http.request(method, path)
    assert answer.status_code == status
    told = answer.json()["error"] if path.startswith("/api/") else answer.text
    assert why in told


async def test_the_page_needs_nothing_from_elsewhere() -> None:
    hub, _ = scene()
    async with client(hub) as http:
        for path in ("/", "/main.js", "/page.css", "/flame/panel.js", "/flame/flame.css"):
            answer = await http.get(path)
            assert answer.status_code == 200
            assert "http" not in answer.text
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert (await http.get("/api/statistics")).json()["processes"]["h/7"]["panes"] == 80
        assert (await http.get("/../config.py")).status_code == 404


async def test_serve_starts_with_its_url_and_stops_at_once() -> None:
    hub, _ = scene()
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(web.serve, hub, WebConfig(port=0))
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
            async with httpx.AsyncClient() as http:
                assert (await http.get(f"{url}/healthz")).text == "ok\n"
                nursery.cancel_scope.cancel()


def test_a_port_in_use_and_an_unknown_host_are_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WebError, match=f"port {port} on 127.0.0.1 is in use: .*0: any free one"):
            listen(WebConfig(port=port))
    with pytest.raises(WebError, match=r"cannot serve on no\.such\.invalid:9464: "):
        listen(WebConfig(host="no.such.invalid", anyone=True))
    with pytest.raises(WebError, match=r"cannot serve on 192\.0\.2\.1:9464: "):
        listen(WebConfig(host="192.0.2.1", anyone=True))


def test_ipv6_loopback() -> None:
    try:
        listener = listen(WebConfig(host="::1", port=0))
    except WebError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with listener:
        assert listener.family == socket.AF_INET6


@pytest.mark.peer
@pytest.mark.slow
async def test_a_browser_shows_the_hot_methods(tmp_path: Path) -> None:
    hub, _ = scene(fidelity="flow", shed=400_000)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        async with browser(tmp_path) as page:
            await page.goto(url)
            await page.until("document.querySelectorAll('#methods tr').length > 5")
            dom = await page.value("document.documentElement.outerHTML")
            assert not page.thrown
        nursery.cancel_scope.cancel()
    dom = dom.replace("<wbr>", "")
    rows = re.findall(r'<td class="method">(.*?)</td><td class="share">.*?</span></span>(.*?)</td>', dom, re.DOTALL)
    assert rows[0] == ("org.apache.fop.pdf.PDFStream.deflate", "54.9 %")
    assert ("&lt;script&gt;alert(1)&lt;/script&gt;[bold]?.run", "4.4 %") in rows
    assert rows[-1][0] == "other"
    seen = (
        "99.8 % of 10.0 MB of trace decoded, 40.0 % of that by its addresses only (shed); lost: 12.0 kB desync, 900 B"
    )
    assert seen in dom
    assert dom.count('class="decoded shed"') == 1
    assert ">▲ +54.9<" in dom
    assert 'class="good">live, fidelity flow' in dom

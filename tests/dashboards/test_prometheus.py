"""A real Prometheus scrapes the hub, and its rules fire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from streamer.config import WebConfig
from streamer.hub.hub import Hub
from streamer.views import web
from tests.dashboards.servers import answer, hasty_rules, prometheus, until
from tests.dashboards.test_dashboards import concrete, expressions_of_dashboards, names_in
from tests.hub.reports import Time
from tests.hub.scene import NOW, called, scene, second
from tests.views.made import NOW as CONTEXTS
from tests.views.made import tree

WITH_A_BUDGET = {"streamer_method_share_halfwidth_ratio"}


def scraping(target: str, rules: Path) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules.resolve())],
        "scrape_configs": [{"job_name": "streamer", "static_configs": [{"targets": [target]}]}],
    }


async def go_on(hub: Hub, clock: Time) -> None:
    """The program runs on, with a loss in each pane; slowly, for the reference takes the new mixture in, and the alert
    waits for some seconds of Prometheus's time."""
    pane = 80
    while True:
        clock.seconds += 1
        second(hub, pane, NOW, {"desync": 1000}, "instructions")
        hub.trees.feed(tree(pane, CONTEXTS))
        called(hub, pane)
        pane += 1
        await trio.sleep(3)


@pytest.mark.peer
@pytest.mark.slow
async def test_prometheus_scrapes_records_and_alerts(tmp_path: Path) -> None:
    hub, clock = scene(fidelity="flow")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on, hub, clock)
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        config = scraping(url.replace("http://127.0.0.1", "localhost"), hasty_rules(tmp_path))
        with prometheus(tmp_path, config) as peer, trio.fail_after(250):
            async with httpx.AsyncClient(base_url=peer) as http:
                hottest = await until(http, 'topk(1, streamer_method_share_ratio{window="10s"})')
                assert hottest[0]["metric"]["method"] == "org.apache.fop.pdf.PDFStream.deflate"
                recorded = await until(http, 'topk(1, method:streamer_method_share:ratio{window="10s"})')
                assert float(recorded[0]["value"][1]) == pytest.approx(500 / 910)
                for alert in ("StreamerHotMethodShift", "StreamerNewHotMethod"):
                    await until(http, f'ALERTS{{alertstate="firing", alertname="{alert}"}}')
                alerts = await answer(http, 'ALERTS{alertstate="firing"}')
                assert {a["metric"]["alertname"] for a in alerts} == {"StreamerHotMethodShift", "StreamerNewHotMethod"}
                told = (await http.get("/api/v1/alerts")).json()["data"]["alerts"]
                (shift,) = (a for a in told if a["labels"]["alertname"] == "StreamerHotMethodShift")
                assert "org.apache.fop.pdf.PDFStream.deflate 5" in shift["annotations"]["description"]
                assert "org.apache.fop.fonts.GlyphTable.lookup -2" in shift["annotations"]["description"]
                assert "#process=7%40h&base=before" in shift["annotations"]["page"]
                assert (await answer(http, "up"))[0]["value"][1] == "1"
                for _, expression in expressions_of_dashboards():
                    expression = concrete(expression)
                    if names_in(expression) & WITH_A_BUDGET:
                        assert await answer(http, expression) == []
                    else:
                        await until(http, expression)
        nursery.cancel_scope.cancel()

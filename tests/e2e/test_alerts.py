"""A program changes its hot method; a Prometheus and an Alertmanager with the shipped files tell of it, by name.

The files are as shipped but for addresses and times. With SHIPPED_TIMES=1 (make nightly) the times are the shipped
ones too: the shift alert then holds for five minutes.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import hypercorn.trio
import pytest
import trio
import yaml
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.dashboards.servers import RULES, alertmanager, answer, hasty_rules, prometheus, until
from tests.dashboards.test_dashboards import concrete, expressions_of_dashboards
from tests.deploy.test_alertmanager import to_webhook
from tests.e2e.harness import Streamer

SHIPPED_TIMES = os.environ.get("SHIPPED_TIMES") == "1"
SECONDS = 1800 if SHIPPED_TIMES else 600
"""That the whole may take, on a machine that has much else to do."""
pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.peer, pytest.mark.timeout(SECONDS + 120)]

SHIFT = "StreamerHotMethodShift"
# Serves at a steady rate, by one method until SECOND is there, then by another, until END is there.
HALVES = """
import java.nio.file.Files;
import java.nio.file.Path;

public final class Halves {
    static long sum;

    public static void main(String[] args) throws Exception {
        Path second = Path.of(args[0]), end = Path.of(args[1]);
        while (!Files.exists(end)) {
            sum += Files.exists(second) ? after(30_000) : before(30_000);
            Thread.sleep(10);
        }
        System.out.println("sum " + (sum != 0));
    }

    static long before(int rounds) {
        long x = rounds;
        for (int i = 0; i < rounds; i++) x = 31 * x + (x >>> 7) + i;
        return x;
    }

    static long after(int rounds) {
        long x = rounds;
        for (int i = 0; i < rounds; i++) x = (x ^ (x >>> 11)) * 5 - i;
        return x;
    }
}
"""


@pytest.fixture(scope="module")
def halves(kernels: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("javac", "java", "qemu-x86_64"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    out = tmp_path_factory.mktemp("halves")
    (out / "Halves.java").write_text(HALVES)
    subprocess.run(["javac", "--release", "17", "-d", out, out / "Halves.java"], check=True, timeout=120)
    return out


def scraping(file: Path, streamer: str, manager: str, token: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(Path("docs/deploy/prometheus/prometheus.yml").read_text())
    assert [Path(name).name for name in config["rule_files"]] == [file.name]
    config["rule_files"] = [str(file.resolve())]
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [manager]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [streamer]}]
    config["scrape_configs"][0]["authorization"]["credentials_file"] = str(token)
    if not SHIPPED_TIMES:
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return config


async def webhook(
    told: trio.MemorySendChannel[dict[str, Any]], task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Passes on what an Alertmanager posts, with the receiver's name."""

    async def take(request: Request) -> Response:
        await told.send(await request.json() | {"path": request.path_params["receiver"]})
        return Response()

    config = Config()
    config.bind, config.accesslog = ["127.0.0.1:0"], None
    app = Starlette(routes=[Route("/{receiver}", take, methods=["POST"])])
    async with trio.open_nursery() as nursery:
        binds = await nursery.start(partial(hypercorn.trio.serve, app, config))  # type: ignore[arg-type]
        task_status.started(binds[0])


async def serving(streamer: Streamer) -> str:
    """Its address, once it has one."""
    while (url := re.search(r"serving http://(\S+?)/? \(page\)", streamer.err)) is None:
        assert streamer.process.poll() is None, streamer.err
        await trio.sleep(0.1)
    return url[1]


async def first(told: trio.MemoryReceiveChannel[dict[str, Any]], status: str) -> tuple[str, dict[str, Any]]:
    """The receiver and the alert, of the first notification of the shift with that status."""
    async for group in told:
        for alert in group["alerts"]:
            if (alert["labels"]["alertname"], alert["status"]) == (SHIFT, status):
                return group["path"], alert
    raise AssertionError("no more notifications")


async def test_a_shift_of_the_hot_method_is_told_by_name_and_is_over_when_the_baseline_has_moved(
    start: Callable[..., Streamer], root: Path, halves: Path, tmp_path: Path
) -> None:
    windows = {"STREAMER_WINDOW__PANE_SECONDS": "0.5", "STREAMER_WINDOW__WINDOWS_SECONDS": "[2, 8, 60]"}
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(halves), "Halves", "second", "end"]
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(secrets.token_urlsafe(32))
    streamer = start("run", "--emulate", "--summary", "summary.json", "--port", "0", "--token-file", str(token), "--",
                     *java, env={} if SHIPPED_TIMES else windows)  # fmt: skip
    told_in, told = trio.open_memory_channel[dict[str, Any]](1000)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            hook = await nursery.start(webhook, told_in)
            address = await serving(streamer)
            routes = to_webhook(hook, None if SHIPPED_TIMES else "1s")
            with (
                alertmanager(tmp_path / "alertmanager", routes) as manager,
                prometheus(
                    tmp_path / "prometheus",
                    scraping(
                        RULES if SHIPPED_TIMES else hasty_rules(tmp_path),
                        address,
                        manager.removeprefix("http://"),
                        token,
                    ),
                ) as url,
            ):
                async with httpx.AsyncClient(base_url=url) as http:
                    # most of what the detector remembers is the steady first half, not the JVM's start
                    await until(http, "streamer_shift_distance_ratio < 0.02 and "
                                      "quantile_over_time(0.6, streamer_shift_distance_ratio[10m]) < 0.02 "
                                      f'unless on () ALERTS{{alertname="{SHIFT}"}}')  # fmt: skip
                    (hot,) = await answer(http, 'topk(1, streamer_method_share_ratio{weight="instructions"})')
                    assert hot["metric"]["method"] == "Halves.before"
                    (root / "second").touch()

                    receiver, alert = await first(told, "firing")
                    assert receiver == "news"
                    labels, texts = alert["labels"], alert["annotations"]
                    assert labels["severity"] == "info"
                    movers = re.search(r"Halves\.after (\S+)%; .*Halves\.before -(\S+)%;", texts["description"])
                    assert movers is not None, texts
                    assert min(map(float, movers.groups())) > 10
                    page = f"http://{address}/#process={labels['pid']}%40{labels['host']}&base=before"
                    assert texts["page"] == page
                    assert Path(texts["runbook"]).name == f"{SHIFT}.md"

                    window = "10s" if SHIPPED_TIMES else "2s"
                    every = [concrete(expression, window=window) for _, expression in expressions_of_dashboards()]
                    empty = [expression for expression in every if not await answer(http, expression)]
                    assert len(empty) < len(every) / 4, empty  # of budgets, and of causes of loss that there were not

                    receiver, over = await first(told, "resolved")
                    assert receiver == "news"
                    assert over["labels"] == labels
                    await until(http, "streamer_shift_distance_ratio < 0.1")  # the second half is the baseline now
            nursery.cancel_scope.cancel()
        (root / "end").touch()
        (await trio.to_thread.run_sync(streamer.wait)).check_books()

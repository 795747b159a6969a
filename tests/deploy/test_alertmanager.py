"""The example of routes against amtool and a real Alertmanager."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import yaml

from tests.dashboards.servers import alertmanager, program
from tests.dashboards.test_dashboards import rules

FOLDER = Path("docs/deploy/alertmanager")
CONFIG = FOLDER / "alertmanager.yml"
pytestmark = [pytest.mark.peer]


def amtool(*arguments: str) -> str:
    done = subprocess.run(
        [program("amtool", "prometheus-alertmanager"), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def to_webhook(url: str, pause: str | None) -> dict[str, Any]:
    """The example's routes and inhibitions; each receiver is a path below `url`. `pause`: before a group is told, and
    told again, instead of the example's."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    del config["global"], config["templates"]
    if pause is not None:
        config["route"]["group_interval"] = pause
        for route in (config["route"], *config["route"]["routes"]):
            route["group_wait"] = pause
    config["receivers"] = [
        {"name": name, "webhook_configs": [{"url": f"{url}/{name}", "send_resolved": True}]}
        for name in (receiver["name"] for receiver in config["receivers"])
    ]
    return config


def test_amtool_takes_the_configuration_with_its_template(tmp_path: Path) -> None:
    config = yaml.safe_load(CONFIG.read_text())
    assert config["templates"] == ["/etc/alertmanager/streamer.tmpl"]  # as it is mounted
    config["templates"] = [str((FOLDER / "streamer.tmpl").resolve())]
    here = tmp_path / "alertmanager.yml"
    here.write_text(yaml.safe_dump(config))
    assert "1 templates" in amtool("check-config", str(here))


RECEIVERS = {"critical": "pager", "warning": "desk", "info": "news"}


@pytest.mark.parametrize("rule", [rule for rule in rules() if "alert" in rule], ids=lambda rule: str(rule["alert"]))
def test_each_alert_goes_where_its_severity_says(rule: dict[str, Any]) -> None:
    severity = rule["labels"]["severity"]
    told = amtool("config", "routes", "test", f"--config.file={CONFIG}", f"severity={severity}",
                  f"alertname={rule['alert']}")  # fmt: skip
    assert told.split() == [RECEIVERS[severity]]


def test_the_text_leads_to_the_page_and_to_the_runbook(tmp_path: Path) -> None:
    alert = {
        "status": "firing",
        "labels": {"alertname": "StreamerHotMethodShift"},
        "annotations": {"summary": "all has moved", "description": "A.a 50%;",
                        "page": "http://i:1/#process=1%40h&base=before",
                        "runbook": "docs/runbooks/StreamerHotMethodShift.md"},
    }  # fmt: skip
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"status": "firing", "commonLabels": alert["labels"], "alerts": [alert]}))

    def rendered(name: str) -> str:
        return amtool("template", "render", f"--template.glob={FOLDER}/*.tmpl", f"--template.data={data}",
                      f'--template.text={{{{ template "{name}" . }}}}')  # fmt: skip

    assert rendered("streamer.title").strip() == "StreamerHotMethodShift (1)"
    text = rendered("streamer.text")
    assert text.split("\n")[:3] == ["all has moved", "A.a 50%;", "page: http://i:1/#process=1%40h&base=before"]
    runbook = re.search(r"runbook: https://\S+?/(docs/runbooks/\S+)", text)
    assert runbook is not None
    assert Path(runbook[1]).is_file()


INHIBITED = [
    # by, of instance a, on a process of its own; instance b is another streamer
    ("StreamerDown", "critical", "StreamerLosesTrace", "warning"),
    ("StreamerDown", "critical", "StreamerComponentDown", "critical"),
    ("StreamerComponentDown", "critical", "StreamerLags", "warning"),
    ("StreamerBackingOff", "critical", "StreamerHotMethodShift", "info"),
    ("StreamerLosesTrace", "warning", "StreamerNewHotMethod", "info"),
]


@pytest.mark.parametrize(("cause", "weight", "effect", "light"), INHIBITED)
async def test_a_cause_inhibits_what_it_explains_of_its_own_streamer(
    tmp_path: Path, cause: str, weight: str, effect: str, light: str
) -> None:
    process = {"host": "h", "pid": "1"}

    def alert(name: str, severity: str, instance: str) -> dict[str, Any]:
        return {"labels": {"alertname": name, "severity": severity, "instance": instance, **process}}

    nowhere = to_webhook("http://127.0.0.1:9", "1h")
    with alertmanager(tmp_path / "alertmanager", nowhere) as url, trio.fail_after(60):
        async with httpx.AsyncClient(base_url=url) as http:
            sent = [alert(cause, weight, "a"), alert(effect, light, "a"), alert(effect, light, "b")]
            while True:
                try:
                    assert (await http.post("/api/v2/alerts", json=sent)).status_code == 200
                    break
                except httpx.TransportError:  # still starting
                    await trio.sleep(0.05)
            while True:
                told = (await http.get("/api/v2/alerts")).json()
                states = {(a["labels"]["alertname"], a["labels"]["instance"]): a["status"]["state"] for a in told}
                if len(states) == 3 and "unprocessed" not in states.values():
                    break
                await trio.sleep(0.05)
    assert states == {(cause, "a"): "active", (effect, "a"): "suppressed", (effect, "b"): "active"}

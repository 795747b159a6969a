"""The rules against a recorded shift: the demo's program switches a feature on after 40 of its 77 seconds."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import streamer.demo
from capture.recording.replay import Replay
from stages.messages import PaneReport
from streamer import config
from streamer.hub.hub import Hub
from streamer.pipeline.topology import MIDDLE, Place, feed_chain, flush_chain, make_chain
from streamer.views.metrics import registry
from tests.dashboards.servers import program
from tests.hub.reports import Time

RECORDING = Path(streamer.demo.__file__).parent / "shop.json"
RULES = Path("dashboards/rules/streamer.rules.yml").resolve()
EACH_SECOND = {"window.pane_seconds": 1}
MOVER = "Shop$Recommender.distance"
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


def reports(directory: Path) -> Iterator[PaneReport]:
    chain = make_chain(MIDDLE["flow"], Place(config.load(fidelity="flow", **EACH_SECOND), directory, 0))
    with Replay(RECORDING) as replay:
        for message in replay.messages():
            yield from (out for out in feed_chain(chain, message) if isinstance(out, PaneReport))
    yield from (out for out in flush_chain(chain) if isinstance(out, PaneReport))


def scraped(directory: Path) -> dict[str, list[str]]:
    """Series, a second each → their values, as promtool reads them: what the rules ask for."""
    time = Time()
    hub = Hub(config.load(**EACH_SECOND).window, fidelity="flow", now=time, wall_ns=time.ns)
    exposed = registry(hub)
    asked = set(re.findall(r"streamer_\w+", RULES.read_text()))
    by_pane: dict[int, list[PaneReport]] = defaultdict(list)
    for report in reports(directory):
        by_pane[report.pane].append(report)
    series: dict[str, list[str]] = {}
    for second, pane in enumerate(range(min(by_pane), max(by_pane) + 1)):
        for report in by_pane[pane]:
            hub.feed(report)
        time.seconds += 1
        for family in exposed.collect():
            for sample in family.samples:
                if sample.name in asked:
                    labels = {"instance": "a", "job": "streamer", **sample.labels}
                    name = f"{sample.name}{{{', '.join(f'{k}={json.dumps(v)}' for k, v in labels.items())}}}"
                    values = series.setdefault(name, [])
                    values += ["_"] * (second - len(values)) + [repr(float(sample.value))]
    return series


@pytest.mark.peer
def test_the_recorded_shift_is_an_alert_that_names_the_mover(tmp_path: Path) -> None:
    series = scraped(tmp_path)

    def expect(seconds: int, query: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
        return {"expr": query, "eval_time": f"{seconds}s", "exp_samples": samples}

    firing = [  # two methods are new: the one that is hot, and its caller
        {"labels": f'{{alertname="{name}"}}', "value": value}
        for name, value in (("StreamerHotMethodShift", 1), ("StreamerNewHotMethod", 2))
    ]
    mover = f'topk(1, method:streamer_shift_mover:change) > bool 0.3 and {{method="{MOVER}"}}'
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1s",
        "group_eval_order": ["streamer-records", "streamer-alerts"],
        "tests": [
            {
                "interval": "1s",
                "input_series": [{"series": name, "values": " ".join(v)} for name, v in series.items()],
                "promql_expr_test": [
                    expect(39, FIRING, []),
                    expect(70, FIRING, firing),
                    expect(70, f"count({mover})", [{"labels": "{}", "value": 1}]),
                ],
            }
        ],
    }
    (tmp_path / "backtest.yml").write_text(yaml.safe_dump(test))
    command = [program("promtool", "prometheus"), "test", "rules", "backtest.yml"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr

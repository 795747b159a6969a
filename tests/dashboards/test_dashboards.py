"""The dashboard and the rules against the generator, PromQL's grammar, promtool, and the metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from dashboards.build import DASHBOARDS, FOLDER, text
from streamer.views.metrics import registry
from tests.hub.scene import called, scene
from tests.hub.test_estimate import traced_in_part
from tests.narrowed import present
from tests.views.test_flame import seen

RULES = Path("dashboards/rules")


def committed(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{name}.json").read_text()))


def expressions_of_dashboards() -> Iterator[tuple[str, str]]:
    for name in DASHBOARDS:
        for panel in committed(name)["panels"]:
            for target in panel.get("targets", []):
                yield panel["title"], target["expr"]


SETTINGS = {
    "$__rate_interval": "5m", "$host": ".*", "$instance": ".*", "$pid": ".*", "$window": "10s",
    "$weight": "instructions", "$edge_weight": "instructions",
}  # fmt: skip


def concrete(expression: str, **settings: str) -> str:
    """With values in the place of a dashboard's variables; `settings`: other ones, by their names."""
    for name, value in (SETTINGS | {f"${name}": value for name, value in settings.items()}).items():
        expression = expression.replace(name, value)
    return expression


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / "streamer.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def names_in(expression: str) -> set[str]:
    """The metrics an expression selects; raises if it is not PromQL."""
    concrete = re.sub(r"\$__rate_interval", "5m", expression)
    names: set[str] = set()

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            names.add(present(node.name))
        for part in ("expr", "lhs", "rhs", "vector_selector", "args"):
            below = getattr(node, part, None)
            for child in below if isinstance(below, list) else [below]:
                if child is not None:
                    visit(child)

    visit(promql_parser.parse(concrete))
    return names


def exported() -> set[str]:
    """Names of the samples of a live hub, in both fidelities, with contexts, and with a CPU budget."""
    hubs = (scene()[0], called(seen(), 79), traced_in_part(500)[0])
    return {sample.name for hub in hubs for family in registry(hub).collect() for sample in family.samples}


def test_names_in_sees_through_every_kind_of_expression() -> None:
    expression = "sort_desc(topk(3, sum by (x) (rate(a[5m])) / on () (b offset 1m > 0))) or -(max_over_time(c[1h:1m]))"
    assert names_in(expression) == {"a", "b", "c"}
    with pytest.raises(ValueError):
        names_in("sum(")


def test_the_committed_dashboards_are_the_generated_ones() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(DASHBOARDS)
    for name in DASHBOARDS:
        assert (FOLDER / f"{name}.json").read_text() == text(name), "run python -m dashboards.build"


def test_every_metric_of_the_dashboards_exists() -> None:
    known = exported()
    used = {name for _, expression in expressions_of_dashboards() for name in names_in(expression)}
    assert len(used) >= 25
    assert used <= known
    for name in DASHBOARDS:
        variables = committed(name)["templating"]["list"]
        asked = {m for v in variables for m in re.findall(r"label_values\((\w+)", str(v.get("query")))}
        assert asked
        assert asked <= known


def test_dashboards_lead_to_each_other() -> None:
    uids = {committed(name)["uid"] for name in DASHBOARDS}
    assert len(uids) == len(DASHBOARDS)
    for name in DASHBOARDS:
        link, page = committed(name)["links"]
        assert page["url"] == "http://${instance}/"
        assert "instance" in [variable["name"] for variable in committed(name)["templating"]["list"]]
        assert (link["type"], link["includeVars"], link["keepTime"]) == ("dashboards", True, True)
        assert set(link["tags"]) <= set(committed(name)["tags"])


def test_every_metric_of_the_rules_exists() -> None:
    known = exported() | {"up"} | {str(rule["record"]) for rule in rules() if "record" in rule}
    for rule in rules():
        assert names_in(str(rule["expr"])) <= known, rule


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_lie_side_by_side_in_the_grid(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in committed(name)["panels"]:
        place = panel["gridPos"]
        x, y = place.get("x", 0), place["y"]
        cells = {(i, j) for i in range(x, x + place["w"]) for j in range(y, y + place["h"])}
        assert x + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.peer
@pytest.mark.parametrize(
    "arguments", [("check", "rules", "streamer.rules.yml"), ("test", "rules", "streamer.test.yml")]
)
def test_promtool(arguments: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing (Debian package prometheus)")
    result = subprocess.run([promtool, *arguments], cwd=RULES, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_has_a_page_that_says_what_to_do() -> None:
    pages = {page.name for page in Path("docs/runbooks").iterdir()}
    alerts = [rule for rule in rules() if "alert" in rule]
    assert pages == {f"{rule['alert']}.md" for rule in alerts}
    for rule in alerts:
        assert rule["annotations"]["runbook"] == f"docs/runbooks/{rule['alert']}.md"
        assert {"summary", "description"} <= set(rule["annotations"])


def test_every_alert_and_record_has_a_unit_test() -> None:
    tested = (RULES / "streamer.test.yml").read_text()
    for rule in rules():
        name = str(rule.get("alert") or rule["record"])
        wanted = f"alertname: {name}\n" if "alert" in rule else f"{name}"
        assert wanted in tested, name

"""The Grafana dashboards, written in Python: `python -m dashboards.build` makes `dashboards/grafana/*.json`.

The JSON is committed, so that its users do not need the SDK; tests hold the two together, parse every expression and
run it. The SDK build is the one for Grafana 11.6.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from dashboards import jvm, overview, pipeline, quality

FOLDER = Path(__file__).parent / "grafana"
DASHBOARDS: dict[str, Callable[[], model.Dashboard]] = {
    "streamer": overview.dashboard,
    "streamer-jvm": jvm.dashboard,
    "streamer-pipeline": pipeline.dashboard,
    "streamer-quality": quality.dashboard,
}


def text(name: str) -> str:
    """The SDK gives each variable the fields of an interval's (`auto…`), which the schema does not have."""
    made = json.loads(JSONEncoder().encode(DASHBOARDS[name]()))
    for variable in made["templating"]["list"]:
        for field in ("auto", "auto_count", "auto_min"):
            del variable[field]
    return json.dumps(made, sort_keys=True, indent=2) + "\n"


if __name__ == "__main__":
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")

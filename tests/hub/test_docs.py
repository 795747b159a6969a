"""docs/metrics.md names the exported metrics, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

from stages.messages import Break, Loss
from streamer.hub.view import CAUSES
from streamer.views.metrics import registry
from tests.hub.scene import called, scene
from tests.hub.test_estimate import traced_in_part
from tests.hub.test_statements import hub as statements
from tests.views.test_flame import seen

DOCS = Path("docs/metrics.md").read_text()


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    documented = set(re.findall(r"(?<!:)\bstreamer_[a-z_]+", DOCS.partition("## Metrics")[2]))
    hubs = called(scene(fidelity="flow")[0], 79), traced_in_part(500)[0], seen()
    hubs[0].statements = statements().statements
    exported = {s.name for hub in hubs for f in registry(hub).collect() for s in f.samples}
    assert documented == exported


def test_every_cause_of_loss_is_explained() -> None:
    assert set(CAUSES) == set(Loss)
    for name in CAUSES.values():
        assert f"`{name}`" in DOCS


def test_every_cause_of_a_contradiction_is_explained() -> None:
    for cause in Break:
        assert f"| `{cause.name.lower()}` |" in DOCS

"""Methods whose versions follow one another under load: no walk goes on in a version that is not entrant any more."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.flow_truth.evaluate import Evaluation
from jvm.export import records
from jvm.export.parse import iter_records
from jvm.export.ring import open_export
from tests.jdks import java, tool
from tests.truth.recorded import recorded

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]

ROUNDS = 20_000


@pytest.mark.parametrize("version", [pytest.param(17, marks=pytest.mark.nightly), 25])
def test_tiers_that_change_under_load(version: int, tmp_path: Path) -> None:
    source = Path(__file__).parent / "Tiers.java"
    subprocess.run([tool("javac"), "--release", "17", "-d", tmp_path, source], check=True, timeout=120)
    recorded([java(version), "-XX:+UseSerialGC", "-cp", str(tmp_path), "Tiers", str(ROUNDS)], tmp_path / "run")
    changed = versions(tmp_path / "run")
    assert set(changed) >= {"along", "around", "of", "caught"}
    assert changed.total() >= 10
    result = Evaluation(tmp_path / "run").evaluate()
    assert result.right >= 0.9995 * result.blocks
    assert result.silent <= 2e-5 * result.blocks


def versions(recording: Path) -> Counter[str]:
    """How many compiled versions of each of the program's methods there were."""
    (path,) = recording.glob("run-*.export")
    names: dict[int, str] = {}
    loaded: Counter[str] = Counter()
    for record_ in iter_records(open_export(path).records):
        if isinstance(record_, records.Method) and record_.class_signature.startswith("LTiers"):
            names[record_.id] = record_.name
        elif isinstance(record_, records.NmethodLoad) and record_.method in names:
            loaded[names[record_.method]] += 1
    return loaded

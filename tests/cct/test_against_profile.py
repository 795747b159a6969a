"""The tree of the demo's recording: its sums by method are those of the flat profile."""

from __future__ import annotations

from collections import Counter
from importlib.resources import as_file, files

import pytest

from capture.recording.replay import Replay
from stages.cct.merging import merged
from stages.cct.tree import Tree, method_totals
from stages.messages import CodeKind, PaneReport, TreeReport
from streamer.pipeline.topology import feed_chain, flush_chain
from tests.stages import chains

pytestmark = pytest.mark.slow
COMPILED = (CodeKind.C1, CodeKind.C2, CodeKind.NATIVE_WRAPPER)


def by_method(tree: Tree, column: str) -> dict[str, int]:
    return {m: n for m, n in method_totals(tree, column).items() if n and not m.startswith("[")}


def test_sums_by_method_are_those_of_the_profile() -> None:
    said: list[object] = []
    chain = chains.flow()
    with as_file(files("streamer.demo")) as directory, Replay(directory / "shop.json") as replay:
        for message in replay.messages():
            said += feed_chain(chain, message)
    said += flush_chain(chain)
    tree = merged(Tree(m.nodes, m.names) for m in said if isinstance(m, TreeReport))
    names: dict[int, str] = {}
    expected = {column: Counter[str]() for column in ("invocations", "instructions")}
    interpreted = 0
    for report in (m for m in said if isinstance(m, PaneReport)):
        names |= dict(report.names)
        for row in report.profile:
            if row["kind"] in COMPILED:
                for column, sums in expected.items():
                    sums[names[int(row["method"])]] += int(row[column])
            elif row["kind"] == CodeKind.INTERPRETED:
                interpreted += int(row["instructions"])
    found = {column: by_method(tree, f"observed_{column}") for column in expected}
    assert found["invocations"] == {m: n for m, n in expected["invocations"].items() if n}
    assert found["instructions"] == {m: n for m, n in expected["instructions"].items() if n}
    assert method_totals(tree, "observed_instructions")["[interpreter]"] == interpreted > 0
    assert len(expected["invocations"]) > 100

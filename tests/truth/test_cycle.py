"""A cycle that leaves no packet: of its rounds the trace says nothing, so they count on neither side."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.flow_truth.evaluate import Evaluation
from benchmarks.flow_truth.record import NAME
from capture.recording.replay import Replay
from stages.messages import PaneReport
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from streamer.pipeline.topology import feed_chain, flush_chain
from streamer.views.metrics import registry
from tests.jdks import java, tool
from tests.stages import chains
from tests.truth.recorded import recorded

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PROGRAM = """
public class Down {
    static long calls;

    static int down(int n) { calls++; return down(n + 1) + 1; }

    public static void main(String[] args) {
        for (int i = 0; i < 4; i++) {
            try { down(0); } catch (StackOverflowError e) { }
        }
        System.out.println(calls);
    }
}
"""


def test_recursion_by_direct_calls_alone(tmp_path: Path) -> None:
    """Compiled by C1 without counters, so that no conditional branch is left in it, till the stack overflows. Its calls
    are told as a lower bound. MTC packets bring a PSB into the recursion now and then."""
    (tmp_path / "Down.java").write_text(PROGRAM)
    subprocess.run([tool("javac"), "--release", "17", "-d", tmp_path, tmp_path / "Down.java"], check=True, timeout=120)
    words = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m", "-cp", str(tmp_path), "Down"]
    recorded([java(17), *words], tmp_path / "run")
    result = Evaluation(tmp_path / "run").evaluate()
    assert result.rounds > 50_000
    assert result.right >= 0.9995 * result.blocks
    assert result.silent == 0
    calls = int((tmp_path / "run" / "stdout").read_text())
    hub = told(tmp_path / "run" / f"{NAME}.json")
    methods = {m.method: m for m in hub.hot(whole_run=True, top=1000).methods}
    down = methods.pop("Down.down")
    assert down.at_least
    assert down.invocations is not None
    assert 1 <= down.invocations < calls
    assert [m.method for m in methods.values() if m.at_least] == []
    own = registry(hub)
    samples = [
        (family.name, sample.value)
        for family in own.collect()
        for sample in family.samples
        if family.name.startswith("streamer_method_invocations")
        and sample.labels["method"] == "Down.down"
        and sample.labels["window"] == "5m"
    ]
    assert samples == [("streamer_method_invocations_at_least", down.invocations)]


def told(recording: Path) -> Hub:
    """A hub's view when all of a recording has been decoded."""
    chain = chains.flow()
    hub = Hub(WindowConfig(exported=500), fidelity="flow")
    with Replay(recording) as replay:
        said = [report for message in replay.messages() for report in feed_chain(chain, message)]
    for report in (*said, *flush_chain(chain)):
        if isinstance(report, PaneReport):
            hub.feed(report)
    return hub

"""Invocations of methods that exist only inlined: what a stock JVM tells of its code is enough to count them."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth.record import NAME, record
from capture.emulator.options import EmulatorError
from capture.replay import Replay
from stages import decode, reconstruct, segment
from stages.messages import CodeKind, PaneReport
from streamer.topology import feed_chain, flush_chain
from tests.jvm.agent.java_process import java, tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
CALLS = 20_000


def invocations(recording: Path) -> Counter[str]:
    """By method, in code of C1."""
    chain = [decode.make(first=True), segment.make(), reconstruct.make()]
    out: Counter[str] = Counter()
    names: dict[int, str] = {}
    with Replay(recording) as replay:
        said = [report for message in replay.messages() for report in feed_chain(chain, message)]
    for report in (*said, *flush_chain(chain)):
        if isinstance(report, PaneReport):
            names |= dict(report.names)
            for row in report.profile:
                if row["kind"] == CodeKind.C1:
                    out[names[int(row["method"])]] += int(row["invocations"])
    return out


def test_inlined_methods_are_counted_as_often_as_they_were_called(tmp_path: Path) -> None:
    source = Path(__file__).parent / "Inlined.java"
    subprocess.run([tool("javac"), "--release", "17", "-d", str(tmp_path), str(source)], check=True, timeout=120)
    options = ["-XX:+UseSerialGC", "-Xcomp", "-XX:TieredStopAtLevel=1", "-XX:CompileCommand=compileonly,Inlined::*"]
    try:
        run = record([java(17), *options, "-cp", str(tmp_path), "Inlined", str(CALLS)], tmp_path / "run")
    except FlowTruthError as error:
        if isinstance(error.__cause__, EmulatorError):
            pytest.skip(str(error))
        raise
    assert run.status == 0
    counted = invocations(tmp_path / "run" / f"{NAME}.json")
    assert counted["Inlined.main"] == 1
    expected = {"outer": CALLS, "get": CALLS, "branching": CALLS, "looping": CALLS // 4}
    for name, calls in expected.items():
        assert 0.99 * calls <= counted[f"Inlined.{name}"] <= calls, name

"""A cycle that leaves no packet: of its rounds the trace says nothing, so they count on neither side."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth.evaluate import Evaluation
from benchmarks.flow_truth.record import record
from capture.emulator.options import EmulatorError
from tests.jdks import java, tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PROGRAM = """
public class Down {
    static long calls;

    static int down(int n) { calls++; return down(n + 1) + 1; }

    public static void main(String[] args) {
        for (int i = 0; i < 4; i++) {
            try { down(0); } catch (StackOverflowError e) { System.out.println(i); }
        }
    }
}
"""


def test_recursion_by_direct_calls_alone(tmp_path: Path) -> None:
    """Compiled by C1 without counters, so that no conditional branch is left in it, till the stack overflows."""
    (tmp_path / "Down.java").write_text(PROGRAM)
    subprocess.run([tool("javac"), "--release", "17", "-d", tmp_path, tmp_path / "Down.java"], check=True, timeout=120)
    words = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m", "-cp", str(tmp_path), "Down"]
    try:
        run = record([java(17), *words], tmp_path / "run")
    except FlowTruthError as error:
        if isinstance(error.__cause__, EmulatorError):
            pytest.skip(str(error))
        raise
    assert run.status == 0
    result = Evaluation(tmp_path / "run").evaluate()
    assert result.rounds > 50_000
    assert result.right >= 0.9995 * result.blocks
    assert result.silent == 0

"""Code that ran before the agent could tell of it: under -Xcomp that is all of a JVM's beginning."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.flow_truth.evaluate import Evaluation
from tests.jdks import java, tool
from tests.truth.recorded import recorded

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]

PROGRAM = """
public class Early {
    public static void main(String[] args) {
        System.out.println(String.join(" ", "it", "is", "early"));
    }
}
"""


@pytest.mark.parametrize("version", [17, pytest.param(25, marks=pytest.mark.nightly)])
def test_a_beginning_that_is_compiled(version: int, tmp_path: Path) -> None:
    """By C1 alone: first calls of each method, places that are patched, classes that are initialised meanwhile."""
    (tmp_path / "Early.java").write_text(PROGRAM)
    subprocess.run([tool("javac"), "--release", "17", "-d", tmp_path, tmp_path / "Early.java"], check=True, timeout=120)
    words = ["-Xcomp", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(tmp_path), "Early"]
    recorded([java(version), *words], tmp_path / "run")
    result = Evaluation(tmp_path / "run").evaluate()
    # Up to JDK 22 a call that has just changed leads through a stub whose jump is gone at the next safepoint, before it
    # was read: of table stubs with the same packets one is guessed then, and told as guessed (docs/flow-truth.md). How
    # many, depends on how fast the machine is.
    assert result.right + result.flagged.total() >= 0.9995 * result.blocks
    assert result.flagged.total() <= 0.03 * result.blocks
    assert result.silent <= 5e-4 * result.blocks

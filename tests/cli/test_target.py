"""The agent's options, as the commands that start a JVM pass them on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from jvm.agent import build
from jvm.cbuild import BuildError
from streamer.config import AgentConfig, load
from streamer.target import launch as target


def test_the_agent_is_told_its_options() -> None:
    try:
        library = build.library()
    except BuildError as error:
        pytest.skip(str(error))
    java = ["java", "-Xint", "Main"]
    assert target.with_agent(java, Path("/s"), AgentConfig()) == [
        "java", f"-agentpath:{library}=dir=/s,size=64m,classes=on,stacks=100,mounts=10000", "-Xint", "Main",
    ]  # fmt: skip
    none = {"agent.classes": False, "agent.stacks_ms": 0, "agent.mounts_per_second": 0}
    small = load(**{"agent.ring_mib": 4, **none}).agent
    assert target.with_agent(java, Path("/s"), small)[1].endswith("=dir=/s,size=4m,classes=off,stacks=0,mounts=0")


@pytest.mark.parametrize("period", [-1, 1, 9, 60001])
def test_a_period_of_stacks_is_none_or_one_that_costs_little(period: int) -> None:
    with pytest.raises(ValidationError, match=r"stacks_ms"):
        AgentConfig(stacks_ms=period)
    assert [AgentConfig(stacks_ms=ms).stacks_ms for ms in (0, 10, 60000)] == [0, 10, 60000]


@pytest.mark.parametrize("most", [-1, 1, 99, 10_000_001])
def test_mounts_are_told_or_not_but_hardly_none(most: int) -> None:
    with pytest.raises(ValidationError, match=r"mounts_per_second"):
        AgentConfig(mounts_per_second=most)
    assert [AgentConfig(mounts_per_second=n).mounts_per_second for n in (0, 100, 10_000_000)] == [0, 100, 10_000_000]


@pytest.mark.parametrize("command", ["run", "record"])
@pytest.mark.parametrize(("size", "why"), [("3", "must be a power of two"), ("0", "greater than or equal to 1")])
def test_a_ring_of_a_wrong_size_is_one_clear_line(command: str, size: str, why: str) -> None:
    streamer = str(Path(sys.executable).with_name("streamer"))
    arguments = [streamer, command, "--emulate", "--agent-ring", size, "--", "java", "-version"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert re.fullmatch(rf"streamer: setting agent\.ring_mib: .*{why}.*\n", done.stderr)


def test_a_recording_cannot_keep_a_budget_and_says_so(tmp_path: Path) -> None:
    """Before, it was taken and never kept: all of the time was traced."""
    streamer = str(Path(sys.executable).with_name("streamer"))
    arguments = [streamer, "record", "--emulate", "-o", str(tmp_path), "--cpu-budget", "10%", "--", "java", "-version"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("streamer: a CPU budget is kept by a pipeline: streamer run --cpu-budget")
    assert not list(tmp_path.iterdir())

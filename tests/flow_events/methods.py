"""Methods.java, interpreted by each JDK: a recording, and beside it what the JVM itself says that it ran."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.accuracy.truth import record
from tests.flow_events.test_inlined import run_of
from tests.jdks import java

ROUNDS, WAIT = 200, 4000


@dataclass(frozen=True)
class Interpreted:
    recording: Path
    truth: Path  # a log of its steps: benchmarks.accuracy.truth
    classes: Path


def a_stream_a_thread(patch: pytest.MonkeyPatch) -> None:
    """Where there is one a CPU, a thread that comes to a CPU's for the first time has a hole before it."""
    patch.setenv("STREAMER_EMULATOR__PER_THREAD", "1")


def interpreted(version: int, directory: Path) -> Interpreted:
    with pytest.MonkeyPatch.context() as patch:
        a_stream_a_thread(patch)
        recording = run_of("Methods", version, ["-Xint", "-XX:+UseSerialGC"], [str(ROUNDS), str(WAIT)], directory)
    command = [java(version), "-XX:+UseSerialGC", "-cp", str(directory), "Methods", str(ROUNDS), "0"]
    done = record(command, directory / "truth")
    assert done.returncode == 0, done.stderr
    return Interpreted(recording, directory / "truth", directory)

"""Where there is no room for the emulated PT's files, the JVM runs as if there were no PT."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.emulator.launch import command
from capture.emulator.options import EmulatorOptions
from tests.disk import fill, small_disk

pytestmark = pytest.mark.jvm
RING = (512 << 10) + (256 << 10) + 4096  # AUX, data, control page


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """With room for some of the rings of a JVM's threads."""
    with small_disk(tmp_path / "disk", 4 * RING + (1 << 20)) as path:
        yield path


def run(classes: Path, argv: list[str]) -> str:
    """Its stderr, when it ended and printed as it does."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "caught 31\n"), done.stderr
    return done.stderr


def traced(classes: Path, directory: Path, truth: Path | None = None) -> list[str]:
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(classes), "Ways", "200"]
    return command(java, directory, EmulatorOptions(per_thread=True, aux_kib=512, data_kib=256, truth=truth))


def test_some_threads_have_no_ring(classes: Path, disk: Path) -> None:
    said = run(classes, traced(classes, disk / "pt"))
    assert said.count("emulated PT: cannot make") == 1
    assert "No space left on device" in said
    rings = list((disk / "pt").glob("*.ring"))
    assert 1 <= len(rings) <= 5
    assert all(path.stat().st_blocks * 512 >= RING for path in rings)  # no hole in them
    assert not list((disk / "pt").glob("*.new"))  # a file that did not get its room gave back its part
    state = json.loads((disk / "pt" / "emulator.json").read_text())
    assert (state["state"], state["unexplained"]) == ("ended", 0)
    assert state["refused"] >= 3


def test_nothing_can_be_written(classes: Path, disk: Path) -> None:
    argv = traced(classes, disk / "pt")
    fill(disk)
    assert "emulated PT: cannot write" in run(classes, argv)
    assert not list((disk / "pt").glob("*.ring"))


def test_its_directory_is_gone(classes: Path, disk: Path) -> None:
    argv = traced(classes, disk / "pt")
    (disk / "pt").rmdir()
    assert "emulated PT: cannot write" in run(classes, argv)


def test_the_truth_has_no_room(classes: Path, tmp_path: Path, disk: Path) -> None:
    argv = traced(classes, tmp_path / "pt", disk / "truth")
    fill(disk, leave=256 << 10)
    said = run(classes, argv)
    assert said.count("the truth ends here") == 1
    state = json.loads((tmp_path / "pt" / "emulator.json").read_text())
    assert (state["state"], state["truth_cut"], state["refused"]) == ("ended", True, 0)


def test_nobody_reads_what_it_says(classes: Path, disk: Path) -> None:
    """A line to a pipe without a reader is SIGPIPE, before the JVM has its handlers the end of it."""
    argv = traced(classes, disk / "pt")
    fill(disk)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=pipe, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "caught 31\n")

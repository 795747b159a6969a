"""A program of ours whose output cannot be read: it goes on, and counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.disk import fill, small_disk

# Writes so much on every way that there is, then the losses, in a file.
PROGRAM = """
import json, pathlib, sys
import click, structlog
from rich.console import Console
from streamer import config, logs, lossy
lossy.never_fail("stdout", "stderr")
logs.configure(config.Settings())
console = Console(stderr=True)
for _ in range(int(sys.argv[2])):
    console.print("a line of rich")
    click.echo("a line of click")
    click.echo("another", err=True)
    structlog.get_logger().warning("a line of a log")
    print("a plain line " + "x" * 100)
pathlib.Path(sys.argv[1]).write_text(json.dumps(lossy.lost))
"""


def run(tmp_path: Path, out: int, err: int, times: int = 1) -> dict[str, int]:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "lost"), str(times)]
    subprocess.run(command, stdout=out, stderr=err, check=True, timeout=120)
    return dict(json.loads((tmp_path / "lost").read_text()))


@pytest.fixture
def nowhere() -> int:
    """A pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_nothing_is_lost_of_what_is_taken(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        assert run(tmp_path, out.fileno(), err.fileno()) == {}
    assert (tmp_path / "out").read_text().startswith("a line of click\na plain line xx")
    said = (tmp_path / "err").read_text()
    assert "a line of rich\nanother\n" in said
    assert "a line of a log" in said


def test_a_reader_that_went_away(tmp_path: Path, nowhere: int) -> None:
    lost = run(tmp_path, nowhere, nowhere)
    assert lost.keys() == {"stdout/EPIPE", "stderr/EPIPE"}
    assert lost["stdout/EPIPE"] == len("a line of click\n") + len("a plain line \n") + 100
    os.close(nowhere)


def test_a_reader_that_does_not_read(tmp_path: Path) -> None:
    """More than a pipe takes: the writer does not wait for room again and again."""
    reading, writing = os.pipe()
    lost = run(tmp_path, writing, writing, 1000)
    assert lost.keys() == {"stdout/EAGAIN", "stderr/EAGAIN"}
    assert sum(lost.values()) > 50_000
    os.close(reading)
    os.close(writing)


def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk, (disk / "log").open("wb") as log:
        fill(disk)
        assert run(tmp_path, log.fileno(), log.fileno()).keys() == {"stdout/ENOSPC", "stderr/ENOSPC"}


def test_a_terminal_that_was_closed(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    os.close(ours)
    assert run(tmp_path, theirs, theirs).keys() == {"stdout/EIO", "stderr/EIO"}
    os.close(theirs)


def test_closed_from_the_start(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$0" "$@" >&- 2>&- <&-', sys.executable, "-c", PROGRAM, str(tmp_path / "lost"), "1"]
    subprocess.run(command, check=True, timeout=120)
    assert (tmp_path / "lost").read_text() == "{}"

"""Disks that are small and full: a tmpfs of some size, and a file that takes the rest of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """`path`, which is made, with a tmpfs of `size` bytes on it, closed to other users. Skips where none can be
    mounted."""
    path.mkdir()
    options = f"size={size},mode=0700,uid={os.getuid()},gid={os.getgid()}"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, text=True, timeout=30
        )
    except FileNotFoundError:
        pytest.skip("no program `mount`")
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.strip()} (root can)")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True, timeout=30)


def fill(disk: Path, leave: int = 0) -> Path:
    """A file that takes all room but `leave` bytes. Room that others free is theirs."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(ballast, max(0, ballast.stat().st_size - leave))
    return ballast

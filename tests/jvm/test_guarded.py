"""A file that is cut while it is mapped: its bytes as read are marked, and no process dies of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jvm.guarded import Guarded

PAGES, PAGE = 64, 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x"
    path.write_bytes(b"\x01" * (PAGES * PAGE))
    return path


def mapped(path: Path) -> Guarded:
    fd = os.open(path, os.O_RDWR)
    try:
        return Guarded(fd, PAGES * PAGE)
    finally:
        os.close(fd)


def test_pages_that_are_gone_read_as_zeros_and_are_told(file: Path) -> None:
    """In a copy that is so large that numpy gives up the interpreter's lock, too."""
    guarded = mapped(file)
    assert guarded.map[:] == b"\x01" * (PAGES * PAGE)
    before = guarded.cut
    assert not before
    os.truncate(file, 3 * PAGE - 100)
    copy = np.frombuffer(guarded.map, np.uint8).copy()
    assert guarded.cut
    assert int(copy.sum()) == 3 * PAGE - 100
    os.truncate(file, PAGES * PAGE)
    guarded.map[10 * PAGE] = 7  # goes nowhere
    guarded.close()
    assert file.read_bytes() == b"\x01" * (3 * PAGE - 100) + bytes((PAGES - 3) * PAGE + 100)


def test_a_write_to_what_is_gone(file: Path) -> None:
    guarded, other = mapped(file), mapped(file)
    os.truncate(file, 0)
    np.frombuffer(guarded.map, np.uint64)[1] = 5
    assert (guarded.hit, other.hit) == (True, False)
    assert (guarded.cut, other.cut) == (True, True)
    guarded.close()
    other.close()


def test_elsewhere_it_is_what_it_was(file: Path) -> None:
    """Not guarded, or no longer: the process dies of the signal."""
    program = f"""
import mmap, os
from jvm.guarded import Guarded
fd = os.open({str(file)!r}, os.O_RDWR)
guarded, plain = Guarded(fd, {PAGE}), mmap.mmap(fd, {PAGE})
os.truncate({str(file)!r}, 0)
print(guarded.map[0], guarded.cut, flush=True)
guarded.close()
print(plain[0])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGBUS, "0 True\n")

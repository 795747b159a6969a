"""A little of each fuzz target, and that fences are none to be climbed. The long runs: `make nightly`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.fuzz import fence

_READ = """
import ctypes
from tests.fuzz import fence
array = fence.zeros(100, "<i8", fence.{end})
array[0] = array[99] = 1
at = array.ctypes.data + {offset}
print(ctypes.c_int64.from_address(at).value)
"""


@pytest.mark.parametrize(("end", "offset"), [("HIGH", 800), ("HIGH", 793), ("LOW", -1), ("LOW", -8)])
def test_reading_over_a_fence_is_death(end: str, offset: int) -> None:
    inside = {"HIGH": 792, "LOW": 0}[end]
    ended = [
        subprocess.run(
            [sys.executable, "-c", _READ.format(end=end, offset=at)], capture_output=True, timeout=60, check=False
        )
        for at in (inside, offset)
    ]
    assert (ended[0].returncode, ended[0].stdout) == (0, b"1\n")
    assert ended[1].returncode == -signal.SIGSEGV


def test_fenced_arrays_are_known() -> None:
    assert fence.is_fenced(fence.copy(b"abc"))
    assert not fence.is_fenced(fence.copy(b"abc").copy())
    assert bytes(fence.Bytes(100, fence.LOW).put(b"abc")) == b"abc"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["high", "low"])
def test_every_target_survives(end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "all", "--inputs", "250"],
        capture_output=True, text=True, timeout=280, check=False, env={**os.environ, "FENCE": end},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count(" 250 inputs in ") == 10

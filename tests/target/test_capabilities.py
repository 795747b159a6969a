"""What the program under trace may do, where the streamer was given capabilities."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

STARTS = """
import sys
from streamer.target.process import TargetProcess
with TargetProcess(["cat", "/proc/self/status"], print, 1.0) as target:
    target.start()
sys.exit(target.status)
"""


def ambient(*arguments: str) -> int:
    done = subprocess.run([*arguments], capture_output=True, text=True, timeout=60, check=True)
    told = re.search(r"^CapAmb:\s*(\S+)$", done.stdout, re.MULTILINE)
    assert told is not None
    return int(told[1], 16)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give")
def test_the_program_gets_none_of_the_capabilities_for_tracing() -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    given = [setpriv, "--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]
    assert ambient(*given, "cat", "/proc/self/status") == 1 << 19
    assert ambient(*given, sys.executable, "-c", STARTS) == 0
    assert ambient(sys.executable, "-c", STARTS) == 0

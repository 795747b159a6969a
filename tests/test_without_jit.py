"""The kernels as plain Python (NUMBA_DISABLE_JIT=1) do the same with small inputs as when compiled.

So a debugger and coverage see them; and a kernel that leans on machine arithmetic says so here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = (
    "flow/test_choice.py", "flow/test_context.py", "flow/test_jumps.py", "flow/test_order.py", "flow/test_vectors.py",
    "pt/test_rules.py", "reconstruct/test_matcher.py", "stages/test_decode.py", "stages/test_segment.py",
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_small_inputs(name: str) -> None:
    here = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", here / name],
        cwd=here.parent, env=environment | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]

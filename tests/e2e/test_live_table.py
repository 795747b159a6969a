"""The table that a run shows in a terminal, on a small one: it is whole, with sparklines and the bar of losses."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.harness import COMMAND
from tests.hub.test_top import read_until

pytestmark = [pytest.mark.slow]
DEMO = Path("streamer/demo/shop.json").resolve()


def test_a_replay_in_a_terminal(root: Path, kernels: None) -> None:
    outer, inner = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        "LINES": "24",
        "STREAMER_RUNTIME_DIR": str(root),
    }
    child = subprocess.Popen(
        [COMMAND, "replay", DEMO, "--port", "0", "--pace", "4"],
        stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    try:
        marks = [b"lately", b"other", b"Ctrl-C stops", b"observed", "▁".encode()]
        table = read_until(outer, lambda seen: all(mark in seen for mark in marks))
        child.send_signal(signal.SIGINT)
        read_until(outer, lambda seen: b"restarts: none" in seen, seen=table)  # the end may have come by itself
        assert child.wait(200) in (0, 130)
    finally:
        child.kill()
        child.wait()
        os.close(outer)

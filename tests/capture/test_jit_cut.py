from __future__ import annotations

from pathlib import Path

from capture.live.jit import JitSpool
from tests.capture.jitwriter import Agent, thread_start


def test_a_ring_that_is_cut_short_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "jit-7.ring"
    agent = Agent(path, 7)
    agent.write(thread_start(7, "main"))
    spool = JitSpool(tmp_path / "jit-7.export", "host", 7)
    spool.attach(path)
    spool.fill()
    assert spool.taken > 0
    agent.close()
    with path.open("r+b") as file:
        file.truncate(100)
    spool.fill()
    spool.reread()
    assert "jit-7.ring" in spool.fault
    spool.fill()  # and stays so
    spool.close()

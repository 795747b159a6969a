"""The cost of the streamer for a native JVM: its parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import cpu
from benchmarks.agent_overhead.__main__ import rounds_of
from benchmarks.agent_overhead.at_budgets import quiet_pt, spent
from capture.live.source import EmulatedSource


def test_a_pt_that_writes_nothing_is_one_that_capture_reads(tmp_path: Path) -> None:
    quiet_pt(tmp_path / "pt", os.getpid())
    source = EmulatedSource(tmp_path / "pt", "here")
    assert source.config() is not None
    [(key, ring)] = source.new_rings()
    assert (key.pid, key.cpu, ring.aux_head(), source.faults) == (os.getpid(), 0, 0, [])
    assert not source.ended()
    ring.close()


def test_the_share_of_a_cpu_between_two_times() -> None:
    seen = [(10.0, 1.0), (11.0, 1.5), (12.0, 1.6), (14.0, 1.8)]
    assert spent(seen, 10.0, 11.0) == pytest.approx(0.5)
    assert spent(seen, 11.5, 20.0) == pytest.approx(0.1)  # from the last look before it to the last one


def test_the_cpu_time_of_a_process_that_has_ended_stays_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was spent before the first look is no part of a share: members load their kernels before the JVM."""
    seconds = {1: 4.0, 2: 1.0}
    monkeypatch.setattr(cpu, "cpu_seconds", lambda pid: seconds.get(pid, 0.0))
    used = cpu.Used()
    seen = [(10.0, used.total([1, 2]))]
    seconds = {1: 4.5, 3: 0.25}
    seen.append((11.0, used.total([1, 3])))
    assert seen == [(10.0, 5.0), (11.0, 5.75)]
    assert spent(seen, 10.0, 11.0) == pytest.approx(0.75)


def test_start_and_steady_state_of_rounds() -> None:
    said = "a warning\nrounds 5000000000 6000000000 6500000000 7000000000\nended 1000 2000 2500 3000\n"
    seconds, walls = rounds_of(said)
    assert seconds == {"start": 5.0, "steady": 1.0}
    assert walls == [1.0, 2.0, 2.5, 3.0]

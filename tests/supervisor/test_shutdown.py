"""The end comes, in time, with any fault of any process at any step of it (docs/shutdown.md).

Enumerated on the model of `tests.supervisor.model`: real supervisor, members and links, processes and sockets of the
model. `test_supervisor` has real processes.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from streamer.pipeline.keeper import Policy, State
from tests.supervisor.model import PIDS, Fault, Result, run

MEMBERS = ["source/0", "work/0", "work/1", "sink/0"]
# Of the two workers, each is in the other's place: the second's faults are the nightly run's.
EACH_MEMBER = [*MEMBERS[:2], pytest.param("work/1", marks=pytest.mark.nightly), "sink/0"]
EACH_TWO = [
    pytest.param(*two, marks=pytest.mark.nightly if "work/1" in two and set(two) != {"work/0", "work/1"} else ())
    for two in permutations(MEMBERS, 2)
]
POLICY = Policy(startup=30, silence=20, silence_at_end=10, idle_at_end=40, shutdown_seconds=30)
A_FAULT = POLICY.startup + POLICY.silence_at_end + 5  # until it is noticed, at the worst, and made good
STOP_AT = 0.005


def check(result: Result, *hit: str) -> None:
    """All have ended, none had to be killed for not doing so; messages sent past those that were hit have arrived."""
    assert result.alive == []
    assert result.killed == []
    assert set(result.states.values()) <= {State.ENDED, State.LOST}
    assert {name for name, state in result.states.items() if state is State.LOST} <= set(hit)
    assert max(result.seen.values(), default=0) <= 1
    assert result.wrong == 0
    for pid, worker in zip(PIDS, ("work/0", "work/1"), strict=True):
        if not {worker, "sink/0", "source/0"} & set(hit):
            assert result.lost(pid) == result.sent[pid]["refused"]


def test_undisturbed_nothing_is_lost(tmp_path: Path) -> None:
    for i, stop_at in enumerate((None, STOP_AT)):
        result = run(tmp_path / str(i), {}, POLICY, stop_at=stop_at)
        check(result)
        assert set(result.states.values()) == {State.ENDED}
        assert all(s["position"] > 3 for s in result.sent.values())
        assert result.seconds < 1


@pytest.mark.parametrize("fault", ["kill", pytest.param("stop", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("member", EACH_MEMBER)
def test_one_process_at_every_step(tmp_path: Path, member: str, fault: Fault) -> None:
    """From its start to its end, of a source that ends by itself."""
    steps = run(tmp_path / "plain", {}, POLICY).steps
    assert steps > 100
    for step in range(steps):
        result = run(tmp_path / str(step), {step: [(member, fault)]}, POLICY, limit=A_FAULT)
        check(result, member)


@pytest.mark.parametrize("fault", ["kill", "stop"])
@pytest.mark.parametrize("member", EACH_MEMBER)
def test_one_process_at_every_step_of_an_end_that_was_asked_for(tmp_path: Path, member: str, fault: Fault) -> None:
    plain = run(tmp_path / "plain", {}, POLICY, stop_at=STOP_AT)
    last = max(i for i, step in enumerate(plain.trail) if step == ("source/0", "hear"))  # "stop"
    for step in range(last, plain.steps):
        result = run(tmp_path / str(step), {step: [(member, fault)]}, POLICY, stop_at=STOP_AT, limit=A_FAULT)
        check(result, member)
        assert result.seconds < POLICY.shutdown_seconds


@pytest.mark.parametrize(("stopped", "killed"), EACH_TWO)
def test_one_is_stopped_and_another_killed(tmp_path: Path, stopped: str, killed: str) -> None:
    """Stopped when the source has sent half; killed at each third step from there on."""
    plain = run(tmp_path / "plain", {}, POLICY)
    half = plain.steps // 2
    for step in range(half, plain.steps + 30, 3):
        faults: dict[int, list[tuple[str, Fault]]] = {half: [(stopped, "stop")]}
        faults.setdefault(step, []).append((killed, "kill"))
        check(run(tmp_path / str(step), faults, POLICY, limit=2 * A_FAULT), stopped, killed)


def test_a_worker_that_never_starts_does_not_keep_the_rest_from_ending(tmp_path: Path) -> None:
    """Killed at its first word each time: it is tried again until the end is asked for."""
    faults: dict[int, list[tuple[str, Fault]]] = {step: [("work/1", "kill")] for step in range(100_000)}
    result = run(tmp_path / "r", faults, POLICY, stop_at=60, limit=60 + POLICY.shutdown_seconds)
    check(result, "work/1")
    assert result.states["work/1"] is State.LOST

"""The duty cycle: how much of the time, drawn how, within what budget; and a drain that follows it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from capture.live import ring
from capture.live.drain import FASTEST, QUIET
from capture.live.duty import LEAST, STRATUM, Budget, Duty
from capture.perf.records import AuxFlag
from stages.messages import Chunk, Loss, LossMark, OffDuty, StreamOpen
from streamer.config import CaptureConfig
from streamer.pipeline.sources import OFF_SECONDS, QUIET_SECONDS, CaptureSource
from tests.capture import perfwriter as w
from tests.capture.session import PID, Plan, Session, of

STEP = 0.001


def windows(duty: Duty, seconds: float) -> list[tuple[float, float]]:
    """[on, off) as `at` and `wait` tell them."""
    found: list[tuple[float, float]] = []
    now, was = 0.0, False
    while now < seconds:
        on = duty.at(now)
        if on != was:
            found.append((now, math.inf) if on else (found.pop()[0], now))
        was = on
        wait = duty.wait(now)
        assert wait >= 0
        now = math.nextafter(now + wait, math.inf) if wait < seconds else seconds
    return found


@settings(deadline=None)
@given(some.floats(0.002, 0.9), some.randoms(use_true_random=False))
def test_each_stratum_has_one_window_of_its_share(share: float, rng: Random) -> None:
    found = windows(Duty(share, rng), 40 * STRATUM)[:-1]
    stratum = min(STRATUM, 0.05 / share)
    assert sum(off - on for on, off in found) == pytest.approx(found[-1][1] * share, abs=2 * stratum * share)
    for begin in np.arange(0, found[-1][0] - stratum, stratum):  # no stratum without one, also where two touch
        assert any(on < begin + stratum + 1e-6 and off > begin - 1e-6 for on, off in found)


def test_windows_are_drawn_evenly() -> None:
    """Each moment of a stratum is as likely to be traced as the next, but for its edges."""
    rng, seen = Random(1), np.zeros(100)
    for _ in range(4000):
        duty = Duty(0.1, rng)
        seen += [duty.at(0.005 * k) for k in range(100)]  # the stratum is 0.5 s
    middle = seen[12:88] / 4000
    assert abs(middle.mean() - 0.1 / 0.9) < 0.005
    assert middle.max() - middle.min() < 0.05


def test_at_full_share_it_is_always_on() -> None:
    duty = Duty(1.0)
    assert all(duty.at(k * STEP) for k in range(5000))


def test_after_a_pause_strata_begin_anew() -> None:
    duty = Duty(0.5, Random(3))
    duty.at(0)
    duty.at(1000.0)
    assert 0 < duty.wait(1000.0) <= 0.1


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan])
def test_a_budget_is_positive(wrong: float) -> None:
    with pytest.raises(ValueError, match="CPU budget"):
        Budget(wrong, Duty())


@pytest.mark.parametrize("cpus", [0.05, 0.1, 0.25])
@pytest.mark.parametrize("cost", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("late", [0.5, 3.0])
def test_the_budget_is_kept_within_a_fifth_over_a_minute(cpus: float, cost: float, late: float) -> None:
    """A pipeline that costs so many CPUs while tracing is on, noisily and `late` seconds afterwards, and something
    besides."""
    rng = Random(7)
    duty = Duty(rng=rng)
    budget = Budget(cpus, duty)
    spent, coming, told = 0.0, list[tuple[float, float]](), list[float]()
    for step in range(24_000):
        now = step * 0.01
        cpu = 0.3 * cpus + (cost * max(0.0, rng.gauss(1, 0.3)) if duty.at(now) else 0.0)
        coming.append((now + late, cpu * 0.01))
        while coming[0][0] <= now:
            spent += coming.pop(0)[1]
        if step % 100 == 0:
            budget.spent(spent, now)
            told.append(spent)
    minutes = [(b - a) / 60 / cpus for a, b in zip(told[60:], told[120:], strict=False)]
    assert min(minutes) > 0.8
    assert max(minutes) < 1.2


def test_a_cost_that_begins_anew_is_no_gain() -> None:
    duty = Duty()
    budget = Budget(0.1, duty)
    budget.spent(100.0, 0.0)
    before = duty.share
    budget.spent(1.0, 1.0)
    assert duty.share == before


def test_too_high_a_cost_leaves_the_least_share() -> None:
    duty = Duty()
    budget = Budget(0.05, duty)
    for second in range(100):
        budget.spent(float(second), float(second))
    assert duty.share == LEAST


# -- a drain


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path / "s")
    yield session
    for drain in session.drains:
        drain.close()


def switch(producer: w.Producer) -> int:
    return producer.get(ring.COUNTERS + 8 * ring.OFF)


def emulated(producer: w.Producer) -> w.Producer:
    producer.set(ring.COUNTERS, ring.COUNTERS_MAGIC)
    return producer


def test_a_drain_switches_its_rings_and_tells_the_time_between(session: Session) -> None:
    first, plan = emulated(session.ring("cpu0")), Plan()
    drain = session.drain(duty=plan)
    assert not of(OffDuty, drain.poll())
    assert switch(first) == 0
    plan.on = False
    began = session.clock + (1 << 30)  # the next look at the clock
    assert not of(OffDuty, drain.poll())
    assert switch(first) == 1
    second = emulated(session.ring("cpu1"))  # it begins while tracing is off
    messages = drain.poll()
    assert switch(second) == 1
    plan.on = True
    messages += drain.poll()
    assert (switch(first), switch(second)) == (0, 0)
    told = of(OffDuty, messages)
    assert [(m.host, m.pid) for m in told] == [("h", PID)] * len(told)
    assert told[0].begin == began
    assert all(a.end == b.begin for a, b in itertools.pairwise(told))
    assert told[-1].end == session.clock
    assert not of(OffDuty, drain.poll())


def test_the_emulated_pt_says_where_it_was_switched_off(session: Session) -> None:
    producer, plan = emulated(session.ring("cpu0")), Plan()
    drain = session.drain(duty=plan)
    producer.trace(b"0123456789", ns=3)
    producer.records(w.aux(10, 0, AuxFlag.PARTIAL | AuxFlag.OFF_DUTY, ns=5))
    producer.trace(b"after", ns=9)
    chunks = of(Chunk, drain.poll() + drain.poll())
    assert [(c.data.tobytes(), c.losses) for c in chunks] == [
        (b"0123456789", ()),
        (b"after", (LossMark(10, Loss.OFF_DUTY, 0, 10),)),
    ]


def test_a_ring_that_a_dead_reader_left_off_is_on_again(session: Session) -> None:
    producer = emulated(session.ring("cpu0"))
    producer.set(ring.COUNTERS + 8 * ring.OFF, 1)
    assert of(StreamOpen, session.drain().poll())
    assert switch(producer) == 0


def test_at_the_end_tracing_is_on(session: Session) -> None:
    producer, plan = emulated(session.ring("cpu0")), Plan()
    drain = session.drain(duty=plan)
    drain.poll()
    plan.on = False
    drain.poll()
    session.write_state(state="ended")
    assert of(OffDuty, drain.poll())
    assert switch(producer) == 0


def test_the_agent_is_told_of_each_window(session: Session) -> None:
    """0: always on; odd: on, in another window each time; even: off."""
    emulated(session.ring("cpu0"))
    plan, agent = Plan(), session.agent()
    drain = session.drain(duty=plan)
    told = []
    for plan.on in (True, False, False, True, False, True, True):
        drain.poll()
        told.append(agent.window())
    assert [n % 2 for n in told] == [1, 0, 0, 1, 0, 1, 1]
    assert 0 not in told
    assert [n for n, _ in itertools.groupby(told)] == sorted(set(told))
    drain.close()
    session.drain().poll()  # without a budget
    assert agent.window() == 0


def test_a_process_that_does_next_to_nothing_is_quiet_while_tracing_is_off(session: Session) -> None:
    producer, plan = emulated(session.ring("cpu0")), Plan()
    drain = session.drain(duty=plan)
    quiet = []
    for sizes in ([QUIET // 4] * 4, [QUIET // 4] * 4 + [1], [1]):
        plan.on = True
        drain.poll()
        for size in sizes:
            producer.trace(bytes(size))
            drain.poll()
        assert not drain.quiet  # tracing is on
        plan.on = False
        drain.poll()
        quiet.append(drain.quiet)
    assert quiet == [True, False, True]


def test_looks_are_as_rare_as_the_smallest_ring_allows(tmp_path: Path) -> None:
    session = Session(tmp_path / "s")
    drain = session.drain()
    first = session.ring("cpu0", aux_pages=1024)
    drain.poll()
    assert drain.calm_seconds == 4 * 1024 * 1024 / FASTEST
    second = session.ring("cpu1", aux_pages=256)
    first.trace(bytes(100))
    drain.poll()
    assert drain.calm_seconds == 1024 * 1024 / FASTEST
    second.trace(bytes(100_000))  # much for such a ring
    drain.poll()
    assert drain.calm_seconds == 0
    drain.close()


def test_the_next_look_is_late_only_where_nothing_comes(tmp_path: Path) -> None:
    class Rings:
        on, calm_seconds, quiet = True, 0.0, False

    source = CaptureSource(tmp_path, CaptureConfig(poll_ms=10))
    source._drain.close()
    source._drain = rings = cast(Any, Rings())
    assert source._pause() == 0.01
    rings.calm_seconds = 1.0
    assert source._pause() == 0.03
    rings.calm_seconds = 0.02  # not so late that a burst fills a ring
    assert source._pause() == 0.02
    rings.on = False
    assert source._pause() == OFF_SECONDS
    rings.quiet = True
    assert source._pause() == QUIET_SECONDS

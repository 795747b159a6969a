"""The verdicts of `benchmarks.soak` on growth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.soak.__main__ import COUNTERS, judge, numbers, report
from benchmarks.soak.bounds import BOUNDED, CHOSEN, beyond, bounds, environment
from benchmarks.soak.slopes import trend, troughs
from streamer.config import load

MINUTES = np.arange(0, 13, 1 / 12)
NOISE = np.random.default_rng(7).normal(0, 1, len(MINUTES))


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        (np.full(len(MINUTES), 1e6), False),
        (1e6 + 1e4 * NOISE, False),
        (1e6 + 2e4 * MINUTES + 1e4 * NOISE, True),  # 2 % a minute
        (np.where(MINUTES > 6, 5e8, 1e8 + 1e5 * MINUTES), False),  # one jump
        (1e6 + 3e5 * (MINUTES % 3), False),  # filled and emptied
        (1e6 - 5e4 * MINUTES, False),
        (np.floor(MINUTES) * 20, True),
    ],
)
def test_what_grows(values: NDArray[np.float64], grows: bool) -> None:
    assert trend(MINUTES, values, 64.0).grows == grows


def test_the_slope_is_not_disturbed_by_outliers() -> None:
    values = 100 + 3 * MINUTES
    values[::7] = 1e9
    assert trend(MINUTES, values, 1.0).per_minute == pytest.approx(3, rel=0.5)


def test_a_leak_is_named_and_a_counter_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    measured = [
        dict(
            numbers(
                "",
                {
                    "decode/0": {"statistics": {"stages": {"flow_bytes": 1e6 * at, "segment_threads": 100 * at}}},
                    "capture/0": {"memory_bytes": 5e7, "statistics": {"stages": {"streams": 4}}},
                },
            )
        )
        for at in MINUTES.tolist()
    ]
    growing = report(judge(MINUTES.tolist(), measured, 4.0))
    assert growing == ["decode/0.statistics.stages.segment_threads"]
    assert "GROWS" in capsys.readouterr().out


def test_a_number_that_nobody_has_named_a_counter_is_a_gauge() -> None:
    assert COUNTERS.search("decode/0.statistics.stages.attribute_something") is None
    assert COUNTERS.search("decode/0.statistics.stages.decode_bytes")
    assert COUNTERS.search("capture/0.statistics.cpu_seconds")


NODES = "decode/0.statistics.stages.cct_nodes"
METHODS = "decode/0.statistics.stages.reconstruct_methods"
MEMORY = "memory of python worker"


def growing(measured: list[dict[str, float]], minutes: NDArray[np.float64] = MINUTES) -> list[str]:
    times, warm_up = minutes.tolist(), float(minutes[-1]) / 3
    bound, trends = bounds(times, measured, warm_up), judge(times, measured, warm_up)
    return report(trends, bound) + beyond(bound, measured, trends)


def test_a_number_beyond_its_bound_is_named_though_it_did_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    rows = load(None, **CHOSEN).flow.context_kirows << 10
    measured = [{NODES: 5.0} for _ in MINUTES]
    measured[3][NODES] = rows
    assert growing(measured) == []
    measured[3][NODES] = rows + 1
    assert growing(measured) == [NODES]
    said = capsys.readouterr().out
    assert "BEYOND" in said
    assert f"bound {rows:14,}" in said


def test_a_gauge_that_fills_up_to_its_bound_is_no_leak_and_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert growing([{NODES: 100 * at} for at in MINUTES.tolist()]) == []
    assert "fills" in capsys.readouterr().out


def test_methods_may_be_as_many_more_behind_the_warm_up_as_the_agent_tells_without_a_class() -> None:
    """3,000 more are told and then no more; of 10 a second that stay the bound is passed."""
    some = np.minimum(12000 + 300 * MINUTES, 15000)
    assert growing([{METHODS: n} for n in some.tolist()]) == []
    assert growing([{METHODS: n} for n in (12000 + 600 * MINUTES).tolist()]) == [METHODS]


@pytest.mark.parametrize("rest", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("leak", [0.0, 1e6])
def test_a_leak_of_a_process_whose_tables_are_full_is_told(leak: float, rest: float) -> None:
    """400 MB, of which 60 come and go as tables fill and are made anew, every 80 s; 1 MB a minute is below 3 % in all,
    and less than what comes and goes."""
    minutes = np.arange(0, 20, 1 / 12)
    noise = np.random.default_rng(3).normal(0, 3e5, len(minutes))
    full = 6e7 * ((minutes / (80 / 60) + rest) % 1)
    memory = 4e8 + full + leak * minutes + np.abs(noise)
    measured = [{MEMORY: m, NODES: 5e2 * f / 1e6} for m, f in zip(memory.tolist(), full.tolist(), strict=True)]
    assert growing(measured, minutes) == ([MEMORY] if leak else [])


@pytest.mark.parametrize("when", range(7, 20))
def test_a_jump_of_memory_is_no_leak(when: int) -> None:
    minutes = np.arange(0, 20, 1 / 12)
    measured = [{MEMORY: m} for m in np.where(minutes > when, 4.3e8, 4e8).tolist()]
    assert growing(measured, minutes) == []


def test_troughs_are_the_least_of_each_part() -> None:
    minutes, values = np.arange(6.0), np.array([5.0, 4.0, 9.0, 8.0, 7.0, 6.0])
    at, least = troughs(minutes, values, 2)
    assert (at.tolist(), least.tolist()) == ([1.0, 5.0], [4.0, 6.0])
    assert [len(column) for column in troughs(minutes[:0], values[:0], 2)] == [0, 0]


def test_the_chosen_bounds_are_settings_that_a_run_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    assert load(None) == load(None, **CHOSEN)
    assert load(None).window.windows_seconds[-1] == 180
    assert BOUNDED[r"\.recover_window_bytes$"] == load(None).flow.recover_mib << 20

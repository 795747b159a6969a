"""The verdicts of `benchmarks.soak` on growth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.soak.__main__ import COUNTERS, beyond, judge, numbers, report
from benchmarks.soak.slopes import trend

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


def test_a_number_beyond_its_bound_is_named_though_it_did_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    name = "decode/0.statistics.stages.cct_nodes"
    assert beyond([{name: 1 << 20}, {}]) == []
    assert beyond([{name: (1 << 20) + 1}, {name: 5}]) == [name]
    assert "BEYOND" in capsys.readouterr().out

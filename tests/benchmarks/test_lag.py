"""The arithmetic of `benchmarks.lag`."""

from __future__ import annotations

import math
import os

import pytest

from benchmarks.cpu import cpu_seconds
from benchmarks.lag import Lag, table
from tests.e2e.harness import Ended

DELAYS = {"0.5": 0, "1.0": 60, "1.5": 98, "2.0": 99, "60.0": 99, "+Inf": 100}
STREAMS = [
    {"written": 3_000_000, "decoded": 2_999_990, "shed": 100_000, "holes": {"aux_full": 10}},
    {"written": 1_000_000, "decoded": 1_000_000, "shed": 0, "holes": {}},
]


def ended(status: int = 0, target: int | None = 0, delays: dict[str, int] = DELAYS) -> Ended:
    run = {"run": {"lost": {"aux_full": 10, "transport": 2}}}
    summary = {
        "target_status": target, "streams": STREAMS, "run": run, "delays": delays,
        "cpu_seconds": {"capture": 0.5, "decode": 3.0, "supervisor": 0.5},
    }  # fmt: skip
    return Ended(status, "", "the last words", summary)


def lag(delays: dict[str, int] = DELAYS) -> Lag:
    return Lag.of("shop", 12.4, 10.0, {"capture": 0.25, "supervisor": 0.25}, ended(delays=delays))


def test_a_run_is_read_from_its_summary() -> None:
    found = lag()
    assert (found.trace_bytes, found.lost_bytes, found.shed_bytes) == (4_000_000, 12, 100_000)
    assert (found.qemu_seconds, found.pipeline_seconds, found.start_seconds) == (10.0, 3.5, 0.5)
    assert found.cpu_seconds == {"capture": 0.25, "decode": 3.0, "supervisor": 0.25}


def test_quantiles_are_bounds_of_buckets() -> None:
    found = lag()
    assert [found.quantile(q) for q in (0.5, 0.6, 0.61, 0.98, 0.99, 0.995)] == [1.0, 1.0, 1.5, 1.5, 2.0, math.inf]
    assert (found.within(1.5), found.within(2.0)) == (0.98, 0.99)


def test_a_run_without_a_pane_has_no_quantile() -> None:
    found = lag(delays=dict.fromkeys(DELAYS, 0))
    assert math.isnan(found.quantile(0.5))
    assert found.within(2.0) == 0


@pytest.mark.parametrize(("status", "target"), [(1, 0), (0, 3), (0, None)])
def test_a_program_that_failed_is_no_measurement(status: int, target: int | None) -> None:
    with pytest.raises(ValueError, match="the last words"):
        Lag.of("shop", 1.0, 1.0, {}, ended(status, target))


def test_a_row_of_the_table() -> None:
    assert table([lag()]).splitlines()[2] == (
        "| shop | 12 | 4 | 12 | 2.5% | 10.0 | 3.5 | capture 0.2, decode 3.0, supervisor 0.2 | 2.86 | 0.5 | ≤ 1 s "
        "| ≤ 2 s | 99.00% |"
    )


def test_the_cpu_time_of_a_process_is_that_of_all_its_threads() -> None:
    before = os.times()
    seen = cpu_seconds(os.getpid())
    after = os.times()
    assert before.user + before.system - 0.02 <= seen <= after.user + after.system + 0.02
    assert cpu_seconds(2**22 + 1) == 0  # no process has such a number

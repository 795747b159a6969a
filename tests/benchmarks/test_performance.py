"""The table of docs/performance.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.performance import named, table


def part(size: int, **seconds: float) -> dict[str, Any]:
    stages = {name: {"cpu_seconds": s, "longest_ms": 1000 * s} for name, s in seconds.items()}
    return {"trace_bytes": size, "mb_per_second": 12.25, "branches": 3 * size, "stages": stages}


def test_a_row_for_each_part_that_has_trace() -> None:
    first = {"parts": {"warm-up": part(2_000_000, decode=0.01, follow=0.05), "steady": part(0)}}
    second = {"parts": {"warm-up": part(0, decode=0.0, follow=0.0), "steady": part(10**9, decode=1.0, follow=2.04)}}
    assert table({"A": first, "B": second}).splitlines() == [
        "| recording | part | MB | branches a byte | MB/s | decode | follow | longest step, ms |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
        "| A | warm-up | 2.0 | 3.0 | 12.2 | 5.0 | 25.0 | 50 |",
        "| B | steady | 1000.0 | 3.0 | 12.2 | 1.0 | 2.0 | 2040 |",
    ]


def test_a_recording_may_have_a_name() -> None:
    assert named("a/shop.json") == ("shop", Path("a/shop.json"))
    assert named("Shop (demo), 17=a/run.json") == ("Shop (demo), 17", Path("a/run.json"))

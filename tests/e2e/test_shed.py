"""A JVM whose trace takes longer to follow than to write: the figures shown stay young, because load is shed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.e2e.harness import Streamer, until

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
LAG = 10.0  # seconds: too old by dashboards/rules/streamer.rules.yml; usual are 1 to 3, on a busy machine too
MB = 1 << 20


def figures(streamer: Streamer) -> dict[str, float]:
    """Of the one process that is traced, by name; empty while nothing is known of it."""
    of = r'\{host="[^"]*",pid="[^"]*"\}'
    found = re.findall(rf"^streamer_(lag_seconds|\w+_bytes_total){of} (\S+)$", streamer.get("/metrics"), re.M)
    return {name: float(value) for name, value in found}


def test_an_interpreter_is_followed_as_far_as_time_allows(run: Callable[..., Streamer]) -> None:
    streamer = run("Tiny enough", env={"STREAMER_FLOW__MOST_BEHIND_SECONDS": "0.05"})
    lags: list[float] = []

    def seen(least: int) -> bool:
        now = figures(streamer)
        if "lag_seconds" in now and now["decoded_bytes_total"]:
            lags.append(now["lag_seconds"])
        return bool(now) and now["shed_bytes_total"] > 0 and now["decoded_bytes_total"] > least

    until(lambda: seen(MB), "load is shed")
    until(lambda: seen(40 * MB), "40 MB are decoded")
    streamer.enough()
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()
    assert len(lags) > 5  # a busy machine answers a scrape as it can
    assert max(lags) < LAG
    coverage = ended.summary["run"]["run"]
    assert 0 < coverage["shed"] < coverage["decoded"]
    assert ended.holes["shed"] > 0
    assert "of that by its addresses only (shed)" in " ".join(ended.out.split())
    assert sum(s["shed"] for s in ended.summary["streams"]) == coverage["shed"]
    ended.check_seen()  # by instructions

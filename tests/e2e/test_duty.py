"""A CPU budget: a JVM is traced for a random part of the time, and the page says so."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.harness import Streamer, until

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
MB = 1 << 20


def duty(streamer: Streamer) -> float:
    """Of the shortest window; 1 while nothing is known."""
    text = streamer.get("/api/hot")
    return float(json.loads(text)["duty"]) if text else 1.0


def test_a_random_part_of_the_time_is_traced(run: Callable[..., Streamer]) -> None:
    streamer = run("Tiny enough", "--cpu-budget", "20%")
    until(lambda: duty(streamer) < 0.5, "less than half of the time is traced")
    streamer.when_decoded(MB)
    until(lambda: any(m["sure"] > 0 for m in json.loads(streamer.get("/api/hot"))["methods"]), "intervals are shown")
    shown = json.loads(streamer.get("/api/hot"))
    told = streamer.component("capture/0")["statistics"]["stages"]
    streamer.enough()
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()
    assert 0 < shown["duty"] < 0.9
    assert told["budget_cpus"] == pytest.approx(0.2)
    assert 0 < told["duty_share"] <= 1
    assert ended.holes["off_duty"] > 0
    assert 0 < ended.summary["run"]["duty"] < 0.9
    assert "of the time traced" in ended.out
    ended.check_seen()


def test_what_is_no_budget_is_refused(start: Callable[..., Streamer]) -> None:
    for text in ("25", "0%", "lots", "machine:x%"):
        streamer = start("run", "--emulate", "--cpu-budget", text, "--", "java", "-version")
        ended = streamer.process.wait(60)
        assert ended != 0
        assert f"{text!r} is no CPU budget" in streamer.err

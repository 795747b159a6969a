"""What holes were filled with is counted beside all that was observed, in the same windows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from streamer.views.metrics import HubCollector
from tests.hub.reports import HOST, PID, Time, profile, report


def hub(time: Time) -> Hub:
    return Hub(WindowConfig(pane_seconds=1, windows_seconds=(2.0, 10.0)), fidelity="flow", now=time, wall_ns=time.ns)


def test_recovered_weight_is_in_no_method_and_leaves_with_its_pane() -> None:
    time = Time()
    a = hub(time)
    for pane in range(4):
        filled = profile({0: 10 * (pane + 1), 1: 1}, column="instructions")
        guessed = profile({0: 7}, column="instructions")
        a.feed(replace(report(pane, {"A.a": 100}, column="instructions"), recovered=filled, guessed=guessed))
    short, run = a.hot("2s"), a.hot(whole_run=True)
    assert (short.total, short.recovered, [m.weight for m in short.methods]) == (200, 72, [200])
    assert (run.total, run.recovered) == (400, 104)
    assert (short.json()["recovered"], short.json()["guessed"], run.guessed) == (72, 14, 28)
    late = report(2, {}, column="instructions", closed=False)
    a.feed(replace(late, recovered=profile({0: 5}, column="instructions")))
    assert a.hot("2s").recovered == 77
    ratios = {
        s.labels["window"]: s.value
        for family in HubCollector(a).collect()
        for s in family.samples
        if s.name == "streamer_window_recovered_ratio" and s.labels["weight"] == "instructions"
    }
    assert ratios == {"2s": pytest.approx(77 / 277), "10s": pytest.approx(109 / 509)}
    assert "streamer_window_guessed_ratio" in {family.name for family in HubCollector(a).collect()}
    time.seconds += 60
    assert a.hot("2s").recovered == 0
    assert a.hot(whole_run=True, process=(HOST, PID)).recovered == 109

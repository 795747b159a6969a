"""The timeline against the reports that were fed; stretches of time as windows."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from stages.messages import Clock
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from streamer.hub.stretch import parsed
from streamer.hub.timeline import BANDS, MOST_BINS, timeline
from tests.hub.reports import HOST, PID, Time, account, report
from tests.hub.scene import BEFORE, NOW, REST, scene
from tests.views.made import NOW as STACKS
from tests.views.test_flame import seen

ZERO = 1000 - 80 - 0.1
"""When the scene's pane 0 begins: 80 panes that ended a tenth of a second before 1000."""
DEFLATE = "org.apache.fop.pdf.PDFStream.deflate"
LOOKUP = "org.apache.fop.fonts.GlyphTable.lookup"


def test_each_pane_is_a_bin_with_its_work_its_methods_and_its_holes() -> None:
    hub, _ = scene(fidelity="flow", shed=400_000)
    told = timeline(hub)
    assert told.begin == pytest.approx(ZERO)
    assert (told.seconds, told.most, told.weight) == (1.0, 300, "instructions")
    assert told.panes == [1] * 80
    before, now, rest = (10_000 * sum(mixture.values()) for mixture in (BEFORE, NOW, REST))
    assert told.total == [before + rest] * 70 + [now + rest] * 9 + [now + rest]
    bands = {band.method: band.weights for band in told.bands}
    assert len(bands) == BANDS
    assert bands[LOOKUP] == [4_200_000] * 70 + [1_200_000] * 10
    assert bands[DEFLATE] == [0] * 70 + [5_000_000] * 10
    assert told.bytes[:79] == [10**6] * 79
    assert told.bytes[79] == 10**6 + 900
    assert told.lost["desync"] == [12_000 if pane % 20 == 19 else 0 for pane in range(80)]
    assert told.lost["code_missing"] == [0] * 79 + [900]
    assert "overflow" not in told.lost
    assert told.holes["overflow"] == [int(pane % 7 == 0 and pane % 20 != 19) for pane in range(80)]
    assert told.shed == [400_000] * 80
    assert told.duty == [1.0] * 80
    assert json.loads(json.dumps(told.json()))["bands"][0]["method"] == told.bands[0].method


def test_bands_are_of_the_window_that_is_asked_for() -> None:
    hub, _ = scene(fidelity="flow")
    last = timeline(hub, window="10s", most_bands=2)
    assert [(band.method, band.weights) for band in last.bands] == [
        (DEFLATE, [0] * 70 + [5_000_000] * 10),
        ("java.util.HashMap.getNode", [1_600_000] * 80),
    ]
    with pytest.raises(ValueError, match="no window"):
        timeline(hub, window="7s")


def test_a_method_that_begins_to_move_is_one_event() -> None:
    hub, _ = scene(fidelity="flow")
    (began,) = (event for event in timeline(hub).events if event.method == DEFLATE)
    assert began.pid == PID
    assert ZERO + 70 < began.time <= ZERO + 75
    assert began.before == 0
    assert began.now >= 0.02


def test_a_stretch_is_the_sum_of_the_panes_in_it() -> None:
    hub, _ = scene(fidelity="flow")
    begin = ZERO + 65
    view = hub.hot(f"{begin:.3f}..{begin + 10:.3f}", top=100)
    want = Counter({name: 50_000 * n for name, n in BEFORE.items()})
    want.update({name: 50_000 * n for name, n in NOW.items()})
    found = {m.method: m.weight for m in view.methods}
    assert found[DEFLATE] == want[DEFLATE] == 25_000_000
    assert found[LOOKUP] == want[LOOKUP]
    assert view.seconds == pytest.approx(10)
    assert view.coverage.bytes == 10**7
    assert view.windows == ("10s", "1m", "5m")
    last = hub.hot(f"{ZERO + 70:.3f}..{ZERO + 80:.3f}", top=100)
    assert [(m.method, m.weight) for m in last.methods] == [
        (m.method, m.weight) for m in hub.hot("10s", top=100).methods
    ]
    assert hub.hot(f"{ZERO - 100:.3f}..{ZERO - 50:.3f}").total == 0


def test_a_late_report_is_in_a_stretch_that_was_asked_for_before() -> None:
    hub, _ = scene(fidelity="flow")
    stretches = [f"{ZERO + first:.3f}..{ZERO + first + 2:.3f}" for first in range(60, 72, 2)]  # more than are kept
    before = [hub.hot(stretch).total for stretch in stretches]
    hub.feed(report(64, {"fresh.Code.runs": 5}, column="instructions"))
    assert [hub.hot(stretch).total - total for stretch, total in zip(stretches, before, strict=True)] == [
        0,
        0,
        5,
        0,
        0,
        0,
    ]
    assert "fresh.Code.runs" in {m.method for m in hub.hot(stretches[2], top=500).methods}


def test_a_stretch_has_its_trees_and_says_of_which_time_they_are() -> None:
    hub = seen()  # trees of panes 0 to 59, in the scene's 80
    begin = ZERO + 55
    stretch = parsed(f"{begin:.3f}..{begin + 3:.3f}")
    assert stretch is not None
    parts, _ = hub.tree_parts(str(stretch))
    assert sum(int(t.nodes["observed_instructions"].sum()) for t in parts) == 3 * sum(1000 * n for n in STACKS.values())
    told = hub.tree_stretch(stretch)
    assert (told.begin, told.end) == pytest.approx((begin, begin + 3))
    old = parsed(f"{ZERO + 12:.3f}..{ZERO + 13:.3f}")
    assert old is not None
    wide = hub.tree_stretch(old)  # of ten panes together
    assert (wide.begin, wide.end) == pytest.approx((ZERO + 10, ZERO + 20))
    assert len(hub.tree_parts(str(old))[0]) == 1


@pytest.mark.parametrize(
    "wrong", ["5..5", "6..5", "1..2..3", "a..b", "1e3..2e3", "..", "1..", "123456789012..2", "-1..2"]
)
def test_what_is_no_stretch_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"no window|before it begins"):
        scene()[0].chosen(wrong)


def test_panes_of_long_windows_share_bins_and_processes_their_time() -> None:
    clock = Time()
    hub = Hub(WindowConfig(pane_seconds=1, windows_seconds=(10, 600)), now=clock, wall_ns=clock.ns)
    for pid, shift in ((PID, 0.0), (PID + 1, 0.4)):
        zero = clock.ns() - int((600 + shift) * 1e9)
        hub.introduce(HOST, pid, Clock(mult=1, shift=0, zero=0, wall_zero=zero))
        for pane in range(600):
            hub.feed(report(pane, {"A.a": 1, "B.b": pane % 2}, pid=pid, accounts=(account(pane, pane + 1, pid=pid),)))
    told = timeline(hub)
    assert len(told.panes) <= MOST_BINS
    assert told.seconds == 2
    assert sum(told.panes) == sum(told.bytes) == 1200
    assert set(told.panes[1:-1]) == {4}
    assert sum(told.total) == 2 * (600 + 300)
    one = timeline(hub, process=(HOST, PID + 1))
    assert sum(one.panes) == 600
    with pytest.raises(ValueError, match="has no weight"):
        timeline(hub, "time")


def test_an_empty_hub_has_an_empty_timeline() -> None:
    told = timeline(Hub())
    assert (told.panes, told.bands, told.events, told.lost) == ([], [], [], {})

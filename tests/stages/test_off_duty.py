"""Time in which nothing was traced on purpose: by pane, told with the pane."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stages.images import Images
from stages.messages import Clock, OffDuty, PaneReport, PtConfig, StreamKey, StreamOpen, Watermark
from stages.profile.stage import Profile

STREAM = StreamKey("h", 7, 0, -1)
TICKS = 100


def profile() -> Profile:
    stage = Profile(images=Images(lateness_ticks=0), pane_ticks=TICKS)
    stage.feed(StreamOpen(STREAM, PtConfig(), Clock(1, 0, 0, 0)))
    return stage


def told(messages: list[object]) -> dict[int, int]:
    """Ticks by pane."""
    reports = [m for m in messages if isinstance(m, PaneReport)]
    assert len({m.pane for m in reports}) == len(reports)
    return {m.pane: m.off_ticks for m in reports if m.off_ticks}


@settings(deadline=None)
@given(some.lists(some.integers(1, 350), max_size=20))
def test_it_is_shared_out_over_panes(lengths: list[int]) -> None:
    """Every other stretch of so many ticks is off duty."""
    stage, now, off = profile(), 0, list[int]()
    for k, length in enumerate(lengths):
        if k % 2:
            assert not stage.feed(OffDuty("h", 7, now, now + length))
            off += range(now, now + length)
        now += length
    assert told(stage.flush()) == {p: n for p in range(80) if (n := sum(tick // TICKS == p for tick in off))}


def test_it_is_told_with_its_pane() -> None:
    stage = profile()
    stage.feed(OffDuty("h", 7, 250, 420))
    assert told(stage.feed(Watermark("h", 7, 400))) == {2: 50, 3: 100}
    assert told(stage.flush()) == {4: 20}


@pytest.mark.parametrize(("begin", "end"), [(50, 50), (60, 50), (0, 1 << 62)])
def test_what_cannot_be_costs_nothing(begin: int, end: int) -> None:
    stage = profile()
    stage.feed(OffDuty("h", 7, begin, end))
    assert sum(told(stage.flush()).values()) <= 3600 * TICKS

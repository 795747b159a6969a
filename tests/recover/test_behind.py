"""A live process does not wait: where the stage is behind, holes stay empty, and the window begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stages.messages import Clock, PtConfig, Recovered, StreamOpen, Watermark
from stages.messages.paths import Provenance
from stages.recover.stage import Recover
from tests.recover.made import STREAM, Row, paths
from tests.recover.test_filling import LOOP, SMALLEST, told

HZ = 1_000_000_000


class Live:
    """The stage, and its clock: `age` seconds behind the drain of each message."""

    def __init__(self) -> None:
        self.age, self.ready, self.at = 0.0, True, 0
        self.stage = Recover(window_bytes=SMALLEST, pane_ticks=HZ, now=self._now, most_behind_seconds=0.1,
                             ready=lambda: self.ready)  # fmt: skip
        self.stage.feed(StreamOpen(STREAM, PtConfig(), Clock(1, 0, 0, 0)))

    def _now(self) -> int:
        return self.at + int(self.age * HZ)

    def feed(self, row: Row, first: bool = False) -> list[Recovered]:
        self.at = row.tsc_end
        message = replace(paths([row], first), drained=self.at)
        out = self.stage.feed(message)
        assert message in out
        return told(out)

    def close(self) -> list[Recovered]:
        return told(self.stage.feed(Watermark(STREAM.host, STREAM.pid, (self.at // HZ + 1) * HZ)))

    @property
    def not_looked_for(self) -> float:
        return self.stage.statistics().get("recover_holes_not_looked_for", 0)


def row(begin: int, times: int = 4, hole: bool = False) -> Row:
    steps: Sequence[int] = LOOP * times
    return Row(7, not hole, steps, begin, begin + len(steps), begin, begin + len(steps))


def test_a_hole_that_comes_while_it_is_behind_stays_empty_and_later_ones_are_filled() -> None:
    live = Live()
    live.feed(row(0), first=True)
    live.age = 0.2
    assert live.feed(row(60, hole=True)) == []
    assert live.close() == []
    assert (live.not_looked_for, live.stage.statistics()["recover_later_steps"]) == (1, 0)
    live.age = 0.0
    live.feed(row(HZ))
    live.feed(row(HZ + 60, hole=True))
    (out,) = live.close()
    assert out.fillings["provenance"].tolist() == [Provenance.RECOVERED]
    assert out.fillings["tsc"].tolist() == [HZ + 40]


def test_a_hole_that_waits_when_it_falls_behind_is_told_as_empty() -> None:
    live = Live()
    live.feed(row(0), first=True)
    assert live.feed(row(60, hole=True)) == []
    live.age = 0.2
    (out,) = live.feed(row(100))
    assert (out.fillings["provenance"].tolist(), out.fillings["tsc"].tolist(), len(out.steps)) == ([0], [40], 0)
    assert live.not_looked_for == 1
    assert live.close() == []


def test_nothing_is_looked_for_before_its_kernels_are_there() -> None:
    live = Live()
    live.ready = False
    live.feed(row(0), first=True)
    live.feed(row(60, hole=True))
    assert (live.close(), live.not_looked_for) == ([], 1)

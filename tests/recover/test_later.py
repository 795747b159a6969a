"""Messages wait unwritten until a hole comes; its filling is the one that it had if all were written at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages import Arrival, Clock, Paths, PtConfig, Recovered, StreamOpen, ThreadEnd, ThreadKey, Watermark
from stages.messages.paths import Provenance
from stages.paths.dictionary import Dictionary
from stages.recover.later import EACH, Later
from stages.recover.stage import Recover, Recovering
from tests.recover.made import STREAM, Row, paths, step, write_at_once
from tests.recover.test_filling import LOOP, SMALLEST, _rows, told

CELLS = 1024  # of the smallest window


def stage() -> Recover:
    return Recover(window_bytes=SMALLEST, pane_ticks=1 << 60)


def process(recover: Recover) -> Recovering:
    (p,) = recover._processes.values()
    return p


def rounds(times: int, begin: int = 0, hole: bool = False, first: bool = False) -> Paths:
    steps = LOOP * times
    return paths([Row(7, not hole, steps, begin, begin + len(steps), begin, begin + len(steps))], first)


def fed(recover: Recover, messages: Sequence[Paths]) -> list[Recovered]:
    outs: list[object] = []
    for message in messages:
        outs += recover.feed(message)
    return told([*outs, *recover.flush()])


def test_without_a_hole_nothing_is_written_and_no_more_is_kept_than_the_window_holds() -> None:
    recover = stage()
    for k in range(200):
        message = rounds(10, 1000 * k, first=k == 0)
        assert recover.feed(message) == [message]
    assert process(recover).window.size[0] == 0
    assert "recover_steps" not in recover.statistics()
    assert CELLS <= recover.statistics()["recover_later_steps"] < CELLS + 10 * len(LOOP) + EACH


def test_a_hole_is_filled_with_what_was_kept() -> None:
    recover = stage()
    messages = [rounds(10, 1000 * k, first=k == 0) for k in range(50)]
    lost = 2 * len(LOOP)
    behind = rounds(3, 49_000 + 10 * len(LOOP) + lost, hole=True)
    (out,) = fed(recover, [*messages, behind])
    assert out.fillings["provenance"].tolist() == [Provenance.RECOVERED]
    assert out.steps.tolist() == [step(block) for block in LOOP * 2]


def test_it_is_written_as_it_comes_as_long_as_a_hole_waits() -> None:
    recover = Recover(window_bytes=SMALLEST, pane_ticks=1000)
    recover.feed(StreamOpen(STREAM, PtConfig(), Clock(1, 0, 0, 0)))
    recover.feed(rounds(10, first=True))
    recover.feed(rounds(3, 120, hole=True))
    written = 13 * len(LOOP) + 4  # and ties
    assert process(recover).window.size[0] == written
    recover.feed(rounds(10, 150))
    written += 10 * len(LOOP)  # directly behind
    assert process(recover).window.size[0] == written
    (out,) = told(recover.feed(Watermark(STREAM.host, STREAM.pid, 1000)))
    assert out.fillings["provenance"].tolist() == [Provenance.RECOVERED]
    for k in range(100):  # much is dropped
        recover.feed(rounds(10, 4000 + 200 * k))
    assert process(recover).window.size[0] == written
    (out,) = fed(recover, [rounds(3, 24_000 + 100 + 2 * len(LOOP), hole=True)])
    assert out.fillings["provenance"].tolist() == [Provenance.RECOVERED]
    assert process(recover).window.size[0] < 2 * CELLS  # it began anew


def test_of_a_large_message_no_more_is_written_than_a_hole_needs() -> None:
    recover, rows, tsc = stage(), [], 0
    for k in range(400):
        lost = 2 * len(LOOP) if k == 200 else 0
        steps = LOOP * 10
        rows.append(Row(7, not lost, steps, tsc + lost, tsc + lost + len(steps), tsc + lost, tsc + lost + len(steps)))
        tsc = rows[-1].tsc_end
    (out,) = told(recover.feed(paths(rows)))
    assert out.steps.tolist() == [step(block) for block in LOOP * 2]
    assert CELLS < recover.statistics()["recover_steps"] < CELLS + CELLS // 4 + 2 * CELLS // 8 + len(LOOP) * 10
    assert recover.statistics()["recover_later_steps"] > 100 * 150
    behind = Row(7, False, LOOP * 3, tsc + 20, tsc + 50, tsc + 20, tsc + 50)
    (out,) = fed(recover, [paths([behind], first=False)])  # the rest is there, and what is too old is left out
    assert out.steps.tolist() == [step(block) for block in LOOP * 2]
    assert recover.statistics()["recover_steps"] < 3 * CELLS


def late_and_behind(lost: int = 0) -> list[Paths]:
    """A thread that came to another CPU before the last 50 bytes of the first were seen; then the hole behind them."""
    rows = [
        Row(7, True, LOOP * 10, 0, 100, 0, 100), Row(7, True, LOOP * 10, 200, 300, 200, 300),
        Row(7, False, LOOP * 5, 100, 150, 100, 150, arrival=Arrival.LATE, cpu=1),
        Row(7, False, LOOP * 5, 300 + lost, 350 + lost, 300 + lost, 350 + lost,
            arrival=Arrival.IN_ORDER if lost else Arrival.BEHIND_LATE),
    ]  # fmt: skip
    return [paths([row], first=k == 0) for k, row in enumerate(rows)]


def test_late_trace_is_no_hole() -> None:
    """Nothing is lost where a thread goes to another CPU, and nothing is written."""
    recover = stage()
    assert fed(recover, late_and_behind()) == []
    assert process(recover).window.size[0] == 0


def test_a_hole_behind_late_trace_begins_where_the_trace_in_order_ends() -> None:
    (out,) = fed(stage(), late_and_behind(lost=20))
    assert [(f["tsc"], f["tsc_end"], f["expected"]) for f in out.fillings] == [(300, 320, 20)]
    assert out.steps.tolist() == [step(block) for block in LOOP * 2]


@given(_rows(), st.lists(st.booleans(), min_size=9, max_size=9))
@settings(max_examples=100, deadline=None)
def test_fillings_are_those_of_a_window_that_is_always_written(rows: list[Row], cuts: list[bool]) -> None:
    parts: list[list[Row]] = [[]]
    for row, cut in zip(rows, cuts, strict=False):
        if cut and parts[-1]:
            parts.append([])
        parts[-1].append(row)
    messages = [paths(part, first=k == 0) for k, part in enumerate(parts)]
    lazy = fed(stage(), messages)
    with pytest.MonkeyPatch.context() as patch:
        write_at_once(patch)
        eager = fed(stage(), messages)
    for one, other in zip(lazy, eager, strict=True):
        assert one.fillings.tolist() == other.fillings.tolist()
        assert one.steps.tolist() == other.steps.tolist()


def test_a_thread_that_ends_among_kept_messages_keeps_no_slot_and_its_number_is_another_thread() -> None:
    recover = stage()
    for k in range(5):
        recover.feed(paths([Row(k, False, LOOP, 0, 100)], first=k == 0))
        recover.feed(ThreadEnd(ThreadKey(STREAM.host, STREAM.pid, k), STREAM, 0))
    recover.feed(paths([Row(3, False, LOOP, 200, 300)], first=False))
    assert not process(recover).window.size[0]  # another thread: no hole
    recover.feed(paths([Row(3, False, LOOP, 400, 500)], first=False))
    assert process(recover).window.size[0]
    assert recover.statistics()["recover_threads"] == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=20))
@settings(deadline=None)
def test_steps_are_counted_without_being_gone_through(runs: list[tuple[int, int]]) -> None:
    steps = [block for block, times in runs for _ in range(times)]
    message, d, later = paths([Row(1, True, steps, 0, 1)], folded=True), Dictionary(), Later()
    d.take(message)
    later.add(message, d)
    assert later.steps == len(steps) + EACH

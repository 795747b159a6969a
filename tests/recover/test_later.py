"""Messages wait unwritten until a hole comes; its filling is the one that it had if all were written at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages import Paths, Recovered, ThreadEnd, ThreadKey
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


def test_it_is_written_at_once_until_a_window_without_a_hole_has_come() -> None:
    recover = stage()
    recover.feed(rounds(10, first=True))
    recover.feed(rounds(3, 1000, hole=True))
    assert process(recover).at_once
    recover.feed(rounds(10, 2000))
    assert process(recover).at_once
    recover.flush()
    while process(recover).at_once:
        recover.feed(rounds(10, 3000))
    size = int(process(recover).window.size[0])
    assert size >= CELLS
    for k in range(100):  # much is dropped
        recover.feed(rounds(10, 4000 + 200 * k))
    assert int(process(recover).window.size[0]) == size
    (out,) = fed(recover, [rounds(3, 24_000 + 100 + 2 * len(LOOP), hole=True)])
    assert out.fillings["provenance"].tolist() == [Provenance.RECOVERED]
    assert int(process(recover).window.size[0]) < 2 * CELLS  # it began anew


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
    assert not process(recover).at_once
    recover.feed(paths([Row(3, False, LOOP, 200, 300)], first=False))
    assert not process(recover).at_once  # another thread: no hole
    recover.feed(paths([Row(3, False, LOOP, 400, 500)], first=False))
    assert process(recover).at_once
    assert recover.statistics()["recover_threads"] == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=20))
@settings(deadline=None)
def test_steps_are_counted_without_being_gone_through(runs: list[tuple[int, int]]) -> None:
    steps = [block for block, times in runs for _ in range(times)]
    message, d, later = paths([Row(1, True, steps, 0, 1)], folded=True), Dictionary(), Later()
    d.take(message)
    later.add(message, d)
    assert later.steps == len(steps) + EACH

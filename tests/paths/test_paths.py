"""Reading `Paths`: the dictionaries, and an order's word on each block, against the obvious way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages.paths import FIRST_PATH, PATH_DTYPE
from stages.paths.counts import BlockCounts
from stages.paths.dictionary import Dictionary, DictionaryError
from stages.paths.groups import grouped
from tests.paths.made import Flow, flows, instructions, message, parts

NOTHING = np.zeros(0, PATH_DTYPE)


@settings(deadline=None)
@given(flows(), st.data())
def test_the_address_of_each_instruction(flow: Flow, data: st.DataObject) -> None:
    known = Dictionary()
    assert known.take(message(flow))
    blocks = data.draw(st.lists(st.integers(0, len(flow.blocks) - 1), max_size=5))
    addresses, first = known.addresses(np.array(blocks, np.int64))
    expected = list[list[int]]()
    for block in blocks:
        expected.append([])
        for lo, lengths in flow.blocks[block].ranges:
            expected[-1] += [lo + sum(lengths[:k]) for k in range(len(lengths))]
    assert [addresses[a:b].tolist() for a, b in pairwise(first.tolist())] == expected


def walked(flow: Flow, pane_ticks: int) -> tuple[Counter[tuple[int, int, int, int]], Counter[tuple[int, int, int]]]:
    """(pane, thread, block, way) → times; (pane, thread, block) → ticks."""
    times: Counter[tuple[int, int, int, int]] = Counter()
    ticks: Counter[tuple[int, int, int]] = Counter()
    latest: Counter[int] = Counter()  # panes, by thread
    for row in flow.rows:
        gone = {k for a, b in row.suspect for k in range(a, b)}
        for (a, since), (b, until) in pairwise(row.stops):
            latest[row.tid] = pane = max(latest[row.tid], since // pane_ticks)
            taken: list[int] = []
            for k in range(a, b):
                x = row.order[k]
                if k not in gone:
                    taken += [x] if x >= 0 else [taken[-1]] * -x
            total = sum(instructions(flow, x) for x in taken)
            for x in taken:
                for block, way in parts(flow, x):
                    times[pane, row.tid, block, way] += 1
                    size = sum(len(each) for _, each in flow.blocks[block].ranges)
                    ticks[pane, row.tid, block] += (until - since) * size / total if total else 0  # type: ignore[assignment]
    return times, ticks


@settings(max_examples=300, deadline=None)
@given(flows(), st.integers(1, 300))
def test_each_block_is_counted_by_thread_pane_and_way(flow: Flow, pane_ticks: int) -> None:
    known, counts = Dictionary(), BlockCounts()
    told = message(flow)
    known.take(told)
    for _ in range(2):  # nothing is left in the scratch memory
        groups, rows = grouped(told, pane_ticks)
        found = counts(
            known, rows, told.order, told.stops["order"].copy(), told.stops["tsc"].astype(np.int64),
            told.breaks["confirmed"].copy(), told.breaks["order"].copy(),
        )  # fmt: skip
        times: Counter[tuple[int, int, int, int]] = Counter()
        ticks: Counter[tuple[int, int, int]] = Counter()
        for group, block, way, n, spent in zip(*(column.tolist() for column in found), strict=True):
            pane, tid = groups[group][["pane", "tid"]].tolist()
            assert (pane, tid, block, way) not in times
            times[pane, tid, block, way] += n
            ticks[pane, tid, block] += spent
        expected_times, expected_ticks = walked(flow, pane_ticks)
        assert times == expected_times
        assert {key: pytest.approx(n) for key, n in expected_ticks.items() if n} == {
            k: n for k, n in ticks.items() if n
        }


@settings(max_examples=300, deadline=None)
@given(flows(), st.data())
def test_parts_of_a_thread_stay_in_their_order(flow: Flow, data: st.DataObject) -> None:
    """Whatever their times are: a piece's clock may begin behind that of its first packet, as behind a long sleep."""
    told = message(flow)
    told.stops["tsc"] = data.draw(st.lists(st.integers(0, 50), min_size=len(told.stops), max_size=len(told.stops)))
    groups, rows = grouped(told, 10)
    for tid in set(told.rows["tid"].tolist()):
        own = groups["tid"][rows.group] == tid
        assert rows.row[own].tolist() == sorted(rows.row[own].tolist())
        for row in set(rows.row[own].tolist()):
            of = own & (rows.row == row)
            assert rows.stop[of][1:].tolist() == (rows.stop_end[of][:-1] - 1).tolist()
            assert (rows.stop[of][0], rows.stop_end[of][-1]) == tuple(told.rows[row][["stop", "stop_end"]].tolist())


@settings(deadline=None)
@given(flows(), flows())
def test_dictionaries_grow_and_begin_anew(flow: Flow, other: Flow) -> None:
    known = Dictionary()
    whole = message(flow)
    assert known.take(whole)
    more = replace(
        whole, rows=whole.rows[:0], first_block=known.blocks.size, blocks=whole.blocks[:0], ranges=whole.ranges[:0],
        lengths=whole.lengths[:0], first_path=known.paths.size, paths=NOTHING, links=whole.links[:0],
    )  # fmt: skip
    assert not known.take(more)
    with pytest.raises(DictionaryError):
        known.take(replace(more, first_path=known.paths.size + 1))
    assert known.take(message(other, generation=2))
    assert known.blocks.size == len(other.blocks)
    assert known.paths.size == FIRST_PATH + len(other.paths)


def test_a_reader_that_missed_a_message_says_so() -> None:
    known = Dictionary()
    late = replace(message(Flow([], [], [])), first_block=7)
    with pytest.raises(DictionaryError, match="blocks from 7 and paths from 3 on, but 0 and 3 are known"):
        known.take(late)

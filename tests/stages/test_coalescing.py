"""Pieces that follow each other are joined, and nothing else is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from jvm.code.image import CodeImage
from jvm.code.version import FOREVER
from stages.follow.coalescing import MOST, TOGETHER
from stages.follow.coalescing import segments as segments_of
from stages.follow.follower import Follower
from stages.images import Process
from stages.messages import MARK_DTYPE, Segment, StreamKey, ThreadKey
from stages.messages.columns import joined as one_behind_the_other
from stages.ready.stage import Held, _pieces


def piece(offset: int, size: int, tsc: int, tid: int = 1, continues: bool = True, cpu: int = 0) -> Segment:
    data = np.arange(offset, offset + size).astype(np.uint8)
    marks = np.zeros(1, MARK_DTYPE)
    marks["offset"], marks["tsc"] = offset, tsc
    return Segment(ThreadKey("", 1, tid), StreamKey("", 1, cpu, 0), 0, offset, data, marks, 7, tsc, tsc + 5, continues)


def joined(segments: list[Segment], quantum: int = 1 << 40, changes: list[int] | None = None) -> list[Segment]:
    if not segments:
        return []
    pieces = _pieces(Held(Process(("", 1), CodeImage())), segments, False)
    return [one for one, _, _ in segments_of(pieces, quantum, changes)]


def told(segments: list[Segment]) -> list[tuple[int, int, int, int, int]]:
    return [(s.thread.tid, s.offset, len(s.data), s.tsc, s.tsc_end) for s in segments]


@pytest.mark.parametrize("sizes", [(3,), (2, 0, 4), (0, 0)])
def test_records_are_joined_as_numpy_does(sizes: tuple[int, ...]) -> None:
    parts = [np.zeros(2 * n, MARK_DTYPE)[::2] for n in sizes]
    for n, part in enumerate(parts):
        part["offset"], part["kind"] = np.arange(len(part)) + 10 * n, n
    whole = one_behind_the_other(parts)
    assert whole.dtype == MARK_DTYPE
    assert np.array_equal(whole, np.concatenate(parts))
    assert not np.shares_memory(whole, parts[0])


def test_what_follows_is_joined() -> None:
    (one,) = joined([piece(10, 5, 100, continues=False), piece(15, 3, 105), piece(18, 1, 110)])
    assert told([one]) == [(1, 10, 9, 100, 115)]
    assert not one.continues
    assert one.data.tolist() == list(range(10, 19))
    assert one.marks["offset"].tolist() == [10, 15, 18]


def test_a_hole_another_stream_and_another_slot_are_kept_apart() -> None:
    pieces = [piece(0, 5, 100), piece(6, 5, 105), piece(11, 5, 110, cpu=1), piece(16, 5, 115, cpu=1, continues=False)]
    assert len(joined(pieces)) == 4
    assert len(joined([piece(0, 5, 100), piece(5, 5, 105)], 5)) == 2
    assert len(joined([piece(0, 5, 100), piece(5, 5, 106)])) == 2  # it did not run in between
    assert len(joined([piece(0, MOST, 100), piece(MOST, 1, 105)])) == 2


def test_quanta_that_end_with_the_same_code_are_joined() -> None:
    pieces = [piece(5 * k, 5, 5 * k) for k in range(12)]  # they end in the quanta from 1 to 12
    assert [len(s.data) // 5 for s in joined(pieces, 5)] == [1] * 12
    assert [len(s.data) // 5 for s in joined(pieces, 5, [])] == [TOGETHER - 1, TOGETHER, 12 - 2 * TOGETHER + 1]
    assert [len(s.data) // 5 for s in joined(pieces, 5, [3, 4, 6])] == [2, 1, 1, 1, 4, 3]


@given(some.lists(some.integers(1, 99), unique=True), some.integers(1, 8))
def test_quanta_that_end_with_other_code(changes: list[int], quantum: int) -> None:
    """As told by what is seen at the end of each."""
    image = SimpleNamespace(next_change=lambda tsc: min((at for at in changes if at > tsc), default=FOREVER))
    follower: Any = SimpleNamespace(_image=image, _quantum=quantum)
    seen = [{at for at in changes if at <= (k + 1) * quantum} for k in range(100)]
    expected = [k for k in range(2, 100) if seen[k] != seen[k - 1]]
    assert Follower.changes(follower, 1, 99) == expected


def test_other_threads_lie_in_between() -> None:
    pieces = [piece(0, 5, 100), piece(0, 5, 101, tid=2, cpu=1), piece(5, 5, 105), piece(5, 5, 106, tid=2, cpu=1)]
    assert told(joined(pieces)) == [(1, 0, 10, 100, 110), (2, 0, 10, 101, 111)]


@given(
    some.lists(some.tuples(some.integers(1, 3), some.integers(0, 4), some.booleans(), some.integers(0, 2)), max_size=30)
)
def test_nothing_is_lost_and_order_is_kept(rows: list[tuple[int, int, bool, int]]) -> None:
    pieces, at = [], {1: 0, 2: 0, 3: 0}
    for k, (tid, size, continues, gap) in enumerate(rows):
        pieces.append(piece(at[tid] + gap, size, 5 * k, tid, continues, tid))
        at[tid] += gap + size
    out = joined(pieces, 50)
    for tid in at:
        mine, got = ([s for s in those if s.thread.tid == tid] for those in (pieces, out))
        assert [b for s in mine for b in s.data.tolist()] == [b for s in got for b in s.data.tolist()]
        assert sum(not s.continues for s in mine) == sum(not s.continues for s in got)
        assert all(s.tsc_end // 50 == o.tsc_end // 50 for o in got for s in mine if o.tsc <= s.tsc < o.tsc_end - 5)
    assert [s.tsc for s in out] == sorted(s.tsc for s in out)

"""Rows of `Paths` written out as blocks, against a few lines of Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.flow_truth.reader import BROKE_OFF, SWITCHED_OFF, WHOLE, Reader, cause_name
from stages.follow.walk.state import B_OVERFLOW, BREAK_NAMES
from stages.messages import Paths
from stages.messages.paths import BREAK, DISABLED, EMPTY, FIRST_PATH, OVERFLOW, BlockEnd
from stages.paths.dictionary import DictionaryError
from tests.truth.told import Break, told

BLOCKS = [
    (0x1000 * n, BlockEnd.CONDITION if n % 3 else BlockEnd.INDIRECT, [(0x1000 * n, 0x1000 * n + 4)] * 2)
    for n in range(1, 7)
]
GUESSED = [0, 0, 0, 1, 2, 1]


@st.composite
def messages(draw: st.DrawFn) -> tuple[Paths, list[tuple[int, int]]]:
    """And their meaning: block and how much of it is doubtful."""
    blocks = st.lists(st.integers(0, len(BLOCKS) - 1), min_size=1, max_size=4)
    paths = draw(st.lists(blocks, min_size=1, max_size=5))
    whole = st.lists(st.integers(FIRST_PATH, FIRST_PATH + len(paths) - 1), min_size=1, max_size=4)
    made = draw(st.lists(whole, max_size=3))
    means = {FIRST_PATH + n: each for n, each in enumerate(paths)}
    means |= {
        FIRST_PATH + len(paths) + n: [b for p in each for b in paths[p - FIRST_PATH]] for n, each in enumerate(made)
    }
    order, breaks, expected = list[int](), list[Break](), list[tuple[int, int]]()
    begin = 0  # in `order`, behind the last break
    begins = list[int]()  # in `expected`, of each number of `order`
    for number in draw(st.lists(st.sampled_from([*means, DISABLED, BREAK, EMPTY]), max_size=20)):
        begins.append(len(expected))
        order.append(number)
        if number == DISABLED:
            expected.append((SWITCHED_OFF, 0))
        elif number == BREAK:
            sure = draw(st.integers(begin, len(order) - 1))
            for k in range(begins[sure], len(expected)):
                expected[k] = expected[k][0], int(WHOLE) if expected[k][0] >= 0 else 0
            breaks.append(Break(len(order) - 1, 1 + len(breaks) % 9, sure, 100 * len(order)))
            expected.append((BROKE_OFF, 0))
            begin = len(order)
        else:
            more = draw(st.integers(0, 3)) if number != EMPTY else 0
            once = [(b, 0) for b in means.get(number, [])]
            expected += once
            if more:
                begins.append(len(expected))
                order.append(-more)
                expected += once * more
    guess = False
    for k, (b, doubtful) in enumerate(expected):
        if b >= 0:
            expected[k] = b, int(WHOLE) if guess else doubtful or GUESSED[b]
            guess = (guess or GUESSED[b] > 0) and BLOCKS[b][1] == BlockEnd.CONDITION
        else:
            guess = False
    return told(BLOCKS, paths, order, breaks, made, GUESSED), expected


@settings(deadline=None)
@given(messages())
def test_a_row_is_its_blocks_one_after_the_other(case: tuple[Paths, list[tuple[int, int]]]) -> None:
    message, expected = case
    reader = Reader()
    ((_, taken),) = reader.rows(message)
    marks = np.where(taken.blocks < 0, 0, taken.doubtful)
    assert list(zip(taken.blocks.tolist(), marks.tolist(), strict=True)) == expected
    assert taken.break_offset.tolist() == message.breaks["offset"].tolist()
    assert taken.break_cause.tolist() == message.breaks["cause"].tolist()
    assert reader.code.start.tolist() == [start for start, *_ in BLOCKS]


def test_numbers_mean_the_same_in_the_next_message_and_something_else_in_the_next_generation() -> None:
    reader = Reader()
    list(reader.rows(told(BLOCKS[:2], [[0], [1]], [])))
    more = told(BLOCKS[2:3], [[2, 0]], [FIRST_PATH + 2, FIRST_PATH])
    more.ranges["lo"], more.paths["link"], more.blocks["range"] = BLOCKS[2][0], 2, 4
    ((_, taken),) = reader.rows(replace(more, first_block=2, first_path=FIRST_PATH + 2))
    assert [int(reader.code.start[b]) for b in taken.blocks] == [0x3000, 0x1000, 0x1000]
    anew = replace(told(BLOCKS[4:], [[0]], [FIRST_PATH]), generation=2)
    ((_, taken),) = reader.rows(anew)
    assert [int(reader.code.start[b]) for b in taken.blocks] == [0x5000]


def test_a_message_that_went_missing_is_noticed() -> None:
    reader = Reader()
    with pytest.raises(DictionaryError, match="blocks from 2"):
        list(reader.rows(replace(told(BLOCKS[2:3], [[0]], []), first_block=2)))


def test_every_cause_has_its_name() -> None:
    """The same that the walker's own statistics have."""
    assert [cause_name(n) for n in range(1, len(BREAK_NAMES) + 1)] == list(BREAK_NAMES)
    assert OVERFLOW == B_OVERFLOW

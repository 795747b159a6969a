from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.messages import Loss
from streamer.hub.profile import COLUMNS, HITS, MethodTable
from streamer.hub.windows import BYTES, DECODED, Windows

SPANS = [(2, 0), (5, 0), (3, 2)]


def rows_of(hits: dict[str, int]) -> np.ndarray:
    rows = np.zeros((len(hits), COLUMNS), np.uint64)
    rows[:, HITS] = list(hits.values())
    return rows


def bytes_row(decoded: int, desync: int = 0) -> np.ndarray:
    row = np.zeros(BYTES, np.int64)
    row[DECODED], row[Loss.DESYNC] = decoded, desync
    return row


def in_window(windows: Windows, index: int) -> dict[str, int]:
    hits = windows.windows[index].rows[:, HITS]
    return {windows.table.names[i]: int(hits[i]) for i in np.flatnonzero(hits)}


HITS_OF = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, (1 << 64) - 1), max_size=4)
STEPS = st.lists(
    st.one_of(st.tuples(st.just("add"), st.integers(0, 14), HITS_OF), st.tuples(st.just("close"), st.integers(0, 14)))
)


@given(STEPS)
def test_windows_are_the_sums_of_their_panes(steps: list[tuple[Any, ...]]) -> None:
    """Against the definition: keep all panes, sum those in range, in any order, with gaps and late reports."""
    windows = Windows(MethodTable(), SPANS, HITS)
    panes: dict[int, Counter[str]] = defaultdict(Counter)
    newest = None
    expired = late = 0
    run: Counter[str] = Counter()
    for kind, number, *rest in steps:
        if kind == "close":
            windows.close(number)
            newest = number if newest is None else max(newest, number)
        else:
            windows.add(number, list(rest[0]), rows_of(rest[0]), bytes_row(len(rest[0])))
            run.update(rest[0])
            late += newest is not None and number <= newest
            if newest is not None and number <= newest - 5:
                expired += 1
            else:
                panes[number].update(rest[0])
        for index, (length, delay) in enumerate(SPANS):
            expected: Counter[str] = Counter()
            if newest is not None:
                for n in range(newest - delay - length + 1, newest - delay + 1):
                    expected.update(panes.get(n, {}))
            assert in_window(windows, index) == {k: v % (1 << 64) for k, v in expected.items() if v % (1 << 64)}
    assert (windows.newest, windows.late, windows.expired) == (newest, late, expired)
    totals = windows.table.run[:, HITS]
    assert {windows.table.names[i]: int(totals[i]) for i in np.flatnonzero(totals)} == {
        k: v % (1 << 64) for k, v in run.items() if v % (1 << 64)
    }


@given(STEPS)
def test_names_are_released_with_their_panes(steps: list[tuple[Any, ...]]) -> None:
    windows = Windows(MethodTable(), SPANS, HITS)
    for kind, number, *rest in steps:
        if kind == "close":
            windows.close(number)
        else:
            windows.add(number, list(rest[0]), rows_of(rest[0]), bytes_row(0))
    windows.close(1000)
    windows.close(2000)
    assert not windows.table._held.any()
    assert not windows.windows[1].rows.any()


def test_a_pane_keeps_its_heaviest_methods_and_sums_the_rest() -> None:
    windows = Windows(MethodTable(), SPANS, HITS, pane_methods=3)
    hits = {f"m{i}": i for i in range(1, 11)}
    windows.add(0, list(hits), rows_of(hits), bytes_row(0))
    windows.close(0)
    assert in_window(windows, 0) == {"m10": 10, "m9": 9, "m8": 8, "other": sum(range(1, 8))}
    assert windows.trimmed == 7
    late = {"m1": 100}
    windows.add(0, list(late), rows_of(late), bytes_row(0))
    assert sum(in_window(windows, 0).values()) == sum(hits.values()) + 100
    assert in_window(windows, 0)["m1"] == 100


def test_bytes_follow_the_panes() -> None:
    windows = Windows(MethodTable(), SPANS, HITS)
    for n in range(8):
        windows.add(n, [], rows_of({}), bytes_row(100 + n, desync=n))
        windows.close(n)
    assert windows.windows[0].bytes.tolist() == (bytes_row(106, 6) + bytes_row(107, 7)).tolist()
    assert [pane.number for pane in windows.panes(windows.windows[2])] == [3, 4, 5]


def test_too_many_open_panes_close_from_the_oldest() -> None:
    windows = Windows(MethodTable(), SPANS, HITS, max_open=4)
    for n in range(10):
        windows.add(n, ["a"], rows_of({"a": 1}), bytes_row(0))
    assert windows.newest == 5
    assert windows.open_panes() == [6, 7, 8, 9]

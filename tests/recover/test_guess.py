"""Ways through holes that nothing fills, against a plain shortest path; counted apart to the last table."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.images import Images
from stages.messages import PaneReport
from stages.messages.paths import Provenance
from stages.profile.stage import Profile
from stages.recover import guess, window
from stages.recover.stage import Recover
from tests.recover.made import STREAM, Row, paths, step
from tests.recover.test_filling import LOOP, SMALLEST, filling, told


def guessed(rows: list[Row]) -> list[object]:
    stage = Recover(window_bytes=SMALLEST, pane_ticks=1 << 60, guesses=True)
    return [*stage.feed(paths(rows)), *stage.flush()]


def edges_of(runs: list[list[int]]) -> guess.Edges:
    """Of steps that ran so; the window holds them with ties between."""
    w = window.empty(SMALLEST)
    cells = [c for run in runs for c in (window.TIE_BACK, *run, window.TIE_ON)]
    w.steps[: len(cells)] = cells
    w.size[0] = len(cells)
    edges = guess.with_room(guess.empty(), 16)
    assert guess.count(w, edges, 1 << 20)
    return edges


def naive(runs: list[list[int]], a: int, b: int) -> float:
    """How far it is from `a` to `b`, by at least one edge (Bellman–Ford); infinite: there is no way."""
    times = Counter(edge for run in runs for edge in pairwise(run))
    left = Counter(edge[0] for run in runs for edge in pairwise(run))
    away = {y: math.log(left[a] / n) for (x, y), n in times.items() if x == a}
    for _ in range(len(left)):
        for (x, y), n in times.items():
            if x in away and away[x] + math.log(left[x] / n) < away.get(y, math.inf) - 1e-12:
                away[y] = away[x] + math.log(left[x] / n)
    return away.get(b, math.inf)


@given(st.lists(st.lists(st.integers(0, 7), min_size=2, max_size=12), min_size=1, max_size=6), st.data())
@settings(max_examples=200, deadline=None)
def test_the_way_is_a_likeliest_one(runs: list[list[int]], data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, 7)), data.draw(st.integers(0, 7))
    edges = edges_of(runs)
    way = [a, *guess.likeliest(edges, np.int32(a), np.int32(b)).tolist(), b]
    times = Counter(edge for run in runs for edge in pairwise(run))
    left = Counter(edge[0] for run in runs for edge in pairwise(run))
    best = naive(runs, a, b)
    if math.isinf(best):
        assert way == [a, b]
    else:
        assert sum(math.log(left[x] / times[x, y]) for x, y in pairwise(way)) == pytest.approx(best)
    assert (edges.away < 0).all()  # as it was


def test_a_hole_that_nothing_fills_is_guessed_and_counted_apart() -> None:
    """From 3 to 9 twice over 4 5, once over 20; nowhere did the steps before the hole and those behind it run alike."""
    rows = [
        Row(7, True, [1, 2, 3, 4, 5, 6, 7, 8, *[1, 2, 3, 4, 5, 6, 7, 8], *[1, 2, 3, 20, 7]], 0, 210, 0, 210),
        Row(8, True, [30, 31, 8, 9, 10, 11, 12, 13], 0, 80, 210, 290),
        Row(9, True, [40, 41, 42, 3], 0, 40, 290, 330),
        Row(9, False, [8, 9, 10, 11, 12, 13], 100, 160, 390, 450),
    ]
    outputs = guessed(rows)
    (out,) = told(outputs)
    assert out.fillings["provenance"].tolist() == [Provenance.GUESSED]
    assert filling(out) == [4, 5, 6, 7]  # the 8 is there
    images = Images()
    profile = Profile(images=images, pane_ticks=1000)
    reports = [r for r in [*(x for o in outputs for x in profile.feed(o)), *profile.flush()]
               if isinstance(r, PaneReport)]  # fmt: skip
    assert sum(int(r.guessed["instructions"].sum()) for r in reports) == 4
    assert sum(len(r.recovered) for r in reports) == 0
    assert sum(int(r.profile["instructions"].sum()) for r in reports) == sum(len(row.steps) for row in rows)


def test_a_way_longer_than_the_hole_is_none() -> None:
    tail = list(range(20, 60))
    rows = [
        Row(7, True, [1, *tail, 2, 3, 4, 5, 6], 0, 460, 0, 460),
        Row(9, True, [8, 9, 10, 1], 460, 500, 460, 500),
        Row(9, False, [2, 3, 4, 5, 6], 505, 555, 505, 555),
    ]
    (out,) = told(guessed(rows))
    assert (out.fillings["provenance"].tolist(), len(out.steps)) == ([0], 0)


def test_nothing_is_guessed_unless_asked_for() -> None:
    rows = [Row(7, True, LOOP * 3, 0, 300, 0, 300), Row(7, False, [20, 21, 22, 23, 24, 25], 320, 380, 320, 380)]
    stage = Recover(window_bytes=SMALLEST, pane_ticks=1 << 60)
    (out,) = told([*stage.feed(paths(rows)), *stage.flush()])
    assert (int(out.fillings["provenance"][0]), len(out.steps)) == (0, 0)
    assert STREAM.pid == out.pid
    assert step(20) not in out.steps

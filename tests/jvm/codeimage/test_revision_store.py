"""Revisions in order and the times at which views change, kept up to date, against all of them anew."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jvm.code.revision_store import RevisionStore
from jvm.code.version import FOREVER

TIMES = st.sampled_from((0, 3, 5, 8, 13, FOREVER))
ROWS = st.tuples(st.integers(0, 6), st.integers(1, 4), TIMES, TIMES, st.just(0), st.integers(1, 9))


@given(st.lists(st.tuples(st.lists(ROWS, max_size=80), st.integers(0, 14)), max_size=4))
def test_a_store_that_grows(turns: list[tuple[list[tuple[int, ...]], int]]) -> None:
    store = RevisionStore()
    for come, now in turns:
        for start, size, since, until, at, id_ in come:
            store.revisions.add((start, start + size, since, until, at, id_))
        store.changed()
        rows = store.revisions.rows
        expected = sorted(range(len(rows)), key=lambda n: (rows["start"][n], -int(rows["end"][n]), rows["id"][n], n))
        assert store._in_order.take(rows).tolist() == expected
        times = {int(t) for row in rows if row["since"] < row["until"] for t in (row["since"], row["until"])}
        for tsc in (now, 0, now + 1):
            assert store.next_change(tsc) == min((t for t in times if t > tsc), default=FOREVER)
        assert np.array_equal(store.view(now, 0).start, np.sort(store.view(now, 0).start))

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.profile.panes import COLUMNS, ROW_DTYPE, Pane

row = st.tuples(st.integers(0, 3), st.integers(-2, 2), *(st.integers(0, 1 << 62) for _ in COLUMNS))


@given(st.lists(st.lists(row, max_size=4), max_size=6))
def test_a_pane_is_one_row_a_site_and_thread(parts: list[list[tuple[int, ...]]]) -> None:
    pane, expected = Pane(), [Counter[tuple[int, int]]() for _ in COLUMNS]
    for part in parts:
        pane.add(np.array(part, ROW_DTYPE))
        for site, tid, *counts in part:
            for column, count in zip(expected, counts, strict=True):
                column[site, tid] = (column[site, tid] + count) % (1 << 64)
    found = pane.sum()
    keys = list(zip(found["site"].tolist(), found["tid"].tolist(), strict=True))
    assert len(set(keys)) == len(keys)
    assert set(keys) == {(site, tid) for part in parts for site, tid, *_ in part}
    for name, column in zip(COLUMNS, expected, strict=True):
        assert dict(zip(keys, found[name].tolist(), strict=True)) == dict.fromkeys(keys, 0) | dict(column)

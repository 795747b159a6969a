"""What a view of the code has in common with the one before, against sets of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.follow.code.code_copy import _part

ROWS = st.dictionaries(st.integers(0, 12), st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(0, 1)))


def columns(rows: dict[int, tuple[int, int, int]]) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    table = np.array([(start, *rest) for start, rest in sorted(rows.items())], np.int64).reshape(-1, 4).T.copy()
    return [column.view(np.uint64) if k < 2 else column for k, column in enumerate(table)]


@settings(deadline=None)
@given(ROWS, ROWS)
def test_rows_that_are_in_both(
    new: dict[int, tuple[int, int, int]], old: dict[int, tuple[int, int, int]]
) -> None:  # fmt: skip
    fresh, gone = np.ones(len(new), np.bool_), np.ones(len(old), np.bool_)
    differ = _part(*columns(new), *columns(old), fresh, gone)
    assert fresh.tolist() == [row not in old.items() for row in sorted(new.items())]
    assert gone.tolist() == [row not in new.items() for row in sorted(old.items())]
    assert differ == (new != old)

"""Hash tables of rows, against dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.cct.nodes import child_of, rename
from stages.cct.tables import FEWEST_SLOTS, ROW_BITS, Z_NODES, Z_PARENTS, empty
from stages.columns import table

Key = tuple[int, int, int]


@settings(deadline=None)
@given(st.data())
def test_a_node_of_a_key_is_made_once(data: st.DataObject) -> None:
    """Few methods of few parents lie in few slots; more nodes than FEWEST_SLOTS has room for make the table grow."""
    tables = empty(1 << 10, 1 << 13, 1 << 10)
    where, rows = table(tables), dict[Key, int]()
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    methods, bcis = data.draw(st.sampled_from([(2, 1), (200, 3), (4000, 1)]))
    for _ in range(data.draw(st.sampled_from([30, 300, FEWEST_SLOTS]))):
        made = int(tables.size[Z_NODES])
        key = int(random.integers(max(made - 40, 0), made)), int(random.integers(methods)), int(random.integers(bcis))
        assert child_of(where, *key) == rows.setdefault(key, made)
    if data.draw(st.booleans()):  # a name that is told late
        key = max(rows)
        rows[key[0], methods + 1, key[2]] = n = rows.pop(key)
        rename(where, n, methods + 1)
    made = int(tables.size[Z_NODES])
    assert [child_of(where, *key) for key in rows] == list(rows.values())
    assert int(tables.size[Z_NODES]) == made
    slots = tables.by_parent[: int(tables.size[Z_PARENTS]) + 1]
    assert np.count_nonzero(slots) in (len(rows), len(rows) + 1)


def test_a_slot_has_room_for_all_rows() -> None:
    with pytest.raises(ValueError, match="too many rows"):
        empty(1 << 10, 1 << ROW_BITS, 1 << 10)

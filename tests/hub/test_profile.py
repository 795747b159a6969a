from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.messages import PROFILE_DTYPE, CodeKind
from streamer.hub.profile import BYTECODES, COLUMNS, HITS, INSTRUCTIONS, KINDS, TICKS, MethodTable, by_method

COUNT = st.integers(0, 1 << 62)
ROWS = st.lists(
    st.tuples(st.integers(-3, 5), st.integers(0, 3), st.integers(-1, 7), *[COUNT] * (BYTECODES + 1)), max_size=30
)


@given(ROWS, st.sampled_from([HITS, INSTRUCTIONS, TICKS]))
def test_by_method_sums_threads_and_splits_the_primary_weight_by_kind(
    rows: list[tuple[int, ...]], primary: int
) -> None:
    profile = np.array([(m, t, k, 0, *values) for m, t, k, *values in rows], PROFILE_DTYPE)
    expected: dict[int, list[int]] = defaultdict(lambda: [0] * COLUMNS)
    for method, _, kind, *values in rows:
        for column, value in enumerate(values):
            expected[method][column] = (expected[method][column] + value) % (1 << 64)
        known = kind if 0 <= kind < len(CodeKind) else CodeKind.UNKNOWN
        expected[method][KINDS + known] = (expected[method][KINDS + known] + values[primary]) % (1 << 64)
    ids, sums = by_method(profile, primary)
    assert ids.tolist() == sorted(expected)
    assert sums.tolist() == [expected[m] for m in ids.tolist()]


def test_by_method_refuses_rows_of_another_type() -> None:
    with pytest.raises(ValueError, match="dtype"):
        by_method(np.zeros(3, np.uint64), HITS)


def test_names_are_normalised_so_two_runs_agree() -> None:
    table = MethodTable()
    assert table.slot("A$$Lambda$56.0x00007f12.run") == table.slot("A$$Lambda$9.0x00007fff.run") != 0
    assert table.names[1] == "A$$Lambda.run"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=120), st.integers(2, 9))
def test_a_full_table_folds_into_other_and_loses_nothing(uses: list[tuple[int, int]], limit: int) -> None:
    table = MethodTable(limit)
    true: Counter[str] = Counter()
    for number, hits in uses:
        true[f"C.m{number}"] += hits
        with table.slots([f"C.m{number}"]) as slots:
            table.run[slots[0], HITS] += np.uint64(hits)
    assert int(table.run[:, HITS].sum()) == sum(true.values())
    assert len(table) <= limit
    for name, slot in table._slot.items():
        assert table.names[slot] == name
        assert name == "other" or int(table.run[slot, HITS]) <= true[name]
    if len(true) < limit:
        assert {n: int(table.run[s, HITS]) for n, s in table._slot.items() if n != "other"} == true
        assert table.folded == 0


def test_held_slots_are_never_given_up() -> None:
    table = MethodTable(4)
    with table.slots(["a", "b", "c"]) as held:
        assert held.tolist() == [1, 2, 3]
        assert table.slot("d") == 0
        assert table.folded == 1
    assert table.slot("d") != 0

"""Executed instructions, summed by site, against a plain sum."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from stages.messages.paths import BLOCK_DTYPE
from stages.paths.counts import WAYS
from stages.profile.contents import COLUMNS, INSTRUCTIONS, site_sums

BLOCKS, SITES = 4, 6
HELD = some.lists(some.tuples(some.integers(0, SITES - 1), *(some.integers(0, 3) for _ in COLUMNS)), max_size=3)
"""Sites that a block holds, or a way out of it, with their counts."""
EXECUTED = some.lists(
    some.tuples(some.integers(0, 2), some.integers(0, BLOCKS - 1), some.integers(0, WAYS - 1), some.integers(1, 9),
                some.integers(0, 50)), max_size=12)  # fmt: skip


@settings(deadline=None)
@given(
    EXECUTED,
    some.lists(HELD, min_size=BLOCKS * WAYS, max_size=BLOCKS * WAYS),
    some.lists(some.booleans(), min_size=BLOCKS, max_size=BLOCKS),
)
def test_sums_by_site(executed: list[tuple[int, ...]], held: list[list[tuple[int, ...]]], branches: list[bool]) -> None:
    executed.sort(key=lambda e: e[0])
    blocks = np.zeros(BLOCKS, BLOCK_DTYPE)
    blocks["instructions"] = np.arange(BLOCKS)  # one has none
    count = np.array([len(rows) for rows in held], np.int64)
    rows = np.array([row for rows in held for row in rows], np.int64).reshape(-1, 1 + len(COLUMNS))
    group, block, way, times, ticks = np.array(executed, np.int64).reshape(-1, 5).T
    place, room = np.zeros(SITES, np.int64), 2 * len(executed) * 3
    out = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros((room, len(COLUMNS)), np.int64), np.zeros(room)
    n = site_sums(
        group.astype(np.int32), block.copy(), way.astype(np.int32), times.copy(), ticks.astype(np.float64), blocks,
        np.cumsum(count) - count, count, np.array(branches), rows[:, 0].astype(np.int32), rows[:, 1:].T.copy(), place,
        *out,
    )  # fmt: skip
    got = {(int(g), int(s)): (c.tolist(), float(t)) for g, s, c, t in zip(*(column[:n] for column in out), strict=True)}
    counts: Counter[tuple[int, int, int]] = Counter()
    spent: Counter[tuple[int, int]] = Counter()
    for g, b, left, n_times, n_ticks in executed:
        for what in {b * WAYS, b * WAYS + left if branches[b] else b * WAYS}:
            for site, *of_site in held[what]:
                spent[g, site] += of_site[INSTRUCTIONS] / max(b, 1) * n_ticks  # type: ignore[assignment]
                for column, each in enumerate(of_site):
                    counts[g, site, column] += each * n_times
    assert len(got) == n  # a row for each
    assert got.keys() == spent.keys()
    assert {key: of[0] for key, of in got.items()} == {
        key: [counts[*key, c] for c in range(len(COLUMNS))] for key in spent
    }
    np.testing.assert_allclose([of[1] for of in got.values()], [spent[key] for key in got])
    assert not place.any()
    assert out[0][:n].tolist() == sorted(out[0][:n].tolist())

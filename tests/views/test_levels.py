"""Trees by level and cut, against plain recursion."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.cct.merging import inclusive, united
from stages.cct.tree import Tree
from stages.messages import TREE_DTYPE
from streamer.trees import levels

NAMES = ("[thread]", "c.C", "a.A", "b.B")
ROWS = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.integers(1, 3), st.integers(-1, 2), st.integers(0, 50)), max_size=40
)


def tree_of(rows: list[tuple[int, int, int, int]]) -> Tree:
    """The parent of a row is one of those before it; the first is a thread."""
    out = np.zeros(len(rows) + 1, TREE_DTYPE)
    out["parent"][0], out["bci"][0] = -1, 7
    for n, (parent, method, bci, spent) in enumerate(rows, 1):
        out["parent"][n], out["method"][n], out["bci"][n] = parent % n, method, bci
        out["observed_instructions"][n] = spent
    return united(out, NAMES)


def paths(tree: Tree) -> list[tuple[tuple[str, int], ...]]:
    out: list[tuple[tuple[str, int], ...]] = []
    for row in tree.nodes:
        above = out[row["parent"]] if row["parent"] >= 0 else ()
        out.append((*above, (tree.names[row["method"]], int(row["bci"]))))
    return out


@settings(deadline=None)
@given(ROWS)
def test_rows_by_level_are_those_of_a_sorted_walk(rows: list[tuple[int, int, int, int]]) -> None:
    tree = tree_of(rows)
    order, starts = levels.by_level(tree)
    known = paths(tree)
    expected = sorted(range(len(known)), key=lambda n: (len(known[n]), known[n]))
    assert order.tolist() == expected
    assert starts.tolist() == [sum(len(p) <= d for p in known) for d in range(max(map(len, known)) + 1)]


@settings(deadline=None)
@given(ROWS, st.integers(1, 60))
def test_narrow_nodes_are_one_other_of_their_caller_and_sums_stay(
    rows: list[tuple[int, int, int, int]], least: int
) -> None:
    tree = tree_of(rows)
    total = inclusive(tree, tree.nodes["observed_instructions"])
    cut = (
        levels.pruned(tree, total, (least - 0.5) / max(1, int(total.max())), len(total))
        if least <= total.max()
        else tree
    )
    if least > total.max():
        return
    expected: dict[tuple[tuple[str, int], ...], int] = defaultdict(int)
    wide = {path for path, n in zip(paths(tree), total.tolist(), strict=True) if n >= least or len(path) == 1}
    for path, spent in zip(paths(tree), tree.nodes["observed_instructions"].tolist(), strict=True):
        kept = max(k for k in range(1, len(path) + 1) if path[:k] in wide)
        expected[path if kept == len(path) else (*path[:kept], (levels.OTHER, -1))] += spent
    for path in wide:
        expected[path] += 0
    got = dict(zip(paths(cut), cut.nodes["observed_instructions"].tolist(), strict=True))
    assert got == expected


def test_a_share_and_a_number_are_kept() -> None:
    total = np.array([100, 60, 40, 30, 40, 9, 0], np.uint64)
    assert levels.narrow(total, 0.0, 100).tolist() == [False] * 6 + [True]
    assert levels.narrow(total, 0.095, 100).tolist() == [False] * 5 + [True] * 2
    assert levels.narrow(total, 0.0, 3).tolist() == [False, False, False, True, True, True, True]
    assert levels.narrow(np.zeros(0, np.uint64), 0.5, 3).tolist() == []


def test_a_chain_whose_frames_are_all_as_wide_is_cut_too() -> None:
    tree = tree_of([(n, 1 + n % 3, -1, int(n == 999)) for n in range(1000)])
    cut = levels.pruned(tree, inclusive(tree, tree.nodes["observed_instructions"]), 0.0, 100)
    assert len(cut.nodes) == 101
    assert cut.total("observed_instructions") == 1


@pytest.mark.parametrize("depth", [1, 2, 5000])
def test_a_chain_of_any_depth(depth: int) -> None:
    parent = np.arange(-1, depth - 1)
    assert levels.depths(parent).tolist() == list(range(depth))
    chosen = np.arange(depth) >= depth // 2
    top = levels.topmost(parent, chosen)
    assert top.tolist() == [k if k < depth // 2 else depth // 2 for k in range(depth)]

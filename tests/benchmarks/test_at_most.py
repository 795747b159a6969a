"""The overlap that a tree of a part of the trace could have."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.accuracy.at_most import kept, thinned
from stages.cct.measures import overlap, paired
from stages.cct.tree import Tree
from stages.messages.trees import TREE_DTYPE


def tree(calls: list[int]) -> Tree:
    rows = np.zeros(len(calls), TREE_DTYPE)
    rows["parent"], rows["method"] = -1, np.arange(len(calls))
    rows["observed_invocations"] = calls
    return Tree(rows, tuple(f"m{n}" for n in range(len(calls))))


@pytest.mark.parametrize(("calls", "limit"), [(1, 0.75), (10_000, 0.99)])
def test_contexts_of_one_call_are_in_it_or_not(calls: int, limit: float) -> None:
    whole = tree([calls] * 1000)
    part = thinned(whole, 0.25)
    sides = [(side, side.nodes["observed_invocations"]) for side in (whole, part)]
    assert int(sides[1][1].sum()) == pytest.approx(750 * calls, rel=0.1)
    assert overlap(paired(*sides)) == pytest.approx(limit, abs=0.03)


def test_panes_of_the_windows() -> None:
    trees = [(n, tree([n])) for n in range(40)]
    found = kept(trees, 10.0, 50, 100.0, 0.3)
    assert [int(t.nodes["observed_invocations"][0]) for t in found] == [5, 6, 7, 15, 16, 17, 25, 26, 27, 35, 36, 37]

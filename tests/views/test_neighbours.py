"""Callers and callees against a plain walk of every stack."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from streamer.hub.listing import arranged
from streamer.trees.neighbours import neighbours
from streamer.trees.weights import weights
from tests.hub.scene import scene
from tests.views.test_levels import ROWS, paths, tree_of


@settings(deadline=None)
@given(ROWS)
def test_callers_and_callees_are_those_of_the_outermost(rows: list[tuple[int, int, int, int]]) -> None:
    tree = tree_of(rows)
    own = weights(tree, "instructions", False)
    total, self_, whole = 0, 0, int(own.sum())
    callers: Counter[str] = Counter()
    callees: Counter[str] = Counter()
    for path, spent in zip(paths(tree), own.tolist(), strict=True):
        names = [name for name, _ in path]
        if "a.A" in names:
            at = names.index("a.A")
            total += spent
            callers[names[at - 1]] += spent
            if at + 1 < len(names):
                callees[names[at + 1]] += spent
            else:
                self_ += spent
    found = neighbours(tree, own, "a.A")
    if found is None:
        assert whole == 0 or not any("a.A" in [name for name, _ in path] for path in paths(tree))
        return
    assert (found.total, found.own) == pytest.approx((total / whole, self_ / whole))
    for told, expected in ((found.callers, callers), (found.callees, callees)):
        assert dict(told) == pytest.approx({name: n / whole for name, n in expected.items() if n})
        assert [n for _, n in told] == sorted((n for _, n in told), reverse=True)


def test_methods_are_sorted_and_chosen_and_shares_still_add_up() -> None:
    view = scene()[0].hot(top=500).json()
    whole = view["other"] + sum(m["share"] for m in view["methods"])
    by_shift = arranged(view, "shift", "", 2)
    assert [m["method"] for m in by_shift["methods"]] == [
        "org.apache.fop.pdf.PDFStream.deflate", "org.apache.fop.fonts.GlyphTable.lookup",
    ]  # fmt: skip
    assert [m["method"] for m in arranged(view, "name", "org.apache.fop.util.*", 2)["methods"]] == [
        "org.apache.fop.util.Helper.m0", "org.apache.fop.util.Helper.m1",
    ]  # fmt: skip
    assert [m["method"] for m in arranged(view, "share", "HashMap", 9)["methods"]] == ["java.util.HashMap.getNode"]
    for seen in (by_shift, arranged(view, "invocations", "nothing", 5)):
        assert seen["other"] + sum(m["share"] for m in seen["methods"]) == pytest.approx(whole)

"""Threads of which contexts are kept: what of a tree stays, and that stacks are right when a thread is on again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.cct.merging import at_once
from stages.cct.profiled import NOT_PROFILED, profiled
from stages.cct.selection import MOST, Selection
from stages.cct.tree import Tree, thread_name
from stages.messages import TreeReport
from tests.cct.made import PROGRAMS, Call, Dictionaries, Stack, run
from tests.cct.test_stage import found, stage
from tests.cct.test_trees import paths, sums, totals, trees

SELECTIONS = st.builds(
    Selection, st.booleans(), st.lists(st.sampled_from(["a*", "b", "*"]), max_size=2).map(tuple),
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
)  # fmt: skip


@pytest.mark.parametrize(
    ("selection", "off"),
    [
        (Selection(), set[str]()),
        (Selection(False), {"http-1", "main"}),
        (Selection(True, ("http-*",)), {"main"}),
        (Selection(False, ("http-*",)), {"http-1"}),
        (Selection(True, (), (2,)), {"http-1"}),
        (Selection(False, ("main",), (1,)), {"http-1", "main"}),
    ],
)
def test_which_threads_are_off(selection: Selection, off: set[str]) -> None:
    assert {name for tid, name in ((1, "http-1"), (2, "main")) if selection.off(tid, name)} == off
    assert Selection.of(selection.words()) == selection
    assert selection.everything == (selection == Selection())


@pytest.mark.parametrize(
    "words",
    [
        {}, {"on": 1, "named": [], "tids": []}, {"on": True, "named": "a", "tids": []},
        {"on": True, "named": [3], "tids": []}, {"on": True, "named": [], "tids": ["3"]},
        {"on": True, "named": ["a"] * MOST, "tids": [1]}, {"on": True, "named": ["a" * 300], "tids": []},
    ],
)  # fmt: skip
def test_what_is_no_selection(words: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no selection"):
        Selection.of(words)


@settings(deadline=None)
@given(trees(), SELECTIONS)
def test_a_thread_that_is_off_is_one_node_with_all_that_it_spent(tree: Tree, selection: Selection) -> None:
    seen = at_once(profiled(selection, tree))
    expected = Counter[object]()
    for path, row in zip(paths(tree), tree.nodes, strict=True):
        off = selection.off(path[0][1], thread_name(path[0][0]))
        kept = path if len(path) == 1 or not off else (path[0], (NOT_PROFILED, -1))
        for name in totals(tree):
            if not off or len(path) == 1 or not name.endswith("invocations"):
                expected[kept, name] += int(row[name])
    assert {key: n for key, n in sums(seen).items() if n} == {key: n for key, n in expected.items() if n}


@settings(deadline=None, max_examples=60)
@given(PROGRAMS, st.data())
def test_stacks_are_right_when_a_thread_is_switched_on_again(program: Call, data: st.DataObject) -> None:
    """In a pane of its own each: on, off, on."""
    blocks = run(program)
    a, b = sorted(data.draw(st.tuples(st.integers(0, len(blocks)), st.integers(0, len(blocks)))))
    always, switched, d, same = stage(pane_ticks=10), stage(pane_ticks=10), Dictionaries(), Dictionaries()
    said: list[object] = []
    whole: list[object] = []
    for n, part in enumerate((blocks[:a], blocks[a:b], blocks[b:])):
        time = 10 * n, 10 * n + 9
        whole += always.feed(d.message(7, [d.path([block]) for block in part], time, n > 0))
        switched.select(Selection(n != 1))
        said += switched.feed(same.message(7, [same.path([block]) for block in part], time, n > 0))
    told, want = ({m.pane: m for m in out if isinstance(m, TreeReport)} for out in (
        [*said, *switched.flush()], [*whole, *always.flush()],
    ))  # fmt: skip
    for pane in (0, 2):
        assert (pane in told) == (pane in want)
        if pane in told:
            assert _counts(told[pane]) == _counts(want[pane])
    off: Counter[tuple[Stack, str]] = _counts(told[1]) if 1 in told else Counter()
    spent = sum(int(row["observed_instructions"]) for row in want[1].nodes) if 1 in want else 0
    assert off == (Counter({(((NOT_PROFILED, -1),), "instructions"): spent}) if spent else Counter())
    assert switched.statistics()["cct_not_profiled"] == spent


def _counts(report: TreeReport) -> Counter[tuple[Stack, str]]:
    return found(Tree(report.nodes, report.names))


def test_a_selection_holds_from_the_next_pane_on_and_the_last_of_a_pane_counts() -> None:
    cct, d = stage(pane_ticks=10), Dictionaries()
    (call,) = run(Call(0, ()))[:1]
    order = [d.path([call])]
    said = cct.feed(d.message(7, order, (0, 5), False))
    for selection in (Selection(False), Selection(), Selection(False)):
        cct.select(selection)
    said += cct.feed(d.message(7, order, (5, 9), True))
    said += cct.feed(d.message(7, order, (10, 19), True))
    assert len(next(iter(cct._processes.values())).selected) == 2
    names = {m.pane: m.names for m in [*said, *cct.flush()] if isinstance(m, TreeReport)}
    assert {pane: NOT_PROFILED in of for pane, of in names.items()} == {0: False, 1: True}

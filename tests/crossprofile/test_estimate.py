"""Estimated cycles of a tree, by hand."""

from __future__ import annotations

from stages.cct.tree import NAMES, Tree
from streamer.crossprofile.estimate import estimated
from streamer.crossprofile.table import parsed
from tests.crossprofile.trees import tree

LOAD = {"word_bytes": 4, "cycles": 10, "cycles_per_word": 1, "hidden_in_call": 5, "share": 0.5}
TABLE = parsed({"name": "t", "other": 1, "bytecodes": {"nop": 1}, "load": LOAD})


def cycles(tree: Tree) -> dict[str, int]:
    return {tree.names[row["method"]]: int(row["observed_bytecodes"]) for row in tree.nodes}


def test_a_compiled_invocation_costs_what_an_interpreted_one_did() -> None:
    """`A.a` was interpreted ten times of its 1000, in 700 cycles."""
    given = tree({("A.main",): (1, 5000), ("A.main", "A.a"): (1000, 700), ("A.main", "A.hot"): (50, 0)})
    found = estimated(given, TABLE, {"A.main": 1, "A.a": 10}, {})
    assert cycles(found.tree) == {NAMES[0]: 0, "A.main": 5000, "A.a": 70_000, "A.hot": 0}
    assert (found.counted, found.invoked, found.loaded, found.unknown) == (5700, 69_300, 0, 50)


def test_what_was_interpreted_alone_is_as_it_was_counted() -> None:
    """In one of its two contexts it runs a long loop, in the other a short one."""
    given = tree({("A.b", "A.a"): (1, 900), ("A.c", "A.a"): (1, 100)})
    assert estimated(given, TABLE, {"A.a": 2}, {}).tree.nodes.tobytes() == given.nodes.tobytes()


def test_compiled_invocations_are_where_cycles_are_lacking() -> None:
    """Three of six invocations were compiled, 400 cycles each: 300 are lacking in one context, 1100 in another."""
    given = tree({("A.b", "A.a"): (1, 600), ("A.c", "A.a"): (1, 100), ("A.d", "A.a"): (4, 500)})
    found = estimated(given, TABLE, {"A.a": 3}, {})
    spent = [int(row["observed_bytecodes"]) for row in found.tree.nodes if row["observed_bytecodes"]]
    assert spent == [600, 100 + 300 * 1200 // 1400, 500 + 1100 * 1200 // 1400 + 1]
    assert (found.counted, found.invoked) == (1200, 1200)


def test_calls_and_returns_load_code_by_its_size() -> None:
    given = tree({("A.main",): (1, 0), ("A.main", "A.a"): (100, 0), ("A.main", "[interpreter]"): (7, 30)})
    found = estimated(given, TABLE, {}, {"A.main": 21, "A.a": 8})
    # a call of 2 words: half of 10 + 2 − 5; a return into 6 words: half of 10 + 6
    assert cycles(found.tree) == {NAMES[0]: 0, "A.main": 350, "A.a": 800, "[interpreter]": 30}
    assert (found.counted, found.loaded, found.unknown) == (30, 1150, 101)

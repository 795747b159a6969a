"""Trees that stand for themselves: merging, views, measures and the file, against the obvious way."""

from __future__ import annotations

import os
import pathlib
import struct
import zlib
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.cct.measures import call_matrix, contributions, hot_edge_coverage, overlap, paired
from stages.cct.merging import ROWS, exporting, inclusive, merged, merging
from stages.cct.tables import CERTAINTIES, COUNTS, N_METHOD, N_PARENT, Z_NODES, empty
from stages.cct.tree import COLUMNS, Tree, thread_method
from stages.cct.views import View
from stages.messages.trees import TREE_DTYPE
from streamer.cli import Failure
from streamer.trees.file import MAGIC, MOST_NAMES, CctFileError, Saved, packed, unpacked
from streamer.trees.source import load
from streamer.trees.text import Cut, collapsed, label, lines

NAMES = ("[thread]", "[stub] s", "App.a", "App.b", "java.util.C.c", "java.util.D.d")
Path = tuple[tuple[str, int], ...]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any tree, no node twice."""
    known: dict[tuple[int, int, int], int] = {}
    for _ in range(draw(st.integers(0, 14))):
        parent = draw(st.integers(-1, len(known) - 1))
        method = draw(st.integers(1, len(NAMES) - 1)) if parent >= 0 else 0
        known.setdefault((parent, method, draw(st.integers(1, 3))), len(known))
    rows = np.zeros(len(known), TREE_DTYPE)
    for (parent, method, bci), k in known.items():
        rows[k]["parent"], rows[k]["method"], rows[k]["bci"] = parent, method, bci
        for name in COLUMNS:
            rows[k][name] = draw(st.integers(0, 100))
    return Tree(rows, NAMES)


def paths(tree: Tree) -> list[Path]:
    out: list[Path] = []
    for row in tree.nodes:
        above = out[row["parent"]] if row["parent"] >= 0 else ()
        out.append((*above, (tree.names[row["method"]], int(row["bci"]))))
    return out


def sums(tree: Tree) -> Counter[tuple[Path, str]]:
    out: Counter[tuple[Path, str]] = Counter()
    for path, row in zip(paths(tree), tree.nodes, strict=True):
        for name in COLUMNS:
            out[path, name] += int(row[name])
    return out


def totals(tree: Tree) -> dict[str, int]:
    return {name: tree.total(name) for name in COLUMNS}


def test_large_trees_are_merged_and_made_some_rows_a_step() -> None:
    """Each pass over the rows (copied, united, told, summed; of nodes: found, summed, told) in steps of its own."""
    n = 2 * ROWS
    rows = np.zeros(n, TREE_DTYPE)
    rows["parent"], rows["bci"], rows["observed_ticks"] = np.arange(-1, n - 1), np.arange(n), 1
    merge = merging([Tree(rows, ("m",)), Tree(rows, ("m",))])
    assert sum(1 for _ in merge) == 4 + 4 + 2 + 4
    t = empty(2, n, 2)
    t.size[Z_NODES] = n + 1
    t.node[1 : n + 1, N_PARENT], t.node[1 : n + 1, N_METHOD] = np.arange(n), 1
    counts, ticks = np.ones((n, CERTAINTIES, COUNTS), np.int64), np.full((n, CERTAINTIES), 0.5)
    steps = exporting(t, np.arange(1, n + 1, dtype=np.int32), counts, ticks, ["", "m"])
    made = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            tree = end.value
            break
        made += 1
    assert made == 2 + 2 + 2
    assert tree.nodes["parent"].tolist() == list(range(-1, n - 1))
    assert tree.total("observed_ticks") == n // 2  # whole ones, of the same sum


@settings(deadline=None)
@given(st.lists(trees(), max_size=4))
def test_equal_contexts_of_several_trees_are_one_node(several: list[Tree]) -> None:
    one = merged(several)
    expected: Counter[tuple[Path, str]] = Counter()
    for tree in several:
        expected.update(sums(tree))
    assert sums(one) == expected
    assert len(set(paths(one))) == len(one.nodes)


@settings(deadline=None)
@given(trees())
def test_what_is_spent_within_a_node_is_its_own_and_that_of_all_below(tree: Tree) -> None:
    own, all_paths = tree.nodes[COLUMNS[0]], paths(tree)
    expected = [
        sum(int(n) for other, n in zip(all_paths, own, strict=True) if other[: len(path)] == path) for path in all_paths
    ]
    assert inclusive(tree, own).tolist() == expected


@settings(deadline=None)
@given(trees(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_views_against_paths(tree: Tree, sites: bool, recursion: bool, stubs: bool, threads: bool) -> None:
    expected: Counter[tuple[Path, str]] = Counter()
    for path, row in zip(paths(tree), tree.nodes, strict=True):
        root, *frames = path
        gone = frames and frames[-1][0].startswith("[stub]") and not stubs
        kept: list[tuple[str, int]] = []
        site = None  # of the outermost of the stubs just left out
        for name, bci in frames:
            if name.startswith("[stub]") and not stubs:
                site = bci if site is None else site
                continue
            kept.append((name, bci if site is None else site))
            site = None
        if not sites:
            kept = [(name, -1) for name, _ in kept]
        if not recursion:
            folded: list[tuple[str, int]] = []
            for name, bci in kept:
                names = [known for known, _ in folded]
                folded = folded[: names.index(name) + 1] if name in names else [*folded, (name, bci)]
            kept = folded
        for name in COLUMNS:
            if not (gone and name.endswith("invocations")):
                expected[(root if threads else (root[0], -1), *kept), name] += int(row[name])
    found = sums(View(sites=sites, recursion=recursion, stubs=stubs, threads=threads).of(tree))
    assert {key: n for key, n in found.items() if n} == {key: n for key, n in expected.items() if n}


def test_threads_by_their_names() -> None:
    called = ("pool-1-thread-1", "pool-1-thread-22", "pool-2-thread-1", "main", "")
    rows = np.zeros(2 * len(called), TREE_DTYPE)
    rows["parent"][::2], rows["parent"][1::2] = -1, np.arange(0, len(rows), 2)
    rows["method"][::2], rows["method"][1::2] = np.arange(1, 1 + len(called)), 0
    rows["bci"] = np.arange(len(rows))
    rows["observed_instructions"] = 1 << np.arange(len(rows))
    tree = Tree(rows, ("App.a", *map(thread_method, called)))

    def shown(view: View) -> dict[str, int]:
        seen = view.of(tree)
        total = inclusive(seen, seen.nodes["observed_instructions"])
        roots = np.flatnonzero(seen.nodes["parent"] < 0).tolist()
        return {label(seen, n): int(total[n]) for n in roots}

    assert shown(View()) == {"all threads": 1023}
    assert shown(View(threads=True)) == {
        "thread 0 pool-1-thread-1": 3, "thread 2 pool-1-thread-22": 12, "thread 4 pool-2-thread-1": 48,
        "thread 6 main": 192, "thread 8": 768,
    }  # fmt: skip
    assert shown(View(by_name=True)) == {
        "threads pool-#-thread-#": 63, "threads main": 192, "threads [no name]": 768,
    }  # fmt: skip
    assert shown(View(named=("pool-1-*",))) == {"all threads": 15}
    assert shown(View(named=("pool-1-*", "main"), by_name=True)) == {"threads pool-#-thread-#": 15, "threads main": 192}


@settings(deadline=None)
@given(trees(), st.sampled_from(NAMES[2:]))
def test_within_a_method_and_without_it_is_all(tree: Tree, name: str) -> None:
    apart = View(stubs=True, threads=True)
    within = View(stubs=True, threads=True, include=(name,)).of(tree)
    without = View(stubs=True, threads=True, exclude=(name,)).of(tree)
    together = {column: within.total(column) + without.total(column) for column in COLUMNS}
    assert together == totals(apart.of(tree))
    assert all(path[1][0] == name for path in paths(within) if len(path) > 1)
    assert not any(name == frame for path in paths(without) for frame, _ in path)


@settings(deadline=None)
@given(trees(), trees())
def test_overlap_and_hot_edges(a: Tree, b: Tree) -> None:
    weights = [Counter(dict(zip(paths(t), t.nodes[COLUMNS[0]].tolist(), strict=True))) for t in (a, b)]
    pair = paired((a, a.nodes[COLUMNS[0]]), (b, b.nodes[COLUMNS[0]]))
    wholes = [sum(w.values()) for w in weights]
    if all(wholes):
        shares = [{path: n / whole for path, n in w.items()} for w, whole in zip(weights, wholes, strict=True)]
        assert overlap(pair) == pytest.approx(sum(min(n, shares[1].get(path, 0.0)) for path, n in shares[0].items()))
    hot = [{path for path, n in w.items() if n and n >= 0.1 * max(w.values())} for w in weights]
    assert hot_edge_coverage(pair) == pytest.approx(len(hot[0] & hot[1]) / len(hot[0]) if hot[0] else 1.0)
    assert overlap(paired((a, a.nodes[COLUMNS[0]]), (a, a.nodes[COLUMNS[0]]))) == pytest.approx(1.0)
    changes = [abs(after - before) for _, before, after in contributions(pair)]
    assert changes == sorted(changes, reverse=True)


def test_calls_between_application_and_library() -> None:
    edges = [(-1, 0, 1), (0, 2, 2), (1, 3, 4), (1, 4, 8), (3, 5, 16), (4, 2, 32), (0, 1, 64)]
    rows = np.zeros(len(edges), TREE_DTYPE)
    for row, (parent, method, times) in zip(rows, edges, strict=True):
        row["parent"], row["method"], row["observed_invocations"] = parent, method, times
    assert call_matrix(Tree(rows, NAMES)).tolist() == [[4, 8], [32, 16]]


@settings(deadline=None)
@given(trees())
def test_a_file_holds_the_tree(tree: Tree) -> None:
    saved = unpacked(packed(Saved(tree, 2.5e9, "host", 42)))
    assert (sums(saved.tree), saved.hz, saved.host, saved.pid) == (sums(tree), 2.5e9, "host", 42)


@settings(deadline=None, max_examples=300)
@given(trees(), st.data())
def test_damaged_files_are_refused(tree: Tree, data: st.DataObject) -> None:
    good = packed(Saved(tree, 1e9))
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = bytearray(good)
    flipped[at] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(flipped), good[:at]):
        with pytest.raises(CctFileError):
            unpacked(bad)
    begin = len(MAGIC) + 8
    frame = bytearray(good[begin:])  # the checksum is right, the contents are not
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    head = MAGIC + struct.pack("<II", 1, zlib.crc32(frame))
    with suppress(CctFileError):
        unpacked(head + bytes(frame))


def test_rows_that_lead_nowhere_are_refused() -> None:
    rows = np.zeros(2, TREE_DTYPE)
    for column, value in (("parent", 1), ("parent", -2), ("method", 9), ("method", -1)):
        rows["parent"], rows["method"] = (-1, 0), 0
        rows[column][1] = value
        with pytest.raises(CctFileError, match="nowhere"):
            unpacked(packed(Saved(Tree(rows, NAMES), 1e9)))


def test_counts_and_names_without_measure_are_refused() -> None:
    rows = np.zeros(2, TREE_DTYPE)
    rows["parent"], rows["suspect_ticks"] = (-1, 0), 1 << 61
    with pytest.raises(CctFileError, match="counts"):
        unpacked(packed(Saved(Tree(rows, NAMES), 1e9)))
    with pytest.raises(CctFileError, match="exceeds"):
        unpacked(packed(Saved(Tree(rows[:0], ("",) * (MOST_NAMES + 1)), 1e9)))


def test_a_pipe_is_no_tree(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Failure, match="pipe is no file"):
        load(str(tmp_path / "pipe"), print)


def test_a_name_from_elsewhere_does_not_reach_the_terminal_as_it_is() -> None:
    rows = np.zeros(2, TREE_DTYPE)
    rows["parent"], rows["method"], rows["observed_instructions"] = (-1, 0), (0, 1), 1
    tree = Tree(rows, ("[thread]", "a\x1b]0;title\x07\nb"))
    text = "\n".join(lines(tree, "instructions", True, Cut(), 1e9))
    assert text.endswith("a?]0;title??b @0")


def test_as_text() -> None:
    edges = [(-1, 0, 7, 0), (0, 2, 1, 30), (1, 3, 4, 60), (1, 3, 9, 10)]
    rows = np.zeros(len(edges), TREE_DTYPE)
    for row, (parent, method, bci, spent) in zip(rows, edges, strict=True):
        row["parent"], row["method"], row["bci"], row["observed_instructions"] = parent, method, bci, spent
        row["observed_invocations"] = bci if parent >= 0 else 0
    tree = Tree(rows, NAMES)
    assert list(lines(tree, "instructions", True, Cut(share=0.2), 1e9)) == [
        "instructions: 100",
        "  total    self   invocations",
        " 100.0%    0.0%               thread 7",
        " 100.0%   30.0%             1   App.a @1",
        "  60.0%   60.0%             4     App.b @4",
    ]
    assert list(collapsed(tree, "instructions", True)) == [
        "thread 7;App.a @1 30", "thread 7;App.a @1;App.b @4 60", "thread 7;App.a @1;App.b @9 10",
    ]  # fmt: skip

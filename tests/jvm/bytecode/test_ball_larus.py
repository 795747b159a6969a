"""Numbers of acyclic paths, against all paths listed one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings

from jvm.bytecode.ball_larus import Numbering, number, successors
from jvm.bytecode.cfg import NOWHERE, Cfg, empty_nodes
from jvm.bytecode.opcodes import Kind
from tests.jvm.bytecode.graphs import cfgs

METHODS = cfgs(9, verified=False, handlers=2)


def paths_from(n: Numbering, at: int) -> list[list[int]]:
    """All of them, by going along each edge."""
    mine = range(int(n.edge[at]), int(n.edge[at + 1]))
    if not mine:
        return [[at]]
    found = []
    for e in mine:
        target = int(n.to[e])
        found += [[at, *rest] for rest in ([[target]] if n.back[e] else paths_from(n, target))]
    return found


@settings(deadline=None)
@given(METHODS)
def test_each_path_has_one_number_and_each_number_a_path(cfg: Cfg) -> None:
    n = number(cfg)
    assert n is not None
    listed = [path for at in np.flatnonzero(n.start >= 0).tolist() for path in paths_from(n, at)]
    assert sorted(map(n.nodes, range(n.paths))) == sorted(listed)


@settings(deadline=None)
@given(METHODS)
def test_a_number_is_the_sum_along_its_path(cfg: Cfg) -> None:
    n = number(cfg)
    assert n is not None
    for k in range(n.paths):
        nodes = n.nodes(k)
        total = int(n.start[nodes[0]])
        for a, b in pairwise(nodes):
            (e,) = [e for e in range(int(n.edge[a]), int(n.edge[a + 1])) if n.to[e] == b]
            total += int(n.value[e])
        assert total == k


@settings(deadline=None)
@given(METHODS)
def test_without_back_edges_nothing_goes_round_and_with_them_all_edges_are_there(cfg: Cfg) -> None:
    n = number(cfg)
    assert n is not None
    reached = {0, *np.flatnonzero(n.start >= 0).tolist()}
    to = successors(cfg)
    todo = list(reached)
    while todo:
        a = todo.pop()
        assert sorted(n.to[n.edge[a] : n.edge[a + 1]].tolist()) == sorted(to[a])
        todo += (new := set(to[a]) - reached)
        reached |= new
    targets = {int(n.to[e]) for e in np.flatnonzero(n.back)}
    assert all(n.start[target] >= 0 for target in targets)
    assert {0, *cfg.handlers[:, 2].tolist()} <= set(np.flatnonzero(n.start >= 0).tolist())


def test_the_papers_own_example() -> None:
    """The paper's running example: six paths from A to F, whatever the order of edges."""
    a, b, c, d, e, f = range(6)
    nodes = empty_nodes(6)
    edges = {a: (b, c), b: (c, d), c: (d,), d: (f, e), e: (f,), f: ()}
    arm = list[int]()
    for k, to in edges.items():
        nodes.kind[k] = Kind.SWITCH if to else Kind.RETURN
        nodes.target[k], nodes.arms[k] = (len(arm), len(to)) if to else (NOWHERE, 0)
        arm += to
    n = number(Cfg(nodes, np.array(arm, np.int32), np.empty((0, 4), np.int32), {}))
    assert n is not None
    assert n.paths == 6
    assert {"".join("ABCDEF"[k] for k in n.nodes(p)) for p in range(6)} == {
        "ABDF", "ABDEF", "ABCDF", "ABCDEF", "ACDF", "ACDEF"
    }  # fmt: skip


def test_a_method_with_too_many_has_none() -> None:
    """Seventy choices one behind the other: 2^70 paths."""
    nodes = empty_nodes(141)
    for k in range(70):
        nodes.kind[2 * k], nodes.next[2 * k], nodes.target[2 * k] = Kind.CONDITIONAL, 2 * k + 1, 2 * k + 2
        nodes.kind[2 * k + 1], nodes.next[2 * k + 1] = Kind.PLAIN, 2 * k + 2
    nodes.kind[140] = Kind.RETURN
    assert number(Cfg(nodes, np.empty(0, np.int32), np.empty((0, 4), np.int32), {})) is None

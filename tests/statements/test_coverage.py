"""What is concluded to have run did run, whatever was seen of it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.bytecode.ball_larus import successors
from jvm.bytecode.cfg import Cfg, empty_nodes
from jvm.bytecode.opcodes import OPCODE, Kind
from stages.statements.coverage import SAFE, concluded, followers
from tests.jvm.bytecode.graphs import cfgs

UNSAFE = OPCODE["iaload"]


@st.composite
def executions(draw: st.DrawFn) -> tuple[Cfg, set[int]]:
    """A method, and the nodes of a run of it to its end. Any instruction that can throw may do so."""
    cfg = draw(cfgs(12))
    for node in np.flatnonzero(cfg.nodes.kind == Kind.PLAIN).tolist():
        if draw(st.booleans()):
            cfg.nodes.opcode[node] = UNSAFE
    to, at, ran = successors(cfg), 0, set[int]()
    for _ in range(60):
        ran.add(at)
        kind, throws = cfg.nodes.kind[at], False
        if not SAFE[cfg.nodes.opcode[at]] or kind in (Kind.CALL, Kind.THROW):
            throws = kind == Kind.THROW or draw(st.booleans())
        if kind == Kind.RETURN or (throws and not len(cfg.handlers)):
            return cfg, ran
        at = int(cfg.handlers[0, 2]) if throws else draw(st.sampled_from(to[at]))
    while (after := set(to[at]) - ran) and len(to[at]) == 1:  # it goes on for ever: as far as it is sure to go
        at = after.pop()
        ran.add(at)
    return cfg, ran


@settings(deadline=None)
@given(executions(), st.data())
def test_nothing_is_concluded_that_did_not_run(made: tuple[Cfg, set[int]], data: st.DataObject) -> None:
    cfg, ran = made
    seen = data.draw(st.sets(st.sampled_from(sorted(ran))))
    known = np.zeros(len(cfg.nodes.bci), np.bool_)
    known[sorted(seen)] = True
    found = set(np.flatnonzero(concluded(cfg, known)).tolist())
    assert seen <= found
    assert found <= ran


def straight(opcodes: list[str]) -> Cfg:
    nodes = empty_nodes(len(opcodes))
    for k, name in enumerate(opcodes):
        nodes.bci[k], nodes.opcode[k] = k, OPCODE[name]
        nodes.kind[k] = Kind.RETURN if name == "return" else Kind.PLAIN
        nodes.next[k] = k + 1 if name != "return" else -1
    return Cfg(nodes, np.empty(0, np.int32), np.empty((0, 4), np.int32), {})


@pytest.mark.parametrize(
    ("seen", "expected"), [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [0, 1, 2]), (3, [0, 1, 2, 3, 4]), (4, [0, 1, 2, 3, 4])]
)
def test_before_it_all_ran_and_behind_it_as_far_as_nothing_throws(seen: int, expected: list[int]) -> None:
    cfg = straight(["iconst_0", "istore_0", "iaload", "istore_0", "return"])
    ran = np.zeros(5, np.bool_)
    ran[seen] = True
    assert np.flatnonzero(concluded(cfg, ran)).tolist() == expected


def test_of_nothing_nothing_follows() -> None:
    assert not concluded(straight(["iconst_0", "return"]), np.zeros(2, np.bool_)).any()


def _nearest(cfg: Cfg) -> list[int]:
    """By networkx."""
    graph = nx.DiGraph()
    graph.add_node(0)
    graph.add_edges_from((node, target) for node, targets in enumerate(successors(cfg)) for target in targets)
    for first, end, handler, _ in cfg.handlers.tolist():
        graph.add_edges_from((node, handler) for node in range(first, end))
    jsr = np.flatnonzero((cfg.nodes.kind == Kind.JSR) & (cfg.nodes.next >= 0)).tolist()
    graph.add_edges_from((node, int(cfg.nodes.next[node])) for node in jsr)
    found = nx.immediate_dominators(graph, 0)
    return [-1 if node == 0 else found.get(node, -1) for node in range(len(cfg.nodes.kind))]


@settings(deadline=None)
@given(cfgs(30))
def test_dominators_are_those_that_networkx_finds(cfg: Cfg) -> None:
    above, after = followers(cfg)
    assert above.tolist() == _nearest(cfg)
    to = successors(cfg)
    assert all(to[node] == [other] for node, other in enumerate(after.tolist()) if other >= 0)

"""The interprocedural control-flow graph as a networkx graph, to look at it and to check it."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from jvm.bytecode.cfg import NOWHERE
from jvm.bytecode.icfg import Graph, Icfg
from jvm.bytecode.opcodes import Kind


def to_networkx(icfg: Icfg, methods: list[int] | None = None) -> nx.MultiDiGraph:
    """The graph of some methods, or all: nodes with `method`, `bci`, `opcode`; edges with `kind` (next, taken, arm,
    handler, call). A call leads to the entries of those callees that are among them."""
    graph, out = icfg.graph(), nx.MultiDiGraph()
    wanted = range(len(graph.methods.entry)) if methods is None else methods
    entries = {int(graph.methods.entry[m]) for m in wanted} - {NOWHERE}
    for m in wanted:
        for source, target, kind in _edges(icfg, graph, m):
            if kind != "call" or target in entries:
                out.add_edge(source, target, kind=kind)
        for node in range(int(graph.methods.entry[m]), int(graph.methods.entry[m]) + int(graph.methods.nodes[m])):
            out.add_node(node, method=m, bci=int(graph.nodes.bci[node]), opcode=int(graph.nodes.opcode[node]))
    return out


def _edges(icfg: Icfg, graph: Graph, m: int) -> Iterator[tuple[int, int, str]]:
    entry, count = int(graph.methods.entry[m]), int(graph.methods.nodes[m])
    for node in range(entry, entry + count):
        kind, target = int(graph.nodes.kind[node]), int(graph.nodes.target[node])
        if graph.nodes.next[node] != NOWHERE:
            yield node, int(graph.nodes.next[node]), "next"
        if kind in (Kind.CONDITIONAL, Kind.GOTO, Kind.JSR):
            yield node, target, "taken"
        elif kind == Kind.SWITCH:
            for arm in graph.arm[target : target + graph.nodes.arms[node]].tolist():
                yield node, arm, "arm"
        elif kind == Kind.CALL:
            for callee in () if (found := icfg.callees(node)) is None else found.tolist():
                yield node, int(graph.methods.entry[callee]), "call"
    at = int(graph.methods.handler[m])
    for first, end, handler, _ in graph.handler[at : at + int(graph.methods.handlers[m])].tolist():
        for node in range(first, end):
            yield node, handler, "handler"

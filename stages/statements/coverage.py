"""Which of a method's bytecodes ran: those that were seen, and those that must have run for these to be seen.

From a bytecode that ran it follows that its dominators did (each way to it from the entry or, by an exception, over a
handler leads through them), and those behind it that are reached without a choice, as long as none of them can throw.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.ball_larus import successors
from jvm.bytecode.cfg import Cfg
from jvm.bytecode.opcodes import OPCODE, Kind

_THROW = """iaload laload faload daload aaload baload caload saload iastore lastore fastore dastore aastore bastore
    castore sastore idiv ldiv irem lrem ldc ldc_w ldc2_w getstatic putstatic getfield putfield new newarray anewarray
    arraylength checkcast instanceof monitorenter monitorexit multianewarray wide"""
SAFE = np.ones(256, np.bool_)
"""(256,) by opcode: control goes on to a successor, whatever happens (JVMS 6.5, and its asynchronous exceptions
aside)."""
SAFE[[OPCODE[name] for name in _THROW.split()]] = False
_ONWARD = (Kind.PLAIN, Kind.CONDITIONAL, Kind.GOTO, Kind.SWITCH)


def concluded(cfg: Cfg, ran: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) bytecodes that ran, given those of which it is known."""
    if not ran.any() or ran.all():
        return ran.copy()
    found, to = ran.copy(), successors(cfg)
    above = dict(_dominators(cfg, to))
    todo = np.flatnonzero(ran).tolist()
    while todo:
        node = todo.pop()
        kind, opcode = int(cfg.nodes.kind[node]), int(cfg.nodes.opcode[node])
        after = to[node] if len(to[node]) == 1 and kind in _ONWARD and SAFE[opcode] else []
        for other in (*after, above.get(node, node)):
            if not found[other]:
                found[other] = True
                todo.append(other)
    return found


def _dominators(cfg: Cfg, to: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Of each node that is reached, the nearest."""
    graph = nx.DiGraph()
    graph.add_node(0)
    graph.add_edges_from((node, target) for node, targets in enumerate(to) for target in targets)
    for first, end, handler, _ in cfg.handlers.tolist():
        graph.add_edges_from((node, handler) for node in range(first, end))
    behind_jsr = np.flatnonzero(cfg.nodes.kind == Kind.JSR).tolist()
    graph.add_edges_from((node, int(cfg.nodes.next[node])) for node in behind_jsr if cfg.nodes.next[node] >= 0)
    for node, nearest in nx.immediate_dominators(graph, 0).items():
        if nearest is not None:
            yield node, nearest

"""Call edges of the shortest window, by process: of each pair (caller, callee) what the callee itself spent when it was
called from there, in whatever context. Shares of all edges add up to one. And the calls between application and JDK
(stages.cct.measures.call_matrix), as edges between the two.

Of a pane the heaviest edges by instructions are kept, and the sum of the others; a pane goes with the window. They are
no part of the hub's note.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

import numpy as np

from stages.cct.measures import call_matrix
from stages.cct.tree import NAMES, THREAD, Tree
from stages.messages import TreeReport
from stages.messages.trees import CERTAINTIES
from streamer.hub.profile import OTHER

ProcessKey = tuple[str, int]
Edge = tuple[str, str]
COLUMNS = ("instructions", "ticks", "bytecodes", "invocations")
SIDES = ("application", "jdk")
MATRIX = "matrix"
"""The column of edges between SIDES: observed calls."""
MOST = 2048
"""Edges of a pane."""


class Edges:
    """`panes`: the length of the window. `matrix`: of all that was fed, whatever process."""

    def __init__(self, panes: int) -> None:
        self.panes = panes
        self.matrix: Counter[Edge] = Counter()
        self._kept: dict[ProcessKey, OrderedDict[int, dict[str, Counter[Edge]]]] = {}

    def feed(self, report: TreeReport) -> None:
        """Adds a report that is sound (`Trees.feed`)."""
        found = _edges(report)
        self.matrix.update(found[MATRIX])
        panes = self._kept.setdefault((report.host, report.pid), OrderedDict())
        newest = max(report.pane, max(panes, default=0))
        for pane in [n for n in panes if n <= newest - self.panes]:
            del panes[pane]
        if report.pane > newest - self.panes:
            into = panes.setdefault(report.pane, {name: Counter() for name in found})
            for name, edges in found.items():
                into[name].update(edges)

    def window(self, process: ProcessKey) -> dict[str, Counter[Edge]]:
        """By column, of the newest panes."""
        out: dict[str, Counter[Edge]] = {name: Counter() for name in (*COLUMNS, MATRIX)}
        for pane in self._kept.get(process, {}).values():
            for name, edges in pane.items():
                out[name].update(edges)
        return out

    def forget(self, process: ProcessKey) -> None:
        self._kept.pop(process, None)


def _edges(report: TreeReport) -> dict[str, Counter[Edge]]:
    rows = report.nodes[report.nodes["parent"] >= 0]
    callers = report.nodes["method"][rows["parent"]].astype(np.int64)
    pairs, where = np.unique(callers * len(report.names) + rows["method"], return_inverse=True)
    sums = np.zeros((len(COLUMNS), len(pairs)), np.int64)
    for sum_, name in zip(sums, COLUMNS, strict=True):
        np.add.at(sum_, where, np.sum([rows[f"{c}_{name}"] for c in CERTAINTIES], axis=0).astype(np.int64))
    heaviest = np.argsort(-sums[0], kind="stable")[:MOST]
    edges = [divmod(pair, len(report.names)) for pair in pairs[heaviest].tolist()]
    named = [(_caller(report.names[caller]), report.names[callee]) for caller, callee in edges]
    out = {}
    for sum_, name in zip(sums, COLUMNS, strict=True):
        out[name] = Counter[Edge]()
        for edge, spent in zip(named, sum_[heaviest].tolist(), strict=True):
            out[name][edge] += spent
        out[name][OTHER, OTHER] += int(sum_.sum() - sum_[heaviest].sum())
    cells = call_matrix(Tree(report.nodes, report.names)).tolist()
    out[MATRIX] = Counter({(SIDES[k], SIDES[m]): n for k, row in enumerate(cells) for m, n in enumerate(row)})
    return out


def _caller(name: str) -> str:
    """All threads are one."""
    return NAMES[THREAD] if name.startswith(NAMES[THREAD]) else name

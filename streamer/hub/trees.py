"""Calling-context trees of the newest panes, by process (`streamer.hub.kept`). The newest `NOTED_NODES` are part of the
hub's note, and so outlive it."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from stages.cct.merging import at_once, merged, merging
from stages.cct.tree import EMPTY, Tree
from stages.messages import TreeReport
from streamer.hub.edges import Edges
from streamer.hub.kept import KeptPanes, ProcessKey, Which

MOST_NODES = 1 << 20
"""Of all processes together."""
NOTED_NODES = 1 << 15


class Trees:
    """`most_panes`: the length of the longest window, `edge_panes`: of that of `edges`."""

    def __init__(self, most_panes: int, most_nodes: int = MOST_NODES, edge_panes: int = 10) -> None:
        self.edges = Edges(edge_panes)
        self._kept = KeptPanes[Tree](most_panes, most_nodes, _size, _merging)
        self.fed = 0  # reports
        self.refused = 0  # reports that were malformed

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": self._kept.newest(NOTED_NODES), "edges": Edges(self.edges.panes)}

    def feed(self, report: TreeReport) -> None:
        """Adds a worker's report; an impossible one is counted."""
        at_once(self.steps(report))

    def steps(self, report: TreeReport) -> Generator[None]:
        """`feed` in steps, between which everything here may be used."""
        rows = report.nodes
        if report.pane < 0 or not _sound(rows, len(report.names)):
            self.refused += 1
            return
        self.fed += 1
        self.edges.feed(report)
        yield from self._kept.add((report.host, report.pid), report.pane, Tree(rows, report.names))

    def window(self, panes: int, process: Which = None) -> Tree:
        """The tree of the newest `panes` panes."""
        chosen = self.parts(panes, process)
        return merged(chosen) if chosen else EMPTY

    def parts(self, panes: int, process: Which = None, behind: int = 0) -> list[Tree]:
        """The trees that are merged for it: `KeptPanes.parts`."""
        return self._kept.parts(panes, process, behind)

    def stretches(self, process: ProcessKey) -> list[tuple[list[int], Tree]]:
        """The kept trees, and of which panes each is."""
        return self._kept.stretches(process)

    def age(self, process: Which = None) -> int:
        """Panes from the first that is kept to the newest, of the oldest process."""
        return self._kept.age(process)

    def forget(self, process: ProcessKey) -> None:
        """Of a process that the hub has forgotten."""
        self.edges.forget(process)
        self._kept.forget(process)

    def statistics(self) -> dict[str, int]:
        return {
            "tree_nodes": self._kept.size, "trees_refused": self.refused, "trees_dropped": self._kept.dropped,
        }  # fmt: skip


def _size(tree: Tree) -> int:
    return len(tree.nodes)


def _merging(one: Tree, other: Tree) -> Generator[None, None, Tree]:
    return merging((one, other))


def _sound(rows: np.ndarray[tuple[int], np.dtype[np.void]], names: int) -> bool:
    parent, method = rows["parent"], rows["method"]
    return not bool(((parent < -1) | (parent >= np.arange(len(rows))) | (method < 0) | (method >= names)).any())

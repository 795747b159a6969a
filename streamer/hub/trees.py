"""Calling-context trees of the newest panes, by process.

Old panes are put together, ten to one, so that a long window is a sum of few trees; its far end is exact to ten panes.
All processes together keep `MOST_NODES` nodes: beyond that the oldest trees go first. The newest `NOTED_NODES` are part
of the hub's note, and so outlive it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator

import numpy as np

from stages.cct.tree import EMPTY, Tree, at_once, merged, merging
from stages.messages import TreeReport
from streamer.hub.edges import Edges

ProcessKey = tuple[str, int]
Which = ProcessKey | str | None
"""One process; those of a host; all."""
MOST_NODES = 1 << 20
NOTED_NODES = 1 << 15
TOGETHER = 10
"""Panes."""


class Trees:
    """`most_panes`: the length of the longest window, `edge_panes`: of that of `edges`."""

    def __init__(self, most_panes: int, most_nodes: int = MOST_NODES, edge_panes: int = 10) -> None:
        self._most_panes, self._most_nodes = most_panes, most_nodes
        self.edges = Edges(edge_panes)
        self._kept: dict[ProcessKey, OrderedDict[int, Tree]] = {}  # by pane; of those put together, the last
        self._nodes = 0
        self.fed = 0  # reports
        self.refused = 0  # reports that were malformed
        self.dropped = 0  # trees that there was no room for

    def __getstate__(self) -> dict[str, object]:
        """The newest trees, of each process as many as its part of `NOTED_NODES` lets."""
        kept: dict[ProcessKey, OrderedDict[int, Tree]] = {}
        nodes = 0
        for key, panes in self._kept.items():
            room = NOTED_NODES // len(self._kept)
            for pane in sorted(panes, reverse=True):
                room -= len(panes[pane].nodes)
                if room < 0:
                    break
                kept.setdefault(key, OrderedDict())[pane] = panes[pane]
                nodes += len(panes[pane].nodes)
        return {**self.__dict__, "_kept": kept, "_nodes": nodes, "edges": Edges(self.edges.panes)}

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
        key = report.host, report.pid
        panes = self._kept.setdefault(key, OrderedDict())
        yield from self._put(key, report.pane, Tree(rows, report.names))
        if self._kept.get(key) is not panes:
            return  # forgotten meanwhile
        newest = max(panes)
        for pane in [n for n in panes if n <= newest - self._most_panes]:
            self._nodes -= len(panes.pop(pane).nodes)
        for pane in [n for n in panes if n != _last_of_ten(n) <= newest - TOGETHER]:
            if self._kept.get(key) is panes:
                yield from self._put(key, _last_of_ten(pane), panes[pane], instead=pane)
        while self._nodes > self._most_nodes:
            key = max(self._kept, key=lambda k: sum(len(tree.nodes) for tree in self._kept[k].values()))
            oldest = min(self._kept[key])
            self._nodes -= len(self._kept[key].pop(oldest).nodes)
            self.dropped += 1
            if not self._kept[key]:
                del self._kept[key]

    def window(self, panes: int, process: Which = None) -> Tree:
        """The tree of the newest `panes` panes."""
        chosen = self.parts(panes, process)
        return merged(chosen) if chosen else EMPTY

    def parts(self, panes: int, process: Which = None, behind: int = 0) -> list[Tree]:
        """The trees that are merged for it, the newest `behind` panes left out. No later report changes them, so
        another thread may do that."""
        chosen: list[Tree] = []
        for key, kept in self._kept.items():
            if among(process, key) and kept:
                newest = max(kept) - behind
                chosen += (tree for pane, tree in kept.items() if newest - panes < pane <= newest)
        return chosen

    def stretches(self, process: ProcessKey) -> list[tuple[list[int], Tree]]:
        """The kept trees, and of which panes each is."""
        panes = self._kept.get(process, OrderedDict())
        old = max(panes, default=0) - TOGETHER
        before = {last: range(last - TOGETHER + 1, last) for last in panes if last == _last_of_ten(last) <= old}
        return [([*before.get(pane, ()), pane], panes[pane]) for pane in sorted(panes)]

    def age(self, process: Which = None) -> int:
        """Panes from the first that is kept to the newest, of the oldest process."""
        kept = [panes for key, panes in self._kept.items() if among(process, key)]
        return max((max(panes) - min(panes) + 1 for panes in kept), default=0)

    def forget(self, process: ProcessKey) -> None:
        """Of a process that the hub has forgotten."""
        self.edges.forget(process)
        self._nodes -= sum(len(tree.nodes) for tree in self._kept.pop(process, OrderedDict()).values())

    def statistics(self) -> dict[str, int]:
        return {"tree_nodes": self._nodes, "trees_refused": self.refused, "trees_dropped": self.dropped}

    def _put(self, key: ProcessKey, pane: int, tree: Tree, instead: int = -1) -> Generator[None]:
        """Adds `tree` to a pane, in whose place it may have been of pane `instead`."""
        panes = self._kept[key]
        known = panes.get(pane)
        if known is not None:
            tree = yield from merging((known, tree))
        if self._kept.get(key) is not panes:
            return
        for old in pane, instead:
            self._nodes -= len(panes.pop(old, EMPTY).nodes)
        panes[pane] = tree
        self._nodes += len(tree.nodes)


def among(which: Which, key: ProcessKey) -> bool:
    return which is None or which in (key, key[0])


def _last_of_ten(pane: int) -> int:
    return pane // TOGETHER * TOGETHER + TOGETHER - 1


def _sound(rows: np.ndarray[tuple[int], np.dtype[np.void]], names: int) -> bool:
    parent, method = rows["parent"], rows["method"]
    return not bool(((parent < -1) | (parent >= np.arange(len(rows))) | (method < 0) | (method >= names)).any())

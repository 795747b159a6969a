"""The bytecodes that compiled code ran: the positions that debug info gives for the instructions of blocks that ran.

A compiler describes few of its instructions (`STEP_DTYPE`), so what ran between two positions is concluded later
(`stages.statements.coverage`). How often a position ran is not told: one may have several instructions, and C2 makes
one of several passes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.messages import Paths
from stages.paths.counts import BlockCounts
from stages.paths.dictionary import Dictionary, spans
from stages.paths.groups import grouped
from stages.statements.methods import Graphs, Known

ALL_TIME = 1 << 62
"""Ticks of a pane: counts are of the whole run."""


class Compiled:
    """Of one process."""

    def __init__(self, known: Known) -> None:
        self._known, self._counts, self.dictionary = known, BlockCounts(), Dictionary()
        self.ran = np.zeros(0, np.bool_)  # by node
        self._seen = np.zeros(0, np.bool_)  # blocks of this generation

    def take(self, message: Paths, graphs: Graphs) -> None:
        """Raises DictionaryError."""
        if self.dictionary.take(message):
            self._seen = np.zeros(0, np.bool_)
        _, rows = grouped(message, ALL_TIME)
        executed = self._counts(
            self.dictionary, rows, message.order, message.stops["order"].copy(), message.stops["tsc"].copy(),
            message.breaks["confirmed"].copy(), message.breaks["order"].copy(),
        )  # fmt: skip
        self._see(np.unique(executed.block), graphs)

    def _see(self, blocks: NDArray[np.int64], graphs: Graphs) -> None:
        if self.dictionary.blocks.size > len(self._seen):
            more = np.zeros(2 * self.dictionary.blocks.size, np.bool_)
            more[: len(self._seen)] = self._seen
            self._seen = more
        new = blocks[~self._seen[blocks]]
        self._seen[new] = True
        rows = self.dictionary.blocks.rows[new]
        steps, _ = spans(rows["step"].astype(np.int64), rows["steps"].astype(np.int64))
        described = self.dictionary.steps.rows[steps]
        frames, _ = spans(described["frame"].astype(np.int64), described["frames"].astype(np.int64))
        found = np.unique(self.dictionary.frames.rows[np.unique(frames)])
        found = found[(found["bci"] >= 0) & (found["method"] < len(graphs.numbers))]
        numbers = graphs.numbers[found["method"]]
        self._known.meet(numbers, graphs, [])
        place = np.where(numbers >= 0, self._known.place[numbers], -1)
        t = self._known.tables()
        bci, place = found["bci"][place >= 0].astype(np.int64), place[place >= 0]
        inside = bci < t.code[place + 1] - t.code[place]
        nodes = t.node[t.code[place[inside]] + bci[inside]]
        if self._known.nodes > len(self.ran):
            more = np.zeros(2 * self._known.nodes, np.bool_)
            more[: len(self.ran)] = self.ran
            self.ran = more
        self.ran[nodes[nodes >= 0]] = True

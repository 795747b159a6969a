"""The bytecodes that compiled code ran: the positions that debug info gives for the instructions of blocks that ran.

A compiler describes few of its instructions (`STEP_DTYPE`), so what ran between two positions is concluded later
(`stages.statements.coverage`). How often a position ran is not told: one may have several instructions, and C2 makes
one of several passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.messages import Paths
from stages.paths.counts import BlockCounts, Rows
from stages.paths.dictionary import Column, Dictionary, spans
from stages.statements.methods import Graphs, Known

I64 = NDArray[np.int64]
NODE_DTYPE = np.dtype([("node", "<i8")])


class Compiled:
    """Of one process. The nodes of blocks are dropped with their generation."""

    def __init__(self, known: Known, dictionary: Dictionary | None = None) -> None:
        self._known, self._counts, self.dictionary = known, BlockCounts(), dictionary or Dictionary()
        self._forget()

    def _forget(self) -> None:
        self._nodes = Column(NODE_DTYPE)
        self._first, self._count = np.full(1024, -1, np.int64), np.zeros(1024, np.int64)  # by block; −1: not seen yet

    def begin(self, message: Paths) -> None:
        """Takes in its dictionaries. Raises DictionaryError."""
        if self.dictionary.take(message):
            self._forget()

    def ran(self, message: Paths, rows: Rows, graphs: Graphs) -> Iterator[tuple[I64, I64] | None]:
        """Behind `begin`, of the rows `grouped`: (n,) groups and the nodes that ran in them. None between two steps
        before it."""
        order = message.order if message.order.flags.writeable else message.order.copy()
        executed = self._counts(
            self.dictionary, rows, order, message.stops["order"].copy(), message.stops["tsc"].astype(np.int64),
            message.breaks["confirmed"].copy(), message.breaks["order"].copy(),
        )  # fmt: skip
        yield None
        yield from self._describe(np.unique(executed.block), graphs)
        at, owner = spans(self._first[executed.block], self._count[executed.block])
        yield executed.group[owner].astype(np.int64), self._nodes.rows["node"][at]

    def _describe(self, blocks: I64, graphs: Graphs) -> Iterator[None]:
        """Those of the blocks that are new get their nodes."""
        if self.dictionary.blocks.size > len(self._first):
            size = 2 * self.dictionary.blocks.size
            self._first = np.append(self._first, np.full(size - len(self._first), -1, np.int64))
            self._count = np.append(self._count, np.zeros(size - len(self._count), np.int64))
        new = blocks[self._first[blocks] < 0]
        if not len(new):
            return
        rows = self.dictionary.blocks.rows[new]
        steps, of_step = spans(rows["step"].astype(np.int64), rows["steps"].astype(np.int64))
        described = self.dictionary.steps.rows[steps]
        at, of_frame = spans(described["frame"].astype(np.int64), described["frames"].astype(np.int64))
        found, owner = self.dictionary.frames.rows[at], of_step[of_frame]
        sound = (found["bci"] >= 0) & (found["method"] < len(graphs.numbers))
        found, owner = found[sound], owner[sound]
        numbers = graphs.numbers[found["method"]]
        yield from self._known.meeting(numbers, graphs, [])
        place = np.where(numbers >= 0, self._known.place[numbers], -1)
        t = self._known.tables()
        bci, owner, place = found["bci"][place >= 0].astype(np.int64), owner[place >= 0], place[place >= 0]
        inside = bci < t.code[place + 1] - t.code[place]
        nodes, owner = t.node[t.code[place[inside]] + bci[inside]], owner[inside]
        pairs = np.unique(np.column_stack((owner, nodes))[nodes >= 0], axis=0)
        self._count[new] = np.bincount(pairs[:, 0], minlength=len(new))
        self._first[new] = self._nodes.size + np.cumsum(self._count[new]) - self._count[new]
        rows_ = np.zeros(len(pairs), NODE_DTYPE)
        rows_["node"] = pairs[:, 1]
        self._nodes.append(rows_)

"""The frontiers of a process's threads, and what is counted along their paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.icfg import Graph
from stages.columns import table
from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE
from stages.reconstruct.read_stacks import NO_STACKS, ReadStacks
from stages.reconstruct.state import (
    BOTTOM,
    CARRIED,
    CARRIED_SCALARS,
    CELLS,
    COMPILED,
    COMPILED_AT,
    KEPT_BYTECODES,
    NATIVE,
    NO_OP,
    UNKNOWN,
    At,
    Events,
    Executed,
    new_counts,
    new_state,
)
from stages.reconstruct.walk import compact, open_window, walk
from stages.reconstruct.window import Blocks

EXECUTED_DTYPE = np.dtype([("order", "<i8"), ("node", "<i4"), ("_", "<i4")])
"""As `stages.reconstruct.state.Executed`."""
OUTCOMES = {
    "stacks_agreed": At.AGREED, "stacks_continued": At.CONTINUED, "stacks_replaced": At.REPLACED,
    "stacks_refused": At.REFUSED,
}  # fmt: skip
BUDGET = 1 << 15
"""Blocks of a step."""


@dataclass(slots=True)
class Thread:
    """A thread between two pieces."""

    scalars: NDArray[np.int64] = field(default_factory=lambda: np.zeros(CARRIED_SCALARS, np.int64))
    node: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    cell: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    def __post_init__(self) -> None:
        self.scalars[[At.SCANNED, At.FALLBACK, At.CALLED, At.HERE]] = -1
        self.scalars[At.BEFORE] = NO_OP << 8 | NO_OP


class Parts(NamedTuple):
    """Of a group: parts of an order, in the order of time. (n, 2) positions; whether nothing is known before it; the
    row of the message; its suspect parts."""

    ends: NDArray[np.int64]
    fresh: NDArray[np.bool_]
    row: NDArray[np.int64]
    broken: NDArray[np.int64]
    broken_end: NDArray[np.int64]


class Found(NamedTuple):
    methods: NDArray[np.void]
    known: NDArray[np.void]
    events: list[NDArray[np.void]]
    executed: list[NDArray[np.void]]


class Matcher:
    """Of one process. A thread is known until `forget`; counts are zero between two groups."""

    def __init__(self, executed: bool = False) -> None:
        """`executed`: whether the executed bytecodes are to be told one by one."""
        self.state = new_state(KEPT_BYTECODES if executed else 0)
        self._state_at = table(self.state)
        self.threads: dict[int, Thread] = {}
        self.counts: Counter[str] = Counter()  # of stacks that were read
        self._counts = new_counts(0, 0)
        self._counts_at = table(self._counts)
        self._graph: tuple[Graph, NDArray[np.int64]] | None = None  # and where its arrays are

    def forget(self, tid: int) -> None:
        self.threads.pop(tid, None)

    def going(self, nodes: range, methods: range) -> None:
        """Those numbers are about to mean something else."""
        s = self.state
        for frames in (s.cells.node[: s.at[At.CELL]], *(thread.node for thread in self.threads.values())):
            for first, last, put in (
                (nodes.start, nodes.stop - 1, UNKNOWN),
                (NATIVE - methods.stop + 1, NATIVE - methods.start, UNKNOWN),
                (BOTTOM - methods.stop, BOTTOM - 1 - methods.start, BOTTOM),
            ):
                frames[(frames >= first) & (frames <= last)] = put

    def begin_generation(self) -> None:
        """Places in compiled code are about to mean something else."""
        s = self.state
        for frames in (s.cells.node[: s.at[At.CELL]], *(thread.node for thread in self.threads.values())):
            frames[(frames > BOTTOM) & (frames <= COMPILED_AT)] = COMPILED
        for thread in self.threads.values():
            thread.scalars[[At.CALLED, At.HERE]] = -1

    def group(
        self, number: int, tid: int, parts: Parts, graph: Graph, blocks: Blocks, order: NDArray[np.int32],
        breaks: NDArray[np.void], stacks: ReadStacks = NO_STACKS,
    ) -> Iterator[Found | None]:  # fmt: skip
        """What a thread ran in these parts: in steps, the last gives what was found. `stacks`: those that were read of
        it."""
        s = self.state
        self._room(len(graph.methods.entry), len(blocks.of.first))
        if self._graph is None or self._graph[0] is not graph:
            self._graph = graph, table(graph)
        thread = self.threads.setdefault(tid, Thread())
        if s.at[At.CELL] > CELLS // 2:
            self._compact()
        s.at[[At.METHODS, At.SITES]] = len(graph.methods.entry), len(graph.sites.node)
        s.at[At.NUMBERS] = len(blocks.number)
        self._load(thread, parts)
        where = self._graph[1], self._state_at, self._counts_at, table(blocks)
        events: list[NDArray[np.void]] = []
        executed: list[NDArray[np.void]] = []
        while True:
            done = walk(
                *where, order, parts.ends, parts.fresh, parts.row, parts.broken, parts.broken_end, breaks,
                table(stacks), len(stacks.order), BUDGET,
            )  # fmt: skip
            if s.at[At.EVENT]:
                events.append(_rows(s.events, int(s.at[At.EVENT])))
                s.at[At.EVENT] = 0
            if s.at[At.KEPT]:
                executed.append(_kept(s.executed, int(s.at[At.KEPT])))
                s.at[At.KEPT] = 0
            if done == len(parts.ends):
                break
            yield None
        self._keep(thread)
        for name, outcome in OUTCOMES.items():
            self.counts[name] += int(s.at[outcome])
            s.at[outcome] = 0
        yield Found(*self._take(number), events, executed)

    def _room(self, methods: int, blocks: int) -> None:
        c = self._counts
        if methods > len(c.seen) or blocks > len(c.touched):
            self._counts = new_counts(max(methods, 2 * len(c.seen)), max(blocks, 2 * len(c.touched)))
            self._counts_at = table(self._counts)

    def _load(self, thread: Thread, parts: Parts) -> None:
        s, n = self.state, len(thread.node)
        s.at[:CARRIED_SCALARS] = thread.scalars
        s.at[[At.STEP, At.ELEMENT, At.BLOCK, At.EVENT, At.PART, At.PASSED, At.SEEN, At.TOUCHED]] = 0
        s.at[At.ORDER] = -1
        s.front.node[:n], s.front.cell[:n] = thread.node, thread.cell
        row, order = (parts.row[0], parts.ends[0, 0]) if len(parts.row) else (np.int64(0), np.int64(0))
        open_window(self._state_at, row, order)

    def _keep(self, thread: Thread) -> None:
        s = self.state
        n = int(s.at[At.COUNT])
        if n > CARRIED:
            n = 0
        thread.scalars[:] = s.at[:CARRIED_SCALARS]
        if not n:
            thread.scalars[:] = Thread().scalars
        elif thread.scalars[At.FALLBACK] >= 0:  # a cell of its own would have to be kept
            thread.scalars[At.FALLBACK] = -1
        thread.node, thread.cell = s.front.node[:n].copy(), s.front.cell[:n].copy()

    def _compact(self) -> None:
        """Drops the cells that no thread's stack has. If they are many all the same, all stacks are forgotten."""
        s = self.state
        threads = list(self.threads.values())
        cells = np.concatenate([np.zeros(0, np.int32), *(thread.cell for thread in threads)])
        s.at[At.CELL] = compact(cells, s.cells.node, s.cells.below, int(s.at[At.CELL]))
        if s.at[At.CELL] > CELLS // 2:
            cells[:], s.at[At.CELL] = 0, 1
        at = 0
        for thread in threads:
            thread.cell = cells[at : at + len(thread.cell)].copy()
            at += len(thread.cell)

    def _take(self, number: int) -> tuple[NDArray[np.void], NDArray[np.void]]:
        c, at = self._counts, self.state.at
        seen, touched = np.sort(c.seen[: at[At.SEEN]]), np.sort(c.touched[: at[At.TOUCHED]])
        methods, known = np.zeros(len(seen), METHOD_DTYPE), np.zeros(len(touched), KNOWN_DTYPE)
        methods["group"], methods["method"] = number, seen
        for name in ("invocations", "bytecodes", "instructions"):
            column = getattr(c, name)
            methods[name], column[seen] = column[seen], 0
        known["group"], known["block"], known["times"] = number, touched, c.times[touched]
        c.times[touched] = 0
        return methods, known


def _rows(events: Events, count: int) -> NDArray[np.void]:
    rows = np.zeros(count, EVENT_DTYPE)
    for name, column in events._asdict().items():
        rows[name] = column[:count]
    return rows


def _kept(executed: Executed, count: int) -> NDArray[np.void]:
    if count > len(executed.node):
        raise RuntimeError(f"{count} bytecodes were executed in one step, {len(executed.node)} have room")
    rows = np.zeros(count, EXECUTED_DTYPE)
    rows["order"], rows["node"] = executed.order[:count], executed.node[:count]
    return rows

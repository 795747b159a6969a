"""State of one process in the stage: tables, the dictionary of paths, where each thread stands, and parts of orders
that are not counted yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.cct.contents import Contents
from stages.cct.fold import TH, fold
from stages.cct.interpreted import Told
from stages.cct.panes import Pane
from stages.cct.selection import Selection
from stages.cct.tables import BY_PATH, Tables
from stages.columns import table
from stages.images import Process
from stages.messages import Bytecodes
from stages.paths.dictionary import Dictionary

MADE = 1 << 11
"""About so many new steps are worked out in one step of the stage."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bounds of a process's tables, in rows; and how many holes a second have an unknown caller of their own: more of
    them in one pane share one a thread."""

    activations: int = 1 << 20
    nodes: int = 1 << 20
    steps: int = 1 << 20
    holes: int = 1 << 10


ROOM = Room()


@dataclass(slots=True)
class Traced:
    """One process. Kept as long as the worker; panes go when they are told, threads at their end."""

    process: Process
    contents: Contents
    tables: Tables
    tables_at: NDArray[np.int64]  # for kernels
    dictionary: Dictionary = field(default_factory=Dictionary)
    threads: NDArray[np.int64] = field(default_factory=lambda: np.zeros((16, TH), np.int64))
    slot: dict[int, int] = field(default_factory=dict)  # of `threads`, by tid
    free: list[int] = field(default_factory=list)
    named: int = 0  # threads, since the names were last made anew
    by_path: NDArray[np.int32] = field(default_factory=lambda: np.zeros((1024, BY_PATH), np.int32))
    paths: int = 0  # of which `by_path` knows the instructions
    panes: dict[int, Pane] = field(default_factory=dict)
    late: list[Part] = field(default_factory=list)  # parts that wait for the next message's
    pane: int = -1  # whose steps are not yet settled
    closed: int = -1
    bytecodes: Bytecodes | None = None  # of the `Paths` that comes next
    methods: dict[int, str] = field(default_factory=dict)  # of `Bytecodes`: names by its numbers
    selected: list[tuple[int, Selection]] = field(default_factory=list)  # from a pane on; those of closed panes go


@dataclass(slots=True)
class Part:
    """Rows of an order that belong to one pane, and how far they have come: arguments of `fold`."""

    pane: int
    told: Told
    arrays: tuple[NDArray[Any], ...]
    done: bool = False

    @property
    def at(self) -> NDArray[np.int64]:
        return self.arrays[-2]

    def fold(self, p: Traced, blocks: NDArray[np.int64], stands: NDArray[np.uint8], forced: bool) -> int:
        events, rest = self.arrays[:2], self.arrays[2:]
        return int(fold(p.tables_at, blocks, table(self.told), *events, p.threads, *rest, stands, forced, MADE))

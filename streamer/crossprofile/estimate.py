"""A tree's cycles on another platform, by a cost table: cross-profiling (Moret et al., CCCP, §5.2).

Counted: the bytecodes that the interpreter executed, each by its opcode, in their contexts. Compiled code does not tell
its bytecodes, so an invocation of it is taken to cost what an interpreted one of the same method did on average. Calls
and returns load the code that they go to, by the size of the method called, or returned to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stages.cct.tree import Tree
from stages.messages.trees import CERTAINTIES
from streamer.crossprofile.table import CostTable

COLUMN = "bytecodes"
"""That has the cycles."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """`tree`: with cycles as its bytecodes. Of these are `counted` those of interpreted bytecodes, `invoked` those of
    invocations of compiled code, `loaded` those of loading code. `unknown`: invocations of which nothing is known."""

    tree: Tree
    counted: int
    invoked: int
    loaded: int
    unknown: int


def estimated(tree: Tree, table: CostTable, interpreted: Mapping[str, int], sizes: Mapping[str, int]) -> Estimate:
    """`tree`: without stubs, call sites apart; its bytecodes are cycles by the table (`stages.cct.contents`).
    `interpreted`: by method, how many invocations the interpreter ran; `sizes`: bytes of bytecode."""
    rows = tree.nodes.copy()
    method, parent = rows["method"].astype(np.int64), rows["parent"].astype(np.int64)
    is_method = np.array([not name.startswith("[") for name in tree.names], np.bool_)
    size = np.array([sizes.get(name, 0) for name in tree.names], np.int64)
    runs = np.array([interpreted.get(name, 0) for name in tree.names], np.int64)
    spent, times = np.zeros(len(tree.names)), np.zeros(len(tree.names))
    own, invocations = (
        [rows[f"{certainty}_{column}"].astype(np.float64) for certainty in CERTAINTIES]
        for column in (COLUMN, "invocations")
    )
    for sums, columns in ((spent, own), (times, invocations)):
        for column in columns:
            np.add.at(sums, method, column)
    known = is_method & (runs > 0) & (spent > 0)
    each = np.where(known, spent / np.maximum(runs, 1), 0.0)
    # a context lacks what its invocations cost on average, beyond what was counted there; of that as much is added in
    # all as the method's compiled invocations cost
    lacks = [np.maximum(n * each[method] - cycles, 0.0) for n, cycles in zip(invocations, own, strict=True)]
    lacking = np.zeros(len(tree.names))
    for column in lacks:
        np.add.at(lacking, method, column)
    part = np.maximum(times - runs, 0.0) * each / np.maximum(lacking, 1.0)
    call, back = table.load.call(size), table.load.back(size)
    edge = (parent >= 0) & is_method[method] & is_method[method[parent]] if len(rows) else np.zeros(0, np.bool_)
    counted = invoked = loaded = 0.0
    for certainty, cycles, n, lack in zip(CERTAINTIES, own, invocations, lacks, strict=True):
        more = lack * np.minimum(part, 1.0)[method]
        load = np.where(edge, n * back[method[parent]], 0.0)
        np.add.at(load, parent[edge], (n * call[method])[edge])
        rows[f"{certainty}_{COLUMN}"] = np.rint(cycles + more + load).astype(np.uint64)
        counted, invoked, loaded = counted + cycles.sum(), invoked + more.sum(), loaded + load.sum()
    silent = is_method & ~known
    unknown = sum(int(rows[f"{certainty}_invocations"][silent[method]].sum()) for certainty in CERTAINTIES)
    return Estimate(Tree(rows, tree.names), round(counted), round(invoked), round(loaded), unknown)

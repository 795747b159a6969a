"""The bounds of calling-context trees: what a million nodes take, and how long a pane of many takes to close.

    python -m benchmarks.cct_bounds [--nodes 1000000] [--pane 100000]

A made-up tree (each node has some children, thirty deep) is put into a worker's tables with room for it, all nodes with
counts, and as many activations and steps; then a pane in which so many of them ran is closed, as the stage does, and
its report is merged by a hub.
Memory is that of the process (resident, proc(5)) beyond what it was with kernels and nothing in the tables; time is
the thread's CPU time, so that a busy machine changes little.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.cct.nodes import child
from stages.cct.panes import Pane
from stages.cct.tables import PARTS, Z_NODES, Z_NOTED, Tables, empty, tables_at
from stages.cct.tree import Tree
from stages.columns import table
from stages.messages import TREE_DTYPE, TreeReport
from streamer.hub.trees import Trees

MOST_MEMORY = 500e6
MOST_SECONDS = 0.05
METHODS = 5000
DEPTH = 30


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@kernel
def grow(where, parents, methods, nodes):  # type: ignore[no-untyped-def]
    """Makes (n,) nodes with counts, each below a node that there is already."""
    t = tables_at(where)
    for k in range(len(nodes)):
        nodes[k] = child(t, nodes[parents[k]] if parents[k] >= 0 else np.int64(0), methods[k], np.int64(k & 63))
        n = nodes[k]
        if t.counts[6 * n] == 0:  # two calls of one method at one site are one node
            t.noted[t.size[Z_NOTED]] = n
            t.size[Z_NOTED] += 1
            for q in range(6):
                t.counts[6 * n + q] = k + 1
            t.spent[2 * n] = 1.5


def made_up(nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n,) parents, −1: a thread; (n,) methods."""
    random = np.random.default_rng(1)
    depth = np.arange(nodes) % DEPTH
    parents = np.where(depth == 0, -1, np.arange(nodes) - 1)
    some = (depth > 1) & (random.random(nodes) < 0.5)
    parents[some] = np.maximum(parents[some] - random.integers(0, 2, some.sum()), 0)
    return parents.astype(np.int64), random.integers(4, METHODS, nodes)


def filled(room: int, nodes: int) -> Tables:
    tables = empty(room, room, room)
    parents, methods = made_up(nodes)
    grow(table(tables), parents, methods, np.zeros(nodes, np.int64))
    return tables


def closed(tables: Tables, names: list[str]) -> tuple[Tree, list[float]]:
    """The pane's tree, and the seconds of each step."""
    pane, steps = Pane(), [time.thread_time()]

    def timed(work: Iterator[None]) -> None:
        steps.extend(time.thread_time() for _ in work)

    timed(pane.add(tables))
    work, out = pane.tree(tables, names), Tree(np.zeros(0, TREE_DTYPE), ())
    while True:
        try:
            next(work)
        except StopIteration as end:
            out = end.value
            break
        steps.append(time.thread_time())
    steps.append(time.thread_time())
    return out, np.diff(steps).tolist()


def measured(nodes: int, pane: int) -> dict[str, float]:
    names = [f"some.package.Class{k}.method{k}" for k in range(METHODS)]
    closed(filled(1 << 12, 1000), names)  # kernels
    small = filled(2 * pane, pane)
    tree, steps = min((closed(small, names) for _ in range(5)), key=lambda of: sum(of[1]))
    assert len(tree.nodes) == int(small.size[Z_NODES]) - 1
    assert tree.total("observed_instructions") == int(small.counts[:, 0, 1].sum())

    def merged_by_a_hub() -> list[float]:
        """Seconds of each step."""
        hub, report = Trees(300), TreeReport("h", 1, 0, 5, tree.nodes, tree.names)
        hub.feed(report)
        times = [time.thread_time()]
        times.extend(time.thread_time() for _ in hub.steps(report))
        times.append(time.thread_time())
        return [after - before for before, after in pairwise(times)]

    merging = min((merged_by_a_hub() for _ in range(5)), key=sum)
    before = resident()
    large = filled(1 << (nodes - 1).bit_length(), nodes)
    in_nodes = resident() - before
    for rows, each in (
        (large.activation, 1),
        (large.step, 1),
        (large.suspect_ticks, 1),
        (large.touched, 1),
        (large.part, PARTS),
    ):
        rows[: each * nodes] = 1
    for slots in (large.by_call, large.by_state):
        slots[:] = 1
    in_tables = resident() - before
    hub, before = Trees(300), resident()
    whole, _ = closed(large, names)
    in_report = resident() - before
    hub.feed(TreeReport("h", 1, 0, 5, whole.nodes, whole.names))
    return {
        "nodes": len(whole.nodes), "nodes_bytes": in_nodes, "tables_bytes": in_tables, "report_bytes": in_report,
        "pane_nodes": len(tree.nodes), "close_seconds": sum(steps), "longest_step_seconds": max(steps),
        "merge_seconds": sum(merging), "longest_merge_step_seconds": max(merging),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--pane", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measured(options.nodes, options.pane)
    memory = found["tables_bytes"] + found["report_bytes"]
    if options.json:
        print(json.dumps(found))
    else:
        print(
            f"{found['nodes']:,} nodes: {found['nodes_bytes'] / 1e6:.0f} MB in a worker's tables, with as many "
            f"activations and steps {found['tables_bytes'] / 1e6:.0f} MB; a report of all of them "
            f"{found['report_bytes'] / 1e6:.0f} MB"
        )
        closing, longest, merging, step = (
            1e3 * found[f"{part}_seconds"] for part in ("close", "longest_step", "merge", "longest_merge_step")
        )
        print(
            f"a pane of {found['pane_nodes']:,} nodes: closed in {closing:.1f} ms, the longest step {longest:.1f} ms; "
            f"merged by a hub in {merging:.1f} ms, the longest step {step:.1f} ms"
        )
    return 1 if memory > MOST_MEMORY or found["close_seconds"] > MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())

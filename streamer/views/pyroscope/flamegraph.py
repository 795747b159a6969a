"""A tree as Pyroscope's FlameGraph: levels of (offset, total, own, name), offsets each from the end of the frame before
it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.cct.tree import Tree
from streamer.trees import flame
from streamer.views.pyroscope.schema import MESSAGES

ROOT = "total"


def flamegraph(tree: Tree, wanted: flame.Wanted, hz: float) -> Any:
    """Time in nanoseconds."""
    told = flame.flame(_nanoseconds(tree, hz) if wanted.weight == "time" else tree, wanted, 1e9)
    out = MESSAGES["FlameGraph"](names=[ROOT, *told["names"]])
    total, own, parent = told["total"], told["own"], told["parent"]
    begins, free = [0] * len(total), [0] * len(total)
    for begin, end in zip(told["levels"], told["levels"][1:], strict=False):
        values: list[int] = []
        last = 0
        for node in range(begin, end):
            up = parent[node]
            if up >= 0:
                begins[node] = free[up]
                free[up] += total[node]
            free[node] = begins[node] + own[node]
            if total[node]:
                values += (begins[node] - last, total[node], own[node], told["name"][node] + 1 if up >= 0 else 0)
                last = begins[node] + total[node]
        if values:
            out.levels.add(values=values)
    out.total, out.max_self = (total[0], max(own)) if total else (0, 0)
    return out


def _nanoseconds(tree: Tree, hz: float) -> Tree:
    """Rounded before they are added up, so that what is within a frame is never more than the frame."""
    rows = tree.nodes.copy()
    for name in ("observed_ticks", "suspect_ticks"):
        rows[name] = np.rint(rows[name] * (1e9 / hz))
    return Tree(rows, tree.names)

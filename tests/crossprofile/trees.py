"""Trees of one thread, from plain Python values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stages.cct.tree import NAMES, Tree
from stages.messages.trees import TREE_DTYPE


def tree(spent: Mapping[tuple[str, ...], tuple[int, int]]) -> Tree:
    """Invocations and bytecodes by path."""
    rows: dict[tuple[str, ...], int] = {(): 0}
    names = [NAMES[0]]
    nodes = [(-1, 0, 7)]
    for path in spent:
        for end in range(1, len(path) + 1):
            if path[:end] not in rows:
                names += [path[end - 1]] if path[end - 1] not in names else []
                nodes.append((rows[path[: end - 1]], names.index(path[end - 1]), -1))
                rows[path[:end]] = len(nodes) - 1
    out = np.zeros(len(nodes), TREE_DTYPE)
    out["parent"], out["method"], out["bci"] = zip(*nodes, strict=True)
    for path, (invocations, bytecodes) in spent.items():
        out[rows[path]]["observed_invocations"], out[rows[path]]["observed_bytecodes"] = invocations, bytecodes
    return Tree(out, tuple(names))

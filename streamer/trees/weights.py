"""What a share of a tree is a share of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.cct.tree import Tree
from stages.messages.trees import CERTAINTIES, COUNTS

WEIGHTS = {"instructions": "instructions", "time": "ticks", "invocations": "invocations", "bytecodes": "bytecodes"}
assert set(WEIGHTS.values()) == set(COUNTS)
U64 = NDArray[np.uint64]


def weights(tree: Tree, weight: str, observed: bool) -> U64:
    """(n,) each node's own cost, observed alone or suspect too."""
    certain = CERTAINTIES[:1] if observed else CERTAINTIES
    columns = [tree.nodes[f"{certainty}_{WEIGHTS[weight]}"] for certainty in certain]
    return np.sum(columns, axis=0, dtype=np.uint64) if len(tree.nodes) else np.zeros(0, np.uint64)


def weighted(tree: Tree, weight: str, observed: bool) -> tuple[Tree, U64]:
    return tree, weights(tree, weight, observed)

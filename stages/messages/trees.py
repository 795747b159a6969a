"""Calling-context trees of a pane."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

COUNTS = ("invocations", "instructions", "bytecodes", "ticks")
CERTAINTIES = ("observed", "suspect")
TREE_DTYPE = np.dtype(
    [("parent", "<i4"), ("method", "<i4"), ("bci", "<i4"), ("_", "<i4"),
     *((f"{certainty}_{count}", "<u8") for certainty in CERTAINTIES for count in COUNTS)]
)  # fmt: skip
"""A node: the row of its parent, which stands before it (−1: it is a thread); position in the names (of a thread,
"[thread]" and its name); bci of the call in the parent (−1: not known, or no call of bytecode; of a thread its tid);
its own counts, without its children's. No two rows have the same first three columns. `bytecodes`: as in
PROFILE_DTYPE."""


@dataclass(frozen=True, slots=True)
class TreeReport:
    """One worker's contexts of one process in one pane. Additive: trees of one pane are merged."""

    host: str
    pid: int
    worker: int
    pane: int  # tsc // ticks per pane
    nodes: NDArray[np.void] = field(metadata={"dtype": TREE_DTYPE})
    names: tuple[str, ...]

"""The bytecodes that were executed in a pane, and the paths through methods that the interpreter took."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

STATEMENT_DTYPE = np.dtype([("bytecodes", "<i4"), ("lines", "<i4")])
"""A method of which anything ran: its instructions, and its distinct source lines (0: not known)."""
WAY_DTYPE = np.dtype([("method", "<i4"), ("_", "<i4"), ("number", "<u8"), ("paths", "<u8"), ("times", "<u8")])
"""An acyclic path: its method's row, its number (Ball and Larus, below `paths`), and how often it was taken."""


@dataclass(frozen=True, slots=True)
class StatementReport:
    """One worker's part of one process in one pane: observed only. Additive: bits are united, times summed.

    `seen`, `ran` and `lines` hold a bit of each instruction, or line, of all methods, in the order of the rows; each
    method's begin with a byte of their own, the lowest bit first."""

    host: str
    pid: int
    worker: int
    pane: int  # tsc // ticks per pane
    methods: NDArray[np.void] = field(metadata={"dtype": STATEMENT_DTYPE})
    names: tuple[tuple[str, str, str], ...]  # of each method: class (internal name), name, descriptor
    seen: NDArray[np.uint8]  # interpreted, or told by debug info
    ran: NDArray[np.uint8]  # seen, or concluded from these
    lines: NDArray[np.uint8]  # one of its instructions ran
    numbers: NDArray[np.uint16]  # of each line in its source; each method's ascend
    paths: NDArray[np.void] = field(metadata={"dtype": WAY_DTYPE})  # those taken most often
    ways: tuple[str, ...]  # of each path: the bytecode indices on it where control could go elsewhere
    other_paths: int = 0  # how often others were taken

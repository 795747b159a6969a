"""Cycles that leave no packet: recursion by direct calls alone, or a loop without a condition.

The walker finds that such a block has no end (LOOP). It leaves it where an event comes to an address (a FUP), the
first time that it passes there: how often it went round before, the trace does not say. So a callee of the cycle is
called at least as often as is counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.follow.cfg.graph import BL, BL_FROM, BL_KIND, LOOP, Tables
from stages.follow.walk import path_sequence as orders


def untold(tables: Tables, part: int) -> NDArray[np.uint64]:
    """(n,) the instructions of which it is not known how often they were executed when block `part` was, the part of
    another before an address (BL_FROM); distinct. Empty: the other has an end, or `part` ends before its cycle. By the
    code as it is now: only while it is alive."""
    whole = int(tables.block[part * BL + BL_FROM])
    none = np.zeros(0, np.uint64)
    if tables.block[whole * BL + BL_KIND] != LOOP:
        return none
    addresses, _ = orders.block_addresses(tables, np.array([whole], np.int64))
    turn = tables.last[whole : whole + 1].view(np.uint64)[0]  # where the walker gave up, so in the cycle
    begins = np.flatnonzero(addresses == turn)
    cycle = np.unique(addresses[begins[-1] :]) if len(begins) else np.unique(addresses)  # longer than the walker looks
    return cycle if tables.last[part : part + 1].view(np.uint64)[0] in cycle else none

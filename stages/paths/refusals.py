"""Entries of nmethods that are not entrant any more: the jump there is no invocation.

The JVM lays a JMP rel32 over the verified entry (NativeJump::patch_verified_entry, nativeInst_x86.cpp), to the stub
that looks for the method's code of now: in that, or in the interpreter, the call has its one invocation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import CALL_SIZE as JUMP_SIZE
from stages.paths.dictionary import Dictionary, spans


def refused(d: Dictionary, blocks: NDArray[np.int64], verified: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(m,) which of the instructions of (n,) blocks (`Dictionary.addresses`), of which those at a verified entry are
    `verified`, is such a jump: it is alone in its range, and its block goes on elsewhere."""
    rows = d.blocks.rows[blocks]
    at, of = spans(rows["range"].astype(np.int64), rows["ranges"].astype(np.int64))
    ranges = d.ranges.rows[at]
    goes_on = np.zeros(len(at), np.bool_)
    goes_on[:-1] = of[1:] == of[:-1]
    jumps = (ranges["instructions"] == 1) & (ranges["hi"] - ranges["lo"] == JUMP_SIZE) & (ranges["calls"] == 0)
    return np.asarray(verified & np.repeat(goes_on & jumps, ranges["instructions"]), np.bool_)

"""The return stack, against which near RETs are compressed (SDM vol. 3, "RET Compression").

64 entries, of which the oldest falls off; every near RET pops, compressed or not. A walker keeps the entries
(addresses, blocks) in a ring of SLOTS, and beside it where the top is and how many count. The ring has more slots than
the stack entries, so the slot above the top is never in use: it can be written without asking whether anything is
pushed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import kernel, near

DEPTH = 64
SLOTS = 128
NONE, ONE = np.int64(0), np.int64(1)  # of a sized type: a plain int would be compiled in
_MASK = np.int64(SLOTS - 1)
_DEPTH = np.int64(DEPTH)


@kernel
def call_pushes(target: Any, after: Any) -> Any:
    """Whether a near direct CALL to `target` pushes `after`, the address behind it. CALL +0 does not: it only asks
    where it stands, and has no RET."""
    return target != after


@near
def above(top: Any, n: Any) -> Any:
    """The slot `n` above the top (below, if `n` < 0)."""
    return (top + n) & _MASK


@near
def pushed(depth: Any, n: Any) -> Any:
    """How many entries count when `n` more have been pushed: the oldest fall off."""
    return min(depth + n, _DEPTH)


@near
def popped(depth: Any, n: Any) -> Any:
    """How many count when `n` have been popped. A RET on an empty stack takes nothing."""
    return max(depth - n, NONE)


@near
def left_under(depth: Any, high: Any) -> Any:
    """How many of `depth` entries are still there when up to `high` ≤ DEPTH others lay on them, and are gone again."""
    return min(depth, _DEPTH - high)

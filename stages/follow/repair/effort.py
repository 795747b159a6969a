"""How much may be searched: a limit for each search, and one for all of a process.

Counted in steps, not in time, so that a replay searches where the live run did.
"""

from __future__ import annotations

import numpy as np

EFFORT = 1 << 22  # of a search, all rounds and the way up to the contradiction: 50 ms, about
LOOKED_UP = 512  # for an instruction of which nothing is remembered, where another is 1
EFFORT_A_BYTE = 256  # of all searches together, for each byte of trace, on average,
SAVED = 32 * EFFORT  # and as much of that may be saved for later


class Effort:
    """The budget of one search."""

    def __init__(self, most: int = EFFORT) -> None:
        self.most = most
        self.left = np.array([most], np.int64)

    @property
    def spent(self) -> int:
        return self.most - int(self.left[0])

    def over(self) -> bool:
        """Whether nothing is left. A search that ended so has not tried everything."""
        return int(self.left[0]) <= 0


class Purse:
    """The budget of all searches of a process: it fills as trace is walked. So however often the trace contradicts the
    code, and however small the pieces are in which it comes, searching takes its share of the time and no more."""

    def __init__(self) -> None:
        self.holds = SAVED

    def fill(self, size: int) -> None:
        """`size` bytes of trace come."""
        self.holds = min(SAVED, self.holds + size * EFFORT_A_BYTE)

    def lend(self) -> Effort:
        """For one search; `pay` what it has spent."""
        return Effort(max(0, min(EFFORT, self.holds)))

    def pay(self, effort: Effort) -> None:
        self.holds -= effort.spent

"""How long after its execution a program's work is seen in the windows.

The work of a pane is spread over the pane, and is seen once the pane has closed. So a pane is not one delay but all
from (closed − end) to (closed − begin): each tenth of it counts as one.
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds: upper bounds of the buckets, the last one excepted, which has none."""
PARTS = 10  # of a pane


class Delays:
    """A histogram of a process's whole run."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        """The sum of all delays."""

    def seen(self, since_end: float, pane_seconds: float) -> None:
        """A pane that ended so many seconds ago is seen now. No delay is below 0: clocks differ a little."""
        for part in range(PARTS):
            delay = max(0.0, since_end + pane_seconds * (part + 0.5) / PARTS)
            self.counts[bisect_left(BOUNDS, delay)] += 1
            self.seconds += delay

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, count of the delays up to it), as Prometheus has it."""
        total, rows = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows

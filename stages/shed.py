"""When to shed load: trace that would be followed too late is counted by its addresses instead (fidelity `ip`).

To follow each branch costs more than reading the addresses in packets does, and a running JVM does not wait. The
signal is the age of the newest drain that has been heard of. All that capture sends stands in one line, behind the
piece being worked on, wherever that line is (sockets, this stage's own work); so the age is the line's length in time.
How long a segment waits for its code is not in it. While the pieces of one drain are counted it grows, too, so a drain
that takes long is noticed in its middle.

From `most` on load is shed, until the age is less than half of that. So under steady load following and shedding take
turns several times a second, and as much is followed as there is time for. So that each pane has instructions
where all the time goes into reading addresses, one in `EACH` of the pieces to shed is followed all the same: by number,
so that large and small pieces, and threads that write much and little, are sampled alike. Where reading them takes even
longer than writing them, the age grows on, and `stages.decode` does not read chunks that have waited too long (UNREAD):
less is seen then, but nothing late.

`stages.recover` and `stages.reconstruct` go by the same clock, and leave off earlier: first no hole is filled any more,
then it is not said which methods the interpreter runs, and only then not every branch.

A recording waits for its reader: there nothing is ever shed, and there is no such clock.
"""

from __future__ import annotations

from collections.abc import Callable

EACH = 31
"""Prime: streams that take turns are met alike."""


class Shedder:
    """Of one process's trace."""

    def __init__(self, now: Callable[[], int], most: int) -> None:
        """`now`: the clock that stamps drains, in ticks; `most`: the age, in ticks, from which on load is shed."""
        self._now, self.most = now, most
        self.age = 0
        """Of the newest piece when it was taken up, in ticks."""
        self._behind = False
        self._pieces = 0  # that came while it was behind
        self.ended = 0  # when; 0: it has not

    def behind(self, drained: int) -> bool:
        """`drained`: time of the newest drain; 0: none is known."""
        age = self._now() - max(drained, self.ended)
        self.age = max(0, age) if drained > 0 else 0
        self._behind = drained > 0 and age > (self.most // 2 if self._behind else self.most)
        return self._behind

    def sheds(self, drained: int) -> bool:
        """Whether the piece that is next is to be shed."""
        if not self.behind(drained):
            return False
        self._pieces += 1
        return self._pieces % EACH != 0

    def end(self) -> None:
        """Nothing comes any more, so there is nothing to fall behind: the rest is followed for `most` longer."""
        self.ended = self._now()
        self._behind = False

"""Panes and windows of one process.

A pane is a fixed slice of time; a window is the sum of the newest panes, kept by adding the pane that comes in and
subtracting the pane that goes out. All sums are integers (modulo 2⁶⁴), so a window equals the sum of its panes for
ever: nothing drifts. A report for a pane that has already closed is late: it is counted, and added to the pane and to
each window the pane is in, as long as the pane is retained.

A window may end before the newest pane (`delay`): the last ten seconds are compared with the minute that ended when
they began (`streamer.hub.shift`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.messages import Loss
from streamer.hub.profile import COLUMNS, MethodTable, Rows, Slots, merged

DECODED = 0
Bytes = NDArray[np.int64]
"""(BYTES,) decoded bytes first, then the bytes in holes of each cause, by its number; of the decoded ones those that
were shed; from `HOLES` on, by the number of the cause, how many holes: some have no bytes."""
SHED = 1 + max(Loss)
HOLES = 1 + SHED
BYTES = 1 + HOLES + max(Loss)
RECOVERED, GUESSED = range(2)
NOTHING = np.zeros((2, COLUMNS), np.uint64)
NOTHING.flags.writeable = False


class Pane:
    """The counts of one slice of time: `slots` ascending and distinct, `rows` their sums, `bytes`; `off`: ticks in
    which the process was not traced on purpose; `filled`: (2, COLUMNS) sums of fillings,
    those RECOVERED and those GUESSED, which are not in `rows`."""

    __slots__ = ("bytes", "filled", "number", "off", "rows", "slots")

    def __init__(self, number: int) -> None:
        self.number = number
        self.slots: Slots = np.empty(0, np.intp)
        self.rows: Rows = np.empty((0, COLUMNS), np.uint64)
        self.bytes: Bytes = np.zeros(BYTES, np.int64)
        self.off = 0
        self.filled = NOTHING.copy()

    def add(self, slots: Slots, rows: Rows) -> None:
        self.slots, self.rows = merged(np.concatenate((self.slots, slots)), np.concatenate((self.rows, rows)))

    def trim(self, limit: int, column: int) -> int:
        """Keeps the `limit` heaviest methods by `column`, adds the rest to `other`; how many those were."""
        if len(self.slots) <= limit:
            return 0
        named = np.flatnonzero(self.slots)
        light = named[np.argsort(self.rows[named, column], kind="stable")][: len(self.slots) - limit]
        slots = self.slots.copy()
        slots[light] = 0
        self.slots, self.rows = merged(slots, self.rows)
        return len(light)


class Window:
    """The sum of the panes newest − delay − length < number ≤ newest − delay."""

    def __init__(self, length: int, delay: int, limit: int) -> None:
        self.length = length
        self.delay = delay
        self.rows: Rows = np.zeros((limit, COLUMNS), np.uint64)
        self.bytes: Bytes = np.zeros(BYTES, np.int64)
        self.off = 0
        self.filled = NOTHING.copy()

    def holds(self, number: int, newest: int) -> bool:
        return newest - self.delay - self.length < number <= newest - self.delay

    def add(self, pane: Pane) -> None:
        self.rows[pane.slots] += pane.rows
        self.bytes += pane.bytes
        self.off += pane.off
        self.filled += pane.filled

    def subtract(self, pane: Pane) -> None:
        self.rows[pane.slots] -= pane.rows
        self.bytes -= pane.bytes
        self.off -= pane.off
        self.filled -= pane.filled


class Windows:
    """The open and the retained closed panes of a process, and the windows over the closed ones.

    `spans` are (length, delay) in panes. At most `max_open` panes are open (the oldest closes when one more is
    needed) and a closed pane keeps at most `pane_methods` methods, the heaviest by `column`."""

    def __init__(
        self,
        table: MethodTable,
        spans: list[tuple[int, int]],
        column: int,
        *,
        pane_methods: int = 2048,
        max_open: int = 64,
    ) -> None:
        self.table = table
        self.windows = [Window(length, delay, table.limit) for length, delay in spans]
        self.newest: int | None = None
        """The newest closed pane."""
        self.first: int | None = None
        """The first pane that closed."""
        self.closed = 0
        self.late = 0
        """Reports for a pane that had closed."""
        self.expired = 0
        """Late reports for a pane that no window holds any more: their methods are in the run's sums alone."""
        self.trimmed = 0
        self.off = 0
        """Ticks of the whole run in which nothing was traced on purpose."""
        self.filled = NOTHING.copy()
        """(COLUMNS,) of the whole run."""
        self._column = column
        self._pane_methods = max(1, pane_methods)
        self._max_open = max(1, max_open)
        self._depth = max(length + delay for length, delay in spans)
        self._open: dict[int, Pane] = {}
        self._closed: dict[int, Pane] = {}

    def add(
        self, number: int, names: list[str], rows: Rows, sums: Bytes, off: int = 0,
        filled: NDArray[np.uint64] = NOTHING,
    ) -> None:  # fmt: skip
        """Adds a report to its pane, open or closed: `rows` (n, COLUMNS) of the n methods `names`, which may repeat;
        `off`: ticks of the pane in which nothing was traced on purpose; `filled`: (2, COLUMNS) sums of
        fillings, those RECOVERED and those GUESSED."""
        with self.table.slots(names) as slots:
            np.add.at(self.table.run, slots, rows)
            self.off += off
            self.filled += filled
            self._add(number, slots, rows, sums, off, filled)

    def _add(
        self, number: int, slots: Slots, rows: Rows, sums: Bytes, off: int, filled: NDArray[np.uint64]
    ) -> None:  # fmt: skip
        if self.newest is None or number > self.newest:
            pane = self._open.get(number)
            if pane is None:
                pane = self._open[number] = Pane(number)
            self._change(pane, slots, rows, sums, off, filled)
            while len(self._open) > self._max_open:
                self.close(min(self._open))
            return
        self.late += 1
        if number <= self.newest - self._depth:
            self.expired += 1
            return
        pane = self._closed.get(number)
        if pane is None:
            pane = self._closed[number] = Pane(number)
        within = [w for w in self.windows if w.holds(number, self.newest)]
        for window in within:
            window.subtract(pane)
        self._change(pane, slots, rows, sums, off, filled)
        self._trim(pane)
        for window in within:
            window.add(pane)

    def close(self, number: int) -> None:
        """Closes pane `number` and all before it; the windows now end with it, were it empty or not."""
        if self.newest is not None and number <= self.newest:
            return
        before, self.newest = self.newest, number
        if self.first is None:
            self.first = min(self._open, default=number)
        for ready in sorted(n for n in self._open if n <= number):
            pane = self._closed[ready] = self._open.pop(ready)
            self._trim(pane)
            self.closed += 1
        for old in list(self._closed.values()):
            for window in self.windows:
                was = before is not None and old.number <= before and window.holds(old.number, before)
                now = window.holds(old.number, number)
                if now and not was:
                    window.add(old)
                elif was and not now:
                    window.subtract(old)
            if old.number <= number - self._depth:
                self.table.release(old.slots)
                del self._closed[old.number]

    def age(self) -> int:
        """Panes from the first to the newest closed one."""
        return 0 if self.newest is None or self.first is None else self.newest - self.first + 1

    def open_panes(self) -> list[int]:
        return sorted(self._open)

    def panes(self, window: Window) -> Iterator[Pane]:
        """The panes a window is made of, oldest first; empty ones may be missing."""
        if self.newest is not None:
            for number in range(self.newest - window.delay - window.length + 1, self.newest - window.delay + 1):
                if number in self._closed:
                    yield self._closed[number]

    def kept(self) -> list[Pane]:
        """The closed panes that are kept: those of the longest window and of the reference; oldest first."""
        return [self._closed[number] for number in sorted(self._closed)]

    def sum(self, panes: list[Pane]) -> Window:
        """A window of its own, of kept panes, with rows for the names that there are; it stays as it is when they
        change."""
        window = Window(len(panes), 0, len(self.table.names))
        for pane in panes:
            window.add(pane)
        return window

    def _change(
        self, pane: Pane, slots: Slots, rows: Rows, sums: Bytes, off: int, filled: NDArray[np.uint64]
    ) -> None:  # fmt: skip
        self.table.release(pane.slots)
        pane.add(slots, rows)
        pane.bytes += sums
        pane.off += off
        pane.filled += filled
        self.table.hold(pane.slots)

    def _trim(self, pane: Pane) -> None:
        self.table.release(pane.slots)
        self.trimmed += pane.trim(self._pane_methods, self._column)
        self.table.hold(pane.slots)

"""One traced process as the hub sees it: its methods, panes, windows and shift; when a pane closes.

A worker says that it is done with a pane (`closed`), which covers the panes before it. A pane closes when all workers
known to handle the process are done with it, or `lateness` seconds after the first of them was.
"""

from __future__ import annotations

import numpy as np

from stages.messages import Clock, PaneReport
from streamer.hub.contradictions import Contradictions
from streamer.hub.delay import Delays
from streamer.hub.profile import COLUMNS, MethodTable, by_method
from streamer.hub.shift import Detector
from streamer.hub.windows import BYTES, Bytes, Pane, Windows


def succeeds(worker: int, other: int) -> bool:
    """Whether it is a later incarnation of the same member: `index + 256 · incarnation`."""
    return worker > other and worker % 256 == other % 256


class Process:
    def __init__(self, spans: list[int], column: int, *, lateness: float, max_methods: int, pane_methods: int) -> None:
        # the shortest window's reference: the next window's length, ending where the shortest begins
        reference = (spans[min(1, len(spans) - 1)], spans[0])
        self.table = MethodTable(max_methods)
        self.windows = Windows(
            self.table, [*((length, 0) for length in spans), reference], column, pane_methods=pane_methods
        )
        self.shift = Detector(column)
        self.contradictions = Contradictions()
        self.delays = Delays()
        self.clock: Clock | None = None
        self.ticks_per_pane = 0
        self.pending: Bytes = np.zeros(BYTES, np.int64)
        """Bytes the ledger decided on since the last report."""
        self.ended = False
        self.reports = 0
        self.last_report = 0.0
        self._column = column
        self._lateness = lateness
        self._done: dict[int, int] = {}  # by worker, until its successor reports
        self._due: dict[int, float] = {}

    def feed(self, report: PaneReport, now: float, wall_ns: int) -> None:
        if report.worker not in self._done:
            for old in [worker for worker in self._done if succeeds(report.worker, worker)]:
                del self._done[old]
        names = dict(report.names)
        ids, rows = by_method(report.profile, self._column)
        self.contradictions.add(report.contradictions)
        sums, self.pending = self.pending, np.zeros(BYTES, np.int64)
        off = max(0, min(report.off_ticks, self.ticks_per_pane)) if self.ticks_per_pane else 0
        filled = np.array([by_method(part, self._column)[1].sum(axis=0, dtype=np.uint64)
                           for part in (report.recovered, report.guessed)])  # fmt: skip
        self.windows.add(report.pane, [names.get(i, "[unnamed]") for i in ids.tolist()], rows, sums, off, filled)
        self.reports += 1
        self.last_report = now
        if report.closed:
            self._done[report.worker] = max(report.pane, self._done.get(report.worker, report.pane))
            if self.windows.newest is None or report.pane > self.windows.newest:
                self._due.setdefault(report.pane, now + self._lateness)
        else:
            self._done.setdefault(report.worker, -1)
        self.close(now, wall_ns)

    def close(self, now: float, wall_ns: int, *, all_open: bool = False) -> None:
        """Closes the panes whose time has come, oldest first. Both times are now: by the clock of the hub, and of the
        day."""
        complete = min(self._done.values(), default=-1)
        ready = [pane for pane, due in self._due.items() if pane <= complete or due <= now or all_open]
        if all_open:
            ready += self.windows.open_panes()
        if not ready:
            return
        last = max(ready)
        self._due = {pane: due for pane, due in self._due.items() if pane > last}
        if self.pending.any():
            sums, self.pending = self.pending, np.zeros(BYTES, np.int64)
            self.windows.add(last, [], np.empty((0, COLUMNS), np.uint64), sums)
        for pane in sorted({*(p for p in self.windows.open_panes() if p < last), last}):
            self.windows.close(pane)
            if self.clock is not None:
                begin, end = (self.clock.seconds_since(at * self.ticks_per_pane, wall_ns) for at in (pane, pane + 1))
                self.delays.seen(end, begin - end)
            self.shift.update(self.windows, self.windows.windows[0], self.windows.windows[-1], self.ticks_per_pane)

    def duty(self, index: int | None) -> float:
        """The part of a window's time (None: of the run's), from the first pane on, that was traced."""
        windows = self.windows
        off, panes = windows.off, windows.age()
        if index is not None:
            off, panes = windows.windows[index].off, min(panes, windows.windows[index].length)
        return self._traced(off, panes)

    def duty_of(self, panes: list[Pane]) -> float:
        """The same of some panes."""
        return self._traced(sum(pane.off for pane in panes), len(panes))

    def _traced(self, off: int, panes: int) -> float:
        time = panes * self.ticks_per_pane
        return min(1.0, max(0.0, 1 - off / time)) if time else 1.0

    def lag(self, wall_ns: int) -> float | None:
        """Seconds from the end of the newest closed pane to now; None before the first pane, after the process has
        ended, or without a clock."""
        if self.clock is None or self.windows.newest is None or self.ended:
            return None
        return max(0.0, self.clock.seconds_since((self.windows.newest + 1) * self.ticks_per_pane, wall_ns))

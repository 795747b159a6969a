"""The hub: sums the workers' reports, keeps windows and the ledger, and answers which methods are hot.

It has no I/O and no tasks of its own; time comes from the two clocks it is given. It is used from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.cct.tree import Tree
from stages.messages import Account, Clock, Loss, PaneReport, StreamKey
from streamer.config import WindowConfig
from streamer.hub.components import trouble
from streamer.hub.contradictions import Contradictions, ContradictionsView
from streamer.hub.hot import hot_view
from streamer.hub.kept import Which, among
from streamer.hub.ledger import Balance, Ledger, Totals
from streamer.hub.process import Process, succeeds
from streamer.hub.profile import (
    COLUMNS,
    FIDELITY_WEIGHTS,
    INSTRUCTIONS,
    WEIGHTS,
    Rows,
)
from streamer.hub.ranking import coverage
from streamer.hub.statements import Statements
from streamer.hub.stretch import NOWHERE, Stretch, parsed
from streamer.hub.trees import Trees
from streamer.hub.view import CAUSES, Coverage, HotView, window_label
from streamer.hub.windows import DECODED, HOLES, NOTHING, SHED, Pane, Window

ProcessKey = tuple[str, int]
Chosen = int | Stretch
"""A window by its position, or a stretch of time."""

MAX_PROCESSES = 256
MAX_COMPONENTS = 1024
MOST_SUMS = 4
LATE_SECONDS = 10.0
"""Between two polls, of which there are four a second."""


class Hub:
    """`fidelity` decides the whole that a share is of: `ip` counts hits (addresses in packets), `flow` instructions,
    and time beside them. `now` is monotonic seconds, `wall_ns` nanoseconds since the epoch."""

    def __init__(
        self,
        config: WindowConfig | None = None,
        *,
        fidelity: str = "ip",
        now: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        max_methods: int = 16384,
        pane_methods: int = 2048,
        patience: float = 2.0,
        statements: bool = False,
    ) -> None:
        self.config = config or WindowConfig()
        self.fidelity = fidelity
        self.weights = FIDELITY_WEIGHTS[fidelity]
        seconds = sorted(set(self.config.windows_seconds))
        self.windows = {window_label(s): s for s in seconds}
        """Label → seconds, shortest first."""
        self.processes: dict[ProcessKey, Process] = {}
        self.components: dict[str, dict[str, Any]] = {}
        """The last heartbeat of each part of the pipeline."""
        self.started = self._polled = now()
        self.refused_reports = 0
        """Reports that were malformed, or of a process beyond the limit."""
        self.ledger = Ledger(patience, on_change=self._on_bytes, on_hole=self._on_hole)
        self._now = now
        self.wall_ns = wall_ns
        self._spans = [max(1, round(s / self.config.pane_seconds)) for s in seconds]
        self.trees = Trees(max(self._spans), edge_panes=min(self._spans))
        self.statements = Statements(self._spans) if statements else None
        """Which bytecodes ran; None: it is not told."""
        self._max_methods = max_methods
        self._pane_methods = pane_methods
        self._gauges: dict[tuple[str, int, int], dict[str, float]] = {}
        self._sums: dict[tuple[object, ...], Window] = {}  # of the last `MOST_SUMS` stretches, by what they are made of

    # -- input

    def introduce(self, host: str, pid: int, clock: Clock, ticks_per_pane: int | None = None) -> None:
        """The clock of a process, for its lag. A replay gives one whose `wall_zero` makes its time look like now."""
        process = self._process((host, pid))
        if process is not None:
            process.clock = clock
            process.ticks_per_pane = ticks_per_pane or max(1, round(self.config.pane_seconds * clock.hz))

    def feed(self, report: PaneReport) -> None:
        """Adds a worker's report. An impossible one is counted, its accounts excepted: those always count."""
        now = self._now()
        for account in report.accounts:
            self.account(account)
        process = self._process((report.host, report.pid))
        try:
            if process is None or report.pane < 0:
                raise ValueError
            process.feed(report, now, self.wall_ns())
        except ValueError:
            self.refused_reports += 1
            return
        if report.gauges:
            said = report.host, report.pid, report.worker
            for old in [key for key in self._gauges if key[:2] == said[:2] and succeeds(said[2], key[2])]:
                del self._gauges[old]
            self._gauges[said] = dict(report.gauges[:64])

    def account(self, account: Account) -> None:
        self.ledger.account(account, self._now())

    def heartbeat(self, status: Mapping[str, Any]) -> None:
        """The state of one part of the pipeline. Keys: `component` (its name), and as far as known `up` (bool),
        `restarts` (int so far), `deaths_in_a_row`, `state` and `why` (for people), `statistics` (of its worker),
        `turned_away` (peers not let in), `cpu_seconds`, `memory_bytes`, `kernels_ready` (bool), `faults` (rings)."""
        component = str(status["component"])
        if component in self.components or len(self.components) < MAX_COMPONENTS:
            self.components[component] = {**self.components.get(component, {}), **status}

    def poll(self) -> None:
        """Closes panes and settles gaps whose time has come. Queries do it too; without either call it now and then."""
        now = self._polled = self._now()
        self.ledger.settle(now)
        for process in self.processes.values():
            process.close(now, self.wall_ns())

    def end(self, host: str, pid: int) -> None:
        """A process ended and its last reports are in: closes its open panes; it no longer lags."""
        process = self.processes.get((host, pid))
        if process is not None:
            process.close(self._now(), self.wall_ns(), all_open=True)
            process.ended = True

    def close_streams(self, heads: Mapping[StreamKey, int]) -> list[Balance]:
        """The end of some streams, with their final aux_head: `Balance.error` must be 0 for each."""
        return self.ledger.close(heads)

    def close_ended(self, heads: Mapping[StreamKey, int]) -> list[Balance]:
        """Of streams whose producers have ended, those of which all is accounted for are closed and forgotten."""
        return self.ledger.close_ended(heads)

    def finish(self, heads: Mapping[StreamKey, int]) -> list[Balance]:
        """The end of everything: `close_streams`, and `end` for each process. A stream that is not in `heads` stays
        open and keeps its sums."""
        balances = self.close_streams(heads)
        for host, pid in self.processes:
            self.end(host, pid)
        return balances

    # -- queries

    def live(self, key: ProcessKey, seconds: float) -> bool:
        """Whether the process reported within so many seconds: after that its windows of that length are empty."""
        process = self.processes[key]
        return bool(process.reports) and self._now() - process.last_report <= seconds + self.config.lateness_seconds

    def down(self) -> list[str]:
        return sorted(name for name, status in self.components.items() if not status.get("up", True))

    def restarts(self) -> int:
        return sum(int(status.get("restarts", 0)) for status in self.components.values())

    def ill(self) -> list[str]:
        """Why it does not work, though it answers; empty if it does. What it cannot help (`ready`) is no illness."""
        late = self._now() - self._polled
        return [f"the hub has not closed panes for {late:.0f} s: it is stuck or starved"] if late > LATE_SECONDS else []

    def ready(self) -> list[str]:
        """Why it is not ready; empty when the first pane has closed and every component is up."""
        self.poll()
        reasons = [trouble(self.components[name]) for name in self.down()]
        compiling = (name for name, status in sorted(self.components.items()) if not status.get("kernels_ready", True))
        reasons += [f"{name} has its kernels compiled: until then all trace is shed" for name in compiling]
        if not any(p.windows.newest is not None for p in self.processes.values()):
            reasons.append("no pane has closed yet")
        return reasons

    def window(self, label: str) -> int:
        """The position of a window given its label or a length (`10s`, `60s`, `1m`); ValueError if there is none."""
        units = {"s": 1, "m": 60, "h": 3600}
        try:
            seconds = float(label[:-1]) * units[label[-1]] if label[-1:] in units else float(label)
            return list(self.windows.values()).index(seconds)
        except ValueError:
            there = f"{', '.join(self.windows)}, and stretches FROM..TO of what is kept, in seconds since the epoch"
            raise ValueError(f"no window {label[:20]!r}; there are {there}") from None

    def chosen(self, window: str | None) -> Chosen:
        """The shortest window (None), that of a label, or a stretch `FROM..TO`; ValueError if there is none."""
        if window is None:
            return 0
        stretch = parsed(window)
        return self.window(window) if stretch is None else stretch

    def label(self, chosen: Chosen) -> str:
        """Of a window or a stretch."""
        return list(self.windows)[chosen] if isinstance(chosen, int) else str(chosen)

    def length(self, chosen: Chosen) -> float:
        """Of a window or a stretch, in seconds."""
        return list(self.windows.values())[chosen] if isinstance(chosen, int) else chosen.seconds

    def column(self, weight: str | None) -> int:
        """The column of a weight's name, None for the primary; ValueError if this fidelity does not have it."""
        if weight is None:
            return WEIGHTS[self.weights[0]]
        if weight not in self.weights:
            have = ", ".join(self.weights)
            raise ValueError(f"fidelity {self.fidelity} has no weight {weight[:20]!r}; it has {have}")
        return WEIGHTS[weight]

    def rows(self, key: ProcessKey, chosen: Chosen | None) -> Rows:
        """Rows by slot of a process in a window, in the shift's reference (one past the last window), or in the
        whole run (None)."""
        process = self.processes[key]
        size = len(process.table.names)
        if chosen is None:
            return process.table.run[:size]
        window = self._window(key, chosen)
        return np.zeros((size, COLUMNS), np.uint64) if window is None else window.rows[:size]

    def panes(self, key: ProcessKey, chosen: Chosen) -> list[Pane]:
        """The kept panes of a process in a window, oldest first; empty ones may be missing."""
        windows = self.processes[key].windows
        if isinstance(chosen, int):
            return list(windows.panes(windows.windows[chosen]))
        length = self.config.pane_seconds
        return [pane for pane in windows.kept() if chosen.holds(self.pane_end(key, pane.number), length)]

    def _window(self, key: ProcessKey, chosen: Chosen) -> Window | None:
        """Of a process; None where it has been silent for longer than the window is."""
        windows, seconds = self.processes[key].windows, list(self.windows.values())
        if isinstance(chosen, Stretch):
            panes = self.panes(key, chosen)
            made_of = (key, windows.late, *(pane.number for pane in panes))
            if made_of not in self._sums:
                self._sums = {**dict([*self._sums.items()][1 - MOST_SUMS :]), made_of: windows.sum(panes)}
            return self._sums[made_of]
        return windows.windows[chosen] if self.live(key, seconds[chosen if chosen < len(seconds) else 0]) else None

    def filled(self, key: ProcessKey, chosen: Chosen | None) -> NDArray[np.uint64]:
        """(2, COLUMNS) sums of fillings, RECOVERED and GUESSED, in a window, or in the whole run."""
        if chosen is None:
            return self.processes[key].windows.filled
        window = self._window(key, chosen)
        return NOTHING if window is None else window.filled

    def hot(
        self,
        window: str | None = None,
        top: int | None = None,
        weight: str | None = None,
        process: ProcessKey | None = None,
        *,
        whole_run: bool = False,
    ) -> HotView:
        """The hottest methods of a window (default: the shortest) or a stretch, of one process or of all together."""
        return hot_view(self, window, top, weight, process, whole_run=whole_run)

    def contradictions(self, top: int, process: ProcessKey | None = None) -> ContradictionsView:
        """Where the trace contradicted the code since the start: the `top` places met most often, of one process or
        of all together."""
        keys = [key for key in self.processes if process in (None, key)]
        sums = Contradictions().merge(self.processes[key].contradictions for key in keys)
        instructions = sum(int(self.processes[key].table.run[:, INSTRUCTIONS].sum()) for key in keys)
        return sums.view(self.fidelity, instructions, top)

    def tree_parts(self, window: str | None = None, process: Which = None) -> tuple[list[Tree], float]:
        """The trees of which that of a window (default: the shortest) is merged, and ticks a second. Raises ValueError
        for a window that there is none."""
        chosen = self.chosen(window)
        keys = [key for key in self.processes if among(process, key)]
        clocks = [clock for key in keys if (clock := self.processes[key].clock) is not None]
        hz = clocks[0].hz if clocks else 1e9
        if isinstance(chosen, int):
            return self.trees.parts(self._spans[chosen], process), hz
        return [tree for key in keys for _, tree in self._stretches(key, chosen)], hz

    def tree_stretch(self, stretch: Stretch, process: Which = None) -> Stretch:
        """The time of which the trees of `tree_parts` are: wider than the stretch where old panes are put together."""
        whole, length = NOWHERE, self.config.pane_seconds
        for key in self.processes:
            if among(process, key):
                for panes, _ in self._stretches(key, stretch):
                    whole = whole.with_(self.pane_end(key, panes[0]) - length, self.pane_end(key, panes[-1]))
        return whole

    def _stretches(self, key: ProcessKey, stretch: Stretch) -> list[tuple[list[int], Tree]]:
        """Kept trees with a pane in the stretch."""
        length = self.config.pane_seconds
        return [
            (panes, tree)
            for panes, tree in self.trees.stretches(key)
            if any(stretch.holds(self.pane_end(key, pane), length) for pane in panes)
        ]

    def pane_end(self, key: ProcessKey, pane: int) -> float:
        """When a pane ended, in seconds since the epoch; without a clock, in panes."""
        process, wall = self.processes[key], self.wall_ns()
        if process.clock is None:
            return (pane + 1) * self.config.pane_seconds
        return wall / 1e9 - process.clock.seconds_since((pane + 1) * process.ticks_per_pane, wall)

    def shift_parts(self, process: Which = None) -> tuple[list[Tree], list[Tree], tuple[int, int]] | None:
        """As `tree_parts`, of the shift's reference and of the shortest window, and how many panes these are at most;
        None: the process is too young for it."""
        now, before = self._spans[0], self._spans[min(1, len(self._spans) - 1)]
        if self.trees.age(process) < 2 * now:
            return None
        return self.trees.parts(before, process, behind=now), self.trees.parts(now, process), (before, now)

    def window_coverage(self, chosen: Chosen, process: ProcessKey | None = None) -> Coverage:
        windows = [self._window(key, chosen) for key in self.processes if process in (None, key)]
        rows = [window.bytes for window in windows if window is not None]
        return coverage(np.sum(rows, axis=0) if rows else None)

    def run_coverage(self, process: ProcessKey | None = None) -> Coverage:
        totals = self.ledger.totals(*(process or (None, None)))
        lost = {CAUSES[c]: n for c, n in sorted(totals.holes.items()) if n}
        return Coverage(totals.accounted, totals.decoded, totals.shed, lost)

    def totals(self, key: ProcessKey) -> Totals:
        return self.ledger.totals(*key)

    def lag(self, key: ProcessKey) -> float | None:
        return self.processes[key].lag(self.wall_ns())

    def gauge(self, process: ProcessKey, name: str) -> float | None:
        """The last value from the process's worker; None if it said nothing of that name. Of several (one was started
        again) the youngest answers."""
        said = {w: of[name] for (*key, w), of in self._gauges.items() if tuple(key) == process and name in of}
        return said[max(said)] if said else None

    def seconds(self) -> float:
        """Since the hub began."""
        return self._now() - self.started

    def statistics(self) -> dict[str, Any]:
        """Counters of the hub's own and the last statistics of the pipeline's parts, for people."""
        self.poll()
        return {
            "components": self.components,
            "refused_reports": self.refused_reports,
            **self.trees.statistics(),
            **(self.statements.statistics() if self.statements else {}),
            "waiting_gaps": self.ledger.gaps(),
            "refused_accounts": self.ledger.refused,
            "processes": {
                f"{host}/{pid}": {
                    "methods": len(p.table),
                    "folded_names": p.table.folded,
                    "trimmed_rows": p.windows.trimmed,
                    "panes": p.windows.closed,
                    "open_panes": len(p.windows.open_panes()),
                    "late_reports": p.windows.late,
                    "expired_reports": p.windows.expired,
                    "workers": {str(w): gauges for (h, i, w), gauges in self._gauges.items() if (h, i) == (host, pid)},
                }
                for (host, pid), p in self.processes.items()
            },
        }

    # -- inside

    def _process(self, key: ProcessKey) -> Process | None:
        """The process, made if there is room; the process silent for longest makes room if it is not live."""
        if key not in self.processes:
            if len(self.processes) >= MAX_PROCESSES:
                silent = min(self.processes, key=lambda k: self.processes[k].last_report)
                if self.live(silent, max(self.windows.values())):
                    return None
                del self.processes[silent]
                self._gauges = {of: said for of, said in self._gauges.items() if of[:2] != silent}
                self.ledger.forget(*silent)
                self.trees.forget(silent)
                if self.statements:
                    self.statements.forget(silent)
            self.processes[key] = Process(
                self._spans,
                WEIGHTS[self.weights[0]],
                lateness=self.config.lateness_seconds,
                max_methods=self._max_methods,
                pane_methods=self._pane_methods,
            )
        return self.processes[key]

    def _on_bytes(self, stream: StreamKey, cause: Loss | None, size: int, shed: int) -> None:
        process = self._process((stream.host, stream.pid))
        if process is not None:
            process.pending[DECODED if cause is None else cause] += size
            process.pending[SHED] += shed

    def _on_hole(self, stream: StreamKey, cause: Loss, count: int) -> None:
        process = self._process((stream.host, stream.pid))
        if process is not None:
            process.pending[HOLES + cause] += count

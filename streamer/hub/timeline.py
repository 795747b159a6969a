"""The kept panes of the longest window in order of time, as columns: work, its methods, and the fate of the trace.

A column is a bin: one pane, or as many as let `MOST_BINS` hold them all. Bins lie at multiples of a pane's length from
the panes of the process that was known first, so that each pane of its own is in one bin, and stays in it while time
goes on; panes of other processes are where their middle is. A bin in which nothing was told has no panes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.hub import estimate
from streamer.hub.hub import Chosen, Hub, ProcessKey
from streamer.hub.profile import Rows
from streamer.hub.ranking import heaviest
from streamer.hub.view import CAUSES, LATELY_SECONDS
from streamer.hub.windows import BYTES, DECODED, HOLES, SHED, Pane

MOST_BINS = 400
BANDS = 8
"""Methods that have a column of their own, unless another number is asked for."""


@dataclass(frozen=True, slots=True)
class Band:
    """A method, and its weight in each bin."""

    method: str
    weights: list[int]


@dataclass(frozen=True, slots=True)
class Event:
    """When a method became a mover (`streamer.hub.shift`), and its shares."""

    time: float
    pid: int
    method: str
    now: float
    before: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """All lists but `bands` and `events`: one value a bin, the oldest first. Empty before the first pane has closed."""

    seconds: float
    """Of a bin."""
    most: int
    """So many bins are the longest window."""
    weight: str
    begin: float = 0.0
    """Seconds since the epoch, where the first bin begins."""
    panes: list[int] = field(default_factory=list)
    """How many panes are in it, of all processes."""
    total: list[int] = field(default_factory=list)
    """Weight of all methods."""
    bands: list[Band] = field(default_factory=list)
    """The heaviest methods of a window."""
    bytes: list[int] = field(default_factory=list)
    decoded: list[int] = field(default_factory=list)
    shed: list[int] = field(default_factory=list)
    """Of the decoded ones."""
    lost: dict[str, list[int]] = field(default_factory=dict)
    """Bytes in holes by cause, causes without any left out."""
    holes: dict[str, list[int]] = field(default_factory=dict)
    """How many."""
    duty: list[float] = field(default_factory=list)
    """The part of its panes' time that was traced."""
    events: list[Event] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def timeline(
    hub: Hub,
    weight: str | None = None,
    process: ProcessKey | None = None,
    *,
    window: str | None = None,
    most_bands: int = BANDS,
    panes_kept: int | None = None,
) -> Timeline:
    """`window`: that of which `bands` are the heaviest methods, else the longest. `panes_kept`: of each process the
    newest ones alone. Raises ValueError for a weight or a window that there is none."""
    hub.poll()
    chosen = len(hub.windows) - 1 if window is None else hub.chosen(window)
    column, weight = hub.column(weight), weight or hub.weights[0]
    kept = {key: of.windows.kept() for key, of in hub.processes.items() if process in (None, key)}
    kept = {key: panes[-(panes_kept or len(panes)) :] for key, panes in kept.items() if panes}
    each, most = _bins(hub)
    if not kept:
        return Timeline(each * hub.config.pane_seconds, most, weight)
    grid = _Grid(hub, kept, each)
    names = _bands(hub, process, chosen, column, most_bands)
    sums, bands = np.zeros((grid.count, BYTES), np.int64), np.zeros((grid.count, len(names)))
    panes, total, off = (np.zeros(grid.count) for _ in range(3))
    for key, of in kept.items():
        at, within = grid.bins(key, of)
        if not within:
            continue
        parts, wholes = estimate.weights(within, [hub.processes[key].table.find(name) for name in names], column)
        ticks = hub.processes[key].ticks_per_pane or np.inf
        np.add.at(bands, at, parts)
        np.add.at(total, at, wholes)
        np.add.at(panes, at, 1)
        np.add.at(sums, at, np.array([pane.bytes for pane in within]))
        np.add.at(off, at, [min(1.0, pane.off / ticks) for pane in within])
    return Timeline(
        grid.seconds,
        most,
        weight,
        begin=grid.begin,
        panes=panes.astype(int).tolist(),
        total=total.astype(int).tolist(),
        bands=[Band(name, bands[:, k].astype(int).tolist()) for k, name in enumerate(names)],
        bytes=sums[:, :SHED].sum(axis=1).tolist(),
        decoded=sums[:, DECODED].tolist(),
        shed=sums[:, SHED].tolist(),
        lost=_by_cause(sums, 0),
        holes=_by_cause(sums, HOLES),
        duty=np.round(1 - off / np.maximum(1, panes), 4).tolist(),
        events=[event for key in kept for event in _events(hub, key, grid)],
    )


def lately(hub: Hub) -> dict[str, Any]:
    """Of the JSON of a timeline what sparklines of the shortest window's methods are made of, the last bins alone."""
    bins = max(1, round(LATELY_SECONDS / bin_seconds(hub)))
    panes = (bins + 1) * _bins(hub)[0]
    lanes = timeline(hub, window=next(iter(hub.windows)), most_bands=hub.config.top, panes_kept=panes)
    bands = [{"method": band.method, "weights": band.weights[-bins:]} for band in lanes.bands]
    return {"seconds": lanes.seconds, "total": lanes.total[-bins:], "bands": bands}


def bin_seconds(hub: Hub) -> float:
    """Of each bin of its timeline."""
    return _bins(hub)[0] * hub.config.pane_seconds


def _bins(hub: Hub) -> tuple[int, int]:
    """Panes a bin, and how many bins the longest window is."""
    panes = max(1, round(max(hub.windows.values()) / hub.config.pane_seconds))
    each = -(-panes // (MOST_BINS - 1))  # a bin may be cut at each end
    return each, -(-panes // each)


def _bands(hub: Hub, process: ProcessKey | None, chosen: Chosen, column: int, most: int) -> list[str]:
    sums: dict[str, int] = {}
    for key in hub.processes:
        if process in (None, key):
            names = hub.processes[key].table.names
            rows: Rows = hub.rows(key, chosen)[:, column]
            for slot in heaviest(names, rows, most):
                sums[names[slot]] = sums.get(names[slot], 0) + int(rows[slot])
    return sorted(sums, key=lambda name: (-sums[name], name))[:most]


def _by_cause(sums: NDArray[np.int64], first: int) -> dict[str, list[int]]:
    return {name: column.tolist() for cause, name in CAUSES.items() if (column := sums[:, first + cause]).any()}


def _events(hub: Hub, key: ProcessKey, grid: _Grid) -> list[Event]:
    told = [(hub.pane_end(key, began.pane), began.mover) for began in hub.processes[key].shift.begun]
    return [Event(at, key[1], m.method, m.now, m.before) for at, m in told if at > grid.begin]


class _Grid:
    """Where bins lie."""

    def __init__(self, hub: Hub, kept: dict[ProcessKey, list[Pane]], each: int) -> None:
        """`each`: panes a bin."""
        self._hub, self._length = hub, hub.config.pane_seconds
        self.seconds = each * self._length
        first, panes = next(iter(kept.items()))
        pane = panes[-1].number // each * each
        self._origin = hub.pane_end(first, pane) - self._length
        numbers = [self._bin(key, pane.number) for key, of in kept.items() for pane in (of[0], of[-1])]
        self._last = max(numbers)
        self._first = max(min(numbers), self._last - MOST_BINS + 1)
        self.count = self._last - self._first + 1
        self.begin = self._origin + self._first * self.seconds

    def _bin(self, key: ProcessKey, pane: int) -> int:
        return int((self._hub.pane_end(key, pane) - self._length / 2 - self._origin) // self.seconds)

    def bins(self, key: ProcessKey, panes: list[Pane]) -> tuple[NDArray[np.intp], list[Pane]]:
        """The bins of those panes that are in one, and these."""
        found = [(at, pane) for pane in panes if (at := self._bin(key, pane.number) - self._first) >= 0]
        return np.array([at for at, _ in found], np.intp), [pane for _, pane in found]

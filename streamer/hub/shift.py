"""Hot-method shift, first version: the methods that run now against those that ran before.

p = the methods' shares of the shortest window (10 s), q = those of the reference, the next window's length (1 min)
that ended where the shortest begins. Both are distributions over the process's methods, `other` included.

distance   D = ½ Σ |pᵢ − qᵢ|, the total variation distance: 0 = the same mixture, 1 = nothing in common. It is the
           share of the time that would have to move for one to become the other.
score      (D − median D) / (1.4826 · MAD D + 0.02) over the distances at earlier panes (the last 300): how unusual D
           is for this program. A program that alternates between phases has a large median, and no alarm. Median
           and MAD (the factor makes it the standard deviation of a normal distribution) ignore the shift itself as
           long as it fills less than half of the history. 0.02 keeps a program that never varied from alarming at
           noise.
mover      a method with |p − q| ≥ 0.02 whose z = (p − median) / (1.4826 · MAD + 0.02) has |z| ≥ 3, median and MAD
           over its shares in the reference's panes.

held       of the shifts of the last shortest window that with the highest score: it is exported. A shift may be gone
           before the next scrape, and in a young process, whose history is short, it soon looks usual.

Reference panes with nothing in them do not count. There is no verdict (None)
- before the process is two shortest windows old, because a program that starts shifts all the time;
- where either window holds less than `LEAST`: a single task of an idle process is a whole mixture by itself;
- where one does less, by unit of time, than `LEAST_RATE` of the busiest pane of both: a service that falls idle, or
  wakes, has changed how much it does, and the few methods of its idle time say nothing about the others.
Both are of what the process does, not of the part that was traced (a CPU budget: `capture.live.duty`), so weights are
divided by the time that was. A pane that was traced for little of it says little: the busiest is then one of several
panes together, which were traced for as long as one pane is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.hub.profile import HITS, INSTRUCTIONS
from streamer.hub.windows import Pane, Window, Windows

FLOOR = 0.02
MOVED = 0.02
UNUSUAL = 3.0
MAD_TO_SIGMA = 1.4826
HISTORY = 300
MOST_BEGUN = 64
LEAST = {HITS: 1_000, INSTRUCTIONS: 10_000_000}
"""Weight of a window, by column, below which it has no mixture to speak of: some milliseconds of one core."""
LEAST_RATE = 0.05


@dataclass(frozen=True, slots=True)
class Mover:
    method: str
    now: float
    before: float
    z: float

    @property
    def delta(self) -> float:
        return self.now - self.before


@dataclass(frozen=True, slots=True)
class Shift:
    distance: float
    score: float
    movers: tuple[Mover, ...]
    """Largest change first."""


@dataclass(frozen=True, slots=True)
class Began:
    """A method has become a mover with this pane, as it was not in any of the shortest window before."""

    pane: int
    mover: Mover


def distance(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Total variation distance of two distributions of equal shape."""
    return 0.5 * float(np.abs(p - q).sum())


def robust(value: float, sample: NDArray[np.float64]) -> float:
    """How far `value` lies from the median of `sample`, in robust standard deviations plus `FLOOR`."""
    middle = float(np.median(sample))
    spread = float(np.median(np.abs(sample - middle)))
    return (value - middle) / (MAD_TO_SIGMA * spread + FLOOR)


def shares(window: Window, column: int, size: int) -> NDArray[np.float64] | None:
    """Each slot's share of the window's weight, or None if that is 0."""
    weight = window.rows[:size, column].astype(np.float64)
    total = float(weight.sum())
    return weight / total if total > 0 else None


def comparable(windows: Windows, now: Window, before: Window, column: int, ticks: int = 0) -> bool:
    """Whether in both windows enough was done, and of one order in each pane, for their mixtures to be compared.
    `ticks`: those of a pane; 0: it was traced all the time."""
    rates = []  # in a pane's time
    for window in now, before:
        panes = min(window.length, windows.age() - window.delay)
        weight, duty = float(window.rows[:, column].sum()), 1 - (window.off / (ticks * panes) if ticks else 0.0)
        if duty <= 0 or weight / duty < LEAST.get(column, 1):
            return False
        rates.append(weight / duty / window.length)
    return min(rates) >= LEAST_RATE * _busiest([*windows.panes(before), *windows.panes(now)], column, ticks)


def _busiest(panes: list[Pane], column: int, ticks: int) -> float:
    """The largest weight in a pane's time: of panes one behind the other that were traced for so long, or of all."""
    weights = [float(pane.rows[:, column].sum()) for pane in panes]
    parts = [1 - (pane.off / ticks if ticks else 0.0) for pane in panes]
    first, weight, traced, most = 0, 0.0, 0.0, sum(weights) / max(sum(parts), 1e-9)
    for last in range(len(panes)):
        weight, traced = weight + weights[last], traced + parts[last]
        while traced - parts[first] >= 1 - 1e-9:
            weight, traced, first = weight - weights[first], traced - parts[first], first + 1
        if traced >= 1 - 1e-9:
            most = max(most, weight / traced)
    return most


class Detector:
    """Keeps the history of distances of one process; `update` after each closed pane."""

    def __init__(self, column: int, movers: int = 20) -> None:
        self.current: Shift | None = None
        self.begun: deque[Began] = deque(maxlen=MOST_BEGUN)
        """The last ones."""
        self._lately: deque[tuple[int, Shift]] = deque()  # by pane, of the shortest window
        self._moving: dict[str, int] = {}  # the last pane in which a method was a mover; of the shortest window
        self._column = column
        self._movers = movers
        self._history: deque[float] = deque(maxlen=HISTORY)

    @property
    def held(self) -> Shift | None:
        return max((shift for _, shift in self._lately), key=lambda shift: shift.score, default=None)

    def update(self, windows: Windows, now: Window, before: Window, ticks: int = 0) -> None:
        """After the pane `windows.newest` has closed. `ticks`: those of a pane, 0 if they are not known."""
        newest = windows.newest or 0
        self._update(windows, now, before, ticks)
        if self.current is not None:
            self._lately.append((newest, self.current))
        while self._lately and self._lately[0][0] <= newest - now.length:
            self._lately.popleft()

    def _update(self, windows: Windows, now: Window, before: Window, ticks: int) -> None:
        size = len(windows.table.names)
        p, q = shares(now, self._column, size), shares(before, self._column, size)
        busy = [pane for pane in windows.panes(before) if pane.rows[:, self._column].any()]
        if (
            p is None
            or q is None
            or windows.age() < 2 * now.length
            or not comparable(windows, now, before, self._column, ticks)
        ):
            self.current = None
            return
        d = distance(p, q)
        history = np.array(self._history) if self._history else np.array([d])
        moved = np.flatnonzero(np.abs(p - q) >= MOVED)
        moved = moved[np.argsort(-np.abs(p - q)[moved], kind="stable")][: self._movers]
        movers = []
        for slot in moved.tolist():
            z = robust(float(p[slot]), np.array([self._share(pane, slot) for pane in busy]))
            if abs(z) >= UNUSUAL:
                movers.append(Mover(windows.table.names[slot], float(p[slot]), float(q[slot]), z))
        self.current = Shift(d, robust(d, history), tuple(movers))
        self._history.append(d)
        self._begin(windows.newest or 0, movers, now.length)

    def _begin(self, pane: int, movers: list[Mover], length: int) -> None:
        self.begun += (Began(pane, mover) for mover in movers if mover.method not in self._moving)
        self._moving |= dict.fromkeys((mover.method for mover in movers), pane)
        self._moving = {method: last for method, last in self._moving.items() if last > pane - length}

    def _share(self, pane: Pane, slot: int) -> float:
        weights = pane.rows[:, self._column]
        at = int(np.searchsorted(pane.slots, slot))
        if at == len(pane.slots) or pane.slots[at] != slot:
            return 0.0
        return float(weights[at]) / float(weights.sum())

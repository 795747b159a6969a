"""Whether a series of measurements grows: a robust slope, and a bound for the noise.

The slope is the median of the slopes of all pairs (Theil, Sen). A series grows when the slope, over its whole length,
comes to more than the noise: some times the spread of the residuals, and a share of the value, and `floor`.

The memory of a process fills and empties with its tables: of it the least of each sixth of the time is looked at
(`lasting`), as a heap is looked at behind each collection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPREADS = 4.0
SHARE = 0.05
TROUGHS = 6


@dataclass(frozen=True)
class Trend:
    """`rise`: from the first to the last measurement, by the slope; `noise`: as much may be chance."""

    per_minute: float
    rise: float
    noise: float
    last: float

    @property
    def grows(self) -> bool:
        return self.rise > self.noise


def troughs(
    minutes: NDArray[np.float64], values: NDArray[np.float64], parts: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least of (n,) values in each of so many equal parts of their time, and when it was: what stays, where what
    comes and goes in a part is none of it."""
    if not len(minutes):
        return minutes, values
    width = (minutes[-1] - minutes[0]) / parts or 1.0
    part = np.minimum((minutes - minutes[0]) // width, parts - 1)
    least = [int(at[np.argmin(values[at])]) for k in range(parts) if len(at := np.flatnonzero(part == k))]
    return minutes[least], values[least]


def lasting(minutes: NDArray[np.float64], values: NDArray[np.float64], floor: float) -> Trend:
    """Of what rises and falls by more than it may grow: the median step from one trough to the next. A jump is one
    step, and a leak is all of them."""
    at, least = troughs(minutes, values, TROUGHS)
    if len(least) < 3:
        return Trend(0.0, 0.0, floor, float(values[-1]) if len(values) else 0.0)
    steps = np.diff(least) / np.diff(at)
    slope, span = float(np.median(steps)), float(at[-1] - at[0])
    spread = 1.4826 * float(np.median(np.abs(np.diff(least) - slope * np.diff(at))))
    return Trend(slope, slope * span, max(floor, SPREADS * spread), float(values[-1]))


def trend(minutes: NDArray[np.float64], values: NDArray[np.float64], floor: float) -> Trend:
    """Of (n,) values at (n,) times, ascending."""
    if len(values) < 3:
        return Trend(0.0, 0.0, floor, float(values[-1]) if len(values) else 0.0)
    first, second = np.triu_indices(len(values), 1)
    slope = float(np.median((values[second] - values[first]) / (minutes[second] - minutes[first])))
    rest = values - slope * minutes
    spread = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    rise = slope * float(minutes[-1] - minutes[0])
    noise = max(floor, SPREADS * spread, SHARE * float(np.median(np.abs(values))))
    return Trend(slope, rise, noise, float(values[-1]))

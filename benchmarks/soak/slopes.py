"""Whether a series of measurements grows: a robust slope, and a bound for the noise.

The slope is the median of the slopes of all pairs (Theil, Sen). A series grows when the slope, over its whole length,
comes to more than the noise: some times the spread of the residuals, and a share of the value, and `floor`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPREADS = 4.0
SHARE = 0.05


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

"""When a process is traced: a random part of each stretch of time, as large as the CPU budget allows.

Time is cut into strata one behind the other; each holds one window in which tracing is on, at a place drawn evenly
(stratified random sampling, one unit a stratum: Cochran, Sampling Techniques, chapters 5 and 8). So no rhythm of the
program can hide between windows, as it could if they came at equal distances, and no second is without one. A window
is long enough for the walk to find its place and for segments of use; all rings of a process are on together, so a
thread that goes to another CPU stays in sight.

`Budget` sets the share. The cost of tracing is not known beforehand and changes with the program: it compares the
pipeline's spending with the budget, and corrects the share by part of the error, once a second.
"""

from __future__ import annotations

import math
from random import Random

WINDOW = 0.05
"""Seconds of a window, where the share leaves so much."""
STRATUM = 1.0
"""Seconds of the longest stratum; a smaller share makes the windows shorter instead."""
LEAST = 0.002
"""The smallest share: no process is left without any window."""
FIRST = 0.25
"""Share at the start, times the budget in CPUs: about what a busy JVM costs while its code changes."""


class Duty:
    """On or off, at any time. `share` may be changed at any time; it counts from the next stratum on."""

    def __init__(self, share: float = 1.0, rng: Random | None = None) -> None:
        self.share = share
        self._rng = rng or Random()
        self._end = -math.inf  # of the stratum
        self._on = self._off = 0.0  # the window in it

    def at(self, now: float) -> bool:
        """Whether tracing is to be on at `now` (seconds of any clock that does not go back)."""
        if now >= self._end:
            share = min(1.0, max(LEAST, self.share))
            stratum = min(STRATUM, WINDOW / share)
            # after a pause of ours the strata begin anew: those that were missed are not made up for
            start = self._end if now < self._end + stratum else now
            self._end = start + stratum
            self._on = start + self._rng.random() * stratum * (1 - share)
            self._off = self._on + stratum * share if share < 1 else math.inf
        return self._on <= now < self._off

    def wait(self, now: float) -> float:
        """Seconds from `now` until `at` may say something else."""
        return max(0.0, min((t for t in (self._on, self._off, self._end) if t > now), default=now) - now)


GAIN = 0.25
MEMORY = 3.0
"""Seconds over which the cost is averaged: trace costs when it is followed, which is later than when it is written."""
DEBT = 20.0
"""Seconds within which an excess is to be made up for; no more than DEBT/2 seconds of the budget are carried over."""


class Budget:
    """Keeps the mean cost of the pipeline at `cpus` (1.0: one CPU), by the share of a `Duty`."""

    def __init__(self, cpus: float, duty: Duty) -> None:
        """Raises ValueError if the budget is not positive."""
        if not cpus > 0:
            raise ValueError(f"a CPU budget of {cpus}")
        self.cpus = cpus
        self._duty = duty
        self._last: tuple[float, float] | None = None
        self._rate = cpus
        self._debt = 0.0  # CPU seconds spent beyond the budget
        duty.share = min(1.0, max(LEAST, FIRST * cpus))

    def spent(self, cpu_seconds: float, now: float) -> None:
        """`cpu_seconds`: of the whole pipeline since some time. Less than at the last call: it has begun anew."""
        if self._last is None or cpu_seconds < self._last[0]:
            self._last = cpu_seconds, now
            return
        passed = now - self._last[1]
        if passed <= 0:
            return
        rate = (cpu_seconds - self._last[0]) / passed
        self._last = cpu_seconds, now
        self._rate += (rate - self._rate) * (1 - math.exp(-passed / MEMORY))
        most = self.cpus * DEBT / 2
        self._debt = min(most, max(-most, self._debt + (rate - self.cpus) * passed))
        target = self.cpus - self._debt / DEBT
        factor = min(2.0, max(0.5, target / max(self._rate, 1e-9)))
        self._duty.share = min(1.0, max(LEAST, self._duty.share * factor ** (GAIN * min(passed, 1.0))))

    def statistics(self) -> dict[str, float]:
        return {"duty_share": self._duty.share, "budget_cpus": self.cpus, "spent_cpus": self._rate}

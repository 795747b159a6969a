"""How soon a shift of the hot method is told, at full duty and with less.

A recording cut as a budget would have it is fed to a hub, pane by pane, with other windows of the duty cycle each time;
the time between the first of the method's work and the pane with which the hub tells of it, as the alerts read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from random import Random

import numpy as np
from numpy.typing import NDArray

from benchmarks.duty.cut import DUTIES, FINE, PANE, drawn
from stages.messages import PROFILE_DTYPE, Clock, CodeKind, PaneReport
from streamer import config
from streamer.hub.hub import Hub
from streamer.hub.shift import Shift

HOST, PID = "recorded", 1
WINDOW = min(config.WindowConfig().windows_seconds)
DISTANCE, SCORE = 0.3, 4.0
"""Of the shipped alert (dashboards/rules/streamer.rules.yml)."""
SOON = 2 * WINDOW
"""Seconds behind the shift in which it is to be told."""


@dataclass(frozen=True, slots=True)
class Told:
    """Seconds behind the shift until the method is the mover that gained most, and until the alert's condition holds as
    well; None: never within `SOON`. `before`: panes before the shift in which that condition held."""

    mover: float | None
    alert: float | None
    before: int


def alerting(shift: Shift | None) -> bool:
    return shift is not None and shift.distance > DISTANCE and shift.score > SCORE


def gained(shift: Shift | None) -> str | None:
    """The mover that gained most."""
    return None if shift is None else max(shift.movers, key=lambda m: m.delta).method if shift.movers else None


def begins(table: list[Counter[str]], method: str) -> int:
    """The first pane of `FINE` in which the method has a tenth of what runs; ValueError if there is none."""
    for number, pane in enumerate(table):
        if 10 * pane[method] >= max(1, pane.total()):
            return number
    raise ValueError(f"{method} is never hot in it")


def aged(table: list[Counter[str]], method: str, settled: float, older: float) -> list[Counter[str]]:
    """The recording with that part played again, until the process is so many seconds older, which lies between
    `settled`, when the program has started up, and the shift."""
    part = table[round(settled / FINE) : begins(table, method) - 1]
    if not part:
        raise ValueError(f"{method} is hot before {settled:g} s are over")
    again = list(islice(cycle(part), round(older / FINE)))
    return [*table[: round(settled / FINE)], *again, *table[round(settled / FINE) :]]


def reports(table: list[Counter[str]], on: NDArray[np.bool_]) -> Iterator[PaneReport]:
    """Of panes of the usual length, of a process of which the fine panes `on` were traced; 1 tick a fine pane."""
    size = round(PANE / FINE)
    for pane, at in enumerate(range(0, len(table) - size + 1, size)):
        seen = sum((table[k] for k in range(at, at + size) if on[k]), Counter[str]())
        profile = np.zeros(len(seen), PROFILE_DTYPE)
        profile["method"], profile["tid"], profile["kind"] = np.arange(len(seen)), 1, CodeKind.C2
        profile["instructions"] = list(seen.values())
        off = size - int(on[at : at + size].sum())
        yield PaneReport(HOST, PID, 0, pane, profile, tuple(enumerate(seen)), (), closed=True, off_ticks=off)


def told(table: list[Counter[str]], on: NDArray[np.bool_], method: str) -> Told:
    start, size = begins(table, method), round(PANE / FINE)
    seconds = 0.0
    hub = Hub(fidelity="flow", now=lambda: seconds, wall_ns=lambda: int(seconds * 1e9))
    hub.introduce(HOST, PID, Clock(mult=1, shift=0, zero=0, wall_zero=0), ticks_per_pane=size)
    found = Told(None, None, 0)
    for report in reports(table, on):
        seconds += PANE
        hub.feed(report)
        since = ((report.pane + 1) * size - start) * FINE
        shift = hub.processes[HOST, PID].shift.held
        if since <= 0:
            found = replace(found, before=found.before + alerting(shift))
        elif since <= SOON and gained(shift) == method:
            found = replace(found, mover=since if found.mover is None else found.mover)
            if alerting(shift) and found.alert is None:
                found = replace(found, alert=since)
    return found


def shifts(table: list[Counter[str]], method: str, draws: int, seed: int) -> dict[str, dict[str, float]]:
    """By duty: in which part of the draws the method is told, and the alert's condition holds, within `SOON`; the
    median and the longest time until then, in windows; and false alerts: the mean number of panes before the shift."""
    rng, result = Random(seed), {}
    for duty in (*DUTIES, 1.0):
        every = [told(table, drawn(len(table) * FINE, duty, rng), method) for _ in range(draws if duty < 1 else 1)]
        movers = [t.mover / WINDOW for t in every if t.mover is not None]
        alerts = [t.alert / WINDOW for t in every if t.alert is not None]
        result[f"{duty:.0%}"] = {
            "method_told": len(movers) / len(every),
            "median_windows": float(np.median(movers)) if movers else np.nan,
            "longest": max(movers, default=np.nan),
            "alert_holds": len(alerts) / len(every),
            "median_windows_of_alert": float(np.median(alerts)) if alerts else np.nan,
            "longest_of_alert": max(alerts, default=np.nan),
            "panes_before": float(np.mean([t.before for t in every])),
            "draws": len(every),
        }
    return result

"""The hottest methods of a hub's window, with all that is told beside them: how sure, what moved, what was lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stages.messages import CodeKind
from streamer.hub import estimate
from streamer.hub.components import starting
from streamer.hub.profile import BYTECODES, COLUMNS, INVOCATIONS, KINDS, UNCOUNTED, UNTOLD, Rows
from streamer.hub.ranking import heaviest, kinds
from streamer.hub.stretch import Stretch
from streamer.hub.view import CAUSES, HotMethod, HotView, ProcessView
from streamer.hub.windows import GUESSED, RECOVERED

if TYPE_CHECKING:
    from streamer.hub.hub import Chosen, Hub, ProcessKey


def hot_view(
    hub: Hub,
    window: str | None,
    top: int | None,
    weight: str | None,
    process: ProcessKey | None,
    *,
    whole_run: bool,
) -> HotView:
    """As `Hub.hot`."""
    hub.poll()
    index = None if whole_run else hub.chosen(window)
    column = hub.column(weight)
    keys = [key for key in hub.processes if process in (None, key)]
    names, rows = _by_name(hub, keys, index)
    total = int(rows[:, column].sum())
    listed = heaviest(names, rows[:, column], hub.config.top if top is None else top)
    now, before, moved = _movement(hub, keys, column)
    duty = _duty(hub, keys, index)
    sure = [0.0] * len(listed) if index is None else _sure(hub, keys, index, column, [names[i] for i in listed], duty)
    methods = tuple(
        HotMethod(
            names[i],
            int(rows[i, column]) / total,
            sure[k],
            int(rows[i, column]),
            None if rows[i, UNCOUNTED] else int(rows[i, INVOCATIONS]),
            bool(rows[i, UNTOLD]),
            *_bytecodes(rows[i]),
            kinds(rows[i]),
            before.get(names[i], 0.0),
            now.get(names[i], 0.0),
            moved.get(names[i]),
        )
        for k, i in enumerate(listed)
    )
    shown = sum(m.weight for m in methods)
    covered = hub.run_coverage(process) if index is None else hub.window_coverage(index, process)
    totals = hub.ledger.totals(*(process or (None, None)))
    return HotView(
        window="run" if index is None else hub.label(index),
        seconds=hub.seconds() if index is None else hub.length(index),
        weight=weight or hub.weights[0],
        fidelity=hub.fidelity,
        total=total,
        recovered=sum(int(hub.filled(key, index)[RECOVERED, column]) for key in keys),
        guessed=sum(int(hub.filled(key, index)[GUESSED, column]) for key in keys),
        duty=duty,
        methods=methods,
        other=(total - shown) / total if total else 0.0,
        coverage=covered,
        run=hub.run_coverage(process),
        holes={CAUSES[c]: n for c, n in sorted(totals.events.items()) if n},
        unwritten={CAUSES[c]: n for c, n in sorted(totals.unwritten.items()) if n},
        processes=tuple(_view(hub, key) for key in keys),
        restarts=hub.restarts(),
        down=tuple(name for name in hub.down() if not starting(hub.components[name])),
        ready=not hub.ready(),
        windows=tuple(hub.windows),
        weights=hub.weights,
        time=hub.wall_ns() / 1e9,
    )


COMPILED = [KINDS + kind for kind in (CodeKind.C1, CodeKind.C2)]


def _bytecodes(row: NDArray[np.uint64]) -> tuple[int | None, bool]:
    """Of a method's sums (COLUMNS,): those executed, and whether compiled code stands for some of them."""
    bytecodes, compiled = int(row[BYTECODES]), bool(row[COMPILED].any())
    return (None, False) if compiled and not bytecodes else (bytecodes, compiled)


def _by_name(hub: Hub, keys: list[ProcessKey], chosen: Chosen | None) -> tuple[list[str], Rows]:
    """Names and rows of several processes together."""
    slot: dict[str, int] = {}
    parts: list[tuple[list[int], Rows]] = []
    for key in keys:
        rows = hub.rows(key, chosen)
        table = hub.processes[key].table.names
        used = np.flatnonzero(rows.any(axis=1))
        parts.append(([slot.setdefault(table[i], len(slot)) for i in used.tolist()], rows[used]))
    sums = np.zeros((len(slot), COLUMNS), np.uint64)
    for slots, rows in parts:
        np.add.at(sums, slots, rows)
    return list(slot), sums


def _movement(
    hub: Hub, keys: list[ProcessKey], column: int
) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
    """Shares now and before by name, and the methods that moved, by direction; of processes of which there is a
    verdict: else all that a young one does would have moved."""
    keys = [key for key in keys if hub.processes[key].shift.current is not None]
    shares = []
    for index in (0, len(hub.windows)):
        names, rows = _by_name(hub, keys, index)
        total = float(rows[:, column].sum()) or 1.0
        shares.append(dict(zip(names, (rows[:, column].astype(np.float64) / total).tolist(), strict=True)))
    moved: dict[str, str] = {}
    for key in keys:
        for mover in _movers(hub, key):
            moved[mover[0]] = "up" if mover[1] > 0 else "down"
    return shares[0], shares[1], moved


def _movers(hub: Hub, key: ProcessKey) -> Iterator[tuple[str, float]]:
    shift = hub.processes[key].shift.current
    if shift is not None and hub.live(key, next(iter(hub.windows.values()))):
        for mover in shift.movers:
            yield mover.method, mover.delta


def _duty(hub: Hub, keys: list[ProcessKey], chosen: Chosen | None) -> float:
    """Of the processes that are live in a window, or of all in the run (None), the mean."""
    if isinstance(chosen, Stretch):
        duties = [hub.processes[key].duty_of(panes) for key in keys if (panes := hub.panes(key, chosen))]
    else:
        seconds = math.inf if chosen is None else list(hub.windows.values())[chosen]
        duties = [hub.processes[key].duty(chosen) for key in keys if hub.live(key, seconds)]
    return sum(duties) / len(duties) if duties else 1.0


def _sure(hub: Hub, keys: list[ProcessKey], chosen: Chosen, column: int, names: list[str], duty: float) -> list[float]:
    """Half of the 95 % interval of each method's share of a window."""
    if duty >= 1:
        return [0.0] * len(names)
    samples = []
    for key in keys:
        process = hub.processes[key]
        slots = [process.table.find(name) for name in names]
        samples.append(estimate.weights(hub.panes(key, chosen), slots, column))
    parts, totals = (np.concatenate(of) for of in zip(*samples, strict=True))
    return [float(half) for half in estimate.half_widths(parts, totals, duty)]


def _view(hub: Hub, key: ProcessKey) -> ProcessView:
    process = hub.processes[key]
    shift = process.shift.current
    return ProcessView(
        host=key[0],
        pid=key[1],
        live=hub.live(key, max(hub.windows.values())),
        panes=process.windows.closed,
        late=process.windows.late,
        lag_seconds=hub.lag(key),
        shift_distance=None if shift is None else shift.distance,
        shift_score=None if shift is None else shift.score,
        duty=_duty(hub, [key], 0),
    )

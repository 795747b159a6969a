"""Gauges that fill up to a bound of the configuration, and stay there: how much there is at most is their verdict.

The benchmark sets the bounds that can be set (`CHOSEN`) so small that all is full in the first third of twenty minutes.
Until then the memory of a process grows with what it may keep, and its slope says nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from benchmarks.soak.slopes import Trend
from jvm.export.unowned import MOST as MOST_UNOWNED
from streamer.config import load

CHOSEN = {"window.windows_seconds": (10.0, 60.0, 180.0), "flow.recover_mib": 8, "flow.context_kirows": 256}
"""Trees and the methods of panes are kept for the longest window, if the hub has room for so many nodes, which is full
sooner; the recovery's window is full at once, and tables of contexts are made anew several times a minute."""
NAMES = 500
"""Of classes, which then come again: the hub keeps each for some time."""


def environment() -> dict[str, str]:
    """`CHOSEN` as variables: options of `streamer run` are stronger."""
    return {f"STREAMER_{name.upper().replace('.', '__')}": json.dumps(value) for name, value in CHOSEN.items()}


def _bounds() -> dict[str, int]:
    flow = load(None, **CHOSEN).flow
    rows = flow.context_kirows << 10
    return {
        r"^hub\.processes\..*\.methods$": 16384,
        r"\.jit_file_bytes$|^file jit-N\.export: bytes$": 32 << 20,
        r"\.recover_window_bytes$": flow.recover_mib << 20,
        r"\.cct_(nodes|activations|steps)$": rows,
        r"\.cct_parts$": 8 * rows,
        r"\.cct_panes$": 64,
        r"^hub\.tree_nodes$": 5 << 18,
    }


BOUNDED = _bounds()
"""With each new name the hub's table of methods fills, up to `Hub(max_methods)`; an export is made anew when it has
grown by 8 MiB (capture/live/jit.py). The recovery's window with its index, and the tables of contexts, have the room
that the configuration says; of trees the hub keeps 2²⁰ nodes, while a pane is added that pane's as well. Beyond its
bound nothing may be at any time."""
MORE = {r"\.(code|reconstruct)_methods$": MOST_UNOWNED}
"""Behind the warm-up there may be so many more: beside the methods of its classes, of which there are as many all the
time, a process has those that were told without one (jvm/export/unowned.py), in the code image and in the matcher's
graph."""


def bounds(times: Sequence[float], measured: Sequence[Mapping[str, float]], warm_up: float) -> dict[str, float]:
    """By name, of the gauges that have one."""
    found = dict[str, float]()
    for name in sorted({name for values in measured for name in values}):
        for pattern, most in BOUNDED.items():
            if re.search(pattern, name):
                found[name] = most
        for pattern, more in MORE.items():
            warm = [m[name] for at, m in zip(times, measured, strict=True) if at <= warm_up and name in m]
            if re.search(pattern, name) and warm:
                found[name] = warm[-1] + more
    return found


def beyond(
    bound: Mapping[str, float], measured: Sequence[Mapping[str, float]], trends: Mapping[str, Trend]
) -> list[str]:
    """Prints each bounded gauge with its bound; those that were beyond it at some time."""
    most = {name: max(values.get(name, 0.0) for values in measured) for name in bound}
    for name, of in bound.items():
        fills = name in trends and trends[name].grows
        mark = "BEYOND" if most[name] > of else "fills" if fills else ""
        print(f"{mark:8}{most[name]:14,.0f} at most, bound {of:14,.0f}  {name}")
    return [name for name, of in bound.items() if most[name] > of]

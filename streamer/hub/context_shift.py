"""Shift by context: which contexts gained, and which lost, of a window against the time before.

p = the contexts' own shares of the shortest window, q = those of the reference (see `streamer.hub.shift`). A context is
a path of methods, its threads and call sites together. The gains of all contexts add up to nothing, so a gain is a
context's contribution to the shift. A context is listed when its share has moved by `MOVED`, and from then on until it
has come back to within `STAYS`: else one at the threshold would come and go with each pane.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.cct.measures import Pair, hot_edge_coverage, overlap
from stages.cct.merging import add_up
from streamer.hub.profile import INSTRUCTIONS
from streamer.hub.shift import LEAST, LEAST_RATE, MOVED

STAYS = MOVED / 2
Path = tuple[str, ...]
"""Methods from the outermost to the context's own."""


@dataclass(frozen=True, slots=True)
class MovedContext:
    path: Path
    now: float
    before: float
    """Its own shares."""
    total_now: float
    total_before: float
    """Those with all that it calls."""

    @property
    def gain(self) -> float:
        return self.now - self.before


@dataclass(frozen=True, slots=True)
class ContextShift:
    why: str
    """There is no verdict, for this reason; empty if there is one."""
    distance: float = 0.0
    overlap: float = 1.0
    hot_edge_coverage: float = 1.0
    contexts: tuple[MovedContext, ...] = ()
    """Largest change first."""

    @property
    def paths(self) -> frozenset[Path]:
        return frozenset(context.path for context in self.contexts)


def compared(pair: Pair, panes: tuple[int, int], listed: Set[Path] = frozenset(), *, instructions: bool = True,
             most: int = 50) -> ContextShift:  # fmt: skip
    """`pair`: the tree of the time before, and of now, each with its weights, of so many `panes`. `listed`: contexts
    that were listed the last time. `instructions`: weights are these, of which a window must have some."""
    sums = float(pair.a.sum()), float(pair.b.sum())
    rates = [total / max(length, 1) for total, length in zip(sums, panes, strict=True)]
    if min(sums) < (LEAST[INSTRUCTIONS] if instructions else 1) or min(rates) < LEAST_RATE * max(rates):
        return ContextShift("one of the two windows holds too little")
    q, p = pair.a / sums[0], pair.b / sums[1]
    gain = p - q
    total = [_inclusive(pair.tree.nodes["parent"], shares) for shares in (q, p)]
    moved = np.flatnonzero(np.abs(gain) >= STAYS)
    moved = moved[np.argsort(-np.abs(gain)[moved], kind="stable")]
    contexts: list[MovedContext] = []
    for n in moved.tolist():
        path = _path(pair, n)
        if len(contexts) < most and (abs(gain[n]) >= MOVED or path in listed):
            contexts.append(MovedContext(path, float(p[n]), float(q[n]), float(total[1][n]), float(total[0][n])))
    return ContextShift("", 0.5 * float(np.abs(gain).sum()), overlap(pair), hot_edge_coverage(pair), tuple(contexts))


def _inclusive(parent: NDArray[np.int32], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    out = shares.copy()
    add_up(parent.copy(), out)
    return out


def _path(pair: Pair, n: int) -> Path:
    """Without its thread."""
    names: list[str] = []
    parent, method = pair.tree.nodes["parent"], pair.tree.nodes["method"]
    while parent[n] >= 0:
        names.append(pair.tree.names[method[n]])
        n = int(parent[n])
    return tuple(reversed(names))

"""The overlap that a tree of a part of the trace could have, were every context of that part known.

A tree with half of the calls is not that of all calls: a context that is called once is in it or not. So the overlap
with the whole tree has a limit that no profiler can pass, and the rest are contexts that were not found.

A tree of some windows of time: panes of the lossless tree, those that lie in the windows. A tree without bursts of
bytes: each call is lost by chance alone (of bursts calls are lost together, so the limit is a little lower still).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.losses import DUTY_SECONDS
from capture.live.drain import Message
from stages.cct.merging import merged
from stages.cct.tree import Tree
from stages.messages import StreamOpen, Tick, TreeReport
from streamer.trees.source import of_recording

PANE = 0.02
"""Seconds of trace that are in the windows, or are not, together."""


def thinned(tree: Tree, lost: float, seed: int = 1) -> Tree:
    """Of each of the calls it is drawn whether it is kept."""
    nodes = tree.nodes.copy()
    calls = nodes["observed_invocations"].astype(np.int64)
    nodes["observed_invocations"] = np.random.default_rng(seed).binomial(calls, 1 - lost)
    return Tree(nodes, tree.names)


class Panes:
    """The lossless trees of a recording by pane; a pane is in a window if its middle is."""

    def __init__(self, recording: Path, say: Callable[[str], None]) -> None:
        """Raises OSError, PerfDataError."""
        self._hz, self._first = 1e9, 0
        self._trees: list[tuple[int, Tree]] = []
        settings: dict[str, Any] = {"flow.interpreted": True}
        of_recording(recording, say, through=self._through, told=self._told, pane_seconds=PANE, **settings)

    def _through(self, messages: Iterable[Message]) -> Iterable[Message]:
        for message in messages:
            if isinstance(message, StreamOpen):
                self._hz = message.clock.hz
            if isinstance(message, Tick):
                self._first = self._first or message.tsc
            yield message

    def _told(self, message: object) -> None:
        if isinstance(message, TreeReport):
            self._trees.append((message.pane, Tree(message.nodes, message.names)))

    def within(self, part: float) -> Tree:
        """Of the windows of `losses.Duty`."""
        ticks, pane = DUTY_SECONDS * self._hz, PANE * self._hz
        return merged(kept(self._trees, pane, self._first, ticks, part))


def kept(trees: Sequence[tuple[int, Tree]], pane: float, first: int, ticks: float, part: float) -> list[Tree]:
    """Of trees by pane of `pane` ticks those in the first `part` of each stretch of `ticks` from `first` on."""
    return [tree for n, tree in trees if ((n + 0.5) * pane - first) % ticks < part * ticks]

"""A recording, cut as a budget would have it: decoded once at full duty, in panes so short that the windows of the duty
cycle are whole numbers of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from capture.live.duty import Duty
from capture.recording.replay import Replay
from stages.messages import PaneReport
from streamer import config
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from streamer.pipeline.warm import warm

FINE = 0.01
"""Seconds of a pane."""
DUTIES = (0.05, 0.10, 0.25)
PANE = config.WindowConfig().pane_seconds


def panes(recording: Path) -> list[Counter[str]]:
    """Instructions by method, of each pane of `FINE` seconds."""
    settings = config.load(fidelity="flow", **{"window.pane_seconds": FINE})
    found: dict[int, Counter[str]] = {}
    names: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as directory, Replay(recording) as replay:
        place = Place(settings, Path(directory), 0)
        stages = middle(settings)
        warm(stages, place)
        chain = make_chain(stages, place)
        outputs = [out for message in replay.messages() for out in feed_chain(chain, message)]
        for out in [*outputs, *flush_chain(chain)]:
            if isinstance(out, PaneReport):
                names.update(out.names)
                sums = found.setdefault(out.pane, Counter())
                for row in out.profile:
                    sums[names[int(row["method"])]] += int(row["instructions"])
    return [found.get(n, Counter()) for n in range(min(found), max(found) + 1)]


def drawn(seconds: float, share: float, rng: Random) -> NDArray[np.bool_]:
    """Which panes of `FINE` are traced."""
    duty = Duty(share, rng)
    return np.array([duty.at(k * FINE) for k in range(round(seconds / FINE))])

"""The fate of every block that ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow_truth import compare
from benchmarks.flow_truth.compare import COUNTS, LOST
from benchmarks.flow_truth.reader import cause_name
from jvm.code.sites import SiteKind
from stages.messages import Break
from stages.messages.paths import OVERFLOW

CAUSES = {
    **{LOST + cause: f"break:{cause_name(cause)}" for cause in (*Break, OVERFLOW)},
    LOST: "hole:before any address",
    LOST + compare.L_HOLE: "hole:before any address",
    LOST + compare.L_OUTSIDE: "no code known there",
    LOST + compare.L_MISALIGNED: "misaligned",
    LOST + compare.L_END: "end:no packet confirmed it",
}
FLAGGED = LOST
"""In `Evaluation.places`: any cause."""


@dataclass
class Result:
    """Blocks, but where another unit is named."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(COUNTS, np.int64))
    holes: Counter[str] = field(default_factory=Counter)  # in bytes that were not handed to the walker
    untraced: int = 0  # while the AUX area was full
    rounds: int = 0  # of cycles without a packet, of which the trace does not tell; on no side
    wrong: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # how it ended, site, truth, decoded
    runs: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # the same, how often it came to that
    bits: int = 0  # TNT bits
    tips: int = 0  # packets with a branch's address
    bytes: int = 0
    seconds: float = 0.0  # CPU, of the stages up to follow
    breaks: Counter[str] = field(default_factory=Counter)  # how often

    @property
    def flagged(self) -> Counter[str]:
        """By kind."""
        out = Counter(self.holes)
        for at, n in enumerate(self.counts[LOST:].tolist(), LOST):
            if n:
                out[CAUSES.get(at, f"cause {at - LOST}")] += n
        for at, name in ((compare.SUSPECT_RIGHT, "suspect, and right"), (compare.SUSPECT_WRONG, "suspect, and wrong")):
            if self.counts[at]:
                out[name] += int(self.counts[at])
        if self.untraced:
            out["hole:never written (AUX full, overflow)"] += self.untraced
        return out

    @property
    def right(self) -> int:
        return int(self.counts[compare.RIGHT])

    @property
    def silent(self) -> int:
        """Handed on as observed, but another block ran."""
        return int(self.counts[[compare.WRONG, compare.EXTRA, compare.FOREIGN]].sum())

    @property
    def blocks(self) -> int:
        """All that ran in the filter and count."""
        missing = int(self.counts[[compare.WRONG, compare.FOREIGN]].sum())
        return self.right + missing + self.flagged.total()


class Place(NamedTuple):
    """A piece of code, by its kind."""

    name: str
    kind: SiteKind
    osr_entry: bool  # the very block at which on-stack replacement enters

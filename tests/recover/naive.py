"""The window and the search as plain as they can be: lists, and every place tried (JPortal's Algorithm 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stages.recover.filling import (
    ANCHOR,
    BEHIND,
    COUNTED,
    COUNTED_FACTOR,
    MOST_SIZE,
    SLACK,
    TIMED,
    TIMED_FACTOR,
    TRIED,
    WEIGHT,
)
from stages.recover.shared import MOST_SHARED


def worth(before: int, behind: int, steps: int, expected: int, counted: bool) -> float:
    """Each step is of one unit."""
    ratio = math.log((steps + SLACK) / (expected + SLACK))
    return WEIGHT * (math.log(before) + math.log(behind)) - (COUNTED if counted else TIMED) * abs(ratio)


class Naive:
    """`cells` as in the window: a step, or None for a tie. Runs are lists of positions."""

    def __init__(self) -> None:
        self.cells: list[int | None] = []
        self.runs: list[list[int]] = []
        self.run_of: dict[int, list[int]] = {}  # by thread: the one that is open

    def row(self, thread: int, continues: bool, steps: Sequence[int]) -> None:
        if not continues or thread not in self.run_of:
            self.run_of[thread] = []
            self.runs.append(self.run_of[thread])
            self.cells.append(None)
        elif self.run_of.get(-1) is self.run_of[thread]:
            self.cells.pop()
        else:
            self.cells.append(None)
        for step in steps:
            self.run_of[thread].append(len(self.cells))
            self.cells.append(step)
        self.cells.append(None)
        self.run_of[-1] = self.run_of[thread]  # the last

    def fillings(
        self, ahead: list[int], past: list[int], expected: int, counted: bool, low: int
    ) -> tuple[float, set[tuple[int, ...]]]:
        """The worth of the best filling of the hole between two runs, and all fillings worth as much. Positions below
        `low` have left the window."""
        runs = [[p for p in run if p >= low] for run in self.runs]
        mine, post = [p for p in ahead if p >= low], past[1:]
        if not mine or not post or expected > MOST_SIZE:
            return -math.inf, set()
        befores, behinds = [], []
        for r, run in enumerate(runs):
            for k in range(len(run)):
                shared = self._same(mine[::-1], run[k::-1])
                if shared >= ANCHOR and run[k] != mine[-1]:
                    befores.append((-shared, abs(run[k] - mine[-1]), r, k))
                shared = self._same(post, run[k:])
                if shared >= ANCHOR and run[k] != post[0]:
                    behinds.append((-shared, abs(run[k] - post[0]), r, k))
        # the filling is run[k + 1 : k + 1 + n], and run[k + 2 + n] is like post[0]
        tried = {(r, k, n) for _, _, r, k in sorted(befores)[:TRIED] for n in range(len(runs[r]))}
        tried |= {(r, k - 2 - n, n) for _, _, r, k in sorted(behinds)[:TRIED] for n in range(k - 1)}
        best, those = -math.inf, set[tuple[int, ...]]()
        for r, k, n in tried:
            run = runs[r]
            factor = COUNTED_FACTOR if counted else TIMED_FACTOR
            if not (expected + SLACK) / factor <= n + SLACK <= int((expected + SLACK) * factor):
                continue
            before, behind = self._same(mine[::-1], run[k::-1]), self._same(post, run[k + 2 + n :])
            if before >= ANCHOR and behind >= BEHIND:
                value = worth(before, behind, n, expected, counted)
                if value > best + 1e-9:
                    best, those = value, set()
                if value > best - 1e-9:
                    those.add(tuple(self.cells[p] or 0 for p in run[k + 1 : k + 1 + n]))
        return best, those

    def _same(self, a: Sequence[int], b: Sequence[int]) -> int:
        n = 0
        for p, q in zip(a, b, strict=False):
            if n == MOST_SHARED or self.cells[p] != self.cells[q]:
                break
            n += 1
        return n

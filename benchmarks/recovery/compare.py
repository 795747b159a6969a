"""Observed and recovered control flow against all that ran: as `python -m benchmarks.recovery --help` describes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.recovery.control_flow import I32, Filling, Run, Threads
from jvm.kernels import inner, kernel

LOOK, AROUND, SAME, MARKS = 64, 8, 64, 32
FAR, FAR_SAME, FAR_AGAIN = 4096, 24, 256
FAR_CHAIN, FAR_HEADS = 64, 1 << 16


@inner
def nearest(truth, i, i_end, other, j, j_end, look, same):  # type: ignore[no-untyped-def]
    """The nearest place behind (i, j) at which `same` steps in a row are equal, by how far both are from there."""
    for away in range(1, look):
        for k in range(away + 1):
            a, b = i + k, j + away - k
            if a + same > i_end or b + same > j_end:
                continue
            n = 0
            while n < same and truth[a + n] == other[b + n]:
                n += 1
            if n == same:
                return a, b
    return -1, -1


@inner
def far(truth, i, i_end, other, j, j_end, heads, chain):  # type: ignore[no-untyped-def]
    """As `nearest`, of FAR_SAME steps within FAR."""
    heads[:] = -1
    n = min(i_end - i, FAR) - FAR_SAME
    h = np.int64(0)
    for a in range(max(n, 0)):
        h = _hash(truth, i + a)
        chain[a] = heads[h]
        heads[h] = a
    best, at, to = np.int64(2 * FAR), -1, -1
    for b in range(min(j_end - j, FAR) - FAR_SAME):
        if b >= best:
            break
        a = heads[_hash(other, j + b)]
        looked = 0
        while a >= 0 and looked < FAR_CHAIN:
            looked += 1
            if a + b < best:
                k = 0
                while k < FAR_SAME and truth[i + a + k] == other[j + b + k]:
                    k += 1
                if k == FAR_SAME:
                    best, at, to = a + b, i + a, j + b
            a = chain[a]
    return at, to


@inner
def _hash(steps, at):  # type: ignore[no-untyped-def]
    h = np.int64(0)
    for k in range(FAR_SAME):
        h = h * np.int64(1000003) + steps[at + k]
    return (h ^ (h >> 17)) & (FAR_HEADS - 1)


@kernel
def paired(truth, i, i_end, other, j, j_end, look):  # type: ignore[no-untyped-def]
    """Pairs of equal steps, found as the module says; where the truth was left."""
    pairs = 0
    heads, chain = np.empty(FAR_HEADS, np.int32), np.empty(FAR, np.int32)
    again = i
    while i < i_end and j < j_end:
        if truth[i] == other[j]:
            pairs += 1
            i += 1
            j += 1
            continue
        a, b = nearest(truth, i, i_end, other, j, j_end, look, 3)
        if a < 0 and i >= again:
            a, b = far(truth, i, i_end, other, j, j_end, heads, chain)
            again = i + FAR_AGAIN
        if a >= 0:
            i, j = a, b
        else:
            i += 1
            j += 1
    return pairs, i


@kernel
def placed(truth, at, run, around, same):  # type: ignore[no-untyped-def]
    """The place nearest to `at` where `run` lies in the truth (by its second to last of `same` steps); −1: none."""
    n = min(same, len(run))
    for away in range(around):
        for side in range(2):
            i = at + away if side else at - away
            if i < 0 or i + n > len(truth):
                continue
            k = 1
            while k < n and truth[i + k] == run[k]:
                k += 1
            if k == n:
                return i
    return -1


@dataclass
class Found:
    """Steps, but for holes."""

    all: int = 0
    observed: int = 0
    lost: int = 0
    filled: int = 0
    right: int = 0
    holes: int = 0
    full: int = 0
    guessed: int = 0  # in holes that are not filled
    guessed_right: int = 0
    unplaced: int = 0  # observed steps of no known place
    late: int = 0  # of those lost: they ran behind a hole, before the first that was told

    def figures(self) -> dict[str, float]:
        return {
            "steps": self.all,
            "lost": self.lost / max(self.all, 1),
            "recovered": self.filled / max(self.all, 1),
            "holes": self.holes,
            "holes_filled": self.full / max(self.holes, 1),
            "recovery": self.right / max(self.lost, 1),
            "precision": self.right / max(self.filled, 1),
            "overall": (self.observed + self.right) / max(self.all, 1),
            "guessed": self.guessed / max(self.all, 1),
            "guessed_right": self.guessed_right / max(self.guessed, 1),
            "unplaced": self.unplaced / max(self.all, 1),
        }


def compare(truth: Threads, seen: Threads, fillings: dict[tuple[int, int], Filling], planted: int) -> Found:
    found = Found()
    for tid, runs in truth.items():
        steps = np.concatenate([p for run in runs for p in run.parts] or [np.zeros(0, np.int32)])
        bases = np.cumsum([0, *(run.size for run in runs)])
        marks: dict[int, int] = {}  # time → steps, of the first mark of that time
        for run, base in zip(runs, bases.tolist(), strict=False):
            for tsc, n in run.marks:
                marks.setdefault(tsc, n + base)
        found.all += len(steps)
        last = 0
        for k, run in enumerate(seen.get(tid, [])):
            mine = np.concatenate(run.parts or [np.zeros(0, np.int32)])
            at = _place(steps, marks, run, mine, last)
            if at < 0:
                found.unplaced += len(mine)
                continue
            times = list(dict(run.marks))[1:2]  # the first is that before the hole
            found.late += sum(max(0, at - max(last, marks.get(tsc, at))) for tsc in times)
            if k:
                _hole(found, steps, last, at, fillings.get((tid, run.offset)), planted)
            else:
                found.lost += at - last
            # the first step is the rest of a block
            pairs, end = paired(steps, at + 1, len(steps), mine, 1, len(mine), LOOK)
            found.observed += pairs + 1
            last = end
        found.lost += len(steps) - last
    return found


def _place(truth: I32, marks: dict[int, int], run: Run, steps: I32, low: int) -> int:
    """Where the run lies in the truth, not before `low`; −1: not found."""
    if len(steps) > 1:
        for tsc, n in dict(run.marks[MARKS::-1]).items():  # the first of each time
            at = placed(truth, max(marks.get(tsc, -AROUND) - n, -AROUND), steps, AROUND, SAME)
            if at >= low:
                return int(at)
    return -1


def _hole(found: Found, truth: I32, begin: int, end: int, filling: Filling | None, planted: int) -> None:
    found.lost += end - begin
    found.holes += 1
    if filling is None or not filling.found:
        return
    steps = filling.steps.copy()
    if planted:
        steps[::planted] = -1
    if filling.guessed:
        found.guessed += len(steps)
        found.guessed_right += paired(truth, begin, end, steps, 0, len(steps), LOOK)[0]
        return
    found.full += 1
    found.filled += len(steps)
    found.right += paired(truth, begin, end, steps, 0, len(steps), LOOK)[0]

"""The figures: how much of the truth was found, and the reasons for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.align import Pairs, aligned
from benchmarks.accuracy.clients import coverage, overlap, paths
from benchmarks.accuracy.executed import ENTER, Truth
from benchmarks.accuracy.methods import BITS, I64, Methods
from benchmarks.accuracy.unseen import unseen, while_resolving
from benchmarks.recovery.compare import compare
from benchmarks.recovery.control_flow import Filling, Threads
from stages.messages import FrameEvent

UNKNOWN_METHOD, LOST, OTHER = "of methods that were never told", "where the position was lost", "elsewhere"
INVOCATIONS_OF, BYTECODES_OF = 100, 50
"""Methods whose counts are compared: the most invoked, and the heaviest."""
WITHIN_INVOCATIONS, WITHIN_BYTECODES = 0.01, 0.02


class Aligned(NamedTuple):
    """A thread's truth and what was found of it, from the program's `main` on. With events; the pairs without."""

    truth: I64
    found: I64
    pairs: Pairs
    begin: int  # the position of `found` in what was given
    unseen: NDArray[np.bool_]  # of the bytecodes found: JVMTI posts no steps there (`unseen.py`)
    resolving: int  # found besides, while the VM resolves


def beside(truth: Truth, found: I64) -> Aligned:
    """The bytecodes found behind the launcher are aligned, or all where none of the launcher's was found; those before
    the first one that is in `main`'s truth too are the JVM's start."""
    hidden = while_resolving(found)
    at = np.flatnonzero((found >= 0) & ~hidden)
    one, other = truth.sequence[truth.sequence >= 0], found[at]
    first = int((truth.sequence[: truth.main] >= 0).sum())
    launched = np.flatnonzero(np.isin(other >> BITS, truth.launcher))
    start, since = (first, int(launched[-1]) + 1) if len(launched) else (0, 0)
    pairs = aligned(one[start:], other[since:])
    k = int(np.searchsorted(pairs.one, first - start))
    begin = since + int(pairs.other[k]) if k < len(pairs.other) else len(other)
    position = int(at[begin]) if begin < len(at) else len(found)
    pairs = Pairs(pairs.one[k:] + start - first, pairs.other[k:] + since - begin)
    rest, hidden = found[position:], hidden[position:]
    return Aligned(
        truth.sequence[truth.main :], rest[~hidden], pairs, position, unseen(truth, pairs, other[begin:]),
        int((rest[hidden] >= 0).sum()),
    )  # fmt: skip


def control_flow(a: Aligned, numbers: Methods, top: int) -> dict[str, Any]:
    one, other = a.truth[a.truth >= 0], a.found[a.found >= 0]
    right, seen = len(a.pairs.one), len(other) - int(a.unseen.sum())
    shown = np.ones(len(a.found), np.bool_)
    shown[np.flatnonzero(a.found >= 0)[a.unseen]] = False
    return {
        "bytecodes": len(one), "right": right / max(len(one), 1), "found": seen, "wrong": 1 - right / max(seen, 1),
        "as_often": as_often(one, other), "unseen": int(a.unseen.sum()) + a.resolving,
        "differences": differences(a, numbers, top),
        "coverage": coverage(one, other[~a.unseen])._asdict(),
        "path_overlap": overlap(paths(a.truth), paths(a.found[shown])),
    }  # fmt: skip


def as_often(one: I64, other: I64) -> float:
    """The part of the bytecodes of the truth that were found as often as they ran, in whatever order: of each method
    and bci at most the smaller of the two numbers."""
    (ran, times), (said, found) = (np.unique(x, return_counts=True) for x in (one, other))
    _, x, y = np.intersect1d(ran, said, assume_unique=True, return_indices=True)
    return float(np.minimum(times[x], found[y]).sum() / max(len(one), 1))


def differences(a: Aligned, numbers: Methods, top: int) -> list[dict[str, Any]]:
    """The bytecodes of the truth that were not found, by kind, with the methods that have most of them."""
    one, pairs = a.truth[a.truth >= 0], a.pairs
    missing = np.ones(len(one), np.bool_)
    missing[pairs.one] = False
    at = np.flatnonzero(missing)
    gap = np.searchsorted(pairs.one, at)  # it is before that pair
    lost_before = np.cumsum(a.found == -int(FrameEvent.LOST))[a.found >= 0]
    bounds = np.concatenate(([0], lost_before[pairs.other], lost_before[-1:]))
    lost = bounds[gap + 1] > bounds[gap] if len(lost_before) else np.ones(len(at), np.bool_)
    known = np.unique(a.found[a.found >= 0] >> BITS)
    told = np.isin(one[at] >> BITS, known)
    out = []
    for kind, here in ((UNKNOWN_METHOD, ~told), (LOST, told & lost), (OTHER, told & ~lost)):
        most = Counter(numbers.named(one[at[here]] >> BITS)).most_common(top)
        out.append({"kind": kind, "share": int(here.sum()) / max(len(one), 1), "methods": most})
    return out


def lossy(lossless: Threads, seen: Threads, fillings: dict[tuple[int, int], Filling], planted: int) -> dict[str, float]:
    """Of the bytecodes of the lossless run, by `benchmarks.recovery.compare`. A hole's time is lost; bytecodes behind
    it that ran before the position was found again were captured."""
    found = compare(lossless, seen, fillings, planted)
    lost = found.lost - found.late
    return {
        "lost": lost / max(found.all, 1), "recovered": found.filled / max(found.all, 1),
        "holes": found.holes, "holes_filled": found.full / max(found.holes, 1),
        "decoding": found.observed / max(found.all - lost, 1), "recovery": found.right / max(lost, 1),
        "precision": found.right / max(found.filled, 1), "unplaced": found.unplaced / max(found.all, 1),
    }  # fmt: skip


def by_method(truth: Mapping[str, int], found: Mapping[str, int], most: int, within: float) -> dict[str, Any]:
    """The `most` methods with the highest counts in the truth: how many counts are within `within`, each
    that is not, and how many of the first ten are the same."""
    first = Counter(truth).most_common(most)
    off = [(name, n, found.get(name, 0)) for name, n in first if abs(found.get(name, 0) - n) > within * n]
    ten = {name for name, _ in first[:10]}
    return {
        "methods": len(first), "within": len(first) - len(off), "off": off,
        "top_10": len(ten & {name for name, _ in Counter(found).most_common(10)}),
        "first": [(name, n, found.get(name, 0)) for name, n in first[:10]],
    }  # fmt: skip


def invoked(truth: Truth, numbers: Methods) -> dict[str, int]:
    """From `main` on; by native methods too."""
    since = int((truth.sequence[: truth.main] == ENTER).sum())
    return numbers.named(truth.entered[since:])


def executed(a: Aligned, numbers: Methods) -> tuple[dict[str, int], dict[str, int]]:
    """Bytecodes by method: of the truth, and found where the truth has steps."""
    one, other = a.truth[a.truth >= 0], a.found[a.found >= 0]
    return numbers.named(one >> BITS), numbers.named(other[~a.unseen] >> BITS)

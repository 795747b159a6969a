"""Sums → the figures shown of them: the heaviest methods, the kinds of code that they ran as, the trace's coverage."""

from __future__ import annotations

import numpy as np

from streamer.hub.profile import KINDS, OTHER, Rows
from streamer.hub.view import CAUSES, KIND_NAMES, Coverage
from streamer.hub.windows import DECODED, SHED, Bytes


def heaviest(names: list[str], weights: Rows, count: int) -> list[int]:
    """Positions of the `count` largest weights that are not 0 or `other`'s, equal ones in order of names: so that two
    runs that saw the same show the same."""
    cut = np.uint64(1)
    if len(weights) > count + 1:  # one more, for `other`
        cut = max(cut, np.partition(weights, -(count + 1))[-(count + 1)])
    found = [i for i in np.flatnonzero(weights >= cut).tolist() if names[i] != OTHER]
    return sorted(found, key=lambda i: (-int(weights[i]), names[i]))[: max(0, count)]


def kinds(row: Rows) -> dict[str, float]:
    """The shares of the kinds of code that a method ran as; empty: it did not."""
    weights = row[KINDS:]
    total = int(weights.sum())
    return {KIND_NAMES[kind]: int(weights[kind]) / total for kind in KIND_NAMES if weights[kind]} if total else {}


def coverage(sums: Bytes | None) -> Coverage:
    """Of sums of bytes by fate; None: there are none."""
    if sums is None:
        return Coverage(0, 0, 0, {})
    lost = {name: int(sums[cause]) for cause, name in CAUSES.items() if sums[cause]}
    return Coverage(int(sums[:SHED].sum()), int(sums[DECODED]), int(sums[SHED]), lost)

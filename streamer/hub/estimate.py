"""How sure a share is that was observed in part of the time only.

A window is a sample of clusters: its panes, in each of which the process was traced for some of the time, drawn at
random (`capture.live.duty`). A method's share is a ratio of two sums over them, its weight and the weight of all; the
variance of such a ratio is that of the residuals y − p·Y (ratio estimator: Cochran, Sampling Techniques, 6.4 and 9A;
the factor 1 − f is for the part that was seen, so that at full duty nothing is uncertain). Panes are few, so the
interval takes Student's t. Differences between panes because the program changed count as uncertainty too: intervals
err on the wide side. A pane in which nothing was seen is no cluster: at small duties there is a window in
every second one only, and to count the others would make out a larger sample than there is. A method that was met in
few clusters may be in more of the time than the spread of so few tells: its interval holds Wilson's for the part of the
clusters that have it (Wilson, JASA 22, 1927), each with as much of it as those had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.hub.windows import Pane

F64 = NDArray[np.float64]

# two-sided 95 % of Student's t, by degrees of freedom from 1 on; behind the table the normal distribution's
T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def student(freedom: int) -> float:
    """Two-sided 95 % quantile; ValueError below one degree of freedom."""
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom")
    return T95[freedom - 1] if freedom <= len(T95) else 1.960 + 2.4 / freedom


def half_widths(parts: F64, totals: F64, duty: float) -> F64:
    """Half of the 95 % interval of each share Σ parts / Σ totals. `parts`: (clusters, methods) weights, `totals`:
    (clusters,) weight of all methods; `duty`: part of the time that was seen. 1 where one cluster is all there is."""
    clusters, methods = int(np.count_nonzero(totals)), parts.shape[1]
    if duty >= 1 or not totals.any():
        return np.zeros(methods)
    if clusters < 2:
        return np.ones(methods)
    whole = totals.sum()
    residuals = parts - totals[:, None] * (parts.sum(axis=0) / whole)
    variance = (1 - duty) * clusters / (clusters - 1) * np.square(residuals).sum(axis=0) / whole**2
    met = np.count_nonzero(parts, axis=0)
    rare = (_most_often(met, clusters) - met / clusters) * clusters * parts.sum(axis=0) / np.maximum(met, 1) / whole
    halves: F64 = np.minimum(1.0, np.maximum(student(clusters - 1) * np.sqrt(variance), (1 - duty) ** 0.5 * rare))
    return halves


def _most_often(met: NDArray[np.int64], clusters: int) -> F64:
    """The upper end of Wilson's interval of the part of all clusters in which there is something that was met in `met`
    of them."""
    p, z = met / clusters, student(clusters - 1)
    found: F64 = (p + z**2 / (2 * clusters) + z * np.sqrt(p * (1 - p) / clusters + (z / (2 * clusters)) ** 2)) / (
        1 + z**2 / clusters
    )
    return found


def weights(panes: Iterable[Pane], slots: Sequence[int], column: int) -> tuple[F64, F64]:
    """`parts` and `totals` of `half_widths`: of one process, the weights in `column` of the methods in `slots`."""
    kept = list(panes)
    parts = np.zeros((len(kept), len(slots)))
    wanted = np.array(slots, np.intp)
    for row, pane in enumerate(kept):
        if len(pane.slots):
            at = np.minimum(np.searchsorted(pane.slots, wanted), len(pane.slots) - 1)
            found = pane.slots[at] == wanted
            parts[row, found] = pane.rows[at[found], column]
    return parts, np.array([float(pane.rows[:, column].sum()) for pane in kept])

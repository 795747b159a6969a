"""Fillings are counted as the same steps would be if they had been observed, and apart from these."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.images import Images
from stages.messages import FILLING_DTYPE, PaneReport, Recovered
from stages.messages.paths import Provenance
from stages.paths.counts import BlockCounts
from stages.paths.dictionary import Dictionary
from stages.paths.groups import grouped
from stages.profile.filled import filled
from stages.profile.stage import Profile
from stages.recover.stage import Recover
from tests.recover.made import STREAM, Row, paths, step
from tests.recover.test_filling import LOOP, SMALLEST

PANE = 1000


def as_fillings(rows: list[Row]) -> Recovered:
    fillings = np.zeros(len(rows), FILLING_DTYPE)
    for f, row in zip(fillings, rows, strict=True):
        f["tid"], f["tsc"], f["tsc_end"], f["provenance"] = row.tid, row.tsc, row.tsc_end, Provenance.RECOVERED
    fillings["step_end"] = np.cumsum([len(row.steps) for row in rows])
    fillings["step"] = fillings["step_end"] - [len(row.steps) for row in rows]
    steps = np.array([step(block) for row in rows for block in row.steps], np.int32)
    return Recovered(STREAM.host, STREAM.pid, 1, fillings, steps)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(0, 3)),
        min_size=1, max_size=8,
    )
)  # fmt: skip
@settings(deadline=None)
def test_a_filling_counts_as_what_is_observed_does(parts: list[tuple[int, list[int], int]]) -> None:
    parts.sort(key=lambda part: part[2])  # no thread goes back to a pane
    rows = [Row(tid, True, steps, pane * PANE + 5, pane * PANE + 905) for tid, steps, pane in parts]
    message, d = paths(rows), Dictionary()
    d.take(message)
    groups, of = grouped(message, PANE)
    b = message.breaks
    stops = message.stops["order"].copy(), message.stops["tsc"].astype(np.int64)
    observed = BlockCounts()(d, of, message.order, *stops, b["confirmed"].copy(), b["order"].copy())
    same, counted = filled(as_fillings(rows), PANE, d)
    assert (same == groups).all()
    sums = [
        {(g, x, w): (n, round(t, 3)) for g, x, w, n, t in zip(*(c.tolist() for c in e), strict=True)}
        for e in (observed, counted)
    ]
    assert sums[0] == sums[1]


def test_recovered_and_observed_stay_apart_in_the_report() -> None:
    images = Images()
    recover, profile = Recover(images, window_bytes=SMALLEST, pane_ticks=PANE), Profile(images=images, pane_ticks=PANE)
    rows = [Row(7, True, LOOP * 4, 0, 400, 0, 400), Row(7, False, [5, *LOOP[5:], *LOOP], 440, 600, 440, 600)]
    outputs = [*recover.feed(paths(rows)), *recover.flush()]
    reports = [r for r in [*(x for out in outputs for x in profile.feed(out)), *profile.flush()]
               if isinstance(r, PaneReport)]  # fmt: skip
    observed = sum(int(r.profile["instructions"].sum()) for r in reports)
    recovered = sum(int(r.recovered["instructions"].sum()) for r in reports)
    assert (observed, recovered) == (40 + 16, 4)
    assert sum(int(r.recovered["ticks"].sum()) for r in reports) == 40
    assert {int(t) for r in reports for t in r.recovered["tid"]} == {7}

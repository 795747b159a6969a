"""The stage against the naive search, on small sequences, and what a filling is by hand."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages import Loss, Recovered, ThreadEnd, ThreadKey
from stages.messages.paths import Provenance
from stages.recover import window
from stages.recover.stage import Recover
from tests.recover.made import STREAM, Row, paths, step
from tests.recover.naive import Naive, worth

SMALLEST = 1024 * window.CELL_BYTES


def told(outputs: list[object]) -> list[Recovered]:
    return [out for out in outputs if isinstance(out, Recovered)]


def recovered(rows: list[Row], window_bytes: int = SMALLEST) -> Recovered:
    stage = Recover(window_bytes=window_bytes, pane_ticks=1 << 60)
    stage.feed(paths(rows))
    (out,) = told(stage.flush())
    return out


def filling(out: Recovered, k: int = 0) -> list[int]:
    """Its blocks."""
    f = out.fillings[k]
    return [int(s) // window.WAYS for s in out.steps[f["step"] : f["step_end"]]]


LOOP = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_a_hole_is_filled_with_what_ran_before_between_the_same_steps() -> None:
    rows = [
        Row(7, True, LOOP * 4, 0, 400, 0, 400),
        Row(7, True, LOOP[:4], 400, 440, 400, 440),
        Row(7, False, [6, *LOOP[6:], *LOOP], 450, 600, 450, 600),  # from within block 6 on
    ]
    out = recovered(rows)
    f = out.fillings[0]
    assert (f["tid"], f["tsc"], f["tsc_end"], f["cause"]) == (7, 440, 450, Loss.AUX_FULL)
    assert (f["provenance"], f["expected"]) == (Provenance.RECOVERED, 1)
    assert filling(out) == [5]  # the 6 is there
    assert (f["before"], f["behind"]) == (24, 14)  # one round later 8 steps would follow, not 14


def test_the_time_of_a_hole_says_how_often_a_loop_went_round() -> None:
    rows = [
        Row(7, True, LOOP * 8, 0, 800, 0, 800),
        Row(7, False, [5, *LOOP[5:], *LOOP], 1140, 1300, 1140, 1300),
    ]
    assert filling(recovered(rows)) == [*LOOP * 3, 1, 2, 3, 4]


def test_trace_behind_the_hole_is_a_source_as_well() -> None:
    rows = [
        Row(7, True, LOOP[:5], 0, 50, 0, 50),
        Row(7, False, [8, 9, 10, *LOOP * 3], 70, 410, 70, 410),
    ]
    assert filling(recovered(rows)) == [6, 7]


def test_other_threads_rows_do_not_come_between() -> None:
    rows = [
        Row(7, True, LOOP, 0, 100, 0, 100),
        Row(8, True, [40, 41], 0, 100, 100, 120),
        Row(7, True, [*LOOP, 1, 2, 3], 100, 230, 120, 250),
        Row(8, True, [42, 43], 0, 100, 250, 270),
        Row(7, False, [8, 9, 10, *LOOP], 270, 400, 310, 440),
    ]
    assert filling(recovered(rows)) == [4, 5, 6, 7]


def test_where_nothing_fits_the_hole_stays_empty() -> None:
    rows = [Row(7, True, LOOP * 3, 0, 300, 0, 300), Row(7, False, [20, 21, 22, 23, 24, 25], 320, 380, 320, 380)]
    out = recovered(rows)
    assert (len(out.fillings), len(out.steps), int(out.fillings["provenance"][0])) == (1, 0, 0)


def test_suspect_parts_are_no_source() -> None:
    rows = [
        Row(7, True, [*LOOP, 1, 2, 3, 30, 31, 32, 33, 10, *LOOP], 0, 280, 0, 280, suspect=15),
        Row(7, True, [1, 2, 3], 280, 310, 280, 310),
        Row(7, False, [9, 10, *LOOP], 360, 480, 360, 480),
    ]
    assert filling(recovered(rows)) == [4, 5, 6, 7, 8]


def test_a_hole_is_told_when_its_pane_closes_and_numbers_end_with_their_generation() -> None:
    rows = [Row(7, True, LOOP * 4, 0, 400, 0, 400), Row(7, False, [5, *LOOP[5:], *LOOP], 440, 600, 440, 600)]
    stage = Recover(window_bytes=SMALLEST, pane_ticks=1000)
    message = paths(rows)
    assert stage.feed(message) == [message]
    assert stage.statistics()["recover_waiting"] == 1
    later = paths([Row(7, False, LOOP, 700, 800, 700, 800)], generation=2)
    first, last = stage.feed(later)
    assert isinstance(first, Recovered)
    assert (first.generation, last) == (1, later)
    assert stage.flush() == []  # it is not known how the new numbers go on with the old


def test_nothing_is_kept_of_a_thread_that_ended() -> None:
    stage = Recover(window_bytes=SMALLEST, pane_ticks=1000)
    for tid in range(100):
        stage.feed(paths([Row(tid, False, LOOP, 0, 100)], first=tid == 0))
        stage.feed(ThreadEnd(ThreadKey(STREAM.host, STREAM.pid, tid), STREAM, 0))
    assert stage.statistics()["recover_threads"] == 0
    (p,) = stage._processes.values()
    assert len(p.threads) == 16


@st.composite
def _rows(draw: st.DrawFn) -> list[Row]:
    """Of less than 256 cells, a quarter of the window: all holes are filled when all is in it."""
    rows: list[Row] = []
    tsc = 0
    patterns = draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=8), min_size=1, max_size=3))
    for tid, part, times, cut, lost in draw(
        st.lists(
            st.tuples(st.integers(1, 2), st.sampled_from(patterns), st.integers(1, 3), st.integers(0, 5),
                      st.sampled_from([0, 0, 3, 20])),
            min_size=2, max_size=9,
        )
    ):  # fmt: skip
        steps = (part * times)[cut:]
        begins = tsc + 10 * lost
        tsc = begins + 10 * len(steps)
        rows.append(Row(tid, not lost and any(r.tid == tid for r in rows), steps, begins, tsc, begins, tsc))
    return rows


@given(_rows(), st.booleans(), st.sampled_from([0, 700, 1100]))
@settings(max_examples=200, deadline=None)
def test_all_fillings_are_the_naive_ones(rows: list[Row], folded: bool, padding: int) -> None:
    """`padding`: as many steps before push the first out of the window."""
    if padding:
        rows = [Row(9, False, [50 + k % 7 for k in range(padding)], 0, 0), *rows]
    stage, naive = Recover(window_bytes=SMALLEST, pane_ticks=1 << 60), Naive()
    outs = told([*stage.feed(paths(rows, folded=folded)), *stage.flush()])
    before: dict[int, list[int]] = {}
    holes = []  # the run before each, and the number of that behind it
    for row in rows:
        if not row.continues and before.get(row.tid) and len(row.steps):
            holes.append((before[row.tid], len(naive.runs)))
        naive.row(row.tid, row.continues, [step(block) for block in row.steps])
        before[row.tid] = naive.run_of[row.tid]
    low = max(0, len(naive.cells) - 1024)
    assert sum(len(out.fillings) for out in outs) == len(holes)
    for k, (run, n) in enumerate(holes):
        f = outs[0].fillings[k]
        expected, counted = int(f["expected"]), bool(f["counted"])
        best, those = naive.fillings(run, naive.runs[n], expected, counted, low)
        if not f["provenance"]:
            assert best == -math.inf
            continue
        mine = worth(int(f["before"]), int(f["behind"]), int(f["step_end"] - f["step"]), expected, counted)
        assert math.isclose(mine, best, abs_tol=1e-6)
        assert tuple(outs[0].steps[f["step"] : f["step_end"]].tolist()) in those


def test_the_window_is_as_large_as_it_is_said_to_be() -> None:
    for size in (1 << 16, 1 << 20, 5 << 20):
        assert sum(array.nbytes for array in window.empty(size)) <= max(size, SMALLEST + 16)


def test_a_message_of_any_size_is_taken_in_short_steps() -> None:
    stage = Recover(window_bytes=1 << 20, pane_ticks=1 << 60)
    rows = [Row(7, True, [1, *[2] * 3_000_000], 0, 100), Row(7, False, [1], 100, 101)]
    outputs = list(stage.steps(paths(rows, folded=True)))
    assert outputs.count(None) >= 3
    assert stage.statistics()["recover_steps"] == 3_000_002
    assert np.all(next(iter(stage._processes.values())).window.steps[:100] >= 0)

"""`benchmarks.duty shift` on a made-up program."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from benchmarks.duty.cut import FINE, drawn
from benchmarks.duty.shift import aged, begins, reports, shifts, told

BEFORE = Counter(serve=40_000, parse=20_000)
AFTER = BEFORE + Counter(recommend=120_000)
SHIFT = 4000  # panes of `FINE`


@pytest.fixture(scope="module")
def program() -> list[Counter[str]]:
    rng = Random(3)
    return [
        Counter({name: rng.randrange(n) for name, n in (BEFORE if k < SHIFT else AFTER).items()}) for k in range(7000)
    ]


def test_the_shift_is_where_the_method_becomes_hot(program: list[Counter[str]]) -> None:
    assert abs(begins(program, "recommend") - SHIFT) <= 5
    assert begins(program, "serve") <= 1
    with pytest.raises(ValueError, match="never hot"):
        begins(program, "sleep")


def test_the_time_before_is_played_again(program: list[Counter[str]]) -> None:
    older = aged(program, "recommend", 15, 100)
    assert begins(older, "recommend") == begins(program, "recommend") + 100 / FINE
    assert (older[:1500], older[-3000:]) == (program[:1500], program[-3000:])
    with pytest.raises(ValueError, match="before 50 s"):
        aged(program, "recommend", 50, 100)


def test_reports_hold_what_was_traced(program: list[Counter[str]]) -> None:
    on = drawn(len(program) * FINE, 0.1, Random(1))
    found = list(reports(program, on))
    traced = sum((pane for pane, was in zip(program, on, strict=True) if was), Counter[str]())
    assert sum(int(r.profile["instructions"].sum()) for r in found) == traced.total()
    assert sum(r.off_ticks for r in found) == int((~on).sum())


def test_it_is_told_at_any_duty(program: list[Counter[str]]) -> None:
    rows = shifts(program, "recommend", 2, 1)
    assert [row["method_told"] for row in rows.values()] == [1, 1, 1, 1]
    assert all(row["longest"] <= 0.2 for row in rows.values())
    assert rows["100%"]["alert_holds"] == 1


def test_what_is_never_traced_is_never_told(program: list[Counter[str]]) -> None:
    found = told(program, np.arange(len(program)) < SHIFT - 10, "recommend")
    assert (found.mover, found.alert) == (None, None)

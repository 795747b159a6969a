from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.messages import Account, Loss, LossMark, StreamKey, accounts
from stages.messages.accounts import Ledger, joined

KEY = StreamKey("h", 42, 0, -1)
CAUSES = [None, Loss.AUX_FULL, Loss.NO_SYNC, Loss.UNKNOWN_THREAD]


@given(st.data(), st.lists(st.tuples(st.integers(0, 9), st.sampled_from(CAUSES)), min_size=1, max_size=12))
def test_a_ledger_joins_what_comes_in_any_order(data: st.DataObject, runs: list[tuple[int, Loss | None]]) -> None:
    parts, at = [Account(KEY, 100, 100, 0, ())], 100
    for size, cause in runs:
        made = accounts.decoded(KEY, at, at + size) if cause is None else accounts.hole(KEY, at, at + size, cause)
        parts.append(made)
        at += size
    ledger = Ledger()
    ledger.add(parts[0])
    taken = []
    for part in data.draw(st.permutations(parts[1:])):
        ledger.add(part)
        if data.draw(st.booleans()) and (sum_ := ledger.take()) is not None:
            taken.append(sum_)
    if (sum_ := ledger.take()) is not None:
        taken.append(sum_)
    assert len(ledger) == 0
    assert all(a.end == b.start or b.start == b.end for a, b in pairwise(taken))
    assert joined(taken) == joined(parts)
    for account in taken:
        assert account.decoded + sum(n for _, n in account.holes) == account.end - account.start


def test_what_does_not_join_waits() -> None:
    ledger = Ledger()
    ledger.add(Account(KEY, 0, 0, 0, ()))
    ledger.add(accounts.decoded(KEY, 5, 9))
    assert ledger.take() == Account(KEY, 0, 0, 0, ())
    assert ledger.take() is None
    ledger.add(accounts.hole(KEY, 0, 5, Loss.SHED, lost=3))
    assert ledger.take() == Account(KEY, 0, 9, 4, ((Loss.SHED, 5),), ((Loss.SHED, 3),), ((Loss.SHED, 1),))


def test_events_have_no_bytes() -> None:
    found = accounts.event(KEY, LossMark(7, Loss.OVERFLOW, 0, 1))
    assert (found.start, found.end, found.holes, found.events) == (7, 7, (), ((Loss.OVERFLOW, 1),))


def test_joined_refuses_gaps() -> None:
    with pytest.raises(ValueError, match="do not join"):
        joined([accounts.decoded(KEY, 0, 5), accounts.decoded(KEY, 6, 7)])
    with pytest.raises(ValueError, match="no accounts"):
        joined([])


def test_what_was_shed_is_summed() -> None:
    parts = [Account(KEY, 0, 10, 10, (), shed=10), Account(KEY, 10, 30, 15, ((Loss.DESYNC, 5),), shed=4)]
    assert joined(parts) == Account(KEY, 0, 30, 25, ((Loss.DESYNC, 5),), shed=14)

from __future__ import annotations

from collections import Counter
from typing import TypeAlias, cast

from hypothesis import given
from hypothesis import strategies as st

from stages.messages import Account, Loss
from streamer.hub.ledger import Ledger
from tests.hub.reports import HOST, PID, account, stream


def test_consecutive_accounts_join() -> None:
    ledger = Ledger()
    ledger.account(account(0, 100), 0)
    ledger.account(account(100, 250, desync=40), 0)
    (balance,) = ledger.close({stream(): 250})
    assert (balance.decoded, balance.holes, balance.error) == (210, {Loss.DESYNC: 40}, 0)
    totals = ledger.totals(HOST, PID)
    assert (totals.accounted, totals.decoded, totals.lost) == (250, 210, 40)
    assert totals.events == {Loss.DESYNC: 1}


def test_a_gap_waits_for_a_late_account() -> None:
    ledger = Ledger(patience=2)
    ledger.account(account(100, 200), 0)
    ledger.settle(1.9)
    assert ledger.gaps() == 1
    assert ledger.totals().accounted == 0
    ledger.account(account(0, 100), 1.9)
    assert (ledger.totals().decoded, ledger.totals().lost) == (200, 0)


def test_a_gap_that_stays_is_a_hole_of_a_worker_or_what_was_told() -> None:
    ledger = Ledger(patience=2)
    ledger.tell(stream(), 30, 60, Loss.CAPTURE_DOWN)
    ledger.account(account(100, 200), 0)
    ledger.settle(2)
    assert ledger.totals().holes == {Loss.WORKER_DOWN: 70, Loss.CAPTURE_DOWN: 30}
    assert ledger.totals().events == {Loss.WORKER_DOWN: 2, Loss.CAPTURE_DOWN: 1}
    ledger.account(account(0, 100), 3)
    assert ledger.totals().overlaps == 100
    assert ledger.totals().accounted == 200


def test_the_end_extends_to_aux_head_and_shows_what_cannot_be() -> None:
    ledger = Ledger()
    ledger.account(account(0, 100), 0)
    ledger.account(account(0, 100, cpu=1), 0)
    ledger.tell(stream(0), 100, 140, Loss.CAPTURE_DOWN)
    first, second, unseen = ledger.close({stream(0): 140, stream(1): 90, stream(2): 5})
    assert (first.holes, first.error) == ({Loss.CAPTURE_DOWN: 40}, 0)
    assert second.error == 10
    assert (unseen.holes, unseen.error) == ({Loss.WORKER_DOWN: 5}, 0)
    assert ledger.streams() == {}
    assert ledger.totals().accounted == 245


def test_accounts_that_contradict_themselves_become_a_gap() -> None:
    ledger = Ledger()
    ledger.account(Account(stream(), 0, 100, 90, ((Loss.DESYNC, 20),)), 0)
    ledger.account(Account(stream(), 0, 100, 110, ((Loss.DESYNC, -10),)), 0)
    ledger.account(Account(stream(), 100, 0, -100, ()), 0)
    ledger.account(Account(stream(), 0, 100, 90, ((cast("Loss", 99), 10),)), 0)
    ledger.account(Account(stream(), 0, 100, 100, (), (), ((Loss.SHED, -1),)), 0)
    ledger.account(Account(stream(), 0, 1 << 60, 1 << 60, ()), 0)
    ledger.account(Account(stream(), 0, 100, 90, ((Loss.DESYNC, 10),), shed=91), 0)
    ledger.account(Account(stream(), 0, 100, 100, (), shed=-1), 0)
    assert ledger.totals().malformed == 8
    (balance,) = ledger.close({stream(): 100})
    assert balance.holes == {Loss.WORKER_DOWN: 100}


def test_bytes_that_never_entered_the_stream_stay_apart() -> None:
    ledger = Ledger()
    ledger.account(Account(stream(), 0, 10, 10, (), ((Loss.AUX_FULL, 4096),), ((Loss.AUX_FULL, 1),)), 0)
    totals = ledger.totals()
    assert (totals.unwritten, totals.events, totals.lost) == ({Loss.AUX_FULL: 4096}, {Loss.AUX_FULL: 1}, 0)


def test_events_without_bytes_do_not_wait_and_make_no_gap() -> None:
    ledger = Ledger(patience=2)
    ledger.account(Account(stream(), 500, 500, 0, (), (), ((Loss.SIDEBAND_LOST, 1),)), 0)
    ledger.settle(10)
    ledger.account(account(0, 500), 10)
    totals = ledger.totals()
    assert (totals.decoded, totals.lost, totals.overlaps, totals.events) == (500, 0, 0, {Loss.SIDEBAND_LOST: 1})


def test_streams_and_waiting_accounts_are_bounded() -> None:
    ledger = Ledger(max_streams=2, max_waiting=4)
    for cpu in range(3):
        ledger.account(account(0, 10, cpu=cpu), 0)
    assert ledger.refused == 1
    for i in range(1, 20):
        ledger.account(account(100 * i, 100 * i + 50), 0)
    totals = ledger.streams()[stream(0)]
    assert totals.accounted == totals.decoded + totals.lost == 1550
    (balance,) = ledger.close({stream(0): 1950})
    assert (balance.decoded, balance.error) == (10 + 19 * 50, 0)


History: TypeAlias = tuple[int, list[Account], int, Counter[str]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Accounts that join, some of them missing, given twice, or late; and the true fate of each byte."""
    pieces = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50), st.booleans()), min_size=1, max_size=12))
    at, accounts = 0, list[Account]()
    expected: Counter[str] = Counter()
    for size, lost, present in pieces:
        lost = min(lost, size)
        shed = draw(st.integers(0, size - lost))
        if present:
            accounts.append(account(at, at + size, shed=shed, **({"overflow": lost} if lost else {})))
            expected["shed"] += shed
            expected["decoded"] += size - lost
            expected["overflow"] += lost
        else:
            expected["gap"] += size
        at += size
    twice = draw(st.lists(st.sampled_from(accounts), max_size=3)) if accounts else []
    return at, draw(st.permutations(accounts + twice)), sum(a.end - a.start for a in twice), expected


@given(histories())
def test_any_order_and_repetition_give_the_same_ledger(history: History) -> None:
    head, accounts, repeated, expected = history
    heard: Counter[Loss | str | None] = Counter()
    ledger = Ledger(on_change=lambda _, cause, size, shed: heard.update({cause: size, "shed": shed}))
    for a in accounts:
        ledger.account(a, 0)
        totals = ledger.totals()
        assert totals.accounted == totals.decoded + totals.lost
    (balance,) = ledger.close({stream(): head})
    assert balance.error == 0
    assert balance.decoded == heard[None] == expected["decoded"]
    assert balance.shed == heard["shed"] == ledger.totals().shed == expected["shed"]
    assert balance.holes.get(Loss.OVERFLOW, 0) == heard[Loss.OVERFLOW] == expected["overflow"]
    assert balance.holes.get(Loss.WORKER_DOWN, 0) == expected["gap"]
    assert ledger.totals().overlaps == repeated


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 30)), max_size=15), st.integers(90, 120)
)
def test_overlapping_accounts_never_count_a_byte_twice(spans: list[tuple[int, int, int]], head: int) -> None:
    ledger = Ledger()
    covered: set[int] = set()
    for start, size, lost in spans:
        holes = {"desync": min(lost, size)} if min(lost, size) else {}
        ledger.account(account(start, start + size, shed=(size - sum(holes.values())) // 2, **holes), 0)
        covered.update(range(start, start + size))
    (balance,) = ledger.close({stream(): head})
    assert balance.error == 0
    assert balance.holes.get(Loss.WORKER_DOWN, 0) == head - len(covered)
    assert balance.shed <= balance.decoded <= len(covered)

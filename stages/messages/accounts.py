"""Byte accounting: the fate of every byte of a stream, told in the stream's order.

A stage that knows the fate of a run of bytes says so with an `Account` of that run; the stages after it pass accounts
on. Runs become known out of order (a hole is known at once, the bytes before it may still be held), so the last stage
joins them: a `Ledger` keeps runs by their start and `take`s the longest unbroken stretch after the last one. Losses
outside the offsets (bytes never written, events without bytes) belong to the run in which they lie.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from stages.messages import Account, Loss, LossMark, StreamKey


def decoded(stream: StreamKey, start: int, end: int) -> Account:
    return Account(stream, start, end, end - start, ())


def hole(stream: StreamKey, start: int, end: int, cause: Loss, *, event: bool = True, lost: int = 0) -> Account:
    """`event` False: these bytes belong to a hole that has been counted already."""
    return Account(
        stream, start, end, 0,
        ((cause, end - start),) if end > start else (),
        ((cause, lost),) if lost else (),
        ((cause, 1),) if event else (),
    )  # fmt: skip


def event(stream: StreamKey, mark: LossMark, times: int = 1) -> Account:
    """A loss that left no bytes behind; or so many of them, the first of which is `mark`."""
    told = hole(stream, mark.offset, mark.offset, mark.cause, lost=mark.lost)
    return replace(told, events=((mark.cause, times),))


def joined(accounts: Iterable[Account]) -> Account:
    """The sum of accounts that follow each other without a gap; those of no bytes may stand anywhere. Raises
    ValueError where they do not."""
    first: Account | None = None  # with bytes, if any has
    end = done = shed = 0
    holes: Counter[Loss] = Counter()
    never: Counter[Loss] = Counter()
    events: Counter[Loss] = Counter()
    for account in accounts:
        if first is None or (first.start == first.end == end and account.start < account.end):
            first, end = account, account.start
        if account.start < account.end:
            if account.start != end:
                raise ValueError(f"accounts do not join: {account.start} after {end}")
            end = account.end
        done += account.decoded
        shed += account.shed
        for total, part in ((holes, account.holes), (never, account.never_written), (events, account.events)):
            for cause, n in part:
                total[cause] += n
    if first is None:
        raise ValueError("no accounts")
    in_holes, unwritten, counted = (tuple(sorted(t.items())) for t in (holes, never, events))
    return Account(first.stream, first.start, end, done, in_holes, unwritten, counted, shed)


class Ledger:
    """The accounts of one stream on their way out."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, Account]] = []  # start, end, order of arrival
        self._arrived = 0
        self._taken: int | None = None  # end of the bytes taken; None: nothing has come yet

    def __len__(self) -> int:
        """Accounts that wait."""
        return len(self._waiting)

    def add(self, account: Account) -> None:
        self._arrived += 1
        if self._taken is None:
            self._taken = account.start
        insort(self._waiting, (account.start, account.end, self._arrived, account))

    def take(self) -> Account | None:
        """The sum of the runs that follow the last take without a gap; None if there is nothing."""
        if self._taken is None:
            return None
        at, n = self._taken, 0
        while n < len(self._waiting):
            start, end = self._waiting[n][:2]
            if start > at or (start < at and end > start):
                break
            at = max(at, end)
            n += 1
        if n == 0:
            return None
        sum_ = joined(entry[3] for entry in self._waiting[:n])
        if sum_.start == sum_.end:  # nothing but events of bytes that have been taken
            sum_ = replace(sum_, start=at, end=at)
        del self._waiting[:n]
        self._taken = at
        return sum_

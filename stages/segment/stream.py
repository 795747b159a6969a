"""The state of one stream: bytes that wait, marks in them, and by its sideband which thread ran when."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.messages import (
    MARK_DTYPE,
    U8,
    Loss,
    LossMark,
    MarkKind,
    Sideband,
    SideKind,
    StreamKey,
    ThreadEnd,
    ThreadKey,
)
from stages.pt.scan import last_ip_at
from stages.segment.thread_attribution import Owner, Special

PSB, OVF, PGE, PGD, TIME, BAD = (int(kind) for kind in MarkKind)  # an enum's members are slow to get at


MOST_SWITCHES = 1 << 12
"""That wait for the bytes around them: minutes of a busy processor of which nothing is read."""


class Run(NamedTuple):
    """Bytes without a hole between them."""

    offset: int
    data: U8
    last_ip: int

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(slots=True)
class Piece:
    tid: int
    start: int
    end: int
    tsc: int
    tsc_end: int


@dataclass(slots=True)
class Stream:
    key: StreamKey
    owner: Owner
    counts: Counter[str]  # told_twice, switches
    tsc: int = 0  # everything up to this time and `at` is decided
    at: int = -1
    tracing: bool = False  # code was being traced at `at`
    lone: bool = False  # `at` is a TSC packet on its own
    runs: list[Run] = field(default_factory=list)
    marks: NDArray[np.void] = field(default_factory=lambda: np.empty(0, MARK_DTYPE))
    passed: int = 0  # so many of them have been
    losses: list[LossMark] = field(default_factory=list)
    coming: list[Owner] = field(default_factory=list)  # switches told, by time; `MOST_SWITCHES` at most
    cut: int = -1  # a hole begins here
    last_heard: tuple[int, int] = (-1, 0)  # `end`, and by when all bytes before it had been written
    last_record: int = 0
    number: int = -1  # of the last Sideband
    again: bool = False  # the next Sideband tells again all there is to know
    lost_until: int = 0  # records up to this time may be missing
    pieces: list[Piece] = field(default_factory=list)
    unknown_to: int = -1  # the last bytes of which the thread is not known end here: the next are in the same hole

    @property
    def end(self) -> int:
        return self.runs[-1].end if self.runs else self.at

    def heard_until(self, drain: int) -> int:
        """When the bytes that wait had all been written: by the first drain behind them. `drain`: the newest."""
        if self.last_heard[0] != self.end:
            self.last_heard = self.end, drain
        return self.last_heard[1]

    @property
    def is_cut(self) -> bool:
        """The next bytes do not join those before them."""
        return self.cut == self.end

    def shorten(self) -> None:
        """Of too many switches the older ones are as records that were lost: bytes of then may be any thread's. (They
        cannot be put together by their age: a processor's last bytes come into view seconds later, when its buffer is
        looked at.)"""
        if len(self.coming) > MOST_SWITCHES:
            self.coming = [Owner(self.coming[0].since, Special.LOST), *self.coming[-MOST_SWITCHES // 2 :]]

    def numbered_anew(self) -> None:
        """Its sideband comes from now on from a sender that numbers anew, and first tells the records that matter
        still."""
        self.again, self.number = True, -1

    def take(self, side: Sideband) -> Iterator[ThreadEnd]:
        """Its records, which say which thread ran when; the threads that ended."""
        if side.seq <= self.number:
            self.counts["told_twice"] += 1
            return
        again, self.again, self.number = self.again, False, side.seq
        told_to = self.last_record if again else 0
        for tsc, kind, _, pid, tid, *_ in side.records.tolist():
            if tsc < told_to:
                again = False  # the records told before join these
                continue
            if again and tsc > told_to:
                self._lost(self.last_record, tsc)
                again = False
            tsc = max(tsc, self.last_record)
            ours = pid == side.stream.pid and tid > 0
            if kind in (SideKind.SWITCH_IN, SideKind.ITRACE_START):
                self._switch(tsc, tid if ours else Special.NOBODY)
            elif kind == SideKind.SWITCH_OUT:
                if self.owner.since == 0 and ours and all(owner.since >= tsc for owner in self.coming):
                    self.owner = Owner(0, tid)  # no record says which thread ran before: the one that goes now did
                self._switch(tsc, Special.NOBODY)
            elif kind == SideKind.LOST:
                self._lost(self.last_record, tsc)
            elif kind == SideKind.EXIT and ours:  # on a CPU others end, too
                yield ThreadEnd(ThreadKey(side.stream.host, pid, tid), self.key, tsc)
            self.last_record = tsc

    def _switch(self, tsc: int, tid: int) -> None:
        if self.key.tid >= 0 and tid != Special.NOBODY:
            tid = self.key.tid
        insort(self.coming, Owner(tsc, tid), key=lambda owner: owner.since)
        self.counts["switches"] += 1

    def _lost(self, since: int, until: int) -> None:
        """Records are missing between these times."""
        self._switch(since, Special.LOST)
        self.lost_until = until

    def lost_before(self, until: int) -> None:
        """Records are missing, the last of them from `until`; of how many before it is not known."""
        if until > self.lost_until:  # else a record has said so
            before = bisect_right(self.coming, until, key=lambda owner: owner.since)
            self._lost((self.coming[before - 1] if before else self.owner).since, until)

    def time_at(self, offset: int) -> int:
        """Time of the last time mark before `offset`."""
        here = self.marks[: np.searchsorted(self.marks["offset"], offset)]
        timed = np.flatnonzero((here["kind"] == PSB) | (here["kind"] == TIME))
        return int(here["tsc"][timed[-1]]) if len(timed) else self.tsc

    def run_at(self, at: int) -> Run:
        """The run with the byte at `at`."""
        return self.runs[bisect_right(self.runs, at, key=lambda run: run.offset) - 1]

    def before(self, run: Run, at: int, end: int) -> tuple[int, int, int]:
        """Last IP before `at`, in `run`; the marks in [at, end): from, to."""
        last_ip, first, behind = _before(self.marks, run.data, run.offset, np.uint64(run.last_ip), at, end)
        return int(last_ip), first, behind

    def trim(self) -> None:
        """Forgets the bytes that are decided."""
        runs = []
        for run in self.runs:
            if run.end <= self.at:
                continue
            if run.offset < self.at:
                run = Run(self.at, run.data[self.at - run.offset :], self.before(run, self.at, self.at)[0])
            runs.append(run)
        self.runs = runs
        # The mark at `at` has been passed, but it stands in the bytes that are left.
        keep = self.passed
        while keep and int(self.marks[keep - 1]["offset"]) >= self.at:
            keep -= 1
        self.marks, self.passed = self.marks[keep:], self.passed - keep


@inner
def _first(marks, at):  # type: ignore[no-untyped-def]
    """The first mark at or behind `at`."""
    low, high = np.int64(0), np.int64(len(marks))
    while low < high:
        middle = (low + high) >> 1
        if np.int64(marks[middle]["offset"]) < at:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _before(marks, data, begin, last_ip, at, end):  # type: ignore[no-untyped-def]
    """`Stream.before`, of a run that begins at `begin` behind `last_ip`: counted from there, or from the last PSB."""
    first = _first(marks, at)
    k = _first(marks, at + 1) - 1
    while k >= 0 and np.int64(marks[k]["offset"]) >= begin:
        if marks[k]["kind"] == PSB:
            begun = np.int64(marks[k]["offset"]) - begin
            return last_ip_at(data, begun, at - begin, np.uint64(0)), first, _first(marks, end)
        k -= 1
    return last_ip_at(data, np.int64(0), at - begin, last_ip), first, _first(marks, end)


def overflows(marks: NDArray[np.void]) -> list[LossMark]:
    ovf = marks[marks["kind"] == OVF]
    return [
        LossMark(at, Loss.OVERFLOW, 0, t) for at, t in zip(ovf["offset"].tolist(), ovf["tsc"].tolist(), strict=True)
    ]


def was_tracing(marks: NDArray[np.void]) -> bool:
    """Was code being traced anywhere between these?"""
    kind = marks["kind"]
    return bool(((kind == PGE) | (kind == OVF) | ((kind == PSB) & (marks["ip"] != 0))).any())


def is_tracing(marks: NDArray[np.void], before: bool) -> bool:
    """Is code being traced behind `marks`, if it was (or was not) `before`?"""
    return bool(_tracing(marks, before))


@kernel
def _tracing(marks, before):  # type: ignore[no-untyped-def]
    """`is_tracing`: by the last of the marks that tells."""
    for k in range(len(marks) - 1, -1, -1):
        kind = marks[k]["kind"]
        if kind == PSB:
            return marks[k]["ip"] != 0
        if kind != TIME and kind != BAD:
            return kind in (PGE, OVF)  # an OVF is followed by a FUP, or a PGE that says so
    return before

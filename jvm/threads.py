"""Names of Java threads, by OS thread id and time: ids come again.

A name is that which the thread had when it started: JVMTI tells no `Thread.setName`. Virtual threads have none here,
they run on their carriers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from jvm.code.version import FOREVER

MOST = 1 << 15
"""Ids of which threads are kept: with more of them the one that was told first goes."""
OF_AN_ID = 8
LONGEST = 128
"""Characters of a name."""


@dataclass(slots=True)
class _Thread:
    name: str
    since: int
    until: int = FOREVER


class ThreadNames:
    """Of one process. A thread goes with `forget_before` once it has ended, or when many had its id since."""

    def __init__(self) -> None:
        self._told: dict[int, deque[_Thread]] = {}  # the threads of an id, ascending

    def start(self, tid: int, name: str, since: int) -> None:
        """One that is told again changes nothing. `since` 0: it was there before anything was told."""
        told = self._told.setdefault(tid, deque(maxlen=OF_AN_ID))
        last = told[-1] if told else None
        if last is not None and since == 0 and last.until == FOREVER and last.name == name[:LONGEST]:
            last.since = 0  # it is found, and was there before it was told
        if last is not None and (since <= last.since or (last.until == FOREVER and last.name == name[:LONGEST])):
            return
        if last is not None:
            last.until = min(last.until, since)
        told.append(_Thread(name[:LONGEST], since))
        if len(self._told) > MOST:
            del self._told[next(iter(self._told))]

    def end(self, tid: int, tsc: int) -> None:
        if (told := self._told.get(tid)) and told[-1].until == FOREVER:
            told[-1].until = max(tsc, told[-1].since)

    def at(self, tid: int, tsc: int, early: int = 0) -> str:
        """The name of the thread that had this id then, or began at most `early` ticks later; "": none is known."""
        told = [t for t in self._told.get(tid, ()) if t.since <= tsc + early and tsc < t.until]
        return told[0].name if told else ""

    def forget_before(self, tsc: int) -> None:
        for tid, told in [*self._told.items()]:
            while told and told[0].until <= tsc:
                told.popleft()
            if not told:
                del self._told[tid]

"""Which threads ran between two moments, and which stretches of trace are theirs.

A thread switch happens in the kernel, where nothing is traced. So between two time marks of a stream, t₀ < t₁, its
bytes fall into spans S₀ … Sₖ divided by gaps (TIP.PGD … TIP.PGE, lost packets), and each switch that the sideband
tells of in (t₀, t₁] lies in one of those gaps. Of owners o₀ (the thread that ran at t₀), o₁ … oₘ (in order of time)
each span has one, in the same order. That bounds it:

- a span that goes on through t₀ is o₀'s, a span that goes on through t₁ is oₘ's;
- an idle processor and other processes leave no trace, so a span with code in it has an owner that can be traced;
- a later span has no earlier owner.

With one gap all is exact. Where the bounds of a span still hold different threads, the owner is not known: no guess by
the nearest time. One more thing is known where a TSC packet stands alone in a gap (a core that wakes up or a traced
task that is scheduled in writes one): the switches told within `NEAR` ticks of it were made in that very gap. One
change of threads can be told by several records: out, in, and that tracing of the thread that came has started.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NEAR = 10_000
"""Ticks (a few µs) between a switch and the TSC packet that it causes."""


class Special(IntEnum):
    NOBODY = -1  # no thread that is traced
    LOST = -2  # records are missing: could be any thread


class Owner(NamedTuple):
    since: int  # TSC
    tid: int  # or a Special


class Bounds(NamedTuple):
    """Owners lo … hi (positions) are those a span may have."""

    lo: int
    hi: int


def assign(
    owners: list[Owner], code: list[bool], through_start: bool, through_end: bool, near_start: int, near_end: int
) -> list[Bounds]:
    """`owners` o₀ … oₘ, `code[j]`: span j has code in it; `through_*`: the first (last) span goes on through t₀ (t₁);
    `near_*`: a lone TSC packet in the gap at t₀ (t₁) belongs to so many of the first (last) switches. Bounds of each
    span; lo > hi where the records contradict the trace."""
    k, m = len(code) - 1, len(owners) - 1
    able = [owner.tid != Special.NOBODY for owner in owners]
    lo, hi = [0] * (k + 1), [m] * (k + 1)
    if through_start:
        hi[0] = 0
    if through_end:
        lo[k] = m
    if near_start and not through_start and k >= 1:
        lo[1] = min(near_start, m)
    if near_end and not through_end and k >= 1:
        hi[k - 1] = max(m - near_end, 0)
    at = 0
    for j in range(k + 1):
        at = max(at, lo[j])
        while code[j] and at <= m and not able[at]:
            at += 1
        lo[j] = at
    at = m
    for j in range(k, -1, -1):
        at = min(at, hi[j])
        while code[j] and at >= 0 and not able[at]:
            at -= 1
        hi[j] = at
    return [Bounds(a, b) for a, b in zip(lo, hi, strict=True)]


def thread(owners: list[Owner], bounds: Bounds) -> int:
    """The one thread within `bounds`, or a Special: LOST if there are several or none can be told."""
    tids = {o.tid for o in owners[bounds.lo : bounds.hi + 1]} - {int(Special.NOBODY)}
    return tids.pop() if len(tids) == 1 else int(Special.LOST)

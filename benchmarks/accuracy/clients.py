"""Of the bytecodes of a thread: statement coverage, and how often each path through a method ran.

Paths are those of Ball and Larus (MICRO'96): from a method's entry, or behind a jump back, to the next jump back, or to
the method's end; calls in between do not end them. In the place of their number, which saves a program that counts
itself the time to remember a path, stands the hash of a path's bytecodes.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.accuracy.executed import SEEN_UPCALL
from benchmarks.accuracy.methods import BITS, I64
from jvm.kernels import kernel
from stages.messages import FrameEvent

DEEPEST = 1 << 16
FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_ENTER, _RETURN, _UNWIND, _OSR, _UPCALL, _UPRETURN, _LOST = (
    -int(e) for e in (FrameEvent.ENTER, FrameEvent.RETURN, FrameEvent.UNWIND, FrameEvent.OSR, FrameEvent.UPCALL,
                      FrameEvent.UPRETURN, FrameEvent.LOST)
)  # fmt: skip
_NEW, _BOUNDARY = -1, -2  # in place of the last bci: nothing ran yet; the VM calls


@kernel
def _paths(sequence, out):  # type: ignore[no-untyped-def]
    """Fills `out` with the hashes of the paths that ended; how many."""
    n = depth = 0
    last, hashes = np.full(DEEPEST, _NEW, np.int64), np.zeros(DEEPEST, np.int64)
    method, whole = np.zeros(DEEPEST, np.int64), np.zeros(DEEPEST, np.bool_)
    for k in range(len(sequence)):
        x = sequence[k]
        if x >= 0:
            d = min(max(depth, 1), DEEPEST) - 1
            m, bci = x >> BITS, x & ((1 << BITS) - 1)
            if depth == 0 or (last[d] != _NEW and method[d] != m):  # a frame of which the beginning was not seen
                depth = max(depth, 1)
                whole[d], last[d], method[d] = False, bci, m
                continue
            if last[d] == _NEW or last[d] >= bci:
                if last[d] != _NEW and whole[d]:
                    out[n] = hashes[d]
                    n += 1
                whole[d], method[d], hashes[d] = True, m, m
            hashes[d] = hashes[d] * np.int64(FACTOR) + bci + 1
            last[d] = bci
        elif x == _ENTER or x == _UPCALL or x == SEEN_UPCALL:
            if depth < DEEPEST:
                last[depth] = _NEW if x == _ENTER else _BOUNDARY
            depth += 1
        elif x == _RETURN or x == _UNWIND or x == _OSR:
            if depth > 0:
                depth -= 1
                if depth < DEEPEST and last[depth] >= 0 and whole[depth] and x != _OSR:
                    out[n] = hashes[depth]
                    n += 1
        elif x == _UPRETURN:
            found = False
            while depth > 0 and not found:
                depth -= 1
                if depth < DEEPEST and last[depth] >= 0 and whole[depth]:
                    out[n] = hashes[depth]
                    n += 1
                found = depth < DEEPEST and last[depth] == _BOUNDARY
        elif x == _LOST:
            depth = 0
    return n


def paths(sequence: I64) -> tuple[I64, I64]:
    """Of (n,) bytecodes with events: (p,) paths, ascending, (p,) how often each ran."""
    out = np.zeros(2 * len(sequence) + 1, np.int64)
    return np.unique(out[: int(_paths(sequence, out))], return_counts=True)


def overlap(one: tuple[I64, I64], other: tuple[I64, I64]) -> float:
    """The part of the frequencies, in shares of all, that is the same: Σ min."""
    _, x, y = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    p, q = one[1] / max(one[1].sum(), 1), other[1] / max(other[1].sum(), 1)
    return float(np.minimum(p[x], q[y]).sum())


class Coverage(NamedTuple):
    precision: float  # of the bytecodes that are said to have run, those that did
    recall: float  # of those that ran


def coverage(truth: I64, found: I64) -> Coverage:
    ran, said = np.unique(truth[truth >= 0]), np.unique(found[found >= 0])
    both = len(np.intersect1d(ran, said, assume_unique=True))
    return Coverage(both / max(len(said), 1), both / max(len(ran), 1))

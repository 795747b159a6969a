"""The sliding window: the steps that a process's threads took last, and where each sequence of them came before.

A *step* is a block and the way it was left, WAYS · block + way. The steps of all threads stand in one ring, in the
order in which they became known; a position counts from the first step ever, and is in the window until the ring has
come round. A thread's row that does not lie directly behind its row before is tied to it by two *ties*, cells that hold
no step and lead to each other. A run ends with an open tie. Cells without a tie between them are a *stretch*; where
stretches begin stands in a ring of its own, so that whole ones are passed at once.

For each of a few lengths, the places at which the same sequence of that length ends are chained (by its hash), in
both directions: from one of them a reader steps from place to place, the nearest first, without a search. The window is
written by `stages.recover.append`; places in it are compared by `stages.recover.shared`.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, near
from stages.messages.paths import Way

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
WAYS = len(Way)
LENGTHS = (3, 32, 512)
"""Of the sequences that are chained. The first is the anchor: no candidate shares less with the hole's beginning."""
LONGEST = LENGTHS[-1]
TIE_BACK, TIE_ON = -1, -2
"""In place of a step: the run goes on from another place; it goes on at another place. `back[0]`: how far away."""
STRETCH = 8
"""Cells to a stretch for which there is room."""
CELL_BYTES = 4 + 4 + 8 + 8 * len(LENGTHS) + 4 * len(LENGTHS) + 8 // STRETCH
"""A step, its size, its prefix's hash, its chains, and its part of the heads and of the stretches."""
FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
"""Of the hashes of sequences: of each step's power in them."""

_LEVELS = len(LENGTHS)


class Window(NamedTuple):
    """Of one process. Dropped with its generation."""

    steps: I32  # (capacity,), a power of two
    sizes: I32  # (capacity,) of what the thread took up to here, in units of `trace_size`, as its low 32 bits
    hashes: I64  # (capacity,) of all steps that the thread took up to here: `prefix`
    back: I32  # (lengths, capacity) how far back the same sequence ended before; 0: not in the window
    ahead: I32  # … how far ahead it ended next; 0: not yet
    head: I64  # (lengths, capacity / 2) by hash: the position behind its last place; 0: none
    stretches: I64  # (capacity / STRETCH,) a ring: where cells without a tie between them begin, with a tie
    size: I64  # (2,) positions ever given out, stretches ever begun


def empty(size_bytes: int) -> Window:
    """A window of at most `size_bytes`."""
    capacity = 1 << max(10, (size_bytes // CELL_BYTES).bit_length() - 1)
    chains = np.zeros((2, _LEVELS, capacity), np.int32)
    return Window(
        np.zeros(capacity, np.int32), np.zeros(capacity, np.int32), np.zeros(capacity, np.int64), chains[0], chains[1],
        np.zeros((_LEVELS, capacity // 2), np.int64), np.zeros(capacity // STRETCH, np.int64), np.zeros(2, np.int64),
    )  # fmt: skip


@near
def oldest(w):  # type: ignore[no-untyped-def]
    """The first position that is still in the window."""
    return max(0, w.size[0] - len(w.steps))


@near
def before(w, p):  # type: ignore[no-untyped-def]
    """The position of the step before that at `p`, in its run; −1: it is not in the window."""
    mask = len(w.steps) - 1
    p -= 1
    low = oldest(w)
    while p >= low and w.steps[p & mask] < 0:
        if w.steps[p & mask] == TIE_ON or w.back[0, p & mask] == 0:
            return -1
        p -= w.back[0, p & mask] + 1
    return p if p >= low else -1


@near
def behind(w, p):  # type: ignore[no-untyped-def]
    """The position of the step behind that at `p`, in its run; −1: there is none, or not yet."""
    mask = len(w.steps) - 1
    p += 1
    while p < w.size[0] and w.steps[p & mask] < 0:
        if w.steps[p & mask] == TIE_BACK or w.back[0, p & mask] == 0:
            return -1
        p += w.back[0, p & mask] + 1
    return p if p < w.size[0] else -1


@near
def size_between(w, p, q):  # type: ignore[no-untyped-def]
    """The size of what a thread took behind the step at `p` up to that at `q`."""
    mask = len(w.steps) - 1
    return np.int64(np.int32(w.sizes[q & mask] - w.sizes[p & mask]))


@near
def stretch(w, p):  # type: ignore[no-untyped-def]
    """The first and the last step of the stretch in which `p` is, the cell before the first in the window; −1: where it
    begins is not known any more."""
    count, room = w.size[1], len(w.stretches)
    low, high = max(0, count - room), count  # the first stretch that begins behind p
    oldest_known = low
    while low < high:
        middle = (low + high) // 2
        if w.stretches[middle % room] > p:
            high = middle
        else:
            low = middle + 1
    if low == oldest_known:
        return -1, -1
    first = max(w.stretches[(low - 1) % room], oldest(w)) + 1
    if low < count:
        return first, w.stretches[low % room] - 2
    return first, w.size[0] - 1 - (w.steps[(w.size[0] - 1) & (len(w.steps) - 1)] < 0)


@inner
def onward(w, p, size):  # type: ignore[no-untyped-def]
    """The first step in the run of `p` by which its thread took `size` more, and how many steps on that is; −1: not in
    the window. Whole stretches are passed at once."""
    start, steps = p, 0
    while p >= 0:
        _, last = stretch(w, p)
        if last < 0:
            return -1, steps
        if size_between(w, start, last) >= size:
            low, high = p, last
            while low < high:
                middle = (low + high) // 2
                if size_between(w, start, middle) >= size:
                    high = middle
                else:
                    low = middle + 1
            return low, steps + low - p
        steps += last - p + 1
        p = behind(w, last)
    return -1, steps


@inner
def back(w, p, size):  # type: ignore[no-untyped-def]
    """The last step in the run of `p` since which its thread took `size`, and how many steps back that is; −1: not in
    the window."""
    start, steps = p, 0
    while p >= 0:
        first, _ = stretch(w, p)
        if first < 0 or first > p:
            return -1, steps
        if size_between(w, first, start) >= size:
            low, high = first, p
            while low < high:
                middle = (low + high + 1) // 2
                if size_between(w, middle, start) >= size:
                    low = middle
                else:
                    high = middle - 1
            return low, steps + p - low
        steps += p - first + 1
        p = before(w, first)
    return -1, steps


@inner
def steps_on(w, p, n):  # type: ignore[no-untyped-def]
    """The position of the step `n` steps behind that at `p` in its run; −1: there is none, or not yet."""
    while p >= 0:
        _, last = stretch(w, p)
        if last < 0:
            return -1
        if p + n <= last:
            return p + n
        n -= last - p + 1
        p = behind(w, last)
    return -1


@inner
def steps_back(w, p, n):  # type: ignore[no-untyped-def]
    """The position of the step `n` steps before that at `p` in its run; −1: it is not in the window."""
    while p >= 0:
        first, _ = stretch(w, p)
        if first < 0 or first > p:
            return -1
        if p - n >= first:
            return p - n
        n -= p - first + 1
        p = before(w, first)
    return -1

"""The sliding window: the steps that a process's threads took last, and where each sequence of them came before.

A *step* is a block and the way it was left, WAYS · block + way. The steps of all threads stand in one ring, in the
order in which they became known; a position counts from the first step ever, and is in the window until the ring has
come round. A thread's row that does not lie directly behind its row before is tied to it by two *ties*, cells that hold
no step and lead to each other. A run ends with an open tie.

For each of a few lengths, the places at which the same sequence of that length ends are chained (by its hash), in
both directions: whoever stands at one of them steps from place to place, the nearest first, without a search.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel, near
from stages.messages.paths import DISABLED, FIRST_PATH, PathKind, Way

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
WAYS = len(Way)
LENGTHS = (3, 16, 64, 256)
"""Of the sequences that are chained. The first is the anchor: no candidate shares less with the hole's beginning."""
LONGEST = LENGTHS[-1]
TIE_BACK, TIE_ON = -1, -2
"""In place of a step: the run goes on from another place; it goes on at another place. `back[0]`: how far away."""
CELL_BYTES = 4 + 8 * len(LENGTHS) + 4 * len(LENGTHS)  # a step, its chains, and its part of the heads

# A thread
TC = 5 + len(LENGTHS)
T_END, T_TSC, T_KNOWN, T_RECENT, T_STEPS, T_HASH = range(6)
"""Position of its open tie (−1: none yet); until when its last row went; steps since its run began, as far as LONGEST;
where the next goes in `recent`; all steps it took; by length, the hash of its last steps."""

# A row of a `Paths`
RC = 9
R_SLOT, R_CONTINUES, R_ORDER, R_ORDER_END, R_BROKEN, R_BROKEN_END, R_TSC, R_TSC_END, R_BYTES = range(RC)

# A row, when its steps are there
FC = 7
F_LAST, F_TSC, F_FIRST, F_STEPS, F_PACE = range(5)
"""Where it does not continue, the position of the thread's last step before it (−1: it is not in the window), and until
when the row before it went. The position of its first step. How many it took. The thread's pace before it: PACE."""
PACE = 3
P_STEPS, P_TICKS, P_BYTES = range(PACE)
"""What a thread's rows took, each FADING of the next."""
FADING = 0.75

# The row under way
AC = 6
A_ROW, A_BEGUN, A_ORDER, A_BREAK, A_LEFT, A_PATH = range(AC)

_OF_PATHS, _FIRST, _DISABLED, _WAYS = int(PathKind.OF_PATHS), FIRST_PATH, DISABLED, WAYS
_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_LENGTHS = np.array(LENGTHS, np.int64)
_POWERS = np.array([pow(_FACTOR, n, 1 << 64) for n in LENGTHS], np.uint64).view(np.int64)
_LEVELS = len(LENGTHS)


class Window(NamedTuple):
    """Of one process. Dropped with its generation."""

    steps: I32  # (capacity,), a power of two
    back: I32  # (lengths, capacity) how far back the same sequence ended before; 0: not in the window
    ahead: I32  # … how far ahead it ended next; 0: not yet
    head: I64  # (lengths, capacity / 2) by hash: the position behind its last place; 0: none
    size: I64  # (1,) positions ever given out


def empty(size_bytes: int) -> Window:
    """A window of at most `size_bytes`."""
    capacity = 1 << max(10, (size_bytes // CELL_BYTES).bit_length() - 1)
    chains = np.zeros((2, _LEVELS, capacity), np.int32)
    return Window(
        np.zeros(capacity, np.int32), chains[0], chains[1], np.zeros((_LEVELS, capacity // 2), np.int64),
        np.zeros(1, np.int64),
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
def _cell(w, value):  # type: ignore[no-untyped-def]
    """A new cell at the end; its position."""
    p = w.size[0]
    at = p & (len(w.steps) - 1)
    w.steps[at] = value
    for n in range(_LEVELS):
        w.back[n, at] = 0
        w.ahead[n, at] = 0
    w.size[0] = p + 1
    return p


@near
def _step(w, thread, recent, step):  # type: ignore[no-untyped-def]
    """Behind the thread's last step. The window must end there."""
    mask = len(w.steps) - 1
    p = _cell(w, step)
    known, at = thread[T_KNOWN], thread[T_RECENT]
    for n in range(_LEVELS):
        length = _LENGTHS[n]
        h = thread[T_HASH + n] * np.int64(_FACTOR) + step + 1
        if known >= length:
            h -= _POWERS[n] * (np.int64(recent[(at - length) & (LONGEST - 1)]) + 1)
        thread[T_HASH + n] = h
        if known + 1 >= length:
            bucket = ((h ^ (h >> 29)) * np.int64(_FACTOR) >> 20) & (len(w.head[n]) - 1)
            last = w.head[n, bucket] - 1
            w.head[n, bucket] = p + 1
            if last > p - len(w.steps) and last >= 0:
                w.back[n, p & mask] = p - last
                w.ahead[n, last & mask] = p - last
    recent[at] = step
    thread[T_RECENT] = (at + 1) & (LONGEST - 1)
    thread[T_KNOWN] = min(known + 1, LONGEST)
    thread[T_STEPS] += 1


@inner
def _begin(w, thread, continues):  # type: ignore[no-untyped-def]
    """A run of the thread begins, or goes on."""
    mask = len(w.steps) - 1
    end = thread[T_END]
    if not continues:
        thread[T_KNOWN] = thread[T_RECENT] = 0
        for n in range(_LEVELS):
            thread[T_HASH + n] = 0
    if not continues or end < oldest(w):
        _cell(w, TIE_BACK)
    elif end == w.size[0] - 1:
        w.size[0] = end  # directly behind
    else:
        p = _cell(w, TIE_BACK)
        w.back[0, p & mask] = w.back[0, end & mask] = p - end


@inner
def _steps_of(w, thread, recent, path, paths, links):  # type: ignore[no-untyped-def]
    for k in range(paths[path].link, paths[path].link + paths[path].links):
        if paths[path].kind != _OF_PATHS:
            _step(w, thread, recent, np.int64(links[k].number) * _WAYS + links[k].way)
        else:
            part = np.int64(links[k].number)
            for m in range(paths[part].link, paths[part].link + paths[part].links):
                _step(w, thread, recent, np.int64(links[m].number) * _WAYS + links[m].way)


@kernel
def add(  # type: ignore[no-untyped-def]
    w, threads, recents, paces, rows, order, confirmed, broken, paths, links, found, at, most
):  # fmt: skip
    """The steps of `rows` (R_…) from the one under way on (`at`, A_…), about `most` of them; whether all are there.
    `found`: F_… of each row, filled in. Suspect parts are left out; a break ends a run."""
    left = most
    while at[A_ROW] < len(rows):
        row, f = rows[at[A_ROW]], found[at[A_ROW]]
        slot = row[R_SLOT]
        thread, recent = threads[slot], recents[slot]
        if not at[A_BEGUN]:
            last = thread[T_END]
            f[F_LAST] = before(w, last) if not row[R_CONTINUES] and last >= oldest(w) else -1
            f[F_TSC], f[F_STEPS] = thread[T_TSC], thread[T_STEPS]
            for n in range(PACE):
                f[F_PACE + n] = np.int64(paces[slot, n])
            _begin(w, thread, row[R_CONTINUES])
            f[F_FIRST] = w.size[0]
            at[A_ORDER], at[A_BREAK], at[A_LEFT], at[A_BEGUN] = row[R_ORDER], row[R_BROKEN], 0, 1
        while True:
            breaks = at[A_BREAK] < row[R_BROKEN_END]
            upto = confirmed[at[A_BREAK]] if breaks else row[R_ORDER_END]
            while left > 0 and (at[A_LEFT] > 0 or at[A_ORDER] < upto):
                if at[A_LEFT] > 0:
                    at[A_LEFT] -= 1
                else:
                    x = np.int64(order[at[A_ORDER]])
                    at[A_ORDER] += 1
                    if x < 0:
                        at[A_LEFT] = -x
                        continue
                    at[A_PATH] = x
                if at[A_PATH] >= _FIRST:
                    steps = thread[T_STEPS]
                    _steps_of(w, thread, recent, at[A_PATH], paths, links)
                    left -= 1 + thread[T_STEPS] - steps
            if left <= 0:
                return False
            if not breaks:
                break
            at[A_ORDER] = max(at[A_ORDER], broken[at[A_BREAK]])
            at[A_BREAK] += 1
            thread[T_END] = _cell(w, TIE_ON)
            _begin(w, thread, 0)
        thread[T_END] = _cell(w, TIE_ON)
        f[F_STEPS] = thread[T_STEPS] - f[F_STEPS]
        thread[T_TSC] = row[R_TSC_END]
        paces[slot, P_STEPS] = paces[slot, P_STEPS] * FADING + f[F_STEPS]
        paces[slot, P_TICKS] = paces[slot, P_TICKS] * FADING + max(0, row[R_TSC_END] - row[R_TSC])
        paces[slot, P_BYTES] = paces[slot, P_BYTES] * FADING + row[R_BYTES]
        at[A_ROW] += 1
        at[A_BEGUN] = 0
    return True

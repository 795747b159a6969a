"""Threads' steps, written into the window."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel, near
from stages.messages.paths import FIRST_PATH, PathKind
from stages.recover.trace_size import E_CALLS, E_COST, E_TIP, EC, encode
from stages.recover.window import FACTOR, LENGTHS, LONGEST, TIE_BACK, TIE_ON, WAYS, before, oldest

# A thread
T_END, T_TSC, T_KNOWN, T_RECENT, T_STEPS, T_PREFIX, T_ENCODER = range(7)
T_HASH = T_ENCODER + EC
TC = T_HASH + len(LENGTHS)
"""Position of its open tie (−1: none yet); until when its last row went; steps since its run began, as far as LONGEST;
where the next goes in `recent`; all steps it took, and their hash; its encoder; by length, the hash of its last
steps."""

# A row of a `Paths`
RC = 9
R_SLOT, R_CONTINUES, R_ORDER, R_ORDER_END, R_BROKEN, R_BROKEN_END, R_TSC, R_TSC_END, R_BYTES = range(RC)

# A row, when its steps are there
PACE = 3
P_SIZE, P_TICKS, P_BYTES = range(PACE)
"""Sums over a thread's rows, each FADING of the next: their size, time and bytes."""
FADING = 0.75
F_LAST, F_TSC, F_FIRST, F_STEPS, F_SIZE, F_PACE = range(6)
FC = F_PACE + PACE
"""Where it does not continue, the position of the thread's last step before it (−1: it is not in the window), and until
when the row before it went. The position of its first step. How many it took, and of what size. The thread's pace
before it: PACE."""

# The row under way
AC = 6
A_ROW, A_BEGUN, A_ORDER, A_BREAK, A_LEFT, A_PATH = range(AC)
_OF_PATHS, _FIRST, _WAYS = int(PathKind.OF_PATHS), FIRST_PATH, WAYS
_FACTOR = FACTOR
_LENGTHS = np.array(LENGTHS, np.int64)
_POWERS = np.array([pow(FACTOR, n, 1 << 64) for n in LENGTHS], np.uint64).view(np.int64)
_LEVELS = len(LENGTHS)


@near
def _cell(w, value):  # type: ignore[no-untyped-def]
    """A new cell at the end; its position."""
    p = w.size[0]
    at = p & (len(w.steps) - 1)
    w.steps[at] = value
    w.sizes[at] = 0
    for n in range(_LEVELS):
        w.back[n, at] = 0
        w.ahead[n, at] = 0
    w.size[0] = p + 1
    return p


@near
def _step(w, thread, recent, step, blocks):  # type: ignore[no-untyped-def]
    """Behind the thread's last step. The window must end there."""
    mask = len(w.steps) - 1
    p = _cell(w, step)
    thread[T_PREFIX] = thread[T_PREFIX] * np.int64(_FACTOR) + step + 1
    w.hashes[p & mask] = thread[T_PREFIX]
    w.sizes[p & mask] = encode(thread[T_ENCODER:T_HASH], blocks, step)
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
        thread[T_ENCODER + E_CALLS] = thread[T_ENCODER + E_TIP] = 0
        for n in range(_LEVELS):
            thread[T_HASH + n] = 0
    if continues and end >= oldest(w) and end == w.size[0] - 1:
        w.size[0] = end  # directly behind
        return
    p = _cell(w, TIE_BACK)
    w.hashes[p & mask] = thread[T_PREFIX]
    w.stretches[w.size[1] % len(w.stretches)] = p
    w.size[1] += 1
    if continues and end >= oldest(w):
        w.back[0, p & mask] = w.back[0, end & mask] = p - end


@inner
def _steps_of(w, thread, recent, path, blocks, paths, links):  # type: ignore[no-untyped-def]
    for k in range(paths[path].link, paths[path].link + paths[path].links):
        if paths[path].kind != _OF_PATHS:
            _step(w, thread, recent, np.int64(links[k].number) * _WAYS + links[k].way, blocks)
        else:
            part = np.int64(links[k].number)
            for m in range(paths[part].link, paths[part].link + paths[part].links):
                _step(w, thread, recent, np.int64(links[m].number) * _WAYS + links[m].way, blocks)


@kernel
def add(  # type: ignore[no-untyped-def]
    w, threads, recents, paces, rows, order, confirmed, broken, blocks, paths, links, found, at, most
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
            f[F_TSC], f[F_STEPS], f[F_SIZE] = thread[T_TSC], thread[T_STEPS], thread[T_ENCODER + E_COST]
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
                    _steps_of(w, thread, recent, at[A_PATH], blocks, paths, links)
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
        f[F_SIZE] = thread[T_ENCODER + E_COST] - f[F_SIZE]
        thread[T_TSC] = row[R_TSC_END]
        paces[slot, P_SIZE] = paces[slot, P_SIZE] * FADING + f[F_SIZE]
        paces[slot, P_TICKS] = paces[slot, P_TICKS] * FADING + max(0, row[R_TSC_END] - row[R_TSC])
        paces[slot, P_BYTES] = paces[slot, P_BYTES] * FADING + row[R_BYTES]
        at[A_ROW] += 1
        at[A_BEGUN] = 0
    return True

"""Classes of the calls inlined in an nmethod: calls that the bytecode makes equally often.

Calls that it reaches without a condition run as often as their caller (ALWAYS) or as a round of their loop (ROUND);
those behind a condition as often as that holds (BEHIND). Of the methods that one virtual call leads to, each is a class
of its own (CHOSEN: stages.inlining.receivers). A place is a position in the inline tree: the callers with
their bcis, and the method.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.counts import JUMP, LEAVE
from jvm.kernels import inner, kernel

ALWAYS, ROUND, BEHIND, CHOSEN = 0, 1, 2, 3  # kinds of classes: like the caller's, a loop's, a condition's, a receiver's
_FAR_AWAY = np.int64(1 << 30)

# columns of a class
C_KIND, C_FRAME, C_LO, C_HI, C_MIN, C_KEY, C_END, C_OWN, CC = range(9)


@kernel
def places(frame_at, method, bci, key):  # type: ignore[no-untyped-def]
    """Of each frame, a number for its place in the inline tree: the callers with their bcis, and the method."""
    for i in range(len(frame_at) - 1):
        above = np.uint64(0)
        for f in range(frame_at[i + 1] - 1, frame_at[i] - 1, -1):
            above = (above ^ np.uint64(method[f])) * np.uint64(0x9E3779B97F4A7C15)
            above ^= above >> np.uint64(29)
            key[f] = above
            above = (above + np.uint64(np.int64(bci[f]) + 2)) * np.uint64(0xBF58476D1CE4E5B9)
            above ^= above >> np.uint64(32)


@inner
def bytecode_loop(steps, lo, hi, bci):  # type: ignore[no-untyped-def]
    """(first, last) bci of the innermost loop around `bci`; (−1, −1): none."""
    first, last = np.int64(-1), np.int64(-1)
    for k in range(lo, hi):
        to, at = np.int64(steps[k, 2]), np.int64(steps[k, 0])
        if steps[k, 1] == JUMP and to <= bci <= at and (first < 0 or at - to < last - first):
            first, last = to, at
    return first, last


@inner
def _condition(steps, lo, hi, bci, first, last):  # type: ignore[no-untyped-def]
    """The last bytecode between `first` and `bci` by which `bci` may be passed over; −1: none. In a loop (`last` ≥ 0)
    the ways out of it are none."""
    found = np.int64(-1)
    for k in range(lo, hi):
        at, to = np.int64(steps[k, 0]), np.int64(steps[k, 2])
        over = steps[k, 1] == JUMP and to > bci and (last < 0 or to <= last)
        if first <= at < bci and (over or (steps[k, 1] == LEAVE and last < 0)):
            found = max(found, at)
    return found


@inner
def _way_out(steps, lo, hi, bci, first, last):  # type: ignore[no-untyped-def]
    """The last bytecode of the loop between `first` and `bci` by which it may be left; −1: none."""
    found = np.int64(-1)
    for k in range(lo, hi):
        at = np.int64(steps[k, 0])
        if first <= at < bci and (steps[k, 1] == LEAVE or (steps[k, 1] == JUMP and steps[k, 2] > last)):
            found = max(found, at)
    return found


@inner
def classes_of(  # type: ignore[no-untyped-def]
    up, up_bci, depth, method_of, steps, step_at, osr, chosen, calls, cls, class_of
):  # fmt: skip
    """The classes, and which one each place of the inline tree belongs to. Class 0 is that of the nmethod itself.
    `chosen`: of each place, whether it is CHOSEN. Places from `calls` on are stretches of bytecode; they have classes
    of their own, for a class is open from its first place on."""
    cls[0, C_KIND], cls[0, C_FRAME], cls[0, C_LO], cls[0, C_HI], cls[0, C_MIN] = ALWAYS, -1, 0, -1, _FAR_AWAY
    count = 1
    deepest = depth.max()
    for level in range(deepest + 1):
        for p in range(len(up)):
            if depth[p] != level:
                continue
            f = up[p]
            if f < 0:
                class_of[p] = 0
                continue
            b = np.int64(up_bci[p])
            if chosen[p]:
                cls[count, C_KIND], cls[count, C_FRAME], cls[count, C_LO], cls[count, C_HI] = CHOSEN, f, -1, -1
                cls[count, C_MIN], cls[count, C_KEY] = b, -1
                class_of[p] = count
                count += 1
                continue
            lo, hi = step_at[method_of[f], 0], step_at[method_of[f], 1]
            kind, key, first, last = np.int64(ALWAYS), np.int64(-1), np.int64(-1), np.int64(-1)
            if hi < lo or b < 0:  # its bytecode is not known
                kind, key = np.int64(BEHIND), b
            else:
                first, last = bytecode_loop(steps, lo, hi, b)
                key = _condition(steps, lo, hi, b, max(first, 0), last)
                kind = np.int64(BEHIND if key >= 0 else ROUND if first >= 0 else ALWAYS)
                if kind == ROUND:
                    key = _way_out(steps, lo, hi, b, first, last)
                if kind == ALWAYS and f >= 0 and up[f] < 0 and osr:
                    kind, key = np.int64(BEHIND), b  # it was entered in the middle
            if kind == ALWAYS:
                class_of[p] = class_of[f]
                c = class_of[f]
                continue
            c = -1
            for k in range(1, count):
                if cls[k, C_FRAME] == f and cls[k, C_KIND] == kind and cls[k, C_OWN] == (p >= calls):
                    same = cls[k, C_LO] == first and cls[k, C_HI] == last
                    if cls[k, C_KEY] == key and (kind == BEHIND or same):
                        c = k
            if c < 0:
                c = count
                count += 1
                cls[c, C_KIND], cls[c, C_FRAME], cls[c, C_LO], cls[c, C_HI] = kind, f, first, last
                cls[c, C_MIN], cls[c, C_KEY], cls[c, C_OWN] = b, key, p >= calls
            cls[c, C_MIN] = min(cls[c, C_MIN], b)
            class_of[p] = c
    for c in range(1, count):  # how far the code behind the first call runs as often as that
        m, end = method_of[cls[c, C_FRAME]], cls[c, C_HI] if cls[c, C_KIND] == ROUND else _FAR_AWAY
        for k in range(step_at[m, 0], step_at[m, 1]):
            at, to = np.int64(steps[k, 0]), np.int64(steps[k, 2])
            if steps[k, 1] == JUMP and to > cls[c, C_MIN]:
                end = min(end, to - 1)
            if (steps[k, 1] == JUMP or steps[k, 1] == LEAVE) and at >= cls[c, C_MIN]:
                end = min(end, at)
        cls[c, C_END] = end if cls[c, C_KIND] != CHOSEN else -1  # what is behind the call is behind all of them
    return count

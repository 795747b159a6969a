"""The dependents of a byte of code, to be forgotten when it changes: lists from code to blocks, and from blocks to the
TNT path cache.

Code is divided into lines of 256 bytes, each with a list of the blocks over it; a block has a list of the TNT path
cache's keys whose path it is on, or to which it leads. So the cost of a change grows with its dependents, and not with
all code that is known. A block over very many lines is in one list that is always searched, a block that ends where no
code is known in a list for the day on which there is some.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner, kernel
from stages.follow.cfg.graph import (
    BL,
    BL_CACHED,
    BL_KIND,
    BL_RANGE,
    BL_RANGES,
    DEAD,
    G_EPOCH,
    G_LINE_MASK,
    G_LINES,
    G_LINKS,
    G_LONG,
    G_OFF,
    G_TNT_CACHE_MASK,
    OFF,
    OUTSIDE,
    STUCK,
    TC,
    TC_FLAGS,
    TC_KEY,
    blob_of,
    raw_tables,
    scatter,
)
from stages.pointers import (
    page,
    within,
)

LINE = 8  # bits of an address within a line
LINES = 64  # a block over more is "long"
LONGEST = 15  # bytes of an instruction
F_STALE = 8  # of a slot of the TNT path cache: as good as absent


@inner
def slot_of(key):  # type: ignore[no-untyped-def]
    """Where in the TNT path cache the search for `key` begins; the caller masks."""
    h = key * 0x9E3779B1
    return (h >> 15) ^ (h >> 28)


@inner
def link(t, head, value):  # type: ignore[no-untyped-def]
    """The list `head` with `value` before it. The caller made sure of the room."""
    n = t.g[G_LINKS]
    t.g[G_LINKS] = n + 1
    t.link[2 * n] = value
    t.link[2 * n + 1] = head
    return n


@inner
def _line(t, line):  # type: ignore[no-untyped-def]
    """Where in `by_line` it is, or would be."""
    mask = t.g[G_LINE_MASK]
    i = scatter(line) & mask
    while t.by_line[2 * i + 1] != 0 and t.by_line[2 * i] != line:
        i = (i + 1) & mask
    return i


@inner
def _lines(lo, hi):  # type: ignore[no-untyped-def]
    """The first line that [lo, hi) touches, and one past the last."""
    first = page(lo, LINE)
    return first, page(hi - 1, LINE) + 1 if lo != hi else first


@inner
def _touch(lo, hi, begin, end):  # type: ignore[no-untyped-def]
    """Whether [lo, hi) and [begin, end) do."""
    return within(lo, begin, hi) or within(begin, lo, end)


@inner
def _over(t, s, lo, hi):  # type: ignore[no-untyped-def]
    begin, end = _lines(lo, hi)
    for line in range(begin, end):
        i = _line(t, line)
        head = t.by_line[2 * i + 1]
        if head == 0:
            t.g[G_LINES] += 1
            t.by_line[2 * i] = line
        elif t.link[2 * head] == s:
            continue
        t.by_line[2 * i + 1] = link(t, head, s)


@inner
def _at_no_instruction(t, s):  # type: ignore[no-untyped-def]
    """Whether it ended on bytes that are none, or are only the beginning of one."""
    kind = t.block[s * BL + BL_KIND]
    return kind == STUCK or ((kind == OFF or kind == OUTSIDE) and blob_of(t, t.last[s]) >= 0)


@inner
def note(t, s):  # type: ignore[no-untyped-def]
    """Enter a block that has just been walked."""
    g = t.g
    first = np.int64(t.block[s * BL + BL_RANGE])
    count = np.int64(t.block[s * BL + BL_RANGES])
    lines = np.int64(0)
    for n in range(first, first + count):
        begin, end = _lines(t.ranges[3 * n], t.ranges[3 * n + 1])
        lines += end - begin
    if lines > LINES:
        g[G_LONG] = link(t, g[G_LONG], s)
    else:
        for n in range(first, first + count):
            _over(t, s, t.ranges[3 * n], t.ranges[3 * n + 1])
    kind = t.block[s * BL + BL_KIND]
    if kind == OFF or kind == OUTSIDE:
        g[G_OFF] = link(t, g[G_OFF], s)
    if _at_no_instruction(t, s):
        _over(t, s, t.last[s], t.last[s] + LONGEST)


@inner
def _kill(t, s):  # type: ignore[no-untyped-def]
    t.block[s * BL + BL_KIND] = DEAD
    mask = t.g[G_TNT_CACHE_MASK]
    n = np.int64(t.block[s * BL + BL_CACHED])
    while n:
        key = np.int64(t.link[2 * n])
        i = slot_of(key) & mask
        while t.tnt_cache[TC * i + TC_KEY] != key:
            i = (i + 1) & mask
        t.tnt_cache[TC * i + TC_FLAGS] |= F_STALE
        n = np.int64(t.link[2 * n + 1])


@inner
def _hit(t, s, lo, hi):  # type: ignore[no-untyped-def]
    """Whether block `s` depends on a byte of [lo, hi)."""
    r = s * BL
    if _touch(lo, hi, t.last[s], t.last[s] + LONGEST) and _at_no_instruction(t, s):
        return True
    first = np.int64(t.block[r + BL_RANGE])
    for n in range(first, first + t.block[r + BL_RANGES]):
        if _touch(lo, hi, t.ranges[3 * n], t.ranges[3 * n + 1]):
            return True
    return False


@inner
def _sweep(t, head, lo, hi):  # type: ignore[no-untyped-def]
    """Kill the blocks of a list that depend on [lo, hi); how many there were. The dead leave the list, but for its
    head."""
    dead = 0
    before, n = np.int64(0), head
    while n:
        s = np.int64(t.link[2 * n])
        after = np.int64(t.link[2 * n + 1])
        gone = t.block[s * BL + BL_KIND] == DEAD
        if not gone and _hit(t, s, lo, hi):
            _kill(t, s)
            dead += 1
            gone = True
        if gone and before:
            t.link[2 * before + 1] = after
        else:
            before = n
        n = after
    return dead


@kernel
def invalidate(where, lo, hi, grown):  # type: ignore[no-untyped-def]
    """Forget all that depends on code in any of the intervals [lo[k], hi[k]); how many blocks died.

    `grown`: there is code where none was, so that blocks that ended for want of it die too. `where`: `Tables.raw()`.
    """
    t = raw_tables(where)
    dead = np.int64(0)
    for k in range(len(lo)):
        dead += _sweep(t, t.g[G_LONG], lo[k], hi[k])
        begin, end = _lines(lo[k], hi[k])
        for line in range(begin, end):
            dead += _sweep(t, t.by_line[2 * _line(t, line) + 1], lo[k], hi[k])
    if grown:
        n, kept = t.g[G_OFF], np.int64(0)
        while n:
            s = np.int64(t.link[2 * n])
            after = np.int64(t.link[2 * n + 1])
            if t.block[s * BL + BL_KIND] != DEAD and blob_of(t, t.last[s]) >= 0:
                _kill(t, s)
                dead += 1
            if t.block[s * BL + BL_KIND] != DEAD:
                t.link[2 * n + 1] = kept
                kept = n
            n = after
        t.g[G_OFF] = kept
    if dead:
        t.g[G_EPOCH] = (t.g[G_EPOCH] + 1) & 0x7FFFFFFF
    return dead

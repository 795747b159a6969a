"""Paths that stay inside of the interpreter, in the frame on top: most of those between two events.

Whether a path does is the path's alone, whatever the stack is, so it is found once a path, and its counts are the
frame's without a step of its own: else there would be one for each stack.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import apart, inner
from stages.cct.activations import class_of
from stages.cct.nodes import note
from stages.cct.tables import (
    B_ENDS,
    B_ITEM,
    B_ITEMS,
    B_WAYS,
    BC,
    BEHIND,
    BY_PATH,
    BYTECODES,
    CERTAINTIES,
    COUNTS,
    FN_INTERPRETER,
    I_BYTECODES,
    I_FLAGS,
    I_FN,
    I_INLINED,
    I_INLINED_END,
    I_INVOCATIONS,
    IC,
    INSIDE,
    INTERPRETER,
    ITEM_CALLS,
    JUMPED,
    KINDS,
    WENT,
    X_LINK,
    X_LINKS,
    XC,
)
from stages.messages.paths import FIRST_PATH, BlockEnd, PathKind

_OF_PATHS = int(PathKind.OF_PATHS)
_RETURN, _INDIRECT, _FILTER = int(BlockEnd.RETURN), int(BlockEnd.INDIRECT), int(BlockEnd.FILTER)
OUT, WITHIN = 1, 2
"""Of a path: it leaves the interpreter; and on: it stays in it, and its last block did the rest."""


@apart
def look_inside(c, x):  # type: ignore[no-untyped-def]
    """Whether all blocks of path `x` are the interpreter's alone, which then goes on in the frame in which it was: in
    BY_PATH, WITHIN and what the last block did, or OUT; and its bytecodes."""
    if c.path[XC * x + X_LINKS] >> KINDS != _OF_PATHS:
        return _look_along(c, x)
    bytecodes, within, begin, end = np.int64(0), np.int64(OUT), c.path[XC * x + X_LINK], _links_end(c, x)
    for m in range(begin, end):
        part = np.int64(c.link[2 * m])
        within = np.int64(c.by_path[BY_PATH * part + INSIDE]) if part >= FIRST_PATH else np.int64(OUT)
        if within == 0:
            within = _look_along(c, part)
        if within == OUT:
            break
        bytecodes += c.by_path[BY_PATH * part + BYTECODES]
    return _seen(c, x, within, bytecodes)


@inner
def _links_end(c, x):  # type: ignore[no-untyped-def]
    return c.path[XC * x + X_LINK] + (c.path[XC * x + X_LINKS] & ((1 << KINDS) - 1))


@inner
def _seen(c, x, within, bytecodes):  # type: ignore[no-untyped-def]
    if bytecodes >= 1 << 31:
        within = np.int64(OUT)
    c.by_path[BY_PATH * x + INSIDE], c.by_path[BY_PATH * x + BYTECODES] = within, bytecodes if within != OUT else 0
    return within


@inner
def _look_along(c, x):  # type: ignore[no-untyped-def]
    """`look_inside` of a path of blocks."""
    bytecodes, within = np.int64(0), np.int64(OUT)
    for m in range(c.path[XC * x + X_LINK], _links_end(c, x)):
        within, more = _in_block(c, np.int64(c.link[2 * m]), np.int64(c.link[2 * m + 1]))
        if within == OUT:
            break
        bytecodes += more
    return _seen(c, x, within, bytecodes)


@inner
def _in_block(c, b, way):  # type: ignore[no-untyped-def]
    """Of a block, its branch left that way: as `look_inside`, and bytecodes."""
    row, bytecodes = BC * b, np.int64(0)
    ends = c.block[row + B_ENDS]
    if ends == _RETURN:
        return np.int64(OUT), bytecodes
    for k in range(c.block[row + B_ITEM], c.block[row + B_ITEM] + c.block[row + B_ITEMS]):
        item = IC * k
        if c.item[item + I_FN] != INTERPRETER or c.item[item + I_FLAGS] & ITEM_CALLS or c.item[item + I_INVOCATIONS]:
            return np.int64(OUT), bytecodes
        if c.item[item + I_INLINED] != c.item[item + I_INLINED_END]:
            return np.int64(OUT), bytecodes
        bytecodes += c.item[item + I_BYTECODES]
    if way > 0 and c.block[row + B_WAYS + 2 * way - 2] != c.block[row + B_WAYS + 2 * way - 1]:
        return np.int64(OUT), bytecodes
    jumps = ends == _INDIRECT or ends == _FILTER
    return np.int64(WITHIN + (JUMPED if jumps else WENT)), bytecodes


@inner
def stays(t, c, state):  # type: ignore[no-untyped-def]
    """Whether a thread in this state stays in its frame on such a path (`contexts.arrive`)."""
    behind = state & ((1 << BEHIND) - 1)
    return (behind == WENT or behind == JUMPED) and class_of(t, c, state >> BEHIND) == FN_INTERPRETER


@inner
def stayed(t, n, sure, instructions, bytecodes, ticks):  # type: ignore[no-untyped-def]
    """Counts at node `n`."""
    note(t, n)
    row = COUNTS * (CERTAINTIES * n + sure)
    t.counts[row + 1] += instructions
    t.counts[row + 2] += bytecodes
    t.spent[CERTAINTIES * n + sure] += ticks

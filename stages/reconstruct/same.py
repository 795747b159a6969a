"""Candidates of a search that have the same frame on top, above different ones: as methods with the same code that call
the same. Which of them called will not be known before it returns, but what runs is."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import apart, near
from stages.reconstruct.candidates import COUNT, pushed
from stages.reconstruct.state import BACK_SEVERAL, EMPTY, UNKNOWN

COMPARED = 64
DEEPEST = 256


@near
def one_on_top(s):  # type: ignore[no-untyped-def]
    same = s.at[COUNT] <= COMPARED and s.front.node[0] >= 0
    for i in range(1, s.at[COUNT]):
        if not same:
            break
        same = s.front.node[i] == s.front.node[0]
    return same


@near
def _at(s, cell, depth):  # type: ignore[no-untyped-def]
    for _ in range(depth):
        if cell == EMPTY:
            break
        cell = np.int64(s.cells.below[cell])
    return np.int64(cell)


@apart
def _same(s, depth):  # type: ignore[no-untyped-def]
    """Whether all candidates have the same cell at that depth, and whether they have frames there that are the same."""
    first = _at(s, np.int64(s.front.cell[0]), depth)
    cells, frames = True, first != EMPTY
    for i in range(1, s.at[COUNT]):
        cell = _at(s, np.int64(s.front.cell[i]), depth)
        cells = cells and cell == first
        frames = frames and cell != EMPTY and s.cells.node[cell] == s.cells.node[first]
    return cells, frames


@apart
def unite(s):  # type: ignore[no-untyped-def]
    """One candidate of all: where they differ there is a frame of a method that is not known, and below it what they
    have in common behind that, or nothing that is known."""
    depth = 0
    cells, frames = _same(s, depth)
    while not cells and frames and depth < DEEPEST:
        depth += 1
        cells, frames = _same(s, depth)
    cell = np.int64(EMPTY)
    if cells:
        cell = _at(s, np.int64(s.front.cell[0]), depth)
    else:
        if _same(s, depth + 1)[0]:
            cell = _at(s, np.int64(s.front.cell[0]), depth + 1)
        cell = pushed(s, UNKNOWN, cell)
    for k in range(depth - 1, -1, -1):
        cell = pushed(s, np.int64(s.cells.node[_at(s, np.int64(s.front.cell[0]), k)]), cell)
    event = s.next.event[0]
    for i in range(1, s.at[COUNT]):
        if s.next.event[i] != event:
            event = 0
    s.front.cell[0], s.at[COUNT], s.next.back[0], s.next.event[0] = cell, 1, BACK_SEVERAL, event

"""A pane as messages: which bytecodes of each method ran, and the paths that were taken most often."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.messages.statements import STATEMENT_DTYPE, WAY_DTYPE, StatementReport
from stages.paths.dictionary import spans
from stages.statements.coverage import conclude
from stages.statements.methods import Known
from stages.statements.statements import Pane
from stages.statements.ways import way

I64 = NDArray[np.int64]
Bits = NDArray[np.bool_]
METHODS = 1 << 12
"""Of a report; a pane with more has several."""
PATHS = 256
"""Of a pane, those taken most often; others are summed."""
WAYS = 1 << 12
"""Texts of paths that are remembered."""


class Reporter:
    """Of one `Known`. Texts of paths are dropped when there are too many."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._ways: dict[tuple[int, int], str] = {}

    def reports(self, of: tuple[str, int, int, int], pane: Pane) -> Iterator[StatementReport | None]:
        """`of`: host, pid, worker, number of the pane. None between two steps."""
        known = self._known
        times, seen = pane.columns(known.nodes)
        seen |= times > 0
        c, ran = known.conclusions(), seen.copy()
        conclude(ran, c.above, c.after)
        hit = np.zeros(int(c.lines[-1]), np.bool_)
        hit[c.line[ran & (c.line >= 0)]] = True
        yield None
        paths, other = _most(pane.paths())
        # a path may end in a pane in which nothing ran on it: with the return behind its last bytecode
        places = np.unique(np.append(np.searchsorted(c.nodes, np.flatnonzero(seen), "right") - 1, paths[:, 0]))
        for k in range(0, len(places), METHODS):
            mine = places[k : k + METHODS]
            rows = np.zeros(len(mine), STATEMENT_DTYPE)
            rows["bytecodes"], rows["lines"] = c.nodes[mine + 1] - c.nodes[mine], c.lines[mine + 1] - c.lines[mine]
            taken = paths[np.isin(paths[:, 0], mine)]
            ways = list[str]()
            for place, number, _ in taken.tolist():
                ways.append(self._way(place, number))
                yield None
            seen_, ran_ = (_packed(bits, c.nodes[mine], c.nodes[mine + 1]) for bits in (seen, ran))
            yield StatementReport(
                *of, rows, tuple(known.methods[place].selector for place in mine.tolist()), seen_, ran_,
                _packed(hit, c.lines[mine], c.lines[mine + 1]), c.number[_runs(c.lines, mine)].astype(np.uint16),
                self._paths(taken, mine), tuple(ways), 0 if k else other,
            )  # fmt: skip

    def _paths(self, taken: I64, places: I64) -> NDArray[np.void]:
        rows = np.zeros(len(taken), WAY_DTYPE)
        rows["method"], rows["number"], rows["times"] = np.searchsorted(places, taken[:, 0]), taken[:, 1], taken[:, 2]
        numberings = (self._known.methods[place].numbering for place in taken[:, 0].tolist())
        rows["paths"] = [n.paths if n is not None else 0 for n in numberings]
        return rows

    def _way(self, place: int, number: int) -> str:
        if (place, number) not in self._ways:
            if len(self._ways) >= WAYS:
                self._ways.clear()
            self._ways[place, number] = way(self._known.methods[place], number)
        return self._ways[place, number]


def _most(paths: I64) -> tuple[I64, int]:
    """(k, 3) place, number and times of those that are told, and how often the others were taken."""
    order = np.argsort(-paths[:, 2], kind="stable")
    return paths[order[:PATHS]], int(paths[order[PATHS:], 2].sum())


def _runs(bounds: I64, places: I64) -> I64:
    """The rows of these places, one place behind the other."""
    return spans(bounds[places], bounds[places + 1] - bounds[places])[0]


def _packed(bits: Bits, first: I64, end: I64) -> NDArray[np.uint8]:
    """Runs [first, end) of the bits, each from a byte of its own on."""
    count = end - first
    octets = (count + 7) // 8
    begin = 8 * (np.cumsum(octets) - octets)
    at, owner = spans(first, count)
    out = np.zeros(8 * int(octets.sum()), np.bool_)
    out[begin[owner] + at - first[owner]] = bits[at]
    return np.packbits(out, bitorder="little")

"""Path frequencies of a recording."""

from __future__ import annotations

from collections.abc import Iterable

from stages.statements.statements import Executed
from stages.statements.ways import way
from streamer.statements.text import Most, Taken


def most(executed: Iterable[Executed], top: int) -> Most:
    """The paths that were taken most often."""
    rows = [(int(times), int(number), e) for e in executed for number, times in e.paths]
    rows.sort(key=lambda row: (-row[0], row[2].method.selector, row[1]))
    listed = [
        Taken(times, number, n.paths, e.method.name, way(e.method, number))
        for times, number, e in rows[:top]
        if (n := e.method.numbering) is not None
    ]
    return Most(listed, len(rows), len({id(e) for _, _, e in rows}), sum(times for times, _, _ in rows), 0)

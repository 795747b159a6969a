"""Where the blocks of threads stand in a stream: spans that were traced without a gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capture.emulator.truth import Mark, Truth


@dataclass(frozen=True, slots=True)
class Span:
    """Blocks [begin, end) of a thread, traced without a gap in the bytes [offset, stop) of a stream."""

    thread: int  # position in Truth.threads
    begin: int
    end: int
    offset: int
    stop: int
    tsc: int
    psb: NDArray[np.void]  # its marks of that kind
    cuts: NDArray[np.void]  # faults and signals


def spans(truth: Truth, stream: int) -> list[Span]:
    """The contents of a stream (by its id), in its order."""
    found: list[Span] = []
    for number, thread in enumerate(truth.threads):
        marks = thread.marks
        mine = np.flatnonzero(marks["kind"] != Mark.TIME)
        kinds = marks["kind"][mine]
        borders = mine[np.isin(kinds, (Mark.COME, Mark.GO, Mark.STOP, Mark.RESUME))]
        open_ = -1  # position of the mark at which tracing on our stream began
        offset = here = stop_at = -1
        for at in borders.tolist():
            mark = marks[at]
            kind, index = int(mark["kind"]), int(mark["index"])
            if kind == Mark.COME:
                here = int(mark["stream"])
                open_, offset = (at, int(mark["offset"])) if here == stream else (-1, -1)
            elif kind == Mark.RESUME and here == stream:
                open_, offset = at, stop_at
            elif open_ >= 0:
                found.append(_span(number, marks, open_, at, index, offset, int(mark["offset"])))
                open_ = -1
            if kind == Mark.STOP:
                stop_at = int(mark["offset"])
        if open_ >= 0:
            found.append(_span(number, marks, open_, len(marks), len(thread.ran), offset, 1 << 62))
    found = [span for span in found if span.stop > span.offset]
    return sorted(found, key=lambda span: (span.offset, span.tsc))


def _span(number: int, marks: NDArray[np.void], first: int, last: int, end: int, offset: int, stop: int) -> Span:
    inside = marks[first:last]
    if int(marks[first]["kind"]) == Mark.RESUME:  # the PSB+ with which it starts again is told before
        before = first - 1
        while int(marks[before]["kind"]) in (Mark.TIME, Mark.PSB):
            before -= 1
        inside = marks[before:last]
    psb = inside[inside["kind"] == Mark.PSB]
    cuts = inside[np.isin(inside["kind"], (Mark.PARTIAL, Mark.SIGNAL))]
    return Span(number, int(marks[first]["index"]), end, offset, stop, int(marks[first]["tsc"]), psb, cuts)

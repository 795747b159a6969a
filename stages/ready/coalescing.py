"""Pieces of a thread's trace that follow each other, as one: what is done for each piece is done less often."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from stages.messages import Segment, ThreadKey

MOST = 1 << 20
"""Bytes of joined pieces."""


def runs(segments: Iterable[Segment], slot: Callable[[Segment], object]) -> list[list[Segment]]:
    """In order of time, those together that lie behind each other in one stream and have one `slot`."""
    found: list[list[Segment]] = []
    last: dict[ThreadKey, list[Segment]] = {}
    for segment in sorted(segments, key=lambda s: s.tsc):
        run = last.get(segment.thread)
        if run is not None and _follows(run, segment) and slot(run[0]) == slot(segment):
            run.append(segment)
        else:
            run = last[segment.thread] = [segment]
            found.append(run)
    return found


def _follows(run: list[Segment], segment: Segment) -> bool:
    before = run[-1]
    end = before.offset + len(before.data)
    size = end - run[0].offset + len(segment.data)
    behind = (segment.stream, segment.offset, segment.tsc) == (before.stream, end, before.tsc_end)  # no time between
    return segment.continues and behind and size <= MOST


def joined(run: list[Segment]) -> Segment:
    """As one."""
    if len(run) == 1:
        return run[0]
    data, marks = np.concatenate([s.data for s in run]), np.concatenate([s.marks for s in run])
    return replace(run[0], data=data, marks=marks, tsc_end=run[-1].tsc_end)

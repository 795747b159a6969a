"""Follows the threads of one process through its code as it changes.

The walker knows one state of the code at a time. Code is looked up as it was at the end of the piece, but not more
often than each `quantum` ticks: code loaded in between at a free address does no harm earlier, and a comparison of all
bytes for each load would cost more than the walk.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from stages.follow.code.jumps import OfImage
from stages.follow.contradictions import Contradictions
from stages.follow.flow import Flow, FlowOutput
from stages.follow.repair.repair import Repair
from stages.follow.walk import path_sequence as orders
from stages.messages import PtConfig, Segment

SLACK_QUANTA = 50
"""By so many quanta the times of the code image may be wrong (1 s at the default quantum)."""


class Follower:
    def __init__(self, image: CodeImage, config: PtConfig, quantum: int, *, count_paths: bool = True) -> None:
        """`quantum`: ticks, see above. Segments must come when the image is complete up to their end + `quantum`."""
        self.flow = Flow(config, context=False, count_paths=count_paths)
        self.contradictions = Contradictions()
        self.repair = Repair(self.flow, image, SLACK_QUANTA * max(1, quantum))
        self.at = -1  # the time as of which the walker knows the code
        self._image, self._quantum = image, max(1, quantum)
        self._jumps = OfImage(image)
        self._epoch = self._census = -1

    def follow(self, segment: Segment) -> list[FlowOutput]:
        """One piece. Usually one output; more where tables had to be renewed in the middle."""
        return [output for output in self.steps(segment) if output is not None]

    def steps(self, segment: Segment) -> Iterator[FlowOutput | None]:
        """`follow`, in steps as `Flow.steps`."""
        yield from self._look(segment.tsc_end)
        self.repair.begin(segment)
        for output in self.flow.steps(segment):
            if output is not None:
                self.repair.take_resolved(output.resolved)
                if len(output.breaks):
                    self.contradictions.add(output.breaks, _suspect(output), self._image, self.at)
            yield output

    def changes(self, first: int, last: int) -> list[int]:
        """The quanta in (first, last], by number, that end with other code than the one before."""
        found: list[int] = []
        while (first := (self._image.next_change((first + 1) * self._quantum) - 1) // self._quantum) <= last:
            found.append(first)
        return found

    def _look(self, tsc: int) -> Iterator[None]:
        at = (tsc // self._quantum + 1) * self._quantum
        if at != self.at or self._epoch != self._image.epoch:
            yield from self._image.settling()
            if self._epoch != self._image.epoch or self._changed(at):
                self.flow.set_code(self._image.view(at))
                yield None
                yield from self.repair.prepare()
                if self._census != self._image.census:
                    self._census = self._image.census
                    self.flow.jumps = self._jumps.now()
                    yield None
            self.at, self._epoch = at, self._image.epoch

    def _changed(self, at: int) -> bool:
        return self._image.next_change(min(self.at, at)) <= max(self.at, at)


def _suspect(output: FlowOutput) -> NDArray[np.int64]:
    """(n,) instructions that each break puts in doubt."""
    instructions = output.tables.path_instrs
    parts = [output.order[a:b] for a, b in output.breaks[["confirmed", "order"]].tolist()]
    return np.array([instructions[orders.paths(part)].sum() for part in parts], np.int64)

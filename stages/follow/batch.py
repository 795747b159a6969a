"""The walker's output for the pieces of one release, as one `Paths`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from stages.follow.flow import FlowOutput
from stages.follow.numbering import Numbering
from stages.follow.repair.guesses import Guesses
from stages.images import ProcessKey
from stages.messages import LossMark, Paths, Segment, StreamKey
from stages.messages.columns import joined
from stages.messages.paths import BREAK_DTYPE, TAKEN_DTYPE, Provenance

_NO_BREAKS = np.zeros(0, BREAK_DTYPE)


class Batch:
    """Of one process. Empty after `take`; numbers go on until their generation ends."""

    def __init__(self, key: ProcessKey, image: CodeImage, guesses: Guesses | None = None) -> None:
        self._key, self._image, self._guesses = key, image, guesses
        self._numbering: Numbering | None = None
        self._generations = 0
        self._renew = False
        self._clear()

    def _clear(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._streams: dict[StreamKey, int] = {}
        self._orders: list[NDArray[np.int32]] = []
        self._stops: list[NDArray[np.void]] = []
        self._breaks: list[NDArray[np.void]] = []
        self._holes: list[tuple[int, LossMark]] = []
        self._at = [0, 0, 0]  # order, stops, breaks

    def __bool__(self) -> bool:
        return bool(self._rows)

    def describe(self) -> Iterator[None]:
        """Finds the bytecode of its new blocks, in steps, before it is taken."""
        if self._numbering is not None:
            yield from self._numbering.describe()

    def renew(self) -> None:
        """Number everything anew from the next message on."""
        self._renew = True

    def other_generation(self, output: FlowOutput) -> bool:
        """Whether the batch must be taken before this output is added."""
        known = self._numbering
        return bool(self._rows) and known is not None and known.tables is not output.tables.block

    def add(self, s: Segment, output: FlowOutput, tsc: int, holes: Sequence[LossMark]) -> None:
        """`tsc`: the time as of which the walker knew the code. `s`: the part of the piece that was not yet added."""
        numbering = self._numbering
        if numbering is None or numbering.tables is not output.tables.block or (self._renew and not self._rows):
            self._generations += 1
            self._renew = False
            numbering = self._numbering = Numbering(output.tables, self._image, self._generations, self._guesses)
        numbering.number(output.tables, output.order, tsc)
        stream = self._streams.setdefault(s.stream, len(self._streams))
        order, stop, broken = self._at
        ends = order + len(output.order), stop + len(output.stops), broken + len(output.breaks)
        self._holes += ((len(self._rows), mark) for mark in holes)
        begin, end = output.stops["tsc"][[0, -1]].tolist()
        self._rows.append(
            (s.thread.tid, stream, s.number, s.offset, output.end, begin, end, order, ends[0], stop, ends[1], broken,
             ends[2], s.continues, Provenance.OBSERVED, not output.whole, s.arrival)
        )  # fmt: skip
        self._orders.append(output.order)
        output.stops["order"] += order
        self._stops.append(output.stops)
        if len(output.breaks):
            breaks = output.breaks.copy()
            breaks["order"] += order
            breaks["confirmed"] += order
            self._breaks.append(breaks)
        self._at[:] = ends

    def take(self, drained: int = 0) -> Paths:
        """All that was added."""
        assert self._numbering is not None
        message = Paths(
            *self._key,
            self._numbering.generation,
            tuple(self._streams),
            np.array(self._rows, TAKEN_DTYPE),
            np.concatenate(self._orders),
            joined(self._stops),
            joined(self._breaks) if self._breaks else _NO_BREAKS,
            tuple(self._holes),
            **self._numbering.take()._asdict(),
            drained=drained,
        )
        self._clear()
        return message

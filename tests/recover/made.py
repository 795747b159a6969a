"""`Paths` of threads that take steps without a meaning: each block is a path of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from stages.messages import Arrival, Loss, LossMark, Paths, StreamKey
from stages.messages.paths import (
    BLOCK_DTYPE,
    BREAK,
    BREAK_DTYPE,
    FIRST_PATH,
    FRAME_DTYPE,
    LINK_DTYPE,
    OVERFLOW,
    PATH_DTYPE,
    RANGE_DTYPE,
    STEP_DTYPE,
    STOP_DTYPE,
    TAKEN_DTYPE,
    Provenance,
    Way,
)
from stages.paths.counts import WAYS
from stages.recover.later import Later

STREAM = StreamKey("h", 42, 0, -1)
STREAMS = (STREAM, STREAM._replace(cpu=1))
BLOCKS = 64


class Row(NamedTuple):
    """`steps`: blocks. `suspect`: so many at the end are contradicted. The bytes [offset, end) are a step each unless
    they are given."""

    tid: int
    continues: bool
    steps: Sequence[int]
    tsc: int
    tsc_end: int
    offset: int = 0
    end: int = 0
    suspect: int = 0
    arrival: Arrival = Arrival.IN_ORDER
    cpu: int = 0


def write_at_once(patch: pytest.MonkeyPatch) -> None:
    """As if there were always a hole."""
    patch.setattr(Later, "add", lambda self, message, d, add=Later.add: add(self, message, d) or [0])
    patch.setattr(Later, "skip", lambda self, most, hole: None)


def step(block: int) -> int:
    """The step out of a made block."""
    return WAYS * block + Way.TAKEN


def paths(rows: Sequence[Row], first: bool = True, generation: int = 1, folded: bool = False) -> Paths:
    """`folded`: repetitions are told as such."""
    order: list[int] = []
    taken, stops, breaks = [], list[tuple[int, int]](), list[tuple[int, ...]]()
    for row in rows:
        at, stop, broken = len(order), len(stops), len(breaks)
        for k, block in enumerate(row.steps):
            if folded and k and block == row.steps[k - 1]:
                if order[-1] < 0:
                    order[-1] -= 1
                else:
                    order.append(-1)
            else:
                order.append(FIRST_PATH + block)
        if row.suspect:
            breaks.append((len(order), 0, OVERFLOW, 0, 0, 0, len(order) - row.suspect, 0))
            order.append(BREAK)
        stops += [(at, row.tsc), (len(order), row.tsc_end)]
        taken.append(
            (row.tid, row.cpu, 0, row.offset, row.end, row.tsc, row.tsc_end, at, len(order), stop, len(stops), broken,
             len(breaks), row.continues, Provenance.OBSERVED, 0, row.arrival)
        )  # fmt: skip
    blocks = np.zeros(BLOCKS if first else 0, BLOCK_DTYPE)
    known, links = np.zeros(len(blocks), PATH_DTYPE), np.zeros(len(blocks), LINK_DTYPE)
    blocks["instructions"] = known["instructions"] = known["links"] = 1
    known["link"] = links["number"] = np.arange(len(blocks))
    links["way"] = Way.TAKEN
    ranges = np.zeros(len(blocks), RANGE_DTYPE)  # of one byte each
    blocks["ranges"] = ranges["instructions"] = 1
    blocks["range"] = blocks["length"] = np.arange(len(blocks))
    blocks["start"] = blocks["last"] = ranges["lo"] = 0x1000 + np.arange(len(blocks), dtype=np.uint64)
    ranges["hi"] = ranges["lo"] + np.uint64(1)
    holes = tuple((k, LossMark(0, Loss.AUX_FULL, 0, 0)) for k, row in enumerate(rows)
                  if not row.continues and row.arrival == Arrival.IN_ORDER)  # fmt: skip
    return Paths(
        STREAM.host, STREAM.pid, generation, STREAMS, np.array(taken, TAKEN_DTYPE), np.array(order, np.int32),
        np.array(stops, STOP_DTYPE), np.array(breaks, BREAK_DTYPE), holes, 0 if first else BLOCKS, blocks,
        ranges, np.ones(len(blocks), np.uint8), np.zeros(0, np.uint64), np.zeros(0, STEP_DTYPE),
        np.zeros(0, FRAME_DTYPE), (), FIRST_PATH + (0 if first else BLOCKS), known, links,
    )  # fmt: skip

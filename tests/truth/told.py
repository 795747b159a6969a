"""`Paths` of one row, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stages.messages import Paths, StreamKey
from stages.messages.paths import (
    BLOCK_DTYPE,
    BREAK_DTYPE,
    FIRST_PATH,
    FRAME_DTYPE,
    LINK_DTYPE,
    PATH_DTYPE,
    RANGE_DTYPE,
    STEP_DTYPE,
    STOP_DTYPE,
    TAKEN_DTYPE,
    BlockEnd,
    PathKind,
)

KEY = StreamKey("h", 1, 0, -1)


class Break(NamedTuple):
    order: int
    cause: int
    confirmed: int
    offset: int


def told(
    blocks: Sequence[tuple[int, BlockEnd, list[tuple[int, int]]]],
    paths: Sequence[list[int]],
    order: list[int],
    breaks: Sequence[Break] = (),
    made: Sequence[list[int]] = (),
    guessed: Sequence[int] = (),
) -> Paths:
    """`blocks`: first address, end, ranges. `paths`: of blocks, by position; `made`: of paths, by their numbers.
    `guessed`: ranges of each block; none."""
    rows, ranges = np.zeros(len(blocks), BLOCK_DTYPE), list[tuple[int, int, int]]()
    for row, (start, ends, each) in zip(rows, blocks, strict=True):
        row["start"], row["ends"], row["range"], row["ranges"] = start, ends, len(ranges), len(each)
        ranges += [(lo, hi, 1) for lo, hi in each]
    rows["guessed"] = guessed if len(guessed) else 0
    lists = [*paths, *made]
    path_rows = np.zeros(len(lists), PATH_DTYPE)
    path_rows["links"] = [len(each) for each in lists]
    path_rows["link"] = np.cumsum(path_rows["links"]) - path_rows["links"]
    path_rows["kind"] = [PathKind.OF_BLOCKS] * len(paths) + [PathKind.OF_PATHS] * len(made)
    links = np.zeros(sum(map(len, lists)), LINK_DTYPE)
    links["number"] = [number for each in lists for number in each]
    taken = np.zeros(1, TAKEN_DTYPE)
    taken["order_end"], taken["broken_end"] = len(order), len(breaks)
    broken = np.zeros(len(breaks), BREAK_DTYPE)
    for name in Break._fields:
        broken[name] = [getattr(b, name) for b in breaks]
    return Paths(
        "h", 1, 1, (KEY,), taken, np.array(order, np.int32), np.zeros(0, STOP_DTYPE), broken, (), first_block=0,
        blocks=rows, ranges=np.array([(*each, 0) for each in ranges], RANGE_DTYPE),
        lengths=np.zeros(0, np.uint8), cycles=np.zeros(0, np.uint64),
        steps=np.zeros(0, STEP_DTYPE), frames=np.zeros(0, FRAME_DTYPE), methods=(), first_path=FIRST_PATH,
        paths=path_rows, links=links,
    )  # fmt: skip

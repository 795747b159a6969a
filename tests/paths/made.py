"""Made-up control flow: dictionaries and orders of any shape."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

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
    PathKind,
)

STREAM = StreamKey("h", 42, 0, -1)


class Block(NamedTuple):
    ranges: list[tuple[int, list[int]]]  # where each begins, the lengths of its instructions


class Path(NamedTuple):
    kind: PathKind
    links: list[tuple[int, int]]  # block or path, way


class Row(NamedTuple):
    tid: int
    order: list[int]
    stops: list[tuple[int, int]]  # order, tsc; from 0 to the end
    suspect: list[tuple[int, int]]


class Flow(NamedTuple):
    blocks: list[Block]
    paths: list[Path]  # number FIRST_PATH and on
    rows: list[Row]


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    lengths = st.lists(st.integers(1, 15), max_size=4)
    ranges = st.lists(st.tuples(st.integers(0, 1 << 40), lengths), min_size=1, max_size=3)
    blocks = draw(st.lists(ranges.map(Block), min_size=1, max_size=6))
    plain = st.lists(st.tuples(st.integers(0, len(blocks) - 1), st.integers(0, 2)), max_size=4)
    paths = [Path(PathKind.OF_BLOCKS, links) for links in draw(st.lists(plain, min_size=1, max_size=5))]
    of_paths = st.lists(st.integers(FIRST_PATH, FIRST_PATH + len(paths) - 1), min_size=1, max_size=4)
    made = draw(st.lists(of_paths, max_size=4))
    paths += [Path(PathKind.OF_PATHS, [(part, 0) for part in inside]) for inside in made]
    rows = [draw(_rows(FIRST_PATH + len(paths))) for _ in range(draw(st.integers(0, 4)))]
    return Flow(blocks, paths, rows)


@st.composite
def _rows(draw: st.DrawFn, numbers: int) -> Row:
    order: list[int] = []
    for x in draw(st.lists(st.integers(0, numbers - 1), max_size=12)):
        order.append(x)
        if x >= FIRST_PATH and draw(st.booleans()):
            order.append(-draw(st.integers(1, 5)))
    # no repetition goes over a stop, or into a suspect part
    cuts = [k for k in range(len(order) + 1) if k == len(order) or order[k] >= 0]
    at = sorted(draw(st.lists(st.sampled_from(cuts), max_size=4)))
    times = sorted(draw(st.lists(st.integers(0, 400), min_size=len(at) + 2, max_size=len(at) + 2)))
    stops = list(zip([0, *at, len(order)], times, strict=True))
    edges = sorted(draw(st.sets(st.sampled_from(cuts), max_size=4)))
    suspect = list(zip(edges[::2], edges[1::2], strict=False))
    return Row(draw(st.integers(1, 3)), order, stops, suspect)


def message(flow: Flow, generation: int = 1) -> Paths:
    """All of it in one."""
    blocks = np.zeros(len(flow.blocks), BLOCK_DTYPE)
    ranges: list[tuple[int, int, int, int]] = []
    lengths: list[int] = []
    for n, block in enumerate(flow.blocks):
        blocks[n]["range"], blocks[n]["ranges"], blocks[n]["length"] = len(ranges), len(block.ranges), len(lengths)
        blocks[n]["instructions"] = sum(len(each) for _, each in block.ranges)
        ranges += [(lo, lo + sum(each), len(each), 0) for lo, each in block.ranges]
        lengths += [size for _, each in block.ranges for size in each]
    paths = np.zeros(len(flow.paths), PATH_DTYPE)
    links: list[tuple[int, int]] = []
    for n, path in enumerate(flow.paths):
        paths[n]["link"], paths[n]["links"], paths[n]["kind"] = len(links), len(path.links), path.kind
        paths[n]["instructions"] = instructions(flow, FIRST_PATH + n)
        links += path.links
    rows = np.zeros(len(flow.rows), TAKEN_DTYPE)
    order: list[int] = []
    stops: list[tuple[int, int]] = []
    breaks = np.zeros(sum(len(row.suspect) for row in flow.rows), BREAK_DTYPE)
    broken = 0
    for n, row in enumerate(flow.rows):
        rows[n]["tid"], rows[n]["order"], rows[n]["order_end"] = row.tid, len(order), len(order) + len(row.order)
        rows[n]["stop"], rows[n]["stop_end"] = len(stops), len(stops) + len(row.stops)
        rows[n]["broken"], rows[n]["broken_end"] = broken, broken + len(row.suspect)
        stops += [(len(order) + at, tsc) for at, tsc in row.stops]
        for sure, at in row.suspect:
            breaks[broken]["confirmed"], breaks[broken]["order"] = len(order) + sure, len(order) + at
            broken += 1
        order += row.order
    return Paths(
        "h", 42, generation, (STREAM,), rows, np.array(order, np.int32), np.array(stops, STOP_DTYPE), breaks, (), 0,
        blocks, np.array(ranges, RANGE_DTYPE), np.array(lengths, np.uint8), np.zeros(0, np.uint64),
        np.zeros(0, STEP_DTYPE), np.zeros(0, FRAME_DTYPE), (), FIRST_PATH, paths, np.array(links, LINK_DTYPE),
    )  # fmt: skip


def parts(flow: Flow, number: int) -> list[tuple[int, int]]:
    """Blocks and ways of a path, one after the other."""
    if number < FIRST_PATH:
        return []
    path = flow.paths[number - FIRST_PATH]
    if path.kind == PathKind.OF_BLOCKS:
        return path.links
    return [link for part, _ in path.links for link in parts(flow, part)]


def instructions(flow: Flow, number: int) -> int:
    return sum(len(each) for block, _ in parts(flow, number) for _, each in flow.blocks[block].ranges)

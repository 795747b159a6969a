"""Bytecode of blocks, instruction by instruction, against the debug info of each address."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from jvm.code.debug_info import DebugInfo, Frame
from jvm.code.image import CodeImage
from stages.follow.block_bytecode import Bytecode
from stages.messages.paths import BLOCK_DTYPE, RANGE_DTYPE

START, OWN = 0x7F00_0000_1000, 9
STACKS = some.lists(some.tuples(some.integers(1, 3), some.integers(-1, 5)), max_size=3)
RANGES = some.tuples(some.integers(-20, 80), some.lists(some.integers(1, 9), max_size=6))
"""Where it begins, from START on, and the lengths of its instructions."""
Described = list[tuple[int, list[tuple[int, int]]]]


def debug_info(described: Described) -> DebugInfo:
    described = sorted(described)
    frames = [frame for _, stack in described for frame in stack]
    frame_at = np.cumsum([0, *(len(stack) for _, stack in described)])
    columns = np.array(frames, np.int64).reshape(-1, 2).T
    pcs = np.array([pc for pc, _ in described], np.uint32)
    return DebugInfo(64, OWN, pcs, frame_at, columns[0].astype(np.uint32), columns[1].astype(np.int32), 1.0)


@settings(max_examples=200, deadline=None)
@given(
    some.lists(some.tuples(some.integers(1, 64), STACKS), max_size=8, unique_by=lambda pc: pc[0]),
    some.lists(some.lists(RANGES, min_size=1, max_size=3), max_size=5),
    some.integers(0, 7),
)
def test_each_instruction_has_the_stack_that_is_described(
    described: Described, blocks: list[list[tuple[int, list[int]]]], told: int
) -> None:
    debug, found = debug_info(described), Bytecode(CodeImage())
    rows = np.zeros(len(blocks), BLOCK_DTYPE)
    ranges, lengths = list[tuple[int, int, int, int]](), list[int]()
    for row, block in zip(rows, blocks, strict=True):
        row["range"], row["length"], row["ranges"] = told + len(ranges), told + len(lengths), len(block)
        for at, sizes in block:
            ranges.append((START + at, START + at + sum(sizes), len(sizes), 0))
            lengths += sizes
        row["instructions"] = told + len(lengths) - row["length"]
    columns = np.array(ranges, RANGE_DTYPE), np.array(lengths, np.uint8)
    for mine in (np.arange(0, len(rows), 2), np.arange(1, len(rows), 2)):  # the second goes on behind the first
        found.describe(rows, mine, *columns, (told, told), START, debug)
    steps, frames = found.take()
    for row, block in zip(rows, blocks, strict=True):
        of_block = steps[row["step"] : row["step"] + row["steps"]].tolist()
        got = [frames[at : at + n].tolist() for times, at, n in of_block for _ in range(times)]
        addresses = [at + sum(sizes[:k]) for at, sizes in block for k in range(len(sizes))]
        expected = [debug.frames(a) if a >= 0 else (Frame(OWN, -1),) for a in addresses]
        assert got == [[tuple(frame) for frame in stack] for stack in expected]
        pcs = [int(np.searchsorted(debug.pc, a, "right")) if a >= 0 else len(debug.pc) for a in addresses]
        assert len(of_block) == sum(pc != before for before, pc in pairwise([-1, *pcs]))

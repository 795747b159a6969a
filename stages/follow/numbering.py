"""The walker's tables as the dictionaries of `Paths`: numbers given out as they are first used, and their meanings.

The walker's own ids cannot go on the wire: its tables fill with paths that no thread has run yet, its blocks die with
their code, and it forgets all when they are full. Here a block is described when the first path over it has been taken,
by the code in which it was walked: at once where the walker's code and tables tell it, for they change; of which
bytecode it is (`stages.follow.block_bytecode`) before it is handed on, some blocks a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.kernels import inner, kernel
from stages.follow.block_bytecode import Bytecode
from stages.follow.cfg import graph
from stages.follow.cfg.cycle import untold
from stages.follow.cfg.graph import (
    BL,
    BL_INSTRS,
    BL_KIND,
    BL_PUSH,
    BL_PUSHES,
    BL_RANGE,
    BL_RANGES,
    BL_TAKEN,
    BL_TURNS,
    COND,
    PA,
    PA_FLAGS,
    PA_LEN,
    PA_POOL,
    PATH_OF_PATHS,
    RESOLVE,
    Tables,
    blob_of,
    raw_tables,
)
from stages.follow.repair.guesses import Guesses
from stages.messages.columns import joined
from stages.messages.paths import (
    BLOCK_DTYPE,
    FIRST_PATH,
    LINK_DTYPE,
    PATH_DTYPE,
    RANGE_DTYPE,
    BlockEnd,
    PathKind,
    Way,
)
from stages.pt import x86

I64 = NDArray[np.int64]
BLOCKS = 512
"""Blocks whose bytecode is found in one step: in code that runs for the first time each may lie in an nmethod of its
own."""
_ENDS = np.zeros(graph.RESOLVE + 1, np.int32)
"""BlockEnd by the walker's kind of block. Code that changed in the walk that first went through it: UNKNOWN."""
for _kind, _end in (
    (graph.IND, BlockEnd.INDIRECT), (graph.RESOLVE, BlockEnd.INDIRECT), (graph.RET, BlockEnd.RETURN),
    (graph.FAR, BlockEnd.FAR), (graph.COND, BlockEnd.CONDITION), (graph.OUT, BlockEnd.FILTER),
    (graph.OFF, BlockEnd.NO_CODE), (graph.OUTSIDE, BlockEnd.NO_CODE), (graph.STUCK, BlockEnd.STUCK),
    (graph.LOOP, BlockEnd.LOOP), (graph.CUT, BlockEnd.EVENT),
):  # fmt: skip
    _ENDS[_kind] = _end

_END_LOOP = int(BlockEnd.LOOP)
_OF_BLOCKS, _OF_PATHS = int(PathKind.OF_BLOCKS), int(PathKind.OF_PATHS)
_TAKEN, _NOT_TAKEN = int(Way.TAKEN), int(Way.NOT_TAKEN)
_RANGES, _LENGTHS, _CYCLES, _LINKS = range(4)
assert int(Way.UNKNOWN) == 0


class Growth(NamedTuple):
    """New rows of the dictionaries: the fields of `Paths` from `first_block` on."""

    first_block: int
    blocks: NDArray[np.void]
    ranges: NDArray[np.void]
    lengths: NDArray[np.uint8]
    cycles: NDArray[np.uint64]
    steps: NDArray[np.void]
    frames: NDArray[np.void]
    methods: tuple[tuple[int, str], ...]
    first_path: int
    paths: NDArray[np.void]
    links: NDArray[np.void]


class _New(NamedTuple):
    """Rows of the dictionaries of which bytecode is not told yet."""

    blocks: NDArray[np.void]
    ranges: NDArray[np.void]
    lengths: NDArray[np.uint8]
    cycles: NDArray[np.uint64]
    paths: NDArray[np.void]
    links: NDArray[np.void]


_NONE = _New(
    np.zeros(0, BLOCK_DTYPE), np.zeros(0, RANGE_DTYPE), np.zeros(0, np.uint8), np.zeros(0, np.uint64),
    np.zeros(0, PATH_DTYPE), np.zeros(0, LINK_DTYPE),
)  # fmt: skip


def _one(parts: Sequence[NDArray[Any]]) -> Any:
    return joined(parts) if parts[0].dtype.names else np.concatenate(parts)


class Numbering:
    """Of one generation of a process's tables; dropped with it."""

    def __init__(
        self, tables: Tables, image: CodeImage, generation: int, guesses: Guesses | None = None
    ) -> None:  # fmt: skip
        self.tables = tables.block  # the array stands for the generation
        self._guesses = guesses
        self.generation = generation
        self._image = image
        self._path = np.zeros(len(tables.path_instrs), np.int32)  # numbers by the walker's ids; 0: none yet
        self._block = np.zeros(len(tables.address), np.int32)  # numbers + 1
        self._path[:FIRST_PATH] = np.arange(FIRST_PATH)
        self._new_paths, self._new_blocks = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self._count = np.array([FIRST_PATH, 0], np.int64)  # paths, blocks
        self._taken = self._count.copy()
        self._used = np.zeros(4, np.int64)  # rows of ranges, lengths, cycles and links
        self._latest: Tables | None = None
        self._raw: I64 = np.zeros(0, np.int64)
        self._new: list[_New] = []
        self._found = 0  # of the new blocks, of which bytecode they are
        self._bytecode = Bytecode(image)
        self._methods: set[int] = set()

    def number(self, tables: Tables, order: NDArray[np.int32], tsc: int) -> None:
        """Writes numbers over the ids in `order`. `tsc`: the time as of which the walker knows the code, which is still
        as it was when these paths were taken."""
        before = self._count.copy()
        at = 0
        while True:  # room for the paths and blocks of a number is made as it is asked for
            at, paths, blocks = _number(
                order, at, tables.path, tables.pool, self._path, self._block, self._count, self._new_paths,
                self._new_blocks, before[0], before[1],
            )  # fmt: skip
            if at == len(order):
                break
            self._new_paths = np.append(self._new_paths, np.zeros(len(self._new_paths) + paths, np.int64))
            self._new_blocks = np.append(self._new_blocks, np.zeros(len(self._new_blocks) + blocks, np.int64))
        paths, blocks = (self._count - before).tolist()
        if paths:
            self._describe(tables, self._new_blocks[:blocks], self._new_paths[:paths], tsc)

    def _describe(self, tables: Tables, blocks: I64, paths: I64, tsc: int) -> None:
        """Describes new blocks and paths, by id, from the walker's code and tables."""
        if self._latest is not tables:
            before = (self._latest, self._raw) if self._latest is not None else None
            self._latest, self._raw = tables, tables.raw(before=before)
        ranges, lengths, links = _sizes(self._raw, blocks, paths)
        new = _New(
            np.zeros(len(blocks), BLOCK_DTYPE), np.zeros(ranges, RANGE_DTYPE), np.zeros(lengths, np.uint8),
            np.zeros(0, np.uint64), np.zeros(len(paths), PATH_DTYPE), np.zeros(links, LINK_DTYPE),
        )  # fmt: skip
        loops = _tell(
            self._raw, blocks, paths, self._block, self._path, tsc, _ENDS, self._used, new.blocks, new.ranges,
            new.lengths, new.paths, new.links,
        )  # fmt: skip
        if self._guesses is not None:
            self._guesses.mark(new.blocks, new.ranges)
        if loops:
            new = new._replace(cycles=self._cycles(tables, new.blocks, blocks))
        self._new.append(new)

    def _cycles(self, t: Tables, rows: NDArray[np.void], ids: I64) -> NDArray[np.uint64]:
        found = []
        for k in np.flatnonzero(rows["ends"] == BlockEnd.LOOP).tolist():
            cycle = untold(t, int(ids[k]))
            rows["cycle"][k], rows["cycles"][k] = self._used[_CYCLES], len(cycle)
            self._used[_CYCLES] += len(cycle)
            found.append(cycle)
        return np.concatenate(found)

    def describe(self) -> Iterator[None]:
        """Finds the bytecode of the new blocks, in steps."""
        new = self._joined()
        while self._found < len(new.blocks):
            begin, self._found = self._found, min(self._found + BLOCKS, len(new.blocks))
            self._bytecode.find(new.blocks, begin, self._found, new.ranges, new.lengths)
            yield

    def _joined(self) -> _New:
        """All that is new."""
        if len(self._new) != 1:
            columns = zip(_NONE, *self._new, strict=True)
            self._new = [_New(*map(_one, columns))]
        return self._new[0]

    def take(self) -> Growth:
        """The growth since the last time."""
        for _ in self.describe():
            pass
        new, self._new, self._found = self._joined(), [], 0
        steps, frames = self._bytecode.take()
        first_path, first_block = self._taken.tolist()
        self._taken[:] = self._count
        unnamed = set(frames["method"].tolist()) - self._methods
        self._methods |= unnamed
        methods = tuple((m, self._image.methods[m]) for m in sorted(unnamed) if m in self._image.methods)
        return Growth(
            first_block, new.blocks, new.ranges, new.lengths, new.cycles, steps, frames, methods, first_path,
            new.paths, new.links,
        )  # fmt: skip


@inner
def _new_path(p, path, pool, path_number, block_number, count, new_paths, new_blocks, base_path, base_block):  # type: ignore[no-untyped-def]
    new_paths[count[0] - base_path] = p
    path_number[p] = count[0]
    count[0] += 1
    if path[p * PA + PA_FLAGS] & PATH_OF_PATHS:
        return
    first = np.int64(path[p * PA + PA_POOL])
    for k in range(first, first + path[p * PA + PA_LEN]):
        s = np.int64(pool[k])
        if block_number[s] == 0:
            new_blocks[count[1] - base_block] = s
            count[1] += 1
            block_number[s] = count[1]


@kernel
def _number(order, begin, path, pool, path_number, block_number, count, new_paths, new_blocks, base_path, base_block):  # type: ignore[no-untyped-def]
    """Returns how far it came and, where that is not the end, how much more room for paths and blocks it needs."""
    for j in range(begin, len(order)):
        p = np.int64(order[j])
        if p < 0:
            continue
        if path_number[p] == 0:
            first, n = np.int64(path[p * PA + PA_POOL]), np.int64(path[p * PA + PA_LEN])
            made = path[p * PA + PA_FLAGS] & PATH_OF_PATHS
            paths, blocks = np.int64(1), n
            if made:
                paths, blocks = n + 1, np.int64(0)
                for k in range(first, first + n):
                    blocks += path[np.int64(pool[k]) * PA + PA_LEN]
            if count[0] - base_path + paths > len(new_paths) or count[1] - base_block + blocks > len(new_blocks):
                return j, paths, blocks
            if made:
                for k in range(first, first + n):
                    part = np.int64(pool[k])
                    if path_number[part] == 0:
                        _new_path(
                            part, path, pool, path_number, block_number, count, new_paths, new_blocks, base_path,
                            base_block,
                        )  # fmt: skip
            _new_path(p, path, pool, path_number, block_number, count, new_paths, new_blocks, base_path, base_block)
        order[j] = path_number[p]
    return len(order), np.int64(0), np.int64(0)


@kernel
def _sizes(where, blocks, paths):  # type: ignore[no-untyped-def]
    """Of new blocks and paths: ranges, instructions, links."""
    t = raw_tables(where)
    ranges = instructions = links = np.int64(0)
    for s in blocks:
        ranges += t.block[s * BL + BL_RANGES]
        instructions += t.block[s * BL + BL_INSTRS]
    for p in paths:
        links += t.path[p * PA + PA_LEN]
    return ranges, instructions, links


@kernel
def _tell(  # type: ignore[no-untyped-def]
    where, blocks, paths, block_number, path_number, tsc, end_of, used, block_rows, range_rows, lengths, path_rows,
    link_rows,
):  # fmt: skip
    """Fills rows of new blocks and paths but for their bytecode and cycles. Returns how many blocks end in a LOOP."""
    t = raw_tables(where)
    loops = n_ranges = n_lengths = n_links = np.int64(0)
    for k in range(len(blocks)):
        s = blocks[k] * BL
        row = block_rows[k]
        kind = np.int64(t.block[s + BL_KIND])
        ends = end_of[min(kind, RESOLVE)]
        if t.block[s + BL_TURNS]:  # also where the code has changed since
            ends = _END_LOOP
        loops += ends == _END_LOOP
        row["start"], row["last"], row["tsc"] = np.uint64(t.address[blocks[k]]), np.uint64(t.last[blocks[k]]), tsc
        row["ends"], row["instructions"] = ends, t.block[s + BL_INSTRS]
        row["range"], row["ranges"] = used[_RANGES] + n_ranges, t.block[s + BL_RANGES]
        row["length"], row["cycle"], row["bytecode"] = used[_LENGTHS] + n_lengths, used[_CYCLES], -1
        push = np.int64(t.block[s + BL_PUSH])
        pushes = push + t.block[s + BL_PUSHES]
        first = np.int64(t.block[s + BL_RANGE])
        for r in range(first, first + t.block[s + BL_RANGES]):
            lo, hi, instructions = t.ranges[3 * r], t.ranges[3 * r + 1], t.ranges[3 * r + 2]
            told = range_rows[n_ranges]
            told["lo"], told["hi"], told["instructions"] = np.uint64(lo), np.uint64(hi), instructions
            if push < pushes and t.address[np.int64(t.pool[push])] == hi:
                told["calls"] = 1
                push += 1
            n_ranges += 1
            _lengths(t, lo, hi, instructions, lengths, n_lengths)
            n_lengths += instructions
    for k in range(len(paths)):
        p = paths[k] * PA
        made = t.path[p + PA_FLAGS] & PATH_OF_PATHS
        path = path_rows[k]
        path["kind"], path["links"] = _OF_PATHS if made else _OF_BLOCKS, t.path[p + PA_LEN]
        path["link"], path["instructions"] = used[_LINKS] + n_links, t.path_instrs[paths[k]]
        first = np.int64(t.path[p + PA_POOL])
        for m in range(first, first + t.path[p + PA_LEN]):
            inside = np.int64(t.pool[m])
            link = link_rows[n_links]
            n_links += 1
            if made:
                link["number"] = path_number[inside]
                continue
            link["number"] = block_number[inside] - 1
            to = np.int64(t.pool[m + 1])
            if t.block[inside * BL + BL_KIND] == COND and to > 0:
                taken = t.address[np.int64(t.block[inside * BL + BL_TAKEN])] == t.address[to]
                link["way"] = _TAKEN if taken else _NOT_TAKEN
    used[_RANGES] += n_ranges
    used[_LENGTHS] += n_lengths
    used[_LINKS] += n_links
    return loops


@inner
def _lengths(t, here, hi, instructions, out, n):  # type: ignore[no-untyped-def]
    """Of the instructions in [here, hi), by the code as it is now: to `out` from `n` on. Where that is not as it was,
    they add up to the range all the same."""
    b = blob_of(t, here)
    for k in range(instructions, 0, -1):
        most = hi - here - (k - 1)
        size = most
        if k > 1 and b >= 0:
            insn = x86.decode(t.code, t.blob_at[b] + here - t.blob_start[b], t.g[graph.G_CODE_SIZE])
            size = min(most, max(1, insn & 0xFF))
        out[n] = min(max(size, 0), 255)
        n += 1
        here += size

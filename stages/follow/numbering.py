"""The walker's tables as the dictionaries of `Paths`: numbers given out as they are first used, and what they mean.

The walker's own ids cannot go on the wire: its tables fill with what no thread has run yet, its blocks die with their
code, and it forgets all when they are full. Here a block is described when the first path over it has been taken, by
the code in which it was walked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.version import Kind
from jvm.kernels import inner, kernel
from stages.follow.cfg import graph
from stages.follow.cfg.cycle import untold
from stages.follow.cfg.graph import (
    BL,
    BL_FROM,
    BL_INSTRS,
    BL_KIND,
    BL_RANGE,
    BL_RANGES,
    BL_TAKEN,
    COND,
    PA,
    PA_FLAGS,
    PA_LEN,
    PA_POOL,
    PATH_OF_PATHS,
    Tables,
    blob_of,
    raw_tables,
)
from stages.messages.paths import (
    BLOCK_DTYPE,
    FIRST_PATH,
    FRAME_DTYPE,
    LINK_DTYPE,
    PATH_DTYPE,
    RANGE_DTYPE,
    STEP_DTYPE,
    BlockEnd,
    PathKind,
    Way,
)
from stages.paths.dictionary import instructions_of, spans
from stages.pt import x86

I64 = NDArray[np.int64]
_ENDS = np.zeros(graph.RESOLVE + 1, np.int32)
"""BlockEnd by the walker's kind of block. Code that changed in the walk that first went through it: UNKNOWN."""
for _kind, _end in (
    (graph.IND, BlockEnd.INDIRECT), (graph.RESOLVE, BlockEnd.INDIRECT), (graph.RET, BlockEnd.RETURN),
    (graph.FAR, BlockEnd.FAR), (graph.COND, BlockEnd.CONDITION), (graph.OUT, BlockEnd.FILTER),
    (graph.OFF, BlockEnd.NO_CODE), (graph.OUTSIDE, BlockEnd.NO_CODE), (graph.STUCK, BlockEnd.STUCK),
    (graph.LOOP, BlockEnd.LOOP), (graph.CUT, BlockEnd.EVENT),
):  # fmt: skip
    _ENDS[_kind] = _end


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


class Numbering:
    """Of one generation of a process's tables; dropped with it."""

    def __init__(self, tables: Tables, image: CodeImage, generation: int) -> None:
        self.tables = tables.block  # the array stands for the generation
        self.generation = generation
        self._image = image
        self._path = np.zeros(len(tables.path_instrs), np.int32)  # numbers by the walker's ids; 0: none yet
        self._block = np.zeros(len(tables.address), np.int32)  # numbers + 1
        self._path[:FIRST_PATH] = np.arange(FIRST_PATH)
        self._new_paths, self._new_blocks = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self._count = np.array([FIRST_PATH, 0], np.int64)  # paths, blocks
        self._described = self._count.copy()
        self._latest: Tables | None = None
        self._tsc = -1
        self._ranges = self._lengths = self._cycles = self._steps = self._frames = self._links = 0
        self._methods: set[int] = set()
        self._grown: list[Growth] = []

    def number(self, tables: Tables, order: NDArray[np.int32], tsc: int) -> None:
        """Writes numbers over the ids in `order`. `tsc`: the time as of which the walker knows the code. What is new is
        described later, by `describe`, which must come before the code changes."""
        if self._tsc != tsc:
            self.describe()
        self._latest, self._tsc = tables, tsc
        before = self._described
        at = 0
        while True:  # room for what a number can bring is made as it is asked for
            at, paths, blocks = _number(
                order, at, tables.path, tables.pool, self._path, self._block, self._count, self._new_paths,
                self._new_blocks, before[0], before[1],
            )  # fmt: skip
            if at == len(order):
                break
            self._new_paths = np.append(self._new_paths, np.zeros(len(self._new_paths) + paths, np.int64))
            self._new_blocks = np.append(self._new_blocks, np.zeros(len(self._new_blocks) + blocks, np.int64))

    def describe(self) -> None:
        """What the numbers mean that are new."""
        (first_path, first_block), (paths, blocks) = self._described.tolist(), (self._count - self._described).tolist()
        if paths and self._latest is not None:
            self._grow(self._latest, self._tsc, first_block, self._new_blocks[:blocks], first_path,
                       self._new_paths[:paths])  # fmt: skip
        self._described[:] = self._count

    def take(self) -> Growth:
        """What has come since the last time."""
        self.describe()
        if not self._grown:
            paths, blocks = self._count.tolist()
            return Growth(blocks, np.zeros(0, BLOCK_DTYPE), np.zeros(0, RANGE_DTYPE), np.zeros(0, np.uint8),
                          np.zeros(0, np.uint64), np.zeros(0, STEP_DTYPE), np.zeros(0, FRAME_DTYPE), (), paths,
                          np.zeros(0, PATH_DTYPE), np.zeros(0, LINK_DTYPE))  # fmt: skip
        grown, self._grown = self._grown, []
        if len(grown) == 1:
            return grown[0]
        joined = {
            name: np.concatenate([getattr(g, name) for g in grown])
            for name in ("blocks", "ranges", "lengths", "cycles", "steps", "frames", "paths", "links")
        }
        methods = tuple(method for g in grown for method in g.methods)
        return Growth(first_block=grown[0].first_block, first_path=grown[0].first_path, methods=methods, **joined)

    def _grow(self, tables: Tables, tsc: int, first_block: int, blocks: I64, first_path: int, paths: I64) -> None:
        rows, ranges, lengths = self._describe(tables, tsc, blocks)
        cycles = self._cycles_of(tables, rows, blocks)
        steps, frames = self._bytecode(rows, ranges, lengths, tsc)
        path_rows, links = self._link(tables, paths)
        new = set(frames["method"].tolist()) - self._methods
        self._methods |= new
        methods = tuple((m, self._image.methods[m]) for m in sorted(new) if m in self._image.methods)
        self._grown.append(
            Growth(first_block, rows, ranges, lengths, cycles, steps, frames, methods, first_path, path_rows, links)
        )
        self._ranges += len(ranges)
        self._lengths += len(lengths)
        self._cycles += len(cycles)
        self._steps += len(steps)
        self._frames += len(frames)
        self._links += len(links)

    def _describe(self, t: Tables, tsc: int, ids: I64) -> tuple[NDArray[np.void], NDArray[np.void], NDArray[np.uint8]]:
        rows = np.zeros(len(ids), BLOCK_DTYPE)
        rows["start"], rows["last"] = t.address[ids].view(np.uint64), t.last[ids].view(np.uint64)
        rows["tsc"] = tsc
        rows["instructions"] = t.block[ids * BL + BL_INSTRS]
        kind = t.block[ids * BL + BL_KIND]
        rows["ends"] = _ENDS[np.minimum(kind, graph.RESOLVE)]
        whole = t.block[ids * BL + BL_FROM].astype(np.int64)  # of which it is the beginning
        rows["ends"][(kind == graph.CUT) & (t.block[whole * BL + BL_KIND] == graph.LOOP)] = BlockEnd.LOOP
        rows["ranges"] = t.block[ids * BL + BL_RANGES]
        rows["range"] = self._ranges + np.cumsum(rows["ranges"]) - rows["ranges"]
        rows["length"] = self._lengths + np.cumsum(rows["instructions"], dtype=np.int64) - rows["instructions"]
        where, _ = spans(t.block[ids * BL + BL_RANGE].astype(np.int64), rows["ranges"].astype(np.int64))
        ranges = np.zeros(len(where), RANGE_DTYPE)
        for k, name in enumerate(("lo", "hi", "instructions")):
            ranges[name] = t.ranges[3 * where + k].view(np.uint64) if k < 2 else t.ranges[3 * where + k]
        lengths = np.zeros(int(ranges["instructions"].sum()), np.uint8)
        _instruction_lengths(
            ranges["lo"].view(np.int64), ranges["hi"].view(np.int64), ranges["instructions"], t.raw(), lengths
        )
        return rows, ranges, lengths

    def _cycles_of(self, t: Tables, rows: NDArray[np.void], ids: I64) -> NDArray[np.uint64]:
        rows["cycle"] = self._cycles
        found: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]
        n = 0
        for k in np.flatnonzero(rows["ends"] == BlockEnd.LOOP).tolist():
            cycle = untold(t, int(ids[k]))
            rows["cycle"][k], rows["cycles"][k] = self._cycles + n, len(cycle)
            n += len(cycle)
            found.append(cycle)
        return np.concatenate(found)

    def _bytecode(
        self, rows: NDArray[np.void], ranges: NDArray[np.void], lengths: NDArray[np.uint8], tsc: int
    ) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Which code each block is of, and its bytecode: fills `rows`, and returns new steps and frames."""
        image = self._image
        rows["version"] = image.versions_of(rows["start"].copy(), rows["tsc"].copy())
        rows["bytecode"] = -1
        rows["step"] = self._steps
        steps: list[NDArray[np.void]] = []
        frames: list[NDArray[np.void]] = []
        n_steps = n_frames = 0
        addresses = instructions_of(ranges, lengths)
        first = rows["length"] - self._lengths
        for id_ in np.unique(rows["version"]).tolist():
            version = image.version(id_)
            if version is None:
                continue
            mine = np.flatnonzero(rows["version"] == id_)
            rows["kind"][mine] = int(version.site_kind)
            if version.kind == Kind.CODELET:
                rows["bytecode"][mine] = [image.codelets.bytecode(int(a)) for a in rows["start"][mine]]
            if version.debug is None:
                continue
            where, owner = spans(first[mine], rows["instructions"][mine].astype(np.int64))
            if not len(where):
                continue
            offsets = addresses[where] - np.uint64(version.start)
            debug = version.debug
            pc = debug.index(offsets)  # outside of the version (a jump into another): its last pc, and its own method
            change = np.flatnonzero(np.append(True, (np.diff(pc) != 0) | (np.diff(owner) != 0)))
            each = np.zeros(len(change), STEP_DTYPE)
            each["instructions"] = np.diff(np.append(change, len(pc)))
            used, which = np.unique(pc[change], return_inverse=True)
            lo = np.append(debug.frame_at[:-1], 0)[used]
            count = np.append(np.diff(debug.frame_at), 0)[used]
            at, _ = spans(lo, count)
            bare = count == 0  # described by nothing: the method itself
            here = np.zeros(int(count.sum() + bare.sum()), FRAME_DTYPE)
            begin = np.cumsum(np.where(bare, 1, count)) - np.where(bare, 1, count)
            full, _ = spans(begin[~bare], count[~bare])
            here["method"][full], here["bci"][full] = debug.method[at], debug.bci[at]
            here["method"][begin[bare]], here["bci"][begin[bare]] = debug.own, -1
            each["frame"] = self._frames + n_frames + begin[which]
            each["frames"] = np.where(bare, 1, count)[which]
            rows["steps"][mine] = np.bincount(owner[change], minlength=len(mine))
            rows["step"][mine] = self._steps + n_steps + np.cumsum(rows["steps"][mine]) - rows["steps"][mine]
            steps.append(each)
            frames.append(here)
            n_steps += len(each)
            n_frames += len(here)
        return (np.concatenate(steps) if steps else np.zeros(0, STEP_DTYPE),
                np.concatenate(frames) if frames else np.zeros(0, FRAME_DTYPE))  # fmt: skip

    def _link(self, t: Tables, ids: I64) -> tuple[NDArray[np.void], NDArray[np.void]]:
        rows = np.zeros(len(ids), PATH_DTYPE)
        made = t.path[ids * PA + PA_FLAGS] & PATH_OF_PATHS != 0
        rows["kind"] = np.where(made, PathKind.OF_PATHS, PathKind.OF_BLOCKS)
        rows["links"] = t.path[ids * PA + PA_LEN]
        rows["instructions"] = t.path_instrs[ids]
        where, owner = spans(t.path[ids * PA + PA_POOL].astype(np.int64), rows["links"].astype(np.int64))
        rows["link"] = self._links + np.cumsum(rows["links"], dtype=np.int64) - rows["links"]
        links = np.zeros(len(where), LINK_DTYPE)
        inside, of_paths = t.pool[where].astype(np.int64), made[owner]
        links["number"][of_paths] = self._path[inside[of_paths]]
        blocks = np.flatnonzero(~of_paths)
        id_, to = inside[blocks], t.pool[where[blocks] + 1].astype(np.int64)
        links["number"][blocks] = self._block[id_] - 1
        branched = (t.block[id_ * BL + BL_KIND] == COND) & (to > 0)
        taken = t.address[t.block[id_ * BL + BL_TAKEN]] == t.address[to]
        links["way"][blocks] = np.where(branched, np.where(taken, Way.TAKEN, Way.NOT_TAKEN), Way.UNKNOWN)
        return rows, links


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
def _instruction_lengths(lo, hi, instructions, where, out):  # type: ignore[no-untyped-def]
    """By the code as it is now. Where that is not as it was, they add up to the range all the same."""
    t = raw_tables(where)
    n = 0
    for r in range(len(lo)):
        here = lo[r]
        b = blob_of(t, here)
        for k in range(instructions[r], 0, -1):
            most = hi[r] - here - (k - 1)
            size = most
            if k > 1 and b >= 0:
                size = min(
                    most,
                    max(1, x86.decode(t.code, t.blob_at[b] + here - t.blob_start[b], t.g[graph.G_CODE_SIZE]) & 0xFF),
                )
            out[n] = min(max(size, 0), 255)
            n += 1
            here += size

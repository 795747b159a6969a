"""The flow stage: segments of a process's threads in, paths out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.snapshot import CodeView
from jvm.code.version import FOREVER
from stages.follow.cfg import block, context, miss_handler, rehash
from stages.follow.cfg.graph import (
    FIRST_BLOCK,
    G_BLOCKS,
    G_CMISSES,
    G_CONTEXT_CACHE,
    G_CONTEXT_FULL,
    G_CUTS,
    G_INTERPRETER_HI,
    G_INTERPRETER_LO,
    G_MISSES,
    G_NODES,
    G_PATHS,
    G_TNT_CACHE,
    G_WINDOW_BYTES,
    G_WINDOWS,
    TC,
    WC_WORDS,
    Tables,
)
from stages.follow.cfg.tables import Capacity, empty, enlarged
from stages.follow.code import invalidation
from stages.follow.code.code_copy import Code, Image
from stages.follow.code.jumps import NO_JUMPS, Jumps
from stages.follow.walk import path_sequence as orders
from stages.follow.walk.path_counts import NOTHING, PathCounts, spread
from stages.follow.walk.segment_walk import NEVER, RESOLVED_DTYPE, Buffers, Piece, Thread
from stages.follow.walk.state import B_END, BREAK_NAMES, CALL_UPDATED, CONTRADICTION, DONE, PAUSED, TABLES_FULL, X_AT
from stages.messages import PtConfig, Segment, ThreadKey
from stages.messages.paths import BREAK_DTYPE, STOP_DTYPE

__all__ = ["BREAK_DTYPE", "RESOLVED_DTYPE", "Capacity", "Flow", "FlowOutput", "Spent"]


class Spent(NamedTuple):
    """Instructions and TSC ticks by address range; a range may come several times."""

    lo: NDArray[np.uint64]
    hi: NDArray[np.uint64]
    instructions: NDArray[np.int64]
    ticks: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FlowOutput:
    """The control flow of one thread in one piece of a segment."""

    thread: ThreadKey
    tables: Tables  # the meaning of the ids in `order`; append-only, so this stays valid after code has changed
    order: NDArray[np.int32]  # see stages.follow.walk.path_sequence
    stops: NDArray[np.void]  # STOP_DTYPE: the times of places in `order`, from its beginning to its end
    breaks: NDArray[np.void]  # BREAK_DTYPE: where `order` breaks off, why, where the walker was, where it goes on,
    # and from where on the paths before are suspect: none was confirmed, and then they were contradicted
    paths: NDArray[np.int64]  # the different paths in `order`, without the suspect ones
    times: NDArray[np.int64]  # how often each was taken
    ticks: NDArray[np.float64]  # TSC ticks spent in each
    suspect_instructions: int
    suspect_bytes: int  # of trace
    resolved: NDArray[np.void]  # RESOLVED_DTYPE: where resolvers went; see `Flow.jumps`
    end: int  # position in the stream up to which packets were taken
    whole: bool  # the piece ends with it; else bits of the last packet may be left for the next output

    @property
    def observed(self) -> NDArray[np.int32]:
        """`order` without its suspect parts."""
        return orders.observed(self.order, self.breaks["confirmed"], self.breaks["order"])

    def spent(self) -> Spent:
        """The paths broken up into address ranges."""
        none, nothing = np.empty(0, np.int64), np.empty(0, np.float64)
        args = (self.paths, self.times, self.ticks, self.tables.raw())
        n = int(spread(*args, none, none, none, nothing))
        lo, hi, instrs, ticks = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        if n:
            spread(*args, lo, hi, instrs, ticks)
        return Spent(lo.view(np.uint64), hi.view(np.uint64), instrs, ticks)


Search = Callable[[ThreadKey, Piece], bool]
"""Called at a contradiction, with the walker at the last packet before it that carried an address. True: something was
done about it (`Flow.patch`), walk again; False: the walk breaks off here."""
TRIES = 3  # without getting any further
MOST_DEAD = 1 << 14  # blocks without code; when they are more, and more than the others, tables are renewed
SLICE = 1 << 15
"""Bytes of trace, about, that are walked in one step: met for the first time they take some milliseconds."""


class Flow:
    """Follows the threads of one process through its code.

    `context=False` leaves calling contexts out, `count_paths=False` how often each path was taken (then the statistics
    have no instructions either). Not thread-safe; different processes' flows share nothing, and so
    do a stream's parts between PSBs, given a Flow each.
    """

    def __init__(
        self,
        config: PtConfig | None = None,
        *,
        context: bool = True,
        count_paths: bool = True,
        capacity: Capacity | None = None,
    ) -> None:
        self._config = config or PtConfig()
        self._context, self._counts_paths = context, count_paths
        self._capacity = capacity or Capacity()
        self._capacity.check()
        self._threads: dict[ThreadKey, Thread] = {}
        self._image = Image()
        self._jumps = NO_JUMPS
        self._buffers = Buffers()
        self._unsettled = 0  # steps of contexts
        self._sums = dict.fromkeys(
            ("bytes", "window_bytes", "symbols", "paths_taken", "instructions", "misses", "context_misses",
             "context_full", "generations", "code_changes", "died", "patches", "trapped",
             "suspect_instructions", "suspect_bytes"),
            0,
        )  # fmt: skip
        self._break_kinds = np.zeros(B_END, np.int64)
        self.search: Search | None = None
        self.call_updated: Callable[[Piece], bool] | None = None
        """Told, where contradictions are trapped, right behind a packet by which `FlowOutput.resolved` got another
        row. False: the call on top of the stack does not lead there, so the walk has been wrong before."""
        self._new_tables()

    # -- code

    def set_code(self, view: CodeView) -> None:
        """From now on code is as in `view`. All that depended on other bytes is forgotten. The cost grows with the
        difference from the view before, if both show one code image (see `stages.follow.code.code_copy`); else all
        bytes are compared."""
        changes = self._image.update(view)
        code = self._image.code
        start, end, at, buffer = code.words()
        tables = self._tables._replace(code=buffer, blob_start=start, blob_end=end, blob_at=at)
        self._use(tables, (self._tables, self._raw))
        if len(changes.lo) or changes.grown:
            self._sums["code_changes"] += 1
            self._forget_code(changes.lo.view(np.int64), changes.hi.view(np.int64), changes.grown)

    def patch(self, address: int, data: bytes, tsc: int = FOREVER) -> None:
        """Change bytes of the code where it stands, as at `tsc`, until a view says otherwise. Raises ValueError if no
        blob holds them all."""
        self._image.patch(address, data, tsc)
        self._sums["patches"] += 1
        self.walk_anew(address, len(data))

    def restore(self, before: int) -> int:
        """Put the view's bytes back where patches were made before so and so; at how many places."""
        changes = self._image.restore(before)
        if len(changes.lo):
            self._forget_code(changes.lo.view(np.int64), changes.hi.view(np.int64), False)
        return len(changes.lo)

    def walk_anew(self, address: int, size: int) -> None:
        """Forget all that depends on the code there, which stays as it is."""
        lo = np.array([address], np.uint64).view(np.int64)
        self._forget_code(lo, lo + size, False)

    def bytes_at(self, address: int, size: int) -> bytes:
        """As many of the `size` bytes of code at `address` as there are."""
        return self._image.bytes_at(address, size)

    @property
    def code(self) -> Code:
        """The code as it is now; patches change it in place."""
        return self._image.code

    @property
    def jumps(self) -> Jumps:
        """The kinds of indirect jumps. Where those went that teach is in `FlowOutput.resolved`, with the return address
        on top of the stack; target 0: that an adapter called the routine that fixes the call."""
        return self._jumps

    @jumps.setter
    def jumps(self, jumps: Jumps) -> None:
        if all(new is old or np.array_equal(new, old) for new, old in zip(jumps, self._jumps, strict=True)):
            return
        before, self._jumps = self._jumps, jumps
        tables = self._tables._replace(jump=jumps.ranges.reshape(-1), entry=jumps.entries)
        self._use(tables, (self._tables, self._raw))
        g = self._tables.g
        g[G_INTERPRETER_LO], g[G_INTERPRETER_HI] = jumps.interpreter
        same = np.array_equal(before.ranges, jumps.ranges)
        if np.array_equal(before.interpreter, jumps.interpreter):
            rows = set() if same else set(map(tuple, before.ranges.tolist())) ^ set(map(tuple, jumps.ranges.tolist()))
            changed = np.array(sorted(rows), np.int64).reshape(-1, 3)
        else:
            changed = np.concatenate((before.ranges, jumps.ranges))
        self._forget_code(changed[:, 0].copy(), changed[:, 1].copy(), False)

    def _forget_code(self, lo: NDArray[np.int64], hi: NDArray[np.int64], grown: bool) -> None:
        dead = int(invalidation.invalidate(self._raw, lo, hi, grown))
        self._sums["died"] += dead
        self._dead += dead

    def _new_tables(self) -> None:
        """A new generation: empty tables. Calling contexts go with them."""
        c = self._capacity
        self._use(empty(c, self._image.code, self._jumps, self._config, self._context))
        self._path_counts = PathCounts(c.paths)
        self._dead = 0  # blocks in them

    @property
    def tables(self) -> Tables:
        """As they are now; arrays are replaced as they grow."""
        return self._tables

    def settle_contexts(self) -> None:
        """Bring `Tables.node_instrs` up to date."""
        context.settle(self._raw)
        self._unsettled = 0

    def _use(self, tables: Tables, before: tuple[Tables, NDArray[np.int64]] | None = None) -> None:
        self._raw = tables.raw(miss_handler.address(), before)
        self._tables = tables

    def _root(self) -> int:
        g = self._tables.g
        if not self._context or g[G_NODES] >= self._capacity.nodes:
            return 1
        g[G_NODES] += 1
        return int(g[G_NODES]) - 1

    def _enlarge(self) -> bool:
        """Make room in the hash table that is full, if one is and may grow."""
        more = enlarged(self._tables, self._capacity)
        if more is not None:
            self._use(more)
        return more is not None

    def _renew(self) -> None:
        """A new generation: every thread goes on where it stood, its contexts begin anew."""
        old = self._tables
        self._collect()
        self._sums["generations"] += 1
        self._new_tables()
        for thread in self._threads.values():
            x = thread.x
            here = old.address[np.append(thread.ring, x[X_AT])]
            block.intern_all(self._raw, here)
            thread.ring[:] = here[:-1]
            if x[X_AT] >= FIRST_BLOCK:
                x[X_AT] = here[-1]
            thread.begin_context(self._root())

    def _collect(self) -> None:
        g = self._tables.g
        for name, column in (
            ("misses", G_MISSES), ("context_misses", G_CMISSES), ("context_full", G_CONTEXT_FULL),
            ("window_bytes", G_WINDOW_BYTES),
        ):  # fmt: skip
            self._sums[name] += int(g[column])
            g[column] = 0

    # -- segments

    def feed(self, segment: Segment) -> list[FlowOutput]:
        """Walk one piece of a segment. Usually one output; more where tables had to be renewed in the middle.

        Positions in breaks are stream offsets.
        """
        return [output for output in self.steps(segment) if output is not None]

    def steps(self, segment: Segment) -> Iterator[FlowOutput | None]:
        """`feed` in steps of which none takes long, where there is a `search`; None behind each but the last. Nothing
        else may be fed, and no code set, until it has come to its end."""
        if self._dead > max(MOST_DEAD, int(self._tables.g[G_BLOCKS]) // 2):
            self._renew()
        thread = self._threads.get(segment.thread)
        if thread is None:
            thread = self._threads[segment.thread] = Thread(self._root())
        if not segment.continues:
            thread.lose()
        yield from self._walk(segment.thread, Piece(thread, self._buffers, segment))

    def run(self, piece: Piece, end: int = NEVER, *, trap: int = 0, pause: int = NEVER) -> int:
        """Walk on, to `end` (where a packet begins) at most. Contradictions are trapped from the position `trap` on.
        DONE; CONTRADICTION: `piece` tells of it, and the walker is back where it last was sure; PAUSED: at `pause`, or
        some packets behind it; OUTPUT_FULL, TABLES_FULL."""
        while True:
            result = piece.run(self._raw, trap, end, pause)
            if result != TABLES_FULL or not self._enlarge():
                return result

    def _walk(self, key: ThreadKey, piece: Piece) -> Iterator[FlowOutput | None]:
        self._sums["bytes"] += piece.size
        trap = NEVER if self.search is None else 0
        before, tries = -1, 0
        while True:
            result = self.run(piece, trap=trap, pause=piece.position + SLICE)
            if result == PAUSED:
                yield None
                continue
            if result == CONTRADICTION and self.search is not None:
                yield None
                self._sums["trapped"] += 1
                tries = tries + 1 if piece.contradicted <= before else 0
                before = max(before, piece.contradicted)
                if tries > TRIES or not self.search(key, piece):
                    trap, tries = before + 1, 0
                piece.believe()
                yield None
                continue
            if result == CALL_UPDATED:
                if self.call_updated is not None and not self.call_updated(piece):
                    jump = int(piece.resolved["offset"][-1]) - piece.offset
                    if jump >= trap:
                        piece.doubt(jump)
                continue
            yield self._output(key, piece, result == DONE)
            if result == DONE:
                return
            if result == TABLES_FULL:
                self._renew()
            piece.begin_output()

    def _output(self, key: ThreadKey, piece: Piece, whole: bool) -> FlowOutput:
        order, breaks, resolved = piece.order, piece.breaks, piece.resolved
        at, ticks, times = piece.charge(whole)
        stops = np.zeros(len(at), STOP_DTYPE)
        stops["order"], stops["tsc"] = at, times.view(np.uint64)
        t = self._tables
        certain, suspect, lost = order, 0, 0
        if len(breaks):
            self._break_kinds += np.bincount(breaks["cause"], minlength=B_END)
            lost = int((breaks["offset"] - breaks["confirmed_offset"]).astype(np.int64).sum())
            if (breaks["confirmed"] < breaks["order"]).any():
                certain = orders.observed(order, breaks["confirmed"], breaks["order"])
                gone = np.concatenate([order[a:b] for a, b in zip(breaks["confirmed"], breaks["order"], strict=True)])
                suspect = int(t.path_instrs[orders.paths(gone)].sum())
                at = orders.moved(at, breaks["confirmed"], breaks["order"]) if self._counts_paths else at
                resolved = resolved[~orders.inside(resolved["order"], breaks["confirmed"], breaks["order"])]
        spent = self._path_counts(t, certain, at, ticks) if self._counts_paths else NOTHING
        if self._context:
            self._fold(piece.thread, certain)
        for name, more in (
            ("symbols", len(order)), ("paths_taken", spent.taken),
            ("instructions", spent.instructions),
            ("suspect_instructions", suspect), ("suspect_bytes", lost),
        ):  # fmt: skip
            self._sums[name] += more
        end = piece.offset + (piece.size if whole else piece.position)
        return FlowOutput(key, t, order, stops, breaks, *spent[:3], suspect, lost, resolved, end, whole)

    def _fold(self, thread: Thread, order: NDArray[np.int32]) -> None:
        at = 0
        self._unsettled += len(order)
        if self._unsettled > context.UNSETTLED:
            self.settle_contexts()
        while True:
            contexts = len(self._tables.context_cache) // 2
            more = contexts < self._capacity.contexts
            at = int(context.fold(self._raw, thread.context, order, at, more))
            if at == len(order):
                return
            self._tables.last_step[: 2 * int(self._tables.g[G_PATHS])] = 0  # it names slots
            self._use(self._tables._replace(context_cache=rehash.pairs(self._tables.context_cache, 2 * contexts)))

    def forget(self, thread: ThreadKey) -> None:
        """The thread has ended."""
        self._threads.pop(thread, None)

    # -- its findings

    def statistics(self) -> dict[str, float]:
        self._collect()
        g = self._tables.g
        s = self._sums
        names = ("none", *BREAK_NAMES)
        return {
            **{k: float(v) for k, v in s.items()},
            "blocks": float(g[G_BLOCKS]),
            "paths": float(g[G_PATHS]),
            "threads": float(len(self._threads)),
            "tnt_cache": float(g[G_TNT_CACHE]),
            "tnt_cache_slots": float(len(self._tables.tnt_cache) // TC),
            "windows": float(g[G_WINDOWS]),
            "window_slots": float(len(self._tables.windows) // WC_WORDS),
            "cuts": float(g[G_CUTS]),
            "nodes": float(g[G_NODES]) if self._context else 0.0,
            "contexts": float(g[G_CONTEXT_CACHE]),
            "bytes_of_tables": float(sum(a.nbytes for a in self._tables)),
            **{f"break_{names[k]}": float(v) for k, v in enumerate(self._break_kinds) if k},
        }

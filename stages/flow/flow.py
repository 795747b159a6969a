"""The flow stage: segments of a process's threads in, paths out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.codeview import CodeView
from stages.flow import code, graph, kernel, memo, rehash
from stages.flow import order as orders
from stages.flow.context import NO
from stages.flow.graph import (
    DISABLED,
    G_CMEMO,
    G_CMISSES,
    G_CONTEXT_FULL,
    G_CUTS,
    G_FILTER_HI,
    G_FILTER_LO,
    G_MEMO,
    G_MISSES,
    G_NODES,
    G_NORETCOMP,
    G_PATHS,
    G_SIZE,
    G_STRETCHES,
    LOST,
    ME,
    P_FIRST,
    PA,
    PACKET_PATHS,
    PACKET_STRETCHES,
    S_DISABLED,
    S_FIRST,
    S_LOST,
    ST,
    ST_KIND,
    Tables,
)
from stages.flow.raw import addresses
from stages.messages import PtConfig, Segment, ThreadKey

BREAK_DTYPE = np.dtype(
    [("order", "<i8"), ("offset", "<i8"), ("cause", "<i8"), ("at", "<i8"), ("ip", "<i8")]
)  # fmt: skip


class Capacity(NamedTuple):
    """Bounds of the tables, in entries; memo and contexts: powers of two. Memory is touched as it is used."""

    stretches: int = 1 << 18
    paths: int = 1 << 19
    memo: int = 1 << 20
    pool: int = 1 << 23
    nodes: int = 1 << 18
    contexts: int = 1 << 20

    def check(self) -> None:
        least = 4 * PACKET_STRETCHES
        if self.stretches < least or self.pool < 2 * least or self.paths < 1024 or self.memo < 4096:
            raise ValueError("flow tables too small to hold what one packet can need")
        if self.stretches > 1 << 22:
            raise ValueError("more stretches than memo keys can name")


class Spent(NamedTuple):
    """Instructions and TSC ticks by address range; a range may come several times."""

    lo: NDArray[np.uint64]
    hi: NDArray[np.uint64]
    instructions: NDArray[np.int64]
    ticks: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FlowOutput:
    """What one thread did in one piece of a segment."""

    thread: ThreadKey
    tables: Tables  # what the ids in `order` mean; append-only, so this stays valid after code has changed
    order: NDArray[np.int32]  # see stages.flow.order
    breaks: NDArray[np.void]  # BREAK_DTYPE: where `order` breaks off, why, where the walker was, where it goes on
    paths: NDArray[np.int64]  # the different paths in `order`
    times: NDArray[np.int64]  # how often each was taken
    ticks: NDArray[np.float64]  # TSC ticks spent in each

    def spent(self) -> Spent:
        """The paths broken up into address ranges."""
        none, nothing = np.empty(0, np.int64), np.empty(0, np.float64)
        args = (self.paths, self.times, self.ticks, self.tables.raw())
        n = int(orders.spread(*args, none, none, none, nothing))
        lo, hi, instrs, ticks = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        if n:
            orders.spread(*args, lo, hi, instrs, ticks)
        return Spent(lo.view(np.uint64), hi.view(np.uint64), instrs, ticks)


class _Thread:
    def __init__(self, root: int, context: bool) -> None:
        self.x = np.zeros(kernel.X_SIZE, np.int64)
        self.ring = np.zeros(graph.SLOTS, np.int32)
        self.x[kernel.X_ROOT] = self.x[kernel.X_NODE] = root
        self.x[kernel.X_CONTEXT] = context

    def lose(self) -> None:
        """There is a hole: nothing is known of where the thread is, or who called it."""
        x = self.x
        x[kernel.X_AT] = S_LOST
        x[kernel.X_PENDING] = x[kernel.X_FUP] = x[kernel.X_MODE] = x[kernel.X_DEPTH] = 0
        x[kernel.X_NODE] = x[kernel.X_ROOT]


class Flow:
    """Follows the threads of one process through its code.

    `context=False` leaves calling contexts out. Not thread-safe; different processes' flows share nothing, and so
    do a stream's parts between PSBs, given a Flow each.
    """

    def __init__(
        self, config: PtConfig | None = None, *, context: bool = True, capacity: Capacity | None = None
    ) -> None:
        self._config = config or PtConfig()
        self._context = context
        self._capacity = capacity or Capacity()
        self._capacity.check()
        self._threads: dict[ThreadKey, _Thread] = {}
        self._code = code.of(CodeView.of([]))
        self._epoch = -1
        self._buffer = np.zeros(1 << 16, np.uint8)
        self._order = np.empty(1 << 16, np.int32)
        self._breaks = np.empty(kernel.BREAKS * kernel.BR, np.int64)
        self._sums = dict.fromkeys(
            ("bytes", "symbols", "instructions", "misses", "context_misses", "context_full", "generations",
             "code_changes", "died"),
            0,
        )  # fmt: skip
        self._break_kinds = np.zeros(kernel.B_END, np.int64)
        self._new_tables()

    # -- code

    def set_code(self, view: CodeView) -> None:
        """From now on code is as in `view`. What depended on other bytes is forgotten; batch changes where possible:
        a call costs a comparison of all bytes, and a pass over the memo if something known has changed."""
        new = code.of(view)
        lo, hi = code.differences(self._code, new)
        grown = len(new.start) != len(self._code.start) or not np.array_equal(new.end, self._code.end)
        self._code = new
        self._use(self._tables._replace(code=new.code, blob_start=new.start, blob_end=new.end, blob_at=new.data_at))
        self._epoch = view.epoch
        if len(lo) or grown:
            self._sums["code_changes"] += 1
            self._sums["died"] += int(memo.invalidate(self._raw, int(self._tables.g[G_STRETCHES]), lo, hi))

    def _new_tables(self) -> None:
        """A new generation: empty tables. Calling contexts go with them."""
        c = self._capacity
        g = np.zeros(G_SIZE, np.int64)
        g[G_STRETCHES], g[G_PATHS], g[G_NODES] = S_FIRST, P_FIRST, 1
        g[G_FILTER_LO] = np.uint64(self._config.filter_lo).view(np.int64)
        g[G_FILTER_HI] = np.uint64(self._config.filter_hi).view(np.int64)
        g[G_NORETCOMP] = self._config.noretcomp
        small = min(c.memo, 1 << 14)
        contexts = min(c.contexts, 1 << 14)
        tables = Tables(
            code=self._code.code,
            blob_start=self._code.start,
            blob_end=self._code.end,
            blob_at=self._code.data_at,
            g=g,
            stretch=np.zeros(c.stretches * ST, np.int32),
            address=np.zeros(c.stretches, np.int64),
            last=np.zeros(c.stretches, np.int64),
            by_address=np.zeros(2 << 15, np.int64),
            by_cut=np.zeros(1 << 14, np.int32),
            memo=np.zeros(small * ME, np.int32),
            path=np.zeros(c.paths * PA, np.int32),
            path_instrs=np.zeros(c.paths, np.int64),
            pool=np.zeros(c.pool, np.int32),
            ranges=np.zeros(3 * 2 * c.stretches, np.int64),
            node=np.zeros((c.nodes if self._context else 2) * NO, np.int32),
            by_call=np.zeros(2 * 2 * c.nodes if self._context else 4, np.int64),
            cmemo=np.zeros(2 * contexts if self._context else 4, np.int64),
            node_instrs=np.zeros(c.nodes if self._context else 2, np.int64),
        )
        tables.stretch[S_LOST * ST + ST_KIND] = LOST
        tables.stretch[S_DISABLED * ST + ST_KIND] = DISABLED
        self._use(tables)
        self._times = np.zeros(c.paths, np.int64)
        self._ticks = np.zeros(c.paths, np.float64)
        self._seen = np.zeros(c.paths, np.int64)

    def _use(self, tables: Tables) -> None:
        self._tables = tables
        self._raw = tables.raw()

    def _root(self) -> int:
        g = self._tables.g
        if not self._context or g[G_NODES] >= self._capacity.nodes:
            return 1
        g[G_NODES] += 1
        return int(g[G_NODES]) - 1

    def _enlarge(self) -> bool:
        """Double the hash table that is full, if one is and may grow: ids stay what they are."""
        t, c = self._tables, self._capacity
        slots, addresses, contexts = len(t.memo) // ME, len(t.by_address) // 2, len(t.cmemo) // 2
        g = t.g
        if 2 * (g[G_MEMO] + 2 * PACKET_PATHS) >= slots - 1 and slots < c.memo:
            self._use(t._replace(memo=rehash.memo(t.memo, 2 * slots)))
        elif 4 * (g[G_STRETCHES] + 2 * PACKET_STRETCHES) >= 3 * (addresses - 1) and addresses < 2 * c.stretches:
            self._use(t._replace(by_address=rehash.pairs(t.by_address, 2 * addresses)))
        elif 3 * (g[G_CMEMO] + 2 * kernel.STRIDE) >= 2 * contexts and contexts < c.contexts:
            self._use(t._replace(cmemo=rehash.pairs(t.cmemo, 2 * contexts)))
        else:
            return False
        return True

    def _renew(self) -> None:
        """A new generation: every thread goes on where it stood, its contexts begin anew."""
        old = self._tables
        self._collect()
        self._sums["generations"] += 1
        self._new_tables()
        for thread in self._threads.values():
            x = thread.x
            here = old.address[np.append(thread.ring, x[kernel.X_AT])]
            graph.intern_all(self._raw, here)
            thread.ring[:] = here[:-1]
            if x[kernel.X_AT] >= S_FIRST:
                x[kernel.X_AT] = here[-1]
            x[kernel.X_ROOT] = x[kernel.X_NODE] = self._root()

    def _collect(self) -> None:
        g = self._tables.g
        for name, column in (("misses", G_MISSES), ("context_misses", G_CMISSES), ("context_full", G_CONTEXT_FULL)):
            self._sums[name] += int(g[column])
            g[column] = 0

    # -- segments

    def feed(self, segment: Segment) -> list[FlowOutput]:
        """Walk one piece of a segment. Usually one output; more where tables had to be renewed in the middle.

        Positions in breaks are stream offsets.
        """
        thread = self._threads.get(segment.thread)
        if thread is None:
            thread = self._threads[segment.thread] = _Thread(self._root(), self._context)
        if not segment.continues:
            thread.lose()
        x = thread.x
        x[kernel.X_LAST_IP] = np.uint64(segment.last_ip).view(np.int64)
        marks = segment.marks
        timed = marks[marks["tsc"] > 0]
        stops = np.clip(timed["offset"].astype(np.int64) - segment.offset, 0, len(segment.data))
        tsc = np.concatenate(([segment.tsc], timed["tsc"].astype(np.int64), [segment.tsc_end])).astype(np.int64)
        return self.walk(thread, segment.thread, segment.data, segment.offset, stops, tsc)

    def walk(
        self,
        thread: _Thread,
        key: ThreadKey,
        data: NDArray[np.uint8],
        offset: int,
        stops: NDArray[np.int64],
        tsc: NDArray[np.int64],
    ) -> list[FlowOutput]:
        """`feed` without the message: at `stops` (ascending, in `data`) it is `tsc[1:-1]`, at the ends tsc[0], [-1]."""
        size = len(data)
        if size + 32 > len(self._buffer):
            self._buffer = np.zeros(size + 32, np.uint8)
        if 2 * size + 4096 > len(self._order):
            self._order = np.empty(2 * size + 4096, np.int32)
        self._buffer[:size] = data
        self._buffer[size : size + 32] = 0
        self._sums["bytes"] += size
        x = thread.x
        x[kernel.X_POS] = x[kernel.X_OUT] = x[kernel.X_BREAKS] = 0
        stop_at = np.full(len(stops), -1, np.int64)
        ticks = np.maximum(np.diff(tsc), 0)
        io = np.zeros(10, np.int64)
        io[:5] = addresses(x, thread.ring, self._order, self._breaks, self._buffer)
        io[5] = size
        io[6:8] = addresses(stops, stop_at)
        io[8] = len(stops)
        x[kernel.X_ROOM] = len(self._order)
        done = 0  # stops accounted for
        out: list[FlowOutput] = []
        while True:
            io[9] = self._context and len(self._tables.cmemo) // 2 < self._capacity.contexts
            result = kernel.run(self._raw, io)
            if result == kernel.TABLES_FULL and self._enlarge():
                continue
            reached = int(np.count_nonzero(stop_at >= 0))
            at = np.concatenate(([0], stop_at[done:reached], x[kernel.X_OUT : kernel.X_OUT + 1]))
            spent = ticks[done : reached + 1].copy()
            if result != kernel.DONE:
                spent[-1] = 0  # the interval goes on in the next output, which is charged with all of it
            done = reached
            out.append(self._output(key, x, offset, at, spent))
            if result == kernel.DONE:
                return out
            x[kernel.X_OUT] = x[kernel.X_BREAKS] = 0
            if result == kernel.TABLES_FULL:
                self._renew()

    def _output(
        self, key: ThreadKey, x: NDArray[np.int64], offset: int, at: NDArray[np.int64], spent: NDArray[np.int64]
    ) -> FlowOutput:
        order = self._order[: x[kernel.X_OUT]].copy()
        breaks = self._breaks[: x[kernel.X_BREAKS] * kernel.BR].copy().view(BREAK_DTYPE)
        breaks["offset"] += offset
        self._break_kinds += np.bincount(breaks["cause"], minlength=kernel.B_END)
        n = orders.tally(order, at, spent, self._tables.path_instrs, self._times, self._ticks, self._seen)
        seen = self._seen[:n].copy()
        times, ticks = self._times[seen], self._ticks[seen]
        self._times[seen] = 0
        self._ticks[seen] = 0
        self._sums["symbols"] += len(order)
        self._sums["instructions"] += int(times @ self._tables.path_instrs[seen])
        return FlowOutput(key, self._tables, order, breaks, seen, times, ticks)

    def forget(self, thread: ThreadKey) -> None:
        """The thread has ended."""
        self._threads.pop(thread, None)

    # -- what it has found out

    def statistics(self) -> dict[str, float]:
        self._collect()
        g = self._tables.g
        s = self._sums
        names = ("none", *kernel.BREAK_NAMES)
        return {
            **{k: float(v) for k, v in s.items()},
            "hit_rate": 1 - s["misses"] / max(s["symbols"], 1),
            "stretches": float(g[G_STRETCHES]),
            "paths": float(g[G_PATHS]),
            "memo": float(g[G_MEMO]),
            "memo_slots": float(len(self._tables.memo) // ME),
            "cuts": float(g[G_CUTS]),
            "nodes": float(g[G_NODES]) if self._context else 0.0,
            "contexts": float(g[G_CMEMO]),
            "bytes_of_tables": float(sum(a.nbytes for a in self._tables)),
            **{f"break_{names[k]}": float(v) for k, v in enumerate(self._break_kinds) if k},
        }

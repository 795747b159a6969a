"""Holes in the control flow of threads, filled with what threads did at another time (docs/recovery.md).

All that comes in is passed on. A hole waits until its pane closes, so that what came behind it can be its source as
well as what came before; its filling goes out before the watermark that closes the pane.

To write control flow into the window costs many times what it costs to follow it, and without a hole nobody looks at
it. So messages are kept as they are (`later.py`), as many as the window has room for; they are written when a hole
comes, and from then on at once, as long as a hole waits.

A live process does not wait. Where the stage is behind (`stages.shed`), or its kernels are not compiled, holes stay
empty, at next to no cost, and the window begins anew behind that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.images import Images, Process, ProcessKey
from stages.messages import (
    Arrival,
    EndOfStream,
    JitBatch,
    Loss,
    Paths,
    Pieces,
    StreamEnd,
    StreamKey,
    StreamOpen,
    ThreadEnd,
    Watermark,
)
from stages.messages.paths import Provenance
from stages.messages.recovered import FILLING_DTYPE, Recovered
from stages.paths.dictionary import Dictionary
from stages.recover import append, filling, guess, window
from stages.recover.append import AC, FC, PACE, RC, TC
from stages.recover.filling import HC
from stages.recover.guess import Edges
from stages.recover.later import Later
from stages.recover.trace_size import EncodedBlocks
from stages.recover.window import LONGEST, WAYS, Window
from stages.shed import Shedder

I64 = NDArray[np.int64]
MOST_WAITING = 4096
"""Holes of a process. With more, or when a quarter of the window has come since the first, they wait no longer."""
AT_ONCE = 1 << 20
"""Steps that are added in one step of the stage."""
EDGES_AT_ONCE = 1 << 20
"""Steps of which edges are counted in one step of the stage."""
NO_GUESSES: Mapping[int, NDArray[np.int32]] = {}
MOST_LOST = 1 << 40
"""Bytes of one loss that are believed."""
WAITING_DTYPE = np.dtype(
    [("hole", "<i8", (HC,)), ("cause", "<i4"), ("_", "<i4"), ("offset", "<u8"), ("tsc", "<u8"), ("tsc_end", "<u8")]
)  # fmt: skip


@dataclass(slots=True)
class Recovering:
    """One process. Threads go with their ThreadEnd, the window and what waits for it with the generation."""

    process: Process
    window: Window
    dictionary: Dictionary = field(default_factory=Dictionary)
    blocks: EncodedBlocks = field(default_factory=EncodedBlocks)
    threads: I64 = field(default_factory=lambda: np.zeros((16, TC), np.int64))
    recents: NDArray[np.int32] = field(default_factory=lambda: np.zeros((16, LONGEST), np.int32))
    paces: NDArray[np.float64] = field(default_factory=lambda: np.zeros((16, PACE)))
    slot: dict[int, int] = field(default_factory=dict)  # by tid
    free: list[int] = field(default_factory=list)
    streams: dict[StreamKey, int] = field(default_factory=dict)  # bytes up to there had rows, or were lost
    waiting: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, WAITING_DTYPE))
    closed: int = -1
    edges: Edges = field(default_factory=guess.empty)
    later: Later = field(default_factory=Later)  # not in the window yet
    shedder: Shedder | None = None  # None: it may take as long as it takes
    drained: int = 0  # the newest drain that has been heard of


class Recover:
    """Paths → Paths, Recovered. All else passes."""

    def __init__(
        self, images: Images | None = None, *, window_bytes: int = 64 << 20, pane_seconds: float = 1.0,
        pane_ticks: int = 0, holes_at_once: int = 16, search: Callable[[Window, I64, int, int], None] = filling.fill,
        now: Callable[[], int] | None = None, most_behind_seconds: float = 0.125,
        ready: Callable[[], bool] | None = None, guesses: bool = False,
    ) -> None:  # fmt: skip
        """`window_bytes`: of each process's window. `holes_at_once`: so many are searched for in one step, by
        `search`. Seconds become ticks by the first stream's clock, unless ticks are given: as in `Profile`. `now`,
        `most_behind_seconds`, `ready`: as of `Reconstruct`. `guesses`: a likely way through a hole that nothing
        fills."""
        self.images = images or Images()
        self.counts: Counter[str] = Counter()
        self._bytes, self._at_once, self._search = window_bytes, holes_at_once, search
        self._pane_seconds, self._pane_ticks = pane_seconds, pane_ticks
        self._guesses = guesses
        self._now, self._most_behind_seconds, self._ready = now, most_behind_seconds, ready or (lambda: True)
        self._processes: dict[ProcessKey, Recovering] = {}

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps: None between two of them."""
        match message:
            case Paths():
                p = self._of(message.host, message.pid)
                p.drained = message.drained
                yield from self._add(p, message)
                return
            case Pieces():  # shed
                self._of(message.host, message.pid).drained = message.drained
            case Watermark():
                p = self._of(message.host, message.pid)
                done = message.tsc // self._ticks(p) - 1
                if p.process.clocked and done > p.closed and done >= 0:
                    p.closed = done
                    yield from self._fill(p, (done + 1) * self._ticks(p))
                self.images.take(message)
            case JitBatch() | StreamOpen():
                yield from self.images.steps(message)
            case StreamEnd():
                if p_ := self._processes.get((message.stream.host, message.stream.pid)):
                    p_.streams.pop(message.stream, None)
            case ThreadEnd():
                if p_ := self._processes.get(message.thread[:2]):
                    if not len(p_.later):
                        self._forget(p_, message.thread.tid)
                    p_.later.end(message.thread.tid)
            case EndOfStream():
                yield from self.flush_steps()
        yield message

    def flush(self) -> list[object]:
        """Nothing more comes: every hole is told."""
        return [out for out in self.flush_steps() if out is not None]

    def flush_steps(self) -> Iterator[object]:
        """`flush` in steps, as `steps`."""
        for p in self._processes.values():
            yield from self._fill(p)

    def statistics(self) -> dict[str, int | float]:
        processes = self._processes.values()
        return {
            **{f"recover_{name}": n for name, n in sorted(self.counts.items())},
            "recover_threads": sum(len(p.slot) for p in processes),
            "recover_waiting": sum(len(p.waiting) for p in processes),
            "recover_later_steps": sum(p.later.steps for p in processes),
            "recover_window_bytes": sum(array.nbytes for p in processes for array in p.window),
            **self.images.statistics(),
        }

    def introduce(self) -> list[object]:
        """A receiver has begun anew: `Follow` begins a new generation for it."""
        return self.images.introduce()

    def _of(self, host: str, pid: int) -> Recovering:
        known = self._processes.get((host, pid))
        if known is None:
            known = self._processes[host, pid] = Recovering(self.images.of(host, pid), window.empty(self._bytes))
        if self._now is not None and known.shedder is None and known.process.clocked:
            known.shedder = Shedder(self._now, round(self._most_behind_seconds * known.process.hz))
        return known

    def _late(self, p: Recovering) -> bool:
        return not self._ready() or (p.shedder is not None and p.shedder.behind(p.drained))

    def _ticks(self, p: Recovering) -> int:
        """Of a pane."""
        return self._pane_ticks or max(1, round(self._pane_seconds * p.process.hz))

    def _slot(self, p: Recovering, tid: int) -> int:
        slot = p.slot.get(tid)
        if slot is None:
            slot = p.slot[tid] = p.free.pop() if p.free else len(p.slot)
            if slot >= len(p.threads):
                p.threads = np.concatenate((p.threads, np.zeros_like(p.threads)))
                p.recents = np.concatenate((p.recents, np.zeros_like(p.recents)))
                p.paces = np.concatenate((p.paces, np.zeros_like(p.paces)))
            p.threads[slot], p.threads[slot, append.T_END], p.paces[slot] = 0, -1, 0
        return slot

    # What ran

    def _add(self, p: Recovering, message: Paths) -> Iterator[object]:
        if message.generation != p.dictionary.generation:
            yield from self._fill(p)  # their numbers still mean what they did
            p.window.size[:] = 0
            p.blocks = EncodedBlocks()
            p.window.head[:] = 0
            p.slot.clear()
            p.free.clear()
            p.later, p.edges = Later(), guess.empty()
        p.dictionary.take(message)
        holes = p.later.add(message, p.dictionary)
        yield message
        if self._late(p):
            self.counts["holes_not_looked_for"] += len(holes)
            yield from self._give_way(p)
        elif holes or len(p.waiting):
            yield from self._write(p, holes)
        else:
            self._drop(p, len(p.window.steps))

    def _forget(self, p: Recovering, tid: int) -> None:
        for each in (tid, ~tid):
            slot = p.slot.pop(each, None)
            if slot is not None:
                p.free.append(slot)

    def _drop(self, p: Recovering, most: int) -> None:
        """Of the messages that are kept, all but the last ones, of `most` steps."""
        for dropped in p.later.shorten(most):
            if dropped.message is None:
                self._forget(p, dropped.ended)
            elif dropped.lost is None:
                self._lost(p, dropped.message)

    def _give_way(self, p: Recovering) -> Iterator[object]:
        """Nothing is written and nothing is looked for."""
        self._drop(p, 0)
        self.counts["holes_not_looked_for"] += len(p.waiting)
        yield from self._told(p, p.waiting)
        p.waiting = p.waiting[:0]

    def _write(self, p: Recovering, holes: list[int]) -> Iterator[object]:
        """Messages that were kept, into the window: the last of them, with `holes` before these rows, as far as they
        need it; without, as far as one waits."""
        if not len(p.waiting):
            p.later.skip(len(p.window.steps), holes[0])
        if p.later.gap:  # it does not follow what is there
            p.window.size[:] = p.edges.size[1] = 0
            p.window.head[:] = 0
            p.threads[:], p.threads[:, append.T_END] = 0, -1
        for kept in p.later.taken():
            if kept.message is None:
                self._forget(p, kept.ended)
                continue
            lost = self._lost(p, kept.message) if kept.lost is None else kept.lost
            row = yield from self._write_one(p, kept.message, kept.first, lost, kept.last_hole, bool(p.later))
            if row < 0:
                p.later.gap = True
                yield from self._give_way(p)
                break
            if row < len(kept.message.rows):
                p.later.put_back(kept, row, lost)
                break

    def _write_one(
        self, p: Recovering, message: Paths, row: int, lost: I64, last_hole: int, whole: bool
    ) -> Generator[object, None, int]:
        """From `row` on and, unless it is to be the whole, as far as a hole waits, and beyond row `last_hole`: the row
        at which it goes on; −1: there was no time for it.

        Late rows are as of a thread of their own: a hole of their thread lies between those that are in order.
        """
        m = message.rows
        rows = np.zeros((len(m), RC), np.int64)
        tids, where = np.unique(np.where(m["arrival"] == Arrival.LATE, ~m["tid"], m["tid"]), return_inverse=True)
        rows[:, append.R_SLOT] = np.array([self._slot(p, tid) for tid in tids.tolist()], np.int64)[where]
        for column, name in (
            (append.R_CONTINUES, "continues"), (append.R_ORDER, "order"), (append.R_ORDER_END, "order_end"),
            (append.R_BROKEN, "broken"), (append.R_BROKEN_END, "broken_end"), (append.R_TSC, "tsc"),
            (append.R_TSC_END, "tsc_end"),
        ):  # fmt: skip
            rows[:, column] = m[name]
        rows[:, append.R_BYTES] = m["end"] - m["offset"]
        order = message.order if message.order.flags.writeable else message.order.copy()
        found, at = np.zeros((len(m), FC), np.int64), np.zeros(AC, np.int64)
        at[append.A_ROW] = row
        confirmed, broken = message.breaks["confirmed"].copy(), message.breaks["order"].copy()
        d = p.dictionary
        blocks = p.blocks.take(d)
        capacity = len(p.window.steps)
        done = False
        while not done:
            done = append.add(
                p.window, p.threads, p.recents, p.paces, rows, order, confirmed, broken, blocks, d.paths.rows,
                d.links.rows, found, at, min(AT_ONCE, capacity // 8),
            )  # fmt: skip
            yield None
            upto = int(at[append.A_ROW])
            self._wait(p, message, found, lost, row, upto)
            row = upto
            old = int(p.window.size[0]) - int(p.waiting["hole"][0, filling.H_FIRST]) if len(p.waiting) else 0
            if len(p.waiting) > MOST_WAITING or old > capacity // 4:
                yield from self._fill(p)
            if not done and self._late(p):
                return -1
            if not whole and last_hole < row and not len(p.waiting):
                rows = rows[: row + int(at[append.A_BEGUN])]  # the row under way is the last
                done |= row == len(rows)
        self.counts["steps"] += int(found[:, append.F_STEPS].sum())
        return row

    @staticmethod
    def _wait(p: Recovering, message: Paths, found: I64, lost: I64, first: int, end: int) -> None:
        """The holes before the rows [first, end) of the message, of which all is in the window."""
        m = message.rows
        f = found[first:end]
        holes = (m["continues"][first:end] == 0) & (m["arrival"][first:end] == Arrival.IN_ORDER)
        holes &= (f[:, append.F_LAST] >= 0) & (f[:, append.F_STEPS] > 0)
        those = first + np.flatnonzero(holes)
        if not len(those):
            return
        causes = {row: mark.cause for row, mark in message.holes}
        f, rows, new = found[those], m[those], np.zeros(len(those), WAITING_DTYPE)
        new["cause"] = [causes.get(row, Loss.SHED) for row in those.tolist()]
        new["offset"], new["tsc"], new["tsc_end"] = rows["offset"], f[:, append.F_TSC], rows["tsc"]
        pace = f[:, append.F_PACE :].astype(float)  # before it, and in the row behind it
        pace[:, append.P_SIZE] += f[:, append.F_SIZE]
        pace[:, append.P_TICKS] += rows["tsc_end"] - rows["tsc"]
        pace[:, append.P_BYTES] += rows["end"] - rows["offset"]
        lasted = np.maximum(rows["tsc"].astype(np.int64) - f[:, append.F_TSC], 0)
        known = (lost[those] > 0) & (pace[:, append.P_BYTES] > 0)
        parts = np.where(known, lost[those] / np.maximum(pace[:, append.P_BYTES], 1),
                         lasted / np.maximum(pace[:, append.P_TICKS], 1))  # fmt: skip
        hole = new["hole"]
        hole[:, filling.H_TID], hole[:, filling.H_LAST] = rows["tid"], f[:, append.F_LAST]
        hole[:, filling.H_FIRST] = f[:, append.F_FIRST]
        hole[:, filling.H_COUNTED], hole[:, filling.H_SOURCE] = known, -1
        hole[:, filling.H_EXPECTED] = np.minimum(np.rint(parts * pace[:, append.P_SIZE]), 1 << 60)
        p.waiting = np.concatenate((p.waiting, new))

    @staticmethod
    def _lost(p: Recovering, message: Paths) -> I64:
        """The bytes before each row that are in no row, as far as that is known (0: not)."""
        m = message.rows
        lost = np.zeros(len(m), np.int64)
        for row, mark in message.holes:
            lost[row] += min(mark.lost, MOST_LOST)
        in_order = np.lexsort((np.arange(len(m)), m["stream"]))
        stream, offset = m["stream"][in_order], m["offset"][in_order].astype(np.int64)
        end = m["end"][in_order].astype(np.int64)
        gap = np.append(0, offset[1:] - end[:-1])
        for k in np.flatnonzero(np.append(True, stream[1:] != stream[:-1])).tolist():
            gap[k] = offset[k] - p.streams.get(message.streams[int(stream[k])], int(offset[k]))
        for k in np.flatnonzero(np.append(stream[1:] != stream[:-1], True)).tolist():
            p.streams[message.streams[int(stream[k])]] = int(end[k])
        lost[in_order] += np.maximum(gap, 0)
        return lost

    # What is not there

    def _fill(self, p: Recovering, upto: int | None = None) -> Iterator[object]:
        """The holes that end before `upto`."""
        go = p.waiting["tsc_end"] < upto if upto is not None else np.ones(len(p.waiting), np.bool_)
        if not go.any():
            return
        told, p.waiting = p.waiting[go], p.waiting[~go]
        holes = np.ascontiguousarray(told["hole"])
        for k in range(0, len(holes), self._at_once):
            if self._late(p):
                self.counts["holes_not_looked_for"] += len(holes) - k
                break
            self._search(p.window, holes, k, min(k + self._at_once, len(holes)))
            yield None
        told["hole"] = holes
        guesses: dict[int, NDArray[np.int32]] = {}
        empty = np.flatnonzero(holes[:, filling.H_SOURCE] < 0).tolist() if self._guesses else []
        if empty:
            p.edges = guess.with_room(p.edges, WAYS * p.dictionary.blocks.size)
            while not guess.count(p.window, p.edges, EDGES_AT_ONCE):
                yield None
        for k in empty:
            if self._late(p):
                break
            guesses[k] = guess.guess(p.window, p.edges, holes[k])
            yield None
        yield from self._told(p, told, guesses)

    def _told(
        self, p: Recovering, told: NDArray[np.void], guesses: Mapping[int, NDArray[np.int32]] = NO_GUESSES
    ) -> Iterator[Recovered]:
        if not len(told):
            return
        holes = np.ascontiguousarray(told["hole"])
        lengths = holes[:, filling.H_LENGTH]
        out = np.zeros(len(holes), FILLING_DTYPE)
        out["tid"] = holes[:, filling.H_TID]
        for name in ("cause", "offset", "tsc", "tsc_end"):
            out[name] = told[name]
        full = holes[:, filling.H_SOURCE] >= 0
        out["provenance"] = np.where(full, int(Provenance.RECOVERED), 0)
        out["before"], out["behind"] = holes[:, filling.H_BEFORE], holes[:, filling.H_BEHIND]
        out["expected"], out["counted"] = holes[:, filling.H_EXPECTED], holes[:, filling.H_COUNTED]
        out["step_end"] = np.cumsum(lengths)
        out["step"] = out["step_end"] - lengths
        steps = np.zeros(int(lengths.sum()), np.int32)
        filling.copied(p.window, holes, steps)
        for k, way in guesses.items():
            if len(way):
                out["provenance"][k] = Provenance.GUESSED
                out["step"][k], out["step_end"][k] = len(steps), len(steps) + len(way)
                steps = np.concatenate((steps, way))
                self.counts["guessed"] += 1
        self.counts["holes"] += len(holes)
        self.counts["filled"] += int(full.sum())
        self.counts["filled_steps"] += len(steps)
        yield Recovered(*p.process.key, p.dictionary.generation, out, steps)

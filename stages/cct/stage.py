"""Calling-context trees, pane by pane: Paths in, tree reports out. All that comes in is passed on.

The stage keeps of each process the activations and nodes that its threads have come through (stages.cct.tables), and
of each thread where it stands among them. What is counted between two stops belongs to the pane of the first. A pane
closes when the watermark has passed its end; which caller a part of the stack had may be found out until then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.cct.contents import Contents
from stages.cct.fold import ALL, BEFORE, ENOUGH, GO, T_NODE, T_STATE, clear, settle
from stages.cct.functions import UNKNOWN_METHOD, Functions
from stages.cct.interpreted import Told, events_told
from stages.cct.nodes import child_of, rename
from stages.cct.panes import Pane
from stages.cct.profiled import NOT_PROFILED, profiled
from stages.cct.read_stacks import NO_STACKS
from stages.cct.rebuild import rebuilt
from stages.cct.selection import Selection
from stages.cct.tables import (
    BY_PATH,
    INSIDE,
    INSTRUCTIONS,
    LAST_STEP,
    N_METHOD,
    STARTED,
    Z_ACTIVATIONS,
    Z_HOLES,
    Z_LINKS,
    Z_MOST,
    Z_MOUNTED,
    Z_NODES,
    Z_OVERFLOW,
    Z_OWN_HOLES,
    Z_PARTS,
    Z_PRESUME,
    Z_PRESUMED,
    Z_PRESUMED_RIGHT,
    Z_PRESUMED_WRONG,
    Z_SHARED_HOLES,
    Z_STACKS,
    Z_STACKS_AGREED,
    Z_STACKS_REFUSED,
    Z_STATES,
    Z_STEPS,
    Z_STRANGE,
    empty,
)
from stages.cct.traced import ROOM, Part, Room, Traced
from stages.cct.tree import INTERPRETER_NAME, NAMES, THREAD, Tree, thread_method
from stages.columns import table
from stages.images import Images, ProcessKey
from stages.messages import Bytecodes, EndOfStream, JitBatch, Paths, StreamOpen, ThreadEnd, TreeReport, Watermark
from stages.messages.bytecodes import EVENT_DTYPE, STACK_DTYPE
from stages.messages.trees import CERTAINTIES
from stages.paths.counts import Rows
from stages.paths.groups import grouped

_COUNTERS = (
    ("holes", Z_HOLES), ("shared_holes", Z_SHARED_HOLES), ("links", Z_LINKS), ("strange_returns", Z_STRANGE),
    ("overflow", Z_OVERFLOW), ("presumed", Z_PRESUMED), ("presumed_right", Z_PRESUMED_RIGHT),
    ("presumed_wrong", Z_PRESUMED_WRONG), ("stacks", Z_STACKS), ("stacks_agreed", Z_STACKS_AGREED),
    ("stacks_refused", Z_STACKS_REFUSED), ("mounted", Z_MOUNTED),
)  # fmt: skip

SPARE_FUNCTIONS = 4096
"""With more of them, dead ones are forgotten when a generation begins."""
SETTLED = 1 << 17
"""So many parts of steps are settled in one step of the stage."""


class Cct:
    def __init__(
        self, worker: int = 0, images: Images | None = None, *, pane_seconds: float = 1.0, pane_ticks: int = 0,
        room: Room = ROOM, presume: bool = False, costs: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        """Seconds become ticks by the first stream's clock, unless ticks are given. `presume` callers behind a hole.
        `costs`: see Contents; trees have them as `bytecodes`."""
        self.worker, self._costs = worker, costs
        self.images = images or Images()
        self._room, self._presume = room, presume
        self._pane_seconds, self._pane_ticks = pane_seconds, pane_ticks
        self._processes: dict[ProcessKey, Traced] = {}
        self._holes = min(room.activations, math.ceil(room.holes * pane_seconds))  # a pane
        self._rebuilt = self._not_profiled = 0
        self._selection = Selection()

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps: None between two of them."""
        match message:
            case Bytecodes():
                p = self._of(message.host, message.pid)
                p.bytecodes = message
                p.methods |= dict(message.names)
            case Paths():
                yield from self._fold(self._of(message.host, message.pid), message)
            case Watermark():
                yield message  # the pane's table need not wait for its tree
                p = self._of(message.host, message.pid)
                done = message.tsc // self._ticks(p) - 1
                if p.process.clocked and done > p.closed and done >= 0:
                    if any(part.pane <= done for part in p.late):
                        yield from self._finish(p)
                    yield from self._report(p, done)
                self.images.take(message)
                return
            case JitBatch() | StreamOpen():
                yield from self.images.steps(message)
            case ThreadEnd():
                p = self._of(*message.thread[:2])
                yield from self._finish(p)
                if (slot := p.slot.pop(message.thread.tid, None)) is not None:
                    p.free.append(slot)
            case EndOfStream():
                yield from self.flush_steps()
        yield message

    def flush(self) -> list[object]:
        """Nothing more comes: every pane is told."""
        return [out for out in self.flush_steps() if out is not None]

    def flush_steps(self) -> Iterator[object]:
        """`flush` in steps, as `steps`."""
        for p in self._processes.values():
            yield from self._finish(p)
            yield from self._report(p, max([*p.panes, p.pane, p.closed]))

    def select(self, selection: Selection) -> None:
        """The threads of which contexts are kept, from the next pane of each process on."""
        self._selection = selection
        for p in self._processes.values():
            begin = max([*p.panes, p.pane, p.closed]) + 1
            p.selected = [*(known for known in p.selected if known[0] < begin), (begin, selection)]

    def statistics(self) -> dict[str, int | float]:
        sizes = [p.tables.size for p in self._processes.values()]
        rows = (("activations", Z_ACTIVATIONS), ("nodes", Z_NODES), ("steps", Z_STEPS), ("parts", Z_PARTS), *_COUNTERS)
        return {
            **{f"cct_{name}": sum(int(size[k]) for size in sizes) for name, k in rows},
            "cct_threads": sum(len(p.slot) for p in self._processes.values()),
            "cct_panes": sum(len(p.panes) for p in self._processes.values()),
            "cct_rebuilt": self._rebuilt,
            "cct_not_profiled": self._not_profiled,
        }

    def _of(self, host: str, pid: int) -> Traced:
        known = self._processes.get((host, pid))
        if known is None:
            process, room = self.images.of(host, pid), self._room
            tables = empty(room.activations, room.nodes, room.steps)
            tables.size[Z_PRESUME] = self._presume
            contents = Contents(process.image, Functions(process.image, process.inlining), self._costs)
            known = self._processes[host, pid] = Traced(process, contents, tables, table(tables))
            known.selected.append((0, self._selection))
        return known

    def _ticks(self, p: Traced) -> int:
        """Of a pane."""
        return self._pane_ticks or max(1, round(self._pane_seconds * p.process.hz))

    # What ran

    def _fold(self, p: Traced, message: Paths) -> Iterator[None]:
        begins = message.generation != p.dictionary.generation
        if begins:
            yield from self._finish(p)
            yield from self._settle(p)
            self._forget_steps(p)
            p.contents.forget()
            p.paths = 0
        p.dictionary.take(message)
        yield from self._make_room(p, begins and max(p.contents.functions.count, p.named) > SPARE_FUNCTIONS)
        for _ in p.contents.describe(p.dictionary):
            yield
        d = p.dictionary
        if len(p.by_path) < d.paths.size:
            p.by_path = np.concatenate((p.by_path, np.zeros((d.paths.size, BY_PATH), np.int32)))
        new = d.paths.rows["instructions"][p.paths :]
        p.by_path[p.paths : d.paths.size, INSTRUCTIONS] = np.minimum(new, np.iinfo(np.int32).max)
        p.by_path[p.paths : d.paths.size, INSIDE] = 0
        p.paths = d.paths.size
        group, rows = grouped(message, self._ticks(p))
        slots = np.array([self._slot(p, tid, message) for tid in group["tid"].tolist()], np.int64)
        row = np.searchsorted(message.rows["stop"], rows.stop, "right") - 1
        first = message.rows["stop"][row] == rows.stop
        fresh = first & (message.rows["continues"][row] == 0)
        order = message.order if message.order.flags.writeable else message.order.copy()
        columns = (
            message.stops["order"].copy(), message.stops["tsc"].astype(np.int64), message.breaks["confirmed"].copy(),
            message.breaks["order"].copy(),
        )  # fmt: skip
        told, event_at, event_end = self._events(p, message, rows)
        p.tables.size[Z_MOST] = p.contents.most
        pane = group["pane"][rows.group]
        parts = []
        for number in np.unique(pane).tolist():
            mine = pane == number
            n = int(mine.sum())
            arrays = (
                event_at[mine], event_end[mine], slots[rows.group[mine]], fresh[mine], rows.stop[mine],
                rows.stop_end[mine], rows.broken[mine], rows.broken_end[mine], order, *columns,
                np.full((n, GO), -1, np.int64), np.zeros(n),
            )  # fmt: skip
            parts.append(Part(number, told, arrays))
        yield from self._run(p, [*p.late, *parts])
        p.late = [part for part in parts if not part.done]

    def _run(self, p: Traced, parts: list[Part], forced: int = 0) -> Iterator[None]:
        """Parts of orders, in the order of their times. A virtual thread may wait for another part, of `p.late` no
        longer than until all are done as far as they come; `forced`: nor of others."""
        forced = max(forced, len(p.late))
        blocks = p.contents.arrays(p.dictionary, p.by_path)
        at = table(blocks)
        moved, force = True, False
        while moved or force:
            moved, stands = False, np.zeros(len(p.threads), np.uint8)
            for part in parts:
                if part.done:
                    continue
                yield from self._begin_pane(p, part.pane)
                before = part.at.copy()
                how = ENOUGH
                while how == ENOUGH:
                    how = part.fold(p, at, stands, force)
                    yield
                force = False
                part.done = how == ALL
                moved = moved or not np.array_equal(before, part.at)
                np.minimum(2 * stands, BEFORE, out=stands)
            force = not moved and any(not part.done for part in parts[:forced])

    def _begin_pane(self, p: Traced, number: int) -> Iterator[None]:
        if number == p.pane:
            return
        yield from self._settle(p)
        if number > p.pane:
            p.tables.size[Z_OWN_HOLES] = self._holes
        p.pane = number

    def _finish(self, p: Traced) -> Iterator[None]:
        """Parts that wait go on, in frames that are not known."""
        parts, p.late = p.late, []
        yield from self._run(p, parts, len(parts))

    def _events(self, p: Traced, message: Paths, rows: Rows) -> tuple[Told, NDArray[np.int64], NDArray[np.int64]]:
        """The interpreter's, if it is explained; of (n,) parts of the order, which are in it: [event, end)."""
        said, p.bytecodes = p.bytecodes, None
        events = said.events if said is not None and said.explains(message) else np.zeros(0, EVENT_DTYPE)
        read = said.stacks if len(events) and said is not None else np.zeros(0, STACK_DTYPE)
        fns = self._fns(p, np.concatenate((events["method"], read["method"])))
        told, row = events_told(events, fns, p.contents.read(read, fns) if len(read) else NO_STACKS)
        at = message.stops["order"].astype(np.int64)
        key = row << 40 | told.order
        begin, end = (np.searchsorted(key, rows.row << 40 | at[stop]) for stop in (rows.stop, rows.stop_end - 1))
        return told, begin, end

    @staticmethod
    def _fns(p: Traced, methods: NDArray[np.int32]) -> NDArray[np.int64]:
        """By method, from −1 on, as far as these (n,) need: the function."""
        called = np.zeros(int(methods.max(initial=-1)) + 2, np.bool_)
        called[methods + 1] = True
        fns = np.zeros(len(called), np.int64)
        for m in np.flatnonzero(called).tolist():
            name = p.methods.get(m - 1, UNKNOWN_METHOD) if m else NAMES[INTERPRETER_NAME]
            fns[m] = p.contents.functions.interpreted(name)
        return fns

    def _slot(self, p: Traced, tid: int, message: Paths) -> int:
        slot = p.slot.get(tid)
        if slot is None:
            slot = p.slot[tid] = p.free.pop() if p.free else len(p.slot)
            if slot >= len(p.threads):
                p.threads = np.concatenate((p.threads, np.zeros_like(p.threads)))
            p.threads[slot, T_STATE] = STARTED
            p.threads[slot, T_NODE] = child_of(p.tables_at, 0, self._thread(p, tid, message), tid)
        # a thread that was there before the agent is told later: `main` runs before the JVM is initialised
        node = int(p.threads[slot, T_NODE])
        if p.tables.node[node, N_METHOD] == THREAD and (method := self._thread(p, tid, message)) != THREAD:
            rename(p.tables_at, node, method)
        return slot

    @staticmethod
    def _thread(p: Traced, tid: int, message: Paths) -> int:
        """The number of its root's name, when its part of the message begins."""
        begins = int(message.rows["tsc"][message.rows["tid"] == tid][0])
        name = p.process.image.threads.at(tid, begins, p.process.lateness)
        p.named += bool(name)
        return p.contents.functions.names.number(thread_method(name)) if name else THREAD

    def _settle(self, p: Traced) -> Iterator[None]:
        """What was counted by step becomes the pane's."""
        settled = False
        while not settled:
            settled = settle(p.tables_at, SETTLED)
            if p.pane >= 0:
                yield from p.panes.setdefault(p.pane, Pane()).add(p.tables)
            clear(p.tables_at)
            yield

    def _forget_steps(self, p: Traced) -> None:
        t = p.tables
        t.step[: int(t.size[Z_STEPS])] = 0
        t.by_state[: int(t.size[Z_STATES]) + 1] = 0
        t.size[Z_STEPS], t.size[Z_PARTS] = 1, 0
        p.by_path[:, LAST_STEP] = 0

    def _make_room(self, p: Traced, anew: bool) -> Iterator[None]:
        """Where the tables are half full, or `anew`, they are made anew, with the threads' stacks in them; open panes
        keep what was counted."""
        size, room = p.tables.size, self._room
        if 2 * size[Z_STEPS] > room.steps or 2 * size[Z_PARTS] > len(p.tables.part):
            yield from self._finish(p)
            yield from self._settle(p)
            self._forget_steps(p)
            yield
        if anew or 2 * size[Z_ACTIVATIONS] > room.activations or 2 * size[Z_NODES] > room.nodes:
            self._rebuilt += 1
            yield from self._finish(p)
            yield from self._settle(p)
            for pane in p.panes.values():
                yield from pane.detach(p.tables, p.contents.functions.names.all)
            before, p.tables = p.tables, empty(room.activations, room.nodes, room.steps)
            p.tables_at = table(p.tables)
            old = p.contents.functions
            functions = Functions(p.process.image, p.process.inlining) if anew else old
            if anew:
                p.contents, p.named = Contents(p.process.image, functions, self._costs), 0
            rebuilt(before, old, p.tables, functions, p.threads, np.array(sorted(p.slot.values()), np.int64))
            p.by_path[:, LAST_STEP] = 0
            yield

    # Reports

    def _report(self, p: Traced, upto: int) -> Iterator[TreeReport | None]:
        if 0 <= p.pane <= upto:
            yield from self._settle(p)
        for number in sorted(n for n in p.panes if n <= upto):
            tree = yield from p.panes.pop(number).tree(p.tables, p.contents.functions.names.all)
            tree = yield from profiled(self._selected(p, number), tree)
            self._not_profiled += _instructions_of(tree, NOT_PROFILED)
            yield TreeReport(*p.process.key, self.worker, number, tree.nodes, tree.names) if len(tree.nodes) else None
        p.closed = max(p.closed, upto)

    @staticmethod
    def _selected(p: Traced, pane: int) -> Selection:
        """Of a pane that is told now, and no earlier one will be."""
        while len(p.selected) > 1 and p.selected[1][0] <= pane:
            del p.selected[0]
        return p.selected[0][1]


def _instructions_of(tree: Tree, name: str) -> int:
    if name not in tree.names:
        return 0
    rows = tree.nodes[tree.nodes["method"] == tree.names.index(name)]
    return int(sum(rows[f"{certainty}_instructions"].sum() for certainty in CERTAINTIES))

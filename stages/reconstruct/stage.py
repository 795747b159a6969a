"""Machine control flow in, the bytecodes and methods that the interpreter ran out (docs/reconstruction.md).

A live process does not wait. Where the stage is behind (`stages.shed`), or its kernels are not compiled, `Paths` pass
unexplained, at next to no cost: their `Bytecodes` says so, and that nothing is known of any stack. What is told of
classes waits meanwhile; the stage begins again once all of it is in the graph, with nothing known of the threads that
ran. Each such stretch of a thread is an event UNEXPLAINED.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.icfg import Icfg
from stages.images import KEEP_SECONDS, Images, Process, ProcessKey
from stages.messages import (
    EVENT_DTYPE,
    KNOWN_DTYPE,
    METHOD_DTYPE,
    STACK_DTYPE,
    Account,
    Bytecodes,
    FrameEvent,
    JitBatch,
    Loss,
    Paths,
    Pieces,
    StreamOpen,
    ThreadEnd,
    Watermark,
)
from stages.messages.columns import joined
from stages.paths.dictionary import Dictionary
from stages.paths.groups import grouped
from stages.reconstruct.blocks import TokensOfBlocks
from stages.reconstruct.classes import Classes
from stages.reconstruct.matcher import Found, Matcher, Parts
from stages.reconstruct.mounts import Mounts
from stages.reconstruct.read_stacks import NO_STACKS, ReadStacks, read_stacks
from stages.reconstruct.stacks import Stacks
from stages.reconstruct.window import Blocks
from stages.shed import Shedder

NAMES = 128
"""Made in a step."""
MOST_WAITING = 64 << 20
"""Bytes of records that wait while it is behind; beyond that the oldest are dropped, and their classes not known."""


Hears = Callable[[Paths, int, list[NDArray[np.void]], Icfg], None]
"""The message, one of its threads, that thread's EXECUTED_DTYPE behind those that were heard before, and the graph: its
numbers may mean something else later."""


@dataclass(slots=True)
class Reconstructed:
    """One process. Threads go with their ThreadEnd, classes some time after their unload."""

    process: Process
    tokens: TokensOfBlocks
    matcher: Matcher
    classes: Classes
    stacks: Stacks
    mounts: Mounts
    dictionary: Dictionary = field(default_factory=Dictionary)
    last: JitBatch | None = None
    places: int = 0  # how often places in compiled code have been numbered anew
    shedder: Shedder | None = None  # None: it may take as long as it takes
    drained: int = 0  # the newest drain that has been heard of
    waiting: deque[NDArray[np.uint8]] = field(default_factory=deque)  # records of which the classes are not looked at
    waiting_bytes: int = 0
    learning: Iterator[None] | None = None  # the first of them, begun
    keep: int = 0  # classes that were unloaded before are asked about no more
    unexplained: set[int] = field(default_factory=set)  # threads whose last paths passed; dropped with the thread


class Reconstruct:
    """Paths → Bytecodes, Paths. All else passes."""

    def __init__(
        self,
        images: Images | None = None,
        *,
        pane_seconds: float = 1.0,
        pane_ticks: int = 0,
        now: Callable[[], int] | None = None,
        most_behind_seconds: float = 0.25,
        ready: Callable[[], bool] | None = None,
        executed: Hears | None = None,
        each_bytecode: bool = False,
    ) -> None:
        """Seconds become ticks by the first stream's clock, unless ticks are given: as in `Profile`. `now` and
        `most_behind_seconds`: as of `Follow`; `ready`: before it says so (kernels are compiled) nothing is explained;
        None: at once. `executed` hears of all bytecodes one by one, which makes it slower; so does `each_bytecode`,
        which has them told in `Bytecodes.bcis`."""
        self._each_bytecode = each_bytecode
        self.images = images or Images()
        self._executed = executed
        self._now, self._most_behind_seconds, self._ready = now, most_behind_seconds, ready or (lambda: True)
        self.counts: Counter[str] = Counter()
        self._pane_seconds, self._pane_ticks = pane_seconds, pane_ticks
        self._processes: dict[ProcessKey, Reconstructed] = {}

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps: None between two of them."""
        match message:
            case Paths():
                p = self._of(message.host, message.pid)
                p.drained = message.drained
                yield from self._learn(p)
                yield from self._pass(p, message) if p.waiting or self._late(p) else self._match(p, message)
            case Pieces():  # shed
                self._of(message.host, message.pid).drained = message.drained
                yield message
            case JitBatch():
                yield from self.images.steps(message)
                p = self._of(message.host, message.pid)
                if message is not p.last:
                    p.last = message
                    self._wait(p, message.data)
                    yield from self._learn(p)
                yield message
            case StreamOpen():
                yield from self.images.steps(message)
                yield message
            case Watermark():
                p = self._of(message.host, message.pid)
                p.keep = max(0, message.tsc - round(KEEP_SECONDS * p.process.hz))
                if p.learning is None:
                    yield from p.classes.forget_before(p.keep)
                self.images.take(message)
                yield message
            case ThreadEnd():
                if p_ := self._processes.get(message.thread[:2]):
                    p_.matcher.forget(message.thread.tid)
                    p_.stacks.forget(message.thread.tid)
                    p_.mounts.forget(message.thread.tid)
                    p_.unexplained.discard(message.thread.tid)
                yield message
            case _:
                yield message

    def flush(self) -> list[object]:
        return []

    def statistics(self) -> dict[str, int | float]:
        return {
            **{f"reconstruct_{name}": n for name, n in sorted(self.counts.items())},
            "reconstruct_threads": sum(len(p.matcher.threads) for p in self._processes.values()),
            "reconstruct_methods": sum(len(p.classes.graph().methods.entry) for p in self._processes.values()),
            **{f"reconstruct_{name}": n for name, n in sorted(self._of_stacks().items())},
            **self.images.statistics(),
        }

    def _of_stacks(self) -> Counter[str]:
        """How many of the stacks that the agent read were placed, known, used and not."""
        counts = Counter[str]()
        for p in self._processes.values():
            counts.update(p.matcher.counts)
            counts.update({f"stacks_{name}": n for name, n in p.stacks.counts.items()})
            counts.update({f"mounts_{name}": n for name, n in p.mounts.counts.items()})
        return counts

    def introduce(self) -> list[object]:
        """A receiver has begun anew: names come again with what uses them."""
        for p in self._processes.values():
            p.classes.forget_names()
        return self.images.introduce()

    def classes(self, host: str, pid: int) -> Classes:
        """Of a process: the methods that its `Bytecodes` number."""
        return self._of(host, pid).classes

    def _of(self, host: str, pid: int) -> Reconstructed:
        known = self._processes.get((host, pid))
        if known is None:
            each = self._each_bytecode or self._executed is not None
            process, matcher = self.images.of(host, pid), Matcher(executed=each)
            tokens = TokensOfBlocks(process.image)
            stacks, mounts = Stacks(process.image), Mounts(process.image)
            classes = Classes(matcher.going, stacks.told, mounts.told)
            known = Reconstructed(process, tokens, matcher, classes, stacks, mounts)
            self._processes[host, pid] = known
        if self._now is not None and known.shedder is None and known.process.clocked:
            known.shedder = Shedder(self._now, round(self._most_behind_seconds * known.process.hz))
        return known

    # Behind

    def _late(self, p: Reconstructed) -> bool:
        return not self._ready() or (p.shedder is not None and p.shedder.behind(p.drained))

    def _wait(self, p: Reconstructed, data: NDArray[np.uint8]) -> None:
        p.waiting.append(data)
        p.waiting_bytes += len(data)
        while len(p.waiting) > 1 and p.waiting_bytes > MOST_WAITING:
            first = 1 if p.learning is not None else 0
            self.counts["dropped_bytes"] += len(p.waiting[first])
            p.classes.unloaded_in(p.waiting[first])
            p.waiting_bytes -= len(p.waiting[first])
            del p.waiting[first]

    def _learn(self, p: Reconstructed) -> Iterator[None]:
        """The classes that wait become part of the graph, as long as there is time; those that were unloaded go in
        between, also while there is never time for all that wait."""
        while p.waiting and not self._late(p):
            p.learning = p.learning or p.classes.feed(p.waiting[0])
            for _ in p.learning:
                yield
                if self._late(p):
                    return
            p.learning = None
            p.waiting_bytes -= len(p.waiting.popleft())
            yield from p.classes.forget_before(p.keep)

    def _pass(self, p: Reconstructed, message: Paths) -> Iterator[object]:
        """Unexplained: of none of its threads anything is known from here on."""
        self._take(p, message)
        rows = message.rows
        self.counts["unexplained_bytes"] += int((rows["end"] - rows["offset"]).sum())
        events = np.zeros(len(rows), EVENT_DTYPE)
        events["row"], events["order"] = np.arange(len(rows)), rows["order"]
        events["kind"], events["method"], events["bci"] = FrameEvent.LOST, -1, -1
        tids, first = np.unique(rows["tid"], return_index=True)
        for tid, row in zip(tids.tolist(), rows[first], strict=True):
            p.matcher.forget(tid)
            if tid not in p.unexplained:
                p.unexplained.add(tid)
                stream, at = message.streams[row["stream"]], int(row["offset"])
                yield Account(stream, at, at, 0, (), (), ((Loss.UNEXPLAINED, 1),))
        yield Bytecodes(
            message.host, message.pid, message.generation, message.first_path, len(message.order),
            np.zeros(0, METHOD_DTYPE), np.zeros(0, KNOWN_DTYPE), _with_mounts(events, p, message), (), behind=True,
        )  # fmt: skip
        yield message

    # Explaining

    @staticmethod
    def _take(p: Reconstructed, message: Paths) -> None:
        if p.dictionary.take(message):
            p.tokens.forget()
            p.mounts.continuations.forget()

    def _match(self, p: Reconstructed, message: Paths) -> Iterator[object]:
        self._take(p, message)
        ticks = self._pane_ticks or max(1, round(self._pane_seconds * p.process.hz))
        groups, rows = grouped(message, ticks)
        icfg = p.classes.icfg
        yield from p.classes.update()
        graph = p.classes.graph()
        yield None
        index = icfg.by_opcode()
        yield None
        blocks = yield from p.tokens.growing(p.dictionary, index, p.classes.numbers)
        if p.tokens.forgotten != p.places:
            p.places = p.tokens.forgotten
            p.matcher.begin_generation()
        yield None
        order = message.order if message.order.flags.writeable else message.order.copy()
        breaks = message.breaks if message.breaks.flags.writeable else message.breaks.copy()
        at = message.stops["order"].copy()
        bounds = np.flatnonzero(np.diff(rows.group, prepend=-1, append=-1))
        begun = set[int]()
        found: list[Found] = []
        blocks, of_thread, stacks = self._read(p, message, blocks)
        yield None
        for a, b in pairwise(bounds.tolist()):
            parts = _parts(message, rows.row[a:b], at[rows.stop[a:b]], at[rows.stop_end[a:b] - 1], begun)
            number = int(rows.group[a])
            tid = int(groups["tid"][number])
            p.unexplained.discard(tid)
            matched = p.matcher.group(number, tid, parts, graph, blocks, order, breaks, of_thread.get(tid, NO_STACKS))
            for out in matched:
                if out is not None:
                    found.append(out)
                    if self._executed is not None:
                        self._executed(message, tid, out.executed, icfg)
                yield None
        bcis = np.zeros(0, np.uint16)
        if self._each_bytecode:
            kept = [rows["node"] for f in found for rows in f.executed]
            bcis = np.concatenate([bcis, *(graph.nodes.bci[nodes[nodes >= 0]] for nodes in kept)])
        yield from self._told(p, message, found, bcis, stacks)
        yield message

    def _read(
        self, p: Reconstructed, message: Paths, blocks: Blocks
    ) -> tuple[Blocks, dict[int, ReadStacks], NDArray[np.void]]:
        """The stacks that were read in the time of this message, by thread; and what `blocks` is with the places in
        compiled code that they bring."""
        placed = p.stacks.place(message, p.dictionary, p.process.clock_step)
        out, rows, number = dict[int, ReadStacks](), [np.zeros(0, STACK_DTYPE)], 0
        for tid, of in placed.items():
            out[tid], frames = read_stacks(of, number, p.classes, p.process.image, p.tokens.compiled)
            rows.append(frames)
            number += len(of)
        if placed:
            places, scopes = p.tokens.compiled.view()
            blocks = blocks._replace(place=places, scope=scopes)
        return blocks, out, joined(rows)

    def _told(
        self, p: Reconstructed, message: Paths, found: list[Found], bcis: NDArray[np.uint16], stacks: NDArray[np.void]
    ) -> Iterator[Bytecodes | None]:
        methods = joined([np.zeros(0, METHOD_DTYPE), *(f.methods for f in found)])
        events = joined([np.zeros(0, EVENT_DTYPE), *(e for f in found for e in f.events)])
        if len(bcis) != events["bytecodes"].sum():
            bcis = bcis[:0]
        if (np.diff(events["row"]) < 0).any():
            events, bcis = _by_row(events, bcis)
        events = _with_mounts(events, p, message)
        names = list[tuple[int, str]]()
        for m in p.classes.unnamed(np.concatenate((methods["method"], events["method"], stacks["method"]))):
            names.append((m, p.classes.name(m)))
            if len(names) % NAMES == 0:
                yield None
        self.counts["bytecodes"] += int(methods["bytecodes"].sum())
        self.counts["invocations"] += int(methods["invocations"].sum())
        known = joined([np.zeros(0, KNOWN_DTYPE), *(f.known for f in found)])
        yield Bytecodes(
            message.host, message.pid, message.generation, message.first_path, len(message.order), methods, known,
            events, tuple(names), bcis=bcis, stacks=stacks,
        )  # fmt: skip


def _with_mounts(events: NDArray[np.void], p: Reconstructed, message: Paths) -> NDArray[np.void]:
    """`events`, by row, with the mounts of virtual threads among them. The bytecodes behind the LOST of a thaw are
    behind the mount, that comes next; behind the others of them are none."""
    mounts = p.mounts.events(message, p.dictionary, p.process.clock_step)
    if not len(mounts):
        return events
    place = [of["row"].astype(np.int64) << 40 | of["order"] for of in (events, mounts)]
    both = joined([mounts, events])
    keys = np.concatenate(place[::-1])
    in_order = np.lexsort((both["block"], keys)) if _in_order(events, place[0]) else np.argsort(keys, kind="stable")
    both = both[in_order]
    behind = np.flatnonzero(both["kind"][1:] == FrameEvent.MOUNT)
    lost = (both["kind"][behind] == FrameEvent.LOST) & (both["row"][behind] == both["row"][behind + 1])
    behind = behind[lost]
    both["bytecodes"][behind + 1], both["bytecodes"][behind] = both["bytecodes"][behind], 0
    return both


def _in_order(events: NDArray[np.void], place: NDArray[np.int64]) -> bool:
    """Whether those of one place stand in the order of its blocks."""
    return not ((np.diff(place) == 0) & (np.diff(events["block"]) < 0)).any()


def _by_row(events: NDArray[np.void], bcis: NDArray[np.uint16]) -> tuple[NDArray[np.void], NDArray[np.uint16]]:
    """In the order of their rows, of which each is in few runs; with their bytecodes, if there are any."""
    first = np.flatnonzero(np.diff(events["row"], prepend=-1))
    in_order = np.argsort(events["row"][first], kind="stable").tolist()
    runs = np.split(events, first[1:])
    if len(bcis):
        before = np.cumsum(events["bytecodes"]) - events["bytecodes"]
        told = np.split(bcis, before[first[1:]])
        bcis = np.concatenate([told[k] for k in in_order])
    return joined([runs[k] for k in in_order]), bcis


def _parts(
    message: Paths, row: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64], begun: set[int]
) -> Parts:
    """Of one group. `begun`: rows of which a part was met before."""
    fresh = message.rows["continues"][row] == 0
    for k, r in enumerate(row.tolist()):
        if r in begun:
            fresh[k] = False
        begun.add(r)
    broken, broken_end = message.rows["broken"][row].copy(), message.rows["broken_end"][row].copy()
    return Parts(np.column_stack((begin, end)), fresh, row, broken, broken_end)

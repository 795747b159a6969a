"""Machine control flow in, the bytecodes and methods that the interpreter ran out (docs/reconstruction.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.images import KEEP_SECONDS, Images, Process, ProcessKey
from stages.messages import (
    EVENT_DTYPE,
    KNOWN_DTYPE,
    METHOD_DTYPE,
    Bytecodes,
    JitBatch,
    Paths,
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

NAMES = 128
"""Made in a step."""


@dataclass(slots=True)
class Reconstructed:
    """One process. Threads go with their ThreadEnd, classes some time after their unload."""

    process: Process
    tokens: TokensOfBlocks
    matcher: Matcher
    classes: Classes
    dictionary: Dictionary = field(default_factory=Dictionary)
    last: JitBatch | None = None
    places: int = 0  # how often places in compiled code have been numbered anew


class Reconstruct:
    """Paths → Bytecodes, Paths. All else passes."""

    def __init__(self, images: Images | None = None, *, pane_seconds: float = 1.0, pane_ticks: int = 0) -> None:
        """Seconds become ticks by the first stream's clock, unless ticks are given: as in `Profile`."""
        self.images = images or Images()
        self.counts: Counter[str] = Counter()
        self._pane_seconds, self._pane_ticks = pane_seconds, pane_ticks
        self._processes: dict[ProcessKey, Reconstructed] = {}

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps: None between two of them."""
        match message:
            case Paths():
                yield from self._match(self._of(message.host, message.pid), message)
            case JitBatch():
                self.images.take(message)
                p = self._of(message.host, message.pid)
                if message is not p.last:
                    p.last = message
                    yield from p.classes.feed(message.data)
                yield message
            case StreamOpen():
                self.images.take(message)
                yield message
            case Watermark():
                p = self._of(message.host, message.pid)
                yield from p.classes.forget_before(max(0, message.tsc - round(KEEP_SECONDS * p.process.hz)))
                self.images.take(message)
                yield message
            case ThreadEnd():
                if p_ := self._processes.get(message.thread[:2]):
                    p_.matcher.forget(message.thread.tid)
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
            **self.images.statistics(),
        }

    def introduce(self) -> list[object]:
        """A receiver has begun anew: names come again with what uses them."""
        for p in self._processes.values():
            p.classes.forget_names()
        return self.images.introduce()

    def _of(self, host: str, pid: int) -> Reconstructed:
        known = self._processes.get((host, pid))
        if known is None:
            process, matcher = self.images.of(host, pid), Matcher()
            tokens = TokensOfBlocks(process.image)
            known = Reconstructed(process, tokens, matcher, Classes(matcher.going))
            self._processes[host, pid] = known
        return known

    def _match(self, p: Reconstructed, message: Paths) -> Iterator[object]:
        if p.dictionary.take(message):
            p.tokens.forget()
        ticks = self._pane_ticks or max(1, round(self._pane_seconds * p.process.hz))
        groups, rows = grouped(message, ticks)
        icfg = p.classes.icfg
        blocks, graph = p.tokens.grow(p.dictionary, icfg.by_opcode(), p.classes.numbers), p.classes.graph()
        if p.tokens.forgotten != p.places:
            p.places = p.tokens.forgotten
            p.matcher.begin_generation()
        yield None
        order = message.order if message.order.flags.writeable else message.order.copy()
        breaks = message.breaks if message.breaks.flags.writeable else message.breaks.copy()
        at = message.stops["order"].copy()
        first = np.flatnonzero(np.diff(rows.group, prepend=-1)) if len(rows.group) else np.zeros(0, np.int64)
        begun = set[int]()
        found: list[Found] = []
        for a, b in zip(first.tolist(), [*first[1:].tolist(), len(rows.group)], strict=True):
            parts = _parts(message, rows.row[a:b], at[rows.stop[a:b]], at[rows.stop_end[a:b] - 1], begun)
            number = int(rows.group[a])
            matched = p.matcher.group(number, int(groups["tid"][number]), parts, graph, blocks, order, breaks)
            for out in matched:
                if out is not None:
                    found.append(out)
                yield None
        yield from self._told(p, message, found)
        yield message

    def _told(self, p: Reconstructed, message: Paths, found: list[Found]) -> Iterator[Bytecodes | None]:
        methods = joined([np.zeros(0, METHOD_DTYPE), *(f.methods for f in found)])
        events = joined([np.zeros(0, EVENT_DTYPE), *(e for f in found for e in f.events)])
        if len(found) > 1:
            events = _by_row(events)
        names = list[tuple[int, str]]()
        for m in p.classes.unnamed(np.concatenate((methods["method"], events["method"]))):
            names.append((m, p.classes.name(m)))
            if len(names) % NAMES == 0:
                yield None
        self.counts["bytecodes"] += int(methods["bytecodes"].sum())
        self.counts["invocations"] += int(methods["invocations"].sum())
        known = joined([np.zeros(0, KNOWN_DTYPE), *(f.known for f in found)])
        yield Bytecodes(
            message.host, message.pid, message.generation, message.first_path, len(message.order), methods, known,
            events, tuple(names),
        )  # fmt: skip


def _by_row(events: NDArray[np.void]) -> NDArray[np.void]:
    """In the order of their rows, of which each is in few runs."""
    first = np.flatnonzero(np.diff(events["row"], prepend=-1))
    runs = np.split(events, first[1:])
    return joined([runs[k] for k in np.argsort(events["row"][first], kind="stable").tolist()] or [events])


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

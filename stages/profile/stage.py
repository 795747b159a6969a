"""The execution by method, pane by pane: paths and address counts in, pane reports out.

Of paths are counted instructions, entries of compiled methods, and time, shared by the instructions between two time
marks. A pane closes when the watermark has passed its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import UNKNOWN_METHOD
from jvm.code.sites import SiteKind
from stages.images import Images, Process, ProcessKey
from stages.messages import (
    PROFILE_DTYPE,
    Account,
    Bytecodes,
    Contradicted,
    Contradiction,
    Counts,
    EndOfStream,
    JitBatch,
    OffDuty,
    PaneReport,
    Paths,
    Recovered,
    StreamEnd,
    StreamKey,
    StreamOpen,
    ThreadEnd,
    Watermark,
)
from stages.messages.accounts import Ledger
from stages.messages.paths import Provenance
from stages.paths.counts import BlockCounts
from stages.paths.dictionary import Dictionary
from stages.paths.groups import grouped
from stages.profile import contents
from stages.profile.contents import Contents
from stages.profile.entries import Entries
from stages.profile.filled import filled
from stages.profile.interpreted import known_part, unexplained, with_methods
from stages.profile.panes import COLUMNS, ROW_DTYPE, Pane
from stages.profile.panes import Rows as PaneRows

I64 = NDArray[np.int64]
MAX_OFF_PANES = 3600  # of one message; one of a longer time is not believed


@dataclass(slots=True)
class Profiled:
    """One process. Panes go when they are told, streams at their end, the rest stays as the process does."""

    process: Process
    dictionary: Dictionary
    entries: Entries
    contents: Contents = field(default_factory=Contents)
    panes: dict[int, Pane] = field(default_factory=dict)
    recovered: dict[int, Pane] = field(default_factory=dict)  # fillings of holes, by pane
    guessed: dict[int, Pane] = field(default_factory=dict)  # those that are guessed
    ledgers: dict[StreamKey, Ledger] = field(default_factory=dict)
    over: dict[StreamKey, StreamEnd] = field(default_factory=dict)  # streams whose last accounts are still to be told
    closed: int = -1  # last pane that was closed
    places: list[Contradiction] = field(default_factory=list)
    sites: dict[int, int] = field(default_factory=dict)  # of `Counts`, as numbered here
    off: Counter[int] = field(default_factory=Counter)  # ticks off duty by pane, until it is told
    bytecodes: Bytecodes | None = None  # of the `Paths` that comes next
    methods: dict[int, str] = field(default_factory=dict)  # of `Bytecodes`: names by its numbers


class Profile:
    """Bytecodes, Paths, Recovered, Counts, Contradicted, Account, OffDuty, Watermark → PaneReport. All else passes
    (StreamEnd behind the last accounts of its stream) but JitBatch and ThreadEnd, for it is the last of its stages."""

    def __init__(
        self, worker: int = 0, images: Images | None = None, *, pane_seconds: float = 1.0, pane_ticks: int = 0
    ) -> None:
        """Seconds become ticks by the first stream's clock, unless ticks are given."""
        self.worker = worker
        self.images = images or Images()
        self.images.keepers.append(self)
        self.counts: Counter[str] = Counter()
        self._pane_seconds, self._pane_ticks = pane_seconds, pane_ticks
        self._processes: dict[ProcessKey, Profiled] = {}
        self._block_counts = BlockCounts()

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
                yield from self._count(self._of(message.host, message.pid), message)
            case Recovered():
                yield from self._count_recovered(self._of(message.host, message.pid), message)
            case Counts():
                self._add(self._of(message.host, message.pid), message)
            case Contradicted():
                self._of(message.host, message.pid).places += message.places
            case Account():
                p = self._of(message.stream.host, message.stream.pid)
                p.ledgers.setdefault(message.stream, Ledger()).add(message)
            case OffDuty():
                self._off_duty(self._of(message.host, message.pid), message)
            case Watermark():
                p = self._of(message.host, message.pid)
                done = message.tsc // self._ticks(p) - 1
                if p.process.clocked and done > p.closed and done >= 0:
                    yield from self._report(p, done)
                self.images.take(message)
            case StreamOpen():
                self.images.take(message)
                yield message
            case JitBatch():  # the hub asks for no code
                self.images.take(message)
            case ThreadEnd():
                pass
            case StreamEnd():
                self._of(message.stream.host, message.stream.pid).over[message.stream] = message
            case EndOfStream():
                yield from self.flush()
                yield message
            case _:
                yield message

    def flush(self) -> list[object]:
        """Nothing more comes: everything is told, and every pane closed."""
        return [
            out
            for p in self._processes.values()
            for out in self._report(p, max([p.closed, *p.panes, *p.recovered, *p.guessed, *p.off]))
        ]

    def statistics(self) -> dict[str, int | float]:
        return {
            **{f"profile_{name}": n for name, n in sorted(self.counts.items())},
            "profile_streams": sum(len(p.ledgers) for p in self._processes.values()),
            "profile_blocks": sum(p.dictionary.blocks.size for p in self._processes.values()),
            "profile_paths": sum(p.dictionary.paths.size for p in self._processes.values()),
            **self.images.statistics(),
        }

    def introduce(self) -> list[object]:
        """A receiver has begun anew: the clock of each process."""
        return self.images.introduce()

    def sites_used(self) -> Iterable[NDArray[np.int32] | NDArray[np.int64]]:
        for p in self._processes.values():
            p.contents.forget()  # they are found again: others of their sites may be dropped now
            p.sites.clear()
            panes = (*p.panes.values(), *p.recovered.values(), *p.guessed.values())
            yield from (rows["site"] for pane in panes for rows in pane.rows)
            yield from p.entries.sites_used()

    def sites_dropped(self, labels: set[int]) -> None:
        """Nothing else is kept by them."""

    def _of(self, host: str, pid: int) -> Profiled:
        known = self._processes.get((host, pid))
        if known is None:
            process = self.images.of(host, pid)
            entries = Entries(process.image, process.inlining)
            known = self._processes[host, pid] = Profiled(process, Dictionary(), entries)
        return known

    def _ticks(self, p: Profiled) -> int:
        """Of a pane."""
        return self._pane_ticks or max(1, round(self._pane_seconds * p.process.hz))

    # The counting

    def _count(self, p: Profiled, message: Paths) -> Iterator[None]:
        if p.dictionary.take(message):
            p.contents.forget()
        group, rows = grouped(message, self._ticks(p))
        executed = self._block_counts(
            p.dictionary, rows, _writable(message.order), message.stops["order"].copy(),
            message.stops["tsc"].astype(np.int64), message.breaks["confirmed"].copy(), message.breaks["order"].copy(),
        )  # fmt: skip
        yield
        yield from p.contents.prepare(executed, p.dictionary, p.process.image, p.entries)
        sums = p.contents.sums(executed, p.dictionary)
        told, p.bytecodes = p.bytecodes, None
        if told is not None and told.behind:
            sums = unexplained(sums, self.images.sites)
        elif told is not None and told.explains(message) and len(told.methods):
            known = p.contents.sums(known_part(told, executed), p.dictionary)
            sums = with_methods(sums, known, told, self._sites_of_methods(p, told.methods["method"]))
            yield
        self.counts["instructions"] += int(sums.counts[:, contents.INSTRUCTIONS].sum())
        _add(p.panes, group, sums)

    def _count_recovered(self, p: Profiled, message: Recovered) -> Iterator[None]:
        """Fillings, apart from all that was observed. The time of a hole is its filling's, shared by instructions."""
        if message.generation != p.dictionary.generation or not len(message.steps):
            return
        for provenance, panes in ((Provenance.RECOVERED, p.recovered), (Provenance.GUESSED, p.guessed)):
            group, executed = filled(message, self._ticks(p), p.dictionary, provenance)
            if len(group):
                yield from p.contents.prepare(executed, p.dictionary, p.process.image, p.entries)
                sums = p.contents.sums(executed, p.dictionary)
                name = f"{provenance.name.lower()}_instructions"
                self.counts[name] += int(sums.counts[:, contents.INSTRUCTIONS].sum())
                _add(panes, group, sums)

    def _sites_of_methods(self, p: Profiled, methods: NDArray[np.int32]) -> I64:
        numbers, where = np.unique(methods, return_inverse=True)
        names = (p.methods.get(number, UNKNOWN_METHOD) for number in numbers.tolist())
        return np.array([self.images.sites.site(name, SiteKind.INTERPRETED) for name in names], np.int64)[where]

    def _add(self, p: Profiled, message: Counts) -> None:
        for number, label, kind in message.sites:
            p.sites[number] = self.images.sites.site(label, SiteKind(kind))
        rows = np.zeros(len(message.counts), ROW_DTYPE)
        rows["site"] = [p.sites.get(number, 0) for number in message.counts["site"].tolist()]
        for name in ("tid", "hits", "ticks"):
            rows[name] = message.counts[name]
        p.panes.setdefault(message.pane, Pane()).add(rows)

    def _off_duty(self, p: Profiled, message: OffDuty) -> None:
        ticks, at = self._ticks(p), message.begin
        for _ in range(MAX_OFF_PANES):
            end = min(message.end, (at // ticks + 1) * ticks)
            if at >= end:
                break
            p.off[at // ticks] += end - at
            at = end

    # Reports

    def _report(self, p: Profiled, upto: int) -> list[object]:
        """One report of each pane up to `upto` that has something to say, and of `upto` itself: it closes them."""
        told = tuple(a for ledger in p.ledgers.values() if (a := ledger.take()) is not None)
        ended, p.over = p.over, {}
        for stream in ended:
            p.ledgers.pop(stream, None)
        numbers = sorted(n for n in {*p.panes, *p.recovered, *p.guessed, *p.off} if n <= upto)
        if upto not in numbers and (upto > p.closed or told or p.places):
            numbers.append(upto)
        out: list[object] = []
        for number in numbers:
            last = number == numbers[-1]
            parts = [self._profile(of.pop(number, Pane()).sum()) for of in (p.panes, p.recovered, p.guessed)]
            out.append(
                PaneReport(
                    *p.process.key, self.worker, number, parts[0], self._names(parts), told if last else (),
                    number > p.closed and last, self._gauges(p) if last else (), tuple(p.places) if last else (),
                    p.off.pop(number, 0), *parts[1:],
                )
            )  # fmt: skip
        if numbers:
            p.places.clear()
        p.closed = max(p.closed, upto)
        return [*out, *ended.values()]

    def _profile(self, rows: PaneRows) -> NDArray[np.void]:
        known = self.images.sites
        profile = np.zeros(len(rows), PROFILE_DTYPE)
        sites = rows["site"].tolist()
        profile["method"] = [known.label_of[s] for s in sites]
        profile["kind"] = [known.kind_of[s] for s in sites]
        for column in ("tid", *COLUMNS):
            profile[column] = rows[column]
        return profile

    def _names(self, parts: list[NDArray[np.void]]) -> tuple[tuple[int, str], ...]:
        labels = np.unique(np.concatenate([profile["method"] for profile in parts]))
        return tuple((label, self.images.sites.labels[label]) for label in labels.tolist())

    @staticmethod
    def _gauges(p: Profiled) -> tuple[tuple[str, float], ...]:
        statistics = p.process.image.statistics()
        names = ("code_versions", "code_bytes", "code_evicted", "code_patched", "code_detail")
        gauges = [(name, float(statistics[name])) for name in names if name in statistics]
        return (*gauges, ("jit_dropped", float(p.process.dropped)))


def _add(panes: dict[int, Pane], group: NDArray[np.void], sums: contents.Sums) -> None:
    """The sums to the panes of their groups."""
    out = np.zeros(len(sums.site), ROW_DTYPE)
    out["site"], out["tid"] = sums.site, group["tid"][sums.group]
    for k, column in enumerate(contents.COLUMNS):
        out[column] = sums.counts[:, k]
    out["ticks"] = np.rint(sums.ticks)
    for pane in np.unique(group["pane"]).tolist():
        panes.setdefault(pane, Pane()).add(out[group["pane"][sums.group] == pane])


def _writable(array: NDArray[np.int32]) -> NDArray[np.int32]:
    """Kernels are compiled for arrays that can be written."""
    return array if array.flags.writeable else array.copy()

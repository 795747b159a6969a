"""The code images of the processes that a worker follows: one of each, for all stages of its group.

Stages in one process share an `Images`, so code is parsed and kept once; stages in different processes have one each.
A stage gives it every message that tells of code before it passes that on; a message that the stage before it has given
already is recognised. An image may run ahead of the trace: it is asked about times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.sites import Sites
from jvm.export.parse import parts
from stages.inlining.inlining import Inlining
from stages.messages import JitBatch, PtConfig, StreamOpen, Watermark

ProcessKey = tuple[str, int]  # host, pid
KEEP_SECONDS = 10
"""So long behind the watermark code that is gone is forgotten."""
SPARE_SITES = 1024
MOST_BYTES = 1 << 16
"""Of the JVM's records, taken in in one step."""


class SiteKeeper(Protocol):
    """A stage that keeps site numbers."""

    def sites_used(self) -> Iterable[NDArray[np.int32] | NDArray[np.int64]]: ...

    def sites_dropped(self, labels: set[int]) -> None:
        """The numbers of labels that are free for others now."""


@dataclass(slots=True)
class Process:
    """One traced process. Kept as long as the worker: of a target there is one."""

    key: ProcessKey
    image: CodeImage
    inlining: Inlining = field(init=False)
    hz: float = 1e9  # of the clock, once `clocked`
    config: PtConfig = field(default_factory=PtConfig)
    clocked: bool = False
    opened: StreamOpen | None = None  # its first stream
    early: list[JitBatch] = field(default_factory=list)  # came before the clock, so before the lateness was known
    dropped: int = 0  # records that the agent had no room for
    last: JitBatch | None = None  # the newest that was taken
    forgotten: int = 0  # the watermark at which code was last forgotten

    def __post_init__(self) -> None:
        self.inlining = Inlining(self.image)

    @property
    def clock_step(self) -> int:
        """Ticks from one MTC to the next; 0: the trace has none."""
        c = self.config
        return (c.ctc_num << c.mtc_shift) // c.ctc_den if c.mtc_shift >= 0 and c.ctc_den > 0 else 0

    @property
    def lateness(self) -> int:
        """Ticks by which a load may be told late."""
        return self.image.lateness or 0


def _fed(image: CodeImage, batch: JitBatch) -> Iterator[None]:
    """A late attach tells megabytes at once."""
    for part in parts(batch.data, MOST_BYTES):
        image.feed(batch.data[part])
        yield


class Images:
    """By process. Sites are shared: equal names have one number."""

    def __init__(self, lateness_seconds: float = 0.25, *, lateness_ticks: int = -1) -> None:
        """Seconds become ticks by the first stream's clock, unless ticks are given (≥ 0)."""
        self.sites = Sites()
        self.counts: Counter[str] = Counter()
        self.keepers: list[SiteKeeper] = []
        self._lateness_seconds, self._lateness_ticks = lateness_seconds, lateness_ticks
        self._processes: dict[ProcessKey, Process] = {}
        self._sites_kept = 0  # when some were dropped last

    def of(self, host: str, pid: int) -> Process:
        known = self._processes.get((host, pid))
        if known is None:
            ticks = self._lateness_ticks
            known = Process((host, pid), CodeImage(max(ticks, 0), self.sites), clocked=ticks >= 0)
            self._processes[host, pid] = known
        return known

    def processes(self) -> Iterable[Process]:
        return self._processes.values()

    def take(self, message: StreamOpen | JitBatch | Watermark) -> None:
        """Takes in a message's code. A message that was taken before changes nothing."""
        for _ in self.steps(message):
            pass

    def steps(self, message: StreamOpen | JitBatch | Watermark) -> Iterator[None]:
        """`take` in steps: None between two of them."""
        match message:
            case StreamOpen():
                yield from self._open(self.of(message.stream.host, message.stream.pid), message)
            case JitBatch():
                yield from self._batch(self.of(message.host, message.pid), message)
            case Watermark():
                p = self.of(message.host, message.pid)
                if message.tsc - p.forgotten >= p.hz:  # to look through all code takes long
                    p.forgotten = message.tsc
                    yield from p.image.settling()
                    p.image.forget_before(max(0, message.tsc - round(KEEP_SECONDS * p.hz)))
                    self._drop_sites()

    def end(self) -> None:
        """Nothing more comes: messages that still wait for a clock are taken without one."""
        for p in self._processes.values():
            for _ in self._feed_early(p):
                pass

    def introduce(self) -> list[object]:
        """A receiver has begun anew: the first stream of each process, with its clock."""
        return [p.opened for p in self._processes.values() if p.opened is not None]

    def statistics(self) -> dict[str, int | float]:
        total: Counter[str] = Counter({"code_sites": self.sites.known})
        for p in self._processes.values():
            total.update(p.image.statistics())
        return {**dict(sorted(total.items())), **{f"code_{name}": n for name, n in sorted(self.counts.items())}}

    def _open(self, p: Process, opened: StreamOpen) -> Iterator[None]:
        if p.opened is not None:
            return
        p.opened, p.clocked, p.hz, p.config = opened, True, opened.clock.hz, opened.config
        if self._lateness_ticks < 0:
            p.image.lateness = max(0, round(self._lateness_seconds * p.hz))
        yield from self._feed_early(p)

    def _batch(self, p: Process, batch: JitBatch) -> Iterator[None]:
        if batch is p.last:
            return
        p.last = batch
        if batch.dropped > p.dropped:
            self.counts["jit_dropped"] += batch.dropped - p.dropped
            p.dropped = batch.dropped
        if p.clocked:
            yield from _fed(p.image, batch)
        else:
            p.early.append(batch)

    @staticmethod
    def _feed_early(p: Process) -> Iterator[None]:
        early, p.early = p.early, []
        for batch in early:
            yield from _fed(p.image, batch)

    def _drop_sites(self) -> None:
        """When there are many that no code and no stage has."""
        if self.sites.known <= 2 * self._sites_kept + SPARE_SITES:
            return
        used = np.zeros(len(self.sites), np.bool_)
        for p in self._processes.values():
            for sites in p.image.sites_used():
                used[sites] = True
        for keeper in self.keepers:
            for kept in keeper.sites_used():
                used[kept] = True
        gone = self.sites.drop(~used)
        for keeper in self.keepers:
            keeper.sites_dropped(gone)
        self._sites_kept = self.sites.known

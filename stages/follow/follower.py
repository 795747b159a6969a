"""What a thread executed in a piece of a segment, counted by site.

`stages.flow` gives paths with counts. A path is a list of stretches, and a stretch lies in one version of the code, so
what a stretch holds (instructions of which sites, entries of which methods) is found once, when it first runs, and
after that a piece costs one addition for each (stretch, site).

The walker knows one state of the code at a time. Code is looked up as it was at the end of the piece, but not more
often than each `quantum` ticks: what is loaded in between at a free address does no harm earlier, and a comparison of
all bytes for each load would cost more than the walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from stages.follow.cfg.cycle import untold
from stages.follow.cfg.graph import COND, PA, PA_LEN, PA_POOL, ST, ST_FROM, ST_INSTRS, ST_KIND, ST_TAKEN, Tables
from stages.follow.code import jumps
from stages.follow.contradictions import Contradictions
from stages.follow.flow import Flow, FlowOutput
from stages.follow.repair.repair import Chooser
from stages.follow.walk import path_sequence as orders
from stages.follow.walk.state import B_OFF_CODE, B_OVERFLOW
from stages.messages import Loss, PtConfig, Segment
from stages.profile.entries import WAYS, Entries
from stages.profile.inlining import EXECUTED, NOT_TAKEN, TAKEN

I64 = NDArray[np.int64]

SLACK_QUANTA = 50
"""By so many quanta the times of the code image may be wrong (1 s at the default quantum)."""


INSTRUCTIONS, INVOCATIONS, UNTOLD, UNCOUNTED = range(4)
COUNTS = 4


class Counted(NamedTuple):
    """What ran in one piece: columns of equal length, a site may come several times."""

    site: NDArray[np.int32]
    instructions: I64
    invocations: I64
    untold: I64  # how often more invocations were made than are counted, and it is not known how many
    uncounted: I64  # how often code ran in which its invocations are not counted
    ticks: NDArray[np.float64]
    breaks: tuple[tuple[Loss, int], ...]  # how often the trace contradicted the code, or went where none is known


class _Stretches:
    """What each stretch of one generation of tables holds, found when it first runs. The ways out of one that ends in a
    conditional branch have rows of their own, `WAYS * id + TAKEN` and `+ NOT_TAKEN`; whether calls are made on one of
    them is in `branches`."""

    def __init__(self, tables: Tables) -> None:
        self.generation = tables.stretch  # the array stands for the generation
        size = WAYS * len(tables.address)
        self.branches = np.zeros(len(tables.address), np.bool_)
        self.first = np.full(size, -1, np.int64)
        self.count = np.zeros(size, np.int64)
        self.site = np.empty(1 << 12, np.int32)
        self.counts = np.empty((COUNTS, 1 << 12), np.int64)
        self.used = 0

    def describe(self, ids: NDArray[np.int64], tables: Tables, image: CodeImage, entries: Entries, tsc: int) -> None:
        """Find what the stretches `ids` (none described before) hold, by the code at `tsc`."""
        addresses, first = orders.stretch_addresses(tables, ids)
        sites = image.sites_of(addresses, np.full(len(addresses), tsc, np.uint64)).astype(np.int64)
        owner = WAYS * np.repeat(ids, np.diff(first))
        ended = ids[tables.stretch[ids * ST + ST_KIND] == COND]
        last = tables.last[ended].view(np.uint64)
        told = [(owner << 32 | sites, INSTRUCTIONS, np.ones(len(sites), np.int64))]
        ways = [(EXECUTED, owner, addresses), *((way, WAYS * ended + way, last) for way in (TAKEN, NOT_TAKEN))]
        for way, rows, where in ways:
            position, called, times = entries.find(tsc, where, way)
            told.append((rows[position] << 32 | called, INVOCATIONS, times))
            if way != EXECUTED:
                self.branches[ended[position]] = True
        position, called = entries.uncounted(tsc, addresses)
        keys = np.unique(owner[position] << 32 | called)
        told.append((keys, UNCOUNTED, np.ones(len(keys), np.int64)))
        for id_ in ids[tables.stretch[ids * ST + ST_FROM] != 0].tolist():
            _, called, _ = entries.find(tsc, untold(tables, id_))
            keys = WAYS * id_ << 32 | np.unique(called)
            told.append((keys, UNTOLD, np.ones(len(keys), np.int64)))
        unique, at = np.unique(np.concatenate([keys for keys, _, _ in told]), return_inverse=True)
        column = np.repeat([column for _, column, _ in told], [len(keys) for keys, _, _ in told])
        lo, hi = self.used, self.used + len(unique)
        self._room(hi)
        self.site[lo:hi] = unique & 0xFFFFFFFF
        self.counts[:, lo:hi] = 0
        np.add.at(self.counts, (column, lo + at), np.concatenate([times for _, _, times in told]))
        those, begin, size = np.unique(unique >> 32, return_index=True, return_counts=True)
        self.first[WAYS * ids] = lo
        self.first[those] = lo + begin
        self.count[those] = size
        self.used = hi

    def _room(self, rows: int) -> None:
        while rows > len(self.site):
            self.site = np.concatenate((self.site, np.empty_like(self.site)))
            self.counts = np.concatenate((self.counts, np.empty_like(self.counts)), axis=1)


class Follower:
    """Follows the threads of one process through its code as it changes."""

    def __init__(self, image: CodeImage, config: PtConfig, quantum: int) -> None:
        """`quantum`: ticks, see above. Segments must come when the image is complete up to their end + `quantum`."""
        self.flow = Flow(config, context=False)
        self.contradictions = Contradictions()
        self.chooser = Chooser(self.flow, image, SLACK_QUANTA * max(1, quantum))
        self._image, self._quantum = image, max(1, quantum)
        self._at = -1  # the time as of which the walker knows the code
        self._epoch = self._census = -1
        self._stretches: _Stretches | None = None
        self._entries = Entries(image)

    def count(self, segment: Segment) -> list[Counted]:
        """Follow one piece. Usually one result; more where tables had to be renewed in the middle."""
        return [counted for counted in self.steps(segment) if counted is not None]

    def steps(self, segment: Segment) -> Iterator[Counted | None]:
        """`count`, in steps as `Flow.steps`."""
        yield from self._look(segment.tsc_end)
        self.chooser.begin(segment)
        for output in self.flow.steps(segment):
            if output is None:
                yield None
            else:
                self.chooser.learn(output.learnt)
                yield self._counted(output)

    def sites_used(self) -> Iterator[I64]:
        """Sites that are kept here. Of stretches they are found again: others of them may be dropped now."""
        self._stretches = None
        yield from self._entries.sites_used()

    def _look(self, tsc: int) -> Iterator[None]:
        at = (tsc // self._quantum + 1) * self._quantum
        if at != self._at or self._epoch != self._image.epoch:
            if self._epoch != self._image.epoch or self._changed(at):
                self.flow.set_code(self._image.view(at))
                yield None
                if self._census != self._image.census:
                    self._census = self._image.census
                    self.flow.jumps = jumps.of_image(self._image)
                    yield None
            self._at, self._epoch = at, self._image.epoch

    def _changed(self, at: int) -> bool:
        return at < self._at or self._image.next_change(self._at) <= at

    def _counted(self, output: FlowOutput) -> Counted:
        tables = output.tables
        self.contradictions.add(output.breaks, _suspect(output), self._image, self._at)
        if self._stretches is None or self._stretches.generation is not tables.stretch:
            self._stretches = _Stretches(tables)
        known = self._stretches
        ids, times, ticks, stretch, to, each = _by_stretch(output)
        new = ids[known.first[WAYS * ids] < 0]
        if len(new):
            known.describe(new, tables, self._image, self._entries, self._at)
        left = np.flatnonzero(known.branches[stretch] & (to > 0))
        ways, more = _by_way(tables, stretch[left], to[left], each[left])
        rows_of = np.concatenate((WAYS * ids, ways))
        ids, times = np.concatenate((ids, ways // WAYS)), np.concatenate((times, more))
        ticks = np.concatenate((ticks, np.zeros(len(ways))))
        count = known.count[rows_of]
        rows = np.repeat(known.first[rows_of] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        counts = known.counts[:, rows]
        whole = np.maximum(tables.stretch[ids * ST + ST_INSTRS], 1)
        share = counts[INSTRUCTIONS] / np.repeat(whole, count)
        counts *= np.repeat(times, count)
        return Counted(
            known.site[rows],
            counts[INSTRUCTIONS],
            counts[INVOCATIONS],
            counts[UNTOLD],
            counts[UNCOUNTED],
            share * np.repeat(ticks, count),
            _causes(output.breaks["cause"]),
        )


def _by_stretch(output: FlowOutput) -> tuple[I64, I64, NDArray[np.float64], I64, I64, I64]:
    """Paths taken apart: distinct stretch ids, how often each ran, the ticks in it by its share of instructions. Behind
    them, of each place on a path: the stretch, the one that it led to (0: not told here), how often."""
    tables, paths = output.tables, output.paths
    size = tables.path[paths * PA + PA_LEN].astype(np.int64)
    at = tables.path[paths * PA + PA_POOL].astype(np.int64)
    where = np.repeat(at - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
    stretch = tables.pool[where].astype(np.int64)
    ids, index = np.unique(stretch, return_inverse=True)
    times = np.zeros(len(ids), np.int64)
    each = np.repeat(output.times, size)
    np.add.at(times, index, each)
    ticks = np.zeros(len(ids), np.float64)
    whole = np.repeat(np.maximum(tables.path_instrs[paths], 1), size)
    np.add.at(ticks, index, np.repeat(output.ticks, size) * tables.stretch[stretch * ST + ST_INSTRS] / whole)
    return ids, times, ticks, stretch, tables.pool[where + 1].astype(np.int64), each


def _by_way(tables: Tables, stretch: I64, to: I64, each: I64) -> tuple[I64, I64]:
    """Stretches that end in a conditional branch, and where that led: rows of `_Stretches`, and how often."""
    taken = tables.address[tables.stretch[stretch * ST + ST_TAKEN]] == tables.address[to]
    ways, index = np.unique(WAYS * stretch + np.where(taken, TAKEN, NOT_TAKEN), return_inverse=True)
    times = np.zeros(len(ways), np.int64)
    np.add.at(times, index, each)
    return ways, times


def _suspect(output: FlowOutput) -> I64:
    """(n,) instructions that each break puts in doubt."""
    instructions = output.tables.path_instrs
    parts = [output.order[a:b] for a, b in output.breaks[["sure", "order"]].tolist()]
    return np.array([instructions[orders.paths(part)].sum() for part in parts], np.int64)


def _causes(cause: I64) -> tuple[tuple[Loss, int], ...]:
    missing, overflow = int((cause == B_OFF_CODE).sum()), int((cause == B_OVERFLOW).sum())
    counts = {Loss.CODE_MISSING: missing, Loss.DESYNC: len(cause) - missing - overflow}  # an OVF is counted by decode
    return tuple((loss, n) for loss, n in counts.items() if n)

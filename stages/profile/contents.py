"""What each block of a generation holds: instructions of which sites, entries of which methods.

Found when a block first runs, by the code as at the time at which it was walked. The ways out of a block that ends in a
conditional branch have rows of their own, for calls that are made on one of them alone (stages.profile.inlining).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from stages.messages.paths import BlockEnd, Way
from stages.paths.counts import WAYS, Executed
from stages.paths.dictionary import Dictionary, spans
from stages.profile.entries import Entries
from stages.profile.inlining import EXECUTED, NOT_TAKEN, TAKEN

I64 = NDArray[np.int64]
assert (int(Way.UNKNOWN), int(Way.TAKEN), int(Way.NOT_TAKEN)) == (EXECUTED, TAKEN, NOT_TAKEN)


COLUMNS = ("instructions", "invocations", "untold", "uncounted")
BLOCKS = 256
"""In one step: in code that runs for the first time each may lie in an nmethod of its own, which is taken apart."""
INSTRUCTIONS, INVOCATIONS, UNTOLD, UNCOUNTED = range(len(COLUMNS))


class Found(NamedTuple):
    """(n,) rows of `Executed`, (n,) sites, (COLUMNS, n) counts, (n,) ticks; a pair of row and site may come again."""

    row: I64
    site: I64
    counts: I64
    ticks: NDArray[np.float64]


class Contents:
    """Of one process. Dropped with the generation, and when sites are dropped: others are found again."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._first = np.zeros(0, np.int64)  # by WAYS * block + way; −1: not found yet
        self._count = np.zeros(0, np.int64)
        self._branches = np.zeros(0, np.bool_)  # by block: calls are made on one of its ways out
        self._site = np.empty(1 << 12, np.int32)
        self._counts = np.empty((len(COLUMNS), 1 << 12), np.int64)
        self._used = 0

    def prepare(self, e: Executed, d: Dictionary, image: CodeImage, entries: Entries) -> Iterator[None]:
        """Finds what the blocks hold that run for the first time, in steps."""
        self._grow(len(d.blocks.rows))
        new = np.unique(e.block[self._first[WAYS * e.block] < 0])
        times = d.blocks.rows["tsc"][new]
        for tsc in np.unique(times).tolist():
            blocks = new[times == tsc]
            for k in range(0, len(blocks), BLOCKS):
                self._describe(blocks[k : k + BLOCKS], d, image, entries, tsc)
                yield

    def of(self, e: Executed, d: Dictionary) -> Found:
        """What was executed, by site. All of it must have been prepared."""
        left = np.flatnonzero(self._branches[e.block] & (e.way != EXECUTED))
        row = np.concatenate((np.arange(len(e.block)), left))
        what = np.concatenate((WAYS * e.block, WAYS * e.block[left] + e.way[left]))
        found, owner = spans(self._first[what], self._count[what])
        row = row[owner]
        counts = self._counts[:, found]
        whole = np.maximum(d.blocks.rows["instructions"][e.block], 1)
        ticks = counts[INSTRUCTIONS] / whole[row] * e.ticks[row]
        counts *= e.times[row]
        return Found(row, self._site[found].astype(np.int64), counts, ticks)

    def _grow(self, blocks: int) -> None:
        if blocks > len(self._branches):
            more = max(blocks, 2 * len(self._branches), 1 << 12) - len(self._branches)
            self._first = np.append(self._first, np.full(WAYS * more, -1, np.int64))
            self._count = np.append(self._count, np.zeros(WAYS * more, np.int64))
            self._branches = np.append(self._branches, np.zeros(more, np.bool_))

    def _describe(self, ids: I64, d: Dictionary, image: CodeImage, entries: Entries, tsc: int) -> None:
        """The blocks `ids` (ascending, none described before), by the code at `tsc`."""
        addresses, first = d.addresses(ids)
        rows = d.blocks.rows[ids]
        sites = image.sites_of(addresses, np.full(len(addresses), tsc, np.uint64)).astype(np.int64)
        owner = WAYS * np.repeat(ids, np.diff(first))
        branching = rows["ends"] == int(BlockEnd.CONDITION)
        ended, last = ids[branching], rows["last"][branching]
        told = [(owner << 32 | sites, INSTRUCTIONS, np.ones(len(sites), np.int64))]
        ways = [(EXECUTED, owner, addresses), *((way, WAYS * ended + way, last) for way in (TAKEN, NOT_TAKEN))]
        for way, blocks, where in ways:
            position, called, times = entries.find(tsc, where, way)
            told.append((blocks[position] << 32 | called, INVOCATIONS, times))
            if way != EXECUTED:
                self._branches[ended[position]] = True
        position, called = entries.uncounted(tsc, addresses)
        keys = np.unique(owner[position] << 32 | called)
        told.append((keys, UNCOUNTED, np.ones(len(keys), np.int64)))
        for k in np.flatnonzero(rows["cycles"]).tolist():
            at, size = int(rows["cycle"][k]), int(rows["cycles"][k])
            _, called, _ = entries.find(tsc, d.cycles.rows[at : at + size].view(np.uint64))
            keys = WAYS * int(ids[k]) << 32 | np.unique(called)
            told.append((keys, UNTOLD, np.ones(len(keys), np.int64)))
        unique, at_key = np.unique(np.concatenate([keys for keys, _, _ in told]), return_inverse=True)
        column = np.repeat([column for _, column, _ in told], [len(keys) for keys, _, _ in told])
        lo, hi = self._used, self._used + len(unique)
        self._room(hi)
        self._site[lo:hi] = unique & 0xFFFFFFFF
        self._counts[:, lo:hi] = 0
        np.add.at(self._counts, (column, lo + at_key), np.concatenate([times for _, _, times in told]))
        those, begin, counts = np.unique(unique >> 32, return_index=True, return_counts=True)
        self._first[WAYS * ids] = lo
        self._first[those] = lo + begin
        self._count[those] = counts
        self._used = hi

    def _room(self, rows: int) -> None:
        while rows > len(self._site):
            self._site = np.concatenate((self._site, np.empty_like(self._site)))
            self._counts = np.concatenate((self._counts, np.empty_like(self._counts)), axis=1)

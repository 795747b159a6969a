"""The contents of each block of a generation: instructions of which sites, entries of which methods,
bytecodes of which templates of the interpreter.

Found when a block first runs, by the code as at the time at which it was walked. The ways out of a block that ends in a
conditional branch have rows of their own, for calls that are made on one of them alone (stages.inlining.inlining).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.kernels import kernel
from stages.inlining.class_measures import EXECUTED, NOT_TAKEN, TAKEN
from stages.messages.paths import BlockEnd, Way
from stages.paths.counts import WAYS, Executed
from stages.paths.dictionary import Dictionary
from stages.paths.refusals import refused
from stages.profile.entries import Entries

I64 = NDArray[np.int64]
assert (int(Way.UNKNOWN), int(Way.TAKEN), int(Way.NOT_TAKEN)) == (EXECUTED, TAKEN, NOT_TAKEN)


COLUMNS = ("instructions", "invocations", "untold", "uncounted", "bytecodes")
BLOCKS = 256
"""In one step: in code that runs for the first time each may lie in an nmethod of its own, which is taken apart."""
INSTRUCTIONS, INVOCATIONS, UNTOLD, UNCOUNTED, BYTECODES = range(len(COLUMNS))


class Sums(NamedTuple):
    """A row for each site of a group of `Executed`: (n,) groups, ascending, (n,) sites, (n, COLUMNS) counts, (n,)
    ticks."""

    group: I64
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
        self._place = np.zeros(0, np.int64)  # by site; zeros between two calls

    def prepare(self, e: Executed, d: Dictionary, image: CodeImage, entries: Entries) -> Iterator[None]:
        """Finds the contents of the blocks that run for the first time, in steps."""
        self._grow(len(d.blocks.rows))
        new = np.unique(e.block[self._first[WAYS * e.block] < 0])
        times = d.blocks.rows["tsc"][new]
        for tsc in np.unique(times).tolist():
            blocks = new[times == tsc]
            for k in range(0, len(blocks), BLOCKS):
                self._describe(blocks[k : k + BLOCKS], d, image, entries, tsc)
                yield

    def sums(self, e: Executed, d: Dictionary) -> Sums:
        """The execution summed by site. All of it must have been prepared."""
        sites = int(self._site[: self._used].max(initial=0)) + 1
        if sites > len(self._place):
            self._place = np.zeros(2 * sites, np.int64)
        what = WAYS * e.block
        most = int(self._count[what].sum() + self._count[what + e.way].sum())
        out = Sums(
            np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros((most, len(COLUMNS)), np.int64), np.zeros(most)
        )  # fmt: skip
        n = site_sums(
            e.group, e.block, e.way, e.times, e.ticks, d.blocks.rows, self._first, self._count, self._branches,
            self._site, self._counts, self._place, *out,
        )  # fmt: skip
        return Sums(out.group[:n], out.site[:n], out.counts[:n], out.ticks[:n])

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
        whose = np.concatenate((owner, WAYS * ended + TAKEN, WAYS * ended + NOT_TAKEN))
        way = np.repeat((EXECUTED, TAKEN, NOT_TAKEN), (len(addresses), len(ended), len(ended)))
        position, called, times = entries.find(tsc, np.concatenate((addresses, last, last)), way)
        void = refused(d, ids, np.isin(addresses, entries.verified(tsc)))
        enters = ~np.append(void, np.zeros(2 * len(ended), np.bool_))[position]
        position, called, times = position[enters], called[enters], times[enters]
        told.append((whose[position] << 32 | called, INVOCATIONS, times))
        ran, of, bytecodes = entries.ran(tsc, np.concatenate((addresses, last, last)), way)
        stands = ~np.append(void, np.zeros(2 * len(ended), np.bool_))[ran]
        ran, of, bytecodes = ran[stands], of[stands], bytecodes[stands]
        told.append((whose[ran] << 32 | of, BYTECODES, bytecodes))
        position = np.append(position, ran)
        self._branches[whose[position[way[position] != EXECUTED]] // WAYS] = True
        position, template, bytecodes = entries.bytecodes(addresses)
        told.append((owner[position] << 32 | template, BYTECODES, bytecodes))
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


@kernel
def site_sums(  # type: ignore[no-untyped-def]
    group, block, way, times, ticks, blocks, first, count, branches, site, counts, place, out_group, out_site,
    out_counts, out_ticks,
):  # fmt: skip
    """`Contents.sums`: fills the last four, which have room for a row for each site of each block. How many rows.
    `place`: by site, zeros."""
    n = begin = 0
    for k in range(len(group)):
        if k and group[k] != group[k - 1]:
            for m in range(begin, n):
                place[out_site[m]] = 0
            begin = n
        whole = max(blocks[block[k]]["instructions"], 1)
        left = branches[block[k]] and way[k] != EXECUTED
        for part in range(2 if left else 1):
            what = block[k] * WAYS + (way[k] if part else EXECUTED)
            for q in range(first[what], first[what] + count[what]):
                s = site[q]
                if place[s] == 0:
                    out_group[n], out_site[n] = group[k], s
                    n += 1
                    place[s] = n
                at = place[s] - 1
                for c in range(len(counts)):
                    out_counts[at, c] += counts[c, q] * times[k]
                out_ticks[at] += counts[INSTRUCTIONS, q] / whole * ticks[k]
    for m in range(begin, n):
        place[out_site[m]] = 0
    return n

"""Fidelity `ip`: pieces and the code image → which code the addresses in the trace belong to, pane by pane.

Counted are `hits`, the packets with an address in this code, and `ticks`, the time from there to the next address
(`stages.attribute.addresses`). Which Java method the interpreter runs cannot be seen from addresses: its codelets are
counted. At fidelity `flow` only shed pieces come here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from stages.attribute.addresses import ADDRESSES, AT_SIZE, OUTSIDE, SITE, UNKNOWN, attribute
from stages.images import Images
from stages.messages import (
    COUNT_DTYPE,
    Account,
    CodeKind,
    Counts,
    JitBatch,
    MarkKind,
    Pieces,
    StreamEnd,
    StreamKey,
    StreamOpen,
    Watermark,
)

MAX_PANES = 4096
"""Panes that one piece of a segment may reach over; a piece that reaches further has a broken clock."""
_PSB, _TIME = int(MarkKind.PSB), int(MarkKind.TIME)
_END_OF_TIME = (1 << 64) - 1


class Attribute:
    """Pieces → Counts, Account. All else passes."""

    def __init__(self, images: Images | None = None, *, pane_seconds: float = 1.0, pane_ticks: int = 0) -> None:
        """Seconds become ticks by the first stream's clock, unless ticks are given."""
        self.images = images or Images()
        self.images.keepers.append(self)
        self.counts: Counter[str] = Counter()
        self._pane_seconds, self._pane_ticks = pane_seconds, pane_ticks
        # offset, thread, and the site in effect there; dropped with the stream
        self._site: dict[StreamKey, tuple[int, int, int]] = {}
        self._told: set[int] = set()  # sites
        self._hits = np.zeros(1024, np.uint64)
        self._ticks = np.zeros(1024, np.uint64)

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps, one a piece: None between two of them."""
        match message:
            case Pieces():
                for n in np.lexsort((message.rows["offset"], message.rows["stream"])).tolist():
                    yield from self._piece(message, n)
                    yield None
            case JitBatch() | StreamOpen() | Watermark():
                yield message
                self.images.take(message)
            case StreamEnd():
                self._site.pop(message.stream, None)
                yield message
            case _:
                yield message

    def flush(self) -> list[object]:
        return []

    def statistics(self) -> dict[str, int | float]:
        own = {f"attribute_{name}": n for name, n in sorted(self.counts.items())}
        return {**own, "attribute_streams": len(self._site), **self.images.statistics()}

    def introduce(self) -> list[object]:
        """A receiver has begun anew: sites are told again."""
        self._told.clear()
        return self.images.introduce()

    def sites_used(self) -> Iterable[NDArray[np.int64]]:
        yield np.array([site for *_, site in self._site.values() if site >= 0], np.int64)

    def sites_dropped(self, labels: set[int]) -> None:
        self._told.clear()

    def _piece(self, pieces: Pieces, n: int) -> Iterator[object]:
        row = pieces.rows[n]
        stream, tid = pieces.streams[row["stream"]], int(row["tid"])
        offset, size = int(row["offset"]), int(row["end"] - row["begin"])
        self.counts["bytes"] += size
        p = self.images.of(pieces.host, pieces.pid)
        pane_ticks = self._pane_ticks or max(1, round(self._pane_seconds * p.hz))
        point, tscs = _points(pieces, row)
        first, last = int(tscs[0]) // pane_ticks, int(tscs[-1]) // pane_ticks
        if last - first >= MAX_PANES:
            self.counts["time_jumps"] += 1
            tscs, last = np.full_like(tscs, tscs[0]), first
        before, whose, site = self._site.get(stream, (-1, 0, OUTSIDE))
        at = np.zeros(AT_SIZE, np.int64)
        at[SITE] = site if before == offset and whose == tid else OUTSIDE
        when = np.array([row["last_ip"], tscs[0]], np.uint64)
        data = pieces.data[row["begin"] : row["end"]]
        data = data if data.flags.writeable else data.copy()  # kernels are compiled for writable arrays
        table = p.image.table()
        if len(self.images.sites) > len(self._hits):
            self._hits = np.zeros(2 * len(self.images.sites), np.uint64)
            self._ticks = np.zeros(2 * len(self.images.sites), np.uint64)
        hits, ticks = self._hits, self._ticks
        for pane in range(first, last + 1):
            hi = np.uint64(min((pane + 1) * pane_ticks, _END_OF_TIME))
            attribute(data, table, point, tscs, hi, at, when, hits, ticks)
            touched = np.flatnonzero(hits | ticks)
            if len(touched):
                counts = np.zeros(len(touched), COUNT_DTYPE)
                counts["site"], counts["tid"] = touched, tid
                counts["hits"], counts["ticks"] = hits[touched], ticks[touched]
                hits[touched] = ticks[touched] = 0
                yield Counts(*p.key, pane, counts, self._sites(touched))
        self._site[stream] = offset + size, tid, int(at[SITE])
        self.counts["addresses"] += int(at[ADDRESSES])
        self.counts["unknown_addresses"] += int(at[UNKNOWN])
        yield Account(stream, offset, offset + size, size, (), shed=size if pieces.shed else 0)

    def _sites(self, sites: NDArray[np.int64]) -> tuple[tuple[int, str, CodeKind], ...]:
        """The sites that have not been told."""
        new = set(sites.tolist()) - self._told
        self._told |= new
        known = self.images.sites
        return tuple((site, known.label(site), CodeKind(known.kind_of[site])) for site in sorted(new))


def _points(pieces: Pieces, row: np.void) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """(m,) positions in a piece's bytes, from 0 to their number, at which the time is known, and (m,) times."""
    marks = pieces.marks[row["mark"] : row["mark_end"]]
    kind = marks["kind"]
    timed = marks[(kind == _PSB) | (kind == _TIME)]
    at = (timed["offset"] - row["offset"]).astype(np.int64)
    size = np.array([row["end"] - row["begin"]], np.int64)
    point = np.concatenate((np.zeros(1, np.int64), at, size))
    tsc = np.concatenate((row["tsc"][None], timed["tsc"], row["tsc_end"][None]))
    first = int(np.count_nonzero(at == 0))  # a PSB at the very beginning has the time there
    return point[first:], np.maximum.accumulate(tsc)[first:]

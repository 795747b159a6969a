"""Where methods are entered in the code of a process: compiled ones, and those inlined in them.

Executing an entry's instruction is an invocation. For what is inlined that is what the compiler tells
(jvm.debuginfo): exact where every instruction is described, and less so where code has few descriptions or the
compiler has mixed a method's instructions with its caller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.codeimage import CodeImage
from jvm.codeversion import Version

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


class _Rows(NamedTuple):
    resolved: bool  # every method was known by name
    address: U64
    site: I64


class Entries:
    """Of one code image. What each version has is found once."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._known: dict[int, _Rows] = {}
        self._census = -1
        self._address, self._since, self._until = (np.zeros(0, np.uint64) for _ in range(3))
        self._site = np.zeros(0, np.int64)

    def at(self, tsc: int) -> tuple[U64, I64]:
        """The entries in the code as it was at `tsc`: (n,) addresses, ascending, and (n,) sites. Several may be at one
        address: a method that begins with the first instruction of one that is inlined in it."""
        if self._census != self._image.census:
            self._census = self._image.census
            self._gather()
        here = (self._since <= np.uint64(tsc)) & (self._until > np.uint64(tsc))
        return self._address[here], self._site[here]

    def find(self, tsc: int, addresses: U64) -> tuple[I64, I64]:
        """Which of (m,) addresses are entries: (k,) positions and (k,) sites."""
        entries, sites = self.at(tsc)
        lo, hi = np.searchsorted(entries, addresses, "left"), np.searchsorted(entries, addresses, "right")
        count = hi - lo
        position = np.repeat(np.arange(len(addresses)), count)
        row = np.repeat(lo - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        return position, sites[row]

    def sites_used(self) -> Iterator[I64]:
        return (rows.site for rows in self._known.values())

    def _gather(self) -> None:
        versions = [v for v in self._image.versions() if v.verified_entry]
        for v in versions:
            if v.id not in self._known or not self._known[v.id].resolved:
                self._known[v.id] = self._rows(v)
        self._known = {v.id: self._known[v.id] for v in versions}
        rows = list(self._known.values())
        size = [len(r.address) for r in rows]
        address = np.concatenate([r.address for r in rows] or [np.zeros(0, np.uint64)])
        order = np.argsort(address, kind="stable")
        self._address = address[order]
        self._site = np.concatenate([r.site for r in rows] or [np.zeros(0, np.int64)])[order]
        self._since = np.repeat(np.array([v.since for v in versions], np.uint64), size)[order]
        self._until = np.repeat(np.array([v.until for v in versions], np.uint64), size)[order]

    def _rows(self, v: Version) -> _Rows:
        own = self._image.sites.site(v.name, v.site_kind)
        offset, method = v.debug.inlined() if v.debug is not None else (np.zeros(0, np.uint32), np.zeros(0, np.uint32))
        # What is described as inlined from the nmethod's beginning on begins where callers arrive.
        inner = np.maximum(v.start + offset.astype(np.uint64), np.uint64(v.verified_entry))
        names = [self._image.methods.get(m) for m in method.tolist()]
        known = np.array([name is not None for name in names], np.bool_)
        sites = [self._image.sites.site(name, v.site_kind) for name in names if name is not None]
        return _Rows(
            bool(known.all()) and not v.unresolved,
            np.concatenate((np.array([v.verified_entry], np.uint64), inner[known])),
            np.array([own, *sites], np.int64),
        )

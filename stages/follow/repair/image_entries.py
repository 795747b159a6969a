"""Nmethods' entries, and the stubs that calls lead to before they are bound, by the code image, as columns.

The image changes with nearly every segment of a JVM that compiles. So all of a version that never changes is taken
once, when it comes, and kept in the order of addresses; when it closes is read anew, in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from jvm.calls.stubs import RESOLVERS, Stub, stub_of
from jvm.code.image import CodeImage
from jvm.code.version import FOREVER, Kind, Version
from stages.follow.repair.candidates import LAST
from stages.follow.repair.known import Known

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

UNBOUND = RESOLVERS[:3]
_NONE: I64 = np.zeros(0, np.int64)


class ImageEntries:
    """Of one code image; its rows of a version go with that."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._of = 0, 0  # how many versions, and the last: there are no others with both the same
        self._nmethods: list[Version] = []
        self._entry, self._entry_point = (
            (_NONE, _NONE),
            (_NONE, _NONE),
        )  # addresses, ascending; which nmethod's they are
        self._opens = _NONE
        self._refusal = self._inline = self._resolver = _NONE
        self._bodies = _NONE, _NONE, _NONE, _NONE  # starts, ascending, ends, methods, and which nmethods they are

    def add(self, known: Known) -> Known:
        """`known` with columns as the image is now."""
        versions = list(self._image.versions())
        of = len(versions), versions[-1].id if versions else 0
        if of != self._of:
            self._of = of
            self._take(versions)
        until = self._column(lambda v: v.until)
        ended = np.minimum(until, self._column(lambda v: v.not_entrant))
        closes = np.minimum(ended, np.uint64(LAST)).view(np.int64)
        (entry, entry_of), (entry_point, point_of) = self._entry, self._entry_point
        stands = until[self._bodies[-1]] == np.uint64(FOREVER)  # what another lies over has ended
        body, body_end, body_method, _ = (column[stands] for column in self._bodies)
        return known._replace(
            body=body, body_end=body_end, body_method=body_method,
            entry=entry, refused=closes[entry_of], entry_point=entry_point, opens=self._opens, closes=closes[point_of],
            refusal=self._refusal, inline=self._inline, resolver=self._resolver,
        )  # fmt: skip

    def _take(self, versions: list[Version]) -> None:
        self._nmethods = sorted((v for v in versions if v.kind == Kind.NMETHOD), key=lambda v: v.since)
        verified, entry = self._column(lambda v: v.verified_entry), self._column(lambda v: v.entry)
        those = np.arange(len(self._nmethods))
        self._entry = _last(verified[verified != 0], those[verified != 0])
        self._entry_point = _last(np.concatenate((entry, verified)), np.concatenate((those, those)))
        self._opens = self._column(lambda v: v.loaded if v.since else 0).view(np.int64)[self._entry_point[1]]
        start, end = self._column(lambda v: v.start), self._column(lambda v: v.end)
        method = self._column(lambda v: v.method)
        those = np.argsort(start, kind="stable")
        those = those[method[those] != 0]
        self._bodies = *(column[those].view(np.int64) for column in (start, end, method)), those
        stubs = {stub_of(v): v for v in versions if v.kind != Kind.NMETHOD}
        wrong, inline = stubs.get(Stub.WRONG_METHOD), stubs.get(Stub.INLINE_CACHE)
        self._refusal = _addresses([wrong.start] if wrong else [])
        self._inline = _addresses([inline.start, inline.end] if inline else [])
        self._resolver = _addresses([stubs[s].start for s in UNBOUND] if stubs.keys() >= set(UNBOUND) else [])

    def _column(self, of: Callable[[Version], int]) -> U64:
        return np.fromiter(map(of, self._nmethods), np.uint64, len(self._nmethods))


def _last(addresses: U64, nmethods: I64) -> tuple[I64, I64]:
    """Each address once, ascending (unsigned), with the last of the nmethods that stood there."""
    order = np.lexsort((nmethods, addresses))
    addresses, nmethods = addresses[order], nmethods[order]
    last = np.append(addresses[1:] != addresses[:-1], True)[: len(addresses)]
    return addresses[last].view(np.int64), nmethods[last]


def _addresses(of: Sequence[int]) -> I64:
    return np.array(of, np.uint64).view(np.int64)

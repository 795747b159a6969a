"""A piece of code's label and kind, as small dense numbers that kernels can count by.

A site is a pair (label, kind). Labels are normalised names (`jvm.names`), so there are as many sites as there are
distinct names, however often code is compiled anew. Site 0 is code that was never told of. Sites that no code has any
more are dropped (`Sites.drop`), and their numbers are given to others.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jvm.names import normalise

UNKNOWN_CODE = "[unknown code]"
MAX_SITES = 1 << 20
"""Beyond this many, further names share one site a kind: memory is bounded however many a program generates."""


class SiteKind(IntEnum):
    """Numbered as `stages.messages.CodeKind`."""

    UNKNOWN = 0
    INTERPRETED = 1
    C1 = 2
    C2 = 3
    NATIVE_WRAPPER = 4
    STUB = 5


class Sites:
    """Interned (label, kind) pairs and labels; `label_of[site]` numbers the label, which several kinds may share."""

    def __init__(self) -> None:
        self._sites: dict[tuple[str, SiteKind], int] = {}
        self._labels: dict[str, int] = {}
        self.labels: list[str] = []  # by label number
        self.label_of: list[int] = []  # by site
        self.kind_of: list[SiteKind] = []  # by site
        self._free_sites: list[int] = []
        self._free_labels: list[int] = []
        self.site(UNKNOWN_CODE, SiteKind.UNKNOWN)

    def __len__(self) -> int:
        """Every site's number is smaller."""
        return len(self.label_of)

    @property
    def known(self) -> int:
        """How many there are."""
        return len(self._sites)

    def site(self, label: str, kind: SiteKind) -> int:
        key = (label, kind)
        known = self._sites.get(key)
        if known is not None:
            return known
        if len(self._sites) >= MAX_SITES and label != "[other]":
            return self.site("[other]", kind)
        number = self._labels.get(label)
        if number is None:
            number = self._labels[label] = _place(self._free_labels, self.labels, label)
        site = self._sites[key] = _place(self._free_sites, self.label_of, number)
        _put(self.kind_of, site, kind)
        return site

    def drop(self, which: NDArray[np.bool_]) -> set[int]:
        """Forgets these sites (len(self),) but for site 0. Returns the numbers of labels that no site has then: they
        will mean others."""
        for site in np.flatnonzero(which).tolist():
            key = self.label(site), self.kind_of[site]
            if site and self._sites.get(key) == site:
                del self._sites[key]
                self._free_sites.append(site)
        gone = set(self._labels.values()) - {self.label_of[site] for site in self._sites.values()}
        for number in gone:
            del self._labels[self.labels[number]]
            self._free_labels.append(number)
        return gone

    def label(self, site: int) -> str:
        return self.labels[self.label_of[site]]


T = TypeVar("T")


def _put(column: list[T], at: int, item: T) -> None:
    if at == len(column):
        column.append(item)
    column[at] = item


def _place(free: list[int], column: list[T], item: T) -> int:
    """Where it is put."""
    at = free.pop() if free else len(column)
    _put(column, at, item)
    return at


def compiled_kind(level: int, wrapper_known: bool) -> SiteKind:
    """Of an nmethod. Level 0 is a native wrapper, if the level could be read at all (`wrapper_known`)."""
    if 1 <= level <= 3:
        return SiteKind.C1
    if level == 4:
        return SiteKind.C2
    return SiteKind.NATIVE_WRAPPER if wrapper_known else SiteKind.UNKNOWN


def stub_label(name: str) -> str:
    """`[stub] I2C/C2I adapters`. The part in brackets or behind @ tells stubs of one kind apart, and goes."""
    return f"[stub] {normalise(name.split('(', 1)[0].split('@', 1)[0].strip()) or '?'}"

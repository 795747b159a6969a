"""What a piece of code is called and what kind it is, as small dense numbers that kernels can count by.

A site is a pair (label, kind). Labels are normalised names (`jvm.names`), so there are as many sites as there are
distinct names, however often code is compiled anew. Site 0 is code that nobody told of.
"""

from __future__ import annotations

from enum import IntEnum

from jvm.names import normalise

UNKNOWN_CODE = "[unknown code]"
MAX_SITES = 1 << 20
"""Beyond this many, further names share one site a kind: memory is bounded whatever a program generates."""


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
        self.site(UNKNOWN_CODE, SiteKind.UNKNOWN)

    def __len__(self) -> int:
        return len(self.label_of)

    def site(self, label: str, kind: SiteKind) -> int:
        key = (label, kind)
        known = self._sites.get(key)
        if known is not None:
            return known
        if len(self._sites) >= MAX_SITES and label != "[other]":
            return self.site("[other]", kind)
        number = self._labels.get(label)
        if number is None:
            number = self._labels[label] = len(self.labels)
            self.labels.append(label)
        self._sites[key] = len(self.label_of)
        self.label_of.append(number)
        self.kind_of.append(kind)
        return self._sites[key]

    def label(self, site: int) -> str:
        return self.labels[self.label_of[site]]


def compiled_kind(level: int, wrapper_known: bool) -> SiteKind:
    """Of an nmethod. Level 0 is a native wrapper, if the level could be read at all (`wrapper_known`)."""
    if 1 <= level <= 3:
        return SiteKind.C1
    if level == 4:
        return SiteKind.C2
    return SiteKind.NATIVE_WRAPPER if wrapper_known else SiteKind.UNKNOWN


def stub_label(name: str) -> str:
    """`[stub] I2C/C2I adapters`. What stands in brackets or behind @ tells stubs of one kind apart, and goes."""
    return f"[stub] {normalise(name.split('(', 1)[0].split('@', 1)[0].strip()) or '?'}"

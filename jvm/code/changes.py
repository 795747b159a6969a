"""A reader's place among the changes of a code image: each look gives those made since the one before."""

from __future__ import annotations

from typing import NamedTuple

from jvm.code.image import CodeImage
from jvm.code.known import Extent
from jvm.code.version import Version


class Changed(NamedTuple):
    came: list[Version]
    """In the order in which they came."""
    patched: list[Version]
    kept: set[int] | None
    """The ids of all versions that the image keeps, if any are gone; None: none is."""


class Changes:
    """Of one image, for one reader; the first look gives all that is there."""

    def __init__(self, image: CodeImage) -> None:
        self._image, self._extent = image, Extent()

    def look(self) -> Changed:
        before = self._extent
        came, patched, self._extent = self._image.changed_since(before)
        gone = self._extent.dropped != before.dropped
        return Changed(came, patched, {v.id for v in self._image.versions()} if gone else None)

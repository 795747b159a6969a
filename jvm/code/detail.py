"""How finely the compiled code that stands is described: a share of its bytes, kept up to date with each load and end.

The sum is of whole numbers, so it is the same in whatever order code comes and goes.
"""

from __future__ import annotations

from jvm.code.sites import SiteKind
from jvm.code.version import Version

_PARTS = 1 << 40  # of a byte


class Detail:
    def __init__(self) -> None:
        self._fine = 0  # parts of bytes
        self._bytes = 0

    @property
    def share(self) -> float:
        """0 without compiled code."""
        return self._fine / (_PARTS * self._bytes) if self._bytes else 0.0

    def came(self, v: Version) -> None:
        self._count(v, 1)

    def ended(self, v: Version) -> None:
        self._count(v, -1)

    def _count(self, v: Version, times: int) -> None:
        if v.debug is None or v.site_kind not in (SiteKind.C1, SiteKind.C2):
            return
        size = v.end - v.start
        self._fine += times * round(v.debug.detail * size * _PARTS)
        self._bytes += times * size

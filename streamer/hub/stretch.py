"""A stretch of time as a window: `FROM..TO`, seconds since the epoch, wherever a window's label may stand.

The panes of it are those whose middle lies within. Of a stretch there is what is kept: the panes of the longest window;
trees of old panes are put together by ten (`streamer.hub.trees`), and a stretch has all of each that it touches.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_FORM = re.compile(r"(\d{1,11}(?:\.\d{1,6})?)\.\.(\d{1,11}(?:\.\d{1,6})?)")


@dataclass(frozen=True, slots=True)
class Stretch:
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{self.begin:.3f}..{self.end:.3f}"

    def holds(self, end: float, seconds: float) -> bool:
        """A pane that ended then, and is so long."""
        return self.begin <= end - seconds / 2 < self.end

    def with_(self, begin: float, end: float) -> Stretch:
        return Stretch(min(self.begin, begin), max(self.end, end))


NOWHERE = Stretch(math.inf, -math.inf)
"""Nothing; `with_` makes something of it."""


def parsed(text: str) -> Stretch | None:
    """None: that is no stretch, but perhaps a window's label. Raises ValueError for one that ends where it begins, or
    before."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    stretch = Stretch(float(found[1]), float(found[2]))
    if stretch.seconds <= 0:
        raise ValueError(f"the stretch {text} ends before it begins")
    return stretch

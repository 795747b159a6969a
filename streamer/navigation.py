"""Where the user of a live `streamer top` is, and each key's way on from there.

A place is the table of methods, or the callers and callees of one, with the way that led to it. The chosen row is known
by its method, not by its number: rows change places while they are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from streamer.hub.listing import SORTS
from streamer.hub.text import View


class Row(NamedTuple):
    """A method in one of the lists that a screen shows."""

    listed: str
    method: str


@dataclass(frozen=True, slots=True)
class Place:
    window: str | None = None
    weight: str | None = None
    sort: str = "share"
    spent: str = "instructions"
    """The weight of callers and callees."""
    way: tuple[Row, ...] = ()
    """The rows that were opened, each from the screen before; empty: the table is shown."""
    chosen: Row | None = None

    def asks_as(self, other: Place) -> bool:
        """Whether both show the same, whatever is chosen."""
        return replace(self, chosen=None) == replace(other, chosen=None)

    def after(self, key: str, rows: Sequence[Row], view: View, spendings: Sequence[str]) -> Place:
        """`rows`: those on the screen; `view`: a hot-method view with the names of all windows and weights;
        `spendings`: the weights of callers and callees."""
        match key:
            case "w":
                return replace(self, window=_next(view["windows"], view["window"]))
            case "b" if self.way:
                return replace(self, spent=_next(spendings, self.spent))
            case "b":
                return replace(self, weight=_next(view["weights"], view["weight"]))
            case "s" if not self.way:
                return replace(self, sort=_next(list(SORTS), self.sort))
            case "down" | "j" | "up" | "k" if rows:
                at = rows.index(self.chosen) if self.chosen in rows else -1
                step = 1 if key in ("down", "j") else -1
                return replace(self, chosen=rows[min(max(at + step, 0), len(rows) - 1)])
            case "enter" | "right" if self.chosen is not None and self.chosen in rows:
                return replace(self, way=(*self.way, self.chosen), chosen=None)
            case "back" | "left" | "escape" if self.way:
                return replace(self, way=self.way[:-1], chosen=self.way[-1])
        return self


def _next(values: Sequence[str], value: str) -> str:
    return values[(values.index(value) + 1) % len(values)] if value in values else values[0]

"""Threads of which contexts are kept: changed while a pipeline runs, without breaking the trees.

All threads are followed all the time, so that the stack of one that is switched on again is right at once. What a
thread does while it is off stands in one node, `[not profiled]`, with its instructions and its time: totals stay as
they are (`stages.cct.profiled`). A change begins with a pane, the first of which nothing has been counted yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

MOST = 64
"""Names and ids of threads."""
LONGEST = 256


@dataclass(frozen=True, slots=True)
class Selection:
    """`on`: the threads listed, by their names (patterns) and ids, are on and the others off; else the other way round.
    Without a list: all."""

    on: bool = True
    named: tuple[str, ...] = ()
    tids: tuple[int, ...] = ()

    @property
    def everything(self) -> bool:
        return self.on and not self.named and not self.tids

    def off(self, tid: int, name: str) -> bool:
        if not self.named and not self.tids:
            return not self.on
        return (tid in self.tids or any(fnmatchcase(name, pattern) for pattern in self.named)) != self.on

    def words(self) -> dict[str, Any]:
        """JSON."""
        return {"on": self.on, "named": list(self.named), "tids": list(self.tids)}

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Selection:
        """Raises ValueError where it is not that of `words`."""
        on, named, tids = (words.get(key) for key in ("on", "named", "tids"))
        if not (
            type(on) is bool
            and isinstance(named, list | tuple) and all(type(name) is str and len(name) <= LONGEST for name in named)
            and isinstance(tids, list | tuple) and all(type(tid) is int for tid in tids)
            and len(named) + len(tids) <= MOST
        ):  # fmt: skip
            raise ValueError("no selection of threads")
        return cls(on, tuple(named), tuple(tids))

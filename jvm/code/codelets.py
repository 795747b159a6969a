"""The template interpreter's codelets: which bytecode's template an address lies in, by range.

A bytecode has several entry points (one a TOS state), so an entry address alone does not name it; the range does.
What is not a bytecode's template (method entries, exits, exception handlers) has a description only.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from jvm.export.records import Codelet


class Codelets:
    """A sorted table of [start, end). Adding one that overlaps others replaces them (a replay repeats them all)."""

    def __init__(self) -> None:
        self._start: list[int] = []
        self._all: list[Codelet] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, codelet: Codelet) -> bool:
        """False if it was known already. An empty range is ignored."""
        if codelet.end <= codelet.start:
            return False
        lo = bisect_right(self._start, codelet.start)
        if lo and self._all[lo - 1].end > codelet.start:
            lo -= 1
        hi = lo
        while hi < len(self._all) and self._start[hi] < codelet.end:
            hi += 1
        old = self._all[lo:hi]
        if len(old) == 1 and _same(old[0], codelet):
            return False
        self._all[lo:hi] = [codelet]
        self._start[lo:hi] = [codelet.start]
        return True

    def at(self, ip: int) -> Codelet | None:
        i = bisect_right(self._start, ip) - 1
        return self._all[i] if i >= 0 and ip < self._all[i].end else None

    def bytecode(self, ip: int) -> int:
        """Number of the bytecode whose template holds `ip`, −1: none."""
        codelet = self.at(ip)
        return -1 if codelet is None else codelet.bytecode


def _same(a: Codelet, b: Codelet) -> bool:
    return (a.start, a.end, a.bytecode, a.description) == (b.start, b.end, b.bytecode, b.description)


def label(codelet: Codelet) -> str:
    """`[interpreter] invokevirtual`. HotSpot's descriptions are the bytecode's name or a sentence."""
    text = re.sub(r"\s+", " ", codelet.description).strip()
    return f"[interpreter] {text or f'bytecode {codelet.bytecode}'}"

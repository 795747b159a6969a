"""The template interpreter's codelets: which bytecode's template an address lies in, by range.

A bytecode has several entry points (one a TOS state), so an entry address alone does not name it; the range does.
A codelet that is not a bytecode's template (method entries, exits, exception handlers) has a description only.

One instruction of a template runs as often as its bytecode: the last of its entry points. Those for other TOS states
put the stack in order and go on to it (JDK: TemplateInterpreterGenerator::set_short_entry_points); a `wide` one is not
among them, and counts as `wide`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.opcodes import template
from jvm.export.records import Codelet, DispatchTable

NO_OPCODE = 255  # in the place of that of a template that has none
TABLES = 4  # a JVM has two: in use, and to be swapped in at safepoints


class Codelets:
    """A sorted table of [start, end). Adding a codelet that overlaps others replaces them (a replay repeats them
    all)."""

    def __init__(self) -> None:
        self._start: list[int] = []
        self._all: list[Codelet] = []
        self._tables: dict[int, NDArray[np.uint64]] = {}  # entry points, by the dispatch table's address
        self._executed: list[tuple[int, Codelet]] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Codelet]:
        """By address."""
        return iter(self._all)

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
        self._executed = None
        return True

    def add_table(self, table: DispatchTable) -> bool:
        """A table through which the interpreter jumps; False if it was known already. Of more tables than a JVM has,
        the rest is left out."""
        entries, known = np.unique(table.entries), self._tables.get(table.address)
        if np.array_equal(entries, known) if known is not None else len(self._tables) >= TABLES:
            return False
        self._tables[table.address] = entries
        self._executed = None
        return True

    @property
    def executed(self) -> list[tuple[int, Codelet]]:
        """The instruction that runs once each time a bytecode does, by address, and the bytecode's template,
        ascending. The same list as long as nothing has changed."""
        if self._executed is None:
            entries = np.unique(np.concatenate([np.zeros(0, np.uint64), *self._tables.values()]))
            templates = [c for c in self._all if c.bytecode >= 0]
            end = np.searchsorted(entries, np.array([c.end for c in templates], np.uint64))
            last = [int(entries[k - 1]) if k else 0 for k in end.tolist()]
            self._executed = [(ip, c) for ip, c in zip(last, templates, strict=True) if ip >= c.start]
        return self._executed

    def at(self, ip: int) -> Codelet | None:
        i = bisect_right(self._start, ip) - 1
        return self._all[i] if i >= 0 and ip < self._all[i].end else None

    def bytecode(self, ip: int) -> int:
        """Number of the bytecode whose template holds `ip`, −1: none."""
        codelet = self.at(ip)
        return -1 if codelet is None else codelet.bytecode


def _same(a: Codelet, b: Codelet) -> bool:
    return (a.start, a.end, a.bytecode, a.description) == (b.start, b.end, b.bytecode, b.description)


def executes(codelet: Codelet, costs: NDArray[np.int64] | None = None) -> int:
    """How many of the program's bytecodes one pass through this template is: two where HotSpot has made one of them.
    `wide` is one itself, for it goes on behind the place at which the other template's passes are counted. With `costs`
    ((256,) by opcode) what these cost."""
    opcodes = template(codelet.description) or (NO_OPCODE,)
    return len(opcodes) if costs is None else sum(int(costs[opcode]) for opcode in opcodes)


def label(codelet: Codelet) -> str:
    """`[interpreter] invokevirtual`. HotSpot's descriptions are the bytecode's name or a sentence."""
    text = re.sub(r"\s+", " ", codelet.description).strip()
    return f"[interpreter] {text or f'bytecode {codelet.bytecode}'}"

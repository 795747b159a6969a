"""Which bytecodes ran in the newest panes, and on which paths, by process.

Bits are united and times summed, and panes are put together as trees are (`streamer.hub.kept`). They are not part of
the hub's note: a hub that was started again begins with none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm import names
from stages.cct.merging import at_once
from stages.messages import StatementReport
from streamer.hub.kept import KeptPanes, ProcessKey, Which
from streamer.statements.lcov import Lined
from streamer.statements.text import Most, Sums, Taken

MOST = 1 << 18
"""Methods and paths of panes, of all processes together."""


class Method(NamedTuple):
    """As `StatementReport` names it; with another number of instructions, or other lines, it is another method."""

    holder: str
    name: str
    descriptor: str
    bytecodes: int
    numbers: bytes
    """Of its source lines, ascending: little-endian, two bytes each. Empty: not known."""

    @property
    def lines(self) -> int:
        return len(self.numbers) // 2

    @property
    def shown(self) -> str:
        return names.display(f"L{self.holder};", self.name)


class Ran(NamedTuple):
    """Bits of a method's instructions and lines."""

    seen: int
    ran: int
    lines: int


class Way(NamedTuple):
    times: int
    paths: int  # of its method
    text: str


class Executed(NamedTuple):
    """Of some panes. No one changes it."""

    methods: dict[Method, Ran]
    paths: dict[tuple[Method, int], Way]
    other: int  # times, of paths that are not known one by one

    @property
    def size(self) -> int:
        return len(self.methods) + len(self.paths)

    def sums(self, include: Sequence[str] = ()) -> list[Sums]:
        """Of the methods whose names are like one of the patterns, or all."""
        return [
            Sums(shown, m.bytecodes, ran.ran.bit_count(), ran.seen.bit_count(), m.lines, ran.lines.bit_count())
            for m, ran in self.methods.items()
            if like(shown := m.shown, include)
        ]

    def lined(self, include: Sequence[str] = ()) -> list[Lined]:
        """Of the methods, likewise, whose lines are known: how often is not, so 1 is that it ran."""
        return [
            Lined(m.holder, shown + m.descriptor, ran.ran & 1, {
                number: ran.lines >> k & 1 for k, number in enumerate(np.frombuffer(m.numbers, "<u2").tolist())
            })
            for m, ran in self.methods.items() if m.numbers and like(shown := m.shown, include)
        ]  # fmt: skip

    def most(self, top: int, include: Sequence[str] = ()) -> Most:
        """The paths taken most often. With patterns the others, which may be of any method, are not counted."""
        rows = [(key, way) for key, way in self.paths.items() if like(key[0].shown, include)]
        rows.sort(key=lambda row: (-row[1].times, row[0]))
        other = 0 if include else self.other
        return Most(
            [Taken(way.times, number, way.paths, m.shown, way.text) for (m, number), way in rows[:top]],
            len(rows), len({m for (m, _), _ in rows}), sum(way.times for _, way in rows) + other, other,
        )  # fmt: skip


class Total(NamedTuple):
    """Of all methods that ran: their bytecodes and source lines, and those of them that were seen, and ran."""

    methods: int = 0
    bytecodes: int = 0
    seen: int = 0
    ran: int = 0
    lines: int = 0
    hit: int = 0


def total(parts: Iterable[Executed]) -> Total:
    """Of all parts together."""
    united = _united(parts)
    every = united.values()
    return Total(
        len(united), sum(m.bytecodes for m in united), sum(of.seen.bit_count() for of in every),
        sum(of.ran.bit_count() for of in every), sum(m.lines for m in united),
        sum(of.lines.bit_count() for of in every),
    )  # fmt: skip


def like(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _united(parts: Iterable[Executed]) -> dict[Method, Ran]:
    united = dict[Method, Ran]()
    for part in parts:
        for m, ran in part.methods.items():
            known = united.get(m)
            if known is None or known == ran:
                united[m] = ran
            else:
                united[m] = Ran(known[0] | ran[0], known[1] | ran[1], known[2] | ran[2])
    return united


def together(each: Iterable[Executed]) -> Executed:
    parts = tuple(each)  # read twice
    paths, other = dict[tuple[Method, int], Way](), 0
    for part in parts:
        for key, way in part.paths.items():
            before = paths.get(key)
            paths[key] = way if before is None else way._replace(times=before.times + way.times)
        other += part.other
    return Executed(_united(parts), paths, other)


def executed(report: StatementReport) -> Executed:
    """Raises ValueError for an impossible report."""
    rows, ways = report.methods, report.paths
    sizes = rows["bytecodes"].astype(np.int64), rows["lines"].astype(np.int64)
    sound = (
        report.pane >= 0 and report.other_paths >= 0 and len(report.names) == len(rows)
        and len(report.ways) == len(ways) and all((of >= 0).all() and (of < 1 << 17).all() for of in sizes)
        and len(report.numbers) == sizes[1].sum() and ((ways["method"] >= 0) & (ways["method"] < len(rows))).all()
    )  # fmt: skip
    if not sound:
        raise ValueError("impossible")
    columns = zip(_bits(report.seen, sizes[0]), _bits(report.ran, sizes[0]), _bits(report.lines, sizes[1]), strict=True)
    numbers, ends = report.numbers.tobytes(), (2 * np.cumsum(sizes[1])).tolist()
    methods = [
        Method(sys.intern(holder), sys.intern(name), sys.intern(descriptor), bytecodes, numbers[end - 2 * lines : end])
        for (holder, name, descriptor), end, bytecodes, lines in zip(
            report.names, ends, *(n.tolist() for n in sizes), strict=True
        )
    ]
    paths = {
        (methods[m], number): Way(times, of, text)
        for (m, _, number, of, times), text in zip(ways.tolist(), report.ways, strict=True)
    }
    return Executed({m: Ran(*bits) for m, bits in zip(methods, columns, strict=True)}, paths, report.other_paths)


def _bits(octets: NDArray[np.uint8], sizes: NDArray[np.int64]) -> Iterator[int]:
    """A number a method, whose bits are its. Raises ValueError where they are not as many as they should be."""
    ends = np.cumsum((sizes + 7) // 8).tolist()
    if len(octets) != (ends[-1] if ends else 0):
        raise ValueError("impossible")
    data, at = octets.tobytes(), 0
    for end, size in zip(ends, sizes.tolist(), strict=True):
        yield int.from_bytes(data[at:end], "little") & ((1 << size) - 1)
        at = end


class Statements:
    """`spans`: the windows' lengths in panes. Kept as `KeptPanes` says."""

    def __init__(self, spans: Sequence[int], most: int = MOST) -> None:
        self._spans = spans
        self._kept = KeptPanes[Executed](max(spans), most, _size, _merging)
        self.fed = 0  # reports
        self.refused = 0  # reports that were malformed
        self._totals: dict[tuple[int, ProcessKey], tuple[list[Executed], Total]] = {}  # of which parts, as last found

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": self._kept.newest(0), "_totals": {}}

    def feed(self, report: StatementReport) -> None:
        """Adds a worker's report; an impossible one is counted."""
        at_once(self.steps(report))

    def steps(self, report: StatementReport) -> Generator[None]:
        """`feed` in steps, between which everything here may be used."""
        try:
            told = executed(report)
        except ValueError:
            self.refused += 1
            return
        self.fed += 1
        yield from self._kept.add((report.host, report.pid), report.pane, told)

    def parts(self, window: int = 0, process: Which = None) -> list[Executed]:
        """Of the window in that position: `KeptPanes.parts`."""
        return self._kept.parts(self._spans[window], process)

    def finding(self, windows: Iterable[tuple[int, ProcessKey]]) -> Callable[[], None]:
        """Finds the totals of those windows of processes that have changed, which takes a while: another thread may."""
        due = {of: parts for of in windows if not self._is_found(of, parts := self.parts(*of))}

        def find() -> None:
            for of, parts in due.items():
                found = total(parts)
                if self._kept.of(of[1]):  # it is not forgotten
                    self._totals[of] = parts, found

        return find

    def total(self, window: int, process: ProcessKey) -> Total:
        """Of all that ran in the window."""
        self.finding([(window, process)])()
        known = self._totals.get((window, process))
        return known[1] if known is not None else Total()

    def _is_found(self, of: tuple[int, ProcessKey], parts: list[Executed]) -> bool:
        known = self._totals.get(of)
        return known is not None and [*map(id, known[0])] == [*map(id, parts)]

    def forget(self, process: ProcessKey) -> None:
        """Of a process that the hub has forgotten."""
        self._kept.forget(process)
        for window in range(len(self._spans)):
            self._totals.pop((window, process), None)

    def statistics(self) -> dict[str, int]:
        return {
            "statements_kept": self._kept.size, "statements_refused": self.refused,
            "statements_dropped": self._kept.dropped,
        }  # fmt: skip


def _size(part: Executed) -> int:
    return part.size


def _merging(one: Executed, other: Executed) -> Generator[None, None, Executed]:
    yield
    return together((one, other))

"""Methods as the kernel sees them: their instructions, edges and path numbers, one method behind the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from jvm import names
from jvm.bytecode.ball_larus import Numbering, number
from jvm.bytecode.cfg import Cfg
from jvm.bytecode.opcodes import Kind
from stages.paths.dictionary import Column
from stages.statements.coverage import followers

STEP = 1 << 12
"""About so many new nodes are numbered in one step."""


class Graphs(Protocol):
    """The methods of a process, by their numbers in `Bytecodes`. A number means another method once its class is gone:
    `Bytecodes.names` says so."""

    @property
    def numbers(self) -> NDArray[np.int32]:
        """By the agent's number; −1: none."""

    def selector(self, method: int) -> tuple[str, str, str]:
        """Class (internal name), name, descriptor. Raises KeyError."""

    def cfg(self, method: int) -> Cfg | None:
        """None: it has no code."""

    def lines(self, method: int) -> NDArray[np.void]:
        """(l,) LINE_DTYPE: where its code comes from. Empty: not known."""


class Tables(NamedTuple):
    """Of all methods; `Numbering`'s columns with nodes counted through all of them."""

    code: NDArray[np.int64]  # (m + 1,) where each method's part of `node` begins
    node: NDArray[np.int64]  # by bci; −1: no instruction begins there
    kind: NDArray[np.uint8]  # (n,) by node
    start: NDArray[np.int64]
    edge: NDArray[np.int64]  # (n + 1,)
    to: NDArray[np.int64]
    value: NDArray[np.int64]
    back: NDArray[np.bool_]


class Conclusions(NamedTuple):
    """Of all methods, by node, counted through all of them."""

    above: NDArray[np.int64]  # `coverage.followers`
    after: NDArray[np.int64]
    line: NDArray[np.int64]  # (n,) its source line, distinct ones of each method counted through all; −1: not known
    nodes: NDArray[np.int64]  # (m + 1,) the first of each method
    lines: NDArray[np.int64]  # (m + 1,) the first of each method
    number: NDArray[np.int64]  # (l,) of each line, in its source


@dataclass(frozen=True)
class Method:
    """One that ran."""

    selector: tuple[str, str, str]
    cfg: Cfg
    numbering: Numbering | None  # None: too many paths, or too large
    lines: NDArray[np.void]  # (l,) LINE_DTYPE
    first: int  # its first node, through all methods

    @property
    def name(self) -> str:
        """As tables and trees show it."""
        holder, name, _ = self.selector
        return names.display(f"L{holder};", name)

    @property
    def nodes(self) -> slice:
        return slice(self.first, self.first + len(self.cfg.nodes.bci))

    def source_lines(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct source lines of the method, ascending, and (nodes,) position among them of each one's; −1: not
        known."""
        if not len(self.lines):
            return np.zeros(0, np.int64), np.full(len(self.cfg.nodes.bci), -1, np.int64)
        row = np.searchsorted(self.lines["bci"].astype(np.int64), self.cfg.nodes.bci, "right") - 1
        found, line = np.unique(self.lines["line"][np.maximum(row, 0)].astype(np.int64), return_inverse=True)
        return found, line.astype(np.int64).reshape(-1)


class Known:
    """The methods met so far, and which each number means now. Dropped as a whole, with those of classes that are gone:
    they are what counts refer to."""

    def __init__(self, largest: int | None = None) -> None:
        """Paths are numbered of methods with at most `largest` instructions (None: of all): it takes some 10 µs each,
        in one step."""
        self._largest = largest
        self.methods: list[Method] = []
        self.place: NDArray[np.int64] = np.full(1024, -1, np.int64)
        """Of the method of each number of the graph in `methods`; −1: not met, or without code."""
        self.nodes = 0
        self._met = np.zeros(1024, np.bool_)
        self._selectors: dict[tuple[str, str, str], int] = {}
        i = np.int64
        self._tables = [Column(kind) for kind in (i, i, np.uint8, i, i, i, i, np.bool_)]
        self._conclusions = [Column(i) for _ in Conclusions._fields]
        bounds = self._tables[0], self._tables[4], *self._conclusions[3:5]  # a row more than methods, or nodes
        for column in bounds:
            column.append(np.zeros(1, i))

    def meet(self, numbers: NDArray[np.int32], graphs: Graphs, renamed: list[int]) -> None:
        """Those of (n,) numbers that are new, or among `renamed`."""
        for _ in self.meeting(numbers, graphs, renamed):
            pass

    def meeting(self, numbers: NDArray[np.int32], graphs: Graphs, renamed: list[int]) -> Iterator[None]:
        """`meet` in steps."""
        last = max(int(numbers.max(initial=-1)), *renamed, -1)
        if last >= len(self.place):
            more = np.full(last + 1 + len(self.place), -1, np.int64)
            more[: len(self.place)] = self.place
            self.place, self._met = more, np.concatenate((self._met, np.zeros(len(more) - len(self._met), np.bool_)))
        self._met[renamed] = False
        until = self.nodes + STEP
        for m in np.unique(numbers[(numbers >= 0) & ~self._met[numbers]]).tolist():
            self._met[m] = True
            self.place[m] = self._placed(m, graphs)
            if self.nodes >= until:
                yield
                until = self.nodes + STEP

    def _placed(self, m: int, graphs: Graphs) -> int:
        try:
            selector = graphs.selector(m)
        except KeyError:
            return -1
        cfg = graphs.cfg(m)
        if cfg is None:
            return -1
        place = self._selectors.get(selector, -1)
        if place >= 0 and _same(self.methods[place].cfg, cfg):
            return place
        self._selectors[selector] = len(self.methods)
        small = self._largest is None or len(cfg.nodes.kind) <= self._largest
        self.methods.append(Method(selector, cfg, number(cfg) if small else None, graphs.lines(m), self.nodes))
        self._append(self.methods[-1])
        return len(self.methods) - 1

    def _append(self, method: Method) -> None:
        bcis, n, none = method.cfg.nodes.bci, method.numbering, np.zeros(0, np.int64)
        nodes, edges = self.nodes, self._tables[5].size
        at = np.full(int(bcis[-1]) + 1 if len(bcis) else 0, -1, np.int64)
        at[bcis] = np.arange(len(bcis)) + nodes
        code = np.array([self._tables[1].size + len(at)])
        start = np.full(len(bcis), -1, np.int64) if n is None else n.start
        edge = np.zeros(len(bcis), np.int64) if n is None else n.edge[1:]
        to, value, back = (none, none, none) if n is None else (n.to + nodes, n.value, n.back)
        columns = code, at, method.cfg.nodes.kind, start, edge + edges, to, value, back
        for part, column in zip(self._tables, columns, strict=True):
            part.append(column)
        above, after = followers(method.cfg)
        (numbers, line), lines = method.source_lines(), int(self._conclusions[4].rows[-1])
        of = np.array([nodes + len(bcis)]), np.array([lines + len(numbers)]), numbers
        shifted = (np.where(x < 0, -1, x + by) for x, by in ((above, nodes), (after, nodes), (line, lines)))
        for part, column in zip(self._conclusions, (*shifted, *of), strict=True):
            part.append(column)
        self.nodes += len(bcis)

    def tables(self) -> Tables:
        """Views."""
        return Tables(*(part.rows for part in self._tables))

    def conclusions(self) -> Conclusions:
        """Views."""
        return Conclusions(*(part.rows for part in self._conclusions))


def _same(a: Cfg, b: Cfg) -> bool:
    """Whether a class that came twice has the same code."""
    return np.array_equal(a.nodes.bci, b.nodes.bci) and np.array_equal(a.nodes.opcode, b.nodes.opcode)


RETURN = int(Kind.RETURN)

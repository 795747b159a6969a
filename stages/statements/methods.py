"""Methods as the kernel sees them: their instructions, edges and path numbers, one method behind the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from jvm import names
from jvm.bytecode.ball_larus import Numbering, number
from jvm.bytecode.cfg import Cfg
from jvm.bytecode.opcodes import Kind


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
    edge: NDArray[np.int64]
    to: NDArray[np.int64]
    value: NDArray[np.int64]
    back: NDArray[np.bool_]


@dataclass(frozen=True)
class Method:
    """One that ran."""

    selector: tuple[str, str, str]
    cfg: Cfg
    numbering: Numbering | None  # None: too many paths
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


def tables(methods: list[Method]) -> Tables:
    """Of methods in the order of their nodes."""
    code, nodes, edges = [0], 0, 0
    parts: list[list[NDArray[np.generic]]] = [[np.zeros(0, np.int64)] for _ in range(7)]
    for method in methods:
        bcis, n = method.cfg.nodes.bci, method.numbering
        at = np.full(int(bcis[-1]) + 1 if len(bcis) else 0, -1, np.int64)
        at[bcis] = np.arange(len(bcis)) + nodes
        code.append(code[-1] + len(at))
        none = np.zeros(0, np.int64)
        start = np.full(len(bcis), -1, np.int64) if n is None else n.start
        edge = np.zeros(len(bcis), np.int64) if n is None else n.edge[:-1]
        to, value, back = (none, none, none) if n is None else (n.to + nodes, n.value, n.back)
        for part, column in zip(parts, (at, method.cfg.nodes.kind, start, edge + edges, to, value, back), strict=True):
            part.append(column)
        nodes, edges = nodes + len(bcis), edges + len(to)
    joined = [np.concatenate(part) for part in parts]
    joined[3] = np.append(joined[3], edges)
    kinds = np.int64, np.uint8, np.int64, np.int64, np.int64, np.int64, np.bool_
    return Tables(np.array(code, np.int64), *(column.astype(kind) for column, kind in zip(joined, kinds, strict=True)))


class Known:
    """The methods met so far, and which each number means now. Kept to the end: they are the result."""

    def __init__(self) -> None:
        self.methods: list[Method] = []
        self.place: NDArray[np.int64] = np.full(1024, -1, np.int64)
        """Of the method of each number of the graph in `methods`; −1: not met, or without code."""
        self._met = np.zeros(1024, np.bool_)
        self._selectors: dict[tuple[str, str, str], int] = {}
        self._tables: Tables | None = None

    def meet(self, numbers: NDArray[np.int32], graphs: Graphs, renamed: list[int]) -> None:
        """Those of (n,) numbers that are new, or among `renamed`."""
        last = max(int(numbers.max(initial=-1)), *renamed, -1)
        if last >= len(self.place):
            more = np.full(last + 1 + len(self.place), -1, np.int64)
            more[: len(self.place)] = self.place
            self.place, self._met = more, np.concatenate((self._met, np.zeros(len(more) - len(self._met), np.bool_)))
        self._met[renamed] = False
        for m in np.unique(numbers[(numbers >= 0) & ~self._met[numbers]]).tolist():
            self._met[m] = True
            self.place[m] = self._placed(m, graphs)

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
        first = self.methods[-1].nodes.stop if self.methods else 0
        self.methods.append(Method(selector, cfg, number(cfg), graphs.lines(m), first))
        self._tables = None
        return len(self.methods) - 1

    def tables(self) -> Tables:
        """The same until a method is new."""
        if self._tables is None:
            self._tables = tables(self.methods)
        return self._tables

    @property
    def nodes(self) -> int:
        return self.methods[-1].nodes.stop if self.methods else 0


def _same(a: Cfg, b: Cfg) -> bool:
    """Whether a class that came twice has the same code."""
    return np.array_equal(a.nodes.bci, b.nodes.bci) and np.array_equal(a.nodes.opcode, b.nodes.opcode)


RETURN = int(Kind.RETURN)

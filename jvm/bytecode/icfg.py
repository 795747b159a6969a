"""The interprocedural control-flow graph of a process: the methods of all loaded classes in flat arrays, for kernels.

A node is an instruction; the nodes of a method are one behind the other, its entry first. A site is an instruction that
invokes; which methods that may run is known of its call (`jvm.bytecode.callees`).

Ids of methods, nodes, sites and calls are places in arrays and do not change while their class is loaded. They become
blank when the class is removed or redefined, and are given to classes that come later (`jvm.bytecode.space`): so the
arrays grow with the classes loaded at once, nothing is ever moved, and a step costs as much as one class.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.call_constants import call_constants
from jvm.bytecode.callees import OPEN, Callees, Calls, Key, slices
from jvm.bytecode.cfg import BAD, NOWHERE, Nodes, empty_nodes, method_graph, place_nodes, unfilled_nodes
from jvm.bytecode.class_file import STATIC, ClassFile, ClassFileError, Invoked
from jvm.bytecode.hierarchy import Hierarchy, Loaded, Selector
from jvm.bytecode.opcode_index import sorted_by_opcode
from jvm.bytecode.opcodes import Kind
from jvm.bytecode.space import Space
from jvm.export import records as export
from jvm.kernels import kernel, near

SYNCHRONIZED = 0x20  # flag of methods (JVMS 4.6); others: `callees`, `class_file`, `hierarchy`
NO_HANDLERS = 0x8000
"""Flag of ours: the exception table is not known, so any instruction may lead to any other of the method."""
NO_OPENING = 0xFFFFFFFF
CONSTANTS = 1 << 10
"""Names that are looked up in a constant pool in one step."""
PENDING = 256
"""Class files that are kept until their class is told."""
_REFERENCE = re.compile(r"\[+(?:L[^;]*;|.)|L[^;]*;")  # in a descriptor


class Methods(NamedTuple):
    entry: NDArray[np.int32]  # the first node; NOWHERE: it has none (native, abstract, no graph, no method)
    nodes: NDArray[np.int32]  # how many
    flags: NDArray[np.uint16]  # as in the class file, and NO_HANDLERS
    handler: NDArray[np.int32]  # the first row of its exception table
    handlers: NDArray[np.int32]  # rows
    class_id: NDArray[np.uint32]  # the agent's; 0: no method
    opening: NDArray[np.uint32]  # how the interpreter enters it (`opening_of`); NO_OPENING: it does not


class Sites(NamedTuple):
    node: NDArray[np.int32]
    call: NDArray[np.int32]


class _Rows(NamedTuple):
    row: NDArray[np.int32]


class Graph(NamedTuple):
    """All of it, for kernels: views. Take it again after each `add`, `remove` and `update`."""

    nodes: Nodes
    methods: Methods
    arm: NDArray[np.int32]
    handler: NDArray[np.int32]  # (h, 4): nodes [first, end), node of the handler, constant of the class caught or 0
    sites: Sites
    calls: Calls
    callee: NDArray[np.int32]  # methods


class Callers(NamedTuple):
    """The reverse of calls: the calls that may run method m are call[call_at[m]:call_at[m + 1]], and the nodes that
    make call c are node[node_at[c]:node_at[c + 1]]. Open calls are left out."""

    call_at: NDArray[np.int64]
    call: NDArray[np.int32]
    node_at: NDArray[np.int64]
    node: NDArray[np.int32]


class ByOpcode(NamedTuple):
    """Nodes of opcode o, ascending: node[at[o]:at[o + 1]]."""

    at: NDArray[np.int64]
    node: NDArray[np.int32]


@dataclass(eq=False, slots=True)
class _Class:
    loaded: Loaded
    method: int  # the first
    number: dict[Selector, int]
    parts: list[tuple[Space[Any], int, int]]  # space, first row, rows
    calls: dict[Key, int]  # how many sites, by the key of their call


@near
def opening_of(opcode, synchronized, cleared):  # type: ignore[no-untyped-def]
    """How a method is entered: its first opcode, whether it is synchronized, how many locals are cleared first (locals
    that are no parameters; JDK: TemplateInterpreterGenerator::generate_normal_entry)."""
    return np.uint32(opcode) | np.uint32(synchronized) << np.uint32(8) | np.uint32(cleared) << np.uint32(16)


@cache
def parameter_slots(descriptor: str) -> int:
    """Locals that the parameters of a method take, a receiver not counted (JVMS 4.3.3)."""
    kinds = _REFERENCE.sub("A", descriptor.partition(")")[0][1:])
    return len(kinds) + kinds.count("J") + kinds.count("D")


@kernel
def _class_graph(data, places, method, flags, slots, nodes, arm, handlers, methods):  # type: ignore[no-untyped-def]
    """All methods of a class file from method number `method` on; `places`: (methods, 3) `ClassFile.code_place` or 0;
    `slots` of their parameters. How many nodes, arms, handlers."""
    n, a, h = np.int64(0), np.int64(0), np.int64(0)
    for k in range(len(places)):
        m = method + k
        methods.entry[m], methods.nodes[m], methods.flags[m] = NOWHERE, 0, flags[k]
        methods.handler[m], methods.handlers[m], methods.opening[m] = h, 0, NO_OPENING
        start, end, rest = places[k, 0], places[k, 1], places[k, 2]
        if end == 0:
            continue
        count, arms, rows = method_graph(data, start, end, rest, m, nodes, n, arm, a, handlers, h)
        if count == BAD:
            continue
        methods.entry[m], methods.nodes[m], methods.handlers[m] = n, count, rows
        # JVMS 4.7.3: before the code stand max_stack, max_locals (two bytes each) and its length (four)
        cleared = max((np.int64(data[start - 6]) << 8 | np.int64(data[start - 5])) - slots[k], 0)
        methods.opening[m] = opening_of(nodes.opcode[n], (flags[k] & SYNCHRONIZED) != 0, cleared)
        n, a, h = n + count, a + arms, h + rows
    return n, a, h


class Icfg:
    """Fed with export records (`feed`), or with classes (`add`, `remove`)."""

    def __init__(self) -> None:
        self.hierarchy = Hierarchy()
        self._epoch = 0
        self._nodes = Space(empty_nodes(1024))
        self._methods = Space(
            Methods(
                np.full(64, NOWHERE, np.int32), np.zeros(64, np.int32), np.zeros(64, np.uint16),
                np.zeros(64, np.int32), np.zeros(64, np.int32), np.zeros(64, np.uint32),
                np.full(64, NO_OPENING, np.uint32),
            )
        )  # fmt: skip
        self._arms = Space(_Rows(np.full(64, NOWHERE, np.int32)))
        self._handlers = Space(_Rows(np.full((64, 4), NOWHERE, np.int32)))
        self._sites = Space(Sites(np.full(64, NOWHERE, np.int32), np.full(64, NOWHERE, np.int32)))
        self._classes: dict[int, _Class] = {}
        self._callees = Callees(self.hierarchy, self._number)
        self._definitions: OrderedDict[int, tuple[bytes, bool]] = OrderedDict()
        self._callers: tuple[int, Callers] | None = None
        self._by_opcode: tuple[int, ByOpcode] | None = None

    @property
    def epoch(self) -> int:
        """Of every change."""
        return self._epoch + self._callees.changes

    # Telling

    def feed(self, record: export.Record) -> None:
        """Classes as the agent tells them; other records are left out. Removing is up to the caller, which knows when a
        class is asked about no more."""
        for _ in self.feeding(record):
            pass

    def feeding(self, record: export.Record) -> Iterator[None]:
        """`feed` in steps: the graph is whole again behind the last."""
        match record:
            case export.ClassDef():
                reconstructed = bool(record.flags & export.RecordFlag.RECONSTRUCTED)
                self._definitions[record.id] = bytes(record.data), reconstructed
                if len(self._definitions) > PENDING:
                    self._definitions.popitem(last=False)
            case export.Class():
                definition = self._definitions.pop(record.definition, None)
                if definition is not None:
                    try:
                        file = ClassFile.of(definition[0])
                    except ClassFileError:
                        return
                    name = record.signature[1:-1]
                    yield from self._adding(record.id, record.loader, name, file, handlers=not definition[1])
            case _:
                pass

    def add(self, class_id: int, loader: int, name: str, file: ClassFile, *, handlers: bool = True) -> None:
        """A class; a redefined one gets new methods and nodes. `handlers`: its exception tables are known."""
        for _ in self._adding(class_id, loader, name, file, handlers=handlers):
            pass

    def _adding(self, class_id: int, loader: int, name: str, file: ClassFile, *, handlers: bool) -> Iterator[None]:
        self.remove(class_id)
        loaded = self.hierarchy.add(class_id, loader, name, file)
        selectors = file.methods()
        methods = file.method_table
        places, flags = methods[:, 1:].copy(), (methods[:, 0] & 0x7FFF).astype(np.uint16)
        if not handlers:
            flags[places[:, 1] > 0] |= NO_HANDLERS
        slots = np.array([parameter_slots(d) for _, d in selectors], np.int64) + ((flags & STATIC) == 0)
        most = int((places[:, 1] - places[:, 0]).sum())
        nodes, arm = unfilled_nodes(most), np.empty(most, np.int32)
        rows = np.empty((int((places[:, 2] - places[:, 1]).sum()) // 8, 4), np.int32)
        method = self._methods.take(len(selectors))
        table = self._methods.columns
        table.class_id[method : method + len(selectors)] = class_id
        counts = _class_graph(file.data, places, method, flags, slots, nodes, arm, rows, table)
        n, a, h = map(int, counts)
        at = self._nodes.take(n), self._arms.take(a), self._handlers.take(h)
        parts: list[tuple[Space[Any], int, int]] = [
            (self._methods, method, len(selectors)),
            (self._nodes, at[0], n),
            (self._arms, at[1], a),
            (self._handlers, at[2], h),
        ]
        place_nodes(nodes, n, self._nodes.columns, at[0], at[1])
        self._arms.columns.row[at[1] : at[1] + a] = arm[:a] + at[0]
        self._handlers.columns.row[at[2] : at[2] + h] = rows[:h] + np.array((at[0], at[0], at[0], 0), np.int32)
        mine = slice(method, method + len(selectors))
        table.entry[mine] += np.where(table.entry[mine] == NOWHERE, 0, at[0]).astype(np.int32)
        table.handler[mine] += at[2]
        number = {selector: method + k for k, selector in enumerate(selectors)}
        new = self._classes[class_id] = _Class(loaded, method, number, parts, {})
        yield
        yield from self._add_sites(new, file, at[0], n)
        self._changed(loaded)

    def _add_sites(self, new: _Class, file: ClassFile, at: int, n: int) -> Iterator[None]:
        nodes = self._nodes.columns
        calling, distinct, times, which = call_constants(nodes.opcode, nodes.kind, nodes.target, at, n)
        first = self._sites.take(len(calling))
        new.parts.append((self._sites, first, len(calling)))
        ids = np.empty(len(distinct), np.int32)
        named = file.all_named(distinct >> 16, distinct & 0xFFFF)
        for k, (opcode_, found, count) in enumerate(zip((distinct >> 16).tolist(), named, times.tolist(), strict=True)):
            invoked = found or Invoked(opcode_, "", "", "")
            key, ids[k] = self._callees.called(new.loaded, invoked, count)
            new.calls[key] = new.calls.get(key, 0) + count
            if k % CONSTANTS == CONSTANTS - 1:
                yield
        self._sites.columns.node[first : first + len(calling)] = calling
        self._sites.columns.call[first : first + len(calling)] = ids[which]
        nodes.target[calling] = np.arange(first, first + len(calling))

    def remove(self, class_id: int) -> None:
        """Its methods, nodes and sites become blank. Calls that it made alone go, and it from the callees of others."""
        gone = self._classes.pop(class_id, None)
        if gone is None:
            return
        self._callees.uncalled(gone.calls)
        names = self._changed(gone.loaded)
        self.hierarchy.remove(class_id)
        for space, at, count in gone.parts:
            space.give(at, count)
        self._callees.gone(range(gone.method, gone.method + len(gone.number)), names)

    def _changed(self, loaded: Loaded) -> set[str]:
        """A class has come or goes. The names of the classes whose methods are called otherwise now."""
        self._epoch += 1
        return self._callees.turned(loaded)

    def update(self, limit: int = 1 << 11) -> int:
        """As `Callees.update`."""
        return self._callees.update(limit)

    # Asking

    def graph(self) -> Graph:
        return Graph(
            self._nodes.view(), self._methods.view(), self._arms.view().row,
            self._handlers.view().row, self._sites.view(), self._callees.calls(), self._callees.methods(),
        )  # fmt: skip

    def number(self, class_id: int, name: str, descriptor: str) -> int:
        """The method's; NOWHERE: it is not known. The agent's `Method` records have all three."""
        return self._number(class_id, (name, descriptor))

    def _number(self, class_id: int, selector: Selector) -> int:
        found = self._classes.get(class_id)
        return found.number.get(selector, NOWHERE) if found is not None else NOWHERE

    def numbers_of(self, class_id: int) -> tuple[range, range]:
        """Those of its nodes and of its methods."""
        found = self._classes.get(class_id)
        if found is None:
            return range(0), range(0)
        methods, nodes = (range(at, at + count) for _, at, count in found.parts[:2])
        return nodes, methods

    def selector(self, method: int) -> tuple[str, str, str]:
        """Class, name and descriptor of a method. Raises KeyError if there is none of that number."""
        table = self._methods.columns
        found = self._classes[int(table.class_id[method])]
        return (found.loaded.name, *list(found.number)[method - found.method])

    def node(self, method: int, bci: int) -> int:
        """NOWHERE: no instruction begins there."""
        table = self._methods.columns
        at, count = int(table.entry[method]), int(table.nodes[method])
        if at == NOWHERE or not 0 <= bci <= 0xFFFF:
            return NOWHERE
        found = at + int(np.searchsorted(self._nodes.columns.bci[at : at + count], np.uint16(bci)))
        return found if found < at + count and self._nodes.columns.bci[found] == bci else NOWHERE

    def callees(self, node: int) -> NDArray[np.int32] | None:
        """Methods that an invoke may run, as far as `update` has come; None: it is open, or no invoke."""
        graph = self.graph()
        if graph.nodes.kind[node] != Kind.CALL:
            return None
        call = graph.sites.call[graph.nodes.target[node]]
        at, count = int(graph.calls.callee[call]), int(graph.calls.callees[call])
        return None if count == OPEN else graph.callee[at : at + count]

    def callers(self) -> Callers:
        """Made anew when something has changed."""
        if self._callers is None or self._callers[0] != self.epoch:
            graph = self.graph()
            counts = np.maximum(graph.calls.callees, 0)
            calls = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            methods = graph.callee[slices(graph.calls.callee, counts)]
            site = np.flatnonzero(graph.sites.node != NOWHERE)
            made = Callers(
                _starts(methods, len(graph.methods.entry)), calls[np.argsort(methods, kind="stable")],
                _starts(graph.sites.call[site], len(counts)),
                graph.sites.node[site[np.argsort(graph.sites.call[site], kind="stable")]],
            )  # fmt: skip
            self._callers = self.epoch, made
        return self._callers[1]

    def call_nodes(self, method: int) -> NDArray[np.int32]:
        """Nodes of the sites that may call a method, ascending: where it may return to is behind each of them."""
        c = self.callers()
        calls = c.call[c.call_at[method] : c.call_at[method + 1]].tolist()
        found = [c.node[c.node_at[call] : c.node_at[call + 1]] for call in calls]
        return np.sort(np.concatenate([np.empty(0, np.int32), *found]))

    def by_opcode(self) -> ByOpcode:
        """Made anew when classes have come or gone."""
        if self._by_opcode is None or self._by_opcode[0] != self._epoch:
            nodes = self._nodes.view()
            made = ByOpcode(*sorted_by_opcode(nodes.opcode, nodes.kind))
            self._by_opcode = self._epoch, made
        return self._by_opcode[1]

    def nodes_of(self, opcode: int) -> NDArray[np.int32]:
        """All nodes of an opcode, ascending."""
        index = self.by_opcode()
        return index.node[index.at[opcode] : index.at[opcode + 1]]


def _starts(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(np.bincount(values, minlength=count)))).astype(np.int64)

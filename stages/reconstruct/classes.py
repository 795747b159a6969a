"""The graph of the classes of a process, as they are told; a class is dropped some time after its unload was told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from jvm import names
from jvm.bytecode.cfg import NOWHERE, Cfg, Nodes, part
from jvm.bytecode.icfg import Graph, Icfg
from jvm.bytecode.opcodes import Kind
from jvm.export import records as export
from jvm.export.parse import iter_records
from jvm.export.records import RecordType
from jvm.export.unowned import Unowned

ONLY = {
    int(t)
    for t in (
        RecordType.CLASS, RecordType.CLASS_DEF, RecordType.CLASS_UNLOAD, RecordType.METHOD, RecordType.STACK,
        RecordType.MOUNT,
    )
}  # fmt: skip
UNLOADS = {int(RecordType.CLASS_UNLOAD)}
CALLS = 1 << 9  # looked at in one step
MOST = 1 << 22  # numbers of the agent


class Classes:
    def __init__(
        self,
        going: Callable[[range, range], None],
        stacks: Callable[[export.Stack], None] = lambda _: None,
        mounts: Callable[[export.Mount], None] = lambda _: None,
    ) -> None:
        """`going` hears of nodes and methods that go, before they do; `stacks` of stacks, once the methods in them are
        told; `mounts` of virtual threads that are mounted."""
        self.icfg = Icfg()
        self.bad_records = 0
        self._graph: tuple[int, Graph] | None = None  # with its epoch
        self._hears, self._stacks, self._mounts = going, stacks, mounts
        self._named = np.zeros(1024, np.bool_)  # methods that were given
        self._definition: dict[int, int] = {}  # of each class
        self.numbers = np.full(1024, NOWHERE, np.int32)  # methods of the graph, by the agent's number
        self._told: dict[int, dict[int, tuple[str, str]]] = {}  # by class: the agent's number, name and descriptor
        self._stacked: dict[int, tuple[str, str, str]] = {}  # methods without a class, as many
        # as `jvm.export.unowned` keeps: class name, name and descriptor
        self._unowned = Unowned()
        self._gone: deque[tuple[int, int]] = deque()  # (time, class), in the order of being told

    def feed(self, data: export.Buffer) -> Iterator[None]:
        """In steps; `update` comes behind it."""
        try:
            for record in iter_records(data, only=ONLY):
                match record:
                    case export.ClassUnload():
                        self._gone.append((record.tsc, record.id))
                    case export.Class() if self._definition.get(record.id) == record.definition:
                        pass  # told again
                    case export.Class():
                        self._going(*self.icfg.numbers_of(record.id))
                        self._definition[record.id] = record.definition
                        yield from self.icfg.feeding(record)
                        for id_, selector in self._told.get(record.id, {}).items():
                            self.numbers[id_] = self.icfg.number(record.id, *selector)
                        yield
                    case export.Method():
                        self._tell(record)
                    case export.Stack():
                        self._stacks(record)
                    case export.Mount():
                        self._mounts(record)
                    case _:
                        self.icfg.feed(record)
        except export.ExportError:
            self.bad_records += 1

    def unloaded_in(self, data: export.Buffer) -> None:
        """Of records that are not fed, what they say of classes that are known."""
        try:
            self._gone += [(r.tsc, r.id) for r in iter_records(data, only=UNLOADS) if isinstance(r, export.ClassUnload)]
        except export.ExportError:
            self.bad_records += 1

    def _tell(self, method: export.Method) -> None:
        if method.id >= MOST:
            return
        if method.id >= len(self.numbers):
            more = np.full(max(2 * len(self.numbers), method.id + 1), NOWHERE, np.int32)
            more[: len(self.numbers)] = self.numbers
            self.numbers = more
        selector = method.name, method.signature
        if not method.class_id:
            self._stacked[method.id] = (method.class_signature[1:-1], *selector)
            self._stacked.pop(self._unowned.told(method), None)
            return
        self._told.setdefault(method.class_id, {})[method.id] = selector
        self.numbers[method.id] = self.icfg.number(method.class_id, *selector)

    def method(self, id_: int) -> int:
        """The graph's number of a method that a stack names, whose class the agent had no number of: that of the class
        of that name which was loaded last. NOWHERE: none is known."""
        holder, *selector = self._stacked.get(id_, ("", "", ""))
        same = self.icfg.hierarchy.named(holder)
        return self.icfg.number(same[-1].id, *selector) if same else NOWHERE

    def forget_before(self, tsc: int) -> Iterator[None]:
        """Classes that were unloaded before that, in steps."""
        if not self._gone or self._gone[0][0] >= tsc:
            return
        while self._gone and self._gone[0][0] < tsc:
            _, id_ = self._gone.popleft()
            yield
            self._going(*self.icfg.numbers_of(id_))
            self.icfg.remove(id_)
            self._definition.pop(id_, None)
            self.numbers[list(self._told.pop(id_, ()))] = NOWHERE
        yield from self.update()

    def update(self) -> Iterator[None]:
        """Callees are found, in steps. Behind it no call has one that is gone; of classes told in between several times
        it is done once."""
        while self.icfg.update(CALLS):
            yield

    def graph(self) -> Graph:
        """The same as long as nothing changes."""
        if self._graph is None or self._graph[0] != self.icfg.epoch:
            self._graph = self.icfg.epoch, self.icfg.graph()
        return self._graph[1]

    def unnamed(self, methods: NDArray[np.int32]) -> list[int]:
        """Those of (n,) methods that this has not given since `forget_names`, or whose numbers mean others now."""
        last = int(methods.max(initial=-1))
        if last >= len(self._named):
            self._named = np.concatenate((self._named, np.zeros(last + 1, np.bool_)))
        new = np.unique(methods[(methods >= 0) & ~self._named[methods]])
        self._named[new] = True
        return [int(m) for m in new]

    def forget_names(self) -> None:
        self._named[:] = False

    def name(self, method: int) -> str:
        holder, name, _ = self.icfg.selector(method)
        return names.display(f"L{holder};", name)

    def selector(self, method: int) -> tuple[str, str, str]:
        """Class (internal name), name and descriptor. Raises KeyError if there is none of that number."""
        return self.icfg.selector(method)

    def class_id(self, method: int) -> int:
        """The agent's number of its class."""
        return int(self.graph().methods.class_id[method])

    def cfg(self, method: int) -> Cfg | None:
        """Its part of the graph, numbered from 0; None: it has no code."""
        graph = self.graph()
        at, count = int(graph.methods.entry[method]), int(graph.methods.nodes[method])
        if at == NOWHERE:
            return None
        nodes = Nodes._make(column.copy() for column in part(graph.nodes, at, count))
        nodes.next[nodes.next != NOWHERE] -= at
        jumps = np.isin(nodes.kind, (Kind.CONDITIONAL, Kind.GOTO, Kind.JSR))
        nodes.target[jumps] -= at
        switches = nodes.kind == Kind.SWITCH
        arms = zip(nodes.target[switches].tolist(), nodes.arms[switches].tolist(), strict=True)
        arm = [np.zeros(0, np.int32), *(graph.arm[first : first + n] - at for first, n in arms)]
        nodes.target[switches] = np.cumsum(nodes.arms[switches]) - nodes.arms[switches]
        first = int(graph.methods.handler[method])
        handlers = graph.handler[first : first + int(graph.methods.handlers[method])].copy()
        handlers[:, :3] -= at
        return Cfg(nodes, np.concatenate(arm), handlers, {})

    def _going(self, nodes: range, methods: range) -> None:
        if methods:  # not of a class that comes: all stacks would be looked through for nothing
            self._named[methods.start : methods.stop] = False
            self._hears(nodes, methods)

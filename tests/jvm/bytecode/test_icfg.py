"""The graph of a process: nodes and edges against javap, callees by hierarchy, growing and forgetting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jvm.bytecode.cfg import NOWHERE, Nodes, cfg
from jvm.bytecode.class_file import INTERFACE, ClassFile
from jvm.bytecode.icfg import NO_HANDLERS, NO_OPENING, Graph, Icfg, parameter_slots
from jvm.bytecode.networkx_view import to_networkx
from jvm.bytecode.opcodes import NAMES, OPCODE, TIER, Kind
from jvm.bytecode.space import Space
from jvm.export import records as export
from tests.jvm.bytecode import made, naive
from tests.jvm.test_classfile import Made, demo

Method = tuple[str, str, str]
Symbolic = dict[Method, dict[int, frozenset[Method] | None]]  # callees of each invoke, by bci; None: open


def icfg_of(files: dict[str, ClassFile]) -> Icfg:
    icfg = Icfg()
    for id_, name in enumerate(files, 1):
        icfg.add(id_, 0, name, files[name])
    icfg.update(1 << 30)
    return icfg


def symbolic(icfg: Icfg) -> Symbolic:
    """The graph without its numbers."""
    graph, found = icfg.graph(), Symbolic()
    for m in np.flatnonzero(graph.methods.class_id).tolist():
        calls = found.setdefault(icfg.selector(m), {})
        entry = int(graph.methods.entry[m])
        for node in range(entry, entry + int(graph.methods.nodes[m])):
            assert graph.nodes.method[node] == m
            if graph.nodes.kind[node] == Kind.CALL:
                callees = icfg.callees(node)
                known = None if callees is None else frozenset(map(icfg.selector, callees.tolist()))
                calls[int(graph.nodes.bci[node])] = known
    return found


def called(found: Symbolic, name: str) -> set[str] | None:
    """The methods that the one invoke of a method of p.Calls may run."""
    (method,) = [m for m in found if m[:2] == ("p/Calls", name)]
    (callees,) = found[method].values()
    return None if callees is None else {f"{owner}.{name}" for owner, name, _ in callees}


# ---- callees


@pytest.mark.peer
def test_callees_are_those_that_the_hierarchy_allows() -> None:
    found = symbolic(icfg_of(made.classes()))
    # p.Open is public and Square is not: javac gives Open a bridge. Adopted inherits from a class that is no Shape.
    areas = {"p/Base.area", "p/Square.area", "p/Open.area", "q/Stranger.area"}
    assert called(found, "interface_") == {*areas, "p/Other.area"}
    assert called(found, "default_") == {"p/Shape.twice", "p/Named.twice", "p/Point.twice"}
    assert called(found, "virtual") == areas
    assert called(found, "package_") == {"p/Base.own", "p/Square.own"}  # not overridden from another package
    assert called(found, "final_") == {"p/Base.last"}
    assert called(found, "static_") == {"p/Shape.zero"}
    assert called(found, "exact") == {"p/Base.area"}
    assert called(found, "made") == {"p/Square.<init>"}
    assert called(found, "text") == {"p/Cube.toString", "java/lang/Object.toString", "java/lang/String.toString"}
    assert called(found, "array") == {"java/lang/Object.clone"}
    assert called(found, "dynamic") is None
    assert called(found, "handle") is None
    assert found["p/Square", "area", "()I"] == {1: frozenset({("p/Base", "area", "()I")})}  # super.area()
    assert found["p/Base", "last", "()I"] == {1: frozenset({("p/Base", "hidden", "()I")})}
    assert found["p/Point", "twice", "()I"] == {1: frozenset({("p/Named", "twice", "()I")})}


def test_callees_of_a_class_that_is_not_loaded_are_open() -> None:
    files = made.classes()
    icfg = Icfg()
    icfg.add(1, 0, "p/Calls", files["p/Calls"])
    icfg.update()
    assert called(symbolic(icfg), "virtual") is None
    icfg.add(2, 0, "p/Square", files["p/Square"])
    icfg.add(3, 0, "p/Base", files["p/Base"])
    icfg.update()
    assert called(symbolic(icfg), "virtual") == {"p/Square.area"}
    assert called(symbolic(icfg), "made") == {"p/Square.<init>"}
    assert icfg.update() == 0


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_order_of_loading_and_unloading_gives_the_same_graph(data: st.DataObject) -> None:
    files = made.classes()
    names = sorted(files)
    icfg, loaded = Icfg(), dict[str, int]()
    for id_, name in enumerate(data.draw(st.lists(st.sampled_from(names), max_size=40)), 1):
        if name in loaded and data.draw(st.booleans()):
            icfg.remove(loaded.pop(name))
        else:
            icfg.add(loaded.setdefault(name, id_), 0, name, files[name])  # again: redefined
        if data.draw(st.booleans()):
            icfg.update(data.draw(st.integers(1, 30)))
    while icfg.update(7):
        pass
    assert symbolic(icfg) == symbolic(icfg_of({name: files[name] for name in names if name in loaded}))
    check_numbers(icfg.graph())


def shape(above: str | None = None, interface: str = "", flags: int = 1, code: bytes | None = None) -> ClassFile:
    """A class, with `code` of f()V if it has one."""
    file = Made()
    if code is not None:
        file.method("f", "()V", code)
    interfaces = [file.class_(interface)] if interface else []
    return ClassFile.of(file.bytes(interfaces=interfaces, flags=flags, above=above))


def caller(owner: str) -> ClassFile:
    """f()V calls f()V of another class."""
    file = Made()
    file.method("f", "()V", b"\xb6" + file.ref("f", "()V", owner).to_bytes(2, "big") + b"\xb1")
    return ClassFile.of(file.bytes())


CALLED = ("p/Calls", "f", "()V")


def test_a_call_is_known_again_when_the_subtype_that_was_not_looked_at_is_gone() -> None:
    icfg = Icfg()
    icfg.add(1, 0, "p/Calls", caller("A"))
    icfg.add(2, 0, "A", shape(code=b"\xb1"))
    icfg.add(3, 0, "B", shape(above="A"))
    icfg.add(4, 0, "C", shape(above="A"))
    assert icfg.update(2) == 1  # A and B
    assert symbolic(icfg)[CALLED] == {0: None}
    icfg.remove(4)
    assert icfg.update() == 0
    assert symbolic(icfg)[CALLED] == {0: frozenset({("A", "f", "()V")})}


def test_as_many_callees_as_before_may_be_others() -> None:
    icfg = Icfg()
    icfg.add(1, 0, "p/Calls", caller("I"))
    icfg.add(2, 0, "I", shape(flags=INTERFACE | 1, code=b"\xb1"))
    icfg.add(3, 0, "D", shape(above="B", interface="I"))
    assert icfg.update() == 0
    assert symbolic(icfg)[CALLED] == {0: frozenset({("I", "f", "()V")})}
    icfg.add(4, 0, "B", shape(code=b"\xb1"))  # D inherits from it, which goes before the default
    assert icfg.update() == 0
    assert symbolic(icfg)[CALLED] == {0: frozenset({("B", "f", "()V")})}


def check_numbers(graph: Graph) -> None:
    """No number in the graph leads to a blank row."""
    living = graph.nodes.kind != Kind.NONE
    assert np.array_equal(living, graph.nodes.method != NOWHERE)
    for column in (graph.nodes.next, graph.sites.node, graph.methods.entry, graph.arm, graph.handler[:, 0]):
        used = column[column != NOWHERE]
        assert living[used].all()
    assert (graph.methods.nodes.sum(), living.sum()) == (living.sum(), graph.methods.nodes.sum())
    calling = np.flatnonzero(graph.nodes.kind == Kind.CALL)
    assert np.array_equal(graph.sites.node[graph.nodes.target[calling]], calling)


def columns(icfg: Icfg) -> list[np.ndarray]:
    return [np.asarray(column) for column in icfg.graph().nodes]


def test_arrays_do_not_grow_with_what_is_gone() -> None:
    files = made.classes()
    icfg = icfg_of(files)
    sizes = [column.size for column in columns(icfg)]
    for k in range(30):
        for id_ in range(1, len(files) + 1):
            icfg.remove(id_ if k % 2 else len(files) + 1 - id_)
        for id_, name in enumerate(files, 1):
            icfg.add(id_, 0, name, files[name])
        icfg.update(1 << 30)
    assert all(column.size <= 2 * size for column, size in zip(columns(icfg), sizes, strict=True))
    for id_ in range(1, len(files) + 1):
        icfg.remove(id_)
    assert not len(icfg.graph().nodes.kind)
    assert not len(icfg.graph().sites.call)
    assert not len(icfg.graph().calls.callee)


# ---- nodes and edges


def test_edges_are_those_of_the_plain_reading() -> None:
    """Of every method of the demo's JVM: nodes, jumps, arms and handlers, in the graph of one method and of all."""
    definitions, classes, _, records = demo()
    icfg = Icfg()
    for record in records:
        icfg.feed(record)
    nodes, methods = 0, 0
    for class_ in list(classes.values())[::3]:
        file = ClassFile.of(definitions[class_.definition].data)
        for name, descriptor in file.methods():
            code = file.code(name, descriptor)
            if code is None:
                continue
            expected = naive.edges(code, file.handlers(name, descriptor).tolist())
            one = cfg(file, name, descriptor)
            assert one is not None
            assert edges(one.nodes, one.arm, one.handlers, 0, len(one.nodes.bci)) == expected
            m = icfg.number(class_.id, name, descriptor)
            graph = icfg.graph()
            at, count = int(graph.methods.handler[m]), int(graph.methods.handlers[m])
            entry, size = int(graph.methods.entry[m]), int(graph.methods.nodes[m])
            rows = graph.handler[at : at + count]
            assert edges(graph.nodes, graph.arm, rows, entry, size) == expected
            definition = definitions[class_.definition]
            reconstructed = bool(definition.flags & export.RecordFlag.RECONSTRUCTED)
            assert bool(graph.methods.flags[m] & NO_HANDLERS) == reconstructed
            assert icfg.node(m, int(graph.nodes.bci[entry + size - 1])) == entry + size - 1
            assert icfg.node(m, len(code)) == NOWHERE
            nodes, methods = nodes + size, methods + 1
    assert nodes > 20_000
    assert methods > 1_000


def edges(nodes: Nodes, arm: np.ndarray, handlers: np.ndarray, entry: int, size: int) -> set[tuple[int, int, str]]:
    bci = nodes.bci.tolist()
    found = set()
    for node in range(entry, entry + size):
        kind, target, here = Kind(int(nodes.kind[node])), int(nodes.target[node]), bci[node]
        if nodes.next[node] != NOWHERE:
            found.add((here, bci[nodes.next[node]], "next"))
        if kind in (Kind.CONDITIONAL, Kind.GOTO, Kind.JSR):
            found.add((here, bci[target], "taken"))
        elif kind == Kind.SWITCH:
            found |= {
                (here, bci[to], f"arm {k}") for k, to in enumerate(arm[target : target + nodes.arms[node]].tolist())
            }
    for row, (first, end, handler, _) in enumerate(handlers.tolist()):
        found |= {(bci[node], bci[handler], f"handler {row}") for node in range(first, end)}
    return found


def test_networkx_has_every_edge() -> None:
    icfg = icfg_of(made.classes())
    graph = icfg.graph()
    view = to_networkx(icfg)
    assert view.number_of_nodes() == int((graph.nodes.kind != Kind.NONE).sum())
    (m,) = [m for m in np.flatnonzero(graph.methods.class_id).tolist() if icfg.selector(m)[1] == "exact"]
    entry = int(graph.methods.entry[m])
    (call,) = [v for _, v, kind in view.out_edges(entry + 1, data="kind") if kind == "call"]
    assert icfg.selector(view.nodes[call]["method"]) == ("p/Base", "area", "()I")
    assert view.nodes[entry + 1]["opcode"] == OPCODE["invokevirtual"]


def test_nodes_of_an_opcode_and_callers_of_a_method() -> None:
    icfg = icfg_of(made.classes())
    graph = icfg.graph()
    for opcode in range(len(NAMES)):
        expected = np.flatnonzero((graph.nodes.opcode == opcode) & (graph.nodes.kind != Kind.NONE))
        assert np.array_equal(icfg.nodes_of(opcode), expected)
    for m in np.flatnonzero(graph.methods.class_id).tolist():
        nodes = [
            node
            for node in np.flatnonzero(graph.nodes.kind == Kind.CALL).tolist()
            if (found := icfg.callees(node)) is not None and m in found
        ]
        assert icfg.call_nodes(m).tolist() == nodes


def test_tiers() -> None:
    tier = [int(TIER[kind]) for kind in (Kind.CALL, Kind.RETURN, Kind.CONDITIONAL, Kind.SWITCH, Kind.THROW, Kind.PLAIN)]
    assert tier == [1, 1, 2, 2, 2, 3]
    assert TIER[Kind.GOTO] == 3


# ---- hostile


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.integers(0, 201).map(lambda b: bytes((b,))), st.binary(max_size=4))).map(b"".join))
def test_any_code_has_the_plain_graph_or_none(code: bytes) -> None:
    if not code:
        return
    file_ = Made()
    file_.method("f", "()V", code)
    file = ClassFile.of(file_.bytes())
    expected = naive.edges(code, file.handlers("f", "()V").tolist())
    found = cfg(file, "f", "()V")
    assert (found is None) == (expected is None)
    icfg = Icfg()
    icfg.add(1, 0, "A", file)
    icfg.update()
    graph = icfg.graph()
    check_numbers(graph)
    assert (graph.methods.entry[icfg.number(1, "f", "()V")] == NOWHERE) == (expected is None)
    if found is not None:
        assert edges(found.nodes, found.arm, found.handlers, 0, len(found.nodes.bci)) == expected


def test_classes_that_are_above_themselves() -> None:
    icfg = Icfg()
    for id_, (name, above) in enumerate((("A", "B"), ("B", "A"), ("C", "C")), 1):
        file = Made()
        file.method("f", "()V", b"\xb6" + file.ref("f", "()V", name).to_bytes(2, "big") + b"\xb1")
        icfg.add(id_, 0, name, ClassFile.of(file.bytes(above=above)))
    assert icfg.update() == 0
    assert symbolic(icfg)["C", "f", "()V"] == {0: frozenset({("C", "f", "()V")})}
    for id_ in (1, 2, 3):
        icfg.remove(id_)
    assert not len(icfg.graph().nodes.kind)


class Row(NamedTuple):
    row: NDArray[np.int64]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9))))
def test_places_never_overlap_and_are_taken_again(steps: list[tuple[bool, int]]) -> None:
    space = Space(Row(np.full(4, NOWHERE)))
    taken: dict[int, int] = {}
    for take, n in steps:
        if take or not taken:
            at = space.take(n)
            assert all(at + n <= start or start + count <= at for start, count in taken.items())
            assert (space.columns.row[at : at + n] == NOWHERE).all()
            space.columns.row[at : at + n] = 1
            taken[at] = n
        else:
            at = sorted(taken)[n % len(taken)]
            space.give(at, taken.pop(at))
        assert space.used == max((start + count for start, count in taken.items()), default=0)


@pytest.mark.parametrize(
    ("descriptor", "slots"),
    [("()V", 0), ("(IJ)V", 3), ("([J[[D[Ljava/lang/String;I)D", 4), ("(Ljava/util/List;D)Ljava/lang/Object;", 3),
     ("", 0), ("(", 0), ("([", 1), ("(L", 1)],
)  # fmt: skip
def test_parameters_take_slots(descriptor: str, slots: int) -> None:
    assert parameter_slots(descriptor) == slots


def test_how_the_interpreter_enters_a_method() -> None:
    """Of each method with code: locals, parameters and flags by its class file."""
    definitions, classes, _, _ = demo()
    told = [c for c in classes.values() if c.definition in definitions]
    files = {c.signature[1:-1]: ClassFile.of(bytes(definitions[c.definition].data)) for c in told[:200]}
    icfg = icfg_of(files)
    graph, seen = icfg.graph(), 0
    for m in np.flatnonzero(graph.methods.class_id).tolist():
        owner, name, descriptor = icfg.selector(m)
        place = files[owner].code_place(name, descriptor)
        if place is None or graph.methods.entry[m] == NOWHERE:
            assert graph.methods.opening[m] == NO_OPENING
            continue
        data, flags = files[owner].data, int(graph.methods.flags[m])
        locals_ = int(data[place[0] - 6]) << 8 | int(data[place[0] - 5])
        cleared = locals_ - parameter_slots(descriptor) - (not flags & 0x8)
        synchronized = bool(flags & 0x20)
        assert graph.methods.opening[m] == int(data[place[0]]) | synchronized << 8 | cleared << 16
        seen += cleared > 0
    assert seen > 50

"""The control-flow graph of a method: a node an instruction, in the order of its code.

The kernel numbers nodes from a base on, and writes into arrays that may hold many methods: `jvm.bytecode.icfg` has
those of a whole process made by it. A method whose jumps or handlers do not lead to instructions of its own has no
graph: no JVM runs it (JVMS 4.9.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.class_file import ClassFile, Invoked
from jvm.bytecode.instructions import arms, half, kind_at, size_at, word
from jvm.bytecode.opcodes import Kind
from jvm.kernels import inner, kernel

NOWHERE = -1
BAD = -1  # in place of a number of nodes


class Nodes(NamedTuple):
    """Instructions, in arrays of one length (n,)."""

    method: NDArray[np.int32]  # its number in an ICFG, else 0; NOWHERE: no node
    opcode: NDArray[np.uint8]  # as in the class file; `wide` for wide ones
    kind: NDArray[np.uint8]  # `Kind`; NONE: no node
    bci: NDArray[np.uint16]
    next: NDArray[np.int32]  # where it goes if it does not jump, or when its call has returned; NOWHERE
    target: NDArray[np.int32]
    """By kind. CONDITIONAL, GOTO, JSR: the node; SWITCH: the first of its arms, whose node is the default's; CALL: the
    index of the constant that it names, in an ICFG its site; all others: NOWHERE."""
    arms: NDArray[np.int32]  # SWITCH: how many, with the default; all others: 0


class Cfg(NamedTuple):
    """Of one method."""

    nodes: Nodes
    arm: NDArray[np.int32]  # (a,) nodes: the default of each switch and behind it its arms in the order of the code
    handlers: NDArray[
        np.int32
    ]  # (h, 4) nodes [first, end), node of the handler, constant of the class that is caught or 0
    calls: dict[int, Invoked | None]  # by node, as the class file names them


def empty_nodes(size: int) -> Nodes:
    """`size` that are none."""
    return Nodes(
        np.full(size, NOWHERE, np.int32),
        np.zeros(size, np.uint8),
        np.full(size, Kind.NONE, np.uint8),
        np.zeros(size, np.uint16),
        np.full(size, NOWHERE, np.int32),
        np.full(size, NOWHERE, np.int32),
        np.zeros(size, np.int32),
    )


def unfilled_nodes(size: int) -> Nodes:
    """`size` that are still to be written."""
    i4, u1 = np.int32, np.uint8
    return Nodes._make(np.empty(size, dtype) for dtype in (i4, u1, u1, np.uint16, i4, i4, i4))


def part(nodes: Nodes, at: int, count: int) -> Nodes:
    """A view."""
    return Nodes._make(column[at : at + count] for column in nodes)


@inner
def _node(node_of, to):  # type: ignore[no-untyped-def]
    return node_of[to] if 0 <= to < len(node_of) else np.int32(NOWHERE)


@inner
def method_graph(data, start, end, rest, method, nodes, base, arm, arm_base, handlers, handler_base):  # type: ignore[no-untyped-def]
    """The method whose code is in [start, end) of a class file, its exception table in [end, rest): nodes from `base`
    on, arms of switches from `arm_base`, handlers from `handler_base`. How many of each; BAD nodes: it has no graph."""
    bad = np.int64(BAD), np.int64(0), np.int64(0)
    node_of = np.full(end - start + 1, NOWHERE, np.int32)
    at, n = np.int64(start), np.int64(0)
    while at < end:
        size = size_at(data, start, at, end)
        if size == 0:
            return bad
        node_of[at - start] = base + n
        n += 1
        at += size
    node_of[end - start] = base + n  # where a handler's range may end
    at, count_arms = np.int64(start), np.int64(0)
    inside = node_of[: end - start]
    for i in range(n):
        node = base + i
        size = size_at(data, start, at, end)
        kind = kind_at(data, at)
        nodes.method[node], nodes.bci[node] = method, at - start
        nodes.opcode[node], nodes.kind[node] = data[at], kind
        onward = kind == Kind.PLAIN or kind == Kind.CONDITIONAL or kind == Kind.CALL or kind == Kind.JSR
        nodes.next[node] = node + 1 if onward and i + 1 < n else NOWHERE
        nodes.target[node], nodes.arms[node] = NOWHERE, 0
        if kind == Kind.CONDITIONAL or kind == Kind.GOTO or kind == Kind.JSR:
            to = _node(inside, at - start + (word(data, at + 1) if size == 5 else half(data, at + 1)))
            if to == NOWHERE:
                return bad
            nodes.target[node] = to
        elif kind == Kind.CALL:
            nodes.target[node] = np.int64(data[at + 1]) << 8 | np.int64(data[at + 2])
        elif kind == Kind.SWITCH:
            number, offsets, apart = arms(data, start, at, end)
            nodes.target[node], nodes.arms[node] = arm_base + count_arms, number + 1
            operands = start + ((at - start + 4) & ~3)
            for k in range(number + 1):
                where = operands if k == 0 else offsets + apart * (k - 1)
                to = _node(inside, at - start + word(data, where))
                if to == NOWHERE:
                    return bad
                arm[arm_base + count_arms] = to
                count_arms += 1
        at += size
    rows = np.int64(data[end]) << 8 | np.int64(data[end + 1])
    if end + 2 + 8 * rows > rest:
        return bad
    for k in range(rows):
        at = end + 2 + 8 * k
        for field in range(4):
            value = np.int64(data[at + 2 * field]) << 8 | np.int64(data[at + 2 * field + 1])
            to = np.int64(value)
            if field < 3:
                to = np.int64(_node(inside if field != 1 else node_of, value))
                if to == NOWHERE:
                    return bad
            handlers[handler_base + k, field] = to
    return n, count_arms, rows


@kernel
def place_nodes(made, n, to, at, arm_at):  # type: ignore[no-untyped-def]
    """Copies the first n nodes, numbered from 0, to where they belong: from `at` on, their arms from `arm_at`."""
    for i in range(n):
        k = at + i
        kind, onward, target = made.kind[i], made.next[i], made.target[i]
        if kind == Kind.CONDITIONAL or kind == Kind.GOTO or kind == Kind.JSR:
            target += at
        elif kind == Kind.SWITCH:
            target += arm_at
        to.method[k], to.opcode[k], to.kind[k], to.bci[k] = made.method[i], made.opcode[i], kind, made.bci[i]
        to.next[k], to.target[k], to.arms[k] = NOWHERE if onward == NOWHERE else onward + at, target, made.arms[i]


@kernel
def _graph(data, start, end, rest, nodes, arm, handlers):  # type: ignore[no-untyped-def]
    return method_graph(data, start, end, rest, 0, nodes, 0, arm, 0, handlers, 0)


def cfg(file: ClassFile, name: str, descriptor: str) -> Cfg | None:
    """None: it has no code, or no graph, or there is no such method."""
    place = file.code_place(name, descriptor)
    if place is None:
        return None
    start, end, rest = place
    nodes, arm = empty_nodes(end - start), np.empty(end - start, np.int32)
    handlers = np.empty(((rest - end) // 8, 4), np.int32)
    n, count_arms, rows = _graph(file.data, start, end, rest, nodes, arm, handlers)
    if n == BAD:
        return None
    kept = part(nodes, 0, n)
    calls = {
        i: file.named(int(kept.opcode[i]), int(kept.target[i])) for i in np.flatnonzero(kept.kind == Kind.CALL).tolist()
    }
    return Cfg(kept, arm[:count_arms], handlers[:rows], calls)

"""Small methods with made-up code, and runs of them: events and bytecodes of frames, and the ways that were taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from jvm.bytecode.ball_larus import number, successors
from jvm.bytecode.cfg import Cfg
from jvm.bytecode.class_file import LINE_DTYPE
from jvm.bytecode.opcodes import Kind
from stages.messages.bytecodes import EVENT_DTYPE, FrameEvent


class Program:
    """`Graphs` of methods that are numbered from 0."""

    numbers = np.zeros(0, np.int32)

    def __init__(self, methods: list[Cfg]) -> None:
        self.methods = methods

    def selector(self, method: int) -> tuple[str, str, str]:
        return "A", f"m{method}", "()V"

    def cfg(self, method: int) -> Cfg | None:
        return self.methods[method]

    def lines(self, method: int) -> NDArray[np.void]:
        return np.zeros(0, LINE_DTYPE)


@dataclass
class Run:
    """Of a thread."""

    events: list[tuple[FrameEvent, int, list[int]]] = field(default_factory=list)  # with the bytecodes behind it
    times: Counter[tuple[int, int]] = field(default_factory=Counter)  # of (method, node)
    ways: Counter[tuple[int, tuple[int, ...]]] = field(default_factory=Counter)  # of (method, nodes without a loop)

    def rows(self) -> tuple[NDArray[np.void], NDArray[np.uint16]]:
        rows, bcis = np.zeros(len(self.events), EVENT_DTYPE), list[int]()
        for row, (kind, method, ran) in zip(rows, self.events, strict=True):
            row["kind"], row["method"], row["bytecodes"] = kind, method, len(ran)
            bcis += ran
        return rows, np.array(bcis, np.uint16)


@dataclass
class _Frame:
    method: int
    way: list[int]
    known: bool  # its way is whole from where paths begin


def ends(methods: list[Cfg]) -> tuple[list[set[tuple[int, int]]], list[set[int]]]:
    """By method: the edges that end a path, and the nodes that begin one."""
    backs, starts = list[set[tuple[int, int]]](), list[set[int]]()
    for cfg in methods:
        n = number(cfg)
        assert n is not None
        owner = np.repeat(np.arange(len(n.edge) - 1), np.diff(n.edge))
        backs.append({(int(owner[e]), int(n.to[e])) for e in np.flatnonzero(n.back)})
        starts.append(set(np.flatnonzero(n.start >= 0).tolist()))
    return backs, starts


@st.composite
def runs(draw: st.DrawFn, methods: list[Cfg], backs: list[set[tuple[int, int]]], starts: list[set[int]]) -> Run:
    """`backs`, `starts`: `ends`."""
    run, stack = Run(), list[_Frame]()
    to = [successors(cfg) for cfg in methods]

    def happens(kind: FrameEvent, method: int) -> None:
        run.events.append((kind, method, []))

    def ended(frame: _Frame, last: tuple[int, ...] = ()) -> None:
        if frame.known:
            run.ways[frame.method, (*frame.way, *last)] += 1

    def runs_node(frame: _Frame, node: int) -> None:
        before = frame.way[-1] if frame.way else -1
        run.times[frame.method, node] += 1
        run.events[-1][2].append(3 * node)
        if before >= 0 and node in to[frame.method][before]:
            if (before, node) in backs[frame.method]:
                ended(frame, (node,))
                frame.way, frame.known = [node], True
            else:
                frame.way.append(node)
        elif before >= 0:  # a handler
            frame.way, frame.known = [node], node in starts[frame.method]
        else:
            frame.way.append(node)

    def called() -> None:
        method = draw(st.integers(0, len(methods) - 1))
        happens(FrameEvent.ENTER, method)
        stack.append(_Frame(method, [], True))
        runs_node(stack[-1], 0)

    for _ in range(draw(st.integers(1, 60))):
        choice = draw(st.integers(0, 19))
        if not stack:
            if choice < 4:  # it is found in the middle
                method = draw(st.integers(0, len(methods) - 1))
                happens(FrameEvent.FRAME, method)
                stack.append(_Frame(method, [], False))
                runs_node(stack[-1], draw(st.sampled_from(sorted(_reached(to[method], starts[method])))))
            else:
                called()
            continue
        top = stack[-1]
        at = top.way[-1] if top.way else -1
        kind = methods[top.method].nodes.kind[at] if at >= 0 else -1
        if choice == 0:
            happens(FrameEvent.LOST, -1)
            stack.clear()
        elif choice == 1:  # compiled code runs, and calls
            happens(FrameEvent.COMPILED, -1)
            if draw(st.booleans()):
                happens(FrameEvent.ENTER, top.method)
                happens(FrameEvent.UNWIND, -1)
            happens(FrameEvent.BACK, top.method)
        elif choice == 2 and len(methods[top.method].handlers) and at >= 0:
            runs_node(top, int(methods[top.method].handlers[0, 2]))
        elif choice == 3 or kind == Kind.THROW:
            stack.pop()
            happens(FrameEvent.UNWIND, stack[-1].method if stack else -1)
        elif kind == Kind.RETURN:
            ended(stack.pop())
            happens(FrameEvent.RETURN, stack[-1].method if stack else -1)
        elif kind == Kind.CALL and choice < 12 and len(stack) < 5:
            called()
        elif at >= 0 and to[top.method][at]:
            runs_node(top, draw(st.sampled_from(to[top.method][at])))
    return run


def _reached(to: list[list[int]], starts: set[int]) -> set[int]:
    found, todo = set(starts), list(starts)
    while todo:
        new = set(to[todo.pop()]) - found
        found |= new
        todo += new
    return found

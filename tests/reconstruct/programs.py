"""Small graphs, and the trace that a thread along them would leave."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from jvm.bytecode.callees import OPEN, Calls
from jvm.bytecode.cfg import empty_nodes
from jvm.bytecode.icfg import Graph, Methods, Sites
from jvm.bytecode.opcodes import KIND, OPCODE, Kind
from stages.reconstruct.tokens import Token

T = TypeVar("T")
Instruction = tuple[str, tuple[int, ...]]
"""Name; target of a jump (index in the method), arms of a switch, or callees (methods; none: open)."""
Tokens = list[tuple[int, int]]
"""Token and its argument: of an OP, the opcode."""


@dataclass(frozen=True)
class Program:
    methods: list[list[Instruction]]
    cleared: list[int]  # locals of each
    handlers: dict[int, list[tuple[int, int, int]]]  # by method: [first, end), handler

    def graph(self) -> Graph:
        starts = np.concatenate(([0], np.cumsum([len(code) for code in self.methods]))).tolist()
        nodes = empty_nodes(starts[-1])
        arm: list[int] = []
        callee: list[int] = []
        sites, calls = list[tuple[int, int]](), list[tuple[int, int]]()
        for m, code in enumerate(self.methods):
            for i, (name, to) in enumerate(code):
                node, kind = starts[m] + i, Kind(int(KIND[OPCODE[name]]))
                nodes.method[node], nodes.opcode[node], nodes.kind[node], nodes.bci[node] = m, OPCODE[name], kind, i
                if kind in (Kind.PLAIN, Kind.CONDITIONAL, Kind.CALL) and i + 1 < len(code):
                    nodes.next[node] = node + 1
                if kind in (Kind.CONDITIONAL, Kind.GOTO):
                    nodes.target[node] = starts[m] + to[0]
                elif kind == Kind.SWITCH:
                    nodes.target[node], nodes.arms[node] = len(arm), len(to)
                    arm += [starts[m] + k for k in to]
                elif kind == Kind.CALL:
                    nodes.target[node] = len(sites)
                    sites.append((node, len(calls)))
                    calls.append((len(callee), len(to) or OPEN))
                    callee += to
        rows = [
            (starts[m] + a, starts[m] + b, starts[m] + h, 0)
            for m in range(len(self.methods))
            for a, b, h in self.handlers.get(m, [])
        ]
        counts = [len(self.handlers.get(m, [])) for m in range(len(self.methods))]
        size = len(self.methods)
        opening = [OPCODE[code[0][0]] | n << 16 for code, n in zip(self.methods, self.cleared, strict=True)]
        methods = Methods(
            np.array(starts[:-1], np.int32), np.array([len(c) for c in self.methods], np.int32),
            np.zeros(size, np.uint16), np.array(np.cumsum(counts) - counts, np.int32), np.array(counts, np.int32),
            np.ones(size, np.uint32), np.array(opening, np.uint32),
        )  # fmt: skip
        columns = [np.array([row[k] for row in table], np.int32) for table in (sites, calls) for k in (0, 1)]
        return Graph(
            nodes, methods, np.array(arm, np.int32), np.array(rows, np.int32).reshape(-1, 4), Sites(*columns[:2]),
            Calls(*columns[2:]), np.array(callee, np.int32),
        )  # fmt: skip


def run(
    program: Program, choose: Callable[[int], int], steps: int, method: int = 0, at: int = 0,
    stacks: list[list[tuple[int, int]]] | None = None,
) -> tuple[Tokens, list[int]]:  # fmt: skip
    """A thread from an instruction on, until it returns out of that method or has executed so many: its tokens, and the
    method of each OP. `choose(n)`: one of n ways. `stacks` gets the stack at each OP: method and instruction, the
    outermost frame first."""
    stack, tokens, of = [(method, at)], Tokens(), list[int]()
    while stack and len(of) < steps:
        if stacks is not None:
            stacks.append(stack.copy())
        m, i = stack.pop()
        name, to = program.methods[m][i]
        kind = Kind(int(KIND[OPCODE[name]]))
        tokens.append((Token.OP, OPCODE[name]))
        of.append(m)
        if kind == Kind.CONDITIONAL and choose(2):
            tokens.append((Token.TAKEN, 0))
            stack.append((m, to[0]))
        elif kind in (Kind.PLAIN, Kind.CONDITIONAL):
            stack.append((m, i + 1))
        elif kind == Kind.GOTO:
            stack.append((m, to[0]))
        elif kind == Kind.SWITCH:
            stack.append((m, to[choose(len(to))]))
        elif kind == Kind.CALL:
            callees = to or tuple(range(len(program.methods)))
            called = callees[choose(len(callees))]
            stack += [(m, i), (called, 0)]
            tokens += [(Token.ENTER, 0), *([(Token.CLEAR, 0)] * program.cleared[called])]
        elif kind == Kind.RETURN:
            tokens.append((Token.BEHIND, 0))
            if stack:
                caller, site = stack.pop()
                stack.append((caller, site + 1))
    return tokens, of


def whole(steps: Generator[object, None, T]) -> T:
    """Its result, behind all of its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)

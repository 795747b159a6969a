"""Stacks that were read, at random places of what small programs ran: what is counted is what ran."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config

from jvm.bytecode.opcodes import OPCODE
from stages.messages.bytecodes import FrameEvent
from stages.messages.paths import BREAK_DTYPE, DISABLED, FIRST_PATH
from stages.reconstruct.matcher import Found, Matcher, Parts
from stages.reconstruct.read_stacks import ReadStacks
from stages.reconstruct.tokens import Token
from tests.reconstruct.programs import Program, Tokens, run
from tests.reconstruct.test_matcher import ALIKE, TID, UNKNOWN_CALLS, blocks_of, on_top, programs

Stack = list[int]
"""Nodes, the outermost first."""


def nodes_of(program: Program, stack: list[tuple[int, int]]) -> Stack:
    starts = np.concatenate(([0], np.cumsum([len(code) for code in program.methods]))).tolist()
    return [starts[m] + i for m, i in stack]


def match(matcher: Matcher, program: Program, tokens: Tokens, read: dict[int, Stack]) -> tuple[Found, list[int]]:
    """`read`: behind that token the thread was out of the filter, and its stack was read. Of each position in the
    order, which token it is, −1: none."""
    graph = program.graph()
    order, token = list[int](), list[int]()
    for k in range(len(tokens)):
        order.append(FIRST_PATH + k)
        token.append(k)
        if k in read:
            order.append(DISABLED)
            token.append(-1)
    at = [p + 1 for p, k in enumerate(token) if k in read]
    first = np.cumsum([0, *(len(read[k]) for k in token if k in read)])
    nodes = [node for k in token if k in read for node in read[k]]
    stacks = ReadStacks(np.array(at, np.int64), first.astype(np.int64), np.array(nodes, np.int32), np.arange(len(at)))
    nothing = np.zeros(1, np.int64)
    parts = Parts(np.array([[0, len(order)]], np.int64), np.array([True]), nothing, nothing, nothing)
    group = matcher.group(
        0, TID, parts, graph, blocks_of(tokens, graph, UNKNOWN_CALLS), np.array(order, np.int32),
        np.zeros(0, BREAK_DTYPE), stacks,
    )  # fmt: skip
    (found,) = [out for out in group if out is not None]
    return found, token


def executed(found: Found, token: list[int], program: Program) -> dict[int, int]:
    """By token: the method whose bytecode it is told to be."""
    graph = program.graph()
    rows = [row for part in found.executed for row in part.tolist() if row[1] >= 0]
    return {token[order]: int(graph.nodes.method[node]) for order, node, _ in rows}


@settings(max_examples=10 if config.DISABLE_JIT else 300, deadline=None)  # type: ignore[attr-defined]
@given(programs(), st.integers(0, 1 << 30), st.integers(2, 80), st.data())
def test_all_that_is_counted_ran(program: Program, seed: int, steps: int, data: st.DataObject) -> None:
    random, stacks = Random(seed), list[list[tuple[int, int]]]()
    tokens, of = run(program, random.randrange, steps, 0, 0, stacks)
    ops = [k for k, (token, _) in enumerate(tokens) if token == Token.OP]
    places = data.draw(st.sets(st.integers(0, len(ops) - 1), max_size=4))
    read = {ops[n]: nodes_of(program, stacks[n]) for n in places}
    ran = dict(zip(ops, of, strict=True))
    matcher = Matcher(executed=True)
    found, token = match(matcher, program, tokens, read)
    known = executed(found, token, program)
    assert known.items() <= ran.items()
    assert not matcher.counts["stacks_refused"]
    assert sum(int(row["bytecodes"]) for row in found.methods) == len(known)
    assert [int(event["bci"]) >> 1 for part in found.events for event in part if event["kind"] == FrameEvent.STACK] == (
        list(range(len(read)))
    )
    assert on_top(found, [token.index(k) for k in ops]) == [known.get(k, -1) for k in ops]


# 0 and 3 call methods that look alike; which of them runs is not to be seen.
TWINS = Program(
    [
        [("nop", ()), ("invokestatic", (1, 2)), ("pop", ()), ("goto", (0,))],
        [*ALIKE], [*ALIKE],
    ],
    [0, 0, 0], {},
)  # fmt: skip
ROUND: Tokens = [
    (Token.OP, OPCODE["nop"]), (Token.OP, OPCODE["invokestatic"]), (Token.ENTER, 0), (Token.OP, OPCODE["iconst_0"]),
    (Token.OP, OPCODE["pop"]), (Token.OP, OPCODE["return"]), (Token.BEHIND, 0), (Token.OP, OPCODE["pop"]),
    (Token.OP, OPCODE["goto"]),
]  # fmt: skip


def test_a_stack_tells_twins_apart() -> None:
    """With its way up to there, and only where it was read."""
    tokens = ROUND * 9
    inside = 4 * len(ROUND) + 4  # "pop" of the fifth round's callee
    found, token = match(Matcher(executed=True), TWINS, tokens, {inside: [1, 8]})
    known = executed(found, token, TWINS)
    assert {k: known.get(k) for k in range(inside - 1, inside + 2)} == dict.fromkeys(range(inside - 1, inside + 2), 2)
    assert [m for m in known.values() if m] == [2] * 3


@pytest.mark.parametrize("node", [0, 2])
def test_a_stack_of_another_place_is_not_used(node: int) -> None:
    """Its top is no bytecode of the kind that was dispatched last."""
    tokens, matcher = ROUND * 9, Matcher(executed=True)
    found, token = match(matcher, TWINS, tokens, {4 * len(ROUND) + 1: [node]})
    assert matcher.counts["stacks_refused"] == 1
    assert executed(found, token, TWINS) == executed(*match(Matcher(executed=True), TWINS, tokens, {}), TWINS)


def test_a_stack_that_contradicts_begins_anew() -> None:
    """What was believed before was wrong, so what was open is not counted; what comes is of the stack."""
    program = Program(
        [
            [("nop", ()), ("invokestatic", (1,)), ("pop", ()), ("goto", (0,))],
            [("iconst_0", ()), ("iconst_1", ()), ("pop", ()), ("goto", (0,))],
            [("iconst_0", ()), ("iconst_1", ()), ("pop", ()), ("goto", (0,))],
        ],
        [0, 0, 0], {},
    )  # fmt: skip
    loop: Tokens = [(Token.OP, OPCODE[name]) for name in ("iconst_0", "iconst_1", "pop", "goto")]
    tokens: Tokens = [(Token.OP, OPCODE["nop"]), (Token.OP, OPCODE["invokestatic"]), (Token.ENTER, 0), *loop * 4]
    matcher = Matcher(executed=True)
    found, token = match(matcher, program, tokens, {0: [0], 3 + 4: [8]})
    assert matcher.counts["stacks_replaced"] == 1
    known = executed(found, token, program)
    assert {known[k] for k in range(8, len(tokens))} == {2}


def test_events_stand_in_their_order_however_much_there_is_to_do() -> None:
    """Of two methods that call each other alike each round doubles the candidates, so the walk takes several turns."""
    program = Program(
        [
            [("invokestatic", (0, 2)), ("return", ())], [("nop", ()), ("return", ())],
            [("invokestatic", (0,)), ("return", ())],
        ],
        [0, 0, 0], {},
    )  # fmt: skip
    tokens: Tokens = [
        (Token.OP, OPCODE["invokestatic"]),
        *[(Token.ENTER, 0), (Token.OP, OPCODE["invokestatic"])] * 20,
        (Token.ENTER, 0),
    ]
    found, _ = match(Matcher(executed=True), program, tokens, {0: [0]})
    orders = [int(event["order"]) for part in found.events for event in part]
    assert orders == sorted(orders)
    assert len(found.events) > 0

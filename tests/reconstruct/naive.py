"""Enumerate and test (JPortal, Algorithm 1): every way through the graph that explains all tokens.

A state is a stack of nodes, the outermost first, of which the frames below the first one are not known.
"""

from __future__ import annotations

from jvm.bytecode.callees import OPEN
from jvm.bytecode.icfg import Graph
from jvm.bytecode.opcodes import Kind
from stages.reconstruct.tokens import Token
from tests.reconstruct.programs import Tokens

Stack = tuple[int, ...]
MOST_STATES = 100_000  # of one token: calls of two callees each, nested, double them


class TooManyError(Exception):
    """More ways than can be enumerated."""


def _callees(g: Graph, node: int) -> list[int]:
    call = g.sites.call[g.nodes.target[node]]
    if g.calls.callees[call] == OPEN:
        return list(range(len(g.methods.entry)))
    return [int(m) for m in g.callee[g.calls.callee[call] : g.calls.callee[call] + g.calls.callees[call]]]


def _calls(g: Graph) -> list[int]:
    return [int(node) for node in g.sites.node]


def _onward(g: Graph, node: int, taken: bool) -> list[int]:
    kind = Kind(int(g.nodes.kind[node]))
    if kind == Kind.SWITCH:
        return [int(to) for to in g.arm[g.nodes.target[node] : g.nodes.target[node] + g.nodes.arms[node]]]
    if kind == Kind.GOTO or (kind == Kind.CONDITIONAL and taken):
        return [int(g.nodes.target[node])]
    return [int(g.nodes.next[node])] if kind in (Kind.PLAIN, Kind.CONDITIONAL) else []


def methods(g: Graph, tokens: Tokens) -> list[set[int]]:
    """For each OP the methods that it may be of, in the ways that explain all tokens. Between two OPs come, if any:
    TAKEN; ENTER and CLEARs; BEHIND. Raises TooManyError."""
    layers: list[dict[Stack, set[Stack]]] = []  # states, and from which of the layer before
    states: dict[Stack, set[Stack]] = {(node,): set() for node in range(len(g.nodes.kind))}
    between: list[int] = []
    for token, argument in tokens:
        if token != Token.OP:
            between.append(token)
            continue
        if layers:
            states = {}
            for stack in layers[-1]:
                for after in _after(g, stack, between):
                    states.setdefault(after, set()).add(stack)
                if len(states) > MOST_STATES:
                    raise TooManyError
        layers.append({s: before for s, before in states.items() if g.nodes.opcode[s[-1]] == argument})
        between = []
    live, found = set(layers[-1]) if layers else set(), list[set[int]]()
    for layer in reversed(layers):
        found.append({int(g.nodes.method[stack[-1]]) for stack in live})
        live = {before for stack in live for before in layer[stack]}
    return found[::-1]


def _after(g: Graph, stack: Stack, between: list[int]) -> list[Stack]:
    """States at the next OP, of any opcode."""
    below, node = stack[:-1], stack[-1]
    kind = Kind(int(g.nodes.kind[node]))
    if Token.ENTER in between:
        cleared = between.count(Token.CLEAR)
        entered = [m for m in _callees(g, node) if g.methods.opening[m] >> 16 == cleared] if kind == Kind.CALL else []
        return [(*stack, int(g.methods.entry[m])) for m in entered]
    if Token.BEHIND in between:
        if kind != Kind.RETURN:
            return []
        if below:
            return [(*below[:-1], int(g.nodes.next[below[-1]]))]
        return [(int(g.nodes.next[c]),) for c in _calls(g) if int(g.nodes.method[node]) in _callees(g, c)]
    return [(*below, to) for to in _onward(g, node, Token.TAKEN in between)]

"""Calling contexts against a list that is pushed and popped."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from jvm.code.snapshot import CodeView
from stages.follow.cfg.context import NO, NO_PARENT, NO_RETURN
from stages.follow.cfg.graph import (
    G_NODES,
    P_BREAK,
    P_DISABLED,
    PA,
    PA_FLAGS,
    PA_POOL,
    PA_PUSH,
    PA_PUSHES,
    PATH_RETURNS,
    Tables,
)
from stages.follow.flow import Capacity, Flow, FlowOutput
from stages.follow.walk import path_sequence as orders
from stages.messages import PtConfig
from tests.flow.helpers import segment
from tests.pt.machine import BASE, Processor, program

Context = tuple[int, ...]


def reference(outputs: list[FlowOutput]) -> Counter[Context]:
    """Instructions by the return addresses of the frames around them; a path counts where it begins."""
    stack: list[int] = []
    spent: Counter[Context] = Counter()
    returned = disabled = False
    for out in outputs:
        t = out.tables
        for path in orders.paths(orders.plain(t, out.observed)).tolist():
            if path == P_BREAK:
                returned = disabled = False
            elif path == P_DISABLED:
                disabled, returned = True, False
            else:
                start = int(t.address[t.pool[t.path[path * PA + PA_POOL]]])
                if returned:
                    here = next((k for k in range(len(stack) - 1, -1, -1) if stack[k] == start), len(stack) - 1)
                    del stack[max(here, 0) :]
                elif disabled and stack and stack[-1] == start:
                    stack.pop()
                spent[tuple(stack)] += int(t.path_instrs[path])
                at = int(t.path[path * PA + PA_PUSH])
                stack += [int(t.address[s]) for s in t.pool[at : at + t.path[path * PA + PA_PUSHES]]]
                returned = bool(t.path[path * PA + PA_FLAGS] & PATH_RETURNS)
                disabled = False
    return +spent


def kept(t: Tables) -> Counter[Context]:
    found: Counter[Context] = Counter()
    for node, instructions in enumerate(t.node_instrs[: t.g[G_NODES]].tolist()):
        frames: list[int] = []
        at = node
        while t.node[at * NO + NO_PARENT]:
            frames.append(int(t.address[t.node[at * NO + NO_RETURN]]))
            at = int(t.node[at * NO + NO_PARENT])
        found[tuple(reversed(frames))] += instructions
    return +found


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(some.integers(0, 1 << 32), some.integers(2, 60), some.integers(10, 900), some.integers(0, 5))
def test_contexts(seed: int, size: int, steps: int, wrong: int) -> None:
    rng = Random(seed)
    code, instructions = program(rng, size)
    processor = Processor(rng, instructions)
    processor.run(steps)
    trace = bytearray(processor.trace)
    for _ in range(wrong):
        trace[rng.randrange(16, len(trace))] = rng.randrange(256)
    flow = Flow(PtConfig(), capacity=Capacity(contexts=1 << 14))
    flow.set_code(CodeView.of([(BASE, code)]))
    outputs = flow.feed(segment(bytes(trace)))
    flow.settle_contexts()
    assert kept(flow.tables) == reference(outputs)

"""The kernel that finds the calls in a class's nodes, against plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.bytecode.call_constants import call_constants
from jvm.bytecode.cfg import empty_nodes
from jvm.bytecode.opcodes import INVOKESTATIC, INVOKEVIRTUAL, Kind

NODES = st.lists(
    st.tuples(st.sampled_from((INVOKEVIRTUAL, INVOKESTATIC, 0)), st.integers(0, 5) | st.integers(0, 0xFFFF)),
    max_size=40,
)


@given(NODES, st.integers(0, 5), st.integers(0, 5))
@settings(deadline=None)
def test_the_calls_of_a_class(made: list[tuple[int, int]], before: int, behind: int) -> None:
    nodes = empty_nodes(len(made))
    for node, (opcode, constant) in enumerate(made):
        nodes.opcode[node], nodes.target[node] = opcode, constant
        nodes.kind[node] = Kind.CALL if opcode else Kind.PLAIN
    at = min(before, len(made))
    end = max(at, len(made) - behind)
    calls = [
        (node, opcode << 16 | constant) for node, (opcode, constant) in enumerate(made) if at <= node < end and opcode
    ]
    calling, distinct, times, which = call_constants(nodes.opcode, nodes.kind, nodes.target, at, end - at)
    assert calling.tolist() == [node for node, _ in calls]
    count = Counter(key for _, key in calls)
    assert list(zip(distinct.tolist(), times.tolist(), strict=True)) == sorted(count.items())
    assert [distinct[k] for k in which.tolist()] == [key for _, key in calls]
    assert np.array_equal(nodes.target, [constant for _, constant in made])

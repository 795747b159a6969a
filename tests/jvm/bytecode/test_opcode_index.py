"""Nodes sorted by their opcode, against plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.bytecode.opcode_index import OPCODES, sorted_by_opcode
from jvm.bytecode.opcodes import Kind

NODES = st.lists(st.tuples(st.integers(0, 255), st.sampled_from([Kind.NONE, Kind.PLAIN, Kind.CALL])), max_size=60)


@settings(deadline=None)  # the kernel is compiled in it
@given(NODES)
def test_nodes_stand_by_opcode_and_ascend(nodes: list[tuple[int, int]]) -> None:
    opcode, kind = (np.array([node[k] for node in nodes], np.uint8) for k in range(2))
    at, node = sorted_by_opcode(opcode, kind)
    expected = [
        [n for n, (op, of) in enumerate(nodes) if op == wanted and of != Kind.NONE] for wanted in range(OPCODES)
    ]
    assert [node[a:b].tolist() for a, b in pairwise(at.tolist())] == expected
    assert (at[0], at[-1]) == (0, len(node))
    assert (at.dtype, node.dtype) == (np.int64, np.int32)

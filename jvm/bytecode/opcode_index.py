"""Nodes by their opcode: sorted by counting, in two passes over all nodes, because it is done anew for each class that
comes while a JVM starts."""

from __future__ import annotations

import numpy as np

from jvm.bytecode.opcodes import Kind
from jvm.kernels import kernel

OPCODES = 256


@kernel
def sorted_by_opcode(opcode, kind):  # type: ignore[no-untyped-def]
    """Of (n,) nodes, of which some are none: (OPCODES + 1,) where the nodes of each opcode begin, and those, ascending
    within it."""
    at = np.zeros(OPCODES + 1, np.int64)
    for node in range(len(opcode)):
        if kind[node] != Kind.NONE:
            at[np.int64(opcode[node]) + 1] += 1
    for k in range(OPCODES):
        at[k + 1] += at[k]
    to = at.copy()
    nodes = np.empty(at[OPCODES], np.int32)
    for node in range(len(opcode)):
        if kind[node] != Kind.NONE:
            o = np.int64(opcode[node])
            nodes[to[o]] = node
            to[o] += 1
    return at, nodes

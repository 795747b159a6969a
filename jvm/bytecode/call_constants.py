"""The calls in the nodes of a class, as a kernel: which instructions invoke, and by which constants."""

from __future__ import annotations

import numpy as np

from jvm.bytecode.opcodes import Kind
from jvm.kernels import kernel


@kernel
def call_constants(opcode, kind, target, at, n):  # type: ignore[no-untyped-def]
    """Of the nodes [at, at + n): those that invoke, ascending (c,); the invokes that differ, opcode << 16 | constant,
    ascending (d,); how many nodes have each (d,); which of them each node has (c,)."""
    count = 0
    for node in range(at, at + n):
        count += kind[node] == Kind.CALL
    calling, key = np.empty(count, np.int64), np.empty(count, np.int64)
    k = 0
    for node in range(at, at + n):
        if kind[node] == Kind.CALL:
            calling[k], key[k] = node, np.int64(opcode[node]) << 16 | np.int64(target[node])
            k += 1
    order = np.argsort(key)
    distinct, times, which = np.empty(count, np.int64), np.zeros(count, np.int64), np.empty(count, np.int64)
    d = -1
    for k in order:
        if d < 0 or key[k] != distinct[d]:
            d += 1
            distinct[d] = key[k]
        times[d] += 1
        which[k] = d
    return calling, distinct[: d + 1].copy(), times[: d + 1].copy(), which

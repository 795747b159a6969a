"""Control-flow graphs of small made-up methods, each instruction three bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from jvm.bytecode.cfg import Cfg, empty_nodes
from jvm.bytecode.opcodes import OPCODE, Kind

_OPCODES = {
    Kind.PLAIN: "iadd", Kind.CONDITIONAL: "ifeq", Kind.GOTO: "goto", Kind.SWITCH: "tableswitch",
    Kind.CALL: "invokestatic", Kind.RETURN: "return", Kind.THROW: "athrow", Kind.JSR: "jsr",
}  # fmt: skip
_ONWARD = Kind.PLAIN, Kind.CONDITIONAL, Kind.CALL, Kind.JSR


@st.composite
def cfgs(draw: st.DrawFn, most: int = 10, *, verified: bool = True, handlers: int = 1) -> Cfg:
    """Jumps forwards and backwards, switches, code that is not reached, and as many `handlers` of all of it at most.
    `verified`: without jsr, and control does not run off the end, as a verifier has it."""
    size = draw(st.integers(1, most))
    node = st.integers(0, size - 1)
    nodes, arm = empty_nodes(size), list[int]()
    kinds = st.sampled_from([kind for kind in _OPCODES if not verified or kind != Kind.JSR])
    for k in range(size):
        last = verified and k + 1 == size
        kind = draw(st.sampled_from([Kind.RETURN, Kind.THROW, Kind.GOTO]) if last else kinds)
        nodes.kind[k], nodes.bci[k], nodes.opcode[k] = kind, 3 * k, OPCODE[_OPCODES[kind]]
        if kind in _ONWARD and k + 1 < size:
            nodes.next[k] = k + 1
        if kind in (Kind.CONDITIONAL, Kind.GOTO, Kind.JSR):
            nodes.target[k] = draw(node)
        if kind == Kind.SWITCH:
            arms = draw(st.lists(node, min_size=1, max_size=4))
            nodes.target[k], nodes.arms[k] = len(arm), len(arms)
            arm += arms
    rows = [(0, size, handler, 0) for handler in draw(st.lists(node, max_size=handlers))]
    return Cfg(nodes, np.array(arm, np.int32), np.array(rows, np.int32).reshape(-1, 4), {})

"""How often the parts of a method run by its bytecode, as far as one pass over its instructions tells.

Where it jumps to, where it leaves, which variables it counts by constants, where it calls, and what runs in one go.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.instructions import arms, half, size_at, word
from jvm.bytecode.opcodes import IINC, INVOKESPECIAL, INVOKESTATIC, INVOKEVIRTUAL, KIND, WIDE, Kind
from jvm.kernels import kernel

JUMP, LEAVE, STEP, CALL = (
    1,
    2,
    3,
    4,
)  # to a bci; by return or athrow; iinc by a constant; invokevirtual, -static, -special
STEPS_DTYPE = np.dtype([("bci", "<i4"), ("kind", "<i4"), ("value", "<i4")])
"""`value`: the bci jumped to; nothing; the constant."""


@kernel
def _steps(code, out):  # type: ignore[no-untyped-def]
    """Rows (bci, kind, value) of `out`; as many as there are, or −1: this is no bytecode."""
    n, at, end = 0, np.int64(0), len(code)
    while at < end:
        op = code[at]
        size = size_at(code, 0, at, end)
        if size == 0:
            return -1
        kind = KIND[op]
        if kind == Kind.SWITCH:
            targets, offsets, apart = arms(code, 0, at, end)
            out[n, 0], out[n, 1], out[n, 2] = at, JUMP, at + word(code, (at + 4) & ~3)
            n += 1
            for k in range(targets):
                out[n, 0], out[n, 1], out[n, 2] = at, JUMP, at + word(code, offsets + apart * k)
                n += 1
        elif kind == Kind.CONDITIONAL or kind == Kind.GOTO:
            out[n, 0], out[n, 1] = at, JUMP
            out[n, 2] = at + (word(code, at + 1) if size == 5 else half(code, at + 1))
            n += 1
        elif kind == Kind.RETURN or kind == Kind.THROW:
            out[n, 0], out[n, 1], out[n, 2] = at, LEAVE, 0
            n += 1
        elif op == INVOKEVIRTUAL or op == INVOKESPECIAL or op == INVOKESTATIC:
            out[n, 0], out[n, 1], out[n, 2] = at, CALL, 0
            n += 1
        elif op == IINC:
            out[n, 0], out[n, 1], out[n, 2] = at, STEP, (np.int64(code[at + 2]) ^ 0x80) - 0x80
            n += 1
        elif op == WIDE and size == 6:
            out[n, 0], out[n, 1], out[n, 2] = at, STEP, half(code, at + 4)
            n += 1
        at += size
    return n


@kernel
def _stretches(code, rows, head, out):  # type: ignore[no-untyped-def]
    """`stretches` of the rows of `_steps`; `head`: by bci, zeros."""
    head[0] = True
    for k in range(len(rows)):
        if rows[k, 1] == JUMP and 0 <= rows[k, 2] < len(code):
            head[rows[k, 2]] = True
    n, at, next_, step = -1, np.int64(0), True, 0
    while at < len(code):
        if head[at] or next_:
            n += 1
            out[n, 0], out[n, 1] = at, 0
        out[n, 1] += 1
        next_ = False
        while step < len(rows) and rows[step, 0] <= at:
            next_ = next_ or rows[step, 1] == JUMP or rows[step, 1] == LEAVE
            step += 1
        at += size_at(code, 0, at, len(code))
    return n + 1


def stretches(code: bytes) -> NDArray[np.int32] | None:
    """(n, 2) the stretches of a method that run from their first bytecode to their last, exceptions apart: bci of the
    first, and how many bytecodes. None: this is no bytecode."""
    rows = steps(code)
    if rows is None:
        return None
    out = np.empty((len(code), 2), np.int32)
    n = int(_stretches(np.frombuffer(code, np.uint8), rows, np.zeros(len(code), np.bool_), out))
    return out[:n].copy()


def steps(code: bytes) -> NDArray[np.int32] | None:
    """(n, 3) jumps, exits, counts and calls of a method, in its order: see STEPS_DTYPE. None: this is no bytecode."""
    out = np.empty((len(code) + 1, 3), np.int32)
    n = int(_steps(np.frombuffer(code, np.uint8), out))
    return out[:n].copy() if n >= 0 else None

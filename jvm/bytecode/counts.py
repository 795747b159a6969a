"""What the bytecode of a method says of how often its parts run, as far as one pass over its instructions tells.

Where it jumps to, where it leaves, which variables it counts by constants, and where it calls: the opcodes and their
lengths are those of JVMS 6.5.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel

JUMP, LEAVE, STEP, CALL = 1, 2, 3, 4  # to a bci; by return or athrow; iinc by a constant; invokestatic, invokespecial
STEPS_DTYPE = np.dtype([("bci", "<i4"), ("kind", "<i4"), ("value", "<i4")])
"""`value`: the bci jumped to; nothing; the constant."""


def _lengths() -> NDArray[np.uint8]:
    size = np.ones(256, np.uint8)
    for first, last, n in (
        (0x10, 0x10, 2), (0x11, 0x11, 3), (0x12, 0x12, 2), (0x13, 0x14, 3), (0x15, 0x19, 2), (0x36, 0x3A, 2),
        (0x84, 0x84, 3), (0x99, 0xA8, 3), (0xA9, 0xA9, 2), (0xB2, 0xB8, 3), (0xB9, 0xBA, 5), (0xBB, 0xBB, 3),
        (0xBC, 0xBC, 2), (0xBD, 0xBD, 3), (0xC0, 0xC1, 3), (0xC5, 0xC5, 4), (0xC6, 0xC7, 3), (0xC8, 0xC9, 5),
    ):  # fmt: skip
        size[first : last + 1] = n
    return size


_LENGTH = _lengths()
_GOTO_W, _WIDE, _IINC, _TABLE, _LOOKUP, _ATHROW = 0xC8, 0xC4, 0x84, 0xAA, 0xAB, 0xBF


@kernel
def _word(code, at):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for k in range(4):
        value = value << 8 | np.int64(code[at + k])
    return (value ^ 0x80000000) - 0x80000000


@kernel
def _steps(code, out):  # type: ignore[no-untyped-def]
    """Rows (bci, kind, value) of `out`; as many as there are, or −1: this is no bytecode."""
    n, at, end = 0, 0, len(code)
    while at < end:
        op = np.int64(code[at])
        size = np.int64(_LENGTH[op])
        if op == _WIDE:
            size = 6 if at + 1 < end and code[at + 1] == _IINC else 4
        first, targets, wide = at, 0, 8
        if op == _TABLE or op == _LOOKUP:
            first = (at + 4) & ~3
            if first + 12 > end:
                return -1
            if op == _TABLE:
                targets = _word(code, first + 8) - _word(code, first + 4) + 1
                wide = 4
                size = first + 12 + 4 * targets - at
            else:
                targets = _word(code, first + 4)
                size = first + 8 + 8 * targets - at
            if targets < 0 or targets > end:
                return -1
        if at + size > end:
            return -1
        if op == _TABLE or op == _LOOKUP:
            out[n, 0], out[n, 1], out[n, 2] = at, JUMP, at + _word(code, first)
            n += 1
            for k in range(targets):
                out[n, 0], out[n, 1] = at, JUMP
                out[n, 2] = at + _word(code, first + 12 + wide * k)
                n += 1
        elif 0x99 <= op <= 0xA7 or op == 0xC6 or op == 0xC7:
            to = (np.int64(code[at + 1]) << 8 | np.int64(code[at + 2])) ^ 0x8000
            out[n, 0], out[n, 1], out[n, 2] = at, JUMP, at + to - 0x8000
            n += 1
        elif op == _GOTO_W:
            out[n, 0], out[n, 1], out[n, 2] = at, JUMP, at + _word(code, at + 1)
            n += 1
        elif 0xAC <= op <= 0xB1 or op == _ATHROW:
            out[n, 0], out[n, 1], out[n, 2] = at, LEAVE, 0
            n += 1
        elif op == 0xB7 or op == 0xB8:
            out[n, 0], out[n, 1], out[n, 2] = at, CALL, 0
            n += 1
        elif op == _IINC:
            out[n, 0], out[n, 1], out[n, 2] = at, STEP, (np.int64(code[at + 2]) ^ 0x80) - 0x80
            n += 1
        elif op == _WIDE and size == 6:
            by = (np.int64(code[at + 4]) << 8 | np.int64(code[at + 5])) ^ 0x8000
            out[n, 0], out[n, 1], out[n, 2] = at, STEP, by - 0x8000
            n += 1
        at += size
    return n


def steps(code: bytes) -> NDArray[np.int32] | None:
    """(n, 3) jumps, exits, counts and calls of a method, in its order: see STEPS_DTYPE. None: this is no bytecode."""
    out = np.empty((len(code) + 1, 3), np.int32)
    n = int(_steps(np.frombuffer(code, np.uint8), out))
    return out[:n].copy() if n >= 0 else None

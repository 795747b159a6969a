"""The instructions of a method: where each begins, and where the next one does.

Code may be hostile: an instruction that does not lie in it as a whole, or has no opcode, ends the walk with an error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.opcodes import IINC, KIND, LENGTH, LOOKUPSWITCH, TABLESWITCH, WIDE, WIDENED
from jvm.kernels import kernel, near

MAX_CODE = 65535  # JVMS 4.7.3


class BytecodeError(ValueError):
    """The bytes are no bytecode; `bci`: where the instruction begins that is none."""

    def __init__(self, message: str, bci: int) -> None:
        super().__init__(f"bytecode: {message} at bci {bci}")
        self.bci = bci


class Instructions(NamedTuple):
    """Those of a method, in the order of its code: arrays of one length."""

    bci: NDArray[np.int32]
    opcode: NDArray[np.uint8]  # `wide` for wide ones
    length: NDArray[np.int32]  # bytes
    kind: NDArray[np.uint8]  # `Kind`; of a wide one, that of the opcode behind it


@near
def half(code, at):  # type: ignore[no-untyped-def]
    """The signed 16 bits at `at`."""
    return ((np.int64(code[at]) << 8 | np.int64(code[at + 1])) ^ 0x8000) - 0x8000


@near
def word(code, at):  # type: ignore[no-untyped-def]
    """The signed 32 bits at `at`."""
    value = (
        np.int64(code[at]) << 24 | np.int64(code[at + 1]) << 16 | np.int64(code[at + 2]) << 8 | np.int64(code[at + 3])
    )
    return (value ^ 0x80000000) - 0x80000000


@near
def arms(code, start, bci, end):  # type: ignore[no-untyped-def]
    """Of a switch at `bci` of the code in [start, end): its arms, the default left out, and where their offsets begin
    and how far they lie apart (JVMS 6.5: operands are aligned to four bytes from the start of the code). −1 arms: it is
    cut, or its bounds are in the wrong order."""
    first = start + ((bci - start + 4) & ~3)
    count = np.int64(-1)
    if first + 12 <= end and code[bci] == TABLESWITCH:
        count = word(code, first + 8) - word(code, first + 4) + 1
        return (count if 0 < count <= (end - first - 12) >> 2 else np.int64(-1)), first + 12, 4
    if first + 8 <= end and code[bci] == LOOKUPSWITCH:
        count = word(code, first + 4)
        return (count if 0 <= count <= (end - first - 8) >> 3 else np.int64(-1)), first + 12, 8
    return count, first, 4


@near
def size_at(code, start, bci, end):  # type: ignore[no-untyped-def]
    """Bytes of the instruction at `bci` of the code in [start, end); 0: it is none, or is cut."""
    opcode = code[bci]
    size = np.int64(LENGTH[opcode])
    if size == 0:
        if opcode == WIDE:
            if bci + 1 < end and WIDENED[code[bci + 1]]:
                size = np.int64(6 if code[bci + 1] == IINC else 4)
        elif opcode == TABLESWITCH or opcode == LOOKUPSWITCH:  # noqa: SIM109 -- a tuple costs a kernel more
            count, offsets, apart = arms(code, start, bci, end)
            if count >= 0:
                size = (offsets if opcode == TABLESWITCH else offsets - 4) + apart * count - bci
    return size if bci + size <= end else np.int64(0)


@near
def kind_at(code, bci):  # type: ignore[no-untyped-def]
    """`Kind` of the whole instruction at `bci`."""
    return KIND[code[bci + 1]] if code[bci] == WIDE else KIND[code[bci]]


@kernel
def _walk(code, bci, opcode, length, kind):  # type: ignore[no-untyped-def]
    """The instructions of `code` into the arrays: how many, and the bci behind the last whole one."""
    n, at = 0, np.int64(0)
    while at < len(code):
        size = size_at(code, 0, at, len(code))
        if size == 0:
            break
        bci[n], opcode[n], length[n], kind[n] = at, code[at], size, kind_at(code, at)
        n += 1
        at += size
    return n, at


def instructions(code: bytes) -> Instructions:
    """Raises BytecodeError where `code` is no sequence of whole instructions, or is longer than a method's may be."""
    if len(code) > MAX_CODE:
        raise BytecodeError(f"{len(code)} bytes of code", MAX_CODE)
    data = np.frombuffer(code, np.uint8)
    bci, length = np.empty(len(code), np.int32), np.empty(len(code), np.int32)
    opcode, kind = np.empty(len(code), np.uint8), np.empty(len(code), np.uint8)
    n, at = _walk(data, bci, opcode, length, kind)
    if at < len(code):
        raise BytecodeError("no whole instruction", int(at))
    return Instructions(bci[:n].copy(), opcode[:n].copy(), length[:n].copy(), kind[:n].copy())

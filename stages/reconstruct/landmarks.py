"""Addresses in the interpreter and its stubs at which something happens that the matcher must know.

They are found from what the agent tells of codelets and stubs, and from their code: where the interpreter jumps, where
a template moves the bytecode pointer by an offset that it read, where a method entry clears a local.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.opcodes import KIND, Kind, template
from jvm.code.image import CALL_STUB, CodeImage
from jvm.code.version import Kind as CodeKind
from jvm.code.version import Version
from jvm.export.records import Codelet
from jvm.kernels import kernel
from stages.pt.x86 import CALL_IND, COND, JUMP, decode, displacement
from stages.reconstruct.state import NO_OP
from stages.reconstruct.tokens import Entry, Token

U64 = NDArray[np.uint64]
LOSING = ("[stub] cont_", "[stub] Cont thaw")  # stubs whose names begin so (JDK 25, 21): continuations come and go
BARRIERS = ("[stub] cont_returnBarrier", "[stub] Cont thaw return barrier")
"""Not these: a frame that is thawed only when its callee returns to it goes on as if it had been there."""
ENTRY = "method entry point (kind = "
_ENTRIES = {
    "zerolocals": Entry.PLAIN, "zerolocals_synchronized": Entry.SYNCHRONIZED, "native": Entry.NATIVE,
    "native_synchronized": Entry.NATIVE, "abstract": Entry.ABSTRACT,
}  # fmt: skip
_LEAVES = {
    "return entry points": Token.BEHIND, "invoke return entry points": Token.BEHIND,
    "deoptimization entry points": Token.DEOPTIMISED,
}  # fmt: skip
EXCEPTIONS, THROWERS = "exception handling", "throw exception entrypoints"


class Landmarks(NamedTuple):
    """Ascending by address, which several may share; those of one address in the order in which they happen."""

    address: U64
    token: NDArray[np.uint8]
    argument: NDArray[np.int32]
    ends: list[tuple[int, int, Token]]  # codelets [start, end) that a block leaves by an indirect jump
    templates: NDArray[np.uint8]  # (t, 2): opcodes of each template, NO_OP
    interpreter: tuple[int, int]  # [start, end)

    @property
    def complete(self) -> bool:
        """Whether the interpreter is there, and the stub by which the VM calls it."""
        return bool(len(self.templates) and (self.token == Token.UPCALL).any())


BRANCH, LOOP_START, JUMPED, AFTER_CALL = 1, 2, 3, 4


@kernel
def _scan(code, start, out):  # type: ignore[no-untyped-def]
    """What the instructions at `start` do: rows (address, what) of `out`; how many.

    BRANCH: `add r13, register` (r13 is the bytecode pointer; JDK: r_bcp in frame_x86.hpp); LOOP_START: where a
    conditional branch goes back to; JUMPED: where a jump leads out of the code; AFTER_CALL: behind an indirect call."""
    n, at, end = 0, 0, len(code)
    while at < end and n < len(out):
        insn = decode(code, at, end)
        size, kind = insn & 0xFF, insn >> 8 & 0xFF
        if size == 0:
            break
        to = start + at + size
        what = 0
        if size == 3:
            rex, op, modrm = code[at], code[at + 1], code[at + 2]
            if (op == 0x03 and rex & 0xFC == 0x4C and modrm & 0xF8 == 0xE8) or (
                op == 0x01 and rex & 0xF9 == 0x49 and modrm & 0xC7 == 0xC5
            ):  # fmt: skip
                to, what = start + at, BRANCH
        if kind == COND or kind == JUMP:  # noqa: SIM109 -- a tuple costs a kernel more
            to += displacement(code, at + size, insn)
            if kind == COND and start <= to < start + at:
                what = LOOP_START
            elif kind == JUMP and not start <= to < start + end:
                what = JUMPED
        elif kind == CALL_IND:
            what = AFTER_CALL
        if what:
            out[n, 0], out[n, 1] = to, what
            n += 1
        at += size
    return n


def _scanned(code: NDArray[np.uint8], start: int) -> Iterator[tuple[int, int]]:
    out = np.empty((4096, 2), np.int64)
    n = int(_scan(code, start, out))
    yield from map(tuple, out[:n].tolist())


def find(image: CodeImage) -> Landmarks:
    found: list[tuple[int, int, Token, int]] = []  # address, order at one address, token, argument
    ends: list[tuple[int, int, Token]] = []
    stubs = [v for v in image.versions() if v.kind in (CodeKind.DYNAMIC, CodeKind.INTERPRETER)]
    interpreter = next((v for v in stubs if v.kind == CodeKind.INTERPRETER), None)
    templates, rows = _templates(image)
    if interpreter is not None:
        code = image.code(interpreter)
        for codelet in image.codelets:
            part = code[max(codelet.start - interpreter.start, 0) : max(codelet.end - interpreter.start, 0)]
            found += _of_codelet(codelet, part)
            leaves = _LEAVES.get(codelet.description.strip())
            ends += [(codelet.start, codelet.end, leaves)] if leaves is not None else []
        found += _throw_entries(image, code, interpreter)
    found += [(address, 1, Token.OP, row) for address, row in rows]
    for v in stubs:
        if v.name == CALL_STUB:
            found.append((v.start, 0, Token.UPCALL, 0))
            after = [a for a, what in _scanned(image.code(v), v.start) if what == AFTER_CALL]
            found += [(address, 0, Token.UPRETURN, 0) for address in after]
        elif v.name.startswith(LOSING) and v.name not in BARRIERS:
            found.append((v.start, 0, Token.LOST, 0))
    found.sort()
    return Landmarks(
        np.array([f[0] for f in found], np.uint64), np.array([f[2] for f in found], np.uint8),
        np.array([f[3] for f in found], np.int32), sorted(ends), templates,
        (interpreter.start, interpreter.end) if interpreter is not None else (0, 0),
    )  # fmt: skip


def _templates(image: CodeImage) -> tuple[NDArray[np.uint8], list[tuple[int, int]]]:
    """(t, 2) opcodes of the templates, and (address, template) where a bytecode of it is dispatched."""
    opcodes, rows = list[tuple[int, ...]](), list[tuple[int, int]]()
    for address, codelet in image.codelets.executed:
        runs = template(codelet.description.strip())
        if runs:
            rows.append((address, len(opcodes)))
            opcodes.append((*runs, NO_OP)[:2])
    return np.array(opcodes, np.uint8).reshape(-1, 2), rows


def _of_codelet(codelet: Codelet, code: NDArray[np.uint8]) -> Iterator[tuple[int, int, Token, int]]:
    description = codelet.description.strip()
    if ENTRY in description:
        entry = _ENTRIES.get(description.partition(ENTRY)[2].rstrip(")"), Entry.INTRINSIC)
        yield codelet.start, 0, Token.ENTER, int(entry)
        if entry in (Entry.PLAIN, Entry.SYNCHRONIZED):
            loops = [a for a, what in _scanned(code, codelet.start) if what == LOOP_START]
            if loops:
                yield loops[0], 1, Token.CLEAR, 0
    elif description == EXCEPTIONS:
        yield codelet.start, 0, Token.RETHROW, 0
    else:
        runs = template(description)
        if runs and KIND[runs[-1]] == Kind.CONDITIONAL:
            for address, what in _scanned(code, codelet.start):
                if what == BRANCH:
                    yield address, 2, Token.TAKEN, 0


def _throw_entries(
    image: CodeImage, code: NDArray[np.uint8], interpreter: Version
) -> Iterator[tuple[int, int, Token, int]]:
    """Where `athrow` and the entries that throw go on to, in the codelet that handles exceptions."""
    inside = [c for c in image.codelets if c.description.strip() == EXCEPTIONS]
    targets = set[int]()
    for codelet in image.codelets:
        if codelet.description.strip() in (THROWERS, "athrow"):
            part = code[codelet.start - interpreter.start : codelet.end - interpreter.start]
            targets |= {
                a
                for a, what in _scanned(part, codelet.start)
                if what == JUMPED and any(c.start < a < c.end for c in inside)
            }
    for address in sorted(targets):
        yield address, 0, Token.THROW, 0

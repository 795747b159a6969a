"""Machine code as flat arrays: of each instruction as much as a trace walker must know, and nothing else.

An instruction is decoded once, in runs up to the next control transfer: capstone finds the lengths, `classify` looks
at the bytes (a trace decoder's questions are not those that a disassembler answers: does it need a packet, where does
it go statically, which packets bind to it). The result is a record in `Instructions.table`; records know the record
that follows them, so that the walker goes from index to index and asks the hash only for targets of indirect branches.
Where no code is known, or no instruction, stands a record that says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import capstone
import numpy as np
from numpy.typing import NDArray

from jvm.code.snapshot import CodeView
from jvm.kernels import inner, kernel
from stages.pt.errors import BAD_INSTRUCTION, NO_MEMORY
from stages.pt.events.event import MODE_16, MODE_32, MODE_64, MODE_UNKNOWN
from stages.pt.packets import Int, Records
from stages.pt.return_stack import call_pushes

# needed to go on after it: nothing, its target, a packet; or it cannot be passed
(PLAIN, JUMP, CALL, CONDITIONAL, RETURN, INDIRECT_JUMP, INDIRECT_CALL, FAR_CALL, FAR_RETURN, FAR_JUMP, UNMAPPED,
 INVALID) = range(12)  # fmt: skip
FIRST_THAT_NEEDS_TRACE = CONDITIONAL

# the events that bind to it
SETS_CR3, TAKES_PIP, TAKES_VMCS, IS_PTWRITE, IS_IRET, IS_VMENTRY, IS_UIRET, IS_SWINT, IS_SYSCALL, IS_DIRECT, PUSHES = (
    1 << i for i in range(11)
)
IS_INSTRUCTION = 1 << 11

INSTRUCTION_DTYPE = np.dtype(
    [
        ("ip", "<u8"),
        ("target", "<u8"),  # of a direct branch, taken
        ("next", "<i4"),  # index of the instruction behind it in memory, −1: not looked up yet
        ("taken", "<i4"),  # index of the target
        ("flags", "<u2"),
        ("kind", "u1"),
        ("size", "u1"),
        ("mode", "u1"),
        ("_", "u1", (3,)),
    ]
)

_LONGEST = 15
_RUN_BYTES = 512  # at most so much at once
_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_PLAIN = (PLAIN, 0, 0)


class Shape(NamedTuple):
    """An instruction's prefixes taken off."""

    opcode_at: int
    map: int  # 0, 1 (0F), −1: another, of no interest
    opcode: int
    rex: int
    rex2: bool
    operand16: bool  # 66
    address: bool  # 67
    repeat: int  # the last of F2, F3


def shape(raw: bytes, bits: int) -> Shape | None:
    """None where the bytes end before the opcode."""
    at = rex = repeat = 0
    operand16 = address = rex2 = False
    while at < len(raw):
        byte = raw[at]
        if byte in _PREFIXES:
            operand16 |= byte == 0x66
            address |= byte == 0x67
            if byte >= 0xF2:
                repeat = byte
            rex = 0  # REX counts only right before the opcode
        elif bits == 64 and byte & 0xF0 == 0x40:
            rex = byte
        else:
            break
        at += 1
    map_ = 0
    if bits == 64 and raw[at : at + 1] == b"\xd5" and at + 1 < len(raw):
        rex2, rex, map_ = True, raw[at + 1], raw[at + 1] >> 7
        at += 2
    elif raw[at : at + 1] in (b"\xc4", b"\xc5", b"\x62"):  # VEX, EVEX; else LES, LDS, BOUND: nothing to know either
        map_ = -1
    elif raw[at : at + 1] == b"\x0f":
        at += 1
        map_ = -1 if raw[at : at + 1] in (b"\x38", b"\x3a") else 1
    if at >= len(raw):
        return None
    return Shape(at, map_, raw[at], rex, rex2, operand16, address, repeat)


def classify(raw: bytes, bits: int) -> tuple[int, int, int]:
    """(kind, flags, displacement) of one whole instruction (SDM vol. 2, opcode maps)."""
    form = shape(raw, bits)
    if form is None or form.map < 0:
        return _PLAIN
    if form.map == 0:
        return _classify_one_byte(raw, bits, form)
    return _classify_0f(raw, form)


def _displacement(raw: bytes, form: Shape) -> int:
    return int.from_bytes(raw[form.opcode_at + 1 :], "little", signed=True)


def _classify_one_byte(raw: bytes, bits: int, form: Shape) -> tuple[int, int, int]:
    opcode = form.opcode
    far = TAKES_PIP | TAKES_VMCS
    if opcode in (0xCD, 0xCC, 0xF1) or (opcode == 0xCE and bits != 64):
        return FAR_CALL, far | IS_SWINT, 0
    if opcode == 0xCF:
        return FAR_RETURN, far | IS_IRET, 0
    if opcode in (0xC2, 0xC3):
        return RETURN, 0, 0
    if opcode in (0xCA, 0xCB):
        return FAR_RETURN, far, 0
    if opcode == 0xFF and form.opcode_at + 1 < len(raw):
        extension = (raw[form.opcode_at + 1] >> 3) & 7
        return {
            2: (INDIRECT_CALL, PUSHES, 0),
            3: (FAR_CALL, far, 0),
            4: (INDIRECT_JUMP, 0, 0),
            5: (FAR_JUMP, far, 0),
        }.get(extension, _PLAIN)
    if bits != 64 and opcode in (0x9A, 0xEA):
        return (FAR_CALL if opcode == 0x9A else FAR_JUMP), far, 0
    if form.rex2:
        # JMPABS goes to an absolute address, with a TIP as if it were indirect
        is_jmpabs = opcode == 0xA1 and not form.rex & 8 and not form.address and not form.operand16
        return (INDIRECT_JUMP, 0, 0) if is_jmpabs else _PLAIN
    if opcode & 0xF0 == 0x70 or 0xE0 <= opcode <= 0xE3:
        return CONDITIONAL, 0, _displacement(raw, form)
    if opcode in (0xE9, 0xEB):
        return JUMP, IS_DIRECT, _displacement(raw, form)
    if opcode == 0xE8:
        distance = _displacement(raw, form)
        return CALL, IS_DIRECT | (PUSHES if call_pushes(distance, 0) else 0), distance
    return _PLAIN


def _classify_0f(raw: bytes, form: Shape) -> tuple[int, int, int]:
    opcode = form.opcode
    far = TAKES_PIP | TAKES_VMCS
    modrm = raw[form.opcode_at + 1] if form.opcode_at + 1 < len(raw) else -1
    extension = (modrm >> 3) & 7
    if opcode & 0xF0 == 0x80 and not form.rex2:
        return CONDITIONAL, 0, _displacement(raw, form)
    if opcode == 0x05 or (opcode == 0x34 and not form.rex2):  # SYSCALL, SYSENTER
        return FAR_CALL, far | IS_SYSCALL, 0
    if opcode == 0x07 or (opcode == 0x35 and not form.rex2):  # SYSRET, SYSEXIT
        return FAR_RETURN, far | IS_IRET, 0
    if opcode == 0x22 and extension == 3 and not form.rex & 4:
        return PLAIN, SETS_CR3 | TAKES_PIP, 0
    if opcode == 0x01:
        if modrm == 0xC1:  # VMCALL
            return FAR_CALL, far, 0
        if modrm in (0xC2, 0xC3):  # VMLAUNCH, VMRESUME
            return FAR_RETURN, far | IS_VMENTRY, 0
        if modrm == 0xEC:
            return FAR_RETURN, far | IS_UIRET, 0
        if modrm == 0xCA and form.repeat:  # ERETS, ERETU
            return FAR_RETURN, far | IS_IRET, 0
    if opcode == 0xC7 and extension == 6 and modrm >> 6 != 3 and not form.operand16 and not form.repeat:  # VMPTRLD
        return PLAIN, TAKES_VMCS, 0
    if opcode == 0xAE and extension == 4 and form.repeat == 0xF3 and not form.operand16:
        return PLAIN, IS_PTWRITE, 0
    return _PLAIN


def length(raw: bytes, bits: int, engine: Any) -> int:
    """Bytes of the first instruction in `raw`; 0: none. For instructions that capstone does not know, or knows as AMD
    has them."""
    form = shape(raw, bits)
    if form is None:
        return 0
    at = form.opcode_at
    if bits == 64 and form.operand16 and not form.rex2:
        near = (form.map == 0 and form.opcode in (0xE8, 0xE9)) or (form.map == 1 and form.opcode & 0xF0 == 0x80)
        if near:  # Intel ignores 66 here: always rel32
            return at + 5 if at + 5 <= len(raw) else 0
    if form.map == 1 and form.opcode == 0x01 and raw[at + 1 : at + 2] >= b"\xc0":
        return at + 2  # system instructions without operands: UIRET, ERETU and others newer than capstone
    if form.rex2:
        if form.map == 0 and form.opcode == 0xA1:
            return at + 9 if at + 9 <= len(raw) else 0  # JMPABS
        # as long as the same instruction with REX, whose one byte (and 0F) stand for the two of REX2
        plain = raw[: at - 2] + bytes((0x40 | form.rex & 15,)) + (b"\x0f" if form.map else b"") + raw[at:]
        size = next((size for _, size, _, _ in engine.disasm_lite(plain[:_LONGEST], 0, 1)), 0)
        return size + (0 if form.map or not size else 1)
    return next((size for _, size, _, _ in engine.disasm_lite(raw[:_LONGEST], 0, 1)), 0)


_BITS = {MODE_16: 16, MODE_32: 32, MODE_64: 64}
_ENGINE_MODE = {16: capstone.CS_MODE_16, 32: capstone.CS_MODE_32, 64: capstone.CS_MODE_64}


class Instructions:
    """All instructions met so far, in all modes, by (address, mode).

    `table` INSTRUCTION_DTYPE, `count` of its records in use; `slots` int32 (power of two) an open hash of indices,
    −1 = empty. Both are replaced when they grow: take them anew after `add`.
    """

    def __init__(self, view: CodeView, bits: int = 64) -> None:
        """`bits`: the mode until the trace tells one."""
        self._view = view
        self._bits = {**_BITS, MODE_UNKNOWN: bits}
        self._engines = {bits: capstone.Cs(capstone.CS_ARCH_X86, mode) for bits, mode in _ENGINE_MODE.items()}
        self._known: dict[tuple[int, int], int] = {}
        self.table: Records = np.zeros(1024, INSTRUCTION_DTYPE)
        self.count = 0
        self.slots: NDArray[np.int32] = np.full(4096, -1, np.int32)

    def _read(self, ip: int, size: int) -> bytes:
        """The known code from `ip` on, at most `size` bytes; blobs that touch read as one."""
        view = self._view
        i = int(np.searchsorted(view.start, np.uint64(ip), side="right")) - 1
        out = b""
        while i >= 0 and i < len(view.start) and len(out) < size:
            begin, end = int(view.start[i]), int(view.end[i])
            here = ip + len(out)
            if not begin <= here < end:
                break
            at = int(view.data_at[i]) + here - begin
            out += view.code[at : at + min(size - len(out), end - here)].tobytes()
            i += 1
        return out

    def add(self, ip: int, mode: int) -> None:
        """Decode from `ip` on, up to the next control transfer or to code that is known already."""
        bits = self._bits[mode]
        raw = self._read(ip, _RUN_BYTES)
        if not raw:
            self._put(ip, mode, UNMAPPED, 0, 0, 0)
            return
        at = 0
        while at < len(raw) and (ip + at, mode) not in self._known:
            window = raw[at : at + _LONGEST]
            if len(window) < _LONGEST and len(raw) == _RUN_BYTES:
                return  # more of it is known; the walker asks again
            size = length(window, bits, self._engines[bits])
            if size == 0:
                self._put(ip + at, mode, INVALID, 0, 0, 0)
                return
            kind, flags, distance = classify(window[:size], bits)
            target = (ip + at + size + distance) & 0xFFFF_FFFF_FFFF_FFFF
            self._put(ip + at, mode, kind, size, flags | IS_INSTRUCTION, target)
            at += size
            if kind != PLAIN:
                return

    def _put(self, ip: int, mode: int, kind: int, size: int, flags: int, target: int) -> None:
        if self.count == len(self.table):
            self.table = np.concatenate((self.table, np.zeros(self.count, INSTRUCTION_DTYPE)))
        index = self.count
        self.table[index] = (ip, target, -1, -1, flags, kind, size, mode, (0, 0, 0))
        self.count += 1
        self._known[(ip, mode)] = index
        if self.count * 2 > len(self.slots):
            self.slots = np.full(len(self.slots) * 2, -1, np.int32)
            rehash(self.table, self.count, self.slots)
        else:
            insert(self.table, index, self.slots)


@inner
def _slot(ip: Int, mode: Int, slots: Any) -> Any:
    # Fibonacci hashing: the high bits of a multiplication by 2^64 / φ
    mixed = (np.uint64(ip) ^ (np.uint64(mode) << np.uint64(56))) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(slots.size - 1))


@kernel
def insert(table: Any, index: Int, slots: Any) -> None:
    at = _slot(table[index]["ip"], table[index]["mode"], slots)
    while slots[at] >= 0:
        at = (at + 1) & (slots.size - 1)
    slots[at] = index


@kernel
def rehash(table: Any, count: Int, slots: Any) -> None:
    for index in range(count):
        insert(table, index, slots)


@inner
def lookup(table: Any, slots: Any, ip: Int, mode: Int) -> Any:
    """Index of the instruction at `ip`; −1: not decoded yet."""
    at = _slot(ip, mode, slots)
    while slots[at] >= 0:
        index = slots[at]
        if table[index]["ip"] == ip and table[index]["mode"] == mode:
            return np.int64(index)
        at = (at + 1) & (slots.size - 1)
    return np.int64(-1)


@inner
def why_not(kind: Int) -> Any:
    return NO_MEMORY if kind == UNMAPPED else BAD_INSTRUCTION

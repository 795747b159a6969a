"""How long an x86-64 instruction is, and whether it can change the flow: all that a trace decoder asks.

Table-driven, inside the kernels: a general disassembler costs microseconds an instruction, and new code arrives
all the time. The tables follow the opcode maps of the SDM, vol. 2, appendix A, for 64-bit mode as Intel executes
it (0x66 does not shrink the displacement of a near branch). Checked against capstone in the tests.
"""

from __future__ import annotations

import numpy as np

from jvm.kernels import inner

OTHER, JUMP, CALL, COND, JUMP_IND, CALL_IND, RET, FAR, BAD = range(9)

_MODRM, _IMM8, _IMM16, _IMMZ, _INVALID, _PREFIX, _REL8, _REL32 = 1, 2, 4, 8, 16, 32, 64, 128


def _one_byte() -> list[int]:
    t = [0] * 256
    for base in range(0, 0x40, 8):
        for k in range(4):
            t[base + k] = _MODRM
        t[base + 4], t[base + 5] = _IMM8, _IMMZ
        t[base + 6] = t[base + 7] = _INVALID
    for p in (0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3):
        t[p] = _PREFIX
    for op in (0x60, 0x61, 0x62, 0x82, 0x9A, 0xC4, 0xC5, 0xCE, 0xD4, 0xD5, 0xD6, 0xEA):
        t[op] = _INVALID  # C4, C5 and 62 are handled before the table is asked
    t[0x63], t[0x68], t[0x69], t[0x6A], t[0x6B] = _MODRM, _IMMZ, _MODRM | _IMMZ, _IMM8, _MODRM | _IMM8
    for op in range(0x70, 0x80):
        t[op] = _REL8
    t[0x80], t[0x81], t[0x83] = _MODRM | _IMM8, _MODRM | _IMMZ, _MODRM | _IMM8
    for op in range(0x84, 0x90):
        t[op] = _MODRM
    t[0xA8], t[0xA9] = _IMM8, _IMMZ
    for op in range(0xB0, 0xB8):
        t[op] = _IMM8
    for op in range(0xB8, 0xC0):
        t[op] = _IMMZ  # imm64 with REX.W
    t[0xC0] = t[0xC1] = t[0xC6] = _MODRM | _IMM8
    t[0xC7] = _MODRM | _IMMZ
    t[0xC2] = t[0xCA] = _IMM16
    t[0xC8] = _IMM16 | _IMM8
    t[0xCD] = _IMM8
    for op in (*range(0xD0, 0xD4), *range(0xD8, 0xE0), 0xF6, 0xF7, 0xFE, 0xFF):
        t[op] = _MODRM
    for op in range(0xE0, 0xE4):
        t[op] = _REL8
    for op in range(0xE4, 0xE8):
        t[op] = _IMM8
    t[0xE8] = t[0xE9] = _REL32
    t[0xEB] = _REL8
    return t


def _two_byte() -> list[int]:
    t = [_MODRM] * 256
    for op in (0x05, 0x06, 0x07, 0x08, 0x09, 0x0B, 0x0E, *range(0x30, 0x38), 0x77, 0xA0, 0xA1, 0xA2, 0xA8, 0xA9, 0xAA):
        t[op] = 0
    for op in (0x04, 0x0A, 0x0C, *range(0x24, 0x28), 0x36, 0x39, *range(0x3B, 0x40), 0x7A, 0x7B, 0xA6, 0xA7):
        t[op] = _INVALID
    for op in (0x0F, *range(0x70, 0x74), 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6):
        t[op] = _MODRM | _IMM8
    for op in range(0x80, 0x90):
        t[op] = _REL32
    for op in range(0xC8, 0xD0):
        t[op] = 0
    return t


_ONE = np.array(_one_byte(), dtype=np.uint8)
_TWO = np.array(_two_byte(), dtype=np.uint8)


@inner
def displacement(code, end, insn):  # type: ignore[no-untyped-def]
    """How far behind itself the direct branch leads that ends before `code[end]`; `insn`: the result of `decode`."""
    top = (np.int64(code[end - 1]) ^ 0x80) - 0x80
    if insn >> 16:
        return top
    return np.int64(code[end - 4]) | np.int64(code[end - 3]) << 8 | np.int64(code[end - 2]) << 16 | top << 24


@inner
def _is_far(modrm, before):  # type: ignore[no-untyped-def]
    """Whether 0F 01 `modrm`, behind the byte `before`, is VMCALL, VMLAUNCH, VMRESUME, ERETS, ERETU or UIRET."""
    repeated = before == 0xF2 or before == 0xF3
    return 0xC1 <= modrm <= 0xC3 or (modrm == 0xCA and repeated) or (modrm == 0xEC and before == 0xF3)


@inner
def decode(code, at, end):  # type: ignore[no-untyped-def]
    """``length | kind << 8`` of the instruction at `code[at]`; nothing at or behind `end` is read.

    Length 0: the bytes end before the instruction does. Kind BAD: not an instruction (or UD: it cannot be passed).
    A direct branch ends in its displacement: 4 bytes, or 1 where bit 16 is set.
    """
    if end > at + 15:
        end = at + 15
        cut = BAD << 8 | 1  # longer than any instruction
    else:
        cut = 0
    i = at
    opsize = False
    addrsize = False
    rexw = False
    while True:  # legacy prefixes and REX; a REX counts only right before the opcode
        if i >= end:
            return cut
        op = int(code[i])
        i += 1
        if 0x40 <= op < 0x50:
            rexw = (op & 8) != 0
            if i >= end:
                return cut
            nxt = int(code[i])
            if _ONE[nxt] & _PREFIX or 0x40 <= nxt < 0x50:
                rexw = False
                continue
            op = nxt
            i += 1
            break
        if not _ONE[op] & _PREFIX:
            break
        opsize = opsize or op == 0x66
        addrsize = addrsize or op == 0x67
    kind = OTHER
    imm = 0
    rex2 = op == 0xD5
    if rex2:  # payload: bit 7 is the map, bit 3 REX.W; nothing but these two maps
        if i + 1 >= end:
            return cut
        payload = int(code[i])
        rexw = payload & 8 != 0
        op = 0x0F if payload & 0x80 else int(code[i + 1])
        i += 1 if payload & 0x80 else 2
        row = op >> 4
        if op == 0x0F and i < end and (int(code[i]) >> 4 == 3 or int(code[i]) >> 4 == 8):
            return BAD << 8 | 1
        if op != 0x0F and (row == 4 or row == 7 or row == 0xA or row == 0xE or _ONE[op] & (_PREFIX | _INVALID)):
            if op == 0xA1 and not (rexw or opsize or addrsize):  # JMPABS, to an absolute address, by a TIP
                return (i + 8 - at) | JUMP_IND << 8 if i + 8 <= end else cut
            return BAD << 8 | 1
    if i >= end and (op == 0x0F or op == 0xC4 or op == 0xC5 or op == 0x62 or op == 0x8F):
        return cut
    if op == 0xC5 or op == 0xC4 or op == 0x62 or (op == 0x8F and (int(code[i]) & 0x1F) >= 8):
        # VEX, EVEX, XOP: payload, opcode, ModRM; the map tells of the immediate
        space = 1 if op == 0xC5 else int(code[i]) & (7 if op == 0x62 else 0x1F)
        i += 1 if op == 0xC5 else (3 if op == 0x62 else 2)
        if i >= end:
            return cut
        opcode = int(code[i])
        i += 1
        flags = _MODRM
        if op == 0x8F:
            imm = 1 if space == 8 else (4 if space == 10 else 0)
            if space > 10:
                return BAD << 8 | 1
        elif space == 1:
            flags = int(_TWO[opcode])
            if flags & (_REL32 | _INVALID):
                flags = _MODRM  # opmask instructions and the like live there
            if opcode == 0x77:
                flags = 0
            else:
                flags |= _MODRM
            imm = 1 if flags & _IMM8 else 0
        elif space == 3:
            imm = 1
        elif space != 2 and not (op == 0x62 and 4 <= space <= 6):
            return BAD << 8 | 1
        flags &= _MODRM
    elif op == 0x0F:
        opcode = int(code[i])
        i += 1
        flags = int(_TWO[opcode])
        if opcode == 0x38 or opcode == 0x3A:
            if i >= end:
                return cut
            i += 1
            flags = _MODRM
            imm = 1 if opcode == 0x3A else 0
        elif opcode == 0x05 or opcode == 0x07 or opcode == 0x34 or opcode == 0x35:
            kind = FAR
        elif opcode == 0x01:
            if i < end and _is_far(int(code[i]), int(code[i - 3]) if i - 3 >= at else 0):
                kind = FAR
        elif opcode == 0x0B or opcode == 0xFF or opcode == 0xB9:
            kind = BAD  # UD2, UD0, UD1
        elif flags & _REL32:
            kind = COND
    else:
        flags = int(_ONE[op])
        if flags & _REL8:
            kind = (JUMP if op == 0xEB else COND) | 1 << 8
        elif op == 0xE8:
            kind = CALL
        elif op == 0xE9:
            kind = JUMP
        elif op == 0xC3 or op == 0xC2:
            kind = RET
        elif op == 0xCA or op == 0xCB or op == 0xCC or op == 0xCD or op == 0xCF or op == 0xF1:
            kind = FAR
        elif op >= 0xA0 and op < 0xA4:
            imm = 4 if addrsize else 8
        elif op >= 0xB8 and op < 0xC0 and rexw:
            imm = 8
            flags = 0
    if flags & _INVALID:
        return BAD << 8 | 1
    if flags & _IMM8:
        imm = 1
    if flags & _IMM16:
        imm += 2
    if flags & _IMMZ:
        imm = 2 if opsize and not rexw else 4
    if flags & _REL8:
        imm = 1
    if flags & _REL32:
        imm = 4
    if flags & _MODRM:
        if i >= end:
            return cut
        modrm = int(code[i])
        i += 1
        mod = modrm >> 6
        rm = modrm & 7
        reg = (modrm >> 3) & 7
        if op == 0x0F and 0x20 <= int(code[i - 2]) <= 0x23 and int(code[i - 3]) == 0x0F:
            mod = 3  # moves to and from control and debug registers ignore mod
        if op == 0xFF:
            if reg == 2:
                kind = CALL_IND
            elif reg == 4:
                kind = JUMP_IND
            elif reg == 3 or reg == 5:
                kind = FAR if mod != 3 else BAD
            elif reg == 7:
                kind = BAD
        elif (op == 0xF6 or op == 0xF7) and reg < 2:
            imm = 1 if op == 0xF6 else (2 if opsize and not rexw else 4)
        if mod != 3:
            if rm == 4:
                if i >= end:
                    return cut
                if mod == 0 and (int(code[i]) & 7) == 5:
                    i += 4
                i += 1
            elif rm == 5 and mod == 0:
                i += 4
            if mod == 1:
                i += 1
            elif mod == 2:
                i += 4
    i += imm
    if i > end:
        return cut
    return (i - at) | kind << 8

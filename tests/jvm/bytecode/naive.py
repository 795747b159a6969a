"""References for the kernels of `jvm.bytecode`: slow, plain, and after the letter of the specification."""

from __future__ import annotations

import struct

from jvm.bytecode.opcodes import KIND, LENGTH, NAMES, OPCODE, Kind


def operands_of_switch(code: bytes, bci: int) -> tuple[int, list[tuple[int, int]], int] | None:
    """The default's bci, (key, bci) of each arm, and its end (JVMS 6.5); None: it is cut or wrong."""
    at = bci + 1
    while at % 4:
        at += 1
    try:
        if code[bci] == OPCODE["tableswitch"]:
            default, low, high = struct.unpack_from(">iii", code, at)
            if low > high or high - low > len(code):
                return None
            offsets = struct.unpack_from(f">{high - low + 1}i", code, at + 12)
            return bci + default, [(low + k, bci + o) for k, o in enumerate(offsets)], at + 12 + 4 * len(offsets)
        default, count = struct.unpack_from(">ii", code, at)
        if not 0 <= count <= len(code):
            return None
        pairs = [struct.unpack_from(">ii", code, at + 8 + 8 * k) for k in range(count)]
        return bci + default, [(key, bci + offset) for key, offset in pairs], at + 8 + 8 * count
    except struct.error:
        return None


def instructions(code: bytes) -> tuple[list[tuple[int, int, int, int]], int]:
    """(bci, opcode, length, kind) of each whole instruction from the beginning, and where the first other begins."""
    found, at = [], 0
    while at < len(code):
        name = NAMES[code[at]] if code[at] < len(NAMES) else ""
        size, kind = int(LENGTH[code[at]]), int(KIND[code[at]])
        if name == "wide":
            widened = NAMES[code[at + 1]] if at + 1 < len(code) and code[at + 1] < len(NAMES) else ""
            if widened == "iinc":
                size = 6
            elif widened[1:] in ("load", "store") or widened == "ret":
                size, kind = 4, int(KIND[OPCODE[widened]])
        elif name.endswith("switch"):
            operands = operands_of_switch(code, at)
            size = operands[2] - at if operands else 0
        if not size or at + size > len(code):
            break
        found.append((at, code[at], size, kind))
        at += size
    return found, at


def edges(code: bytes, handlers: list[tuple[int, int, int, int]]) -> set[tuple[int, int, str]] | None:
    """(bci, bci, kind) of each edge within a method; None: one of them leads to no instruction."""
    walked, end = instructions(code)
    if end != len(code):
        return None
    begins = {bci for bci, *_ in walked}
    found: set[tuple[int, int, str]] = set()
    for bci, opcode, length, kind in walked:
        if kind in (Kind.PLAIN, Kind.CONDITIONAL, Kind.CALL, Kind.JSR) and bci + length < len(code):
            found.add((bci, bci + length, "next"))
        if kind in (Kind.CONDITIONAL, Kind.GOTO, Kind.JSR):
            offset = code[bci + 1 : bci + length]
            found.add((bci, bci + int.from_bytes(offset, "big", signed=True), "taken"))
        if NAMES[opcode].endswith("switch"):
            operands = operands_of_switch(code, bci)
            assert operands is not None
            targets = [operands[0], *(to for _, to in operands[1])]
            found |= {(bci, to, f"arm {k}") for k, to in enumerate(targets)}
    for row, (first, behind, handler, _) in enumerate(handlers):
        if first not in begins or handler not in begins or behind not in begins | {len(code)}:
            return None
        found |= {(bci, handler, f"handler {row}") for bci in begins if first <= bci < behind}
    return found if {to for _, to, _ in found} <= begins else None

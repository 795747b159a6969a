"""The opcodes of the JVM (JVMS chapter 6), and those into which HotSpot rewrites them.

HotSpot replaces opcodes in its own copy of a method's code by faster ones, and its interpreter has templates for those
(JDK: bytecodes.hpp, rewriter.cpp, templateTable_x86.cpp). Class files, and the code that JVMTI's GetBytecodes shows,
have the opcodes of the specification only. JDK 17, 21 and 25 number them alike; as nothing promises that, a template is
known by its name, which is the codelet's description.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray


class Kind(IntEnum):
    """Where control goes behind an instruction that completes normally."""

    PLAIN = 0  # to the next one
    CONDITIONAL = 1  # to the next one or to its target
    GOTO = 2  # to its target
    SWITCH = 3  # to one of its arms
    CALL = 4  # into a method, and then to the next one
    RETURN = 5  # out of the method
    THROW = 6  # to a handler, or out of the method
    JSR = 7  # to its target; the next one's address is pushed (class files before 51.0)
    RET = 8  # to an address that a jsr has pushed
    NONE = 9  # there is no such opcode


_NAMES: Final = """
    nop aconst_null iconst_m1 iconst_0 iconst_1 iconst_2 iconst_3 iconst_4 iconst_5 lconst_0 lconst_1 fconst_0 fconst_1
    fconst_2 dconst_0 dconst_1 bipush sipush ldc ldc_w ldc2_w iload lload fload dload aload iload_0 iload_1 iload_2
    iload_3 lload_0 lload_1 lload_2 lload_3 fload_0 fload_1 fload_2 fload_3 dload_0 dload_1 dload_2 dload_3 aload_0
    aload_1 aload_2 aload_3 iaload laload faload daload aaload baload caload saload istore lstore fstore dstore astore
    istore_0 istore_1 istore_2 istore_3 lstore_0 lstore_1 lstore_2 lstore_3 fstore_0 fstore_1 fstore_2 fstore_3 dstore_0
    dstore_1 dstore_2 dstore_3 astore_0 astore_1 astore_2 astore_3 iastore lastore fastore dastore aastore bastore
    castore sastore pop pop2 dup dup_x1 dup_x2 dup2 dup2_x1 dup2_x2 swap iadd ladd fadd dadd isub lsub fsub dsub imul
    lmul fmul dmul idiv ldiv fdiv ddiv irem lrem frem drem ineg lneg fneg dneg ishl lshl ishr lshr iushr lushr iand land
    ior lor ixor lxor iinc i2l i2f i2d l2i l2f l2d f2i f2l f2d d2i d2l d2f i2b i2c i2s lcmp fcmpl fcmpg dcmpl dcmpg ifeq
    ifne iflt ifge ifgt ifle if_icmpeq if_icmpne if_icmplt if_icmpge if_icmpgt if_icmple if_acmpeq if_acmpne goto jsr
    ret tableswitch lookupswitch ireturn lreturn freturn dreturn areturn return getstatic putstatic getfield putfield
    invokevirtual invokespecial invokestatic invokeinterface invokedynamic new newarray anewarray arraylength athrow
    checkcast instanceof monitorenter monitorexit wide multianewarray ifnull ifnonnull goto_w jsr_w
"""
NAMES: Final = tuple(_NAMES.split())
"""The mnemonic of each opcode."""
OPCODE: Final = {name: opcode for opcode, name in enumerate(NAMES)}

_LENGTHS: Final = {  # of those that are longer than one byte, and do not vary
    2: "bipush ldc iload lload fload dload aload istore lstore fstore dstore astore ret newarray",
    3: """sipush ldc_w ldc2_w iinc ifeq ifne iflt ifge ifgt ifle if_icmpeq if_icmpne if_icmplt if_icmpge if_icmpgt
    if_icmple if_acmpeq if_acmpne goto jsr getstatic putstatic getfield putfield invokevirtual invokespecial
    invokestatic new anewarray checkcast instanceof ifnull ifnonnull""",
    4: "multianewarray",
    5: "invokeinterface invokedynamic goto_w jsr_w",
}
_VARYING: Final = "wide tableswitch lookupswitch"
_KINDS: Final = {
    Kind.CONDITIONAL: """ifeq ifne iflt ifge ifgt ifle if_icmpeq if_icmpne if_icmplt if_icmpge if_icmpgt if_icmple
    if_acmpeq if_acmpne ifnull ifnonnull""",
    Kind.GOTO: "goto goto_w",
    Kind.SWITCH: "tableswitch lookupswitch",
    Kind.CALL: "invokevirtual invokespecial invokestatic invokeinterface invokedynamic",
    Kind.RETURN: "ireturn lreturn freturn dreturn areturn return",
    Kind.THROW: "athrow",
    Kind.JSR: "jsr jsr_w",
    Kind.RET: "ret",
}
_WIDENED: Final = "iload lload fload dload aload istore lstore fstore dstore astore ret iinc"


def _opcodes(names: str) -> list[int]:
    return [OPCODE[name] for name in names.split()]


def _by_opcode(groups: dict[Kind, str] | dict[int, str], usual: int, none: int) -> NDArray[np.uint8]:
    table = np.full(256, none, np.uint8)
    table[: len(NAMES)] = usual
    for value, names in groups.items():
        table[_opcodes(names)] = value
    return table


LENGTH: Final = _by_opcode(_LENGTHS | {0: _VARYING}, 1, 0)
"""(256,) bytes of an instruction; 0: they vary (wide, tableswitch, lookupswitch), or there is no such opcode."""
KIND: Final = _by_opcode(_KINDS, Kind.PLAIN, Kind.NONE)
"""(256,) `Kind` by opcode. That of a wide instruction is that of the opcode behind it."""
WIDENED: Final = np.isin(np.arange(256), _opcodes(_WIDENED))
"""(256,) whether `wide` may stand before it."""

WIDE, IINC, TABLESWITCH, LOOKUPSWITCH, GOTO_W, JSR_W = _opcodes("wide iinc tableswitch lookupswitch goto_w jsr_w")
INVOKEVIRTUAL, INVOKESPECIAL, INVOKESTATIC, INVOKEINTERFACE, INVOKEDYNAMIC = _opcodes(_KINDS[Kind.CALL])


def _rewritten() -> dict[str, tuple[int, ...]]:
    one = {
        **{f"fast_{type_}getfield": "getfield" for type_ in "abcdfils"},
        **{f"fast_{type_}putfield": "putfield" for type_ in "abzcdfils"},
        **{f"nofast_{name}": name for name in ("getfield", "putfield", "aload_0", "iload")},
        **{f"fast_{type_}access_0": "aload_0 getfield" for type_ in "iaf"},
        "fast_aload_0": "aload_0",
        "fast_iload": "iload",
        "fast_iload2": "iload iload",
        "fast_icaload": "iload caload",
        "fast_invokevfinal": "invokevirtual",
        "fast_linearswitch": "lookupswitch",
        "fast_binaryswitch": "lookupswitch",
        "fast_aldc": "ldc",
        "fast_aldc_w": "ldc_w",
        "return_register_finalizer": "return",
        "invokehandle": "invokevirtual",
    }
    return {name: tuple(_opcodes(names)) for name, names in one.items()}


REWRITTEN: Final = _rewritten()
"""HotSpot's own opcodes, by name: the one or two that a template of it runs, each behind the one before it in the code.
`breakpoint` and `_shouldnotreachhere` stand for none."""


def template(description: str) -> tuple[int, ...]:
    """The opcodes that one pass through an interpreter's codelet of this description runs, in their order.

    Empty: it is no bytecode's template. `wide` runs nothing by itself: it goes on to the wide entry in the codelet of
    the opcode behind it.
    """
    own = OPCODE.get(description)
    return (own,) if own is not None else REWRITTEN.get(description, ())


CALL_STRUCTURE, CONTROL_STRUCTURE, CONCRETE = 1, 2, 3
TIER: Final = np.full(len(Kind), CONCRETE, np.uint8)
"""(kinds,) the most abstract tier in which an instruction of a `Kind` is seen (JPortal, section 5): calls and returns;
those and every other instruction that decides where control goes; all. A goto decides nothing."""
TIER[[Kind.CALL, Kind.RETURN]] = CALL_STRUCTURE
TIER[[Kind.CONDITIONAL, Kind.SWITCH, Kind.THROW, Kind.RET]] = CONTROL_STRUCTURE

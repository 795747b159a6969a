"""Has numba compile the kernels by which code and classes are taken in."""

from __future__ import annotations

import numpy as np

CLASS = bytes.fromhex("cafebabe 0000003d 0005 01 0001 41 07 0001 01 0001 42 07 0003 0000 0002 0004 0000 0000 0000 0000")
"""Of no members: A, below B (JVMS 4.1)."""


def compile_code() -> None:
    """By one class and one nmethod's pcs."""
    from jvm.bytecode.class_file import INVOKESTATIC, ClassFile
    from jvm.code.debug_info import DebugInfo

    assert ClassFile.of(CLASS).named(INVOKESTATIC, 1) is None
    pc, method, bci = np.ones(1, np.uint32), np.ones(1, np.uint32), np.zeros(1, np.int32)
    DebugInfo.described(1, 1, pc, np.arange(2), method, bci).distinct_inner_methods()

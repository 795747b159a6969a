"""Loads that compile to one instruction.

Numba's own indexing takes a negative index to mean "from the end", which puts two instructions on the critical path
of every load, and it cannot load an unaligned word from a byte array. Both matter in the hot loop and nowhere else.
The caller guarantees the bounds. With NUMBA_DISABLE_JIT=1 plain Python stands in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

if config.DISABLE_JIT:

    def at(array: Any, index: int) -> int:
        return int(array[index])

    def load64(data: Any, index: int) -> int:
        return int(np.frombuffer(data[index : index + 8].tobytes(), dtype=np.int64)[0])

else:

    @intrinsic  # type: ignore[untyped-decorator]
    def at(typingctx, array, index):  # type: ignore[no-untyped-def]
        """``int64(array[index])`` of a flat integer array, without the wrap-around check."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            kind = signature.args[0]
            ary = context.make_array(kind)(context, builder, args[0])
            value = builder.load(builder.gep(ary.data, [args[1]]))
            if kind.dtype.bitwidth == 64:
                return value
            widen = builder.sext if kind.dtype.signed else builder.zext
            return widen(value, ir.IntType(64))

        return types.int64(array, types.int64), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def load64(typingctx, data, index):  # type: ignore[no-untyped-def]
        """The eight bytes at `data[index]`, little-endian, as int64."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            ary = context.make_array(signature.args[0])(context, builder, args[0])
            place = builder.bitcast(builder.gep(ary.data, [args[1]]), cgutils.intp_t.as_pointer())
            load = builder.load(place)
            load.align = 1
            return load

        return types.int64(data, types.int64), codegen

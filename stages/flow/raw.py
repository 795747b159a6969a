"""Arrays as the kernels see them: bare pointers.

Numba counts references to the arrays in a tuple whenever a kernel touches one, with atomic operations: that alone
cost more than the walk. It also takes a negative index to mean "from the end", two instructions on the critical
path of every load, and cannot load an unaligned word. So kernels get pointers, and keep to bounds that they are
given as numbers. With NUMBA_DISABLE_JIT=1 a `Pointer` is indexed by plain Python, which checks the bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.extending import NativeValue, intrinsic, typeof_impl, unbox
from numba.np.numpy_support import from_dtype

# A function that only kernels call: without the wrappers that make it callable from Python, which take longer to
# compile than the function itself.
inner = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)

_TYPES = {np.dtype(d): types.CPointer(from_dtype(np.dtype(d))) for d in (np.uint8, np.int32, np.int64, np.float64)}


class Pointer:
    """A contiguous array, handed to a kernel as the address of its first item. Keeps the array alive."""

    __slots__ = ("address", "array", "type")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        if array.ndim != 1 or not array.flags.c_contiguous:
            raise ValueError("a pointer needs a contiguous array")
        self.array = array
        self.address = array.ctypes.data
        self.type = _TYPES[array.dtype]

    def __getitem__(self, index: int) -> Any:
        return self.array[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.array[index] = value


@typeof_impl.register(Pointer)  # type: ignore[untyped-decorator]
def _typeof(value: Pointer, c: Any) -> Any:
    return value.type


@unbox(types.CPointer)  # type: ignore[untyped-decorator]
def _unbox(typ: Any, obj: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(obj, "address")
    number = c.pyapi.long_as_ulonglong(address)
    c.pyapi.decref(address)
    return NativeValue(c.builder.inttoptr(number, c.context.get_value_type(typ)), is_error=c.pyapi.c_api_error())


if config.DISABLE_JIT:

    def load64(data: Any, index: int) -> int:
        return int.from_bytes(data.array[index : index + 8].tobytes(), "little", signed=True)

    def zero_bytes(word: int) -> int:
        return next((k for k in range(8) if (word >> 8 * k) & 0xFF), 8)

else:

    @intrinsic  # type: ignore[untyped-decorator]
    def load64(typingctx, data, index):  # type: ignore[no-untyped-def]
        """The eight bytes at `data[index]`, little-endian, as int64."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(64).as_pointer())
            load = builder.load(place)
            load.align = 1
            return load

        return types.int64(data, types.int64), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def zero_bytes(typingctx, word):  # type: ignore[no-untyped-def]
        """How many of the lowest bytes of an int64 are zero."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            zeros = builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))
            return builder.lshr(zeros, ir.Constant(ir.IntType(64), 3))

        return types.int64(types.int64), codegen

"""Arrays as the kernels see them: bare pointers.

Numba counts references to the arrays in a tuple whenever a kernel touches one, with atomic operations: that alone
cost more than the walk. It also takes a negative index to mean "from the end", two instructions on the critical
path of every load, cannot load an unaligned word, and needs most of a millisecond to look at a tuple of arrays that
Python hands it. So kernels are given one array of addresses, make pointers of them, and keep to bounds that they
are given as numbers. The caller keeps the arrays alive. With NUMBA_DISABLE_JIT=1 ctypes pointers stand in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from jvm.kernels import c_callback, inner, near


def entry(function: Any) -> int:
    """The address under which kernels call `function(a, b, c, d)`, int64 all, by `call`. Not compiled into its callers,
    so it is compiled once, however many call it."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        _STAND_INS[id(function)] = function
        return id(function)
    return int(c_callback(function, "int64(int64,int64,int64,int64)").address or 0)


_STAND_INS: dict[int, Any] = {}


def addresses(*arrays: NDArray[Any]) -> NDArray[np.int64]:
    """Where the arrays' first items lie."""
    if not all(a.ndim == 1 and a.flags.c_contiguous for a in arrays):
        raise ValueError("a pointer needs a contiguous array")
    return np.array([a.ctypes.data for a in arrays], dtype=np.int64)


def addresses_anew(
    arrays: Sequence[NDArray[Any]], before: Sequence[NDArray[Any]], known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """`addresses` of arrays of which most are those of `before`, whose addresses are `known`: to ask for one takes two
    microseconds."""
    where = known.copy()
    for k, (array, old) in enumerate(zip(arrays, before, strict=True)):
        if array is not old:
            where[k] = addresses(array)[0]
    return where


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def u8_at(address: int) -> Any:
        return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_uint8))

    def first_item(array: NDArray[Any]) -> Any:
        return {1: u8_at, 4: i32_at, 8: i64_at}[array.itemsize](array.ctypes.data)

    def i32_at(address: int) -> Any:
        return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_int32))

    def i64_at(address: int) -> Any:
        return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_int64))

    def product(x: int, by: int) -> int:
        return ctypes.c_int64(int(x) * by).value

    def unsigned(x: int) -> int:
        return int(x) & (1 << 64) - 1

    def page(address: int, bits: int) -> int:
        return unsigned(address) >> bits

    def offset(address: int, base: int) -> int:
        return unsigned(int(address) - int(base))

    def _word(data: Any, index: int) -> ctypes.c_int64:
        item = ctypes.sizeof(data.contents)
        return ctypes.c_int64.from_address(ctypes.addressof(data.contents) + int(index) * item)

    def load64(data: Any, index: int) -> int:
        return _word(data, index).value

    def store64(data: Any, index: int, value: int) -> None:
        _word(data, index).value = int(value)

    def call(function: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return _STAND_INS[int(function)](a, b, c, d)

    def prefetch(data: Any, index: Any) -> None:
        pass

    def bare(array: Any) -> Any:
        return array

    def opaque(x: Any) -> Any:
        return x

    def zero_bytes(word: int) -> int:
        return next((k for k in range(8) if (word >> 8 * k) & 0xFF), 8)

else:

    def _pointer_maker(item: Any) -> Any:
        @intrinsic
        def at(typingctx, address):  # type: ignore[no-untyped-def]
            pointer = types.CPointer(item)  # type: ignore[no-untyped-call]

            def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
                return builder.inttoptr(args[0], context.get_value_type(pointer))

            return pointer(types.int64), codegen

        return at

    u8_at, i32_at, i64_at = _pointer_maker(types.uint8), _pointer_maker(types.int32), _pointer_maker(types.int64)

    @intrinsic
    def first_item(typingctx, array):  # type: ignore[no-untyped-def]
        """Pointer to the first item of a contiguous array."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return context.make_array(signature.args[0])(context, builder, args[0]).data

        return types.CPointer(array.dtype)(array), codegen  # type: ignore[no-untyped-call]

    @near
    def product(x, by):  # type: ignore[no-untyped-def]
        """x · by, of int64, modulo 2⁶⁴. (Numba tells LLVM that products and sums of signed numbers do not overflow:
        where one does, anything may come out.)"""
        return np.int64(np.uint64(x) * np.uint64(by))

    @near
    def unsigned(x):  # type: ignore[no-untyped-def]
        return np.uint64(x)

    @near
    def page(address, bits):  # type: ignore[no-untyped-def]
        """Which 2^`bits` bytes of the address space hold `address`, by number; 0 < bits."""
        return np.int64(np.uint64(address) >> np.uint64(bits))

    @near
    def offset(address, base):  # type: ignore[no-untyped-def]
        """Bytes from `base` to `address`, as an unsigned number: large if it lies before."""
        return np.uint64(address) - np.uint64(base)

    @intrinsic
    def call(typingctx, function, a, b, c, d):  # type: ignore[no-untyped-def]
        """Calls an `entry`."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            word = ir.IntType(64)
            place = builder.inttoptr(args[0], ir.FunctionType(word, [word] * 4).as_pointer())
            return builder.call(place, args[1:])

        return types.int64(*[types.int64] * 5), codegen

    @intrinsic
    def load64(typingctx, data, index):  # type: ignore[no-untyped-def]
        """The eight bytes from `data[index]` on, little-endian, as int64."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(64).as_pointer())
            load = builder.load(place)
            load.align = 1
            return load

        return types.int64(data, types.int64), codegen

    @intrinsic
    def store64(typingctx, data, index, value):  # type: ignore[no-untyped-def]
        """`load64` will find `value` there."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(64).as_pointer())
            builder.store(args[2], place, align=1)
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), codegen

    @intrinsic
    def prefetch(typingctx, data, index):  # type: ignore[no-untyped-def]
        """`data[index]` will be read soon."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
            place = builder.bitcast(builder.gep(args[0], [args[1]]), byte)
            builder.call(function, [place, *(ir.Constant(number, k) for k in (0, 3, 1))])  # to read, to keep, data
            return context.get_dummy_value()

        return types.void(data, types.int64), codegen

    @intrinsic
    def bare(typingctx, array):  # type: ignore[no-untyped-def]
        """The array, whose references are not counted: as cheap as a pointer, with its shape. Its owner must outlive
        it."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            out = context.make_array(signature.args[0])(context, builder, args[0])
            for owner in ("meminfo", "parent"):
                setattr(out, owner, ir.Constant(getattr(out, owner).type, None))
            return out._getvalue()

        return array(array), codegen

    @intrinsic
    def opaque(typingctx, x):  # type: ignore[no-untyped-def]
        """`x`, of which the compiler takes nothing for known."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            kind = ir.FunctionType(args[0].type, [args[0].type])
            return builder.asm(kind, "", "=r,0", args, False)

        return x(x), codegen

    @intrinsic
    def zero_bytes(typingctx, word):  # type: ignore[no-untyped-def]
        """How many of the lowest bytes of an int64 are zero."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            zeros = builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))
            return builder.lshr(zeros, ir.Constant(ir.IntType(64), 3))

        return types.int64(types.int64), codegen


# Addresses are int64 in kernels, so those of the upper half of the address space are negative. Their order is asked for
# here, or of `page`.


@near
def below(address, other):  # type: ignore[no-untyped-def]
    """Whether `address` lies before `other`."""
    return unsigned(address) < unsigned(other)


@near
def within(lo, address, hi):  # type: ignore[no-untyped-def]
    """Whether `address` lies in [lo, hi), which may reach over both halves; hi = 0: to the end of the address space."""
    return offset(address, lo) < offset(hi, lo)


@near
def excluded(lo, address, hi):  # type: ignore[no-untyped-def]
    """Whether there is an IP filter [lo, hi) (equal: there is none) and `address` lies outside of it."""
    return lo != hi and not within(lo, address, hi)


@inner
def least_at(column, n, least):  # type: ignore[no-untyped-def]
    """Index of the first of n items, ascending as unsigned numbers, that is ≥ `least`; n: none."""
    lo, hi = 0, n
    while lo < hi:
        mid = (lo + hi) >> 1
        if below(column[mid], least):
            lo = mid + 1
        else:
            hi = mid
    return lo


@inner
def holder(start, end, n, address):  # type: ignore[no-untyped-def]
    """Index of the one of n disjoint intervals [start, end), ascending as unsigned numbers, that holds `address`; −1:
    none."""
    lo, hi = 0, n
    while lo < hi:
        mid = (lo + hi) >> 1
        if below(address, start[mid]):
            hi = mid
        else:
            lo = mid + 1
    return lo - 1 if lo > 0 and below(address, end[lo - 1]) else -1


def signed(number: int) -> int:
    """A number, whatever a message says, as the int64 of the same 64 bits."""
    return (number & (1 << 64) - 1 ^ 1 << 63) - (1 << 63)


def signed_rows(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    """(n, width) rows of numbers of up to 64 bits, as int64."""
    return np.array([[signed(number) for number in row] for row in rows], np.int64).reshape(-1, width)

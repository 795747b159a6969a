"""Where the parts of a class file lie (JVMS chapter 4), as kernels: its constants, its methods, and the names of the
methods that it calls.

Each counted item takes bytes that must be there, so time and space are in proportion to the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode import opcodes
from jvm.kernels import inner, kernel

UTF8, CLASS, METHODREF, INTERFACE_METHODREF, NAME_AND_TYPE, INVOKE_DYNAMIC = 1, 7, 10, 11, 12, 18
# Bytes of a constant by its tag (JVMS table 4.4-A), a Utf8 without its text; 0: there is no such tag.
_SIZE = np.zeros(256, np.uint8)
_SIZE[:21] = 0, 3, 0, 5, 5, 9, 9, 3, 3, 5, 5, 5, 5, 0, 0, 4, 3, 5, 5, 3, 3
_WIDE = 9  # bytes of a Long or Double, which take two places in the pool (JVMS 4.4.5)
_CODE_NAME = tuple(b"\x01\x00\x04Code")  # the Utf8 constant, tag and all
_CODE_REST = 12  # bytes of a Code attribute without code, handlers and attributes
OK, CUT, UNKNOWN_CONSTANT, OPEN_POOL, NAMELESS, TWO_CODES, BAD_LENGTH, MORE = range(8)
"""Faults of a file."""
NOTHING = -1  # in place of a name's place
Int = Any  # a Python int outside kernels, a machine integer of some width inside


@inner
def _u2(data, at):  # type: ignore[no-untyped-def]
    return np.int64(data[at]) << 8 | np.int64(data[at + 1])


@inner
def _u4(data, at):  # type: ignore[no-untyped-def]
    return _u2(data, at) << 16 | _u2(data, at + 2)


@kernel
def read_pool(data: NDArray[np.uint8], pool: NDArray[np.uint32]) -> tuple[Int, Int]:
    """Where each constant begins into `pool` (0 for places without), and where they end; the fault comes first."""
    count, size_of_file = len(pool), len(data)
    at, index = np.int64(10), np.int64(1)
    while index < count:
        if at >= size_of_file:
            return np.int64(CUT), at
        tag = data[at]
        size = np.int64(_SIZE[tag])
        if size == 0:
            return np.int64(UNKNOWN_CONSTANT), at
        pool[index] = at
        index += 1
        if tag == UTF8:
            if at + 3 > size_of_file:
                return np.int64(CUT), at
            size += _u2(data, at + 1)
        elif size == _WIDE:
            index += 1
        at += size
    return np.int64(OK if index == count else OPEN_POOL), at


@inner
def _is_code(data, pool, name):  # type: ignore[no-untyped-def]
    if name >= len(pool) or pool[name] + 7 > len(data):
        return False
    same = True
    for k in range(7):
        same &= data[pool[name] + k] == _CODE_NAME[k]
    return same


@inner
def _members(data, pool, at, methods, coded):  # type: ignore[no-untyped-def]
    """From the first field or method on, so many as there are rows in `methods`, which get those that are `coded`; the
    fault comes first."""
    end = len(data)
    for k in range(len(methods)):
        begin = at
        if at + 8 > end:
            return np.int64(CUT), at
        attributes = _u2(data, at + 6)
        for field in range(3):
            methods[k, field] = _u2(data, at + 2 * field)
        for field in range(1, 3):
            index = methods[k, field]
            if index >= len(pool) or data[pool[index]] != UTF8:
                return np.int64(NAMELESS), begin
        methods[k, 3:] = 0
        at += 8
        for _ in range(attributes):
            if at + 6 > end:
                return np.int64(CUT), at
            name, size = _u2(data, at), _u4(data, at + 2)
            if coded and _is_code(data, pool, name):
                if methods[k, 4]:
                    return np.int64(TWO_CODES), at
                if at + 14 > end:
                    return np.int64(CUT), at
                length = _u4(data, at + 10)
                if length == 0 or length >= 1 << 16 or _CODE_REST + length > size:
                    return np.int64(BAD_LENGTH), at + 6
                methods[k, 3], methods[k, 4], methods[k, 5] = at + 14, at + 14 + length, at + 6 + size
            at += 6 + size
    return np.int64(OK), at


@kernel
def read_members(data: NDArray[np.uint8], pool: NDArray[np.uint32], info: Int) -> tuple[Int, Int, NDArray[np.int64]]:
    """The part behind the constants, from the flags at `info` on: the fault, where it is, and the methods (n, 6), of
    each its flags, the constants of its name and descriptor, where its code begins and ends (0: it has none), and where
    its Code attribute does."""
    end = len(data)
    methods = np.empty((0, 6), np.int64)
    at = np.int64(info) + 8
    if at > end:
        return np.int64(CUT), at, methods
    at += 2 * _u2(data, at - 2)  # interfaces
    for coded in (False, True):
        if at + 2 > end:
            return np.int64(CUT), at, methods
        count = _u2(data, at)
        at += 2
        methods = np.empty((min(count, (end - at) // 8 + 1), 6), np.int64)  # more are cut
        fault, at = _members(data, pool, at, methods, coded)
        if fault != OK:
            return fault, at, methods
    if at + 2 > end:
        return np.int64(CUT), at, methods
    attributes = _u2(data, at)
    at += 2
    for _ in range(attributes):
        if at + 6 > end:
            return np.int64(CUT), at, methods
        at += 6 + _u4(data, at + 2)
    return np.int64(OK if at == end else CUT if at > end else MORE), at, methods


@inner
def _at(data, pool, index, tag):  # type: ignore[no-untyped-def]
    """Where constant `index` begins; 0 if it is of another kind."""
    at = np.int64(pool[index]) if index < len(pool) else np.int64(0)
    return at if data[at] == tag else np.int64(0)


@kernel
def named(
    data: NDArray[np.uint8], pool: NDArray[np.uint32], opcode: NDArray[np.int64], constant: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Of n invoke instructions, by opcode and the constant they name: (n, 3) where the Utf8 constants of the method's
    class, name and descriptor begin. NOTHING: of an invokedynamic's class; all three: the constant is of another kind
    than it must be (JVMS 6.5; invokespecial and invokestatic: since class files 52.0)."""
    places = np.empty((len(opcode), 3), np.int64)
    for k in range(len(opcode)):
        places[k, 0] = places[k, 1] = places[k, 2] = NOTHING
        code, index = opcode[k], constant[k]
        dynamic = code == opcodes.INVOKEDYNAMIC
        at = np.int64(0)
        if dynamic:
            at = _at(data, pool, index, INVOKE_DYNAMIC)
        elif code == opcodes.INVOKEVIRTUAL or code == opcodes.INVOKESPECIAL or code == opcodes.INVOKESTATIC:
            at = _at(data, pool, index, METHODREF)
        if at == 0 and (
            code == opcodes.INVOKEINTERFACE or code == opcodes.INVOKESPECIAL or code == opcodes.INVOKESTATIC
        ):
            at = _at(data, pool, index, INTERFACE_METHODREF)
        described = _at(data, pool, _u2(data, at + 3), NAME_AND_TYPE) if at else np.int64(0)
        if described == 0:
            continue
        name = _at(data, pool, _u2(data, described + 1), UTF8)
        descriptor = _at(data, pool, _u2(data, described + 3), UTF8)
        holder = np.int64(NOTHING)
        if not dynamic:
            class_ = _at(data, pool, _u2(data, at + 1), CLASS)
            holder = _at(data, pool, _u2(data, class_ + 1), UTF8) if class_ else np.int64(0)
        if name and descriptor and holder:
            places[k, 0], places[k, 1], places[k, 2] = holder, name, descriptor
    return places

"""Class files (JVMS chapter 4), as far as it takes to know the method that a bytecode calls, and whether that can be
overridden.

A constant's place is known only behind all those before it, so a file is walked once, when it is opened: where each
constant begins, and which methods have code and where. Names are decoded when they are asked for, the others never.

A file may be hostile or cut. Each counted item takes bytes that must be there, so opening takes time and space in
proportion to the file, and no constant that names another is followed before its kind is checked. That the file would
be accepted by a JVM is not checked: only that it can be walked from its first byte to its last.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode import class_outline, opcodes
from jvm.bytecode.class_outline import CLASS, CUT, NOTHING, OK, UTF8
from jvm.export.parse import text

_MAGIC = b"\xca\xfe\xba\xbe"
_LINES_NAME = b"\x01\x00\x0fLineNumberTable"

INVOKESTATIC, INVOKEDYNAMIC = opcodes.INVOKESTATIC, opcodes.INVOKEDYNAMIC
_INVOKES = (opcodes.INVOKEVIRTUAL, opcodes.INVOKESPECIAL, INVOKESTATIC, opcodes.INVOKEINTERFACE, INVOKEDYNAMIC)

_U2 = struct.Struct(">H")
_U4 = struct.Struct(">I")
_CLASS_INFO = struct.Struct(">HHH")  # flags, itself, superclass
PRIVATE, STATIC, FINAL, INTERFACE = 0x2, 0x8, 0x10, 0x200
_ATTRIBUTE = struct.Struct(">HI")  # name, bytes that follow
HANDLER_DTYPE = np.dtype([("start", ">u2"), ("end", ">u2"), ("handler", ">u2"), ("catch", ">u2")])
"""A row of an exception table (JVMS 4.7.3): it covers [start, end), control goes to `handler` (all bci), for exceptions
of the class that constant `catch` names (`ClassFile.class_name`), or all if that is 0. The first that fits is taken."""
LINE_DTYPE = np.dtype([("bci", ">u2"), ("line", ">u2")])
"""A row of a LineNumberTable (JVMS 4.7.12): from `bci` on, to the next row by bci, code is of this source line."""
_CODE = struct.Struct(">4xI")  # behind the maxima of stack and locals: bytes of code
_REMEMBERED, _SHORT = 1 << 15, 256
"""Names up to so many bytes that are remembered: those in a class file are mostly those in others."""


def utf8(name: str) -> bytes:
    """The constant as it stands in a class file; of names beyond ASCII perhaps in another form (JVMS 4.4.7)."""
    data = name.encode("utf-8", "surrogatepass")
    return bytes((UTF8,)) + _U2.pack(min(len(data), 0xFFFF)) + data


class ClassFileError(ValueError):
    """The bytes are no class file; `offset` says where in them."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"class file: {message} at byte {offset}")
        self.offset = offset


class Invoked(NamedTuple):
    """The callee that an invoke instruction names. The method that runs may be another one, of a sub- or superclass of
    `owner`."""

    opcode: int
    owner: str  # internal name (java/lang/String; [I for arrays); empty for invokedynamic
    name: str
    descriptor: str


class _Method(NamedTuple):
    flags: int
    name: int  # both: index of a Utf8
    descriptor: int
    start: int  # of its code: [start, end) in the file; empty if it has none
    end: int
    rest: int  # [end, rest): the part behind the code in its attribute


def _refused(data: bytes, fault: int, at: int) -> ClassFileError:
    match fault:
        case class_outline.UNKNOWN_CONSTANT:
            return ClassFileError(f"a constant of unknown kind {data[at]}", at)
        case class_outline.OPEN_POOL:
            (count,) = _U2.unpack_from(data, 8)
            return ClassFileError(f"a pool of {count} places does not end with a constant", at)
        case class_outline.NAMELESS:
            return ClassFileError("a member without a name or descriptor", at)
        case class_outline.TWO_CODES:
            return ClassFileError("a method with two Code attributes", at)
        case class_outline.BAD_LENGTH:
            (length,), (size,) = _CODE.unpack_from(data, at), _U4.unpack_from(data, at - _U4.size)
            return ClassFileError(f"{length} bytes of code in an attribute of {size}", at)
        case class_outline.MORE:
            return ClassFileError("there is more behind its end", at)
        case _:
            return ClassFileError("it is cut", len(data))


@dataclass(frozen=True, eq=False, repr=False)
class ClassFile:
    """One class file, opened. It keeps its bytes, a copy of them if they were in a memoryview."""

    _data: bytes
    _pool: array[int]  # where constant i begins; 0 for places without: no tag looks like the first byte of a file
    _methods: list[_Method]
    _interfaces: int  # where their indices begin, behind their number
    flags: int
    _this: int  # index of a class
    _super: int  # the same; 0: none

    @classmethod
    def of(cls, data: bytes | memoryview) -> ClassFile:
        """Raises ClassFileError if the bytes are not one whole class file."""
        data = bytes(data)
        if not data.startswith(_MAGIC):
            raise ClassFileError("it does not begin with CAFEBABE", 0)
        if len(data) < 10:
            raise _refused(data, CUT, len(data))
        bytes_ = np.frombuffer(data, np.uint8)
        pool = array("I", (0,)) * _U2.unpack_from(data, 8)[0]
        places = np.frombuffer(pool, np.uint32) if pool else np.zeros(0, np.uint32)
        fault, info = class_outline.read_pool(bytes_, places)
        if fault != OK:
            raise _refused(data, fault, info)
        fault, at, rows = class_outline.read_members(bytes_, places, info)
        if fault != OK:
            raise _refused(data, fault, at)
        flags, this, super_ = _CLASS_INFO.unpack_from(data, info)
        at_interfaces = info + _CLASS_INFO.size + 2
        methods = [_Method(*row) for row in rows.tolist()]
        return cls(data, pool, methods, at_interfaces, flags, this, super_)

    def code(self, name: str, descriptor: str) -> bytes | None:
        """The bytecode of a method; None if it is native or abstract, or there is no such method."""
        method = self._by_name.get((name, descriptor))
        return self._data[method.start : method.end] if method is not None and method.end else None

    def method_flags(self, name: str, descriptor: str) -> int | None:
        """None if it has no such method of its own."""
        method = self._by_name.get((name, descriptor))
        return None if method is None else method.flags

    def methods(self) -> list[tuple[str, str]]:
        """Name and descriptor of each, in the order of the file."""
        return list(self._by_name)

    @cached_property
    def method_table(self) -> NDArray[np.int64]:
        """Of `methods`, in their order, (n, 4): flags, and `code_place`; 0 without code."""
        rows = [(m.flags, m.start, m.end, m.rest) for m in self._by_name.values()]
        return np.array(rows, np.int64).reshape(-1, 4)

    def code_place(self, name: str, descriptor: str) -> tuple[int, int, int] | None:
        """Where in `data` the bytecode of a method begins and ends, and where its Code attribute does, whose exception
        table follows the bytecode; None: it has no code, or there is no such method."""
        method = self._by_name.get((name, descriptor))
        return (method.start, method.end, method.rest) if method is not None and method.end else None

    @cached_property
    def data(self) -> NDArray[np.uint8]:
        """The file."""
        return np.frombuffer(self._data, np.uint8)

    def handlers(self, name: str, descriptor: str) -> NDArray[np.void]:
        """HANDLER_DTYPE rows: the exception table of a method. Empty if it has no code, and always in a class file that
        the agent put together. Raises ClassFileError if the table runs out of its attribute."""
        method = self._by_name.get((name, descriptor))
        if method is None or not method.end:
            return np.empty(0, HANDLER_DTYPE)
        return self._rows(HANDLER_DTYPE, method.end, method.rest)

    def lines(self, name: str, descriptor: str) -> NDArray[np.void]:
        """LINE_DTYPE rows: where the code of a method comes from, in the order of the file (a method may have several
        tables). Empty if that was not compiled in. Raises ClassFileError if a table runs out of its attribute."""
        method = self._by_name.get((name, descriptor))
        found = [np.empty(0, LINE_DTYPE)]
        if method is not None and method.end:
            at = method.end + 2 + HANDLER_DTYPE.itemsize * len(self.handlers(name, descriptor))
            if at + 2 > method.rest:
                raise ClassFileError("a Code attribute without attributes", at)
            (attributes,) = _U2.unpack_from(self._data, at)
            at += 2
            for _ in range(attributes):
                if at + _ATTRIBUTE.size > method.rest:
                    raise ClassFileError("an attribute runs out of that around it", at)
                kind, size = _ATTRIBUTE.unpack_from(self._data, at)
                at += _ATTRIBUTE.size
                if kind < len(self._pool) and self._data.startswith(_LINES_NAME, self._pool[kind]):
                    found.append(self._rows(LINE_DTYPE, at, min(at + size, method.rest)))
                at += size
        return np.concatenate(found)

    def _rows(self, dtype: np.dtype[np.void], at: int, end: int) -> NDArray[np.void]:
        """A number and so many rows, which must lie in [at, end)."""
        (count,) = _U2.unpack_from(self._data, at) if at + 2 <= end else (0,)
        if at + 2 + dtype.itemsize * count > end:
            raise ClassFileError(f"a table of {count} rows runs out of its attribute", at)
        return np.frombuffer(self._data, dtype, count, at + 2)

    @property
    def name(self) -> str | None:
        return self.class_name(self._this)

    @property
    def super_name(self) -> str | None:
        return self.class_name(self._super)

    @property
    def interface_names(self) -> list[str]:
        """Of the interfaces that it names itself; those without a name are left out."""
        (count,) = _U2.unpack_from(self._data, self._interfaces - 2)
        indices = np.frombuffer(self._data, ">u2", count, self._interfaces).tolist()
        return [name for name in map(self.class_name, indices) if name is not None]

    def invoked(self, code: bytes, bci: int) -> Invoked | None:
        """The callee of the instruction that begins at `bci` of `code` (of a method of this class).

        None if it is no invoke, `bci` is out of range, or the constant it names is not of the kind that it must be.
        """
        if not 0 <= bci < len(code):
            return None
        opcode = code[bci]
        if opcode not in _INVOKES or bci + int(opcodes.LENGTH[opcode]) > len(code):
            return None
        return self.named(opcode, _U2.unpack_from(code, bci + 1)[0])

    def named(self, opcode: int, index: int) -> Invoked | None:
        """The method that an invoke instruction names by constant `index`; None: the constant is of another kind."""
        (found,) = self.all_named(np.array([opcode]), np.array([index]))
        return found

    def all_named(self, opcode: NDArray[np.int64], constant: NDArray[np.int64]) -> Iterator[Invoked | None]:
        """`named` of (n,) opcodes and constants: a name that several share is read once."""
        places = class_outline.named(self.data, np.frombuffer(self._pool, np.uint32), opcode, constant).tolist()
        decoded = cache(partial(_decoded, self._data))
        for code, (owner, name, descriptor) in zip(opcode.tolist(), places, strict=True):
            if name == NOTHING:
                yield None
            else:
                holder = "" if owner == NOTHING else decoded(owner)
                yield Invoked(code, holder, decoded(name), decoded(descriptor))

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], _Method]:
        pool, decoded = self._pool, cache(partial(_decoded, self._data))  # many methods may share a long name
        return {(decoded(pool[m.name]), decoded(pool[m.descriptor])): m for m in self._methods}

    def _constant(self, index: int, tag: int) -> int:
        """Where constant `index` begins; 0 if there is none with `tag`."""
        at = self._pool[index] if index < len(self._pool) else 0
        return at if self._data[at] == tag else 0

    def class_name(self, index: int) -> str | None:
        """The class that a constant names (internal name); None: it is no class."""
        at = self._constant(index, CLASS)
        return self._text(_U2.unpack_from(self._data, at + 1)[0]) if at else None

    def _text(self, index: int) -> str | None:
        at = self._constant(index, UTF8)
        return _decoded(self._data, at) if at else None


def _decoded(data: bytes, at: int) -> str:
    """The text of the Utf8 constant that begins there."""
    raw = data[at + 3 : at + 3 + (data[at + 1] << 8 | data[at + 2])]
    return _short(raw) if len(raw) <= _SHORT else text(memoryview(raw))


@lru_cache(_REMEMBERED)
def _short(raw: bytes) -> str:
    return text(memoryview(raw))

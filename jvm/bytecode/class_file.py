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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode import opcodes
from jvm.export.parse import text

_MAGIC = b"\xca\xfe\xba\xbe"
_UTF8, _CLASS, _METHODREF, _INTERFACE_METHODREF, _NAME_AND_TYPE, _INVOKE_DYNAMIC = 1, 7, 10, 11, 12, 18
_WIDE = 9  # bytes of a Long or Double, which take two places in the pool (JVMS 4.4.5)
# Bytes of a constant by its tag (JVMS table 4.4-A), a Utf8 without its text; 0: there is no such tag.
_SIZE = bytes((0, 3, 0, 5, 5, 9, 9, 3, 3, 5, 5, 5, 5, 0, 0, 4, 3, 5, 5, 3, 3)).ljust(256, b"\0")
_CODE_NAME = b"\x01\x00\x04Code"  # the Utf8 constant, tag and all
_LINES_NAME = b"\x01\x00\x0fLineNumberTable"

# The constants that an invoke instruction may name (JVMS 6.5; invokespecial and invokestatic: since class files 52.0).
INVOKESTATIC, INVOKEDYNAMIC = opcodes.INVOKESTATIC, opcodes.INVOKEDYNAMIC
_INVOKES = {
    opcodes.INVOKEVIRTUAL: (_METHODREF,),
    opcodes.INVOKESPECIAL: (_METHODREF, _INTERFACE_METHODREF),
    INVOKESTATIC: (_METHODREF, _INTERFACE_METHODREF),
    opcodes.INVOKEINTERFACE: (_INTERFACE_METHODREF,),
    INVOKEDYNAMIC: (_INVOKE_DYNAMIC,),
}

_U2 = struct.Struct(">H")
_PAIR = struct.Struct(">HH")  # the two indices in a reference, a NameAndType, an InvokeDynamic
_CLASS_INFO = struct.Struct(">HHH")  # flags, itself, superclass
_MEMBER = struct.Struct(">HHHH")  # flags, name, descriptor, attributes
PRIVATE, STATIC, FINAL, INTERFACE = 0x2, 0x8, 0x10, 0x200
_ATTRIBUTE = struct.Struct(">HI")  # name, bytes that follow
HANDLER_DTYPE = np.dtype([("start", ">u2"), ("end", ">u2"), ("handler", ">u2"), ("catch", ">u2")])
"""A row of an exception table (JVMS 4.7.3): it covers [start, end), control goes to `handler` (all bci), for exceptions
of the class that constant `catch` names (`ClassFile.class_name`), or all if that is 0. The first that fits is taken."""
LINE_DTYPE = np.dtype([("bci", ">u2"), ("line", ">u2")])
"""A row of a LineNumberTable (JVMS 4.7.12): from `bci` on, to the next row by bci, code is of this source line."""
_CODE = struct.Struct(">4xI")  # behind the maxima of stack and locals: bytes of code
_CODE_REST = 12  # bytes of a Code attribute without code, handlers and attributes


def utf8(name: str) -> bytes:
    """The constant as it stands in a class file; of names beyond ASCII perhaps in another form (JVMS 4.4.7)."""
    data = name.encode("utf-8", "surrogatepass")
    return bytes((_UTF8,)) + _U2.pack(min(len(data), 0xFFFF)) + data


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
        try:
            pool, at = _read_pool(data)
            flags, this, super_ = _CLASS_INFO.unpack_from(data, at)
            at_interfaces = at + _CLASS_INFO.size + 2
            (interfaces,) = _U2.unpack_from(data, at_interfaces - 2)
            _, at = _read_members(data, pool, at_interfaces + 2 * interfaces, coded=False)  # fields
            methods, at = _read_members(data, pool, at, coded=True)
            (attributes,) = _U2.unpack_from(data, at)
            at += 2
            for _ in range(attributes):
                at += _ATTRIBUTE.size + _ATTRIBUTE.unpack_from(data, at)[1]
        except (IndexError, struct.error):
            at = len(data) + 1
        if at > len(data):
            raise ClassFileError("it is cut", len(data))
        if at < len(data):
            raise ClassFileError("there is more behind its end", at)
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
        (found,) = self.all_named([(opcode, index)])
        return found

    def all_named(self, invokes: Iterable[tuple[int, int]]) -> Iterator[Invoked | None]:
        """`named` of many: a constant that several share is read once."""
        class_name, text = cache(self.class_name), cache(self._text)
        for opcode, index in invokes:
            found = None
            reference = self._pair(index, _INVOKES.get(opcode, ()))
            described = self._pair(reference[1], (_NAME_AND_TYPE,)) if reference is not None else None
            if reference is not None and described is not None:
                owner = "" if opcode == INVOKEDYNAMIC else class_name(reference[0])
                name, descriptor = text(described[0]), text(described[1])
                if owner is not None and name is not None and descriptor is not None:
                    found = Invoked(opcode, owner, name, descriptor)
            yield found

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], _Method]:
        text = cache(self._text)  # many methods may share a long name
        named = ((text(method.name), text(method.descriptor), method) for method in self._methods)
        return {
            (name, descriptor): method
            for name, descriptor, method in named
            if name is not None and descriptor is not None
        }

    def _constant(self, index: int, tags: tuple[int, ...]) -> int:
        """Where constant `index` begins; 0 if there is none with one of `tags`."""
        at = self._pool[index] if index < len(self._pool) else 0
        return at if self._data[at] in tags else 0

    def _pair(self, index: int, tags: tuple[int, ...]) -> tuple[int, int] | None:
        at = self._constant(index, tags)
        return _PAIR.unpack_from(self._data, at + 1) if at else None

    def class_name(self, index: int) -> str | None:
        """The class that a constant names (internal name); None: it is no class."""
        at = self._constant(index, (_CLASS,))
        return self._text(_U2.unpack_from(self._data, at + 1)[0]) if at else None

    def _text(self, index: int) -> str | None:
        at = self._constant(index, (_UTF8,))
        if not at:
            return None
        (size,) = _U2.unpack_from(self._data, at + 1)
        return text(memoryview(self._data)[at + 3 : at + 3 + size])


def _read_pool(data: bytes) -> tuple[array[int], int]:
    """Where the constants begin, and where they end. Raises IndexError where `data` is cut."""
    (count,) = _U2.unpack_from(data, 8)
    pool = array("I", (0,)) * count
    at, index = 10, 1
    while index < count:
        tag = data[at]
        size = _SIZE[tag]
        if not size:
            raise ClassFileError(f"a constant of unknown kind {tag}", at)
        pool[index] = at
        index += 1
        if tag == _UTF8:
            at += data[at + 1] << 8 | data[at + 2]
        elif size == _WIDE:
            index += 1
        at += size
    if index != count:
        raise ClassFileError(f"a pool of {count} places does not end with a constant", at)
    return pool, at


def _read_members(data: bytes, pool: array[int], at: int, coded: bool) -> tuple[list[_Method], int]:
    """From the number of fields or methods on: the methods (`coded`; no fields), and where they end."""
    (count,) = _U2.unpack_from(data, at)
    at += 2
    found = []
    for _ in range(count):
        begin = at
        flags, name, descriptor, attributes = _MEMBER.unpack_from(data, at)
        at += _MEMBER.size
        for index in (name, descriptor):
            if index >= len(pool) or data[pool[index]] != _UTF8:
                raise ClassFileError("a member without a name or descriptor", begin)
        code = 0, 0, 0
        for _ in range(attributes):
            kind, size = _ATTRIBUTE.unpack_from(data, at)
            if coded and kind < len(pool) and data.startswith(_CODE_NAME, pool[kind]):
                if code[1]:
                    raise ClassFileError("a method with two Code attributes", at)
                code = _code_range(data, at + _ATTRIBUTE.size, size)
            at += _ATTRIBUTE.size + size
        if coded:
            found.append(_Method(flags, name, descriptor, *code))
    return found, at


def _code_range(data: bytes, at: int, size: int) -> tuple[int, int, int]:
    """[start, end) of the bytecode in a Code attribute of `size` bytes (JVMS 4.7.3), and where the attribute ends."""
    (length,) = _CODE.unpack_from(data, at)
    if not 0 < length < 1 << 16 or _CODE_REST + length > size:
        raise ClassFileError(f"{length} bytes of code in an attribute of {size}", at)
    return at + _CODE.size, at + _CODE.size + length, at + size

"""A plain reading of class files (JVMS chapter 4), for comparison with the kernels of `jvm.bytecode.class_outline`."""

from __future__ import annotations

import struct
from array import array

from jvm.bytecode.class_file import ClassFileError, Invoked
from jvm.export.parse import text

SIZE = bytes((0, 3, 0, 5, 5, 9, 9, 3, 3, 5, 5, 5, 5, 0, 0, 4, 3, 5, 5, 3, 3)).ljust(256, b"\0")
CODE_NAME = b"\x01\x00\x04Code"
U2 = struct.Struct(">H")
CLASS_INFO = struct.Struct(">HHH")
MEMBER = struct.Struct(">HHHH")
ATTRIBUTE = struct.Struct(">HI")
CODE = struct.Struct(">4xI")
Member = tuple[int, int, int, int, int, int]  # flags, name, descriptor, start and end of its code, end of its attribute


def outline(data: bytes) -> list[Member]:
    """The methods. Raises ClassFileError."""
    if not data.startswith(b"\xca\xfe\xba\xbe"):
        raise ClassFileError("it does not begin with CAFEBABE", 0)
    try:
        pool, at = read_pool(data)
        CLASS_INFO.unpack_from(data, at)
        at_interfaces = at + CLASS_INFO.size + 2
        (interfaces,) = U2.unpack_from(data, at_interfaces - 2)
        _, at = read_members(data, pool, at_interfaces + 2 * interfaces, coded=False)  # fields
        methods, at = read_members(data, pool, at, coded=True)
        (attributes,) = U2.unpack_from(data, at)
        at += 2
        for _ in range(attributes):
            at += ATTRIBUTE.size + ATTRIBUTE.unpack_from(data, at)[1]
    except (IndexError, struct.error):
        at = len(data) + 1
    if at > len(data):
        raise ClassFileError("it is cut", len(data))
    if at < len(data):
        raise ClassFileError("there is more behind its end", at)
    return methods


def read_pool(data: bytes) -> tuple[array[int], int]:
    """Where the constants begin, and where they end. Raises IndexError where `data` is cut."""
    (count,) = U2.unpack_from(data, 8)
    pool = array("I", (0,)) * count
    at, index = 10, 1
    while index < count:
        tag = data[at]
        size = SIZE[tag]
        if not size:
            raise ClassFileError(f"a constant of unknown kind {tag}", at)
        pool[index] = at
        index += 1
        if tag == 1:
            at += data[at + 1] << 8 | data[at + 2]
        elif size == 9:
            index += 1
        at += size
    if index != count:
        raise ClassFileError(f"a pool of {count} places does not end with a constant", at)
    return pool, at


def read_members(data: bytes, pool: array[int], at: int, coded: bool) -> tuple[list[Member], int]:
    """From the number of fields or methods on: the methods (`coded`; no fields), and where they end."""
    (count,) = U2.unpack_from(data, at)
    at += 2
    found = []
    for _ in range(count):
        begin = at
        flags, name, descriptor, attributes = MEMBER.unpack_from(data, at)
        at += MEMBER.size
        for index in (name, descriptor):
            if index >= len(pool) or data[pool[index]] != 1:
                raise ClassFileError("a member without a name or descriptor", begin)
        code = 0, 0, 0
        for _ in range(attributes):
            kind, size = ATTRIBUTE.unpack_from(data, at)
            if coded and kind < len(pool) and data.startswith(CODE_NAME, pool[kind]):
                if code[1]:
                    raise ClassFileError("a method with two Code attributes", at)
                code = code_range(data, at + ATTRIBUTE.size, size)
            at += ATTRIBUTE.size + size
        if coded:
            found.append((flags, name, descriptor, *code))
    return found, at


def code_range(data: bytes, at: int, size: int) -> tuple[int, int, int]:
    (length,) = CODE.unpack_from(data, at)
    if not 0 < length < 1 << 16 or 12 + length > size:
        raise ClassFileError(f"{length} bytes of code in an attribute of {size}", at)
    return at + CODE.size, at + CODE.size + length, at + size


INVOKES = {0xB6: (10,), 0xB7: (10, 11), 0xB8: (10, 11), 0xB9: (11,), 0xBA: (18,)}


def named(data: bytes, opcode: int, index: int) -> Invoked | None:
    """The method that an invoke instruction names by constant `index`; None: the constant is of another kind."""
    pool, _ = read_pool(data)

    def constant(index: int, *tags: int) -> int:
        at = pool[index] if index < len(pool) else 0
        return at if data[at] in tags else 0

    def pair(at: int) -> tuple[int, int]:
        return U2.unpack_from(data, at + 1)[0], U2.unpack_from(data, at + 3)[0]

    def utf8(index: int) -> str | None:
        at = constant(index, 1)
        return text(memoryview(data)[at + 3 : at + 3 + U2.unpack_from(data, at + 1)[0]]) if at else None

    at = constant(index, *INVOKES.get(opcode, ()))
    described = constant(pair(at)[1], 12) if at else 0
    if not described:
        return None
    class_ = constant(pair(at)[0], 7)
    owner = "" if opcode == 0xBA else utf8(U2.unpack_from(data, class_ + 1)[0]) if class_ else None
    name, descriptor = map(utf8, pair(described))
    if owner is None or name is None or descriptor is None:
        return None
    return Invoked(opcode, owner, name, descriptor)

"""The code cache as an ELF file, for tools that take machine code from files (perf, libipt's ptxed, objdump).

One segment and one section hold the whole range at its address. The file is sparse: only what was written takes
room. ELF knows no time, so what stands there is the code as last seen.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

CODE_OFFSET = 4096  # where the range begins in the file; a page, so that it could be mapped
MAX_RANGE = 1 << 32

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NAMES = b"\0.text\0.symtab\0.strtab\0code_cache\0"
_TABLES = 512  # symbols, names and section headers stand between the segment header and the code


class CodeElf:
    """An ELF64 file for x86-64 whose text is the addresses [low, high)."""

    def __init__(self, path: Path, low: int, high: int) -> None:
        """Creates the file. Raises OSError, or ValueError for a range that is none or larger than `MAX_RANGE`."""
        if not 0 <= low < high < 1 << 64 or high - low > MAX_RANGE:
            raise ValueError(f"no code range: {low:#x} to {high:#x}")
        self.path, self.low, self.high = path, low, high
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, CODE_OFFSET + high - low)
        os.pwrite(self._fd, self._head(), 0)

    def _head(self) -> bytes:
        size = self.high - self.low
        symtab = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + _SYMBOL.pack(_NAMES.index(b"code_cache"), 0x12, 0, 1, self.low, size)
        strtab_at, sections_at = _TABLES + len(symtab), _TABLES + len(symtab) + len(_NAMES) + -len(_NAMES) % 8
        name = [_NAMES.index(text) for text in (b".text", b".symtab", b".strtab")]
        sections = bytes(_SECTION.size) + b"".join((
            _SECTION.pack(name[0], 1, 6, self.low, CODE_OFFSET, size, 0, 0, 16, 0),  # PROGBITS, ALLOC | EXECINSTR
            _SECTION.pack(name[1], 2, 0, 0, _TABLES, len(symtab), 3, 1, 8, _SYMBOL.size),
            _SECTION.pack(name[2], 3, 0, 0, strtab_at, len(_NAMES), 0, 0, 1, 0),
        ))  # fmt: skip
        ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        header = _HEADER.pack(ident, 3, 62, 1, 0, _HEADER.size, sections_at, 0, _HEADER.size, 56, 1, 64, 4, 3)  # ET_DYN
        segment = _SEGMENT.pack(1, 5, CODE_OFFSET, self.low, self.low, size, size, 4096)  # PT_LOAD, R X
        return (header + segment).ljust(_TABLES, b"\0") + symtab + _NAMES + bytes(-len(_NAMES) % 8) + sections

    def put(self, address: int, code: bytes | memoryview) -> None:
        """`code` stands at `address` now; what lies outside the range is left out."""
        start, end = max(address, self.low), min(address + len(code), self.high)
        if start < end:
            os.pwrite(self._fd, code[start - address : end - address], CODE_OFFSET + start - self.low)

    def close(self) -> None:
        os.close(self._fd)

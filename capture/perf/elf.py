"""The code cache as an ELF file, for tools that take machine code from files (perf, libipt's ptxed, objdump).

One segment and one section hold the whole range at its address; a symbol table behind it names the code there
(`capture.perf.symbols`). The file is sparse: only written pages take room. ELF knows no time, so it holds the code as
last seen.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from capture.perf.symbols import Symbol
from jvm.private import new_file

CODE_OFFSET = 4096  # where the range begins in the file; a page, so that it could be mapped
MAX_RANGE = 1 << 32

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION = 0x12  # STB_GLOBAL, STT_FUNC
_PROGBITS, _CODE = 1, 6  # SHF_ALLOC | SHF_EXECINSTR


class CodeElf:
    """An ELF64 file for x86-64 whose text is the addresses [low, high)."""

    def __init__(self, path: Path, low: int, high: int) -> None:
        """Creates the file. Raises OSError, or ValueError for a range that is none or larger than `MAX_RANGE`."""
        if not 0 <= low < high < 1 << 64 or high - low > MAX_RANGE:
            raise ValueError(f"no code range: {low:#x} to {high:#x}")
        self.path, self.low, self.high = path, low, high
        self._fd = new_file(path)
        os.ftruncate(self._fd, CODE_OFFSET + high - low)
        self._describe([Symbol(low, high, "code_cache")])

    def _describe(self, symbols: Iterable[Symbol]) -> None:
        """Writes the header, and behind the code the tables that name it."""
        size = self.high - self.low
        names = bytearray(b"\0.text\0.symtab\0.strtab\0")
        section_names = [names.index(text) for text in (b".text", b".symtab", b".strtab")]
        symtab = bytearray(_SYMBOL.size)
        for start, end, name in symbols:
            symtab += _SYMBOL.pack(len(names), _FUNCTION, 0, 1, start, end - start)
            names += name.encode(errors="replace").replace(b"\0", b"?") + b"\0"
        names += bytes(-len(names) % 8)
        symtab_at = CODE_OFFSET + size + -size % 8
        strtab_at = symtab_at + len(symtab)
        sections = bytes(_SECTION.size) + b"".join((
            _SECTION.pack(section_names[0], _PROGBITS, _CODE, self.low, CODE_OFFSET, size, 0, 0, 16, 0),
            _SECTION.pack(section_names[1], 2, 0, 0, symtab_at, len(symtab), 3, 1, 8, _SYMBOL.size),
            _SECTION.pack(section_names[2], 3, 0, 0, strtab_at, len(names), 0, 0, 1, 0),
        ))  # fmt: skip
        ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        sections_at = strtab_at + len(names)
        header = _HEADER.pack(ident, 3, 62, 1, 0, _HEADER.size, sections_at, 0, _HEADER.size, 56, 1, 64, 4, 3)  # ET_DYN
        segment = _SEGMENT.pack(1, 5, CODE_OFFSET, self.low, self.low, size, size, 4096)  # PT_LOAD, R X
        os.pwrite(self._fd, bytes(symtab) + names + sections, symtab_at)
        os.pwrite(self._fd, header + segment, 0)

    def put(self, address: int, code: bytes | memoryview) -> None:
        """`code` stands at `address` now; parts outside the range are left out."""
        start, end = max(address, self.low), min(address + len(code), self.high)
        if start < end:
            os.pwrite(self._fd, code[start - address : end - address], CODE_OFFSET + start - self.low)

    def close(self, symbols: Iterable[Symbol] = ()) -> None:
        """`symbols`: ascending and disjoint; parts outside the range are left out."""
        known = [symbol for symbol in symbols if self.low <= symbol.start and symbol.end <= self.high]
        try:
            if known:
                self._describe(known)
        finally:
            os.close(self._fd)

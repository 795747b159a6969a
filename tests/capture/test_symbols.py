"""Names of code for perf: the code at each place, by the records of the JIT export."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import given
from hypothesis import strategies as st

from capture.perf.elf import CodeElf
from capture.perf.symbols import Symbol, Symbols
from jvm.export.records import ClassUnload, Codelet, DynamicCode, Method
from jvm.export.unowned import MOST

STUB = st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from("abcdef"))


def stub(start: int, size: int, name: str) -> DynamicCode:
    return DynamicCode(0, 0, 0, start, size, name, memoryview(b""))


def named(symbols: list[Symbol]) -> dict[int, str]:
    return {address: s.name for s in symbols for address in range(s.start, s.end)}


@pytest.mark.parametrize("limit", [3, 4096])
@given(told=st.lists(STUB, max_size=30))
def test_the_newest_name_wins(limit: int, told: list[tuple[int, int, str]]) -> None:
    """Against one name an address, written over and over; with and without dropping covered symbols on the way."""
    symbols, painted = Symbols(), {}
    symbols._limit = limit
    for start, size, name in told:
        symbols.add(stub(start, size, name))
        painted.update(dict.fromkeys(range(start, start + size), f"[stub] {name}"))
    standing = symbols.standing()
    assert named(standing) == painted
    assert all(a.end <= b.start for a, b in itertools.pairwise(standing))


def test_nothing_grows_where_code_comes_and_goes() -> None:
    symbols = Symbols()
    for n in range(50_000):
        symbols.add(Method(0, 0, 0, n, n, 0, 0, f"Lgen/C{n};", "m", "()V"))
        symbols.add(ClassUnload(0, 0, 0, n))
        symbols.add(Method(0, 0, 0, 100_000 + n, 0, 0, 0, f"Lgen/C{n};", "met in a stack", "()V"))
        symbols.add(stub(1024 * (n % 100), 1024, f"s{n}"))
    assert len(symbols._told) <= 4096
    assert len(symbols._methods) == MOST
    assert not symbols._of_class


def test_the_file_names_its_code(tmp_path: Path) -> None:
    elf = CodeElf(tmp_path / "x.elf", 0x10000, 0x20003)
    symbols = Symbols()
    symbols.add(Codelet(0, 0, 0, 0x10000, 0x10010, 182, "invokevirtual"))
    symbols.add(stub(0x10020, 16, "I2C/C2I adapters(0xba)@0x1"))
    symbols.add(stub(0x20000, 16, "outside"))
    elf.close(symbols.standing())
    with (tmp_path / "x.elf").open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        found = {s.name: (s["st_value"], s["st_size"]) for s in table.iter_symbols() if s.name}
    assert found == {"[interpreter] invokevirtual": (0x10000, 16), "[stub] I2C/C2I adapters": (0x10020, 16)}

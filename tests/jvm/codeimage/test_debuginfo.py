from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jvm.code.codelets import Codelets, label
from jvm.code.debug_info import DebugInfo, Frame
from jvm.export.parse import iter_records
from jvm.export.records import Codelet, NmethodLoad
from tests.jvm.exportwriter import Writer

Stacks = list[tuple[int, list[tuple[int, int]]]]


def debug_info(pcs: Stacks, size: int = 100) -> DebugInfo:
    (record,) = iter_records(Writer().nmethod_load(0x1000, bytes(size), 9, pcs).bytes())
    assert isinstance(record, NmethodLoad)
    return DebugInfo.of(record)


def naive(pcs: Stacks, offset: int) -> list[tuple[int, int]]:
    for pc, stack in sorted(pcs, key=lambda p: p[0]):
        if pc > offset:
            return stack or [(9, -1)]
    return [(9, -1)]


stacks = st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 50)), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 60), stacks), max_size=12, unique_by=lambda p: p[0]))
def test_the_first_pc_behind_an_address_describes_it(pcs: Stacks) -> None:
    info = debug_info(pcs)  # in any order
    offsets = np.arange(70, dtype=np.uint64)
    methods, bcis = info.innermost(offsets)
    for offset in range(70):
        expected = naive(pcs, offset)
        assert info.frames(offset) == tuple(Frame(*f) for f in expected)
        assert (int(methods[offset]), int(bcis[offset])) == expected[0]


def test_without_pcs_only_the_method_itself_is_known() -> None:
    info = debug_info([])
    assert info.frames(5) == (Frame(9, -1),)
    assert info.detail == 0


def test_method_entry_has_no_bci() -> None:
    info = debug_info([(10, [(9, -1)]), (20, [(9, 3)])])
    assert info.frames(0) == (Frame(9, -1),)
    assert info.frames(10) == (Frame(9, 3),)


def test_detail_is_the_share_of_code_that_is_described_finely() -> None:
    assert debug_info([(10, [(9, 0)]), (60, [(9, 4)]), (100, [(9, 7)])]).detail == 1
    assert debug_info([(50, [(9, 0)]), (200, [(9, 4)])], 300).detail == pytest.approx(0.25)
    assert debug_info([(200, [(9, 4)])], 300).detail == 0


def codelet(start: int, end: int, bytecode: int = -1, text: str = "x") -> Codelet:
    return Codelet(1, 1, 0, start, end, bytecode, text)


def test_codelets_by_range() -> None:
    table = Codelets()
    assert table.add(codelet(10, 20, 21, "iload"))
    assert table.add(codelet(20, 30, -1, "safepoint exit"))
    assert not table.add(codelet(10, 20, 21, "iload"))
    assert not table.add(codelet(5, 5))
    assert [table.bytecode(ip) for ip in (9, 10, 19, 20, 30)] == [-1, 21, 21, -1, -1]
    assert table.at(25) == codelet(20, 30, -1, "safepoint exit")
    assert table.add(codelet(15, 25, 7, "new"))
    assert len(table) == 1


@pytest.mark.parametrize(
    ("text", "name"),
    [("iload_0 ", "[interpreter] iload_0"), ("slow  signature\thandler", "[interpreter] slow signature handler")],
)
def test_codelet_labels(text: str, name: str) -> None:
    assert label(codelet(0, 1, 26, text)) == name
    assert label(codelet(0, 1, 26, "")) == "[interpreter] bytecode 26"

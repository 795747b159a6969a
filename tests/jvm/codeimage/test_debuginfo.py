from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.codelets import Codelets, label
from jvm.debuginfo import DebugInfo, Frame
from jvm.export import Codelet, NmethodLoad, iter_records
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
    assert [len(column) for column in info.inlined()] == [0, 0]


def test_method_entry_has_no_bci() -> None:
    info = debug_info([(10, [(9, -1)]), (20, [(9, 3)])])
    assert info.frames(0) == (Frame(9, -1),)
    assert info.frames(10) == (Frame(9, 3),)


def test_detail_is_the_share_of_code_that_is_described_finely() -> None:
    assert debug_info([(10, [(9, 0)]), (60, [(9, 4)]), (100, [(9, 7)])]).detail == 1
    assert debug_info([(50, [(9, 0)]), (200, [(9, 4)])], 300).detail == pytest.approx(0.25)
    assert debug_info([(200, [(9, 4)])], 300).detail == 0


def entered(pcs: Stacks) -> list[tuple[int, int]]:
    """Naively: (offset, method) of each entry of an inlined method."""
    places = [[(*stack[:d:-1], stack[d][0]) for d in range(len(stack) - 1)] for _, stack in pcs]
    bcis: dict[object, set[int]] = {}
    for names, (_, stack) in zip(places, pcs, strict=True):
        for name, (_, bci) in zip(names, stack, strict=False):
            bcis.setdefault(name, set()).add(bci)
    out, before, begin = [], set[object](), 0
    waiting: set[object] = set()  # begun, and not gone on
    for names, (pc, stack) in zip(places, pcs, strict=True):
        if pc == begin:
            continue
        for name, (method, bci) in reversed(list(zip(names, stack, strict=False))):
            if bci > min(bcis[name]):
                waiting.discard(name)
            elif name not in before and name not in waiting:
                out.append((begin, method))
                if len(bcis[name]) > 1:
                    waiting.add(name)
        before, begin = set(names), pc
    return out


@settings(deadline=None)  # kernels are compiled at the first
@given(st.lists(st.tuples(st.integers(0, 200), stacks), max_size=20, unique_by=lambda p: p[0]))
def test_where_inlined_methods_are_entered(pcs: Stacks) -> None:
    offsets, methods = debug_info(pcs, 300).inlined()
    found = list(zip(offsets.tolist(), methods.tolist(), strict=True))
    assert found == entered(sorted(pcs, key=lambda p: p[0]))


def test_an_inlined_method_is_entered_once() -> None:
    inner = [(7, 0), (9, 5)]
    # the caller, the method, an instruction of the caller moved into it, and on; a call from it that returns
    pcs = [(10, [(9, 3)]), (14, inner), (18, [(9, 5)]), (25, [(7, 6), (9, 5)]), (40, [(9, 8)])]
    offsets, methods = debug_info(pcs).inlined()
    assert (offsets.tolist(), methods.tolist()) == ([10], [7])


def test_each_copy_of_an_unrolled_loop_enters() -> None:
    copy = [[(7, -1), (9, 5)], [(7, 4), (9, 5)]]
    pcs = [(10, [(9, 3)]), (14, copy[0]), (18, copy[1]), (22, [(9, 9)]), (26, copy[0]), (30, copy[1])]
    offsets, methods = debug_info(pcs).inlined()
    assert (offsets.tolist(), methods.tolist()) == ([10, 22], [7, 7])


def test_a_method_that_only_calls_is_entered_with_what_it_calls() -> None:
    pcs = [(10, [(9, 3)]), (14, [(8, 0), (7, 1), (9, 5)]), (20, [(9, 8)])]
    offsets, methods = debug_info(pcs).inlined()
    assert (offsets.tolist(), methods.tolist()) == ([10, 10], [7, 8])


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

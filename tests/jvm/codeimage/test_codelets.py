"""The instruction of a template that runs once each time its bytecode does."""

from __future__ import annotations

import numpy as np

from jvm.code.codelets import TABLES, Codelets
from jvm.export.records import Codelet, DispatchTable

ILOAD, IADD, NONE = 0x15, 0x60, -1


def codelets() -> Codelets:
    known = Codelets()
    known.add(Codelet(1, 0, 0, 0x1000, 0x1080, ILOAD, "iload"))
    known.add(Codelet(1, 0, 0, 0x1080, 0x1100, IADD, "iadd"))
    known.add(Codelet(1, 0, 0, 0x1100, 0x1180, NONE, "exception handling"))
    return known


def table(address: int, *entries: int) -> DispatchTable:
    return DispatchTable(1, 0, 0, address, np.array([entries], np.uint64))


def executed(known: Codelets) -> dict[int, int]:
    return {codelet.bytecode: ip for ip, codelet in known.executed}


def test_it_is_the_last_entry_point_whatever_was_on_top_of_the_stack() -> None:
    known = codelets()
    assert known.add_table(table(0x9000, 0x1000, 0x1009, 0x1004, 0x1083, 0x1080))
    assert executed(known) == {ILOAD: 0x1009, IADD: 0x1083}


def test_entries_elsewhere_are_nobodys() -> None:
    known = codelets()
    known.add_table(table(0x9000, 0, 0xFFF, 0x1000, 0x1110, 0x1180, (1 << 64) - 1))
    assert executed(known) == {ILOAD: 0x1000}


def test_what_is_told_again_changes_nothing_and_a_table_that_is_swapped_in_adds_its_own() -> None:
    known = codelets()
    known.add_table(table(0x9000, 0x1004))
    assert not known.add_table(table(0x9000, 0x1004))
    assert known.add_table(table(0xA000, 0x1110))  # at a safepoint all lead to one place
    assert executed(known) == {ILOAD: 0x1004}
    for address in range(TABLES):
        known.add_table(table(address, 0x1008))
    assert not known.add_table(table(TABLES, 0x1009))
    assert executed(known) == {ILOAD: 0x1008}


def test_another_codelet_in_its_place_is_asked_anew() -> None:
    known = codelets()
    known.add_table(table(0x9000, 0x1004, 0x1084))
    assert executed(known) == {ILOAD: 0x1004, IADD: 0x1084}
    known.add(Codelet(1, 0, 0, 0x1000, 0x1100, IADD, "iadd"))
    assert executed(known) == {IADD: 0x1084}

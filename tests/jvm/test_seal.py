"""Sealed records: damage is found where it is, and nothing else is lost by it."""

from __future__ import annotations

import itertools
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.export.parse import iter_records
from jvm.export.records import ExportError, Overflow
from jvm.export.seal import Span, lost, sealed, spans
from tests.jvm.exportwriter import Writer

# A name that looks like the header of a record of 40 bytes: only the checksum tells that it is none.
DECOY = struct.pack("<IHHQII", 40, 13, 0, 5, 1, 0).decode()


def records(count: int) -> list[bytes]:
    names = ["main", "x" * 90, DECOY, ""]
    return [bytes(sealed(Writer(tsc=i).thread_start(i, names[i % 4]).bytes())) for i in range(count)]


def test_a_checksum_is_of_all_bytes_but_its_own() -> None:
    plain = Writer().thread_start(1, "main").bytes()
    whole = bytes(sealed(plain))
    assert whole == plain[:20] + struct.pack("<I", zlib.crc32(plain[:20] + plain[24:])) + plain[24:]
    assert sealed(whole) == whole
    assert spans(whole) == [Span(0, len(whole))]
    assert list(iter_records(whole)) == list(iter_records(plain))


def test_what_only_fills_the_ring_is_left_out() -> None:
    data = Writer().thread_start(1, "a").pad(8).pad(4096).vm_death().pad(24).bytes()
    assert sealed(data) == sealed(Writer().thread_start(1, "a").at(1010).vm_death().bytes())


def test_a_cut_record_cannot_be_sealed() -> None:
    with pytest.raises(ExportError, match="cut at byte 24"):
        sealed(Writer().vm_death().thread_start(1, "a").bytes()[:-8])


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_every_record_that_is_not_damaged_is_found(draw: st.DataObject) -> None:
    parts = records(draw.draw(st.integers(1, 30)))
    good = b"".join(parts)
    start = draw.draw(st.integers(0, len(good) - 1))
    end = draw.draw(st.integers(start + 1, min(len(good), start + 300)))
    bad = bytearray(good)
    bad[start:end] = draw.draw(st.binary(min_size=end - start, max_size=end - start))
    found = spans(bad)
    assert all(a.end == b.start for a, b in itertools.pairwise(found))
    assert (found[0].start, found[-1].end) == (0, len(good))
    kept, at = b"", 0
    for part in parts:  # a record that was overwritten with its own bytes is whole
        kept += part if bad[at : at + len(part)] == part else b""
        at += len(part)
    assert b"".join(bytes(bad[s.start : s.end]) for s in found if not s.fault) == kept


@pytest.mark.parametrize(
    ("at", "value", "fault"),
    [
        (0, 0, "cannot have the size 0"),
        (0, 24, "checksum"),
        (0, 1 << 20, "cut"),
        (0, 41, "size 41"),
        (8, 0, "checksum"),
    ],
)
def test_damage_is_told_with_its_place(at: int, value: int, fault: str) -> None:
    parts = records(5)
    bad = bytearray(b"".join(parts))
    start = len(parts[0]) + len(parts[1])
    struct.pack_into("<I", bad, start + at, value)
    before, damage, after = spans(bad)
    assert (before.end, damage.end - damage.start, after.end) == (start, len(parts[2]), len(bad))
    assert fault in damage.fault
    assert damage.told(64) == f"{damage.fault}: {len(parts[2])} bytes are damaged from byte {64 + start} on"


def test_a_cut_last_record_is_told_from_damage() -> None:
    parts = records(3)
    assert [s.cut for s in spans(b"".join(parts)[:-8])] == [False, True]
    assert [s.cut for s in spans(b"".join(parts)[:-8] + b"\0" * 8)] == [False, False]


def test_records_without_checksums_are_known_by_their_sizes_alone() -> None:
    data = bytearray(Writer().thread_start(1, "a").thread_start(2, "b").pad(8).vm_death().bytes())
    assert spans(data, checked=False) == [Span(0, len(data))]
    struct.pack_into("<I", data, 40, 0)
    assert [(s.start, s.end, bool(s.fault)) for s in spans(data, checked=False)] == [
        (0, 40, False), (40, len(data), True)
    ]  # fmt: skip


def test_bytes_that_pretend_to_be_headers_do_not_take_long() -> None:
    """Each 8 bytes a header of a record that reaches to the end: to sum them all would be quadratic."""
    size = 1 << 20
    data = b"".join(struct.pack("<IHH", (size - at) & ~7, 13, 0) for at in range(0, size, 8))
    calls = 0

    def count(*_: object) -> int:
        nonlocal calls
        calls += 1
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jvm.export.seal._checksum", count)
        assert [s.end for s in spans(data)] == [size]
    assert calls < 20


def test_no_more_damage_is_told_than_can_be_kept() -> None:
    (part,) = records(1)
    found = spans((part + b"\0" * 8) * 5000)
    assert len(found) < 1100
    assert found[-1].end == 5000 * (len(part) + 8)


def test_the_record_in_place_of_damage_says_that_something_was_lost() -> None:
    (record,) = iter_records(lost(3, 400))
    assert isinstance(record, Overflow)
    assert (record.records, record.bytes) == (3, 400)
    assert spans(lost(3, 400)) == [Span(0, 40)]

"""The ring reader against a byte-by-byte reference, and against producers that lie."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capture.live import ring
from capture.live.ring import PerfRing, RingError
from tests.capture.perfwriter import MULT, SHIFT, ZERO, Producer, switch

PAGE = ring.PAGE
shared_path = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@shared_path
@given(steps=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 6000)), max_size=20), start=st.integers(0, 2**40))
def test_aux_bytes_come_out_as_they_went_in(tmp_path: Path, steps: list[tuple[int, int]], start: int) -> None:
    path = tmp_path / "x.ring"
    path.unlink(missing_ok=True)
    producer = Producer(path)
    producer.set(ring.AUX_HEAD, start)
    producer.set(ring.AUX_TAIL, start)
    reader = PerfRing.open(path)
    written, read, number = bytearray(), bytearray(), 0
    for size, most in steps:
        piece = bytes((number + i) & 0xFF for i in range(size))
        number += size
        written += piece[: size - producer.trace(piece)]
        offset, data = reader.take_aux(reader.aux_head(), most)
        assert offset == start + len(read)
        read += data.tobytes()
        assert reader.aux_tail == start + len(read)
    read += reader.take_aux(reader.aux_head(), 1 << 30)[1].tobytes()
    assert read == written
    reader.close()
    producer.close()


@shared_path
@given(sizes=st.lists(st.integers(1, 60), max_size=60), start=st.integers(0, 1 << 30).map(lambda n: 8 * n))
def test_records_are_unwrapped(tmp_path: Path, sizes: list[int], start: int) -> None:
    path = tmp_path / "x.ring"
    path.unlink(missing_ok=True)
    producer = Producer(path)
    producer.set(ring.DATA_HEAD, start)
    producer.set(ring.DATA_TAIL, start)
    reader = PerfRing.open(path)
    wrote, got = b"", b""
    for i, size in enumerate(sizes):
        each = struct.pack("<IHH", 9, 0, 8 * size) + bytes([i]) * (8 * size - 8)
        producer.records(each)
        wrote += each
        if i % 3 == 2:
            got += reader.take_records().tobytes()
    got += reader.take_records().tobytes()
    assert got == wrote
    assert producer.get(ring.DATA_TAIL) == producer.get(ring.DATA_HEAD)
    reader.close()
    producer.close()


def test_a_ring_is_full_at_its_size_and_not_before(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "x.ring")
    reader = PerfRing.open(producer.path)
    assert producer.trace(bytes(PAGE)) == 0
    assert producer.trace(b"x") == 1
    assert len(reader.take_aux(reader.aux_head(), PAGE)[1]) == PAGE
    assert producer.trace(b"x") == 0


def test_time_conversion(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "x.ring")
    reader = PerfRing.open(producer.path)
    assert reader.time_conversion == (MULT, SHIFT, ZERO)
    producer.set(ring.TIME_ZERO, 2**64 - 5)  # the kernel's time_zero can be "negative"
    assert reader.time_conversion == (MULT, SHIFT, -5)
    producer.set(ring.CAPABILITIES, 0)
    with pytest.raises(RingError, match="no conversion"):
        reader.time_conversion  # noqa: B018


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (ring.DATA_SIZE, 0),
        (ring.DATA_SIZE, PAGE + 1),
        (ring.DATA_SIZE, 3 * PAGE),
        (ring.DATA_SIZE, 2 * PAGE),  # power of two, but the file ends before
        (ring.DATA_SIZE, 1 << 63),
        (ring.DATA_OFFSET, 0),
        (ring.DATA_OFFSET, 100),
        (ring.DATA_OFFSET, 1 << 63),
        (ring.DATA_OFFSET, 2 * PAGE),  # the AUX area's place
        (ring.AUX_SIZE, PAGE // 2),
        (ring.AUX_SIZE, 1 << 40),
        (ring.AUX_OFFSET, 3),
        (ring.AUX_OFFSET, 1 << 35),
    ],
)
def test_a_control_page_that_lies_is_refused(tmp_path: Path, field: int, value: int) -> None:
    producer = Producer(tmp_path / "x.ring")
    producer.set(field, value)
    with pytest.raises(RingError):
        PerfRing.open(producer.path)


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, 3 * PAGE - 1])
def test_a_cut_file_is_refused(tmp_path: Path, size: int) -> None:
    producer = Producer(tmp_path / "x.ring")
    producer.path.write_bytes(producer.path.read_bytes()[:size])
    with pytest.raises(RingError):
        PerfRing.open(producer.path)


def test_no_file_and_no_plain_file(tmp_path: Path) -> None:
    with pytest.raises(RingError, match="No such file"):
        PerfRing.open(tmp_path / "none")
    with pytest.raises(RingError):
        PerfRing.open(tmp_path)


@pytest.mark.parametrize("head_at", [ring.AUX_HEAD, ring.DATA_HEAD])
@pytest.mark.parametrize(("head", "tail"), [(0, 8), (PAGE + 8, 0), (2**64 - 8, 0), (8, 2**64 - 8)])
def test_heads_and_tails_out_of_range(tmp_path: Path, head_at: int, head: int, tail: int) -> None:
    producer = Producer(tmp_path / "x.ring")
    reader = PerfRing.open(producer.path)
    producer.set(head_at, head)
    producer.set(head_at + 8, tail)
    with pytest.raises(RingError):
        reader.aux_head() if head_at == ring.AUX_HEAD else reader.take_records()


def test_a_tail_that_someone_else_moved(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "x.ring")
    reader = PerfRing.open(producer.path)
    producer.trace(b"abc")
    head = reader.aux_head()
    producer.set(ring.AUX_TAIL, head + 1)
    with pytest.raises(RingError, match="another reader"):
        reader.take_aux(head, 10)


def test_a_data_head_inside_a_word(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "x.ring")
    producer.set(ring.DATA_HEAD, 12)
    with pytest.raises(RingError, match="inside a word"):
        PerfRing.open(producer.path).take_records()


def test_no_aux_area(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "x.ring")
    producer.set(ring.AUX_SIZE, 0)
    reader = PerfRing.open(producer.path)
    assert reader.aux_head() == 0
    assert np.array_equal(reader.take_aux(0, 100)[1], [])


def test_a_bounded_piece_ends_before_a_psb(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "x.ring")
    reader = PerfRing.open(producer.path)
    data = b"a" * 100 + ring.PSB + b"b" * 50 + b"\x02\x82" + ring.PSB + b"c" * 30
    producer.trace(data)
    cuts = [reader.take_aux(len(data), 190)[1].tobytes() for _ in range(3)]
    assert cuts == [data[:168], data[168:], b""]
    producer.trace(data)
    assert reader.take_aux(reader.aux_head(), 100)[1].tobytes() == b"a" * 100
    rest = reader.take_aux(reader.aux_head(), 60)[1].tobytes()  # begins with the only PSB it has
    assert rest == (ring.PSB + b"b" * 50)[:60]


@pytest.mark.parametrize("left", [0, ring.PAGE, 2 * ring.PAGE + 100])
@pytest.mark.parametrize("then", ["head", "records", "trace"])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, left: int, then: str) -> None:
    """Behind every check: the pages are gone when they are copied."""
    producer = Producer(tmp_path / "cpu0.ring", aux_pages=4)
    producer.records(switch(7, 8))
    producer.trace(b"x" * 10_000)
    mapped = PerfRing.open(producer.path)
    head = mapped.aux_head()
    os.truncate(producer.path, left)
    look: dict[str, Callable[[], object]] = {
        "head": mapped.aux_head,
        "records": mapped.records,
        "trace": lambda: mapped.take_aux(head, 1 << 20),
    }
    with pytest.raises(RingError, match="cut while it was read"):
        look[then]()
    mapped.close()
    producer.close()

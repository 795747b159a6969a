"""Record parsing against a reference that unpacks one record after the other."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.perf import records
from capture.perf.records import AuxFlag, RecordError, RecordType, SampleFormat, SampleType
from stages.messages import SIDE_DTYPE, Clock, Loss, LossMark, SideKind
from tests.capture import perfwriter as w

CLOCK = Clock(w.MULT, w.SHIFT, w.ZERO, 0)


def words(data: bytes) -> records.Words:
    return np.frombuffer(data, np.uint64)


def naive(data: bytes, clock: Clock) -> list[tuple[int, ...]]:
    """(tsc, kind, cpu, pid, tid, a, b, c) of well-formed records with the default trailer."""
    rows: list[tuple[int, ...]] = []
    at = 0
    while at < len(data):
        kind, misc, size = struct.unpack_from("<IHH", data, at)
        body, tail = data[at + 8 : at + size - 32], data[at + size - 32 : at + size]
        at += size
        if kind not in records._BODY:
            continue
        pid, tid, ns, cpu, _, _ = struct.unpack("<iiQiIQ", tail)
        tsc = max(0, clock.tsc(ns))
        if kind == RecordType.AUX:
            rows.append((tsc, SideKind.AUX, cpu, pid, tid, *struct.unpack("<3Q", body)))
        elif kind == RecordType.LOST:
            ident, count = struct.unpack("<QQ", body)
            rows.append((tsc, SideKind.LOST, cpu, pid, tid, count, ident, 0))
        elif kind == RecordType.SWITCH_CPU_WIDE:
            rows.append((tsc, SideKind.SWITCH_OUT if misc & 0x2000 else SideKind.SWITCH_IN, cpu, pid, tid, 0, 0, 0))
        elif kind in (RecordType.ITRACE_START, RecordType.COMM):
            owner = struct.unpack_from("<ii", body)
            side = SideKind.COMM if kind == RecordType.COMM else SideKind.ITRACE_START
            rows.append((tsc, side, cpu, *owner, 0, 0, 0))
        elif kind in (RecordType.FORK, RecordType.EXIT):
            child, parent, thread, parent_thread, _ = struct.unpack("<iiiiQ", body)
            side = SideKind.FORK if kind == RecordType.FORK else SideKind.EXIT
            rows.append((tsc, side, cpu, child, thread, parent, parent_thread, 0))
        elif kind == RecordType.MMAP2:
            owner = struct.unpack_from("<ii", body)
            rows.append((tsc, SideKind.MMAP2, cpu, *owner, *struct.unpack_from("<3Q", body, 8)))
    return rows


u64 = st.integers(0, 2**64 - 1)
i32 = st.integers(-1, 2**31 - 1)
where = st.fixed_dictionaries({"ns": st.integers(0, 2**62), "cpu": i32})
any_record = st.one_of(
    st.builds(lambda o, s, f, k: w.aux(o, s, f, **k), u64, u64, st.integers(0, 15), where),
    st.builds(lambda n, k: w.lost(n, **k), u64, where),
    st.builds(lambda p, t, o, k: w.switch(p, t, out=o, **k), i32, i32, st.booleans(), where),
    st.builds(lambda p, t, k: w.itrace_start(p, t, **k), i32, i32, where),
    st.builds(lambda p, t, n, k: w.comm(p, t, n, **k), i32, i32, st.text("abc", max_size=15), where),
    st.builds(lambda p, t, a, n, k: w.mmap2(p, t, a, 4096, n, **k), i32, i32, u64, st.text("ab/", max_size=40), where),
    st.builds(
        lambda r, p, q, t, u, k: w.task(r, p, q, t, u, **k),
        st.sampled_from((RecordType.FORK, RecordType.EXIT)), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1),
        st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), where,
    ),
    st.builds(lambda k, n: w.record(k, bytes(8 * n), b""), st.sampled_from((9, 16, 200, 2**32 - 1)), st.integers(0, 9)),
)  # fmt: skip
clocks = st.builds(Clock, st.integers(1, 2**32 - 1), st.integers(18, 32), st.integers(-(2**40), 2**40), st.just(0))


@settings(max_examples=300, deadline=None)
@given(st.lists(any_record, max_size=30))
def test_rows_equal_the_reference(each: list[bytes]) -> None:
    data = b"".join(each)
    rows = records.parse(words(data), CLOCK)
    assert rows.dtype == SIDE_DTYPE
    assert [tuple(int(x) for x in row) for row in rows.tolist()] == naive(data, CLOCK)


@settings(max_examples=300, deadline=None)
@given(clocks, st.lists(st.integers(0, 2**62), min_size=1, max_size=5))
def test_time_is_what_the_clock_says(clock: Clock, ns: list[int]) -> None:
    expected = [max(0, clock.tsc(n)) if n >= clock.zero else 0 for n in ns]
    got = records.ns_to_tsc(np.array(ns, np.uint64), clock).tolist()
    assert got == [e & (2**64 - 1) for e in expected]


@settings(max_examples=200, deadline=None)
@given(st.lists(any_record, max_size=8), st.integers(0, 400))
def test_a_cut_keeps_what_was_before_it(each: list[bytes], at: int) -> None:
    data = b"".join(each)
    cut = data[: min(len(data), 8 * at)]
    ends = np.cumsum([0, *map(len, each)]).tolist()
    whole = max(end for end in ends if end <= len(cut))
    if whole == len(cut):
        assert len(records.parse(words(cut), CLOCK)) == len(naive(cut, CLOCK))
    else:
        with pytest.raises(RecordError, match="cut") as failure:
            records.parse(words(cut), CLOCK)
        assert [tuple(map(int, row)) for row in failure.value.records.tolist()] == naive(data[:whole], CLOCK)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400).map(lambda data: data[: len(data) & ~7]))
def test_random_bytes_are_rows_or_an_error(data: bytes) -> None:
    try:
        rows = records.parse(words(data), CLOCK)
    except RecordError as error:
        rows = error.records
    assert len(rows) <= len(data) // 8


def test_a_record_shorter_than_its_type() -> None:
    good = w.aux(1, 2)
    with pytest.raises(RecordError, match="AUX has only 32 bytes") as failure:
        records.parse(words(good + w.record(RecordType.AUX, b"", w.trailer(1, 1, 1, 1)[8:])), CLOCK)
    assert len(failure.value.records) == 1


@pytest.mark.parametrize("size", [0, 4, 7, 12])
def test_a_size_that_no_record_has(size: int) -> None:
    with pytest.raises(RecordError, match=f"the size {size}"):
        records.parse(words(struct.pack("<IHH", 11, 0, size) + bytes(64)), CLOCK)


def test_other_trailers() -> None:
    assert SampleFormat.of(records.SAMPLE_TYPE) == (4, 4, 3, 2)
    every = SampleType.TID | SampleType.TIME | SampleType.ID | SampleType.STREAM_ID | SampleType.CPU
    assert SampleFormat.of(every | SampleType.IDENTIFIER) == (6, 6, 5, 2)
    assert SampleFormat.of(0) == (0, 0, 0, 0)
    bare = w.record(RecordType.AUX, struct.pack("<3Q", 5, 6, 1), b"")
    row = records.parse(words(bare), CLOCK, SampleFormat.of(0))[0]
    assert (int(row["tsc"]), int(row["cpu"]), int(row["a"])) == (0, -1, 5)


def test_only_truncated_is_loss_and_it_lies_behind_its_bytes() -> None:
    every = [w.aux(100 * flags, 50, flags, ns=flags) for flags in range(16)] + [w.lost(3, ns=99)]
    marks = records.loss_marks(records.parse(words(b"".join(every)), CLOCK), 777)
    full = [LossMark(100 * f + 50, Loss.AUX_FULL, 0, 2 * f) for f in range(16) if f & AuxFlag.TRUNCATED]
    assert marks == [*full, LossMark(777, Loss.SIDEBAND_LOST, 0, 198)]


def test_mmap2_path() -> None:
    assert records.mmap2_path(w.mmap2(1, 2, 0x1000, 0x2000, "/lib/x.so")) == (0x1000, 0x2000, 0, "/lib/x.so")

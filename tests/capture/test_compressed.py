"""Events packed by `perf record -z` come out as they went in, wherever they are cut; impossible bytes are one error."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.perf import perf_data as perfdata
from capture.perf.compressed import CompressedError, Unpacker
from capture.perf.perf_data import Event, PerfDataError, Reader
from tests.capture import perfwriter as w

RECORDS = [w.comm(1, n, "x" * (n % 15), ns=n) for n in range(400)]


def packed(data: bytes, cuts: list[int]) -> list[bytes]:
    """One zstd stream, flushed where an event of perf ends."""
    stream = zstandard.ZstdCompressor().compressobj()
    pieces = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        pieces.append(stream.compress(data[start:end]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    return pieces


def file(path: Path, pieces: list[bytes], kind: Event) -> Path:
    writer = perfdata.Writer(path)
    for piece in pieces:
        if kind == Event.COMPRESSED:  # not padded
            writer.records(perfdata.EVENT.pack(kind, 0, 8 + len(piece)) + piece)
        else:
            writer.event(kind, struct.pack("<Q", len(piece)) + piece)
    writer.event(68, b"")
    writer.close([], {})
    return path


@given(st.lists(st.integers(0, sum(map(len, RECORDS))), max_size=6), st.sampled_from((81, 83)))
@settings(max_examples=40, deadline=None)
def test_events_come_out_whole(tmp_path_factory: pytest.TempPathFactory, cuts: list[int], kind: int) -> None:
    pieces = packed(b"".join(RECORDS), sorted(cuts))
    path = file(tmp_path_factory.mktemp("z") / "z.data", pieces, Event(kind))
    with Reader(path) as reader:
        events = [bytes(event.record) for event in reader.events()]
    assert events == [*RECORDS, perfdata.EVENT.pack(68, 0, 8)]


@pytest.mark.parametrize("kind", [Event.COMPRESSED, Event.COMPRESSED2])
def test_what_cannot_be_is_one_error(tmp_path: Path, kind: Event) -> None:
    (good,) = packed(b"".join(RECORDS), [])
    (cut,) = packed(b"".join(RECORDS)[:-8], [])
    (odd,) = packed(struct.pack("<IHH", 3, 0, 12) + bytes(8), [])
    (nested,) = packed(struct.pack("<IHH", 81, 0, 8), [])
    for pieces, what in (
        ([b"junk junk"], "packed events"),
        ([good, good], "packed events"),
        ([cut], "cut"),
        ([odd], "cannot have the size 12"),
        ([nested], "an event of type 81 among packed ones"),
    ):
        with Reader(file(tmp_path / "z.data", pieces, kind)) as reader, pytest.raises(PerfDataError, match=what):
            list(reader.events())


def test_a_length_beyond_its_event(tmp_path: Path) -> None:
    writer = perfdata.Writer(tmp_path / "z.data")
    writer.event(Event.COMPRESSED2, struct.pack("<Q", 1 << 63))
    writer.close([], {})
    with Reader(tmp_path / "z.data") as reader, pytest.raises(PerfDataError, match="packed events are cut"):
        list(reader.events())


def test_a_bomb_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capture.perf.compressed.FREE", 0)
    (bomb,) = packed(RECORDS[0] * 1_000_000, [])
    with pytest.raises(CompressedError, match="more than can be right"):
        list(Unpacker(len(bomb) // 100).events(memoryview(bomb)))

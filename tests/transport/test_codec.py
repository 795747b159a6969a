from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stages.messages import (
    MARK_DTYPE,
    PROFILE_DTYPE,
    SIDE_DTYPE,
    Chunk,
    Loss,
    LossMark,
    PaneReport,
    Sideband,
    StreamKey,
    Tick,
)
from streamer.transport import codec
from streamer.transport.codec import CodecError, decode, decode_all, encode
from tests.transport import values

KEY = StreamKey("host", 7, 0, -1)
CHUNK = Chunk(KEY, 1, 4096, np.arange(5000, dtype=np.uint8), (LossMark(4096, Loss.AUX_FULL, 12, 2**64 - 1),), 9)


def header(message: Any = CHUNK) -> list[Any]:
    fields = msgpack.unpackb(encode(message)[0])
    assert isinstance(fields, list)
    return fields


def with_header(parts: Any, frames: list[Any] | None = None) -> list[Any]:
    return [msgpack.packb(parts), *(encode(CHUNK)[1:] if frames is None else frames)]


@pytest.mark.parametrize("name", values.KINDS)
def test_every_message_comes_back_with_its_types(name: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(values.of(codec.MESSAGES[name]), st.text(max_size=10), st.integers(0, 2**63))
    def round_trip(message: Any, sender: str, number: int) -> None:
        envelope = decode(encode(message, sender, number))
        assert values.same(envelope.message, message)
        assert envelope[1:] == (sender, number)

    round_trip()


@settings(max_examples=60, deadline=None)
@given(st.lists(values.ANY_MESSAGE, min_size=1, max_size=5))
def test_messages_that_travel_together_come_back_one_by_one(messages: list[Any]) -> None:
    frames = [frame for number, message in enumerate(messages) for frame in encode(message, "me", number)]
    found = decode_all(frames)
    assert [envelope[1:] for envelope in found] == [("me", number) for number in range(len(messages))]
    assert all(values.same(envelope.message, message) for envelope, message in zip(found, messages, strict=True))
    with pytest.raises(CodecError):
        decode_all([*frames, b"more"])


def test_bulk_travels_beside_the_header_without_a_copy() -> None:
    frames = encode(CHUNK)
    assert len(frames) == 2
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), CHUNK.data)
    data = decode(frames).message.data
    assert np.shares_memory(data, CHUNK.data)
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def test_arrays_that_are_not_contiguous_are_sent_right() -> None:
    every_other = np.arange(20, dtype=np.uint8)[::2]
    assert decode(encode(Chunk(KEY, 0, 0, every_other))).message.data.tolist() == every_other.tolist()


def test_numpy_scalars_and_counts_as_gauges_are_plain_numbers_on_arrival() -> None:
    tick = decode(encode(Tick("h", 1, np.uint64(2**64 - 1)))).message  # type: ignore[arg-type]
    assert values.same(tick, Tick("h", 1, 2**64 - 1))
    report = PaneReport("h", 1, 0, 0, np.zeros(0, PROFILE_DTYPE), (), (), gauges=(("lag", 3),))
    assert values.same(decode(encode(report)).message.gauges, (("lag", 3.0),))


def test_lone_surrogates_in_names_survive() -> None:
    assert decode(encode(Tick("\ud800", 1, 2))).message.host == "\ud800"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Chunk(KEY, 0, 0, np.zeros(3, np.int64)), "expected an array of uint8"),
        (Sideband(KEY, 0, np.zeros(1, MARK_DTYPE)), "expected an array of"),
        (Chunk(KEY, 0, 0, b"bytes"), "expected an array of uint8"),  # type: ignore[arg-type]
        (Tick("h", 1, 2**64), "int cannot be sent"),
        (Tick("h", 1, object()), "object cannot be sent"),  # type: ignore[arg-type]
        (Chunk(KEY, 0, 0, np.zeros((1, 1, 1, 1, 1), np.uint8)), "5 dimensions"),
        (Loss.DESYNC, "no message"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_the_sender(message: Any, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        encode(message)


def test_too_large_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = encode(CHUNK)
    monkeypatch.setattr(codec, "MAX_FRAME", 4999)
    with pytest.raises(CodecError, match="too large"):
        encode(CHUNK)
    with pytest.raises(CodecError, match="over the limit"):
        decode(frames)


def test_a_class_without_wire_form_is_refused_when_defined() -> None:
    @dataclass(frozen=True)
    class Odd:
        table: NDArray[np.void]

    with pytest.raises(TypeError, match="no wire form"):
        codec._shape(NDArray[np.void], ("Odd", "table"))
    with pytest.raises(TypeError, match="no wire form"):
        codec._shape(dict[str, int], ("Odd", "table"))


def wrong_headers() -> list[tuple[Any, str]]:
    good = header()
    stream, seq, offset, data, losses, tsc = good[5]
    return [
        ([], "no array"),
        ({}, "no array"),
        (7, "no array"),
        ([2, *good[1:]], "wire version 2"),
        ([True, *good[1:]], "wire version True"),
        (good[:5], "six parts"),
        ([1, good[1] + 1, *good[2:]], "other message definitions"),
        ([*good[:2], "LossMark", *good[3:]], "unknown message type"),
        ([*good[:2], ["Chunk"], *good[3:]], "unknown message type"),
        ([*good[:3], 5, *good[4:]], "bad sender"),
        ([*good[:4], "5", good[5]], "bad sender or number"),
        ([*good[:5], None], "wants 6 parts"),
        ([*good[:5], good[5][:5]], "wants 6 parts"),
        ([*good[:5], ["stream", seq, offset, data, losses, tsc]], "wants 5 parts"),
        ([*good[:5], [stream[:3], seq, offset, data, losses, tsc]], "wants 5 parts"),
        ([*good[:5], [stream, "1", offset, data, losses, tsc]], "expected int, found str"),
        ([*good[:5], [stream, True, offset, data, losses, tsc]], "expected int, found bool"),
        ([*good[:5], [stream, seq, offset, None, losses, tsc]], "no description"),
        ([*good[:5], [stream, seq, offset, ["O", [5000]], losses, tsc]], "expected an array"),
        ([*good[:5], [stream, seq, offset, ["<u8", [625]], losses, tsc]], "expected an array"),
        ([*good[:5], [stream, seq, offset, ["|u1", [5001]], losses, tsc]], "5001 announced"),
        ([*good[:5], [stream, seq, offset, ["|u1", [-5000]], losses, tsc]], "bad array shape"),
        ([*good[:5], [stream, seq, offset, ["|u1", [2**60, 2**60]], losses, tsc]], "bad array shape"),
        ([*good[:5], [stream, seq, offset, ["|u1", [1] * 9]], losses, tsc], "parts"),
        ([*good[:5], [stream, seq, offset, data, [[0, 99, 0, 0]], tsc]], "99 is no Loss"),
        ([*good[:5], [stream, seq, offset, data, 5, tsc]], "expected a sequence"),
    ]


@pytest.mark.parametrize(("parts", "why"), wrong_headers())
def test_a_header_that_does_not_fit_is_one_clear_error(parts: Any, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        decode(with_header(parts))


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([], "no header"),
        ([b""], "no msgpack"),
        ([b"\xc1"], "no msgpack"),
        ([b"\x91" * 100_000 + b"\x01"], "no msgpack"),
        ([b"\xdd\xff\xff\xff\xff"], "no msgpack"),
        ([b"\xdb\xff\xff\xff\xff"], "no msgpack"),
        ([b"\xc7\x01\x01\x01"], "no msgpack"),
        (encode(CHUNK)[:1], "a frame is missing"),
        ([*encode(CHUNK), b"more"], "more frames"),
        ([encode(CHUNK)[0], b"short"], "frame of 5 bytes, 5000 announced"),
    ],
)
def test_frames_that_do_not_fit_are_one_clear_error(frames: list[bytes], why: str) -> None:
    with pytest.raises(CodecError, match=why):
        decode(frames)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_never_crash(frames: list[bytes]) -> None:
    with pytest.raises(CodecError):
        decode(frames)


OBJECTS = st.recursive(
    st.none() | st.booleans() | values.INTS | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(values.ANY_MESSAGE, st.data())
def test_mutated_messages_are_messages_or_codec_errors(message: Any, data: st.DataObject) -> None:
    frames = [bytes(f) for f in encode(message)]
    how = data.draw(st.sampled_from(["bytes", "field", "drop", "double", "cut"]))
    at = data.draw(st.integers(0, len(frames) - 1))
    if how == "bytes":
        raw = bytearray(frames[0])
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        frames[0] = bytes(raw)
    elif how == "field":
        parts = msgpack.unpackb(frames[0], unicode_errors="surrogatepass")
        fields = parts[5]
        fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(OBJECTS)
        frames[0] = msgpack.packb(parts, unicode_errors="surrogatepass")
    elif how == "drop":
        del frames[at]
    elif how == "double":
        frames.insert(at, frames[at])
    else:
        frames[at] = frames[at][: len(frames[at]) // 2]
    try:
        received = decode(frames).message
    except CodecError:
        return
    assert values.same(decode(encode(received)).message, received) or "nan" in repr(received)


def test_structured_records_keep_their_fields() -> None:
    records = np.zeros(3, SIDE_DTYPE)
    records["tsc"] = [1, 2, 2**64 - 1]
    got = decode(encode(Sideband(KEY, 0, records))).message.records
    assert got["tsc"].tolist() == [1, 2, 2**64 - 1]

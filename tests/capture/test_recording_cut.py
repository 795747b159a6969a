"""A recording whose disk is full: readable up to the cut, its rest counted, whichever write finds no room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from capture.live.drain import Message
from capture.perf.perf_data import Event
from capture.recording.record import Recorder
from capture.recording.replay import Replay
from stages.messages import Chunk, EndOfStream, JitBatch, StreamOpen
from tests.capture.session import Session
from tests.capture.test_recording import HIGH, LOW, example
from tests.disk import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 4 << 20) as path:
        yield path


def messages(tmp_path: Path) -> list[Message]:
    """Of a small recording."""
    session = Session(tmp_path / "s")
    session.write_state(filter=[LOW, HIGH])
    run = example(session)
    run.finish()
    run.drain.close()
    with Replay(session.path / "rec" / "x.json") as whole:
        assert whole.incomplete == ""
        return list(whole.messages())


def key(message: object) -> tuple[object, ...]:
    match message:
        case Chunk():
            return "chunk", message.stream, message.offset, message.data.tobytes()
        case JitBatch():
            return "jit", message.pid, message.seq, message.data.tobytes()
        case _:
            return (type(message).__name__,)


def without_sideband(tmp_path: Path) -> list[StreamOpen | Chunk | JitBatch]:
    return [m for m in messages(tmp_path) if isinstance(m, StreamOpen | Chunk | JitBatch)]


@pytest.mark.parametrize("room", range(0, 96 << 10, 4096))
def test_cut_by_a_full_disk(tmp_path: Path, disk: Path, room: int) -> None:
    """Each message comes many times over as a new one, until the disk is full, at any file of the recording."""
    whole = without_sideband(tmp_path)
    recorder = Recorder(disk / "rec", "x", reread_seconds=None)
    fill(disk, leave=room)
    given: list[tuple[object, ...]] = []
    offered = lost = 0
    places: dict[object, int] = {}
    for turn in range(300):
        for message in whole:
            match message:
                case StreamOpen() if turn:
                    continue
                case Chunk():
                    at = places.get(message.stream, 0)
                    message = replace(message, seq=turn, offset=at, losses=())
                    places[message.stream] = at + len(message.data)
                    offered += len(message.data)
                case JitBatch():
                    message = replace(message, seq=turn * 100 + message.seq)
            recorder.write(message)
            given.append(key(message))
    lost = recorder.lost_bytes
    path = recorder.close()
    assert recorder.cut is not None
    assert 0 < lost <= offered
    assert not (disk / "rec" / "x.reserve").exists()
    manifest = json.loads(path.read_text())
    assert (manifest["complete"], manifest["cut"]) == (False, "No space left on device")
    with Replay(path) as replay:
        assert replay.incomplete == "No space left on device"
        back = list(replay.messages())
        assert replay._reader.complete  # closed in order, for perf too
    assert isinstance(back.pop(), EndOfStream)
    assert [key(m) for m in back] == given[: len(back)]
    kept = sum(len(m.data) for m in back if isinstance(m, Chunk))
    assert offered - lost - (64 << 10) <= kept <= offered - lost  # less the bytes in a buffer


def test_one_that_nobody_ended(tmp_path: Path) -> None:
    """Its writer was killed: also between a note and its trace."""
    whole = without_sideband(tmp_path)
    recorder = Recorder(tmp_path / "rec", "x", reread_seconds=None)
    for message in whole:
        recorder.write(message)
    recorder.flush()
    data = (tmp_path / "rec" / "x.perf.data").read_bytes()
    chunks = sum(isinstance(m, Chunk) for m in whole)
    with Replay(tmp_path / "rec" / "x.json") as replay:
        first = next(event.offset for event in replay._reader.events() if event.kind == Event.AUXTRACE)
    seen = set()
    for size in range(len(data), first, -8):
        (tmp_path / "rec" / "x.perf.data").write_bytes(data[:size])
        with Replay(tmp_path / "rec" / "x.json") as replay:
            assert replay.incomplete == "its writer did not end it"
            back = list(replay.messages())
        assert [key(m) for m in back[:-1]] == [key(m) for m in whole][: len(back) - 1]
        seen.add(sum(isinstance(m, Chunk) for m in back))
    recorder.close()
    assert seen == set(range(chunks + 1))


def test_no_room_to_begin_with(disk: Path) -> None:
    fill(disk)
    with pytest.raises(OSError, match="No space left"):
        Recorder(disk / "rec", "x")

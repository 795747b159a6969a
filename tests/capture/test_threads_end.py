"""Rings of threads: each is drained to its end, closed in the books, removed; an id that comes again is another's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.live import ring
from capture.live.checkpoints import MOST, Heads
from capture.live.source import EmulatedSource
from capture.recording.record import Recorder
from capture.recording.replay import Replay
from stages.messages import Account, Chunk, Sideband, StreamEnd, StreamKey, StreamOpen
from streamer.hub.ledger import Ledger
from tests.capture import jitwriter
from tests.capture import perfwriter as w
from tests.capture.session import PID, Session, of
from tests.growth import grown, sizes

LOW = 0x10000


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(tmp_path / "session")
    yield made
    for drain in made.drains:
        drain.close()


def key(tid: int, number: int) -> StreamKey:
    return StreamKey("h", PID, -1, tid, number)


def lived(session: Session, tid: int, number: int, data: bytes) -> w.Producer:
    """The ring of a thread that has written `data` and ended."""
    producer = session.ring(f"tid{tid}-{number}")
    producer.set(ring.COUNTERS, ring.COUNTERS_MAGIC)
    producer.trace(data)
    producer.set(ring.COUNTERS + 8 * ring.ENDED, 1)
    return producer


def test_a_stream_ends_behind_all_that_was_in_its_ring(session: Session) -> None:
    drain = session.drain()
    lived(session, 7, 1, b"first").close()
    lived(session, 7, 2, b"again").close()
    out = [m for _ in range(3) for m in drain.poll()]
    for number, data in ((1, b"first"), (2, b"again")):
        own = [m for m in out if getattr(m, "stream", None) == key(7, number)]
        assert [type(m) for m in own] == [StreamOpen, Sideband, Chunk, StreamEnd]
        assert of(Chunk, own)[0].data.tobytes() == data
    assert drain.streams == {}


def test_an_end_that_was_refused_comes_again(session: Session) -> None:
    drain = session.drain()
    lived(session, 7, 1, b"x").close()
    (end,) = of(StreamEnd, [m for _ in range(3) for m in drain.poll()])
    drain.refused(end)
    assert of(StreamEnd, drain.poll()) == [end]


def test_a_ring_is_read_out_when_it_has_ended_and_is_empty(session: Session) -> None:
    source = EmulatedSource(session.path / "pt", "h")
    producer = session.ring("tid7-1")
    producer.set(ring.COUNTERS, ring.COUNTERS_MAGIC)
    producer.trace(b"abc")
    assert source.read_out() == {}  # it is written
    producer.set(ring.COUNTERS + 8 * ring.ENDED, 1)
    assert source.read_out() == {}  # and was not read
    drain = session.drain()
    drain.poll()
    drain.poll()
    assert source.read_out() == {key(7, 1): 3}
    assert (session.path / "told-tid7-1.records").exists()
    source.remove(key(7, 1))
    assert source.read_out() == {}
    assert not list(session.path.rglob("*tid7*"))
    source.remove(key(7, 1))  # a process killed in the middle does it again
    producer.close()


def test_recordings_tell_streams_of_one_thread_id_apart(session: Session, tmp_path: Path) -> None:
    drain, recorder = session.drain(), Recorder(tmp_path / "rec", "r")
    lived(session, 7, 1, b"first").close()
    lived(session, 7, 2, b"again").close()
    out = [m for _ in range(3) for m in drain.poll()]
    for message in out:
        recorder.write(message, drain.raw(message) if isinstance(message, Sideband) else None)
    path = recorder.close()
    with Replay(path) as replay:
        played = list(replay.messages())
    kinds = Chunk | StreamEnd | StreamOpen
    told = [(type(m), m.stream, m.data.tobytes() if isinstance(m, Chunk) else b"") for m in out if isinstance(m, kinds)]
    assert [
        (type(m), m.stream, m.data.tobytes() if isinstance(m, Chunk) else b"") for m in played if isinstance(m, kinds)
    ] == told
    assert of(StreamEnd, played) == of(StreamEnd, out)


def test_heads_of_streams_that_have_ended_are_few(tmp_path: Path) -> None:
    """Their slots are used again; those that go on are never given up, nor in the next process."""
    path = tmp_path / "heads"
    heads = Heads(path, "h")
    heads.reached(key(1, 99), 5)
    sizes_ = []
    for number in range(3 * MOST):
        heads.reached(key(7, number), number)
        heads.ended(key(7, number))
        sizes_.append(path.stat().st_size)
    assert sizes_[MOST] == sizes_[-1]
    assert list(heads.over(PID).values()) == list(range(2 * MOST, 3 * MOST))
    assert len(heads.all(PID)) == MOST + 1
    heads.close()
    again = Heads(path, "h")
    assert again.of(key(1, 99)) == 5
    assert len(again.all(PID)) == MOST + 2  # a slot is free, and not yet used again
    again.reached(key(1, 99), 6)
    again.reached(key(8, 0), 1)
    again.ended(key(8, 0))
    assert len(again.all(PID)) == MOST + 1
    assert again.of(key(1, 99)) == 6
    again.close()


def test_a_damaged_head_is_told_and_its_slot_used_again(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    heads = Heads(path, "h")
    for cpu in range(3):
        heads.reached(key(cpu, 0), 1000 + cpu)
    heads.close()
    good = path.read_bytes()
    size = len(good) // 3
    for at in range(size, 2 * size):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        heads = Heads(path, "h")
        assert f"{size} bytes are damaged from byte {size} on" in heads.damage
        assert [heads.of(key(cpu, 0)) for cpu in range(3)] == [1000, 0, 1002]
        heads.reached(key(5, 0), 7)
        heads.close()
        healed = Heads(path, "h")
        assert (healed.damage, healed.of(key(5, 0)), healed.of(key(2, 0))) == ("", 7, 1002)
        healed.close()
        assert path.stat().st_size == len(good)


def test_nothing_of_a_thousand_threads_is_left(session: Session, tmp_path: Path) -> None:
    """In capture, in the recorder, in the ledger and in the session's directory."""
    drain, recorder, ledger = session.drain(reread_share=0), Recorder(tmp_path / "rec", "r"), Ledger()
    source = EmulatedSource(session.path / "pt", "h")
    agent = session.agent(1 << 20)
    first, second = Counter[str](), Counter[str]()
    files, closed = [], 0
    for number in range(1, 1001):
        lived(session, 1000 + number % 5, number, b"trace").close()
        agent.write(jitwriter.thread_start(number, "t"))
        for message in (m for _ in range(2) for m in drain.poll()):
            recorder.write(message, drain.raw(message) if isinstance(message, Sideband) else None)
            if isinstance(message, Chunk):
                size = len(message.data)
                ledger.account(Account(message.stream, message.offset, message.offset + size, size, ()), 0.0)
        for balance in ledger.close_ended(source.read_out()):
            assert (balance.error, balance.decoded) == (0, 5)
            source.remove(balance.stream)
            closed += 1
        if number > 300 and number % 50 == 0:
            half = second if number > 650 else first
            half |= sizes(drain, source, ledger, recorder)
            files.append(len(list(session.path.rglob("*"))))
    assert grown(first, second, slack=16).keys() <= {"Recorder._file._index"}  # a recording grows with its messages
    assert closed == 1000
    assert ledger.totals().decoded == 5000
    assert len(set(files)) == 1
    agent.close()
    recorder.close()

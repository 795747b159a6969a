"""Draining a session: order, losses, refusals, restarts; every byte is in a chunk or in a named gap."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capture.live import ring
from capture.live.drain import Drain, Message, run
from capture.live.source import SessionError
from jvm.export.parse import iter_records
from jvm.export.ring import open_export
from jvm.export.seal import sealed
from stages.messages import (
    Chunk,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    Sideband,
    SideKind,
    StreamKey,
    StreamOpen,
    Tick,
)
from tests.capture import jitwriter
from tests.capture import perfwriter as w
from tests.capture.session import CPU0, CPU1, PID, Session, of


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path / "s")
    yield session
    for drain in session.drains:
        drain.close()


def text(chunk: Chunk) -> bytes:
    return chunk.data.tobytes()


def test_nothing_yet(tmp_path: Path) -> None:
    drain = Drain(tmp_path / "later", host="h")
    assert drain.poll() == []
    assert not drain.ended


def test_the_order_of_one_poll(session: Session) -> None:
    first, second, agent = session.ring("cpu0"), session.ring("cpu1"), session.agent()
    agent.write(jitwriter.thread_start(7, "main"))
    first.records(w.switch(7, 8, ns=100, cpu=0))
    first.trace(b"abc", ns=101)
    second.trace(b"de", ns=102)
    out = session.drain().poll()
    assert [type(m) for m in out] == [StreamOpen, StreamOpen, JitBatch, Sideband, Sideband, Chunk, Chunk, Tick]
    opened = out[0]
    assert isinstance(opened, StreamOpen)
    assert (opened.stream, opened.clock.wall_zero) == (CPU0, 5)
    assert opened.config == (6, 142, 0x1000, 0x9000, 3, 204, 2, False, False)
    assert [(m.stream, m.seq, m.offset, text(m)) for m in of(Chunk, out)] == [(CPU0, 0, 0, b"abc"), (CPU1, 0, 0, b"de")]
    assert of(Sideband, out)[0].records["kind"].tolist() == [SideKind.SWITCH_IN, SideKind.AUX]
    assert of(Sideband, out)[0].records["tsc"].tolist() == [200, 202]
    assert [record.name for record in iter_records(of(JitBatch, out)[0].data)] == ["main"]  # type: ignore[attr-defined]


def test_chunks_are_bounded_and_numbered(session: Session) -> None:
    producer = session.ring(aux_pages=4)
    data = bytes(range(256)) * 40
    producer.trace(data)
    drain = session.drain(chunk_bytes=4096)
    chunks = list[Chunk]()
    while not chunks or drain.backlog:
        chunks += of(Chunk, drain.poll())
    assert [(c.seq, c.offset, len(c.data)) for c in chunks] == [(0, 0, 4096), (1, 4096, 4096), (2, 8192, 2048)]
    assert b"".join(map(text, chunks)) == data


def test_truncated_lies_where_the_trace_stopped(session: Session) -> None:
    producer, drain = session.ring(), session.drain()
    producer.trace(bytes(ring.PAGE) + b"lost", ns=50)
    (chunk,) = of(Chunk, drain.poll())
    assert (len(chunk.data), chunk.losses) == (ring.PAGE, ())
    producer.trace(b"next", ns=60)
    (chunk,) = of(Chunk, drain.poll())
    assert (chunk.offset, text(chunk), chunk.losses) == (
        ring.PAGE,
        b"next",
        (LossMark(ring.PAGE, Loss.AUX_FULL, 0, 100),),
    )


def test_a_chunk_is_cut_at_a_loss(session: Session) -> None:
    producer, drain = session.ring(aux_pages=2), session.drain()
    producer.records(w.aux(0, 10, 1, ns=5))
    producer.trace(b"0123456789after")
    messages = drain.poll() + drain.poll()
    assert [(text(c), c.losses) for c in of(Chunk, messages)] == [
        (b"0123456789", ()),
        (b"after", (LossMark(10, Loss.AUX_FULL, 0, 10),)),
    ]


def test_a_full_ring_that_says_so_again_is_one_loss(session: Session) -> None:
    producer, drain = session.ring(), session.drain()
    producer.trace(bytes(ring.PAGE + 1), ns=1)
    producer.trace(b"x", ns=2)
    producer.trace(b"x", ns=3)
    drain.poll()
    producer.trace(b"more", ns=4)
    assert of(Chunk, drain.poll())[0].losses == (LossMark(ring.PAGE, Loss.AUX_FULL, 0, 2),)
    assert drain.statistics()["truncated"] == 3


def test_lost_sideband_is_marked_from_the_last_look_on(session: Session) -> None:
    producer, drain = session.ring(), session.drain()
    producer.trace(b"before")
    drain.poll()
    producer.trace(b"now")
    producer.records(*[w.switch(1, 1, ns=n) for n in range(200)])
    messages = drain.poll()
    assert of(Chunk, messages)[0].losses == ()
    producer.records(w.switch(1, 1, ns=999))
    producer.trace(b"then")
    (chunk,) = of(Chunk, drain.poll())
    assert chunk.losses == (LossMark(9, Loss.SIDEBAND_LOST, 0, 0),)  # perfwriter's LOST has ns 0
    assert drain.statistics()["lost_records"] == 200 - (ring.PAGE - 64) // 48


def test_a_corrupt_data_ring_is_a_loss_not_a_crash(session: Session) -> None:
    producer, drain = session.ring(), session.drain()
    producer.records(w.switch(1, 2, ns=5), b"\xff" * 24)
    producer.trace(b"x")
    messages = drain.poll()
    assert of(Sideband, messages)[0].records["tid"].tolist() == [2]
    assert len(drain.raw(of(Sideband, messages)[0])) == 6
    assert [mark.cause for mark in of(Chunk, messages)[0].losses] == [Loss.SIDEBAND_LOST]


def test_a_ring_gone_mad_is_set_aside(session: Session) -> None:
    good, bad, drain = session.ring("cpu0"), session.ring("cpu1"), session.drain()
    bad.trace(b"abc")
    drain.poll()
    bad.set(ring.AUX_HEAD, 1 << 63)
    good.trace(b"goes on")
    assert [text(c) for c in of(Chunk, drain.poll())] == [b"goes on"]
    drain.poll()
    assert list(drain.streams) == [CPU0]
    assert "aux_head" in drain.faults[0]


def test_files_that_are_no_rings_are_named_once(session: Session) -> None:
    (session.path / "pt/cpu0.ring").write_bytes(b"junk")
    (session.path / f"jit-{PID}.ring").write_bytes(b"junk")
    drain = session.drain()
    for _ in range(3):
        assert of(Chunk, drain.poll()) == []
    assert drain.statistics()["faults"] == 2


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 2}', '{"version": 1, "pid": "x"}', "[" * 100000])
def test_a_state_file_that_is_none(session: Session, text: str) -> None:
    (session.path / "pt/emulator.json").write_text(text)
    with pytest.raises(SessionError, match=r"emulator\.json"):
        session.drain().poll()


def test_no_filter_yet_means_no_stream_yet(session: Session) -> None:
    session.write_state(filter=[0, 0])
    session.ring().trace(b"x")
    drain = session.drain()
    assert of(StreamOpen, drain.poll()) == []
    session.write_state(filter=[1, 2])
    assert [type(m) for m in drain.poll()] == [StreamOpen, Sideband, Chunk, Tick]


def finish(drain: Drain) -> list[Message]:
    out: list[Message] = []
    for _ in range(100):
        out += drain.poll()
        if drain.ended:
            return out
    raise AssertionError("no end")


def test_the_end(session: Session) -> None:
    producer, agent, drain = session.ring(), session.agent(), session.drain()
    producer.trace(bytes(ring.PAGE) + b"lost", ns=7)
    drain.poll()
    agent.write(jitwriter.thread_start(1, "late"))
    session.write_state(state="ended")
    out = finish(drain)
    assert [type(m) for m in out] == [JitBatch, Chunk, EndOfStream]
    last = of(Chunk, out)[0]
    assert (last.offset, len(last.data), last.losses) == (ring.PAGE, 0, (LossMark(ring.PAGE, Loss.AUX_FULL, 0, 14),))
    assert drain.poll() == []


def test_a_killed_target_ends_too(session: Session) -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # dead, not yet waited for: still in /proc
    session.write_state(pid=pid)
    session.ring().trace(b"abc")
    out = finish(session.drain())
    assert text(of(Chunk, out)[0]) == b"abc"
    os.waitpid(pid, 0)


def test_stop_drains_what_is_there(session: Session) -> None:
    session.ring().trace(b"abc")
    drain = session.drain()
    drain.stop()
    assert [type(m) for m in finish(drain)] == [StreamOpen, Sideband, Chunk, EndOfStream]


def test_an_end_that_was_refused_comes_again(session: Session) -> None:
    drain = session.drain()
    drain.stop()
    (end,) = finish(drain)
    drain.refused(end)
    assert finish(drain) == [end]


def test_refused_chunks_are_holes(session: Session) -> None:
    producer, drain = session.ring(aux_pages=2), session.drain()
    producer.records(w.aux(0, 0, 1, ns=5))
    for piece in (b"aaaa", b"bb"):
        producer.trace(piece)
        (chunk,) = of(Chunk, drain.poll())
        drain.refused(chunk)
    producer.trace(b"c")
    (chunk,) = of(Chunk, drain.poll())
    assert (chunk.seq, chunk.offset, text(chunk)) == (2, 6, b"c")
    assert [mark[:3] for mark in chunk.losses] == [(0, Loss.AUX_FULL, 0), (6, Loss.TRANSPORT, 0)]
    drain.refused(chunk)
    session.write_state(state="ended")
    (last,) = of(Chunk, finish(drain))
    assert (last.seq, last.offset, len(last.data)) == (3, 7, 0)
    assert [mark[:2] for mark in last.losses] == [(0, Loss.AUX_FULL), (7, Loss.TRANSPORT)]
    statistics = drain.statistics()
    assert (statistics["drained_bytes"], statistics["refused_bytes"], statistics["refused_chunks"]) == (7, 7, 3)


def test_a_refused_last_chunk_comes_again(session: Session) -> None:
    producer, drain = session.ring(), session.drain()
    producer.trace(b"abc")
    session.write_state(state="ended")
    (chunk,) = of(Chunk, drain.poll())
    drain.refused(chunk)
    (empty,) = of(Chunk, drain.poll())
    drain.refused(empty)
    (again,) = of(Chunk, finish(drain))
    assert (again.seq, again.offset, [mark[:2] for mark in again.losses]) == (2, 3, [(3, Loss.TRANSPORT)])


def test_refused_control_messages_come_first_next_time(session: Session) -> None:
    producer, agent, drain = session.ring(), session.agent(), session.drain()
    agent.write(jitwriter.thread_start(1, "one"))
    producer.trace(b"abc")
    first = drain.poll()
    for message in first:
        drain.refused(message)
    agent.write(jitwriter.thread_start(2, "two"))
    producer.trace(b"d")
    second = drain.poll()
    assert second[:3] == first[:3]
    assert [m.seq for m in of(JitBatch, second)] == [0]  # the next batch waits for the one before it
    assert [m.seq for m in of(JitBatch, drain.poll())] == [1]


def test_sideband_refused_for_ever_is_lost_at_last(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capture.live.drain.MAX_KEPT", 1000)
    producer, drain = session.ring(), session.drain()
    for n in range(30):
        producer.records(w.switch(1, 1, ns=n))
        for message in of(Sideband, drain.poll()):
            drain.refused(message)
    producer.trace(b"x")
    messages = drain.poll()
    assert sum(m.records.nbytes for m in of(Sideband, messages)) <= 1100
    assert [mark.cause for mark in of(Chunk, messages)[0].losses] == [Loss.SIDEBAND_LOST]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(("write", "poll", "refuse", "restart")), st.integers(0, 6000)), max_size=25))
def test_every_byte_is_in_a_chunk_or_a_named_gap(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    session = Session(tmp_path_factory.mktemp("s") / "s")
    producer, drain = session.ring(), session.drain(chunk_bytes=1500)
    written, received = bytearray(), bytearray()
    gaps: dict[Loss, int] = {}
    full = 0

    def take(messages: list[Message]) -> None:
        nonlocal full
        for chunk in of(Chunk, messages):
            assert all(mark.offset <= chunk.offset for mark in chunk.losses)
            gap = chunk.offset - len(received)
            causes = {mark.cause for mark in chunk.losses}
            if gap:
                cause = Loss.TRANSPORT if Loss.TRANSPORT in causes else Loss.CAPTURE_DOWN
                assert cause in causes
                gaps[cause] = gaps.get(cause, 0) + gap
                received.extend(written[len(received) : chunk.offset])
            full += Loss.AUX_FULL in causes
            received.extend(chunk.data)

    refused = 0
    for step, size in steps:
        if step == "write":
            piece = os.urandom(size)
            missing = producer.trace(piece)
            written += piece[: size - missing]
        elif step == "poll":
            take(drain.poll())
        elif step == "refuse":
            for message in drain.poll():
                drain.refused(message)
                refused += len(message.data) if isinstance(message, Chunk) else 0
        else:
            drain.close()
            drain = session.drain(chunk_bytes=1500)
    session.write_state(state="ended")
    take(finish(drain))
    assert received == written
    assert len(written) == producer.get(ring.AUX_HEAD)
    assert sum(gaps.values()) == refused
    drain.close()
    producer.close()


def test_restart_goes_on_where_the_tails_stand(session: Session) -> None:
    producer, agent, drain = session.ring(), session.agent(), session.drain()
    agent.write(jitwriter.thread_start(1, "one"))
    producer.trace(b"abc")
    drain.poll()
    drain.close()
    producer.trace(b"def")
    agent.write(jitwriter.thread_start(2, "two"))
    out = session.drain().poll()
    assert [type(m) for m in out] == [StreamOpen, JitBatch, Sideband, Chunk, Tick]
    chunk = of(Chunk, out)[0]
    assert (chunk.offset, text(chunk), [mark[:3] for mark in chunk.losses]) == (3, b"def", [(3, Loss.CAPTURE_DOWN, 0)])
    assert [r.name for r in iter_records(of(JitBatch, out)[0].data)] == ["one", "two"]  # type: ignore[attr-defined]


def kinds_and_tids(sideband: Sideband) -> list[tuple[int, int]]:
    return [(int(row["kind"]), int(row["tid"])) for row in sideband.records]


def test_a_restart_tells_again_what_explains_the_rest(session: Session) -> None:
    """The dead one had read switches whose trace is still in the ring."""
    producer, drain = session.ring(aux_pages=4), session.drain(chunk_bytes=4096)
    producer.records(w.switch(9, 7, ns=1))
    producer.trace(bytes(5000), ns=2)
    producer.records(w.switch(9, 8, ns=3))
    producer.trace(bytes(5000), ns=4)
    drain.poll()
    drain.close()
    producer.records(w.switch(9, 7, ns=5))
    out = session.drain(chunk_bytes=16384).poll()
    chunk, (side,) = of(Chunk, out)[0], of(Sideband, out)
    assert (chunk.offset, len(chunk.data), [mark.cause for mark in chunk.losses]) == (4096, 5904, [Loss.CAPTURE_DOWN])
    in_, aux = SideKind.SWITCH_IN, SideKind.AUX
    assert kinds_and_tids(side) == [(in_, 7), (aux, 7), (in_, 8), (aux, 7), (in_, 7)]
    assert side.seq == 0


def test_who_runs_is_known_after_a_restart_though_nobody_says_so_again(session: Session) -> None:
    """One thread runs on, its only switch record was read long ago."""
    producer, drain = session.ring(aux_pages=4), session.drain()
    producer.records(w.switch(9, 7, ns=1))
    for ns in range(2, 400):
        producer.trace(b"abc", ns=ns)
        drain.poll()
    drain.close()
    producer.trace(b"def", ns=500)
    out = session.drain().poll()
    assert kinds_and_tids(of(Sideband, out)[0])[0] == (SideKind.SWITCH_IN, 7)
    assert [mark.cause for mark in of(Chunk, out)[0].losses] == [Loss.CAPTURE_DOWN]


def test_records_that_were_kept_but_not_yet_freed_are_told_once(session: Session) -> None:
    """Killed between the two."""
    producer, drain = session.ring(), session.drain()
    producer.records(w.switch(9, 7, ns=1), w.switch(9, 8, ns=2))
    drain.poll()
    drain.close()
    producer.set(ring.DATA_TAIL, 0)
    producer.records(w.switch(9, 7, ns=3))
    assert [tid for _, tid in kinds_and_tids(of(Sideband, session.drain().poll())[0])] == [7, 8, 7]


def test_records_that_could_not_be_kept_are_lost(session: Session) -> None:
    producer, drain = session.ring(), session.drain()
    producer.records(w.switch(9, 7, ns=1))
    producer.trace(b"abc", ns=2)
    drain.poll()
    drain.close()
    (session.path / "told-cpu0.records").unlink()
    producer.trace(b"def", ns=3)
    (chunk,) = of(Chunk, session.drain().poll())
    assert sorted(mark.cause for mark in chunk.losses) == [Loss.SIDEBAND_LOST, Loss.CAPTURE_DOWN]


@pytest.mark.parametrize("kind", [JitBatch, Sideband, StreamOpen])
async def test_no_trace_is_sent_whose_explanation_was_refused(
    session: Session, autojump_clock: trio.testing.MockClock, kind: type
) -> None:
    """There was room again for the chunk, but a message that has to come before it was refused: the chunk becomes a
    hole."""
    producer, agent, drain = session.ring(), session.agent(), session.drain()
    agent.write(jitwriter.thread_start(7, "main"))
    producer.records(w.switch(9, 7, ns=1))
    producer.trace(b"abc", ns=2)
    got: list[Message] = []
    refused = False

    async def send(message: Message) -> bool:
        nonlocal refused
        if isinstance(message, kind) and not refused:
            refused = True
            producer.trace(b"def", ns=3)
            session.write_state(state="ended")
            return False
        got.append(message)
        return True

    await run(drain, send, poll_seconds=1.0)
    (chunk,) = of(Chunk, got)
    assert (chunk.offset, text(chunk), [mark.cause for mark in chunk.losses]) == (3, b"def", [Loss.TRANSPORT])
    assert [type(m) for m in got].index(kind) < [type(m) for m in got].index(Chunk)
    assert {type(m) for m in got} >= {StreamOpen, JitBatch, Sideband}


def test_a_cut_record_in_the_export_file_is_taken_off(session: Session) -> None:
    agent, drain = session.agent(), session.drain()
    agent.write(jitwriter.thread_start(1, "one"))
    drain.poll()
    drain.close()
    path = session.path / f"jit-{PID}.export"
    whole = path.read_bytes()
    path.write_bytes(whole + jitwriter.thread_start(2, "two")[:-3])
    agent.write(jitwriter.thread_start(2, "two"))
    out = session.drain().poll()
    assert [r.name for r in iter_records(of(JitBatch, out)[0].data)] == ["one", "two"]  # type: ignore[attr-defined]
    told = sealed(jitwriter.thread_start(1, "one") + jitwriter.thread_start(2, "two"))
    assert bytes(open_export(path).records) == told


def test_a_damaged_export_file_is_mended_and_all_asked_for_again(session: Session) -> None:
    agent, drain = session.agent(), session.drain()
    records = [jitwriter.thread_start(n, f"{n}" * 9) for n in range(5)]
    agent.write(*records)
    drain.poll()
    drain.close()
    path = session.path / f"jit-{PID}.export"
    whole = bytearray(path.read_bytes())
    at = 64 + len(records[0])
    whole[at : at + 4] = bytes(4)  # a record of no size
    path.write_bytes(whole)
    drain = session.drain()
    (batch,) = of(JitBatch, drain.poll())
    assert [r.os_tid for r in iter_records(batch.data)] == [0, 2, 3, 4]  # type: ignore[attr-defined]
    assert batch.dropped == 1
    assert drain.faults == [
        f"{path}: a record cannot have the size 0: {len(records[1])} bytes are damaged from byte {at} on"
    ]
    assert agent.get(jitwriter.REPLAY_REQUESTED) & 0xFFFFFFFF == 1
    assert bytes(open_export(path).records) == sealed(b"".join(records[:1] + records[2:]))


def test_introduction_tells_a_new_receiver_everything(session: Session) -> None:
    producer, agent, drain = session.ring(), session.agent(), session.drain()
    for n in range(3):
        agent.write(jitwriter.thread_start(n, "x" * n))
        producer.records(w.switch(9, 10 + n, ns=n))
        drain.poll()
    told = list(drain.introduction())
    assert [type(m) for m in told] == [StreamOpen, JitBatch, Sideband]
    assert of(JitBatch, told)[0].seq == 2
    assert of(Sideband, told)[0].records["tid"].tolist() == [10, 11, 12]  # none of their trace has been taken
    producer.trace(b"abc", ns=9)
    drain.poll()
    told = list(drain.introduction())
    assert of(Sideband, told)[0].records["kind"].tolist() == [SideKind.SWITCH_IN, SideKind.AUX]
    assert of(Sideband, told)[0].seq == 3
    agent.write(jitwriter.thread_start(5, "y"))
    assert of(JitBatch, drain.poll())[0].seq == 3


def test_a_long_export_is_sent_before_any_trace(session: Session) -> None:
    producer, agent, drain = session.ring(), session.agent(1 << 23), session.drain()
    agent.write(*[jitwriter.dynamic_code(4096 * n, bytes(1 << 20)) for n in range(7)])
    drain.poll()
    for _ in range(9):
        agent.write(*[jitwriter.dynamic_code(4096 * n, bytes(1 << 20)) for n in range(7)])
        drain.poll()
    drain.close()
    producer.trace(b"abc")
    again = session.drain()
    kinds = [type(m) for _ in range(4) for m in again.poll()]
    assert kinds.count(JitBatch) >= 17
    assert JitBatch not in kinds[kinds.index(Chunk) :]


def test_dropped_jit_records_are_asked_for_again(session: Session) -> None:
    producer, agent, drain = session.ring(), session.agent(4096), session.drain()
    producer.trace(b"abc")
    agent.write(*[jitwriter.thread_start(n, "t" * 100) for n in range(100)])
    batch, chunk = of(JitBatch, out := drain.poll())[0], of(Chunk, out)[0]
    assert [mark.cause for mark in chunk.losses] == [Loss.JIT_LOST]
    assert batch.dropped == agent.get(jitwriter.DROPPED) > 0
    assert agent.get(jitwriter.REPLAY_REQUESTED) & 0xFFFFFFFF == 1
    drain.poll()
    assert drain.statistics()["jit_replays"] == 1


def test_threads_whose_rings_have_ended_are_closed(session: Session) -> None:
    producer, drain = session.ring("tid77"), session.drain()
    producer.set(ring.COUNTERS, ring.COUNTERS_MAGIC)
    producer.trace(bytes(ring.PAGE + 9))
    producer.set(ring.COUNTERS + 8 * ring.NOT_WRITTEN, 9)
    producer.set(ring.COUNTERS + 8 * ring.ENDED, 1)
    out = drain.poll() + drain.poll() + drain.poll()
    assert [(c.stream, len(c.data)) for c in of(Chunk, out)] == [
        (StreamKey("h", PID, -1, 77), ring.PAGE),
        (StreamKey("h", PID, -1, 77), 0),
    ]
    assert [mark.lost for mark in of(Chunk, out)[1].losses] == [9]
    assert drain.streams == {}
    assert drain.statistics()["drained_bytes"] == ring.PAGE


async def test_run_sleeps_between_polls_and_ends(session: Session, autojump_clock: trio.testing.MockClock) -> None:
    producer, drain = session.ring(aux_pages=2), session.drain(chunk_bytes=1000)
    producer.trace(bytes(2500))
    got: list[Message] = []

    async def send(message: Message) -> bool:
        got.append(message)
        if len(of(Chunk, got)) == 3:
            session.write_state(state="ended")
        return not (isinstance(message, Chunk) and message.seq == 1)

    await run(drain, send, poll_seconds=1.0)
    assert [(c.offset, len(c.data), len(c.losses)) for c in of(Chunk, got)] == [
        (0, 1000, 0),
        (1000, 1000, 0),
        (2000, 500, 1),
    ]
    assert isinstance(got[-1], EndOfStream)
    assert np.sum([len(c.data) for c in of(Chunk, got)]) == 2500

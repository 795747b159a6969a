"""Capture, and a worker that does not read."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing

from stages.messages import Chunk, EndOfStream, JitBatch, Loss
from streamer.config import CaptureConfig, TransportConfig
from streamer.pipeline.sources import PATIENCE, CaptureSource
from streamer.transport.link import Receiver, Sender
from streamer.transport.output import Output
from streamer.transport.transport import addresses, open_transport
from tests.capture import jitwriter
from tests.capture import perfwriter as w
from tests.capture.session import Session

SECONDS = 20.0
A_SECOND = 20_000
"""Bytes of trace: in all more than sockets hold between two processes."""


class _Refusals(Sender):
    """Counts how often there was no room."""

    times = 0

    def try_send(self, *messages: object) -> bool:
        sent = super().try_send(*messages)
        self.times += not sent
        return sent


async def test_capture_waits_for_a_worker_that_does_not_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """It looks at its rings a bounded number of times a second, code is told before trace, and a chunk that did not fit
    is a hole: every byte is in a chunk or behind a mark."""
    session = Session(tmp_path / "session")
    config = TransportConfig(mode="ipc", hwm=2)
    (address,) = addresses(config, tmp_path / "sockets", ["w/0"]).values()
    source = CaptureSource(session.path, CaptureConfig())
    producer, agent = session.ring(aux_pages=64), session.agent()
    written = 0

    async def write() -> None:
        nonlocal written
        for n in range(int(SECONDS)):
            agent.write(*[jitwriter.thread_start(n, "x" * 100)] * 10)
            producer.records(w.switch(9, 7, ns=n))
            producer.trace(bytes(A_SECOND), ns=n)
            written += A_SECOND
            await trio.sleep(1)
        session.write_state(state="ended")

    async with open_transport(config) as transport:
        receiver = Receiver(transport, address)
        sender = _Refusals(transport, address, "source#1")
        got: list[object] = []

        async def capture() -> None:
            await source.run(Output([sender], introduces=True))
            await sender.send(EndOfStream("source"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            nursery.start_soon(capture)
            await trio.sleep(SECONDS - 0.5)
            assert 0 < sender.times <= SECONDS / PATIENCE  # all that a look has found goes together
            assert sender.refused >= sender.times
            while not got or not isinstance(got[-1], EndOfStream):
                got.append((await receiver.receive()).message)
        sender.close()
        receiver.close()
    chunks = [m for m in got if isinstance(m, Chunk)]
    at = 0
    for chunk in chunks:
        assert chunk.offset == at or any(mark.cause == Loss.TRANSPORT for mark in chunk.losses)
        at = chunk.offset + len(chunk.data)
    assert at == written
    assert [type(m) for m in got].index(JitBatch) < [type(m) for m in got].index(Chunk)


class _Taker:
    """An output that has room for everything; counts looks at the rings, which it is healed before."""

    def __init__(self) -> None:
        self.looks = 0

    async def heal(self, introduction: object) -> None:
        self.looks += 1

    def try_send_together(self, messages: object) -> bool:
        return True


@pytest.mark.parametrize(("size", "looks"), [(8, 50), (1 << 17, 50), ((1 << 17) + 8, 100)])
async def test_rings_in_which_there_is_little_are_looked_at_half_as_often(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, size: int, looks: int
) -> None:
    """Little is a 32nd of a ring; one of 4 MiB has room for 20 ms."""
    session, taker = Session(tmp_path / "session"), _Taker()
    source = CaptureSource(session.path, CaptureConfig(poll_ms=10, reread_cpu_percent=0))
    producer = session.ring(aux_pages=1024)

    async def write() -> None:
        await trio.sleep(0.005)  # never at the moment of a look
        for n in range(100):
            producer.trace(bytes(size if looks == 100 or n % 2 == 0 else 0), ns=n)
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.run, cast("Output", taker))
        await write()
        assert looks - 2 <= taker.looks <= looks + 2
        session.write_state(state="ended")

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio
import trio.testing

from stages.messages import Chunk, EndOfStream, JitBatch, StreamKey, Tick
from streamer.config import TransportConfig
from streamer.transport.control import Control, control_pair
from streamer.transport.link import Receiver, Sender
from streamer.transport.output import Output
from streamer.transport.routing import shard
from streamer.transport.transport import addresses, open_transport
from tests.transport.waiting import eventually

WORKERS = 2
PIDS = [next(p for p in range(99) if shard(("h", p), WORKERS) == w) for w in range(WORKERS)]


def chunk(worker: int, seq: int = 0) -> Chunk:
    return Chunk(StreamKey("h", PIDS[worker], 0, -1), seq, seq, np.zeros(1, np.uint8))


class Scene:
    """A source's output and its workers, of which each can be taken away and put back."""

    def __init__(self, tmp_path: Path, transport: Any, config: TransportConfig, workers: int) -> None:
        self._transport = transport
        self.addresses = list(addresses(config, tmp_path / "s", [f"w/{i}" for i in range(workers)]).values())
        self.receivers = [Receiver(transport, a) for a in self.addresses]
        self.output = Output([Sender(transport, a, "source#1") for a in self.addresses], introduces=True)

    def kill(self, worker: int) -> None:
        self.receivers[worker].close()
        self.output.down(worker)

    def restart(self, worker: int) -> None:
        self.receivers[worker] = Receiver(self._transport, self.addresses[worker])
        self.output.up(worker, stranger=True)

    async def received(self, worker: int, count: int) -> list[Any]:
        return [(await self.receivers[worker].receive()).message for _ in range(count)]


@asynccontextmanager
async def scene(tmp_path: Path, config: TransportConfig | None = None, workers: int = WORKERS) -> AsyncIterator[Scene]:
    config = config or TransportConfig(mode="ipc", hwm=64)
    with trio.fail_after(120):
        async with open_transport(config) as transport:
            made = Scene(tmp_path, transport, config, workers)
            await eventually(lambda: all(s.has_room for s in made.output.senders))
            yield made
            made.output.close()
            for receiver in made.receivers:
                receiver.close()


def introduction() -> Iterator[Any]:
    return iter([JitBatch("h", 1, i, np.zeros(1, np.uint8)) for i in range(3)])


def kinds(messages: list[Any]) -> list[str]:
    return [type(m).__name__ for m in messages]


async def test_bulk_goes_by_key_and_knowledge_to_all(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        assert s.output.try_send(Tick("h", 1, 1))
        assert s.output.try_send(chunk(0))
        assert await s.output.send(chunk(1))
        assert kinds(await s.received(0, 2)) == ["Tick", "Chunk"]
        assert kinds(await s.received(1, 2)) == ["Tick", "Chunk"]
        assert s.output.statistics()["sent"] == 4


async def test_to_one_worker_all_together_or_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, TransportConfig(mode="inproc", hwm=4), workers=1) as s:
        sent = 0
        while s.output.try_send_together([Tick("h", 1, sent), chunk(0, sent)]):
            sent += 1
        assert s.output.try_send_together([Tick("h", 1, sent), chunk(0, sent)]) is False
        got = await s.received(0, 2 * sent)
        assert [m.tsc for m in got if isinstance(m, Tick)] == [m.seq for m in got if isinstance(m, Chunk)]
        assert kinds(got) == ["Tick", "Chunk"] * sent
        assert s.receivers[0].statistics() | {"received": 2 * sent, "missing": 0} == s.receivers[0].statistics()


async def test_each_goes_by_itself_to_several_workers_and_to_one_that_is_not_introduced(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        assert s.output.try_send_together([Tick("h", 1, 1), chunk(0)]) is None
    async with scene(tmp_path, workers=1) as s:
        s.kill(0)
        assert s.output.try_send_together([chunk(0)]) is None
        s.restart(0)
        assert s.output.try_send_together([chunk(0)]) is None
        await s.output.heal(introduction)
        assert s.output.try_send_together([chunk(0), chunk(0, 1)])
        assert kinds(await s.received(0, 5)) == ["JitBatch"] * 3 + ["Chunk"] * 2


async def test_to_all_or_to_none(tmp_path: Path) -> None:
    """A message to all that one worker has no room for is sent to none: it can be tried again as it is."""
    async with scene(tmp_path, TransportConfig(mode="inproc", hwm=4)) as s:  # no thread that moves queued messages
        sent = 0
        while s.output.try_send(chunk(0, sent)):
            sent += 1
        assert not s.output.try_send(Tick("h", 1, 1))
        assert s.receivers[1].try_receive() is None
        await s.received(0, sent)
        await eventually(lambda: s.output.try_send(Tick("h", 1, 1)))
        assert kinds(await s.received(1, 1)) == ["Tick"]


async def test_a_worker_that_is_down_is_left_out_and_hears_nothing_before_its_introduction(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.kill(0)
        assert not s.output.try_send(chunk(0))
        assert not await s.output.send(chunk(0))
        assert s.output.try_send(Tick("h", 1, 1))
        assert await s.output.send(Tick("h", 1, 2))
        assert kinds(await s.received(1, 2)) == ["Tick", "Tick"]
        s.restart(0)
        await eventually(lambda: s.output.senders[0].has_room)
        assert not s.output.try_send(chunk(0))
        await s.output.heal(introduction)
        assert s.output.try_send(chunk(0))
        assert kinds(await s.received(0, 4)) == ["JitBatch"] * 3 + ["Chunk"]
        assert s.receivers[1].try_receive() is None


async def test_an_introduction_that_a_second_death_cuts_is_given_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        s.kill(0)
        s.restart(0)

        def cut() -> Iterator[Any]:
            for i, message in enumerate(introduction()):
                if i == 1:
                    s.kill(0)
                yield message

        await s.output.heal(cut)
        assert not s.output.try_send(chunk(0))
        s.restart(0)
        await s.output.heal(introduction)
        assert await s.output.send(chunk(0))
        assert kinds(await s.received(0, 4)) == ["JitBatch"] * 3 + ["Chunk"]


async def test_a_source_that_can_wait_delivers_through_a_restart(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, trio.open_nursery() as nursery:
        s.kill(0)
        nursery.start_soon(s.output.deliver, chunk(0, 7), introduction)
        await trio.testing.wait_all_tasks_blocked()
        s.restart(0)
        assert kinds(await s.received(0, 4)) == ["JitBatch"] * 3 + ["Chunk"]


async def test_for_a_worker_gone_for_good_nothing_waits(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, trio.open_nursery() as nursery:
        s.kill(0)
        outcome = []

        async def deliver() -> None:
            outcome.append(await s.output.deliver(chunk(0), introduction))

        nursery.start_soon(deliver)
        await trio.testing.wait_all_tasks_blocked()
        s.output.gone(0)
        await eventually(lambda: outcome == [False])
        assert s.output.try_send(Tick("h", 1, 1))


async def test_all_links_are_ended_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, trio.open_nursery() as nursery:
        outcome = []

        async def finish() -> None:
            outcome.append(await s.output.finish("source", 20))

        for receiver in s.receivers:
            nursery.start_soon(receiver.serve)
        nursery.start_soon(finish)
        for receiver in reversed(s.receivers):
            envelope = await receiver.receive()
            assert envelope.message == EndOfStream("source")
            receiver.acknowledge(envelope.sender)
            await receiver.settle()
        await eventually(lambda: outcome == [True])
        nursery.cancel_scope.cancel()


# ---- the control line


async def test_control_lines_arrive_whole_and_the_end_is_heard() -> None:
    ours, socket = control_pair()
    theirs = Control.of_descriptor(socket.detach())
    long = "x" * 300_000
    async with trio.open_nursery() as nursery:
        for i in range(3):
            nursery.start_soon(partial(ours.say, number=np.int64(i), text=long))
        heard = [await theirs.hear() for _ in range(3)]
    assert sorted(h["number"] for h in heard if h) == [0, 1, 2]
    assert all(h and h["text"] == long for h in heard)
    await theirs.close()
    assert await ours.hear() is None
    assert not await ours.say(any="thing")
    await ours.close()


async def test_what_is_no_control_line_is_the_end() -> None:
    for line in (b"not json\n", b"[1]\n", b"\xff\n"):
        ours, socket = control_pair()
        socket.sendall(line)
        assert await ours.hear() is None
        socket.close()
        await ours.close()

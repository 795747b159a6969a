from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing
import zmq

from streamer.transport.socket import CHECKPOINT_EVERY, Socket
from tests.narrowed import of_type
from tests.transport.waiting import eventually

Pair = tuple[Socket, Socket]
ENDPOINTS = ["inproc", "ipc", "tcp"]


class Maker:
    """Sockets of one context, closed at the end of the test."""

    def __init__(self, tmp_path: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.made: list[Socket] = []
        self.tmp_path = tmp_path

    def pair(self, one: int, other: int, over: str = "inproc", hwm: int = 1000) -> Pair:
        bound, connected = self.context.socket(one), self.context.socket(other)
        for raw in (bound, connected):
            raw.linger, raw.sndhwm, raw.rcvhwm = 0, hwm, hwm
        where = {
            "inproc": f"inproc://{len(self.made)}",
            "ipc": f"ipc://{self.tmp_path}/{len(self.made)}",
            "tcp": "tcp://127.0.0.1:*",
        }[over]
        bound.bind(where)
        connected.connect(of_type(bytes, bound.last_endpoint).decode())
        self.made += [Socket(bound), Socket(connected)]
        return self.made[-2], self.made[-1]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    maker = Maker(tmp_path)
    yield maker
    maker.context.destroy(0)


@pytest.mark.parametrize("over", ENDPOINTS)
async def test_messages_arrive_in_order_and_whole(make: Maker, over: str) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH, over)
    big = np.arange(300_000, dtype=np.uint8)

    async def feed() -> None:
        for i in range(500):
            await push.send([b"%d" % i, big.data, b""])

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            for i in range(500):
                number, data, empty = await pull.receive()
                assert bytes(number) == b"%d" % i
                assert np.array_equal(np.frombuffer(data, np.uint8), big)
                assert bytes(empty) == b""
    assert pull.statistics()["received_bytes"] == push.statistics()["sent_bytes"]


async def test_received_frames_cannot_be_written(make: Maker) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH)
    await push.send([b"x" * 100_000])
    (frame,) = await pull.receive()
    assert isinstance(frame, memoryview)
    assert frame.readonly


async def test_a_slow_reader_holds_the_sender_back_and_try_send_says_so(make: Maker) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH, hwm=5)
    accepted = sum(push.try_send([b"m"]) for _ in range(100))
    assert accepted == 10  # both ends' marks add up
    assert push.statistics()["refused"] == 90
    with trio.move_on_after(0.05) as scope:
        await push.send([b"m"])
    assert scope.cancelled_caught
    assert push.statistics()["sent"] == accepted
    for _ in range(accepted):
        await pull.receive()
    assert pull.try_receive() is None


async def test_both_directions_at_once_lose_no_wake_up(make: Maker) -> None:
    """Each send may eat the edge that the receiving task on the same socket waits for."""
    left, right = make.pair(zmq.DEALER, zmq.DEALER, "ipc", hwm=3)

    async def feed(socket: Socket) -> None:
        for i in range(2000):
            await socket.send([b"%d" % i])

    async def drain(socket: Socket) -> None:
        for i in range(2000):
            assert bytes((await socket.receive())[0]) == b"%d" % i

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for socket in (left, right):
                nursery.start_soon(feed, socket)
                nursery.start_soon(drain, socket)


async def test_many_waiters_on_one_socket_all_get_theirs(make: Maker) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH, "ipc")
    got: list[int] = []

    async def taker() -> None:
        got.append(int(bytes((await pull.receive())[0])))

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(taker)
            await trio.testing.wait_all_tasks_blocked()
            for i in range(20):
                await push.send([b"%d" % i])
    assert sorted(got) == list(range(20))


async def test_when_the_watching_task_is_cancelled_another_takes_over(make: Maker) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH, "ipc")
    first = trio.CancelScope()
    got: list[bytes] = []

    async def doomed() -> None:
        with first:
            await pull.receive()

    async def taker() -> None:
        got.append(bytes((await pull.receive())[0]))

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(doomed)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(taker)
            await trio.testing.wait_all_tasks_blocked()
            first.cancel()
            await trio.testing.wait_all_tasks_blocked()
            await push.send([b"for the other"])
    assert got == [b"for the other"]


async def test_cancelled_receives_take_no_message(make: Maker) -> None:
    """A receive that is cancelled at any point has not taken the message it would have returned."""
    pull, push = make.pair(zmq.PULL, zmq.PUSH)
    got: list[int] = []

    async def impatient() -> None:
        for patience in itertools.cycle(range(4)):
            with trio.CancelScope() as scope:
                if patience == 0:
                    scope.cancel()
                got.append(int(bytes((await pull.receive())[0])))
            if len(got) == 500:
                return
            await trio.lowlevel.checkpoint()

    async def feed() -> None:
        for i in range(500):
            await push.send([b"%d" % i])

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            nursery.start_soon(impatient)
    assert got == list(range(500))


async def test_a_busy_socket_lets_other_tasks_run(make: Maker) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(CHECKPOINT_EVERY * 6):
            await push.send([b"m"])
            assert pull.try_receive()
        nursery.cancel_scope.cancel()
    assert 5 <= turns <= 8


@pytest.mark.parametrize("what", ["receive", "send"])
async def test_closing_wakes_those_who_wait(make: Maker, what: str) -> None:
    _, push = make.pair(zmq.PULL, zmq.PUSH, hwm=1)
    while push.try_send([b"full"]):
        pass
    socket = push if what == "send" else make.pair(zmq.PULL, zmq.PUSH, "ipc")[0]
    closed = 0

    async def waiter() -> None:
        nonlocal closed
        with pytest.raises(trio.ClosedResourceError):
            await (socket.send([b"x"]) if what == "send" else socket.receive())
        closed += 1

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(waiter)
            await trio.testing.wait_all_tasks_blocked()
            socket.close()
    assert closed == 3
    with pytest.raises(trio.ClosedResourceError):
        await socket.receive()
    with pytest.raises(trio.ClosedResourceError):
        socket.try_send([b"x"])
    socket.close()


async def test_tracker_says_when_a_buffer_may_be_used_again(make: Maker) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH)
    data = bytearray(200_000)
    tracker = await push.send([memoryview(data), b"second"], track=True)
    assert tracker is not None
    assert not tracker.done
    message = await pull.receive()
    assert len(message[0]) == 200_000
    del message
    with trio.fail_after(120):
        while not tracker.done:  # libzmq frees it on its own thread
            await trio.lowlevel.checkpoint()


async def test_receive_into_never_truncates_silently(make: Maker) -> None:
    pull, push = make.pair(zmq.PULL, zmq.PUSH)
    room = memoryview(bytearray(8))
    await push.send([b"12345"])
    assert await pull.receive_into(room) == 5
    assert bytes(room[:5]) == b"12345"
    await push.send([b"123456789"])
    with pytest.raises(ValueError, match="message of 9 bytes"):
        await pull.receive_into(room)
    await push.send([b"1", b"2"])
    with pytest.raises(ValueError, match="1 more frames"):
        await pull.receive_into(room)
    await push.send([b"after"])
    assert await pull.receive_into(room) == 5


async def test_closed_sockets_leave_no_descriptors(make: Maker) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    for round_ in range(3):
        for _ in range(10):
            pull, push = make.pair(zmq.PULL, zmq.PUSH)
            await push.send([b"x"])
            await pull.receive()
            push.close()
            pull.close()
        if round_ == 0:
            before = descriptors()
    await eventually(lambda: descriptors() <= before + 2)  # libzmq's reaper thread closes them

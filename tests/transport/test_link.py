from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
import zmq
import zmq.auth

from stages.messages import PROFILE_DTYPE, Chunk, EndOfStream, PaneReport, StreamEnd, StreamKey, Tick
from streamer.config import TransportConfig
from streamer.transport.codec import encode
from streamer.transport.link import Receiver, Sender
from streamer.transport.security import TransportError, create_keys, load_keys, use_curve
from streamer.transport.sequence import GapDetector, Numbering
from streamer.transport.transport import Address, Transport, addresses, open_transport, with_keys
from tests.growth import grown, sizes
from tests.narrowed import of_type, present
from tests.transport.waiting import eventually

KEY = StreamKey("host", 1, 0, -1)
MODES = ["inproc", "ipc", "tcp"]


def chunk(i: int, size: int = 100) -> Chunk:
    return Chunk(KEY, i, i * size, np.full(size, i % 251, np.uint8))


@asynccontextmanager
async def link(config: TransportConfig, tmp_path: Path) -> AsyncIterator[tuple[Sender, Receiver, Transport]]:
    config = with_keys(config, tmp_path / "session")
    address = addresses(config, tmp_path / "s", ["worker/0"])["worker/0"]
    async with open_transport(config) as transport, trio.open_nursery() as nursery:
        receiver = Receiver(transport, address)
        sender = Sender(transport, address, "capture/0#1")
        nursery.start_soon(receiver.serve)
        yield sender, receiver, transport
        nursery.cancel_scope.cancel()
        sender.close()
        receiver.close()


async def drain(receiver: Receiver, slow: bool = False) -> list[Any]:
    got = list[Any]()
    while True:
        envelope = await receiver.receive()
        if isinstance(envelope.message, EndOfStream):
            receiver.acknowledge(envelope.sender)
            return got
        got.append(envelope.message)
        if slow and len(got) % 50 == 0:
            await trio.sleep(0.002)


@pytest.mark.parametrize("mode", MODES)
async def test_a_slow_reader_at_its_mark_loses_nothing(tmp_path: Path, mode: str) -> None:
    config = TransportConfig(mode=mode, hwm=4)
    result: list[Any] = []
    async with link(config, tmp_path) as (sender, receiver, _):

        async def read() -> None:
            result.extend(await drain(receiver, slow=True))

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                for i in range(1000):
                    assert await sender.send(chunk(i))
                assert await sender.finish("capture/0", 60)
                sender.close()
        assert [c.seq for c in result] == list(range(1000))
        assert receiver.statistics()["missing"] == 0
        assert receiver.statistics()["received"] == 1001


async def test_the_end_is_not_acknowledged_before_it_is_read(tmp_path: Path) -> None:
    async with link(TransportConfig(mode="ipc", hwm=2), tmp_path) as (sender, receiver, _):
        assert await sender.send(chunk(0))
        assert not await sender.finish("capture/0", 0.5)
        assert len(await drain(receiver)) == 1
        assert await sender.finish("capture/0", 60)


async def test_without_room_try_send_says_so_and_leaves_no_gap(tmp_path: Path) -> None:
    config = TransportConfig(mode="inproc", hwm=8)
    async with link(config, tmp_path) as (sender, receiver, _):
        taken = [i for i in range(50) if sender.try_send(chunk(i))]
        assert 0 < len(taken) < 50
        assert sender.statistics()["refused"] == 50 - len(taken)
        with trio.fail_after(120):
            got = [(await receiver.receive()).message.seq for _ in taken]
            assert await sender.send(chunk(50))
            assert (await receiver.receive()).message.seq == 50
        assert got == taken
        assert receiver.statistics()["missing"] == 0


async def test_try_send_to_nobody_is_refused(tmp_path: Path) -> None:
    address = Address(f"ipc://{tmp_path}/none", f"ipc://{tmp_path}/none.acks")
    async with open_transport(TransportConfig()) as transport:
        sender = Sender(transport, address, "s")
        assert not sender.try_send(chunk(0))
        assert not await sender.finish("s", 0.3)


async def test_what_is_lost_on_the_way_is_counted(tmp_path: Path) -> None:
    async with link(TransportConfig(mode="ipc"), tmp_path) as (sender, receiver, _):
        with trio.fail_after(120):
            assert await sender.send(chunk(0))
            sender._numbers.sent(KEY)  # as if libzmq had lost one
            sender._numbers.sent(KEY)
            assert await sender.send(chunk(3))
            for _ in range(2):
                await receiver.receive()
        assert receiver.statistics()["missing"] == 2


async def test_foreign_bytes_are_counted_and_left_out(tmp_path: Path) -> None:
    config = TransportConfig(mode="ipc")
    async with link(config, tmp_path) as (sender, receiver, transport):
        stranger = transport.connect(zmq.PUSH, sender._address.data)
        curious = transport.connect(zmq.DEALER, sender._address.acks)
        with trio.fail_after(120):
            for frames in ([b""], [b"hello", b"world"], [os.urandom(100)] * 5):
                await stranger.send(frames)
            await curious.send([b""])
            await curious.send([b"a", b"b", b"c"])
            await stranger.send([b"last"])
            await eventually(lambda: receiver.try_receive() is None and receiver.rejected == 4)
            assert await sender.send(chunk(1))
            assert (await receiver.receive()).message.seq == 1


async def test_a_replaced_receiver_is_sent_to_again(tmp_path: Path) -> None:
    config = TransportConfig(mode="ipc", hwm=4)
    async with link(config, tmp_path) as (sender, receiver, transport):
        with trio.fail_after(120):
            for i in range(4):
                assert await sender.send(chunk(i))
            await receiver.receive()
            receiver.close()  # its process dies: queued messages are lost
            sender.down()
            assert not sender.try_send(chunk(4))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender.send, chunk(5))  # waits for the new one
                await trio.testing.wait_all_tasks_blocked()
                second = Receiver(transport, sender._address)
                sender.up()
                nursery.start_soon(second.serve)
                assert (await second.receive()).message.seq == 5
                assert second.statistics()["skipped"] == 4
                nursery.start_soon(drain, second)
                assert await sender.finish("capture/0", 60)
                nursery.cancel_scope.cancel()
            second.close()


async def test_the_end_is_sent_again_to_a_replaced_receiver(tmp_path: Path) -> None:
    async with link(TransportConfig(mode="ipc"), tmp_path) as (sender, receiver, transport), trio.open_nursery() as n:
        with trio.fail_after(120):
            acknowledged = []

            async def finish() -> None:
                acknowledged.append(await sender.finish("capture/0", 60))

            n.start_soon(finish)
            assert isinstance((await receiver.receive()).message, EndOfStream)
            receiver.close()
            sender.down()
            second = Receiver(transport, sender._address)
            n.start_soon(second.serve)
            sender.up()
            await drain(second)
            await eventually(lambda: bool(acknowledged))
        assert acknowledged == [True]
        n.cancel_scope.cancel()
        second.close()


async def test_for_a_receiver_gone_for_good_everything_is_dropped_and_counted(tmp_path: Path) -> None:
    async with link(TransportConfig(mode="ipc"), tmp_path) as (sender, _, _):
        sender.down()
        results = []

        async def waiting() -> None:
            results.append(await sender.send(chunk(0)))

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waiting)
                await trio.testing.wait_all_tasks_blocked()
                sender.gone()
        assert results == [False]
        assert not await sender.finish("capture/0", 60)
        assert sender.statistics()["dropped"] == 2


def test_numbers_count_per_stream_and_gaps_are_seen() -> None:
    numbers, gaps = Numbering(), GapDetector()
    for stream in ("a", "b", "a"):
        assert gaps.see("s", stream, numbers.next(stream)) == 0
        numbers.sent(stream)
    assert gaps.see("s", "a", 5) == 3
    assert gaps.see("other", "a", 7) == 0
    assert gaps.see("s", "a", 0) == 0  # begun anew
    assert (gaps.missing, gaps.skipped) == (3, 7)


def test_memory_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.transport.sequence.MAX_STREAMS", 3)
    numbers, gaps = Numbering(), GapDetector()
    for i in range(10):
        numbers.sent(i)
        gaps.see("s", i, 0)
    assert len(numbers._next) == len(gaps._expected) == 3


# ---- addresses and admission


def test_the_directory_of_ipc_sockets_is_private(tmp_path: Path) -> None:
    found = addresses(TransportConfig(mode="ipc"), tmp_path / "d", ["a/0", "a/1"])
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert len({e for a in found.values() for e in a}) == 4
    (tmp_path / "d").chmod(0o755)
    with pytest.raises(TransportError, match="chmod 700"):
        addresses(TransportConfig(mode="ipc"), tmp_path / "d", ["a/0"])


async def test_ipc_files_are_gone_after_close(tmp_path: Path) -> None:
    async with link(TransportConfig(mode="ipc"), tmp_path):
        assert len(list((tmp_path / "s").iterdir())) == 2
    assert not list((tmp_path / "s").iterdir())


def test_a_path_too_long_for_a_socket_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="may have 107 bytes"):
        addresses(TransportConfig(mode="ipc"), tmp_path / ("d" * 100), ["a"])


def test_ports_are_those_configured_or_free(tmp_path: Path) -> None:
    fixed = addresses(TransportConfig(mode="tcp", tcp_port=7000), tmp_path, ["a", "b"])
    assert fixed["b"] == Address("tcp://127.0.0.1:7002", "tcp://127.0.0.1:7003")
    free = addresses(TransportConfig(mode="tcp"), tmp_path, ["a", "b"])
    assert len({e for a in free.values() for e in a}) == 4
    with pytest.raises(TransportError, match="need 4 ports"):
        addresses(TransportConfig(mode="tcp", tcp_port=65533), tmp_path, ["a", "b"])


async def test_an_endpoint_in_use_is_one_clear_error(tmp_path: Path) -> None:
    async with open_transport(with_keys(TransportConfig(mode="tcp"), tmp_path)) as transport:
        first = transport.bind(zmq.PULL, "tcp://127.0.0.1:*")
        with pytest.raises(TransportError, match="cannot listen"):
            transport.bind(zmq.PULL, of_type(bytes, first.raw.last_endpoint).decode())


def test_keys_are_private_and_not_overwritten(tmp_path: Path) -> None:
    create_keys(tmp_path / "k")
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "k" / "own.key_secret").stat().st_mode) == 0o600
    assert load_keys(tmp_path / "k").server == load_keys(tmp_path / "k").public
    with pytest.raises(TransportError, match="a key already"):
        create_keys(tmp_path / "k")
    (tmp_path / "k" / "own.key_secret").chmod(0o644)
    with pytest.raises(TransportError, match="chmod 600"):
        load_keys(tmp_path / "k")
    with pytest.raises(TransportError, match="streamer keys"):
        load_keys(tmp_path / "none")


async def test_tcp_without_keys_is_refused() -> None:
    with pytest.raises(TransportError, match=r"needs transport\.keys"):
        async with open_transport(TransportConfig(mode="tcp")):
            pass


def test_keys_in_a_place_that_others_can_write_are_refused(tmp_path: Path) -> None:
    create_keys(tmp_path / "k")
    (tmp_path / "k" / "peers").chmod(0o777)
    with pytest.raises(TransportError, match=r"bad keys in .*peers can be written by others"):
        load_keys(tmp_path / "k")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(TransportError, match="open to others"):
        create_keys(tmp_path / "open")
    (tmp_path / "file").touch()
    with pytest.raises(TransportError, match="file: Not a directory"):
        with_keys(TransportConfig(mode="tcp"), tmp_path / "file")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_session_has_keys_of_its_own(tmp_path: Path, host: str) -> None:
    config = with_keys(TransportConfig(mode="tcp", tcp_host=host), tmp_path / "s")
    assert config.keys == tmp_path / "s" / "keys"
    assert with_keys(TransportConfig(mode="tcp", tcp_host=host), tmp_path / "s") == config  # taken up again
    keys = load_keys(config.keys)
    assert [path.name for path in keys.peers.iterdir()] == ["own.key"]
    given = TransportConfig(mode="tcp", keys=tmp_path / "other")
    assert with_keys(given, tmp_path / "t") is given
    assert not (tmp_path / "t").exists()
    for mode in ("ipc", "inproc"):
        assert with_keys(TransportConfig(mode=mode), tmp_path / "t").keys is None


def turned_away(receiver: Receiver, at_least: int) -> bool:
    return receiver.statistics()["turned_away"] >= at_least


async def test_nothing_of_a_stranger_arrives_and_it_is_counted(tmp_path: Path) -> None:
    """On loopback, where every user of the machine can connect: without a key, and with keys of another session, a
    report of a method that does not exist is sent to the port of a receiver."""
    config = with_keys(TransportConfig(mode="tcp"), tmp_path)
    assert config.keys is not None
    report = PaneReport("host", 1, 0, 0, np.zeros(1, PROFILE_DTYPE), ((1, "evil.Method.run"),), ())
    foreign = load_keys(create_keys(tmp_path / "theirs").parent)
    known = foreign._replace(server=load_keys(config.keys).public)  # the public key is no secret
    async with link(config, tmp_path) as (sender, receiver, _), open_transport(TransportConfig()) as theirs:

        def plain(_: zmq.Socket[bytes]) -> None: ...

        def guess(raw: zmq.Socket[bytes]) -> None:
            use_curve(raw, foreign)

        def foreign_key(raw: zmq.Socket[bytes]) -> None:
            use_curve(raw, known)

        for number, disguise in enumerate((plain, guess, foreign_key), 1):
            with theirs.context.socket(zmq.PUSH) as raw:
                raw.linger = 0
                disguise(raw)
                raw.connect(sender._address.data)
                raw.send_multipart(encode(report, "decode/0#1", 0))  # queued, for a peer that is never there
                await eventually(partial(turned_away, receiver, number))
        assert await sender.send(Tick("ours", 1, 1))
        assert (await receiver.receive()).message.host == "ours"
        assert receiver.try_receive() is None
        assert receiver.received == 1


async def test_only_listed_keys_come_in(tmp_path: Path) -> None:
    create_keys(tmp_path / "ours")
    create_keys(tmp_path / "stray")  # a good key, but on no list
    (tmp_path / "stray" / "server.key").write_bytes((tmp_path / "ours" / "own.key").read_bytes())
    config = TransportConfig(mode="tcp", keys=tmp_path / "ours")
    stray_config = TransportConfig(mode="tcp", keys=tmp_path / "stray")
    async with (
        link(config, tmp_path) as (sender, receiver, transport),
        open_transport(stray_config) as stray,
    ):
        gatekeeper = present(transport.gatekeeper)
        stranger = Sender(stray, sender._address, "stray")
        with trio.fail_after(120):
            await eventually(lambda: gatekeeper.refused > 0)
            assert await sender.send(Tick("ours", 1, 1))
            assert (await receiver.receive()).message.host == "ours"
            assert not stranger.try_send(Tick("stray", 1, 1))
            (tmp_path / "ours" / "peers" / "friend.key").write_bytes((tmp_path / "stray" / "own.key").read_bytes())
            friend = Sender(stray, sender._address, "friend")
            assert await friend.send(Tick("friend", 1, 1))
            assert (await receiver.receive()).message.host == "friend"
        assert receiver.received == 2


async def test_streams_that_have_ended_are_forgotten_at_both_ends(tmp_path: Path) -> None:
    async with link(TransportConfig(mode="ipc"), tmp_path) as (sender, receiver, _):
        with trio.fail_after(120):
            before = sizes(sender._numbers, receiver.gaps)
            for number in range(300):
                key = KEY._replace(number=number)
                for message in (replace(chunk(0), stream=key), replace(chunk(1), stream=key), StreamEnd(key, 1)):
                    assert await sender.send(message)
                    await receiver.receive()
        assert receiver.statistics()["missing"] == 0
        assert not grown(before, sizes(sender._numbers, receiver.gaps), slack=0)


async def test_numbers_of_messages_that_travel_together(tmp_path: Path) -> None:
    other = StreamKey("host", 1, -1, 5)
    end = StreamEnd(KEY, 9)
    async with link(TransportConfig(mode="inproc"), tmp_path) as (sender, receiver, _):
        together = [chunk(0), replace(chunk(0), stream=other), chunk(1), end, chunk(0), Tick("host", 1, 1)]
        assert sender.try_send(*together)
        assert sender.try_send(chunk(1))
        with trio.fail_after(60):
            got = [await receiver.receive() for _ in range(7)]
        assert [envelope.number for envelope in got] == [0, 0, 1, 2, 0, 0, 1]
        assert (receiver.gaps.missing, receiver.gaps.skipped) == (0, 0)
        assert (sender.sent, receiver.received) == (7, 7)

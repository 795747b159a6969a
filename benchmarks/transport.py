"""Our sockets and links against raw pyzmq, between two processes, in one run.

    python -m benchmarks.transport [--over ipc,tcp] [--sizes 1024,…] [--rounds N] [--megabytes M] [--json]

Contenders, all PUSH → PULL with two frames a message, a small header and the payload:

    raw     blocking pyzmq, one loop around send_multipart and recv_multipart, large frames not copied
    socket  `streamer.transport.socket.Socket` under trio
    link    `Sender` and `Receiver`: codec, sequence numbers, acknowledged end; the message is a `Chunk`

They take turns, round after round. Rates are those of the median round; CPU time is that of both processes, so that
a busy machine changes the rates but hardly the CPU ratio.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import trio
import zmq

from stages.messages import Chunk, EndOfStream, StreamKey
from streamer.config import TransportConfig
from streamer.transport.link import Receiver, Sender
from streamer.transport.transport import Address, addresses, open_transport, with_keys

CONTENDERS = ("raw", "socket", "link")
HEADER = b"h" * 60  # about the size of a Chunk's
HWM = 256


class Result(NamedTuple):
    seconds: float  # from the first message to the last, at the receiver
    cpu: float  # of both processes, for all messages


def payload(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.arange(size, dtype=np.uint64).astype(np.uint8)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# ---- the sending process


def send_raw(address: Address, size: int, count: int) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.sndhwm = HWM // 2
    socket.connect(address.data)
    data = payload(size)
    for _ in range(count):
        socket.send_multipart((HEADER, data.data), copy=False)
    socket.close()
    context.term()


async def send_ours(contender: str, config: TransportConfig, address: Address, size: int, count: int) -> None:
    data = payload(size)
    async with open_transport(config) as transport:
        if contender == "socket":
            socket = transport.connect(zmq.PUSH, address.data)
            for _ in range(count):
                await socket.send((HEADER, data.data))
            socket.close(60_000)
            return
        sender = Sender(transport, address, "benchmark")
        key = StreamKey("host", 1, 0, -1)
        for i in range(count):
            await sender.send(Chunk(key, i, i * size, data))
        if not await sender.finish("benchmark", 60):
            raise SystemExit("the end was not acknowledged")
        sender.close()


def send(contender: str, config: TransportConfig, address: Address, size: int, count: int) -> None:
    before = cpu_seconds()
    if contender == "raw":
        send_raw(address, size, count)
    else:
        trio.run(send_ours, contender, config, address, size, count)
    print(cpu_seconds() - before)


# ---- the receiving process


def receive_raw(address: Address, count: int) -> tuple[float, float]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.rcvhwm = HWM // 2
    socket.bind(address.data)
    socket.recv_multipart(copy=False)
    started, cpu = time.perf_counter(), cpu_seconds()
    for _ in range(count - 1):
        socket.recv_multipart(copy=False)
    result = time.perf_counter() - started, cpu_seconds() - cpu
    socket.close()
    context.term()
    return result


async def receive_ours(contender: str, config: TransportConfig, address: Address, count: int) -> tuple[float, float]:
    async with open_transport(config) as transport:
        if contender == "socket":
            with transport.bind(zmq.PULL, address.data) as socket:
                await socket.receive()
                started, cpu = time.perf_counter(), cpu_seconds()
                for _ in range(count - 1):
                    await socket.receive()
                return time.perf_counter() - started, cpu_seconds() - cpu
        receiver = Receiver(transport, address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiver.serve)
            await receiver.receive()
            started, cpu = time.perf_counter(), cpu_seconds()
            for _ in range(count - 1):
                await receiver.receive()
            result = time.perf_counter() - started, cpu_seconds() - cpu
            envelope = await receiver.receive()
            if not isinstance(envelope.message, EndOfStream) or receiver.gaps.missing:
                raise SystemExit("messages were lost")
            receiver.acknowledge(envelope.sender)
            await receiver.settle()
            nursery.cancel_scope.cancel()
        receiver.close()
        return result


def measure(contender: str, over: str, size: int, count: int) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        config = with_keys(TransportConfig(mode="tcp" if over == "tcp" else "ipc", hwm=HWM), Path(directory))
        address = addresses(config, Path(directory), ["receiver"])["receiver"]
        command = [
            sys.executable,
            "-m",
            "benchmarks.transport",
            "--send",
            contender,
            *address,
            over,
            directory,
            str(size),
        ]
        with subprocess.Popen([*command, str(count)], stdout=subprocess.PIPE, text=True) as sender:
            if contender == "raw":
                seconds, cpu = receive_raw(address, count)
            else:
                seconds, cpu = trio.run(receive_ours, contender, config, address, count)
            said, _ = sender.communicate(timeout=60)
    return Result(seconds, cpu + float(said))


def run(over: str, size: int, count: int, rounds: int) -> list[dict[str, Any]]:
    results: dict[str, list[Result]] = {c: [] for c in CONTENDERS}
    for _ in range(rounds):
        for contender in CONTENDERS:
            results[contender].append(measure(contender, over, size, count))
    rows: list[dict[str, Any]] = []
    for contender in CONTENDERS:
        seconds = statistics.median(r.seconds for r in results[contender])
        cpu = statistics.median(r.cpu for r in results[contender])
        rows.append(
            {
                "over": over,
                "bytes": size,
                "messages": count,
                "contender": contender,
                "messages_per_second": round(count / seconds),
                "gigabytes_per_second": round(count * size / seconds / 1e9, 3),
                "cpu_microseconds_per_message": round(cpu / count * 1e6, 2),
            }
        )
    for row in rows:
        row["rate_ratio"] = round(row["messages_per_second"] / rows[0]["messages_per_second"], 2)
        row["cpu_ratio"] = round(row["cpu_microseconds_per_message"] / rows[0]["cpu_microseconds_per_message"], 2)
    return rows


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--send"]:
        contender, data, acks, over, directory, *numbers = arguments[1:]
        config = with_keys(TransportConfig(mode="tcp" if over == "tcp" else "ipc", hwm=HWM), Path(directory))
        send(contender, config, Address(data, acks), int(numbers[0]), int(numbers[1]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--over", default="ipc", help="ipc, tcp or both, with a comma")
    parser.add_argument("--sizes", default="1024,65536,262144,1048576", help="payload bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=512, help="about so much a round, at most 50,000 messages")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for over in options.over.split(","):
        for size in map(int, options.sizes.split(",")):
            count = max(100, min(50_000, options.megabytes * 1_000_000 // size))
            rows += run(over, size, count, options.rounds)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'over':5}{'bytes':>9}  {'':8}{'msg/s':>9}{'GB/s':>8}{'ratio':>7}{'CPU µs/msg':>12}{'ratio':>7}")
    for r in rows:
        print(
            f"{r['over']:5}{r['bytes']:>9}  {r['contender']:8}{r['messages_per_second']:>9}"
            f"{r['gigabytes_per_second']:>8.3f}{r['rate_ratio']:>7.2f}"
            f"{r['cpu_microseconds_per_message']:>12.2f}{r['cpu_ratio']:>7.2f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])

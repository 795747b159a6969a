"""Where sockets come from: one libzmq context, the limits and the security that the configuration asks for."""

from __future__ import annotations

import os
import socket as stdlib_socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import trio
import zmq

from jvm.private import PrivacyError, private_directory
from streamer.config import TransportConfig
from streamer.transport import codec
from streamer.transport.security import (
    Gatekeeper,
    Keys,
    TransportError,
    load_keys,
    serve_curve,
    session_keys,
    use_curve,
)
from streamer.transport.socket import Socket

ACK_LINGER_MS = 1000  # how long a closing receiver tries to hand over its last acknowledgements
MAX_IPC_PATH = 107  # sizeof(sockaddr_un.sun_path) − 1, unix(7)


class Address(NamedTuple):
    """Two ZeroMQ endpoints of one receiver: where messages go, and where the end of a stream is asked for."""

    data: str
    acks: str


def addresses(config: TransportConfig, directory: Path, names: list[str]) -> dict[str, Address]:
    """One address for each receiver name, none used twice. `directory` (for ipc) is made private.
    Raises `TransportError`."""
    if config.mode == "inproc":
        return {n: Address(f"inproc://{directory}/{n}", f"inproc://{directory}/{n}.acks") for n in names}
    if config.mode == "ipc":
        try:
            private_directory(directory)  # ipc sockets follow the umask: their directory keeps other users out
        except PrivacyError as error:
            raise TransportError(str(error)) from None
        paths = {n: directory / f"{n.replace('/', '-')}.ipc" for n in names}
        for path in paths.values():
            if len(os.fsencode(path)) + len(".acks") > MAX_IPC_PATH:
                raise TransportError(f"{path}: a socket's path may have {MAX_IPC_PATH} bytes; use another runtime_dir")
        return {n: Address(f"ipc://{path}", f"ipc://{path}.acks") for n, path in paths.items()}
    ports = (
        list(range(config.tcp_port, config.tcp_port + 2 * len(names)))
        if config.tcp_port
        else free_ports(config.tcp_host, 2 * len(names))
    )
    if ports and ports[-1] > 65535:
        raise TransportError(f"{len(names)} receivers need {2 * len(names)} ports from {config.tcp_port} on")
    urls = [f"tcp://{config.tcp_host}:{port}" for port in ports]
    return {n: Address(urls[2 * i], urls[2 * i + 1]) for i, n in enumerate(names)}


def with_keys(config: TransportConfig, directory: Path) -> TransportConfig:
    """tcp with no keys of its own gets some that are made for the session in `directory`. Raises `TransportError`."""
    if config.mode != "tcp" or config.keys is not None:
        return config
    return config.model_copy(update={"keys": session_keys(directory)})


def free_ports(host: str, count: int) -> list[int]:
    """Ports without a listener now. They are free again when this returns; a bind that loses the race is an error
    there."""
    held = []
    try:
        for _ in range(count):
            held.append(stdlib_socket.socket())
            held[-1].bind((host, 0))
        return [s.getsockname()[1] for s in held]
    except OSError as error:
        raise TransportError(f"no free port on {host}: {error}") from None
    finally:
        for s in held:
            s.close()


class Transport:
    """A context and the sockets in it. Make with `open_transport`."""

    def __init__(self, config: TransportConfig, keys: Keys | None = None) -> None:
        self.config = config
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._keys = keys
        self._sockets: list[Socket] = []
        self.gatekeeper = Gatekeeper(self.context, keys) if keys else None
        # libzmq counts messages on both sides of a pipe; half each keeps the sum near the configured limit. 0 would
        # mean "no limit".
        self._hwm = max(1, (config.hwm + 1) // 2)

    def bind(self, kind: int, endpoint: str) -> Socket:
        """Raises `TransportError` if the endpoint cannot be had."""
        raw = self._raw(kind)
        if self._keys and self.gatekeeper and endpoint.startswith("tcp:"):
            serve_curve(raw, self._keys)
            self.gatekeeper.watch(raw)
        try:
            raw.bind(endpoint)
        except zmq.ZMQError as error:
            raw.close(0)
            raise TransportError(f"cannot listen on {endpoint}: {error}") from None
        return self._keep(raw)

    def connect(self, kind: int, endpoint: str) -> Socket:
        """Connects in the background, and again whenever the peer comes back."""
        raw = self._raw(kind)
        if self._keys and endpoint.startswith("tcp:"):
            use_curve(raw, self._keys)
        raw.immediate = 1  # nothing is queued towards a peer that is not there: `try_send` says so
        raw.reconnect_ivl = 20
        raw.reconnect_ivl_max = 500
        try:
            raw.connect(endpoint)
        except zmq.ZMQError as error:
            raw.close(0)
            raise TransportError(f"cannot connect to {endpoint}: {error}") from None
        return self._keep(raw)

    @property
    def turned_away(self) -> int:
        """Peers that were not let in."""
        return self.gatekeeper.refused if self.gatekeeper else 0

    def _raw(self, kind: int) -> zmq.Socket[bytes]:
        raw = self.context.socket(kind)
        raw.linger = 0
        raw.sndhwm = raw.rcvhwm = self._hwm
        # A peer that sends more is disconnected without a word. Ours cannot: `encode` has the same limit.
        raw.maxmsgsize = max(codec.MAX_FRAME, codec.MAX_HEADER)
        return raw

    def _keep(self, raw: zmq.Socket[bytes]) -> Socket:
        self._sockets = [s for s in self._sockets if not s.closed]
        self._sockets.append(Socket(raw))
        return self._sockets[-1]

    async def close(self) -> None:
        """Close every socket and end the context: waits for nothing but the bounded linger of acknowledgements."""
        for socket in self._sockets:
            socket.close()
        if self.gatekeeper:
            self.gatekeeper.close()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.context.term)


def unlink_endpoint(endpoint: str) -> None:
    """libzmq leaves the file of an ipc endpoint behind."""
    if endpoint.startswith("ipc://"):
        with suppress(OSError):
            Path(endpoint[len("ipc://") :]).unlink()


@asynccontextmanager
async def open_transport(config: TransportConfig) -> AsyncIterator[Transport]:
    """Raises `TransportError` if the configuration asks for a transport that is not allowed or not possible."""
    keys = None
    if config.mode == "tcp":
        if config.keys is None:
            raise TransportError("tcp needs transport.keys, the directory made by `streamer keys`")
        keys = load_keys(config.keys)
    transport = Transport(config, keys)
    if transport.gatekeeper:
        # a system task, because it serves all nurseries that use the transport and belongs to none
        trio.lowlevel.spawn_system_task(transport.gatekeeper.serve, name="zap")
    try:
        yield transport
    finally:
        await transport.close()

"""CURVE keys: the peers that may connect over tcp. On loopback too, for every user of this machine can connect there.

Keys are made for a session in its directory, or given by `transport.keys` where hosts connect to each other. A
directory of keys holds

    own.key_secret, own.key     this host's key pair (0600; directory 0700)
    peers/<name>.key            public keys that may connect, one file each: the allow-list
    server.key                  public key of the host to connect to (absent: our own)

Without a ZAP handler CURVE admits every holder of any key (RFC 27), so a transport with CURVE always runs one
and asks this allow-list.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import trio
import zmq
import zmq.auth
from zmq.auth.base import Authenticator
from zmq.utils.monitor import parse_monitor_message

from jvm.faults import ExpectedError
from jvm.private import PrivacyError, is_ours, private_directory, safe_directory
from streamer.transport.socket import Socket

log = logging.getLogger(__name__)

_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)  # fmt: skip


class TransportError(ExpectedError):
    """A transport that cannot be set up as configured: one clear line."""


class Keys(NamedTuple):
    """Z85 keys (40 bytes each) and the allow-list's directory."""

    public: bytes
    secret: bytes
    server: bytes
    peers: Path


def create_keys(directory: Path) -> Path:
    """A new key pair in `directory` (made 0700), allowed to connect to itself. The path of the public key, to be
    copied into the `peers` of others. Raises `TransportError` if there is a key already."""
    try:
        private_directory(directory)
    except PrivacyError as error:
        raise TransportError(str(error)) from None
    if (directory / "own.key_secret").exists():
        raise TransportError(f"{directory} holds a key already")
    public, secret = zmq.auth.create_certificates(directory, "own")
    Path(secret).chmod(0o600)
    peers = directory / "peers"
    peers.mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(public, peers / "own.key")
    return Path(public)


def session_keys(directory: Path) -> Path:
    """The directory of the keys of the session in `directory`, made if they are not there. Raises `TransportError`."""
    keys = directory / "keys"
    if not (keys / "own.key_secret").exists():
        try:
            create_keys(keys)
        except OSError as error:
            raise TransportError(f"no keys can be made in {keys}: {error.strerror}") from error
    return keys


def load_keys(directory: Path) -> Keys:
    """Raises `TransportError`, which names the remedy, if keys are absent, unreadable or open to other users."""
    secret_file = directory / "own.key_secret"
    if not secret_file.is_file():
        raise TransportError(f"no key in {directory}: create one with `streamer keys {directory}`")
    status = secret_file.lstat()
    if not is_ours(status) or status.st_mode & 0o077:
        raise TransportError(f"{secret_file} must belong to you alone: chmod 600")
    server_file = directory / "server.key"
    try:
        safe_directory(directory / "peers")
        public, secret = zmq.auth.load_certificate(secret_file)
        server = zmq.auth.load_certificate(server_file)[0] if server_file.exists() else public
        zmq.auth.load_certificates(directory / "peers")
    except (OSError, ValueError, PrivacyError) as error:
        raise TransportError(f"bad keys in {directory}: {error}") from None
    if secret is None:
        raise TransportError(f"{secret_file} holds no secret key")
    return Keys(public, secret, server, directory / "peers")


def serve_curve(raw: zmq.Socket[bytes], keys: Keys) -> None:
    """Make a socket that will bind ask for CURVE."""
    raw.curve_server = 1
    raw.curve_secretkey = keys.secret
    raw.curve_publickey = keys.public
    raw.zap_domain = b"streamer"


def use_curve(raw: zmq.Socket[bytes], keys: Keys) -> None:
    """Make a socket that will connect show our key, and accept the server's alone."""
    raw.curve_serverkey = keys.server
    raw.curve_secretkey = keys.secret
    raw.curve_publickey = keys.public


class Gatekeeper:
    """The ZAP handler of one context: admits the allow-list, read again for each newcomer, and counts the rest: clients
    not on it (such a client does not try again with the same socket, libzmq ends its session), and, of sockets that are
    watched, clients that do not even speak CURVE, or not to our key."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: Keys) -> None:
        self._context, self._peers = context, keys.peers
        self._watched: list[Socket] = []
        self._authenticator = Authenticator(context, log=log)
        self._authenticator.configure_curve_callback("streamer", self)
        self._authenticator.start()
        self._socket = Socket(self._authenticator.zap_socket)
        self.admitted = self.refused = 0

    def callback(self, domain: str, key: bytes) -> bool:
        """pyzmq's question: may the holder of this public key (Z85) come in?"""
        try:
            known = key in zmq.auth.load_certificates(self._peers)
        except (OSError, ValueError):
            known = False
        self.admitted += known
        return known  # if not, the watch on the socket sees the handshake fail

    async def serve(self) -> None:
        """Answers libzmq until closed."""
        with suppress(trio.ClosedResourceError):
            while True:
                request = [bytes(frame) for frame in await self._socket.receive()]
                await self._authenticator.handle_zap_message(request)

    def watch(self, raw: zmq.Socket[bytes]) -> None:
        """Count the handshakes that fail at a socket that will bind, until it is closed."""
        place = f"inproc://refused-{id(raw)}"
        raw.monitor(place, _FAILED | zmq.EVENT_MONITOR_STOPPED)
        events = self._context.socket(zmq.PAIR)
        events.linger = 0
        events.rcvhwm = 0  # libzmq's I/O thread would wait for room
        events.connect(place)
        self._watched.append(Socket(events))
        # a system task, like that of `serve`: it belongs to the socket
        trio.lowlevel.spawn_system_task(self._count, self._watched[-1], name="refused")

    async def _count(self, events: Socket) -> None:
        with suppress(trio.ClosedResourceError), events:
            while True:
                event = parse_monitor_message([bytes(frame) for frame in await events.receive()])["event"]
                if event == zmq.EVENT_MONITOR_STOPPED:
                    break
                self.refused += 1
        self._watched.remove(events)

    def close(self) -> None:
        for socket in (self._socket, *self._watched):
            socket.close()

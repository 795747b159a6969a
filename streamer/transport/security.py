"""CURVE keys: who may connect where traffic leaves this machine.

A directory of keys holds

    own.key_secret, own.key     this host's key pair (0600; directory 0700)
    peers/<name>.key            public keys that may connect, one file each: the allow-list
    server.key                  public key of the host to connect to (absent: our own)

Without a ZAP handler CURVE admits every holder of any key (RFC 27), so a transport with CURVE always runs one
and asks this allow-list.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import trio
import zmq
import zmq.auth
from zmq.auth.base import Authenticator

from streamer.transport.socket import Socket

log = logging.getLogger(__name__)


class TransportError(Exception):
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
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (directory / "own.key_secret").exists():
        raise TransportError(f"{directory} holds a key already")
    public, secret = zmq.auth.create_certificates(directory, "own")
    Path(secret).chmod(0o600)
    peers = directory / "peers"
    peers.mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(public, peers / "own.key")
    return Path(public)


def load_keys(directory: Path) -> Keys:
    """Raises `TransportError`, saying what to do, if keys are absent, unreadable or open to other users."""
    secret_file = directory / "own.key_secret"
    if not secret_file.is_file():
        raise TransportError(f"no key in {directory}: create one with `streamer keys {directory}`")
    if secret_file.stat().st_mode & 0o077 or secret_file.stat().st_uid != os.getuid():
        raise TransportError(f"{secret_file} must belong to you alone: chmod 600")
    server_file = directory / "server.key"
    try:
        public, secret = zmq.auth.load_certificate(secret_file)
        server = zmq.auth.load_certificate(server_file)[0] if server_file.exists() else public
        zmq.auth.load_certificates(directory / "peers")
    except (OSError, ValueError) as error:
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
    """The ZAP handler of one context: admits the allow-list, read again for each newcomer, and counts the rest.
    A client that is refused does not try again with the same socket (libzmq ends its session)."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: Keys) -> None:
        self._peers = keys.peers
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
        self.refused += not known
        return known

    async def serve(self) -> None:
        """Answers libzmq until closed."""
        with suppress(trio.ClosedResourceError):
            while True:
                request = [bytes(frame) for frame in await self._socket.receive()]
                await self._authenticator.handle_zap_message(request)

    def close(self) -> None:
        self._socket.close()

"""The socket of the page: where it listens, if it may, and what its address is. Without the server behind it."""

from __future__ import annotations

import errno
import socket

from jvm.faults import ExpectedError
from streamer.config import WebConfig
from streamer.views.addresses import is_loopback
from streamer.views.certificate import Pair
from streamer.views.token import Token

STALLED_SECONDS = 20.0
"""That a client may leave all buffers on the way to it full: the kernel then ends the connection (tcp(7),
TCP_USER_TIMEOUT). The server's own writes have no deadline, and cannot be cancelled."""


class WebError(ExpectedError):
    """The address cannot be served on; the message names the cause and the remedy."""


def listen(config: WebConfig) -> socket.socket:
    """A listening socket on the configured address, if it may be served on. Raises WebError."""
    where = f"{config.host}:{config.port}"
    try:
        Token(config.token_file)
        Pair.of(config.tls_certificate, config.tls_key)
    except ValueError as error:
        raise WebError(str(error)) from None
    if config.token_file is None and not config.anyone and not is_loopback(config.host):
        raise WebError(
            f"{config.host} is not loopback, and whoever reaches it could read names of methods and shares: "
            "ask for a token (--token-file), or allow it (--anyone)"
        )
    try:
        info = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(info[4][:2], family=info[0])
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(STALLED_SECONDS * 1000))  # inherited
        return listener
    except socket.gaierror as error:
        raise WebError(f"cannot serve on {where}: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise WebError(
                f"port {config.port} on {config.host} is in use: stop what uses it or choose another (0: any free one)"
            ) from None
        raise WebError(f"cannot serve on {where}: {error.strerror}") from None


def url_of(listener: socket.socket, config: WebConfig) -> str:
    """Of the page."""
    host, port = listener.getsockname()[:2]
    scheme = "http" if config.tls_certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

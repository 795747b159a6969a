"""The line between the supervisor and a member: JSON lines over a socket pair.

It needs no name and no key, and its end says that the other side is gone, however it died.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import trio

MAX_LINE = 8 << 20

Words = dict[str, Any]


def _plain(value: Any) -> Any:
    """numpy scalars in statistics; anything else by its name."""
    return value.item() if hasattr(value, "item") else str(value)


class Control:
    """One end. One task may `hear`; any number may `say`."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._lock = trio.Lock()
        self._buffer = bytearray()

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Control:
        return cls(trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor))))

    async def say(self, **words: Any) -> bool:
        """False if the other end has closed."""
        line = json.dumps(words, default=_plain).encode() + b"\n"
        async with self._lock:
            try:
                await self._stream.send_all(line)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
        return True

    async def hear(self) -> Words | None:
        """The next line; None at the end, also if the other side breaks the rules."""
        while b"\n" not in self._buffer:
            try:
                data = await self._stream.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if not data or len(self._buffer) > MAX_LINE:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            words = json.loads(line)
        except ValueError:
            return None
        return words if isinstance(words, dict) else None

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)


def control_pair() -> tuple[Control, socket.socket]:
    """Our end, and the other as a plain socket: for a child (`fileno`), or for `Control` in this process."""
    ours, theirs = socket.socketpair()
    return Control(trio.SocketStream(trio.socket.from_stdlib_socket(ours))), theirs

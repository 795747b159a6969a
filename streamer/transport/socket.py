"""A ZeroMQ socket for trio: thin, and right about the edge-triggered file descriptor.

libzmq's ZMQ_FD only ever becomes readable, and it is edge-triggered: it says "look at ZMQ_EVENTS", not "readable".
Any operation on the socket, a send too, may consume the edge that another task is waiting for (zmq_getsockopt(3),
ZMQ_FD). Hence the rules this file follows:

- try NOBLOCK first; on EAGAIN read ZMQ_EVENTS; only if that says no, wait for the descriptor;
- one task waits for the descriptor, the others in a parking lot; a waking task wakes all, and each looks for itself;
- after each operation, if a task waits for an event that ZMQ_EVENTS now shows, all are woken.

Cancellation: every checkpoint comes *before* the NOBLOCK operation, none after it. So a cancelled `receive` has not
taken a message and a cancelled `send` has not sent one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import trio
import zmq

CHECKPOINT_EVERY = 64  # messages between two visits to the scheduler when the socket never blocks
COPY_BELOW = 4096  # bytes; a received frame below this is copied: it would pin libzmq's whole read buffer

Buffer = bytes | memoryview


@dataclass(slots=True)
class SocketStatistics:
    """Counters since the socket was made. `refused`: `try_send` that did not fit; `waits`: descriptor waits."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    refused: int = 0
    waits: int = 0


class Socket:
    """Owns `raw`, an ordinary `zmq.Socket`, and closes it. Use from one trio thread; any number of tasks."""

    def __init__(self, raw: zmq.Socket[bytes]) -> None:
        self.raw = raw
        self.counters = SocketStatistics()
        self._fd = int(raw.getsockopt(zmq.FD))
        self._lot = trio.lowlevel.ParkingLot()
        self._watch: trio.CancelScope | None = None  # of the one task that waits for the descriptor
        self._wanted = {int(zmq.POLLIN): 0, int(zmq.POLLOUT): 0}  # how many tasks wait for each event
        self._since_checkpoint = 0

    # ---- sending

    def try_send(self, frames: Sequence[Buffer]) -> bool:
        """Send without waiting; False if no peer has room (nothing was sent). Frames must not change afterwards:
        large ones are not copied. Raises `trio.ClosedResourceError`."""
        sent = self._send(frames, False) is not None
        self.counters.refused += not sent
        return sent

    async def send(self, frames: Sequence[Buffer], *, track: bool = False) -> zmq.MessageTracker | None:
        """Send, waiting for room. With `track` the result's `done` says when libzmq has let go of the frames, so
        that their memory may be written again. A cancelled send has sent nothing."""
        await self.checkpoint()
        while True:
            tracker = self._send(frames, track)
            if tracker is not None:
                return tracker if isinstance(tracker, zmq.MessageTracker) else None
            await self.wait_writable()

    def _send(self, frames: Sequence[Buffer], track: bool) -> zmq.MessageTracker | bool | None:
        """None: EAGAIN. libzmq takes a multipart message whole or not at all: once the first frame has found a
        pipe, the rest follows it there regardless of the high-water mark."""
        self._check_open()
        # pyzmq's own tracker of a multipart message covers its last frame only
        tracked = [zmq.Frame(f, track=True, copy=False) for f in frames] if track else []
        try:
            self.raw.send_multipart(tracked or frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        except zmq.ZMQError as error:
            raise self._closed(error) from None
        self.counters.sent += 1
        self.counters.sent_bytes += sum(map(len, frames))
        self._after_operation()
        return zmq.MessageTracker(*tracked) if tracked else True

    # ---- receiving

    def try_receive(self) -> list[Buffer] | None:
        """A message without waiting, or None. Large frames are views of libzmq's memory, to be read only."""
        self._check_open()
        try:
            frames = self.raw.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        except zmq.ZMQError as error:
            raise self._closed(error) from None
        message: list[Buffer] = [f.bytes if len(f) < COPY_BELOW else f.buffer.toreadonly() for f in frames]
        self.counters.received += 1
        self.counters.received_bytes += sum(map(len, message))
        self._after_operation()
        return message

    async def receive(self) -> list[Buffer]:
        """The next message. A cancelled receive has taken none."""
        await self.checkpoint()
        while True:
            message = self.try_receive()
            if message is not None:
                return message
            await self.wait_readable()

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive a single-frame message into `buffer`; its size. zmq_recv truncates without an error and returns
        the true size: compared here, `ValueError` if the message was larger (it is lost) or had more frames."""
        await self.checkpoint()
        while True:
            self._check_open()
            try:
                size = self.raw.recv_into(buffer, flags=zmq.NOBLOCK)
                break
            except zmq.Again:
                await self.wait_readable()
            except zmq.ZMQError as error:
                raise self._closed(error) from None
        rest = self.raw.recv_multipart(zmq.NOBLOCK) if self.raw.getsockopt(zmq.RCVMORE) else []
        self.counters.received += 1
        self.counters.received_bytes += size
        self._after_operation()
        if size > buffer.nbytes or rest:
            raise ValueError(f"message of {size} bytes and {len(rest)} more frames; room for one of {buffer.nbytes}")
        return size

    # ---- waiting

    async def checkpoint(self) -> None:
        """A cancellation point; every `CHECKPOINT_EVERY` calls also a turn for the other tasks."""
        self._since_checkpoint += 1
        if self._since_checkpoint >= CHECKPOINT_EVERY:
            self._since_checkpoint = 0
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    @property
    def writable(self) -> bool:
        """Whether `try_send` would succeed now."""
        return bool(self._events() & zmq.POLLOUT)

    async def wait_readable(self) -> None:
        """Until `try_receive` will find a message, unless another task takes it first."""
        await self._wait(zmq.POLLIN)

    async def wait_writable(self) -> None:
        """Until `try_send` will find room, unless another task takes it first."""
        await self._wait(zmq.POLLOUT)

    async def _wait(self, flag: int) -> None:
        """Until ZMQ_EVENTS shows `flag`."""
        self._since_checkpoint = 0
        self._wanted[flag] += 1
        try:
            while not self._events() & flag:
                if self._watch is not None:
                    await self._lot.park()
                    continue
                self.counters.waits += 1
                with trio.CancelScope() as self._watch:
                    try:
                        await trio.lowlevel.wait_readable(self._fd)
                    finally:
                        self._watch = None
                        self._lot.unpark_all()  # on cancellation too: another must take over the watch
        finally:
            self._wanted[flag] -= 1

    def _events(self) -> int:
        self._check_open()
        events = int(self.raw.getsockopt(zmq.EVENTS))
        self._wake_for(events)
        return events

    def _after_operation(self) -> None:
        if self._watch is not None:
            self._wake_for(int(self.raw.getsockopt(zmq.EVENTS)))

    def _wake_for(self, events: int) -> None:
        if any(events & flag and waiting for flag, waiting in self._wanted.items()):
            if self._watch is not None:
                self._watch.cancel()
            self._lot.unpark_all()

    # ---- the end

    def close(self, linger_ms: int = 0) -> None:
        """Close at once; waiting calls of other tasks get `trio.ClosedResourceError`. Messages not yet written to the
        peer are dropped after `linger_ms`, and libzmq's linger does not save messages that the *peer* has not read: to
        lose nothing, have the peer acknowledge the end first (`streamer.transport.link`)."""
        if not self.raw.closed:
            if self._watch is not None:
                trio.lowlevel.notify_closing(self._fd)  # before libzmq closes it and the number is used again
            self._lot.unpark_all()
            self.raw.close(linger_ms)

    @property
    def closed(self) -> bool:
        return bool(self.raw.closed)

    def _check_open(self) -> None:
        if self.raw.closed:
            raise trio.ClosedResourceError("socket is closed")

    def _closed(self, error: zmq.ZMQError) -> BaseException:
        """ENOTSOCK and ETERM mean closed; anything else is itself."""
        return trio.ClosedResourceError(str(error)) if error.errno in (zmq.ENOTSOCK, zmq.ETERM) else error

    def statistics(self) -> dict[str, int]:
        c = self.counters
        return {name: getattr(c, name) for name in c.__slots__}

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

"""A link: one sender's PUSH to one receiver's PULL, and the acknowledged end.

libzmq drops the messages that a PULL has not read yet when its peer hangs up, even if the peer lingers for ever. So a
sender closes only after the receiver has said that it *has* the end-of-stream message, which is behind all others in
the same pipe. PUSH cannot hear, so the question travels over a second pair of sockets (DEALER → ROUTER): the sender
asks "have you seen my end?", and the answer comes when the receiver's owner calls `acknowledge`.

Back-pressure is explicit: `try_send` says that there is no room; `send` waits. While a receiver's process is being
replaced its senders are `down`: messages queued towards the dead one are gone, nothing is queued, `send` waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import trio
import zmq

from stages.messages import EndOfStream, StreamEnd
from streamer.transport.codec import CodecError, Envelope, decode_all, encode
from streamer.transport.sequence import GapDetector, Numbering, stream_of
from streamer.transport.socket import Buffer, Socket
from streamer.transport.transport import ACK_LINGER_MS, Address, Transport, unlink_endpoint

ASK_EVERY = 0.2  # seconds between two questions for the end; a restarted receiver has not heard the earlier ones
MAX_ASKING = 4096  # open questions remembered; a sender asks again


class Sender:
    """`name` must differ for each sender and each of its incarnations: numbers are counted per name."""

    def __init__(self, transport: Transport, address: Address, name: str) -> None:
        self._transport = transport
        self._address = address
        self.name = name
        self._numbers = Numbering()
        self._socket: Socket | None = transport.connect(zmq.PUSH, address.data)
        self._gone = False
        self._changed = trio.Event()  # set, and replaced, at each change of `_socket` or `_gone`
        self.sent = self.sent_bytes = self.refused = self.dropped = self.reopened = 0

    # ---- messages

    def try_send(self, *messages: Any) -> bool:
        """All of them together or none, without waiting; False, and counted, if the receiver has no room or is not
        there. True, and counted as dropped, if it is gone for good: another try would not help. Raises `CodecError`."""
        if self._gone:
            self.dropped += len(messages)
            return True
        if self._socket is not None and self._attempt(self._socket, *messages):
            return True
        self.refused += len(messages)
        return False

    async def send(self, message: Any, *, while_up: bool = False) -> bool:
        """Waits for room. False, and counted as dropped, only if the receiver is gone for good, or (`while_up`) if
        it is down. A cancelled send has sent nothing. Raises `CodecError`; `trio.ClosedResourceError` after
        `close`."""
        while True:
            socket = self._socket
            if self._gone or (while_up and socket is None):
                self.dropped += 1
                return False
            if socket is None:
                await self._changed.wait()
                continue
            await socket.checkpoint()
            try:
                if self._attempt(socket, message):
                    return True
                await socket.wait_writable()
            except trio.ClosedResourceError:
                if socket is self._socket:
                    raise

    def _attempt(self, socket: Socket, *messages: Any) -> bool:
        # A number is used only when its message has gone: a refused message leaves no gap behind it.
        frames, numbers = list[Buffer](), dict[Hashable, int]()
        for message in messages:
            stream = stream_of(message)
            number = numbers.get(stream, self._numbers.next(stream))
            frames += encode(message, self.name, number)
            numbers[stream] = 0 if isinstance(message, StreamEnd) else number + 1
        if not socket.try_send(frames):
            return False
        for message in messages:
            stream = stream_of(message)
            self._numbers.sent(stream)
            if isinstance(message, StreamEnd):
                self._numbers.ended(stream)
        self.sent += len(messages)
        self.sent_bytes += sum(map(len, frames))
        return True

    @property
    def has_room(self) -> bool:
        """Whether `try_send` would take a message."""
        return self._socket is not None and self._socket.writable

    async def wait_room(self) -> None:
        """Until `try_send` would take a message, or, if the receiver is not there, until its fate changes."""
        if self._socket is None:
            await self._changed.wait()
        else:
            with suppress(trio.ClosedResourceError):
                await self._socket.wait_writable()

    # ---- the receiver's fate

    @property
    def is_up(self) -> bool:
        return self._socket is not None

    async def wait_up(self) -> bool:
        """Until the receiver is there; False if it will not come back."""
        while self._socket is None and not self._gone:
            await self._changed.wait()
        return not self._gone

    def down(self) -> None:
        """The receiver has died: forget the messages queued towards it."""
        if self._socket is not None:
            self._replace(None)

    def up(self) -> None:
        """A new receiver is there."""
        self.reopened += 1
        self._gone = False
        self._replace(self._transport.connect(zmq.PUSH, self._address.data))

    def gone(self) -> None:
        """The receiver will not come back: everything for it is dropped and counted."""
        self._gone = True
        self._replace(None)

    def _replace(self, socket: Socket | None) -> None:
        old, self._socket = self._socket, socket
        if old is not None:
            old.close()
        self._changed.set()
        self._changed = trio.Event()

    # ---- the end

    async def finish(self, source: str, seconds: float) -> bool:
        """Send the end of stream and wait until the receiver has it: True. False if it is gone or does not answer
        within `seconds`. Sent again if the receiver is replaced meanwhile."""
        with trio.move_on_after(seconds):
            while await self.send(EndOfStream(source)):
                opened = self.reopened
                with self._transport.connect(zmq.DEALER, self._address.acks) as asker:
                    while opened == self.reopened and not self._gone:
                        with trio.move_on_after(ASK_EVERY):
                            await asker.send([self.name.encode()])
                            await asker.receive()
                            return True
        return False

    def close(self) -> None:
        """At once. Messages not acknowledged may be lost."""
        if self._socket is not None:
            self._socket.close()
        self._gone = True

    def statistics(self) -> dict[str, int]:
        return {
            "sent": self.sent,
            "sent_bytes": self.sent_bytes,
            "refused": self.refused,
            "dropped": self.dropped,
            "reopened": self.reopened,
        }


class Receiver:
    """Bound at an address. `serve` must run beside `receive`, to answer questions for the end."""

    def __init__(self, transport: Transport, address: Address) -> None:
        self._transport, self._address = transport, address
        self._data = transport.bind(zmq.PULL, address.data)
        self._acks = transport.bind(zmq.ROUTER, address.acks)
        self._waiting: deque[Envelope] = deque()  # received together with the one before
        self._ended: set[str] = set()
        self._asking: dict[str, bytes] = {}  # sender → routing id of its open question
        self._unanswered: set[str] = set()  # senders that have ended and have not asked yet
        self._answered = trio.Event()  # set, and replaced, at each answer
        self.gaps = GapDetector()
        self.received = self.received_bytes = self.rejected = 0

    def try_receive(self) -> Envelope | None:
        """The next message if one is there. Frames that are no message of ours are counted and left out."""
        while not self._waiting and (frames := self._data.try_receive()) is not None:
            self._accept(frames)
        return self._waiting.popleft() if self._waiting else None

    async def receive(self) -> Envelope:
        """The next message. A cancelled receive has taken none."""
        while not self._waiting:
            self._accept(await self._data.receive())
        return self._waiting.popleft()

    def _accept(self, frames: list[Buffer]) -> None:
        self.received_bytes += sum(map(len, frames))
        try:
            envelopes = decode_all(frames)
        except CodecError:
            self.rejected += 1
            return
        self.received += len(envelopes)
        for envelope in envelopes:
            self.gaps.see(envelope.sender, stream_of(envelope.message), envelope.number)
            if isinstance(envelope.message, StreamEnd):
                self.gaps.ended(envelope.sender, envelope.message.stream)
        self._waiting.extend(envelopes)

    def acknowledge(self, sender: str) -> None:
        """Tell `sender` (an `Envelope.sender`) that its end of stream, hence all before it, is here."""
        self._ended.add(sender)
        self._unanswered.add(sender)
        asking = self._asking.pop(sender, None)
        if asking is not None:
            self._answer(asking, sender)

    def _answer(self, asking: bytes, sender: str) -> None:
        if self._acks.try_send([asking, sender.encode()]):
            self._unanswered.discard(sender)
            self._answered.set()
            self._answered = trio.Event()

    async def serve(self) -> None:
        """Answers senders until cancelled or closed."""
        with suppress(trio.ClosedResourceError):
            while True:
                asking, name, *_ = [bytes(frame) for frame in await self._acks.receive()] + [b""]
                sender = name.decode(errors="replace")
                if sender in self._ended:
                    self._answer(asking, sender)
                elif len(self._asking) < MAX_ASKING:
                    self._asking[sender] = asking

    async def settle(self, seconds: float = 2.0) -> None:
        """To be called before `close`: until every sender that has ended has been told so, or the time is over (one
        may have died before it asked)."""
        with trio.move_on_after(seconds):
            while self._unanswered:
                await self._answered.wait()

    async def wait(self) -> None:
        """Until `try_receive` may find something, after it has found nothing."""
        await self._data.wait_readable()

    def close(self) -> None:
        self._data.close()
        self._acks.close(ACK_LINGER_MS)
        unlink_endpoint(self._address.data)
        unlink_endpoint(self._address.acks)

    def statistics(self) -> dict[str, int]:
        return {
            "received": self.received,
            "received_bytes": self.received_bytes,
            "rejected": self.rejected,
            "turned_away": self._transport.turned_away,
            "missing": self.gaps.missing,
            "skipped": self.gaps.skipped,
        }

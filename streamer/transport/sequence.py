"""Numbers that make a lost message visible: each sender counts up in each stream it sends to one receiver."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

MAX_STREAMS = 65536  # streams remembered; the one idle longest is forgotten and begins anew


def stream_of(message: Any) -> Hashable:
    """The stream a message belongs to: its key, or the process it is about."""
    stream = getattr(message, "stream", None)
    if stream is not None:
        return stream  # type: ignore[no-any-return]
    host = getattr(message, "host", None)
    return type(message).__name__ if host is None else (host, message.pid)


class Numbering:
    """The sender's side. A stream is forgotten with its StreamEnd."""

    def __init__(self) -> None:
        self._next: OrderedDict[Hashable, int] = OrderedDict()

    def next(self, stream: Hashable) -> int:
        return self._next.get(stream, 0)

    def sent(self, stream: Hashable) -> None:
        """The number last given out is used: only now that the message is on its way."""
        self._next[stream] = self._next.get(stream, 0) + 1
        self._next.move_to_end(stream)
        if len(self._next) > MAX_STREAMS:
            self._next.popitem(last=False)

    def ended(self, stream: Hashable) -> None:
        self._next.pop(stream, None)


class GapDetector:
    """The receiver's side. `missing` counts messages that should have come; `skipped` those numbered before the
    first one seen of a stream: they went to this receiver's predecessor, or were lost with it. A stream is forgotten
    with its StreamEnd."""

    def __init__(self) -> None:
        self._expected: OrderedDict[tuple[str, Hashable], int] = OrderedDict()
        self.missing = 0
        self.skipped = 0

    def see(self, sender: str, stream: Hashable, number: int) -> int:
        """How many messages of the stream are missing just before this one."""
        key = (sender, stream)
        expected = self._expected.get(key)
        self._expected[key] = number + 1
        self._expected.move_to_end(key)
        if len(self._expected) > MAX_STREAMS:
            self._expected.popitem(last=False)
        if expected is None:
            self.skipped += number
            return 0
        gap = max(0, number - expected)  # a smaller number: the sender has forgotten the stream and begins anew
        self.missing += gap
        return gap

    def ended(self, sender: str, stream: Hashable) -> None:
        self._expected.pop((sender, stream), None)

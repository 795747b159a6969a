"""Profiles on their way to a server that does not take them now: bounded, tried again ever more rarely."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

MOST_BYTES = 8 << 20
LONGEST_PAUSE = 120.0


@dataclass(frozen=True, slots=True)
class Waiting:
    body: bytes
    profiles: int


class Backlog:
    """The oldest first. What there is no room for goes, the oldest first too; the newest stays, however large it is."""

    def __init__(self, pause: float, most_bytes: int = MOST_BYTES) -> None:
        """`pause`: seconds before the first that is tried again; doubled each time, up to LONGEST_PAUSE."""
        self._first_pause = self._pause = pause
        self._most = most_bytes
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0

    @property
    def first(self) -> Waiting | None:
        return self._waiting[0] if self._waiting else None

    def add(self, waiting: Waiting) -> int:
        """How many profiles went for want of room."""
        self._waiting.append(waiting)
        self._bytes += len(waiting.body)
        gone = 0
        while self._bytes > self._most and len(self._waiting) > 1:
            gone += self._drop()
        return gone

    def taken(self) -> None:
        """The first is: the next one may be tried at once."""
        self._drop()
        self._pause = self._first_pause

    def refused(self) -> None:
        """The first is, for good."""
        self._drop()

    def pause(self) -> float:
        """Seconds until the first is to be tried again."""
        pause, self._pause = self._pause, min(2 * self._pause, max(LONGEST_PAUSE, self._first_pause))
        return pause

    def _drop(self) -> int:
        gone = self._waiting.popleft()
        self._bytes -= len(gone.body)
        return gone.profiles

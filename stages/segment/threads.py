"""Threads and how far their segments have come, until nothing of them can come any more.

A thread is forgotten with its own stream; `SLACK` seconds after its exit, when no trace from before that is waiting; or
(its exit may never be told, and its last bytes come later still) after `SILENCE` seconds without trace: then nothing is
lost with it, because a return stack does not outlive so many PSBs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stages.messages import LossMark, StreamKey, ThreadEnd, ThreadKey, Tick
from stages.segment.stream import Stream
from stages.segment.thread_attribution import Special

SLACK, SILENCE = 5.0, 300.0


@dataclass(slots=True)
class Thread:
    number: int = 0
    ended: bool = True  # the next piece begins a thread
    holes: list[LossMark] = field(default_factory=list)  # since its last piece
    stream: StreamKey | None = None  # of its last piece, which ended
    last: int = 0  # at this time


class Threads:
    def __init__(self) -> None:
        self.known: dict[ThreadKey, Thread] = {}
        self.exits: dict[ThreadKey, ThreadEnd] = {}  # of threads that are not forgotten
        self._looked: dict[tuple[str, int], int] = {}  # when the threads of a process were looked through

    def of(self, key: ThreadKey) -> Thread:
        return self.known.setdefault(key, Thread())

    def tids(self, host: str, pid: int, until: int) -> set[int]:
        """Of the threads of which no trace of after `until` has been told."""
        return {key.tid for key, t in self.known.items() if key[:2] == (host, pid) and t.last < until}

    def look_through(self, now: Tick, hz: float, streams: Iterable[Stream]) -> list[ThreadEnd]:
        """Threads that are gone; once a second. `hz`: of the TSC, 0: not known; `streams`: all."""
        process = now.host, now.pid
        if not hz or now.tsc - self._looked.get(process, 0) < hz:
            return []
        self._looked[process] = now.tsc
        waiting = _waiting(s for s in streams if s.key[:2] == process and s.at < s.end)
        until, long_ago = now.tsc - round(SLACK * hz), now.tsc - round(SILENCE * hz)
        gone = [
            end
            for end in self.exits.values()
            if end.tsc < until
            and end.thread[:2] == process
            and end.stream.tid < 0
            and min(waiting.get(tid, end.tsc + 1) for tid in (end.thread.tid, Special.LOST)) > end.tsc
        ]
        silent = [
            ThreadEnd(key, thread.stream, thread.last)
            for key, thread in self.known.items()
            if key[:2] == process and thread.stream is not None and thread.last < long_ago
        ]
        return [self.forget(end) for end in {end.thread: end for end in (*silent, *gone)}.values()]

    def forget(self, end: ThreadEnd) -> ThreadEnd:
        self.known.pop(end.thread, None)
        self.exits.pop(end.thread, None)
        return end


def _waiting(streams: Iterable[Stream]) -> dict[int, int]:
    """Thread whose bytes those that wait may be, or LOST for any → from when the oldest of them may be."""
    since: dict[int, int] = {}
    for stream in streams:
        for tid in {owner.tid for owner in (stream.owner, *stream.coming)}:
            since[tid] = min(since.get(tid, stream.tsc), stream.tsc)
    return since

"""Tails that no time mark follows: drains tell whose they are, and nothing waits for ever where nothing is read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.decode.stage import Decode
from stages.messages import Account, Chunk, Clock, Loss, LossMark, PtConfig, Segment, SideKind, StreamOpen, Tick
from stages.messages.accounts import hole
from stages.segment.stage import Segmentation
from stages.segment.threads import SLACK
from tests.stages.ptbytes import pgd, pge, psb_plus, tip, tsc
from tests.stages.test_segment import CPU, FAR, Machine, each_byte_is_of_its_thread, operate, segments, sideband, total

CLOCK = Clock(100, 0, 0, 0)
SECOND = round(CLOCK.hz)  # ten steps of the machine: so a tail grows old while it pauses
IN, OUT, EXIT = SideKind.SWITCH_IN, SideKind.SWITCH_OUT, SideKind.EXIT


@dataclass
class Pausing(Machine):
    times: list[int] = field(default_factory=list)  # of each byte

    def put(self, data: bytes) -> None:
        super().put(data)
        self.times += [self.time] * len(data)

    def pause(self) -> None:
        self.time += 2 * SECOND


class Chain:
    def __init__(self) -> None:
        self._decode, self.segment = Decode(), Segmentation()
        self.out: list[object] = []
        self.feed(StreamOpen(CPU, PtConfig(), CLOCK))

    def feed(self, *messages: object) -> None:
        for message in messages:
            for d in self._decode.feed(message):
                self.out += self.segment.feed(d)

    def end(self) -> list[object]:
        for d in self._decode.flush():
            self.out += self.segment.feed(d)
        return [*self.out, *self.segment.flush()]


def drained(made: Pausing, drains: list[int]) -> list[object]:
    """The output, where all that was written by these times, and by the end, came then."""
    chain, at, told = Chain(), 0, 0
    for seq, now in enumerate(sorted({*drains, made.time + FAR})):
        to = bisect_right(made.times, now)
        new = [record for record in made.side[told:] if record[0] <= now]
        told += len(new)
        data = np.frombuffer(bytes(made.stream[at:to]), np.uint8)
        chain.feed(sideband(*new, seq=seq), Chunk(CPU, seq, at, data, (), now) if len(data) else Tick("h", 42, now))
        at = to
    return chain.end()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(["go", "go", "stop", "psb", "mark", "pause"]), st.integers(6, 8)), max_size=30),
    st.booleans(),
    st.lists(st.integers(2, 400).map(lambda k: k * FAR // 2 + 7), max_size=12),
)
def test_no_byte_of_code_goes_to_a_wrong_thread(operations: list[str | int], dated: bool, drains: list[int]) -> None:
    """Whenever it is drained, and however long nothing is written."""
    made = Pausing(dated)
    operate(made, operations)
    account = each_byte_is_of_its_thread(made, drained(made, drains))
    at_once = total(drained(made, []))
    lost, least = (sum(n for c, n in a.holes if c == Loss.UNKNOWN_THREAD) for a in (account, at_once))
    assert lost <= least or not dated


def test_bytes_that_come_into_view_seconds_later_are_those_of_then() -> None:
    """A processor's buffer is looked at when it is full enough; meanwhile others run there, in other code."""
    chain = Chain()
    first = psb_plus(2 * FAR, 0x1000) + tip(0x1004) + tsc(3 * FAR)
    last = tip(0x1008) + tsc(4 * FAR) + tip(0x1010) + pgd() + tsc(4 * FAR + 100)
    chain.feed(sideband((FAR, IN, 7), (4 * FAR + 50, OUT, 7)))
    chain.feed(Chunk(CPU, 0, 0, np.frombuffer(first, np.uint8), (), 5 * FAR))
    for k in range(1, 20):
        now = 5 * FAR + k * SECOND
        chain.feed(sideband((now - 9, IN, 8), (now - 5, OUT, 8), seq=k), Tick("h", 42, now))
    chain.feed(Chunk(CPU, 1, len(first), np.frombuffer(last, np.uint8), (), now + FAR))
    out = chain.end()
    assert b"".join(s.data.tobytes() for s in segments(out) if s.thread.tid == 7).startswith(first + last[:-8])


def test_while_a_stream_is_not_read_neither_switches_nor_threads_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads since the last mark, then a hole for minutes, in which others come and go. A thread of the two goes
    on behind it, but not from where it was."""
    for module in ("stage", "stream"):
        monkeypatch.setattr(f"stages.segment.{module}.MOST_SWITCHES", 64)
    chain = Chain()
    begun = psb_plus(FAR, 0x1000) + tip(0x1004) + pgd() + pge(0x2000) + tip(0x2004) + pgd()
    chain.feed(sideband((FAR, IN, 7), (2 * FAR, IN, 8), (3 * FAR, OUT, 8)))
    chain.feed(Chunk(CPU, 0, 0, np.frombuffer(begun, np.uint8), (), 4 * FAR))
    at = len(begun)
    for k in range(1000):
        now, tid = 5 * FAR + k * SECOND // 4, 100 + k
        side = sideband((now + 1, IN, 7), (now + 2, IN, tid), (now + 3, EXIT, tid), (now + 3, OUT, tid), seq=1 + k)
        chain.feed(side, Tick("h", 42, now + FAR))
        chain.out += chain.segment.feed(hole(CPU, at, at + 100, Loss.UNREAD, event=k == 0))
        at += 100
        counted = chain.segment.statistics()
        assert counted["segment_exits"] <= 4 * (SLACK + 3)
        assert len(chain.segment._streams[CPU].coming) <= 64 + 4
    assert counted["segment_waiting_bytes"] == 0
    gone = LossMark(at, Loss.UNREAD, 0, now)
    more = psb_plus(now + SECOND, 0x1000) + tip(0x1004) + pgd() + tsc(now + 2 * SECOND)
    chain.feed(sideband((now + SECOND // 2, IN, 7), seq=1001))
    chain.feed(Chunk(CPU, 1, at, np.frombuffer(more, np.uint8), (gone,), now + 3 * SECOND))
    out = chain.end()
    found = [s for s in out if isinstance(s, Segment) and s.thread.tid == 7]
    behind = next(s for s in found if s.offset >= at)
    assert not behind.continues
    assert Loss.UNREAD in [mark.cause for mark in behind.hole]
    assert sum(n for m in out if isinstance(m, Account) for c, n in m.holes if c == Loss.UNKNOWN_THREAD) < len(begun)

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.decode.stage import Decode
from stages.messages import (
    MARK_DTYPE,
    SIDE_DTYPE,
    Account,
    Chunk,
    Clock,
    Loss,
    LossMark,
    MarkKind,
    PtConfig,
    Segment,
    Sideband,
    SideKind,
    StreamEnd,
    StreamKey,
    StreamOpen,
    ThreadEnd,
    ThreadKey,
    Tick,
)
from stages.messages.accounts import joined
from stages.segment.stage import HOLD_SECONDS, Segmentation
from stages.segment.stream import Run, Stream
from stages.segment.thread_attribution import Bounds, Owner, Special, assign, thread
from tests.stages.ptbytes import OVF, fup, pgd, pge, psb_plus, tip, tsc

CPU = StreamKey("h", 42, 0, -1)
SECOND, THIRD = StreamKey("h", 42, 1, -1), StreamKey("h", 42, 2, -1)
PER_THREAD = StreamKey("h", 42, -1, 7)
FAR = 1_000_000  # ticks between events: more than stages.segment.thread_attribution.NEAR


def sideband(*records: tuple[int, SideKind, int], key: StreamKey = CPU, pid: int = 42, seq: int = 0) -> Sideband:
    rows = np.zeros(len(records), SIDE_DTYPE)
    for row, (time, kind, tid) in zip(rows, records, strict=True):
        row["tsc"], row["kind"], row["pid"], row["tid"] = time, kind, pid, tid
    return Sideband(key, seq, rows)


def run(
    stream: bytes, side: Sideband | None, cuts: list[int] | None = None, key: StreamKey = CPU,
    losses: tuple[LossMark, ...] = (),
) -> list[object]:  # fmt: skip
    decode, segment = Decode(), Segmentation()
    places = sorted({0, len(stream), *(c % (len(stream) + 1) for c in cuts or []), *(m.offset for m in losses)})
    messages: list[object] = [side] if side is not None else []
    for seq, (a, b) in enumerate(pairwise(places)):
        here = tuple(m for m in losses if m.offset == a)
        messages.append(Chunk(key, seq, a, np.frombuffer(stream[a:b], np.uint8), here))
    out: list[object] = []
    for message in messages:
        for d in decode.feed(message):
            out += segment.feed(d)
    for d in decode.flush():
        out += segment.feed(d)
    return [m for m in out + segment.flush() if not isinstance(m, Tick | Sideband)]


def segments(out: list[object]) -> list[Segment]:
    return [m for m in out if isinstance(m, Segment)]


def total(out: list[object]) -> Account:
    parts = [Account(s.stream, s.offset, s.offset + len(s.data), len(s.data), ()) for s in segments(out)]
    return joined(sorted([*parts, *(m for m in out if isinstance(m, Account))], key=lambda a: (a.start, a.end)))


# owners


def naive_owners(owners: list[Owner], code: list[bool], through_start: bool, through_end: bool) -> list[set[int]]:
    """Every way to give spans their owners in order; the owners that each span may have."""
    m = len(owners) - 1
    able: list[set[int]] = [set() for _ in code]
    for ways in product(range(m + 1), repeat=len(code)):
        if list(ways) != sorted(ways) or (through_start and ways[0] != 0) or (through_end and ways[-1] != m):
            continue
        if any(c and owners[w].tid == Special.NOBODY for c, w in zip(code, ways, strict=True)):
            continue
        for j, w in enumerate(ways):
            able[j].add(w)
    return able


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_bounds_are_those_of_all_possible_ways(tids: list[int], code: list[bool], first: bool, last: bool) -> None:
    owners = [Owner(i, tid) for i, tid in enumerate(tids)]
    able = naive_owners(owners, code, first, last)
    if not able[0]:
        return  # the records contradict the trace
    for bounds, ways in zip(assign(owners, code, first, last, 0, 0), able, strict=True):
        assert (bounds.lo, bounds.hi) == (min(ways), max(ways))


def test_who_it_was() -> None:
    owners = [Owner(0, 5), Owner(1, int(Special.NOBODY)), Owner(2, 5), Owner(3, 6)]
    assert thread(owners, Bounds(0, 2)) == 5
    assert thread(owners, Bounds(0, 3)) == Special.LOST
    assert thread(owners, Bounds(1, 1)) == Special.LOST
    assert thread(owners, Bounds(2, 1)) == Special.LOST


# streams


@dataclass
class Machine:
    """A CPU that runs threads: writes the trace, the sideband, and the owner of each byte."""

    dated_switches: bool
    stream: bytearray = field(default_factory=bytearray)
    whose: list[int] = field(default_factory=list)
    side: list[tuple[int, SideKind, int]] = field(default_factory=list)
    time: int = FAR
    tid: int = 7
    tracing: bool = False
    last: int = 0

    def __post_init__(self) -> None:
        self.side.append((self.time, SideKind.SWITCH_IN, self.tid))
        self.psb()

    def put(self, data: bytes) -> None:
        self.stream += data
        self.whose += [self.tid] * len(data)

    def go(self) -> None:
        self.time += FAR
        if not self.tracing:
            self.put(pge(0x1000 * self.tid + len(self.stream), 2))
            self.tracing = True
        self.put(tip(0x1000 * self.tid + len(self.stream), 2))

    def stop(self) -> None:
        self.time += FAR
        if self.tracing:
            self.put(pgd())
            self.tracing = False

    def psb(self) -> None:
        self.time += FAR
        self.put(psb_plus(self.time, 0x1000 if self.tracing else 0))

    def mark(self) -> None:
        self.time += FAR
        self.put(tsc(self.time))

    def switch(self, tid: int) -> None:
        self.stop()
        self.side += [(self.time, SideKind.SWITCH_OUT, self.tid), (self.time, SideKind.SWITCH_IN, tid)]
        self.tid = tid
        if self.dated_switches:
            self.put(tsc(self.time + 5))


steps = st.lists(
    st.one_of(st.sampled_from(["go", "go", "stop", "psb", "mark"]), st.integers(6, 8)), min_size=1, max_size=40
)


def machine(operations: list[str | int], dated: bool) -> Machine:
    made = Machine(dated)
    operate(made, operations)
    return made


def operate(made: Machine, operations: list[str | int]) -> None:
    """Numbers are threads to which it switches."""
    for what in operations:
        if isinstance(what, int):
            made.switch(what)
        else:
            getattr(made, what)()


def each_byte_is_of_its_thread(made: Machine, out: list[object]) -> Account:
    """All bytes are accounted for, and those that code has written are the right thread's; the account of all."""
    account = total(out)
    assert (account.start, account.end) == (0, len(made.stream))
    for s in segments(out):
        data = s.data.tobytes()
        assert data == made.stream[s.offset : s.offset + len(data)]
        for i, byte in enumerate(data):
            if byte in (0x4D, 0x51):  # TIP, PGE with IPBytes 2, as the machine writes them
                assert made.whose[s.offset + i] == s.thread.tid or byte in data[max(0, i - 8) : i]
    return account


@settings(max_examples=120, deadline=None)
@given(steps, st.booleans(), st.lists(st.integers(0, 500), max_size=6))
def test_no_byte_of_code_goes_to_a_wrong_thread(operations: list[str | int], dated: bool, cuts: list[int]) -> None:
    made = machine(operations, dated)
    out = run(bytes(made.stream), sideband(*made.side), cuts)
    account = each_byte_is_of_its_thread(made, out)
    if dated:  # each switch has its TSC packet: every byte of code finds its thread
        lost = sum(n for cause, n in account.holes if cause == Loss.UNKNOWN_THREAD)
        tail = len(made.stream) - max((s.offset + len(s.data) for s in segments(out)), default=0)
        assert lost <= tail + 64


@settings(max_examples=100, deadline=None)
@given(steps, st.booleans(), st.lists(st.integers(0, 500), max_size=6))
def test_threads_get_the_same_bytes_however_it_is_chunked(
    operations: list[str | int], dated: bool, cuts: list[int]
) -> None:
    made = machine(operations, dated)
    whole, cut = (run(bytes(made.stream), sideband(*made.side), c) for c in ([], cuts))

    def bytes_of(out: list[object]) -> list[tuple[int, int]]:
        return [(s.offset + i, s.thread.tid) for s in segments(out) for i in range(len(s.data))]

    assert bytes_of(whole) == bytes_of(cut)
    assert total(whole) == total(cut)


@settings(max_examples=200, deadline=None)
@given(steps, st.booleans(), st.lists(st.integers(0, 500), max_size=6))
def test_a_threads_time_is_told_once(operations: list[str | int], dated: bool, cuts: list[int]) -> None:
    """However often tracing goes off and on again between two time marks: in calls out of the filter it does."""
    made = machine(operations, dated)
    until: dict[int, int] = {}
    for s in sorted(segments(run(bytes(made.stream), sideband(*made.side), cuts)), key=lambda s: s.offset):
        assert until.get(s.thread.tid, 0) <= s.tsc <= s.tsc_end
        until[s.thread.tid] = s.tsc_end


def test_calls_out_of_the_filter_between_two_marks_share_their_time() -> None:
    made = machine(["go", "stop", "go", "stop", "go", 6, "go"], True)  # a PSB at 2 · FAR, a switch at 8 · FAR
    mine = [s for s in segments(run(bytes(made.stream), sideband(*made.side))) if s.thread.tid == 7]
    assert sum(s.tsc_end - s.tsc for s in mine) == 6 * FAR


def test_one_gap_one_switch() -> None:
    a = psb_plus(FAR, 0x1000) + tip(0x1004) + pgd()
    b = pge(0x2000) + tip(0x2004)
    end = psb_plus(9 * FAR, 0x2004)
    side = sideband(
        (FAR // 2, SideKind.SWITCH_IN, 7), (4 * FAR, SideKind.SWITCH_OUT, 7), (5 * FAR, SideKind.SWITCH_IN, 8)
    )
    first, second, _tail = segments(run(a + b + end, side))
    assert (first.thread.tid, first.offset, first.data.tobytes(), first.tsc, first.tsc_end) == (7, 0, a, FAR, 4 * FAR)
    assert (second.thread.tid, second.tsc) == (8, 5 * FAR)
    assert second.last_ip == 0x1004
    assert not first.continues
    assert not second.continues
    assert second.number == 1


def test_two_gaps_one_switch_nobody_knows() -> None:
    parts = [psb_plus(FAR, 0x1000) + tip(0x1004) + pgd(), pge(0x2000) + pgd(), pge(0x3000) + tip(0x3004)]
    side = sideband((FAR // 2, SideKind.SWITCH_IN, 7), (5 * FAR, SideKind.SWITCH_IN, 8))
    out = run(b"".join(parts) + psb_plus(9 * FAR, 0x3004), side)
    assert [s.thread.tid for s in segments(out)] == [7, 8, 8]
    assert total(out).holes == ((Loss.UNKNOWN_THREAD, len(parts[1])),)
    assert [m.cause for m in segments(out)[1].hole] == [Loss.UNKNOWN_THREAD]


def test_all_records_of_a_switch_belong_to_its_gap() -> None:
    """The first time that a thread comes, it is also told that its tracing begins."""
    old = psb_plus(FAR, 0x1000) + tip(0x1004) + pgd() + pge(0x1004) + pgd()
    new = tsc(5 * FAR) + pge(0x2000) + tip(0x2004) + pgd() + pge(0x2008) + tip(0x200C)
    at = 5 * FAR - 3
    side = sideband(
        (FAR // 2, SideKind.SWITCH_IN, 7),
        (at, SideKind.ITRACE_START, 8),
        (at, SideKind.SWITCH_OUT, 7),
        (at, SideKind.SWITCH_IN, 8),
    )
    out = run(old + new + psb_plus(9 * FAR, 0x200C), side)
    assert all(s.thread.tid == (7 if s.offset < len(old) else 8) for s in segments(out))
    assert len(old) in [s.offset for s in segments(out)]
    assert total(out).holes == ()


def test_a_thread_that_comes_back_goes_on() -> None:
    def run_of(tid: int, time: int) -> bytes:
        return pge(0x1000 * tid) + tip(0x1000 * tid + 4) + pgd() + tsc(time)

    stream = psb_plus(FAR) + run_of(7, 3 * FAR) + run_of(8, 5 * FAR) + run_of(7, 7 * FAR)
    side = sideband(
        (FAR // 2, SideKind.SWITCH_IN, 7), (3 * FAR - 1, SideKind.SWITCH_IN, 8), (5 * FAR - 1, SideKind.SWITCH_IN, 7)
    )
    found = segments(run(stream, side))
    assert [(s.thread.tid, s.number, s.continues) for s in found[:3]] == [
        (7, 1, False),
        (8, 1, False),
        (7, 1, True),
    ]


def test_a_thread_id_that_is_used_again_is_another_thread() -> None:
    decode, segment = Decode(), Segmentation()
    out: list[object] = []

    def feed(message: object) -> None:
        for m in decode.feed(message):
            out.extend(segment.feed(m))

    feed(sideband((1, SideKind.SWITCH_IN, 7)))
    stream = psb_plus(FAR, 0x1000) + tip(0x1004) + tsc(2 * FAR)
    feed(Chunk(CPU, 0, 0, np.frombuffer(stream, np.uint8)))
    feed(sideband((3 * FAR, SideKind.EXIT, 7), seq=1))
    at = len(stream)
    for seq, more in enumerate((tip(0x1000) + tsc(4 * FAR), tip(0x1000) + tsc(5 * FAR)), 1):
        feed(Chunk(CPU, seq, at, np.frombuffer(more, np.uint8)))
        at += len(more)
    assert [(s.number, s.continues) for s in segments(out)] == [(1, False), (1, True), (1, False)]
    end = next(k for k, m in enumerate(out) if isinstance(m, ThreadEnd))
    assert out[end] == ThreadEnd(ThreadKey("h", 42, 7), CPU, 3 * FAR)
    assert len(segments(out[:end])) == 2


def test_a_thread_is_forgotten_when_it_has_ended_or_been_silent() -> None:
    """Not before its last trace: here it waits for a time mark until long after the exit."""
    second = 1_000_000_000
    segment, decode = Segmentation(), Decode()

    def feed(*messages: object) -> list[object]:
        return [m for message in messages for d in decode.feed(message) for m in segment.feed(d)]

    def told(out: list[object]) -> list[int]:
        return [m.thread.tid for m in out if isinstance(m, ThreadEnd)]

    feed(StreamOpen(CPU, PtConfig(), Clock(1, 0, 0, 0)))
    side = (1, SideKind.SWITCH_IN, 7), (3 * second, SideKind.SWITCH_IN, 8), (4 * second, SideKind.EXIT, 7)
    feed(sideband(*side))
    feed(sideband((4 * second, SideKind.EXIT, 9), pid=43, seq=1))  # of another process, on the same CPU
    assert segment.statistics()["segment_exits"] == 1
    stream = psb_plus(second, 0x1000) + tip(0x1004) + tsc(2 * second) + tip(0x1000)
    feed(Chunk(CPU, 0, 0, np.frombuffer(stream, np.uint8)))
    assert told(feed(Tick("h", 42, 60 * second))) == []
    rest = pgd() + pge(0x1000) + tip(0x1004) + tsc(61 * second)
    feed(Chunk(CPU, 1, len(stream), np.frombuffer(rest, np.uint8)))
    assert segment.statistics()["segment_threads"] == 2
    assert told(feed(Tick("h", 42, 62 * second))) == [7]
    assert told(feed(Tick("h", 42, 300 * second))) == []
    assert told(feed(Tick("h", 42, 400 * second))) == [8]
    assert segment.statistics()["segment_threads"] == 0


def test_a_stream_takes_its_thread_with_it() -> None:
    """Bytes that wait for a time mark are decided; the thread is another one in the next stream of its id."""
    again = PER_THREAD._replace(number=1)
    decode, segment = Decode(first=True), Segmentation()
    out: list[object] = []
    stream = psb_plus(FAR, 0x1000) + tip(0x1004)
    for key in (PER_THREAD, again):
        for message in (
            StreamOpen(key, PtConfig(), Clock(1, 0, 0, 0)),
            Chunk(key, 0, 0, np.frombuffer(stream, np.uint8)),
            sideband((5 * FAR, SideKind.EXIT, 7), key=key),
            StreamEnd(key, 6 * FAR),
        ):
            out += [m for d in decode.feed(message) for m in segment.feed(d)]
    assert [(s.stream, s.number, s.continues, len(s.data)) for s in segments(out)] == [
        (key, 1, False, len(stream)) for key in (PER_THREAD, again)
    ]
    kinds = [type(m) for m in out if isinstance(m, Segment | ThreadEnd | StreamEnd)]
    assert kinds == 2 * [Segment, ThreadEnd, StreamEnd]
    counted = segment.statistics() | decode.statistics()
    assert [counted[f"segment_{n}"] for n in ("streams", "threads", "exits")] == [0, 0, 0]
    assert counted["decode_streams"] == 0


@pytest.mark.parametrize("cuts", [[], [30, 60], list(range(0, 200, 3))])
def test_segments_end_at_losses(cuts: list[int]) -> None:
    a = psb_plus(FAR, 0x1000) + tip(0x1004)
    b = OVF + fup(0x2000) + tip(0x2004)
    c = psb_plus(5 * FAR, 0x3000) + tip(0x3004) + tsc(6 * FAR)
    side = sideband((1, SideKind.SWITCH_IN, 7))
    out = run(a + b + c, side, cuts, losses=(LossMark(len(a + b), Loss.AUX_FULL, 5, 4 * FAR),))
    numbers = {s.number: (s.offset, [m.cause for m in s.hole]) for s in reversed(segments(out))}
    assert numbers == {1: (0, []), 2: (len(a), [Loss.OVERFLOW]), 3: (len(a + b), [Loss.AUX_FULL])}
    assert total(out).events == ((Loss.OVERFLOW, 1), (Loss.AUX_FULL, 1))


def test_a_stream_of_one_thread_knows_when_it_did_not_run() -> None:
    a = psb_plus(FAR, 0x1000) + tip(0x1004) + pgd()
    b = pge(0x2000) + tip(0x2004) + psb_plus(9 * FAR, 0x2004)
    side = sideband((2 * FAR, SideKind.SWITCH_OUT, 7), (8 * FAR, SideKind.SWITCH_IN, 7), key=PER_THREAD)
    first, second, _tail = segments(run(a + b, side, key=PER_THREAD))
    assert (first.tsc_end, second.tsc, second.continues) == (2 * FAR, 8 * FAR, True)
    assert {s.thread.tid for s in segments(run(a + b, None, key=PER_THREAD))} == {7}


def test_without_switch_records_nobody_is_known() -> None:
    stream = psb_plus(FAR, 0x1000) + tip(0x1004) + tsc(2 * FAR)
    assert total(run(stream, None)).holes == ((Loss.UNKNOWN_THREAD, len(stream)),)
    other = sideband((1, SideKind.SWITCH_IN, 7), pid=43)
    assert total(run(stream, other)).holes == ((Loss.UNKNOWN_THREAD, len(stream)),)


def test_a_stream_that_begins_with_bytes_of_nobody_knows_which_tears_no_thread_that_was_seen_elsewhere() -> None:
    """Thread 7 ran on the first CPU from before those bytes until after them, thread 8 may have written them."""
    fed = Fed()
    fed.feed(sideband((1, SideKind.SWITCH_IN, 7)), sideband((1, SideKind.SWITCH_IN, 8), key=SECOND))
    for key in (CPU, SECOND):
        fed.feed(Chunk(key, 0, 0, np.frombuffer(psb_plus(FAR, 0x1000) + tip(0x1004) + tsc(2 * FAR), np.uint8)))
    on = len(psb_plus(FAR, 0x1000) + tip(0x1004) + tsc(2 * FAR))
    fed.feed(Chunk(CPU, 1, on, np.frombuffer(tip(0x1008) + tsc(5 * FAR), np.uint8)))
    third = psb_plus(3 * FAR, 0x1000) + tip(0x1004) + tsc(4 * FAR)
    fed.feed(Chunk(THIRD, 0, 0, np.frombuffer(third, np.uint8)))
    unknown = [m for m in fed.out if isinstance(m, Account) and m.holes]
    assert {m.stream for m in unknown} == {THIRD}
    more = np.frombuffer(tip(0x100C) + tsc(7 * FAR), np.uint8)
    fed.feed(Chunk(CPU, 2, on + len(tip(0x1008) + tsc(0)), more), Chunk(SECOND, 1, on, more))
    assert [(s.thread.tid, s.continues, {m.cause for m in s.hole}) for s in segments(fed.out)[-2:]] == [
        (7, True, set()), (8, False, {Loss.UNKNOWN_THREAD}),
    ]  # fmt: skip


def test_lost_records_make_the_thread_unknown_until_the_next_switch() -> None:
    stream = psb_plus(FAR, 0x1000) + tip(0x1004) + tsc(2 * FAR) + tip(0x1008) + tsc(4 * FAR) + pgd() + pge(0x2000)
    stream += tsc(6 * FAR) + tip(0x2004) + tsc(8 * FAR)
    side = sideband((1, SideKind.SWITCH_IN, 7), (3 * FAR, SideKind.LOST, 0), (5 * FAR, SideKind.SWITCH_IN, 8))
    out = run(stream, side)
    assert {s.thread.tid for s in segments(out)} == {8}
    assert total(out).holes[0][0] == Loss.UNKNOWN_THREAD


# beginning anew


class Fed:
    """Decode and segmentation of one worker, fed message by message."""

    def __init__(self) -> None:
        self.decode, self.segment = Decode(), Segmentation()
        self.out: list[object] = []
        self.offset = self.seq = 0

    def feed(self, *messages: object) -> None:
        for message in messages:
            for d in self.decode.feed(message):
                self.out += self.segment.feed(d)

    def trace(self, data: bytes, *losses: Loss, skip: int = 0) -> None:
        """The next bytes; behind `skip` bytes that were not sent."""
        self.offset += skip
        marks = tuple(LossMark(self.offset, cause, 0, 6 * FAR) for cause in losses)
        self.feed(Chunk(CPU, self.seq, self.offset, np.frombuffer(data, np.uint8), marks))
        self.offset += len(data)
        self.seq += 1

    def opened(self) -> None:
        self.feed(StreamOpen(CPU, PtConfig(), Clock(1, 0, 0, 0)))
        self.seq = 0

    def segments(self) -> list[tuple[int, int, int, bool]]:
        """To the end: thread, offset, size, whether it goes on; joined where one piece follows another."""
        self.out += self.segment.flush()
        found: list[tuple[int, int, int, bool]] = []
        for s in segments(self.out):
            tid, at, size, goes_on = found[-1] if found else (0, 0, 0, False)
            if (s.thread.tid, s.offset, s.continues) == (tid, at + size, True):
                found[-1] = (tid, at, size + len(s.data), goes_on)
            else:
                found.append((s.thread.tid, s.offset, len(s.data), s.continues))
        return found


def code(time: int, ip: int = 0x1000) -> bytes:
    """A stretch of trace, in code from beginning to end."""
    return psb_plus(time, ip) + tip(ip + 4) + tsc(time + FAR)


IN, OUT, GONE = SideKind.SWITCH_IN, SideKind.SWITCH_OUT, 30  # bytes that died with a process


def test_what_a_new_capture_tells_again_changes_nothing() -> None:
    """It tells the records that explain the trace left in the ring, told before or not."""
    fed = Fed()
    fed.opened()
    fed.feed(sideband((FAR, IN, 7), (4 * FAR, OUT, 7), (4 * FAR, IN, 8)))
    fed.trace(code(2 * FAR) + pgd() + pge(0x2000) + code(5 * FAR))
    first = fed.offset
    fed.opened()
    fed.feed(sideband((FAR, IN, 7), (4 * FAR, OUT, 7), (4 * FAR, IN, 8), (9 * FAR, OUT, 8), (9 * FAR, IN, 7)))
    fed.trace(code(7 * FAR) + pgd() + tsc(9 * FAR + 5) + pge(0x1000) + code(10 * FAR), Loss.CAPTURE_DOWN, skip=GONE)
    half = len(code(7 * FAR)) + 1
    second = first + GONE
    assert fed.segments() == [
        (7, 0, len(code(0)) + 1, False),
        (8, len(code(0)) + 1, first - len(code(0)) - 1, False),
        (8, second, half, False),
        (7, second + half, fed.offset - second - half, True),  # it did not run when bytes were lost
    ]


def test_a_new_worker_told_what_runs() -> None:
    fed = Fed()
    fed.opened()
    fed.feed(sideband((FAR, IN, 7), seq=5))  # sent to the dead one as number 5: the last of it that matters
    fed.feed(sideband((FAR, IN, 7), seq=4), sideband((FAR, IN, 7), seq=5))  # refused, so sent again: not news
    fed.trace(code(9 * FAR))
    fed.feed(sideband((11 * FAR, OUT, 7), (12 * FAR, IN, 8), seq=6))
    fed.trace(pgd() + pge(0x2000) + code(13 * FAR))
    second = len(code(0)) + 1
    assert fed.segments() == [(7, 0, second, False), (8, second, fed.offset - second, False)]
    assert fed.segment.counts["told_twice"] == 2


def test_what_no_capture_can_tell_again_is_nobodys() -> None:
    """Switches were read by a capture process that died and could not keep them: any thread may have run."""
    fed = Fed()
    fed.opened()
    fed.feed(sideband((FAR, IN, 7), (4 * FAR, OUT, 7), (4 * FAR, IN, 8)))
    fed.trace(code(2 * FAR) + pgd() + pge(0x2000) + code(5 * FAR))
    first, half = fed.offset, len(code(0)) + 1
    fed.opened()
    fed.trace(code(7 * FAR), Loss.CAPTURE_DOWN, Loss.SIDEBAND_LOST, skip=GONE)
    fed.feed(sideband((9 * FAR, IN, 7)))
    fed.trace(pgd() + pge(0x1000) + code(10 * FAR))
    assert fed.segments() == [
        (7, 0, half, False),
        (8, half, first - half, False),
        (7, first + GONE + half, fed.offset - first - GONE - half, False),
    ]
    holes = [(m.start, m.end, m.holes) for m in fed.out if isinstance(m, Account) and m.holes]
    assert (holes[0], holes[-1][1], sum(end - start for start, end, _ in holes[1:])) == (
        (first, first + GONE, ((Loss.CAPTURE_DOWN, GONE),)),
        first + GONE + half,
        half,
    )
    assert {cause for *_, causes in holes[1:] for cause, _ in causes} == {Loss.UNKNOWN_THREAD}
    back = next(s for s in segments(fed.out) if s.offset == first + GONE + half)
    assert {m.cause for m in back.hole} == {Loss.CAPTURE_DOWN, Loss.UNKNOWN_THREAD}


def test_who_goes_has_been_running() -> None:
    """No record names the thread before the first record: a thread that is switched out ran."""
    fed = Fed()
    fed.opened()
    fed.feed(sideband((4 * FAR, OUT, 7), (5 * FAR, IN, 8)))
    fed.trace(code(FAR) + pgd() + tsc(5 * FAR) + pge(0x2000) + code(6 * FAR))
    assert [tid for tid, *_ in fed.segments()] == [7, 8]
    assert not any(m.holes for m in fed.out if isinstance(m, Account))


def test_records_that_never_came_make_it_unknown_who_ran_before_them() -> None:
    """Capture had to drop records: bytes drained before that may be any thread's, until a record says more."""
    fed = Fed()
    fed.opened()
    fed.feed(sideband((FAR, IN, 7)))
    fed.trace(code(2 * FAR))
    at = fed.offset
    fed.feed(sideband((9 * FAR, IN, 7), seq=3))
    mark = LossMark(at, Loss.SIDEBAND_LOST, 0, 6 * FAR)
    data = tip(0x1000) + tsc(4 * FAR) + pgd() + pge(0x2000) + code(7 * FAR) + pgd() + pge(0x1000) + code(10 * FAR)
    fed.feed(Chunk(CPU, 1, at, np.frombuffer(data, np.uint8), (mark,)))
    known = at - len(tsc(0))  # bytes behind a time mark wait
    comes = at + data.index(pge(0x1000))
    assert fed.segments() == [(7, 0, known, False), (7, comes, at + len(data) - comes, False)]
    unknown = sum(n for m in fed.out if isinstance(m, Account) for cause, n in m.holes if cause == Loss.UNKNOWN_THREAD)
    assert unknown == comes - known


def test_a_thread_that_may_have_run_unseen_does_not_go_on() -> None:
    """7 and 8 are known; records are lost: trace of either may be among the bytes of no thread."""
    fed = Fed()
    fed.opened()
    switches = [
        (FAR, IN, 7),
        (4 * FAR, IN, 8),
        (8 * FAR, IN, 7),
        (12 * FAR, SideKind.AUX, 0),
        (14 * FAR, SideKind.LOST, 0),
    ]
    fed.feed(sideband(*switches, (20 * FAR, IN, 8), (24 * FAR, IN, 7)))
    for time in (2, 5, 9, 16, 21, 25):
        fed.trace(code(time * FAR) + pgd() + pge(0x1000))
    found = [(tid, goes_on) for tid, _, _, goes_on in fed.segments()]
    assert found == [(7, False), (8, False), (7, True), (8, False), (7, False)]


# A stream that writes little


def drained(*messages: object) -> list[Segment]:
    """The output without an end of the stream. A number is a drain at that time, which says that the one before it is
    complete."""
    segment = Segmentation()
    segment.feed(StreamOpen(CPU, PtConfig(), CLOCK))
    out: list[object] = []
    decode = Decode()
    for message in messages:
        fed = [Tick(CPU.host, CPU.pid, message)] if isinstance(message, int) else list(decode.feed(message))
        for m in fed:
            out += segment.feed(m)
    return segments(out)


CLOCK = Clock(1, 0, 0, 0)
HOLD = round(HOLD_SECONDS * CLOCK.hz)
BEAT = psb_plus(FAR, 0x1000) + tip(0x1004) + pgd()


def beat(seq: int = 0, offset: int = 0, data: bytes = BEAT) -> Chunk:
    return Chunk(CPU, seq, offset, np.frombuffer(data, np.uint8))


SLEEPS = sideband((FAR // 2, SideKind.SWITCH_IN, 7), (3 * FAR, SideKind.SWITCH_OUT, 7))


def test_a_thread_that_sleeps_is_told_when_its_switch_is() -> None:
    """Its last bytes have no time mark behind them; they end at the switch, and its next bytes begin there."""
    pieces = drained(SLEEPS, beat(), 4 * FAR, 5 * FAR)
    assert [(s.thread.tid, s.tsc, s.tsc_end) for s in pieces][-1] == (7, FAR, 3 * FAR)
    assert b"".join(s.data.tobytes() for s in pieces) == BEAT
    wakes = sideband((8 * FAR, SideKind.SWITCH_IN, 7), (9 * FAR, SideKind.SWITCH_OUT, 7), seq=1)
    later = pge(0x1000) + tip(0x1004) + pgd()
    pieces = drained(SLEEPS, beat(), 4 * FAR, 5 * FAR, wakes, beat(1, len(BEAT), later), 10 * FAR, 11 * FAR)
    assert (pieces[-1].tsc, pieces[-1].tsc_end, pieces[-1].data.tobytes()) == (8 * FAR, 9 * FAR, later)
    assert pieces[-1].continues


def test_a_drain_speaks_of_the_one_before_it() -> None:
    """A switch that is told ahead of the trace, and bytes that are still to come."""
    assert drained(SLEEPS, beat(), 2 * FAR, 2 * FAR + 1) == []


def test_a_thread_that_runs_on_is_told_when_its_bytes_are_old() -> None:
    runs = sideband((FAR // 2, SideKind.SWITCH_IN, 7))
    soon = [FAR + HOLD - 1, FAR + HOLD]
    assert drained(runs, beat(data=BEAT[:-1]), *soon) == []
    pieces = drained(runs, beat(data=BEAT[:-1]), *soon, FAR + HOLD + 1)
    assert b"".join(s.data.tobytes() for s in pieces) == BEAT[:-1]
    assert pieces[-1].tsc_end == FAR + HOLD


def test_code_that_nobody_ran_waits_for_a_mark() -> None:
    """The records say that no thread runs, the trace that code is being run: the next time mark may tell."""
    running = BEAT[: -len(pgd())]
    assert drained(SLEEPS, beat(data=running), 4 * FAR, 5 * FAR) == []


def test_time_does_not_go_back_behind_a_drain() -> None:
    """A TSC packet that the processor had not written out yet when a drain settled the bytes before it."""
    runs = sideband((FAR // 2, SideKind.SWITCH_IN, 7))
    late = tsc(FAR + 5) + tip(0x1004)
    pieces = drained(
        runs,
        beat(data=BEAT[:-1]),
        FAR + HOLD,
        FAR + HOLD + 1,
        beat(1, len(BEAT) - 1, late),
        FAR + 3 * HOLD,
        FAR + 4 * HOLD,
    )
    times = [t for s in pieces for t in (s.tsc, s.tsc_end)]
    assert times == sorted(times)
    assert b"".join(s.data.tobytes() for s in pieces) == BEAT[:-1] + late


def test_packets_that_come_into_view_after_their_switch_are_the_threads() -> None:
    """The record of a switch comes before the last packets of the thread that goes; the next thread's come behind."""
    side = sideband(
        (FAR // 2, SideKind.SWITCH_IN, 7), (3 * FAR, SideKind.SWITCH_OUT, 7), (6 * FAR, SideKind.SWITCH_IN, 8)
    )
    more = pge(0x1008) + tip(0x100C) + pgd()
    other = tsc(6 * FAR + 5) + pge(0x2000) + tip(0x2004) + pgd() + psb_plus(9 * FAR)
    pieces = drained(
        side, beat(), 4 * FAR, 5 * FAR, beat(1, len(BEAT), more), beat(2, len(BEAT + more), other), 10 * FAR, 11 * FAR
    )
    whose = {tid: b"".join(s.data.tobytes() for s in pieces if s.thread.tid == tid) for tid in (7, 8)}
    assert whose[7] == BEAT + more
    assert pge(0x2000) + tip(0x2004) + pgd() in whose[8]
    times = [t for s in pieces for t in (s.tsc, s.tsc_end)]
    assert times == sorted(times)


def test_two_threads_since_the_last_mark_wait_for_the_next() -> None:
    side = sideband(
        (FAR // 2, SideKind.SWITCH_IN, 7), (2 * FAR, SideKind.SWITCH_IN, 8), (3 * FAR, SideKind.SWITCH_OUT, 8)
    )
    assert drained(side, beat(), 4 * FAR, 5 * FAR) == []


_KINDS = st.sampled_from([MarkKind.PSB, MarkKind.TIME, MarkKind.PGE])


@given(st.lists(st.tuples(st.integers(1, 3), _KINDS), max_size=12), st.integers(0, 10), st.integers(0, 6))
def test_the_packets_before_a_piece(gaps: list[tuple[int, MarkKind]], begin: int, size: int) -> None:
    """A run of TIPs, of which number n has the two bytes n of an IP, and marks at some of them. Places count TIPs."""
    number = 16
    data = np.array([b for n in range(number) for b in (0x2D, n, 0)], np.uint8)
    places = np.cumsum([gap for gap, _ in gaps], dtype=np.int64)
    marks = np.zeros(len(gaps), MARK_DTYPE)
    marks["offset"], marks["kind"] = 3 * places, [kind for _, kind in gaps]
    stream = Stream(CPU, Owner(0, 1), Counter(), marks=marks)
    run = Run(3 * begin, data, 0xABCD_0000_0000_FFFF)
    for n in range(number):
        here, end = begin + n, begin + n + size
        psbs = [at for at, (_, kind) in zip(places, gaps, strict=True) if kind == MarkKind.PSB]
        synced = [at for at in psbs if begin <= at <= here]
        base, ip = (synced[-1], 0) if synced else (begin, run.last_ip)
        if here > base:
            ip = ip & ~0xFFFF | n - 1
        inside = np.flatnonzero((here <= places) & (places < end)).tolist()
        last_ip, first, behind = stream.before(run, 3 * here, 3 * end)
        assert last_ip == ip
        assert list(range(first, behind)) == inside

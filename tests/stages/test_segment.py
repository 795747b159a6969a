from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.accounts import joined
from stages.decode import Decode
from stages.messages import (
    SIDE_DTYPE,
    Account,
    Chunk,
    Loss,
    LossMark,
    Segment,
    Sideband,
    SideKind,
    StreamKey,
    Tick,
)
from stages.owners import Bounds, Owner, Special, assign, thread
from stages.segment import Segmentation
from tests.stages.ptbytes import OVF, fup, pgd, pge, psb_plus, tip, tsc

CPU = StreamKey("h", 42, 0, -1)
PER_THREAD = StreamKey("h", 42, -1, 7)
FAR = 1_000_000  # ticks between events: more than stages.owners.NEAR


def sideband(*records: tuple[int, SideKind, int], key: StreamKey = CPU, pid: int = 42) -> Sideband:
    rows = np.zeros(len(records), SIDE_DTYPE)
    for row, (time, kind, tid) in zip(rows, records, strict=True):
        row["tsc"], row["kind"], row["pid"], row["tid"] = time, kind, pid, tid
    return Sideband(key, 0, rows)


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
    """Every way to give spans their owners in order; what each span may be."""
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
    for bounds, ways in zip(assign(owners, code, first, last, False, False), able, strict=True):
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
    """A CPU that runs threads: writes the trace, the sideband, and who wrote each byte."""

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
    for what in operations:
        if isinstance(what, int):
            made.switch(what)
        else:
            getattr(made, what)()
    return made


@settings(max_examples=120, deadline=None)
@given(steps, st.booleans(), st.lists(st.integers(0, 500), max_size=6))
def test_no_byte_of_code_goes_to_a_wrong_thread(operations: list[str | int], dated: bool, cuts: list[int]) -> None:
    made = machine(operations, dated)
    out = run(bytes(made.stream), sideband(*made.side), cuts)
    account = total(out)
    assert (account.start, account.end) == (0, len(made.stream))
    for s in segments(out):
        data = s.data.tobytes()
        assert data == made.stream[s.offset : s.offset + len(data)]
        for i, byte in enumerate(data):
            if byte in (0x4D, 0x51):  # TIP, PGE with IPBytes 2, as the machine writes them
                assert made.whose[s.offset + i] == s.thread.tid or byte in data[max(0, i - 8) : i]
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
    feed(sideband((3 * FAR, SideKind.EXIT, 7)))
    feed(Chunk(CPU, 1, len(stream), np.frombuffer(tip(0x1000) + tsc(4 * FAR), np.uint8)))
    assert [(s.number, s.continues) for s in segments(out)] == [(1, False), (2, False)]


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


def test_lost_records_make_the_thread_unknown_until_the_next_switch() -> None:
    stream = psb_plus(FAR, 0x1000) + tip(0x1004) + tsc(2 * FAR) + tip(0x1008) + tsc(4 * FAR) + pgd() + pge(0x2000)
    stream += tsc(6 * FAR) + tip(0x2004) + tsc(8 * FAR)
    side = sideband((1, SideKind.SWITCH_IN, 7), (3 * FAR, SideKind.LOST, 0), (5 * FAR, SideKind.SWITCH_IN, 8))
    out = run(stream, side)
    assert {s.thread.tid for s in segments(out)} == {8}
    assert total(out).holes[0][0] == Loss.UNKNOWN_THREAD

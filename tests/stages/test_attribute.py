from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from jvm.code import lookup as codetable
from stages.attribute.addresses import ADDRESSES, AT_SIZE, OUTSIDE, SITE, UNKNOWN
from stages.attribute.addresses import attribute as kernel
from stages.images import Images
from stages.messages import (
    Account,
    Chunk,
    Clock,
    CodeKind,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    PaneReport,
    PtConfig,
    Sideband,
    SideKind,
    StreamKey,
    StreamOpen,
    Tick,
)
from stages.messages.accounts import joined
from streamer.pipeline.topology import feed_chain, flush_chain
from tests.jvm.exportwriter import Writer
from tests.stages import chains, naive
from tests.stages.ptbytes import OVF, PSB, fup, pgd, psb_plus, tip, tnt, tsc
from tests.stages.test_decode import streams
from tests.stages.test_segment import FAR, machine, sideband, steps

KEY = StreamKey("h", 42, 0, -1)
PANE = 10 * FAR


def code() -> JitBatch:
    written = Writer(10, step=0).method(1, "La/A;", "outer").method(2, "La/B;", "inner").method(3, "La/C;", "run")
    written.codelet(0x5000, 0x5800, 182, "invokevirtual").dynamic_code(0x6000, "vtable stub", bytes(64))
    written.nmethod_load(0x7000, bytes(0x800), 1, [(0x400, [(2, 1), (1, 0)])], blob=9)
    written.nmethod_load(0x8000, bytes(0x100), 3, level=3, blob=9, compile_id=2)
    written.thread_start(7, "main", flags=1)
    return JitBatch("h", 42, 0, np.frombuffer(written.bytes(), np.uint8), 0, 20)


def chain(messages: list[object], **options: Any) -> list[object]:
    """Each stage with a code image of its own, as in processes of their own."""
    stages = chains.ip(pane_ticks=PANE, **options)
    for stage in stages:
        if hasattr(stage, "images"):
            stage.images = Images(lateness_ticks=10)
            stage.images.keepers.append(stage)
        out: list[object] = []
        for message in messages:
            out += stage.feed(message)
        messages = out
    return messages


def table(out: list[object]) -> dict[tuple[int, int, str, int], tuple[int, int]]:
    """(pane, thread, name, kind) → hits, ticks, summed over reports."""
    names: dict[int, str] = {}
    hits: Counter[tuple[int, int, str, int]] = Counter()
    ticks: Counter[tuple[int, int, str, int]] = Counter()
    for report in out:
        if isinstance(report, PaneReport):
            names |= dict(report.names)
            for row in report.profile:
                key = report.pane, int(row["tid"]), names[int(row["method"])], int(row["kind"])
                hits[key] += int(row["hits"])
                ticks[key] += int(row["ticks"])
    return {key: (hits[key], ticks[key]) for key in hits}


def account(out: list[object]) -> Account:
    return joined(a for m in out if isinstance(m, PaneReport) for a in m.accounts)


def feed(
    stream: bytes, side: Sideband | None, cuts: list[int], drains: bool = True, losses: tuple[LossMark, ...] = ()
) -> list[object]:
    places = sorted({0, len(stream), *(c % (len(stream) + 1) for c in cuts), *(m.offset for m in losses)})
    messages: list[object] = [StreamOpen(KEY, PtConfig(), Clock(1, 0, 0, 0)), code()]
    messages += [side] if side is not None else []
    for seq, (a, b) in enumerate(pairwise(places)):
        time = 60 * FAR + seq if drains else 0  # soon after one another: unsettled trace is not old
        here = tuple(m for m in losses if m.offset == a)
        messages.append(Chunk(KEY, seq, a, np.frombuffer(stream[a:b], np.uint8), here, time))
    return [*messages, EndOfStream("test")]


RUNNING = sideband((1, SideKind.SWITCH_IN, 7))


def test_every_address_finds_its_code() -> None:
    stream = psb_plus(PANE, 0x7000) + tip(0x7404) + tip(0x5004) + tip(0x6000) + tip(0x9000) + fup(0x8000)
    stream += pgd(0x123) + tsc(PANE + FAR)
    found = table(chain(feed(stream, RUNNING, [])))
    assert {(name, CodeKind(kind)): hits for (_, _, name, kind), (hits, _) in found.items()} == {
        ("a.B.inner", CodeKind.C2): 1,
        ("a.A.outer", CodeKind.C2): 1,
        ("a.C.run", CodeKind.C1): 1,
        ("[interpreter] invokevirtual", CodeKind.INTERPRETED): 1,
        ("[stub] vtable stub", CodeKind.STUB): 1,
        ("[unknown code]", CodeKind.UNKNOWN): 1,
    }
    assert {key[:2] for key in found} == {(1, 7)}


def test_time_goes_to_the_address_that_holds_until_the_next() -> None:
    head = psb_plus(1000, 0x8000)
    stream = head + tnt("1") * 40 + tip(0x5000) + tnt("1") * 13 + tsc(1000 + len(head) + 60)
    found = table(chain(feed(stream, RUNNING, [])))
    by_name = {name: ticks for (_, _, name, _), (_, ticks) in found.items()}
    assert by_name["[interpreter] invokevirtual"] == 20
    assert by_name["a.C.run"] == len(head) + 40 - head.index(fup(0x8000))


def test_accounts_add_up_to_the_byte_with_every_loss() -> None:
    good = psb_plus(FAR, 0x8000) + tip(0x8004)
    stream = b"\x37" * 5 + good + OVF + fup(0x8000) + b"\x02\x99" + good + tip(0x8004)
    total = account(chain(feed(stream, RUNNING, [])))
    assert (total.start, total.end) == (0, len(stream))
    assert dict(total.holes) == {Loss.NO_SYNC: 5, Loss.BAD_PACKET: 2}
    assert dict(total.events) == {Loss.NO_SYNC: 1, Loss.BAD_PACKET: 1, Loss.OVERFLOW: 1}


@settings(max_examples=60, deadline=None)
@given(steps, st.booleans(), st.lists(st.integers(0, 500), max_size=8), st.booleans())
def test_the_table_does_not_depend_on_chunks(
    operations: list[str | int], dated: bool, cuts: list[int], drains: bool
) -> None:
    made = machine(operations, dated)
    side = sideband(*made.side)
    whole = chain(feed(bytes(made.stream), side, [], drains))
    cut = chain(feed(bytes(made.stream), side, cuts, drains))
    assert table(cut) == table(whole)
    assert account(cut) == account(whole)
    total = account(whole)
    assert total.decoded + sum(n for _, n in total.holes) == len(made.stream)


@settings(max_examples=60, deadline=None)
@given(steps, st.lists(st.integers(0, 20), max_size=5), st.lists(st.integers(0, 500), max_size=8))
def test_nor_does_it_with_losses(operations: list[str | int], places: list[int], cuts: list[int]) -> None:
    made = machine(operations, True)
    stream = bytes(made.stream)
    psbs = [i for i in range(len(stream)) if stream.startswith(PSB, i)]
    losses = tuple(LossMark(psbs[i % len(psbs)], Loss.AUX_FULL, 1, 0) for i in sorted(set(places)) if i < len(psbs))
    side = sideband(*made.side)
    whole, cut = (chain(feed(stream, side, c, False, losses)) for c in ([], cuts))
    assert table(cut) == table(whole)
    assert account(cut) == account(whole)


def test_the_time_of_a_hole_is_nobodys() -> None:
    before = psb_plus(1000, 0x8000) + tip(0x8004)
    stream = before + psb_plus(5000, 0x8000) + tip(0x8004) + tsc(6000)
    for cuts in ([], [len(before) + 3], [len(stream) - 1]):
        found = table(chain(feed(stream, RUNNING, cuts, False, (LossMark(len(before), Loss.AUX_FULL, 9, 4000),))))
        (ticks,) = {ticks for _, ticks in found.values()}
        assert 900 < ticks <= 1000


def time_goes_on(stream: bytes) -> bool:
    """By every place that may be a TSC packet."""
    times = [int.from_bytes(stream[k + 1 : k + 8], "little") for k in range(len(stream)) if stream[k] == 0x19]
    return times == sorted(times)


NOBODYS = b"\x02\x82" * 8 + b"\x19" + bytes(7) + b"\x02\x03\x18\x00\x02\x23" + (b"\x19" + bytes(7)) * 2


@settings(max_examples=60, deadline=None)
@example(NOBODYS, [38])  # a hole that chunks cut is one
@given(streams, st.lists(st.integers(0, 500), max_size=8))
def test_any_bytes_add_up_however_they_are_chunked(stream: bytes, cuts: list[int]) -> None:
    if not stream:
        return
    whole, cut = (chain(feed(stream, RUNNING, c, False)) for c in ([], cuts))
    if time_goes_on(stream):  # where it goes back, in which pane something is depends on where chunks end
        assert table(cut) == table(whole)
    assert account(cut) == account(whole)
    total = account(whole)
    assert (total.start, total.end) == (0, len(stream))
    assert total.decoded + sum(n for _, n in total.holes) == len(stream)
    assert total.decoded <= sum(b - a for a, b in naive.walk(stream).runs)


def test_a_segment_waits_for_late_loads() -> None:
    stages = chains.ip(Images(lateness_ticks=100), pane_ticks=PANE)
    ready = stages[2]

    def send(message: object) -> list[object]:
        messages = [message]
        for each in stages:
            messages = [m for before in messages for m in each.feed(before)]
        return messages

    stream = psb_plus(1995, 0xA000) + tip(0xA004) + tsc(2000)
    send(code())
    send(RUNNING)
    send(Chunk(KEY, 0, 0, np.frombuffer(stream, np.uint8), (), 2010))
    send(Tick("h", 42, 2050))
    assert ready.statistics()["ready_held_segments"] == 1
    late = Writer(2090, step=0).method(9, "Lq/Late;", "load").nmethod_load(0xA000, bytes(16), 9, blob=1)
    send(JitBatch("h", 42, 1, np.frombuffer(late.bytes(), np.uint8)))
    send(Tick("h", 42, 2110))
    assert ready.statistics()["ready_held_segments"] == 1  # the drain at 2110 is perhaps not all here yet
    send(Tick("h", 42, 2120))
    assert ready.statistics()["ready_held_segments"] == 0
    assert {name for _, _, name, _ in table(list(flush_chain(stages)))} == {"q.Late.load"}


def test_code_told_before_the_clock_is_known_is_told_in_time() -> None:
    batch, opened = code(), StreamOpen(KEY, PtConfig(), Clock(1 << 10, 10, 0, 0))  # 10^9 ticks a second
    data = psb_plus(1995, 0xA000) + tip(0xA004) + tsc(2000)
    late = Writer(2090, step=0).method(9, "Lq/Late;", "load").nmethod_load(0xA000, bytes(16), 9, blob=1).bytes()
    late_batch = JitBatch("h", 42, 1, np.frombuffer(late, np.uint8))
    messages = [batch, late_batch, opened, RUNNING, Chunk(KEY, 0, 0, np.frombuffer(data, np.uint8)), EndOfStream("x")]
    for stage in chains.ip(Images(100e-9)):
        messages = [m for before in messages for m in stage.feed(before)]
    assert {name for _, _, name, _ in table(messages)} == {"q.Late.load"}


def test_what_cannot_wait_is_a_hole() -> None:
    stream = psb_plus(FAR, 0x8000) + tip(0x8004) * 50 + tsc(2 * FAR)
    messages = feed(stream, RUNNING, [])
    messages.remove(code_of(messages))
    out = chain(messages, max_held=100)
    assert dict(account(out).holes).get(Loss.CODE_PENDING, 0) > 0
    assert account(out).end == len(stream)


def code_of(messages: list[object]) -> object:
    return next(m for m in messages if isinstance(m, JitBatch))


def test_panes_close_in_order_and_only_once() -> None:
    stream = b"".join(psb_plus(n * PANE // 2, 0x8000) + tip(0x8004) for n in range(1, 12)) + tsc(6 * PANE)
    messages = feed(stream, RUNNING, list(range(0, 500, 40)))
    messages = [replace(m, tsc=(m.seq + 1) * PANE) if isinstance(m, Chunk) else m for m in messages]
    reports = [m for m in chain(messages) if isinstance(m, PaneReport)]
    closed = [r.pane for r in reports if r.closed]
    assert closed == sorted(set(closed))
    assert closed[-1] == max(r.pane for r in reports)


def test_a_broken_clock_does_not_take_for_ever() -> None:
    stream = psb_plus(FAR, 0x8000) + tip(0x8004) + tsc((1 << 56) - 1) + tip(0x8008)
    stages = chains.ip(Images(lateness_ticks=0), pane_ticks=10)
    messages = [StreamOpen(KEY, PtConfig(), Clock(1, 0, 0, 0)), code(), RUNNING]
    messages.append(Chunk(KEY, 0, 0, np.frombuffer(stream, np.uint8)))
    reports = [out for message in messages for out in feed_chain(stages, message)] + list(flush_chain(stages))
    assert stages[3].counts["time_jumps"] == 1
    assert sum(hits for hits, _ in table(reports).values()) == 3


# the kernel


CODE = [(0x5000, 0x5800, 0, 1 << 63, 1), (0x7000, 0x7800, 30, 60, 2), (0x7000, 0x7800, 60, 1 << 63, 3)]
"""Start, end, since, until, site."""


def code_table() -> codetable.Table:
    rows = np.zeros(len(CODE), codetable.ROW_DTYPE)
    for i, (start, end, since, until, site) in enumerate(CODE):
        rows[i] = (start, end, since, until, i + 1, 0, 0, site)
    return codetable.build(rows, np.zeros(0, np.uint32), np.zeros(0, np.int32))


def site_of(ip: int, time: int) -> int:
    return next((site for start, end, a, b, site in CODE if start <= ip < end and a <= time < b), 0)


@settings(max_examples=200, deadline=None)
@given(
    streams,
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 100)), max_size=5),
    st.lists(st.integers(0, 120), max_size=4),
    st.sampled_from([OUTSIDE, 1]),
)
def test_attributed_tick_by_tick(stream: bytes, inner: list[tuple[float, int]], panes: list[int], before: int) -> None:
    expected = naive.walk(stream)
    table = code_table()
    for start, end in expected.runs:
        data, size = np.frombuffer(stream[start:end], np.uint8).copy(), end - start
        point = np.array(sorted([0, size, *(int(x * size) for x, _ in inner)]), np.int64)
        tsc_ = np.array(sorted([0, 100, *(time for _, time in inner)]), np.uint64)

        def time_of(at: int, point: np.ndarray = point, tsc_: np.ndarray = tsc_) -> int:
            k = max(i for i in range(len(point) - 1) if point[i] <= at)
            a, b = int(tsc_[k]), int(tsc_[k + 1])
            slope = (b - a) / int(point[k + 1] - point[k]) if point[k + 1] > point[k] else 0.0
            return min(a + int(slope * (at - int(point[k]))), b)

        assume(not size or time_of(0) == int(tsc_[0]))  # as `_points` makes them
        here = [(p - start, ip) for p, ip in expected.addresses if start <= p < end]
        rows = [(0, before)] + [(time_of(p), site_of(ip, time_of(p)) if ip else OUTSIDE) for p, ip in here]
        at, when = np.zeros(AT_SIZE, np.int64), np.zeros(2, np.uint64)
        at[SITE] = before
        lo = 0
        for hi in [*sorted(set(panes) - {0}), 1000]:
            hits, ticks = np.zeros(5, np.uint64), np.zeros(5, np.uint64)
            kernel(data, table, point, tsc_, np.uint64(hi), at, when, hits, ticks)
            until = [*(time for time, _ in rows[1:]), 100]
            spent: Counter[int] = Counter()
            for tick in range(lo, min(hi, 100)):
                spent.update(site for (a, site), b in zip(rows, until, strict=True) if a <= tick < b)
            met = Counter(site for a, site in rows[1:] if lo <= a < hi)
            assert hits.tolist() == [met[s] for s in range(5)]
            assert ticks.tolist() == [spent[s] for s in range(5)]
            lo = hi
        assert at[SITE] == rows[-1][1]
        sites = [site for _, site in rows[1:] if site != OUTSIDE]
        assert (at[ADDRESSES], at[UNKNOWN]) == (len(sites), sites.count(0))

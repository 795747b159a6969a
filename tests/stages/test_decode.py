from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.decode.stage import Decode
from stages.messages import (
    Account,
    Chunk,
    Clock,
    Decoded,
    EndOfStream,
    Loss,
    LossMark,
    MarkKind,
    PtConfig,
    StreamKey,
    StreamOpen,
    Tick,
)
from stages.messages.accounts import joined
from tests.stages import naive
from tests.stages.ptbytes import OVF, PAD, PSB, fup, mtc, pgd, pge, psb_plus, tip, tma, tnt, tsc

KEY = StreamKey("h", 42, 0, -1)


def chunks(stream: bytes, cuts: list[int], losses: tuple[LossMark, ...] = ()) -> list[Chunk]:
    places = sorted({0, len(stream), *(c % (len(stream) + 1) for c in cuts), *(m.offset for m in losses)})
    out = []
    for seq, (a, b) in enumerate(zip(places, places[1:] or [len(stream)], strict=False)):
        here = tuple(m for m in losses if m.offset == a)
        out.append(Chunk(KEY, seq, a, np.frombuffer(stream[a:b], np.uint8), here, 10))
    return out


def decode(messages: list[Chunk], config: PtConfig | None = None, marks: int = 64) -> list[object]:
    stage = Decode(marks)
    out: list[object] = []
    if config:
        out += stage.feed(StreamOpen(KEY, config, Clock(1, 0, 0, 0)))
    for message in messages:
        out += stage.feed(message)
    return [m for m in out + stage.flush() if not isinstance(m, Tick | StreamOpen)]


def decoded(out: list[object]) -> list[Decoded]:
    return [m for m in out if isinstance(m, Decoded)]


def account(out: list[object]) -> Account:
    """Of everything: decoded bytes are accounted by a later stage."""
    parts = [Account(KEY, d.offset, d.offset + len(d.data), len(d.data), ()) for d in decoded(out)]
    return joined(sorted([*parts, *(m for m in out if isinstance(m, Account))], key=lambda a: (a.start, a.end)))


def summary(out: list[object]) -> tuple[list[tuple[int, int]], list[tuple[int, int, int, int]], bytes]:
    runs: list[tuple[int, int]] = []
    marks: list[tuple[int, int, int, int]] = []
    for d in decoded(out):
        end = d.offset + len(d.data)
        if runs and runs[-1][1] == d.offset and not any(m.cause != Loss.OVERFLOW for m in d.losses):
            runs[-1] = runs[-1][0], end
        else:
            runs.append((d.offset, end))
        marks += [(int(m["kind"]), int(m["offset"]), int(m["ip"]), int(m["tsc"])) for m in d.marks]
    return runs, marks, b"".join(d.data.tobytes() for d in decoded(out))


packets = st.one_of(
    st.builds(tip, st.integers(0, 1 << 47), st.sampled_from([0, 1, 2, 3, 4, 6])),
    st.builds(fup, st.integers(0, 1 << 47), st.sampled_from([1, 3])),
    st.builds(pge, st.integers(0, 1 << 47), st.sampled_from([1, 2, 3])),
    st.builds(pgd, st.integers(0, 1 << 47), st.sampled_from([0, 3])),
    st.builds(tnt, st.text("01", min_size=1, max_size=6)),
    st.builds(tsc, st.integers(0, 1 << 40)),
    st.builds(psb_plus, st.integers(0, 1 << 40), st.sampled_from([0, 0x7F0000001000])),
    st.sampled_from([OVF, PAD, PAD * 3]),
)
junk = st.sampled_from([b"\x02\x99", b"\xed", b"\x05" * 3, PSB[:6] + b"\x01", b"\x02\x82\x02\x82"])
streams = st.builds(
    lambda lead, parts, tail: lead + b"".join(parts) + tail,
    st.sampled_from([b"", b"\x81\x02\x82", b"\x37" * 20]),
    st.lists(st.one_of(packets, packets, packets, junk), max_size=40),
    st.sampled_from([b"", b"\x19\x01", PSB[:9]]),
)


@settings(max_examples=150, deadline=None)
@given(streams, st.lists(st.integers(0, 1000), max_size=12), st.sampled_from([1, 5, 64]))
def test_against_a_plain_decoder_however_it_is_chunked(stream: bytes, cuts: list[int], marks: int) -> None:
    out = decode(chunks(stream, cuts), marks=marks)
    expected = naive.walk(stream)
    runs, found, data = summary(out)
    assert runs == expected.runs
    assert found == expected.marks
    assert data == b"".join(stream[a:b] for a, b in expected.runs)
    if stream:
        total = account(out)
        assert (total.start, total.end, total.decoded) == (0, len(stream), len(data))
        assert sum(n for _, n in total.holes) == expected.holes


def test_many_overflows_are_told_as_many_and_cost_one_message() -> None:
    stream = psb_plus(5, 0) + (OVF + fup(0x7F0000001000, 3)) * 5000
    out = decode(chunks(stream, []), marks=1 << 14)
    assert account(out).events == ((Loss.OVERFLOW, 5000),)
    assert sum((d.marks["kind"] == MarkKind.OVF).sum() for d in decoded(out)) == 5000
    assert not any(d.losses for d in decoded(out))
    assert sum(isinstance(m, Account) and bool(m.events) for m in out) == 1


@settings(max_examples=100, deadline=None)
@given(
    streams,
    st.lists(st.integers(0, 1000), max_size=8),
    st.lists(
        st.tuples(st.integers(0, 500), st.sampled_from([Loss.AUX_FULL, Loss.OFF_DUTY, Loss.SIDEBAND_LOST])), max_size=4
    ),
)
def test_losses_do_not_depend_on_chunks(stream: bytes, cuts: list[int], places: list[tuple[int, Loss]]) -> None:
    losses = tuple(sorted({LossMark(at % (len(stream) + 1), cause, 3, 7) for at, cause in places}))
    if not stream:
        return
    whole, cut = (decode(chunks(stream, c, losses)) for c in ([], cuts))
    assert summary(cut)[1:] == summary(whole)[1:]
    here = [m for m in losses if m.offset < len(stream)]
    assert account(cut) == account(whole)
    assert dict(account(cut).events).get(Loss.AUX_FULL, 0) == sum(m.cause == Loss.AUX_FULL for m in here)


@pytest.mark.parametrize("cause", [Loss.AUX_FULL, Loss.OFF_DUTY])
def test_a_loss_is_followed_by_a_resync_at_the_next_psb(cause: Loss) -> None:
    a, b = psb_plus(100, 0x1000) + tip(0x2000)[:4], tip(0x3000) + psb_plus(200, 0x1000) + tip(0x4000)
    out = decode(chunks(a + b, [], (LossMark(len(a), cause, 99, 150),)))
    first, second = decoded(out)
    assert first.offset + len(first.data) == len(a) - 4
    assert second.offset == len(a) + 7
    assert [m.cause for m in second.losses] == [cause]
    total = account(out)
    assert total.holes == tuple(sorted(((cause, 4), (Loss.NO_SYNC, 7))))
    assert total.never_written == ((cause, 99),)
    assert total.events == tuple(sorted(((cause, 1), (Loss.NO_SYNC, 1))))


@pytest.mark.parametrize(
    ("losses", "cause"), [((), Loss.TRANSPORT), ((LossMark(200, Loss.CAPTURE_DOWN, 0, 5),), Loss.CAPTURE_DOWN)]
)
def test_a_gap_in_the_offsets(losses: tuple[LossMark, ...], cause: Loss) -> None:
    first = psb_plus(100, 0x1000)
    second = psb_plus(300, 0x1000)
    out = decode(
        [
            Chunk(KEY, 0, 0, np.frombuffer(first, np.uint8)),
            Chunk(KEY, 2, 200, np.frombuffer(second, np.uint8), losses),
        ]
    )
    total = account(out)
    assert total.holes == ((cause, 200 - len(first)),)
    assert total.events == ((cause, 1),)
    assert [m.cause for m in decoded(out)[1].losses] == [cause]


def test_a_gap_with_a_reason_in_its_middle_is_two_holes() -> None:
    """Capture died at 200; the first chunk of its successor, from there to 260, was refused. In front of a worker that
    is new, too."""
    losses = (LossMark(200, Loss.CAPTURE_DOWN, 0, 5), LossMark(260, Loss.TRANSPORT, 0, 6))
    data = np.frombuffer(psb_plus(100, 0x1000), np.uint8)
    for marks, until in (losses, 260), (losses[:1], 270):
        stage = Decode(first=True)
        out = [*stage.feed(Chunk(KEY, 1, until, data, marks, 10)), *stage.flush()]
        total = account(out)
        assert dict(total.holes) == {Loss.CAPTURE_DOWN: 200, Loss.TRANSPORT: until - 200}
        assert dict(total.events) == {Loss.CAPTURE_DOWN: 1, Loss.TRANSPORT: 1}
        assert [(m.cause, m.offset) for m in decoded(out)[0].losses] == [
            (Loss.CAPTURE_DOWN, 200), (Loss.TRANSPORT, until)
        ]  # fmt: skip


def test_bytes_told_twice_count_once() -> None:
    data = np.frombuffer(psb_plus(100, 0x1000) + tip(0x2000), np.uint8)
    out = decode([Chunk(KEY, 0, 0, data), Chunk(KEY, 1, 10, data[10:]), Chunk(KEY, 2, 0, data)])
    assert account(out).decoded == len(data)


def test_a_key_that_is_opened_again_is_another_stream() -> None:
    data = np.frombuffer(psb_plus(100, 0x1000) + tip(0x2000), np.uint8)
    stage = Decode()
    opened = StreamOpen(KEY, PtConfig(), Clock(1, 0, 0, 0))
    out = [m for c in (opened, Chunk(KEY, 0, 0, data), opened, Chunk(KEY, 0, 0, data)) for m in stage.feed(c)]
    assert [d.offset for d in decoded(out)] == [0, 0]


def test_time_from_mtc() -> None:
    # crystal 1 tick = 100 TSC ticks; MTC each 2^3 crystal ticks. The TSC stands 30 ticks behind crystal tick 17.
    config = PtConfig(mtc_shift=3, ctc_num=200, ctc_den=2)
    stream = PSB + tsc(100_030) + tma(17, 30) + fup(0x1000) + b"\x02\x23" + mtc(3) + tip(0x2000) + mtc(4) + mtc(2)
    (out,) = decoded(decode(chunks(stream, []), config))
    times = [int(m["tsc"]) for m in out.marks]
    assert times == [100_030, 100_000 + 7 * 100, 100_000 + 15 * 100, 100_000 + (15 + 254 * 8) * 100]
    assert [int(m["kind"]) for m in out.marks] == [MarkKind.PSB] + [MarkKind.TIME] * 3


def test_time_without_tsc_is_that_of_the_drain() -> None:
    stream = PSB + fup(0x1000) + b"\x02\x23" + tip(0x2000)
    (out,) = decoded(decode([Chunk(KEY, 0, 0, np.frombuffer(stream, np.uint8), (), 777)]))
    assert int(out.marks[0]["tsc"]) == 777


def test_a_tsc_packet_has_56_bits() -> None:
    now = (5 << 56) + 1000
    data = np.frombuffer(psb_plus((4 << 56) + (1 << 56) - 50, 0x1000) + tsc(now), np.uint8)
    (out,) = decoded(decode([Chunk(KEY, 0, 0, data, (), now)]))
    assert [int(m["tsc"]) for m in out.marks] == [(5 << 56) - 50, now]


def test_each_drain_gives_one_tick_and_the_rest_passes() -> None:
    stage = Decode()
    empty = np.empty(0, np.uint8)
    other = StreamKey("h", 42, 1, -1)
    out = [m for c in (Chunk(KEY, 0, 0, empty, (), 5), Chunk(other, 0, 0, empty, (), 5)) for m in stage.feed(c)]
    assert out == [Tick("h", 42, 5), Account(KEY, 0, 0, 0, ()), Account(other, 0, 0, 0, ())]
    assert stage.feed(EndOfStream("x")) == [EndOfStream("x")]
    assert stage.feed("what") == ["what"]


@pytest.mark.parametrize(("first", "start"), [(True, 0), (False, 100)])
def test_what_is_missing_before_the_first_chunk(first: bool, start: int) -> None:
    """It is lost only if no worker before decoded it."""
    stage = Decode(first=first)
    out = [*stage.feed(Chunk(KEY, 3, 100, np.frombuffer(psb_plus(100, 0x1000), np.uint8))), *stage.flush()]
    found = account(out)
    assert (found.start, found.holes) == (start, ((Loss.TRANSPORT, 100),) if first else ())


def live(messages: list[Chunk], late: set[int]) -> list[object]:
    """With a clock that is far ahead of those chunks."""
    clock = Clock(1, 0, 0, 0)
    now = [0]
    stage = Decode(64, now=lambda: now[0], most_behind_seconds=100 / clock.hz, grace_seconds=0)
    out = stage.feed(StreamOpen(KEY, PtConfig(), clock))
    for message in messages:
        now[0] = message.tsc + 200 * (message.seq in late)
        out += stage.feed(message)
    return [m for m in out + stage.flush() if not isinstance(m, Tick | StreamOpen)]


@given(streams, st.lists(st.integers(0, 1000), max_size=12), st.sets(st.integers(1, 12)))
def test_a_chunk_that_came_too_late_is_as_one_that_never_came(stream: bytes, cuts: list[int], late: set[int]) -> None:
    messages = chunks(stream, cuts)
    late &= set(range(len(messages) - 1))
    found = live(messages, late)
    lost = decode([message for message in messages if message.seq not in late])
    assert summary(found) == summary(lost)
    unread, transport = account(found), account(lost)
    holes = {Loss.TRANSPORT if cause == Loss.UNREAD else cause: n for cause, n in unread.holes}
    assert holes == dict(transport.holes)
    events = {Loss.TRANSPORT if cause == Loss.UNREAD else cause: n for cause, n in unread.events}
    assert events == dict(transport.events)
    assert unread.decoded + sum(holes.values()) == len(stream)
    assert dict(unread.holes).get(Loss.UNREAD, 0) >= sum(len(m.data) for m in messages if m.seq in late)


def test_what_was_lost_at_a_chunk_is_told_though_it_is_not_read() -> None:
    stream = PSB + psb_plus(5) + pge(0x1000)
    full = LossMark(len(stream), Loss.AUX_FULL, 7, 10)
    messages = [*chunks(stream, []), Chunk(KEY, 1, len(stream), np.zeros(9, np.uint8), (full,), 10)]
    told = account(live(messages, {1}))
    assert dict(told.never_written) == {Loss.AUX_FULL: 7}
    assert dict(told.holes)[Loss.UNREAD] == 9
    assert told.decoded + sum(n for _, n in told.holes) == len(stream) + 9


def test_behind_a_short_stall_all_is_read() -> None:
    clock, now = Clock(1, 0, 0, 0), [0]
    stage = Decode(64, now=lambda: now[0], most_behind_seconds=100 / clock.hz, grace_seconds=50 / clock.hz)
    stage.feed(StreamOpen(KEY, PtConfig(), clock))
    unread = list[int]()
    for at, drained in ((200, 10), (210, 120), (220, 180), (400, 200), (449, 250), (450, 300), (460, 390), (470, 440)):
        now[0] = at
        stage.feed(Chunk(KEY, 0, len(unread), np.zeros(1, np.uint8), (), drained))
        unread.append(stage.counts["unread_bytes"])
    assert unread == [0, 0, 0, 0, 0, 1, 2, 2]  # 300 is late, 390 is more than half of it, 440 is not

"""Each rule of PT against the plain reference, and its users against each other on the same bytes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jvm.kernels import kernel
from stages.follow.repair import way
from stages.follow.walk.state import X_DEPTH, X_SIZE, pop, push, raw_walker
from stages.messages import MARK_DTYPE, MarkKind
from stages.pointers import addresses, first_item
from stages.pt import packets as p
from stages.pt.crystal import ctc_step, full_tsc, tsc_ticks
from stages.pt.exact import walker as exact
from stages.pt.last_ip import full_ip, ip_size, reserved
from stages.pt.packets import packet_at
from stages.pt.psb_plus import BRANCH, PLACE, RESUMES, STATUS, belongs_in_psb_plus, binds_fup, ends_psb_plus, fup_is
from stages.pt.return_stack import DEPTH, SLOTS, left_under, pushed
from stages.pt.scan import MARK_WORDS, PADDING, STATE_SIZE, TIME, last_ip_at, walk
from stages.pt.tnt import count, is_short, long_bits, short_bits
from tests.pt import naive
from tests.pt import ptwriter as w

_plainly = settings(max_examples=400, deadline=None)
_U64 = (1 << 64) - 1


# Rules have no entry from Python.


@kernel
def _ip(header, payload, last):  # type: ignore[no-untyped-def]
    return reserved(header), ip_size(header), full_ip(header >> 5, payload, last)


@kernel
def _at(padded, at, block):  # type: ignore[no-untyped-def]
    return packet_at(first_item(padded), at, block)


@kernel
def _tnt(byte, low):  # type: ignore[no-untyped-def]
    return is_short(byte), short_bits(byte), long_bits(low)


@kernel
def _count(bits):  # type: ignore[no-untyped-def]
    return count(bits)


@kernel
def _full_tsc(payload, near):  # type: ignore[no-untyped-def]
    return full_tsc(payload, near)


@kernel
def _ctc(mtc, last, bits, shift):  # type: ignore[no-untyped-def]
    return ctc_step(mtc, last, bits, shift)


@kernel
def _ticks(ctc, num, den):  # type: ignore[no-untyped-def]
    return tsc_ticks(ctc, num, den)


def _signed(number: int) -> np.int64:
    return np.int64(np.uint64(number))


@_plainly
@given(some.integers(0, 255), some.binary(min_size=8, max_size=8), some.integers(0, _U64))
def test_last_ip_of_every_form(header: int, behind: bytes, last: int) -> None:
    none, size, ip = _ip(np.int64(header), _signed(int.from_bytes(behind, "little")), _signed(last))
    form = header >> 5
    assert bool(none) == (form in (5, 7))
    if not none:
        assert size == (0, 2, 4, 6, 6, 0, 8)[form]
        payload = int.from_bytes(behind[:size], "little")
        assert int(ip) & _U64 == naive.full_ip(last, form, payload)
        assert int(p.reconstruct_ip(np.uint64(last), form, np.uint64(payload))) == naive.full_ip(last, form, payload)


@_plainly
@given(some.integers(0, 255), some.text("!.", min_size=1, max_size=47))
def test_outcomes_of_tnt(byte: int, branches: str) -> None:
    low = int.from_bytes(w.tnt64(branches), "little")
    short, bits, many = _tnt(np.int64(byte), _signed(low))
    assert bool(short) == (byte % 2 == 0 and byte not in (0, 2))
    assert f"{many:b}"[1:] == branches.replace("!", "1").replace(".", "0")
    assert _count(many) == len(branches)
    if short:
        assert f"{bits:b}" == f"{byte:08b}"[:-1].lstrip("0")


def test_no_outcome() -> None:
    assert (_count(np.int64(1)), _count(np.int64(0))) == (0, -1)


@_plainly
@given(some.integers(0, (1 << 56) - 1), some.integers(0, _U64 - (1 << 57)))
def test_a_tsc_is_the_nearest_with_its_56_bits(payload: int, near: int) -> None:
    tsc = int(_full_tsc(np.uint64(payload), np.uint64(near)))
    epoch = near >> 56
    assert abs(tsc - near) == min(abs((e << 56 | payload) - near) for e in (epoch - 1, epoch, epoch + 1) if e >= 0)
    assert tsc % (1 << 56) == payload


@_plainly
@given(some.integers(0, 15), some.integers(0, 1 << 40), some.integers(0, 254), some.booleans())
def test_crystal_ticks_between_a_tma_or_an_mtc_and_the_next_mtc(shift: int, ctc: int, more: int, tma: bool) -> None:
    period = 1 << shift
    ctc = ctc if tma else ctc // period * period
    bits = min(16, shift + 8) if tma else shift + 8
    later = (ctc // period + 1 + more % ((1 << bits - shift) - 1)) * period
    last = ctc & (1 << bits) - 1
    assert _ctc(np.int64(later // period & 0xFF), np.int64(last), np.int64(bits), np.int64(shift)) == later - ctc


def test_an_mtc_of_the_period_in_which_the_tma_stood_lies_before_it() -> None:
    assert _ctc(np.int64(5), np.int64(5 << 3 | 6), np.int64(11), np.int64(3)) == -6


@_plainly
@given(some.integers(0, 1 << 50), some.integers(0, 1 << 34), some.integers(1, 1 << 20))
def test_crystal_ticks_as_tsc_ticks(ctc: int, num: int, den: int) -> None:
    if ctc * num // den < 1 << 63 and ctc % den * num < 1 << 63:
        assert int(_ticks(np.int64(ctc), np.int64(num), np.int64(den))) == ctc * num // den


_heads = some.sampled_from([b"\x99", b"\x02\xa3", b"\x02\xc3\x88", b"\x02\x73", b"\xd9", b"\x07", b"\xff", w.psb()[:8]])


@settings(max_examples=2000, deadline=None)
@given(_heads | some.integers(0, 255).map(lambda ext: bytes((2, ext))) | some.just(b""), some.binary(min_size=16),
       some.sampled_from([0, 4, 8]))  # fmt: skip
def test_how_long_a_packet_is(head: bytes, tail: bytes, block: int) -> None:
    raw = (head + tail)[:16]
    try:
        size = naive.packet(raw, block)[1]
    except naive.BadError:
        size = 0
    assert _at(np.frombuffer(raw + bytes(PADDING), np.uint8), 0, block)[1] == size


@kernel
def _stacked(ops, state, stack, flow, way_state, way_stack, out):  # type: ignore[no-untyped-def]
    """Each operation (an entry > 0 is pushed; 0 pops) on each walker's stack: the entry popped, how many are left."""
    walker = raw_walker(state)
    for n in range(len(ops)):
        out[n, 0] = out[n, 2] = out[n, 4] = 0
        if ops[n]:
            push(walker, ops[n])
            exact.push(flow[0], np.uint64(ops[n]))
            way.push(way_state, way_stack, ops[n])
        else:
            out[n, 0] = pop(walker)
            out[n, 2] = exact.pop(flow[0])[1]
            out[n, 4] = way.pop(way_state, way_stack)
        out[n, 1], out[n, 3], out[n, 5] = walker.x[X_DEPTH], flow[0]["depth"], way_state[way.W_DEPTH]


@settings(max_examples=200, deadline=None)
@given(some.lists(some.tuples(some.integers(0, 90), some.integers(0, 90)), max_size=8))
def test_all_walkers_keep_the_return_stack_of_the_processor(turns: list[tuple[int, int]]) -> None:
    ops, known, expected = list[int](), list[int](), list[list[int]]()
    for pushes, pops in turns:
        for op in [*range(len(ops) + 1, len(ops) + 1 + pushes), *[0] * pops]:
            ops.append(op)
            back = 0
            if op:
                known = [*known, op][-DEPTH:]
            elif known:
                back = known.pop()
            expected.append([back, len(known)] * 3)
    arrays: list[np.ndarray] = [
        np.zeros(X_SIZE, np.int64), np.zeros(SLOTS, np.int32), *(np.zeros(1, np.int64) for _ in range(5)),
    ]  # fmt: skip
    flow, out = np.zeros(1, exact.FLOW_DTYPE), np.zeros((len(ops), 6), np.int64)
    _stacked(
        np.array(ops, np.int64), addresses(*arrays), arrays[1], flow, np.zeros(way.W_SIZE, np.int64),
        np.zeros(DEPTH, np.int64), out,
    )  # fmt: skip
    assert out.tolist() == expected


@kernel
def _depths(depth, high, kept):  # type: ignore[no-untyped-def]
    return pushed(left_under(depth, high), kept)


@_plainly
@given(some.integers(0, DEPTH), some.integers(0, DEPTH), some.integers(0, 200))
def test_entries_that_others_have_pushed_off(depth: int, high: int, kept: int) -> None:
    """Up to `high` entries lie on `depth` others, are popped, and `kept` are pushed."""
    stack = ["old"] * depth
    stack = [*stack, *["gone"] * high][-DEPTH:]
    stack = [*[entry for entry in stack if entry == "old"], *["new"] * kept][-DEPTH:]
    assert _depths(np.int64(depth), np.int64(high), np.int64(kept)) == len(stack)


@kernel
def _fup(psb_plus, behind_ovf, bound):  # type: ignore[no-untyped-def]
    return fup_is(psb_plus, behind_ovf, bound)


@kernel
def _binds(kind, low, psb_plus):  # type: ignore[no-untyped-def]
    return binds_fup(kind, low, psb_plus), ends_psb_plus(kind), belongs_in_psb_plus(kind)


def test_what_a_fup_is() -> None:
    found = {flags: int(_fup(*map(np.int64, flags))) for flags in product((0, 1), repeat=3)}
    assert {flags for flags, says in found.items() if says == STATUS} == {f for f in found if f[0]}
    assert {flags for flags, says in found.items() if says == RESUMES} == {(0, 1, 0), (0, 1, 1)}
    assert (found[0, 0, 1], found[0, 0, 0]) == (int(PLACE), int(BRANCH))


@pytest.mark.parametrize(
    ("packet", "kind", "outside", "inside"),
    [
        (w.mode_exec(), p.MODE_EXEC, True, False), (w.mode_tsx(True, False), p.MODE_TSX, True, False),
        (w.mode_tsx(False, True), p.MODE_TSX, False, False), (w.exstop(True), p.EXSTOP, True, True),
        (w.exstop(False), p.EXSTOP, False, False), (w.ptw(2, 8, True), p.PTW, True, True),
        (w.tsc(1), p.TSC, False, False),
        (w.psbend(), p.PSBEND, False, False), (w.ovf(), p.OVF, False, False), (w.cbr(9), p.CBR, False, False),
    ],
)  # fmt: skip
def test_packets_that_ask_for_a_fup(packet: bytes, kind: int, outside: bool, inside: bool) -> None:
    low = np.int64(int.from_bytes(packet[:8].ljust(8, b"\0"), "little", signed=True))
    binds, ends, belongs = _binds(np.int64(kind), low, np.int64(0))
    assert (bool(binds), bool(_binds(np.int64(kind), low, np.int64(1))[0])) == (outside, inside)
    assert bool(ends) == (kind in (p.PSBEND, p.OVF))
    assert bool(belongs) == (kind in (p.MODE_EXEC, p.MODE_TSX, p.TSC, p.CBR))


# Users: all that read packets find the same ones in the same bytes.

_address = some.integers(0, _U64)
_form = some.sampled_from([0, 1, 2, 3, 4, 6])
_packets = some.one_of(
    some.builds(w.tip, _address, _form), some.builds(w.fup, _address, _form), some.builds(w.tip_pge, _address, _form),
    some.builds(w.tip_pgd, _address, _form), some.text("!.", min_size=1, max_size=6).map(w.tnt8),
    some.text("!.", min_size=1, max_size=47).map(w.tnt64), some.integers(0, 1 << 40).map(w.tsc),
    some.builds(w.tma, some.integers(0, 0xFFFF), some.integers(0, 511)), some.integers(0, 255).map(w.mtc),
    some.integers(0, _U64).map(w.cyc), some.builds(w.mode_exec, some.sampled_from([16, 32, 64])),
    some.builds(w.mode_tsx, some.booleans(), some.booleans()),
    some.builds(lambda size, items: w.bbp(1, size) + b"".join(w.bip(i, 7, size) for i in items) + w.bep(),
                some.sampled_from([4, 8]), some.lists(some.integers(0, 31), max_size=3)),
    some.builds(w.trig, some.integers(0, 255), some.none() | some.integers(0, 0xFFFF)),
    some.sampled_from([
        w.pad() * 3, w.ovf(), w.stop(), w.cbr(9), w.pip(0x5000), w.vmcs(0x7000), w.mnt(5), w.ptw(1, 4),
        w.ptw(2, 8, True), w.exstop(True), w.mwait(1, 2), w.pwre(3), w.pwrx(1, 2), w.cfe(1, 2), w.evd(1, 2), w.bbp(2),
        w.psb() + w.psbend(), w.psb() + w.tsc(99) + w.mode_exec() + w.fup(0x1234, 3) + w.psbend(), w.psb() + w.ovf(),
    ]),
)  # fmt: skip
_streams = some.lists(_packets, max_size=30).map(lambda parts: w.psb() + w.psbend() + b"".join(parts))


def _whole(packets: list[naive.Packet]) -> tuple[list[int], list[tuple[int, int, int]], list[int]]:
    """The expected results of a walk: where it may stop, its marks but TIME (kind, offset, ip), and the last IP at each
    stop."""
    stops, last, ips = [0], 0, [0]
    marks = list[tuple[int, int, int]]()
    psb = -1
    for at in packets:
        if psb >= 0 and at.kind in (p.OVF, p.PSB):
            psb = -1
        if at.kind == p.PSB:
            psb, last = len(marks), 0
            marks.append((int(MarkKind.PSB), at.offset, 0))
        elif at.kind in (p.TIP, p.FUP, p.TIP_PGE, p.TIP_PGD):
            last = at.ip
        if psb >= 0 and at.kind == p.FUP:
            marks[psb] = (*marks[psb][:2], at.ip)
        elif at.kind in (p.TIP_PGE, p.TIP_PGD):
            kind = MarkKind.PGE if at.kind == p.TIP_PGE else MarkKind.PGD
            marks.append((int(kind), at.offset, at.ip if at.sub else 0))
        elif at.kind == p.OVF:
            marks.append((int(MarkKind.OVF), at.offset, 0))
        if at.kind == p.PSBEND:
            psb = -1
        if psb < 0:
            stops.append(at.offset + at.size)
            ips.append(last)
    return stops, marks, ips


def _walked(raw: bytes, end: int, state: Any, room: int = 64) -> tuple[int, list[tuple[int, int, int]]]:
    data = np.frombuffer(raw[:end] + bytes(PADDING), np.uint8).copy()
    out = np.zeros(MARK_WORDS * room, np.int64)
    at, found = 0, []
    why = 1
    while why == 1:  # there was no room
        at, n, _, why = walk(data, at, end, 0, False, state, 3, 200, 2, np.uint64(0), out)
        found += out[: MARK_WORDS * n].view(MARK_DTYPE).tolist()
    return at, [(kind, offset, ip) for offset, ip, _, kind, _ in found if kind != MarkKind.TIME]


@settings(max_examples=400, deadline=None)
@given(_streams, some.data(), some.sampled_from([1, 3, 64]))
def test_readers_find_the_same_packets(raw: bytes, data: Any, room: int) -> None:
    packets = naive.decode(raw)
    array = np.frombuffer(raw, np.uint8).copy()
    padded = np.frombuffer(raw + bytes(PADDING), np.uint8)
    at, context = 0, 0
    for packet in packets:
        block = context & p.BLOCK_BYTES
        assert _at(padded, at, block)[1] == packet.size
        kind, size, payload, sub = p.next_packet(array, at, len(raw), context)
        assert (kind, size, payload, sub) == (packet.kind, packet.size, packet.payload, packet.sub)
        context = int(p.next_context(context, kind, np.uint64(payload)))
        at += packet.size
    stops, marks, ips = _whole(packets)
    end = data.draw(some.integers(0, len(raw)))
    state = np.zeros(STATE_SIZE, np.uint64)
    reached, found = _walked(raw, end, state, room)
    if reached not in stops:  # inside a PSB+ that went on for too long
        pytest.fail(f"{reached} is between packets")
    assert reached == max(stop for stop in stops if stop <= end)
    assert found == [mark for mark in marks if mark[1] < reached]
    assert int(last_ip_at(array, 0, reached, np.uint64(0))) == ips[stops.index(reached)]


_STEERS = {p.TIP: way.N_TIP, p.TIP_PGE: way.N_PGE, p.TIP_PGD: way.N_PGD, p.FUP: way.N_FUP}


def _steering(packets: list[naive.Packet]) -> list[tuple[int, int]]:
    """Packets that tell a search where to go: kind and bits, or address (all ones: none). As far as it follows them."""
    out = []
    in_psb = bound = False
    for packet in packets:
        kind, sub = packet.kind, packet.sub
        if kind in (p.TNT_8, p.TNT_64):
            out.append((way.N_BITS, 1 << sub | packet.payload))
        elif kind in _STEERS:
            if kind != p.FUP or not (in_psb or bound):
                out.append((_STEERS[kind], packet.ip if sub else _U64))
            bound = bound and kind == p.FUP and in_psb
        elif kind in (p.OVF, p.BBP) or (kind == p.MODE_EXEC and sub & 3 != 1):
            break
        elif kind == p.MODE_EXEC or (kind == p.MODE_TSX and not sub & 2):
            bound = bound or not in_psb
        elif kind in (p.PSB, p.PSBEND):
            in_psb = kind == p.PSB
            bound = bound and not in_psb
        elif kind in (p.CFE, p.EXSTOP, p.PTW, p.BEP, p.TRIG):
            bound = bound or bool(sub & p.IP_FLAG)
    return out


@kernel
def _look(padded, end, w):  # type: ignore[no-untyped-def]
    way.look(first_item(padded), end, 0, w)


@settings(max_examples=400, deadline=None)
@given(_streams)
def test_a_search_is_steered_by_the_same_packets(raw: bytes) -> None:
    padded = np.frombuffer(raw + bytes(PADDING), np.uint8)
    w_state = np.zeros(way.WAY_SIZE, np.int64)
    found = []
    while True:
        _look(padded, len(raw), w_state)
        kind = int(w_state[way.W_NEXT])
        if kind == way.N_END:
            break
        value = w_state[way.W_BITS if kind == way.N_BITS else way.W_IP]
        found.append((kind, int(value) & _U64))
    assert found == _steering(naive.decode(raw))


def test_times_do_not_go_back() -> None:
    state = np.zeros(STATE_SIZE, np.uint64)
    _walked(w.psb() + w.psbend() + w.tsc(500) + w.tsc(400), 34, state)
    assert state[TIME] == 500

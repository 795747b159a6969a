"""The packet layer: each form once by hand, then kernels against the plain decoder on made streams."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from stages.pt import packet_scan as ps
from stages.pt import packets as p
from stages.pt.dump import dump
from tests.pt import naive
from tests.pt import ptwriter as w
from tests.pt.naive import Packet

EXAMPLES = int(os.environ.get("PT_EXAMPLES", "300"))
_thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
_IP = 0xFFFF_8123_4567_89AB


def _array(raw: bytes) -> Any:
    return np.frombuffer(raw, np.uint8)


def _one(raw: bytes, context: int = 0) -> tuple[int, int, int, int]:
    kind, size, payload, sub = p.next_packet(_array(raw), 0, len(raw), context)
    return int(kind), int(size), int(payload), int(sub)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (w.pad(), (p.PAD, 1, 0, 0)),
        (w.tnt8("!"), (p.TNT_8, 1, 1, 1)),
        (w.tnt8(".!!..!"), (p.TNT_8, 1, 0b011001, 6)),
        (w.tnt64("!" * 47), (p.TNT_64, 8, (1 << 47) - 1, 47)),
        (w.tnt64("." * 3), (p.TNT_64, 8, 0, 3)),
        (w.tip(_IP, 1), (p.TIP, 3, 0x89AB, 1)),
        (w.tip_pge(_IP, 2), (p.TIP_PGE, 5, 0x4567_89AB, 2)),
        (w.tip_pgd(_IP, 3), (p.TIP_PGD, 7, 0x8123_4567_89AB, 3)),
        (w.fup(_IP, 4), (p.FUP, 7, 0x8123_4567_89AB, 4)),
        (w.fup(_IP, 6), (p.FUP, 9, _IP, 6)),
        (w.tip_pgd(), (p.TIP_PGD, 1, 0, 0)),
        (w.pip(0x1234_5000, nr=True), (p.PIP, 8, 0x1234_5000, 1)),
        (w.mode_exec(64, iflag=True), (p.MODE_EXEC, 2, 0, 5)),
        (w.mode_exec(16), (p.MODE_EXEC, 2, 0, 0)),
        (w.mode_tsx(abort=True), (p.MODE_TSX, 2, 0, 2)),
        (w.stop(), (p.STOP, 2, 0, 0)),
        (w.cbr(0x24), (p.CBR, 4, 0x24, 0)),
        (w.tsc(0xAA_1234_5678_9ABC), (p.TSC, 8, 0xAA_1234_5678_9ABC, 0)),
        (w.mtc(0xC3), (p.MTC, 2, 0xC3, 0)),
        (w.tma(0x1234, 0x1FF), (p.TMA, 7, 0x1234, 0x1FF)),
        (w.cyc(7), (p.CYC, 1, 7, 0)),
        (w.cyc(0x1234), (p.CYC, 3, 0x1234, 0)),
        (w.cyc((1 << 64) - 1), (p.CYC, 10, (1 << 64) - 1, 0)),
        (w.ovf(), (p.OVF, 2, 0, 0)),
        (w.vmcs(0x12_3456_7000), (p.VMCS, 7, 0x12_3456_7000, 0)),
        (w.psb(), (p.PSB, 16, 0, 0)),
        (w.psbend(), (p.PSBEND, 2, 0, 0)),
        (w.mnt(0x1122_3344_5566_7788), (p.MNT, 11, 0x1122_3344_5566_7788, 0)),
        (w.ptw(0xCAFE_BABE), (p.PTW, 6, 0xCAFE_BABE, 0)),
        (w.ptw(_IP, 8, ip=True), (p.PTW, 10, _IP, 0x81)),
        (w.exstop(ip=True), (p.EXSTOP, 2, 0, 0x80)),
        (w.mwait(0x11, 0x22), (p.MWAIT, 10, 0x22 << 32 | 0x11, 0)),
        (w.pwre(5, 1, hw=True), (p.PWRE, 4, 0x5108, 0)),
        (w.pwrx(6, 7), (p.PWRX, 7, 0x0167, 0)),
        (w.bbp(4, 8), (p.BBP, 3, 8, 4)),
        (w.bep(ip=True), (p.BEP, 2, 0, 0x80)),
        (w.cfe(1, 14, ip=True), (p.CFE, 4, 14, 0x81)),
        (w.evd(2, _IP), (p.EVD, 11, _IP, 2)),
        (w.trig(0x1A), (p.TRIG, 3, 0x1A, 0)),
        (w.trig(0xA1, 0x102, mult=True), (p.TRIG, 5, 0xA1 | 0x102 << 8, 0x60)),
    ],
)
def test_every_form(raw: bytes, expected: tuple[int, int, int, int]) -> None:
    assert _one(raw) == expected
    assert naive.packet(raw) == expected
    for size in range(len(raw)):
        assert _one(raw[:size])[0] == p.CUT


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\xc9", p.UNKNOWN),
        (b"\x02\x04", p.UNKNOWN),
        (b"\x02\xc3\x00", p.UNKNOWN),
        (b"\xad" + bytes(8), p.MALFORMED),  # IPBytes 5
        (b"\x99\x40", p.MALFORMED),  # MODE leaf 2
        (b"\x02\x52" + bytes(16), p.MALFORMED),  # PTW with PayloadBytes 2
        (b"\x02\x82" * 7 + b"\x02\x83", p.MALFORMED),
        (b"\x02\xa3" + bytes(6), p.MALFORMED),  # no stop bit
        (b"\x02\x73\x00\x00\x01\x00\x00", p.MALFORMED),
        (b"\x07" + b"\xff" * 14 + b"\x00", p.MALFORMED),  # 103 bits of cycles
    ],
)
def test_what_is_no_packet(raw: bytes, code: int) -> None:
    assert _one(raw)[0] == code
    with pytest.raises(naive.BadError) as caught:
        naive.packet(raw)
    assert caught.value.code == code


def test_long_cyc_may_be_padded_with_zeros() -> None:
    raw = b"\x0f" + b"\x01" * 13 + b"\x00"
    assert _one(raw) == (p.CYC, 15, 1, 0) == naive.packet(raw)


def test_bip_is_a_tnt_outside_its_block() -> None:
    raw = w.bbp(4, 4) + w.bip(3, 0x11223344, 4) + w.cyc(3) + w.bip(4, 5, 4) + w.bep() + w.bip(3, 0, 4)
    kinds = [packet.kind for packet in naive.decode(w.psb() + raw)]
    assert kinds == [p.PSB, p.BBP, p.BIP, p.CYC, p.BIP, p.BEP, p.TNT_8, *[p.PAD] * 4]


def test_skd007_and_skz84() -> None:
    assert _one(b"\x07\x02\xf3", p.SKD007) == (p.OVF, 3, 0, 0)
    assert _one(b"\x07\x02\xf3")[:3] == (p.CYC, 2, 0x20)
    assert _one(b"\x07\x02", p.SKD007)[0] == p.CUT  # a chunk may end here
    assert _one(b"\x07\x02\xf0", p.SKD007)[:3] == (p.CYC, 2, 0x20)
    assert _one(b"\x02\x73\x00\x00\x00\x00\x02\xff", p.SKZ84) == (p.INVALID, 8, 0, 0)


def test_addresses_outside_the_buffer_are_never_read() -> None:
    data = _array(w.tip(_IP, 6))
    for at, end in ((-1, 9), (9, 9), (3, 2), (0, 10), (1 << 62, 1 << 62)):
        assert p.next_packet(data, at, end, 0)[0] == p.CUT


@pytest.mark.parametrize(
    ("ip_bytes", "expected"),
    [(0, 0x0A00_CCCC_DDDD_EEEE), (1, 0x0A00_CCCC_DDDD_8765), (2, 0x0A00_CCCC_8642_8765), (4, 0x0A00_9ABC_8642_8765),
     (3, 0xFFFF_9ABC_8642_8765), (6, 0x1111_9ABC_8642_8765)],
)  # fmt: skip
def test_ip_compression(ip_bytes: int, expected: int) -> None:
    last, ip = 0x0A00_CCCC_DDDD_EEEE, 0x1111_9ABC_8642_8765
    payload = naive.packet(w.tip(ip, ip_bytes))[2]
    assert int(p.reconstruct_ip(np.uint64(last), ip_bytes, np.uint64(payload))) == expected
    assert naive.full_ip(last, ip_bytes, payload) == expected


def _scan(data: bytes, ends: list[int], room: int, **errata: bool) -> list[Packet]:
    """As a stream that arrives up to each of `ends`; SKIPPED pieces put together."""
    context = (p.SKD007 if errata.get("skd007") else 0) | (p.SKZ84 if errata.get("skz84") else 0)
    state = ps.scanner(context)
    out = np.zeros(room, ps.PACKET_DTYPE)
    array = _array(data)
    found: list[Packet] = []
    at = 0
    for end in [*sorted(ends), len(data)]:
        while True:
            n, at = ps.scan(array, at, max(end, at), 0, state, out)
            for r in out[:n]:
                one = Packet(
                    int(r["offset"]), int(r["kind"]), int(r["size"]), int(r["payload"]), int(r["sub"]), int(r["ip"])
                )
                if one.kind == p.SKIPPED and found and found[-1].kind == p.SKIPPED:
                    begin = found.pop()
                    one = begin._replace(size=begin.size + one.size)
                found.append(one)
            if n < room:
                break
    return found


_number = some.integers(0, (1 << 64) - 1)
_branches = some.text("!.", min_size=1, max_size=6)
_ip_bytes = some.sampled_from([0, 1, 2, 3, 4, 6])
_well_formed = some.one_of(
    some.sampled_from([w.pad(), w.psb(), w.psbend(), w.ovf(), w.stop()]),
    some.builds(lambda f, ip: f(ip), some.sampled_from([w.exstop, w.bep]), some.booleans()),
    _branches.map(w.tnt8),
    some.text("!.", min_size=1, max_size=47).map(w.tnt64),
    some.builds(lambda f, ip, n: f(ip, n), some.sampled_from([w.tip, w.tip_pge, w.tip_pgd, w.fup]), _number, _ip_bytes),
    some.builds(w.cyc, _number),
    some.builds(w.tsc, _number),
    some.builds(w.tma, some.integers(0, 0xFFFF), some.integers(0, 0x1FF)),
    some.builds(w.mtc, some.integers(0, 255)),
    some.builds(w.cbr, some.integers(0, 255)),
    some.builds(w.pip, _number, some.booleans()),
    some.builds(w.vmcs, _number),
    some.builds(w.mnt, _number),
    some.builds(w.ptw, _number, some.sampled_from([4, 8]), some.booleans()),
    some.builds(w.bbp, some.integers(0, 31), some.sampled_from([4, 8])),
    some.builds(w.bip, some.integers(0, 31), _number, some.sampled_from([4, 8])),
    some.builds(w.cfe, some.integers(0, 31), some.integers(0, 255), some.booleans()),
    some.builds(w.evd, some.integers(0, 31), _number),
    some.builds(w.trig, some.integers(0, 255), some.none() | some.integers(0, 999), some.booleans(), some.booleans()),
)  # fmt: skip
_cut = some.builds(lambda raw, size: raw[:size], _well_formed, some.integers(0, 15))
_damaged = some.binary(min_size=1, max_size=24) | some.sampled_from(
    [w.psb()[:6], w.psb() + w.psb()[:4], b"\x02\x73\x01\x01\x01\x01\x03\x07", b"\x07\x02\xf3", b"\x02", b"\x82"]
)
streams = some.lists(some.one_of(_well_formed, _well_formed, _well_formed, _cut, _damaged), max_size=40).map(b"".join)


@_thorough
@given(streams, some.booleans(), some.lists(some.integers(0, 300), max_size=4), some.integers(1, 50), some.booleans())
def test_kernels_agree_with_the_plain_decoder(
    stream: bytes, begins_synced: bool, ends: list[int], room: int, errata: bool
) -> None:
    data = w.psb() + stream if begins_synced else stream
    # a chunk that ends inside a run of 02 82 cannot know which 16 bytes of it will be the PSB
    ends = [end for end in ends if end < len(data) and b"\x82" not in data[max(end - 2, 0) : end + 1]]
    found = _scan(data, ends, room, skd007=errata, skz84=errata)
    assert found == naive.decode(data, skd007=errata, skz84=errata)


@_thorough
@given(streams)
def test_every_byte_is_accounted_for(stream: bytes) -> None:
    at = 0
    for packet in naive.decode(stream):
        assert packet.offset == at or (packet.kind == p.PSB and at - 15 <= packet.offset < at)
        at = packet.offset + packet.size
    assert len(stream) - at <= 16


@_thorough
@given(some.lists(_well_formed, max_size=12), some.integers(0, 15))
def test_a_dump_says_where_the_trace_ends_inside_a_packet(pieces: list[bytes], missing: int) -> None:
    trace = w.psb() + b"".join(pieces)
    trace = trace[: max(len(trace) - missing, 16)]
    packets = naive.decode(trace)
    assume(all(packet.kind != p.BAD for packet in packets))  # a BIP outside its block can be anything
    reached = packets[-1].offset + packets[-1].size
    errors = [line for line in dump(_array(trace)) if "error decoding" in line]
    said = f"[{reached:x}: error decoding packet: the trace ends inside a packet]"
    assert errors == ([said] if reached < len(trace) else [])


def test_the_beginning_of_a_psb_among_skipped_bytes_is_no_cut_packet() -> None:
    trace = w.psb() + w.psbend() + b"\xc9" * 20 + w.psb()[:6]
    assert list(dump(_array(trace)))[2:] == ["[12: error decoding packet: bytes that begin no packet]"]
    assert not list(dump(_array(w.psb()[:6])))

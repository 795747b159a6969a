"""Contradictions and their effects: suspect blocks, walks that go back, code that is patched in between."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from jvm.code.snapshot import CodeView
from stages.follow.code.jumps import NO_JUMPS, UPDATES_CALL
from stages.follow.flow import Flow, FlowOutput
from stages.follow.walk import path_sequence as orders
from stages.follow.walk import state
from stages.follow.walk.segment_walk import Piece
from stages.messages import PtConfig, ThreadKey
from tests.flow.helpers import addresses, breaks, decode, segment
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Processor, program

_many = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
_START = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()


def flow_over(code: bytes) -> Flow:
    flow = Flow(PtConfig(), context=False)
    flow.set_code(CodeView.of([(BASE, code)]))
    return flow


def paths(outputs: list[FlowOutput]) -> list[int]:
    return [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.observed)]


def told(outputs: list[FlowOutput], trace: bytes | bytearray) -> list[tuple[int, ...]]:
    """Without `at`: it depends on how far the code had been looked at."""
    names = ("offset", "cause", "ip", "confirmed_offset")
    rows = [tuple(int(row[name]) for name in names) for out in outputs for row in out.breaks]
    return [(*row[:-1], behind_padding(trace, row[-1])) for row in rows]


def behind_padding(trace: bytes | bytearray, at: int) -> int:
    return len(trace) - len(trace[at:].lstrip(b"\0"))


def test_what_no_address_confirmed_is_suspect() -> None:
    code = b"\x74\x00\x74\x00\xff\xe0".ljust(16, b"\x90")  # je +0; je +0; jmp rax
    before = _START + w.tnt8("!!") + w.tip(BASE)
    trace = before + w.tnt8("!") + w.tip(BASE) + w.tnt8("!!") + w.fup(BASE + 4) + w.tip_pgd()
    flow = flow_over(code)
    (out,) = flow.feed(segment(trace))
    assert breaks([out]) == [state.B_TIP_AT_TNT]
    row = out.breaks[0]
    assert [int(ip) - BASE for ip in orders.addresses(out.tables, out.order)] == [0, 2, 4, 0, 0, 2]
    assert [int(ip) - BASE for ip in orders.addresses(out.tables, out.order[row["confirmed"] : row["order"]])] == [0]
    assert paths([out]) == [BASE + k for k in (0, 2, 4, 0, 2)]
    assert row["confirmed_offset"] == len(before)
    assert out.suspect_instructions == 1
    assert out.suspect_bytes == row["offset"] - len(before)
    assert int(out.times @ out.tables.path_instrs[out.paths]) == 5
    assert flow.statistics()["suspect_instructions"] == 1


def test_an_overflow_makes_nothing_suspect() -> None:
    (out,) = flow_over(b"\x74\x00\x90\xff\xe0".ljust(16, b"\x90")).feed(segment(_START + w.tnt8("!") + w.ovf()))
    assert breaks([out]) == [state.B_OVERFLOW]
    assert out.suspect_bytes == out.suspect_instructions == 0
    assert len(paths([out])) == 1


def test_a_contradiction_leaves_the_return_stack() -> None:
    code = b"\xff\xd0\x74\xfc\x90" + b"\x74\x00\xc3"  # 0: call rax; je 0; … 5: je +0; ret
    trace = _START + w.tip(BASE + 5) + w.tip(BASE + 5) + w.tnt8(".!.") + w.fup(BASE + 4) + w.tip_pgd()
    ran, broken = decode(flow_over(code.ljust(16, b"\xf4")), trace)
    assert broken == [state.B_TIP_AT_TNT]
    assert [ip - BASE for ip in ran] == [0, 5, 7, 2]


@_many
@given(some.integers(0, 1 << 32), some.integers(2, 40), some.integers(50, 400), some.randoms(use_true_random=False))
def test_going_back_changes_nothing(seed: int, size: int, steps: int, rng: Random) -> None:
    """Contradictions that are trapped and then let pass leave the results without holding; the walker stands at the
    last address before each of them."""
    maker = Random(seed)
    code, instructions = program(maker, size)
    processor = Processor(maker, instructions)
    processor.run(steps)
    trace = bytearray(processor.trace)
    for _ in range(rng.randrange(1, 9)):
        trace[rng.randrange(16, len(trace))] = rng.randrange(256)
    times = [(rng.randrange(len(trace)), k) for k in range(1, 5)]
    piece = segment(bytes(trace), times=sorted(times), tsc=(1, 9))
    plain, holding = flow_over(code), flow_over(code)
    held: list[tuple[int, int, int]] = []

    def search(thread: ThreadKey, at: Piece) -> bool:
        held.append((at.contradicted, at.cause, behind_padding(trace, at.position)))
        return len(held) % 3 == 0 and held.count(held[-1]) < 3  # once more, for nothing

    holding.search = search
    expected, got = plain.feed(piece), holding.feed(piece)
    assert addresses(got) == addresses(expected)
    assert paths(got) == paths(expected)
    assert [t[1:] for t in told(got, trace)] == [t[1:] for t in told(expected, trace)]
    # of a packet with TNT bits, or behind it
    assert all(abs(a[0] - b[0]) <= 8 for a, b in zip(told(got, trace), told(expected, trace), strict=True))
    assert [o.ticks.sum().round(6) for o in got] == [o.ticks.sum().round(6) for o in expected]
    gaps = {state.B_OVERFLOW, state.B_BAD_PACKET, state.B_OTHER_MODE}
    contradictions = {(t[0], t[1], t[3]) for t in told(expected, trace) if t[1] not in gaps}
    doubts = {state.B_TNT_AT_TIP, state.B_NOT_DISABLED}  # of deferred TIPs, and of jumps out of the filter
    assert {cause for _, cause, _ in set(held) - contradictions} <= doubts
    first = {(at, sure) for at, cause, sure in held if cause in doubts}  # their effects are at the same packet
    assert {t for t in contradictions - set(held) if (t[0], t[2]) not in first} == set()


@_many
@given(some.integers(0, 1 << 32), some.integers(2, 40), some.integers(50, 400), some.randoms(use_true_random=False))
def test_a_patch_is_as_good_as_new_code(seed: int, size: int, steps: int, rng: Random) -> None:
    maker = Random(seed)
    code, instructions = program(maker, size)
    processor = Processor(maker, instructions)
    processor.run(steps)
    flow = flow_over(code)
    now = bytearray(code)
    for _ in range(4):
        flow.feed(segment(processor.trace))
        at = rng.randrange(len(code))
        new = bytes(rng.choice((rng.randrange(256), code[k], 0x90)) for k in range(at, min(at + 4, len(code))))
        now[at : at + len(new)] = new
        flow.patch(BASE + at, new)
        assert decode(flow, processor.trace) == decode(flow_over(bytes(now)), processor.trace)
    again = CodeView.of([(BASE, code)], epoch=1)
    flow.set_code(again)  # it says nothing new
    assert decode(flow, processor.trace) == decode(flow_over(bytes(now)), processor.trace)
    flow.set_code(again._replace(blob=np.array([1], np.int32)))
    assert decode(flow, processor.trace) == decode(flow_over(code), processor.trace)


def test_a_search_that_finds_the_code_is_not_noticed() -> None:
    """A call that was patched: the walker walks the packets again with the present code."""
    old = bytearray(b"\x90" * 64)
    old[0:5] = b"\xe8\x0b\x00\x00\x00"  # call 16
    old[5:7] = b"\xff\xe0"  # jmp rax
    old[16:20] = b"\x74\x00\x74\x00"  # je +0; je +0
    old[33] = 0xC3
    new = bytearray(old)
    new[1] = 0x1B  # call 32
    trace = _START + (w.tnt8("!") + w.tip(BASE)) * 50 + w.tnt8("!") + w.fup(BASE + 5) + w.tip_pgd()
    flow = flow_over(bytes(old))

    def search(thread: ThreadKey, piece: Piece) -> bool:
        assert piece.cause == state.B_TIP_AT_TNT
        flow.patch(BASE, bytes(new[:5]))
        piece.settle()
        return True

    flow.search = search
    outputs = flow.feed(segment(trace))
    assert not breaks(outputs)
    assert addresses(outputs) == addresses(flow_over(bytes(new)).feed(segment(trace)))
    assert flow.statistics()["trapped"] == 1
    assert flow.statistics()["patches"] == 1


def test_where_resolvers_went() -> None:
    code = bytearray(b"\x90" * 64)
    code[0:5] = b"\xe8\x0b\x00\x00\x00"  # call 16
    code[5:7] = b"\x74\xf9"  # je 0
    code[16:18] = b"\xff\xe0"  # jmp rax
    code[32] = 0xC3
    trace = _START + w.tip(BASE + 32) + w.tnt8("!!") + w.tip(BASE + 32) + w.tnt8("!.") + w.fup(BASE + 7) + w.tip_pgd()
    flow = flow_over(bytes(code))
    for known in (False, True, False):
        flow.jumps = NO_JUMPS._replace(ranges=np.array([(BASE + 16, BASE + 20, UPDATES_CALL)])) if known else NO_JUMPS
        (out,) = flow.feed(segment(trace))
        assert not len(out.breaks)
        seen = [(int(row["returns"]), int(row["target"])) for row in out.resolved]
        assert seen == ([(BASE + 5, BASE + 32)] * 2 if known else [])


def test_patches_outside_the_code_are_refused() -> None:
    flow = flow_over(b"\x90" * 8)
    for at in (BASE - 1, BASE + 6):
        with pytest.raises(ValueError, match="no code"):
            flow.patch(at, b"abc")
    assert np.array_equal(flow.code.code[:8], np.full(8, 0x90, np.uint8))

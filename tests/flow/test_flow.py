"""The walker against a processor that knows its own execution, against the exact decoder, and on real traces."""

from __future__ import annotations

import hashlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from jvm.code.snapshot import CodeView
from stages.follow.flow import Capacity, Flow
from stages.follow.walk import path_sequence as orders
from stages.follow.walk import state
from stages.messages import PtConfig
from stages.pt.exact.decoder import FlowDecoder, Options
from stages.pt.exact.text import TextOptions, lines
from tests.flow.helpers import addresses, breaks, decode, segment
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Processor, program
from tests.pt.naive import decode as packets

_many = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
_START = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()
DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "pt-hardware"


def flow_over(code: bytes, *, compress: bool = True, context: bool = True, base: int = BASE) -> Flow:
    flow = Flow(PtConfig(noretcomp=not compress), context=context)
    flow.set_code(CodeView.of([(base, code)]))
    return flow


def executed(seed: int, size: int, steps: int, compress: bool) -> tuple[bytes, Processor]:
    rng = Random(seed)
    code, instructions = program(rng, size)
    processor = Processor(rng, instructions, compress)
    processor.run(steps)
    return code, processor


@_many
@given(some.integers(0, 1 << 32), some.integers(2, 60), some.integers(0, 600), some.booleans(), some.booleans())
def test_what_was_executed_is_decoded(seed: int, size: int, steps: int, compress: bool, context: bool) -> None:
    code, processor = executed(seed, size, steps, compress)
    flow = flow_over(code, compress=compress, context=context)
    for _ in range(2):  # the second time everything is remembered
        ran, broken = decode(flow, processor.trace)
        assert ran == processor.executed
        assert set(broken) <= {state.B_OVERFLOW}


@_many
@given(some.integers(0, 1 << 32), some.integers(2, 60), some.integers(50, 600), some.data())
def test_pieces_are_as_good_as_the_whole(seed: int, size: int, steps: int, data: some.DataObject) -> None:
    code, processor = executed(seed, size, steps, True)
    trace = processor.trace
    starts = [o for o in packet_starts(trace) if o]
    borders = sorted(data.draw(some.sets(some.sampled_from(starts), max_size=6))) if starts else []
    flow = flow_over(code)
    got: list[int] = []
    for begin, end in zip([0, *borders], [*borders, len(trace)], strict=True):
        piece = segment(trace[begin:end], offset=begin, last_ip=last_ip_at(trace, begin), continues=begin > 0)
        got += addresses(flow.feed(piece))
    assert got == processor.executed


def packet_starts(trace: bytes) -> list[int]:
    return [p.offset for p in packets(trace) if p.size]


def last_ip_at(trace: bytes, offset: int) -> int:
    last = 0
    for p in packets(trace):
        if p.offset >= offset:
            break
        if p.size == 16:
            last = 0
        last = p.ip or last
    return last


@_many
@given(some.integers(0, 1 << 32), some.integers(2, 40), some.integers(50, 400), some.randoms(use_true_random=False))
def test_hostile_traces(seed: int, size: int, steps: int, rng: Random) -> None:
    """Bytes changed at random: it ends, and up to the first contradiction it saw the same as the exact decoder."""
    code, processor = executed(seed, size, steps, True)
    trace = bytearray(processor.trace)
    for _ in range(rng.randrange(1, 6)):
        trace[rng.randrange(16, len(trace))] = rng.randrange(256)
    modes = [trace[k + 1] for k in range(len(trace) - 1) if trace[k] == 0x99]
    assume(all(mode >> 5 or mode & 3 == 1 for mode in modes))  # code of 16 and 32 bits only the exact decoder follows
    flow = flow_over(code)
    outputs = flow.feed(segment(bytes(trace)))
    for out in outputs:
        assert out.times.sum() == len(orders.paths(orders.plain(out.tables, out.observed)))
        assert (np.diff(out.breaks["order"]) >= 0).all()
        assert (out.breaks["offset"] <= len(trace)).all()
    exact = FlowDecoder(np.frombuffer(bytes(trace), np.uint8), CodeView.of([(BASE, code)]), Options())
    truth: list[int] = []
    for line in (line for batch in exact for line in lines(batch, TextOptions())):
        if "error" in line or "overflow" in line:
            break
        if line[0] != "[":
            truth.append(int(line.removeprefix("? "), 16))  # in a transaction, if a changed byte says so
    first = outputs[0]
    until = int(first.breaks["order"][0]) if len(first.breaks) else len(first.order)
    got = [int(ip) for ip in orders.addresses(first.tables, first.order[:until])]
    both = min(len(got), len(truth))
    assert got[:both] == truth[:both]


@pytest.mark.parametrize(
    ("code", "trace", "cause"),
    [
        pytest.param(b"\xeb\xfe", w.tnt8("!"), state.B_STUCK, id="a jump to itself"),
        pytest.param(b"\xe8\xfb\xff\xff\xff", w.tip(BASE), state.B_STUCK, id="recursion without a packet"),
        pytest.param(b"\xc3", w.tnt8("."), state.B_RETURN_BIT, id="compressed return not taken"),
        pytest.param(b"\xc3", w.tnt8("!"), state.B_NO_RETURN, id="compressed return without a call"),
        pytest.param(b"\x90", w.tnt8("!"), state.B_OFF_CODE, id="the code ends"),
        pytest.param(b"\x0f\xff", w.tnt8("!"), state.B_STUCK, id="no instruction"),
        pytest.param(b"\x74\x00\x90", w.tip(BASE), state.B_TIP_AT_TNT, id="a TIP where a bit must come"),
        pytest.param(b"\x74\x00\x90", w.tnt8("!") + w.tip_pge(BASE), state.B_ENABLED_TWICE, id="enabled twice"),
        pytest.param(b"\x74\x00\x90", w.fup(BASE + 1) + w.tip(BASE), state.B_FUP_OFF_PATH, id="FUP off the path"),
        pytest.param(
            b"\x74\x00\x90", w.psb() + w.fup(BASE + 1) + w.psbend(), state.B_PSB_OFF_PATH, id="PSB off the path"
        ),
        pytest.param(b"\x74\x00\x90", b"\x05", state.B_BAD_PACKET, id="no packet"),
        pytest.param(b"\x74\x00\x90", w.tip(BASE)[:3], state.B_BAD_PACKET, id="a cut packet"),
        pytest.param(b"\x74\x00\x90", w.ovf(), state.B_OVERFLOW, id="overflow"),
        pytest.param(b"\xff\xe0", w.tip_pgd() + w.tnt8("!"), state.B_WHILE_DISABLED, id="a bit with tracing off"),
    ],
)
def test_contradictions(code: bytes, trace: bytes, cause: int) -> None:
    """Typed, and the walk goes on at the next packet with an address."""
    code = code.ljust(8, b"\xf4") if cause != state.B_OFF_CODE else code
    flow = flow_over(code)
    again = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend() + w.fup(BASE) + w.tip_pgd()
    cut = cause == state.B_BAD_PACKET and len(trace) > 1
    _, broken = decode(flow, _START + trace + (b"" if cut else again))
    assert broken[0] == cause
    assert flow.statistics()[f"break_{state.BREAK_NAMES[cause - 1]}"] >= 1


def test_it_goes_on_at_the_next_address() -> None:
    code = b"\x74\x00\x90\xff\xe0".ljust(16, b"\x90")  # je +0; nop; jmp rax
    trace = _START + w.tip(BASE + 2) + w.tip(BASE) + w.tnt8("!") + w.fup(BASE + 3) + w.tip_pgd()
    outputs = flow_over(code).feed(segment(trace))
    assert breaks(outputs) == [state.B_TIP_AT_TNT]
    assert outputs[0].breaks["ip"][0] == BASE + 2
    assert [ip - BASE for ip in addresses(outputs)] == [2, 3, 0, 2]


def test_an_uncompressed_return_pops() -> None:
    # main: call f; nop ┃ f: ret to somewhere else; there: ret, compressed, must take the outer call's address
    code = bytearray(b"\x90" * 64)
    code[0:5] = b"\xe8\x0b\x00\x00\x00"  # 0: call 16
    code[5:7] = b"\xeb\xfe"
    code[16:21] = b"\xe8\x0b\x00\x00\x00"  # 16: call 32
    code[21] = 0xC3
    code[32] = 0xC3  # returns to 48, not to 21
    code[48] = 0xC3  # compressed: to 5
    trace = _START + w.tip(BASE + 48) + w.tnt8("!") + w.fup(BASE + 5) + w.tip_pgd()
    ran, broken = decode(flow_over(bytes(code)), trace)
    assert [ip - BASE for ip in ran] == [0, 16, 32, 48]
    assert not broken


def test_the_return_stack_keeps_the_youngest_64() -> None:
    code = b"\xff\xd0\xc3"  # call rax; ret
    calls = w.tip(BASE) * 69 + w.tip(BASE + 2)
    for returns, fine in ((64, True), (65, False)):
        trace = _START + calls + w.tnt8("!") * returns + w.fup(BASE + 2) + w.tip_pgd()
        assert (decode(flow_over(code), trace)[1] == []) == fine


def test_filter_edges() -> None:
    """A direct call out of the filter gives a PGD; the address it pushed is popped when tracing comes back."""
    code = b"\xe8\xfb\x0f\x00\x00" + b"\xc3"  # call BASE + 0x1000; ret
    main = BASE + 16
    flow = Flow(PtConfig(filter_lo=BASE, filter_hi=BASE + 0x1000))
    flow.set_code(CodeView.of([(BASE, code), (main, b"\xff\xd0\x90"), (BASE + 0x1000, b"\xc3")]))
    start = w.psb() + w.mode_exec(64) + w.psbend() + w.tip_pge(main)
    trace = start + w.tip(BASE) + w.tip_pgd(BASE + 0x1000, 3) + w.tip_pge(BASE + 5) + w.tnt8("!")
    ran, broken = decode(flow, trace + w.fup(main + 2) + w.tip_pgd())
    assert ran == [main, BASE, BASE + 5]
    assert not broken


def test_loops_cost_nothing() -> None:
    code = b"\x90\x75\xfd\xff\xe0"  # nop; jne back; jmp rax
    trace = _START + w.tnt8("!!!!!!") * 5000 + w.tnt8("!.") + w.fup(BASE + 3) + w.tip_pgd()
    outputs = flow_over(code).feed(segment(trace))
    assert outputs[0].order.nbytes < len(trace) / 20
    assert addresses(outputs) == [BASE, BASE + 1] * 30002


def test_code_that_changes() -> None:
    """Old paths keep their meaning, new ones are walked over the new code, and only paths over changed code are
    forgotten."""
    flow = flow_over(b"\x74\x02\x90\x90\xff\xe0")  # je +2; nop; nop; jmp rax
    trace = _START + w.tnt8(".") + w.tip(BASE) + w.tnt8(".") + w.fup(BASE + 2) + w.tip_pgd()
    first = flow.feed(segment(trace))
    assert [ip - BASE for ip in addresses(first)] == [0, 2, 3, 4, 0]
    flow.set_code(CodeView.of([(BASE, b"\x74\x02\xeb\x00\xff\xe0")], epoch=1))  # jmp +0 where the nops were
    second = flow.feed(segment(trace))
    assert [ip - BASE for ip in addresses(second)] == [0, 2, 4, 0]
    assert flow.statistics()["died"] >= 1
    assert set(orders.blocks(first[0].tables, first[0].order)) != set(orders.blocks(second[0].tables, second[0].order))
    before = flow.statistics()["misses"]
    flow.set_code(CodeView.of([(BASE, b"\x74\x02\xeb\x00\xff\xe0"), (BASE + 64, b"\x90")], epoch=2))
    assert addresses(flow.feed(segment(trace))) == addresses(second)
    assert flow.statistics()["misses"] == before


def shown(flow: Flow, epoch: int, *blobs: tuple[int, bytes, int]) -> bytes:
    """The code from BASE on, after a view of (address, bytes, id) blobs."""
    view = CodeView.of([(at, code) for at, code, _ in blobs], epoch)
    flow.set_code(view._replace(blob=np.array([id_ for *_, id_ in blobs], np.int32)))
    return flow.bytes_at(BASE, 64)


def test_what_is_patched_stays_till_another_is_shown_there() -> None:
    flow, other = Flow(PtConfig()), (BASE - 64, b"\x90" * 8, 2)
    assert shown(flow, 0, (BASE, b"abcdefgh", 1)) == b"abcdefgh"
    flow.patch(BASE + 2, b"CD")
    flow.patch(BASE + 6, b"G")
    died = flow.statistics()["code_changes"]
    assert shown(flow, 1, other, (BASE, b"abcdefgh", 1)) == b"abCDefGh"  # another copy of the same
    assert shown(flow, 2, other, (BASE, b"Abcdefgh", 1)) == b"AbCDefGh"  # something else has changed
    assert flow.statistics()["code_changes"] == died + 2
    assert shown(flow, 3, other, (BASE, b"Abcxefgh", 1)) == b"AbcxefGh"
    assert shown(flow, 4, other, (BASE, b"Abcdefgh", 1)) == b"AbcdefGh"  # it is over
    assert shown(flow, 5, other, (BASE, b"Abcdefg", 1)) == b"AbcdefG"
    assert shown(flow, 6, other, (BASE, b"Abcdefg", 3)) == b"Abcdefg"  # another blob
    flow.patch(BASE, b"a")
    shown(flow, 7, other)
    assert shown(flow, 8, other, (BASE, b"Abcdefg", 3)) == b"Abcdefg"


def test_what_is_patched_stays_till_all_is_read_again() -> None:
    flow = Flow(PtConfig())
    shown(flow, 0, (BASE, b"abcdefgh", 1), (BASE + 64, b"ijkl", 2))
    for at, data, tsc in ((1, b"BC", 100), (4, b"e", 110), (6, b"G", 200), (65, b"J", 100), (66, b"K", 90)):
        flow.patch(BASE + at, data, tsc)
    flow.patch(BASE + 66, b"k", 95)
    assert flow.restore(90) == 0
    assert flow.restore(150) == 2  # two places showed something else
    assert flow.bytes_at(BASE, 8) + flow.bytes_at(BASE + 64, 4) == b"abcdefGhijkl"
    assert flow.restore(150) == 0
    shown(flow, 1, (BASE + 64, b"ijkl", 2))
    assert flow.restore(300) == 0  # it is gone


def test_code_that_comes_late() -> None:
    flow = flow_over(b"\xe9\x3b\x00\x00\x00")  # jmp BASE + 64
    trace = _START + w.tnt8("!") + w.fup(BASE) + w.tip_pgd()
    assert decode(flow, trace)[1][0] == state.B_OFF_CODE
    flow.set_code(CodeView.of([(BASE, b"\xe9\x3b\x00\x00\x00"), (BASE + 64, b"\x75\xbe")], epoch=1))
    ran, broken = decode(flow, trace)
    assert ran[:2] == [BASE, BASE + 64]
    assert not broken


def test_full_tables_make_a_new_generation() -> None:
    """However small the tables: the same addresses, in pieces that know the meaning of their ids."""
    rng = Random(5)
    code, instructions = program(rng, 4000)
    processor = Processor(rng, instructions)
    processor.run(60000)
    flow = Flow(capacity=Capacity(blocks=1 << 16, paths=4096, tnt_cache=4096, pool=1 << 17, nodes=64, contexts=1 << 14))
    flow.set_code(CodeView.of([(BASE, code)]))
    outputs = flow.feed(segment(processor.trace))
    assert addresses(outputs) == processor.executed
    assert set(breaks(outputs)) <= {state.B_OVERFLOW}
    statistics = flow.statistics()
    assert statistics["generations"] > 0
    assert statistics["paths"] <= 4096


def test_bad_views_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        Flow().set_code(CodeView.of([(BASE, b"abc")])._replace(code=np.zeros(1, np.uint8)))
    with pytest.raises(ValueError, match="small"):
        Flow(capacity=Capacity(blocks=100))


def test_time_goes_where_instructions_went() -> None:
    code = b"\x90" * 9 + b"\xff\xe0" + b"\x90" * 4 + b"\xff\xe0"  # ten instructions; five
    second = BASE + 11
    head = _START + w.tip(second)
    trace = head + w.tip(second) + w.tip(BASE)
    times = [(len(head), 1300)]
    (out,) = flow_over(code).feed(segment(trace, times=times, tsc=(1000, 2300)))
    spent = out.spent()
    by_range = dict[int, tuple[int, float]]()
    for lo, n, ticks in zip(spent.lo, spent.instructions, spent.ticks, strict=True):
        have = by_range.get(int(lo), (0, 0.0))
        by_range[int(lo)] = (have[0] + int(n), have[1] + float(ticks))
    assert by_range == {BASE: (10, 300.0), second: (10, 1000.0)}


@pytest.mark.parametrize(("name", "lo", "hi"), [("mruby", 0x400000, 0x4B6000), ("foo", 0x7FFFF7819000, 0x7FFFF79CA000)])
def test_hardware(name: str, lo: int, hi: int) -> None:
    """Recorded on Intel processors; libipt and perf agree on the instructions that ran."""
    directory = DATA / name
    if not directory.exists():
        pytest.skip(f"{directory} is absent")
    pages = np.fromfile(directory / "data.addr", np.uint64)
    dump = (directory / "data.dump").read_bytes()
    flow = Flow(PtConfig(filter_lo=lo, filter_hi=hi, noretcomp=True))
    flow.set_code(CodeView.of([(int(a), dump[4096 * i : 4096 * (i + 1)]) for i, a in enumerate(pages)]))
    trace = (directory / "trace").read_bytes().rstrip(b"\x55")
    text = "".join(f"{ip:x}\n" for ip in addresses(flow.feed(segment(trace))))
    assert hashlib.md5(text.encode()).hexdigest() == (directory / "trace.ips.md5").read_text().split()[0]


@pytest.mark.parametrize("at", [0, (1 << 63) + 5, (1 << 64) - 1])
def test_numbers_that_no_trace_has_are_only_wrong(at: int) -> None:
    flow = flow_over(b"\xc3")
    trace = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend() + w.tip(BASE) * 8
    for last_ip in (0, (1 << 64) - 1):
        piece = segment(trace, offset=at, last_ip=last_ip, times=[(at & 0xFF, (1 << 64) - 1)], tsc=(at, at))
        assert len(addresses(flow.feed(piece))) == 8

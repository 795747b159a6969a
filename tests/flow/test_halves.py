"""Both halves of the address space: user code and kernel code, at the halves' edges, under filters of each kind.

Kernels have addresses as int64, so that those of the upper half are negative numbers.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from numba import njit

from jvm.code import lookup as codetable
from jvm.code.image import CodeImage
from jvm.code.snapshot import CodeView
from stages import pointers as raw
from stages.attribute.addresses import ADDRESSES, AT_SIZE, UNKNOWN, attribute
from stages.follow.code.jumps import UPDATES_CALL, OfImage
from stages.follow.flow import Flow
from stages.follow.repair.backtracking_search import Choice, Position, choose
from stages.follow.repair.effort import Effort
from stages.follow.walk import state
from stages.messages import Break, PtConfig
from stages.pt.exact.decoder import AddressFilter, FlowDecoder, Options
from tests.flow.helpers import decode, segment
from tests.flow.test_choice import LOOP, NONE, call, laid_out, patches
from tests.jvm.exportwriter import Writer
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Processor, program

USER_END, KERNEL = 1 << 47, (1 << 64) - (1 << 47)
END = 1 << 64
SIZE = 0x400
BASES = {
    "low": 0x1000, "user": BASE, "user's end": USER_END - SIZE, "kernel": KERNEL, "kernel's end": END - 4096 - SIZE,
}  # fmt: skip
WORD = some.integers(0, END - 1) | some.sampled_from([0, 1, USER_END - 1, USER_END, KERNEL - 1, KERNEL, END - 1])
_many = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@njit
def _order(a, b, c):  # type: ignore[no-untyped-def]
    return raw.below(a, b), raw.within(a, b, c), raw.excluded(a, b, c), raw.page(a, 8)


@settings(deadline=None)  # it compiles
@given(WORD, WORD, WORD)
def test_addresses_are_compared_as_unsigned_numbers(a: int, b: int, c: int) -> None:
    words = (np.int64(raw.signed(word)) for word in (a, b, c))
    below, within, excluded, page = _order(*words)
    assert (bool(below), page) == (a < b, a >> 8)
    if a <= c or c == 0:
        held = a <= b < (c or END) if a else b < c
        assert (bool(within), bool(excluded)) == (held, a != c and not held)


@njit
def _holder(start, end, address):  # type: ignore[no-untyped-def]
    return raw.holder(start, end, len(start), address), raw.least_at(start, len(start), address)


@settings(deadline=None)
@given(some.sets(WORD, max_size=9), WORD)
def test_searches_among_addresses(edges: set[int], address: int) -> None:
    ordered = sorted(edges)[: len(edges) // 2 * 2]
    start, end = ordered[::2], ordered[1::2]
    columns = (np.array(column, np.uint64).view(np.int64) for column in (start, end))
    held, least = _holder(*columns, np.int64(raw.signed(address)))
    assert held == next((k for k, (lo, hi) in enumerate(zip(start, end, strict=True)) if lo <= address < hi), -1)
    assert least == sum(lo < address for lo in start)


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("limits", [(0, 0), (0x1000, END - 4096), (0, END - 1), None], ids=str)
@_many
@given(seed=some.integers(0, 1 << 32))
def test_what_was_executed_is_decoded_anywhere(base: int, limits: tuple[int, int] | None, seed: int) -> None:
    """`limits`: none; nearly all addresses; all; just the code's own."""
    rng = Random(seed)
    code, instructions = program(rng, 40, base)
    lo, hi = limits or (base, base + len(code))
    processor = Processor(rng, instructions)
    processor.run(300)
    flow = Flow(PtConfig(filter_lo=lo, filter_hi=hi))
    flow.set_code(CodeView.of([(base, code)]))
    for _ in range(2):  # the second time everything is remembered
        ran, broken = decode(flow, processor.trace)
        assert ran == processor.executed
        assert set(broken) <= {state.B_OVERFLOW}


USER, SYSTEM = USER_END - 0x100, KERNEL
# user: je +0; syscall; ret ┃ kernel: je +0; sysret
BLOBS = [(USER, b"\x74\x00\x0f\x05\xc3".ljust(16, b"\xf4")), (SYSTEM, b"\x74\x00\x0f\x07".ljust(16, b"\xf4"))]


@pytest.mark.parametrize(
    ("limits", "trace", "ran"),
    [
        pytest.param(
            (0x1000, END - 4096),
            w.tip_pge(USER, 6) + w.tnt8("!") + w.tip(SYSTEM, 6) + w.tnt8(".") + w.tip(USER + 4, 3) + w.tip_pgd(),
            [USER, USER + 2, SYSTEM, SYSTEM + 2, USER + 4],
            id="mixed",
        ),
        pytest.param(
            (KERNEL, END - 1),
            w.tip_pge(SYSTEM, 3) + w.tnt8(".") + w.tip_pgd(USER + 4, 6) + w.tip_pge(SYSTEM, 6) + w.tnt8("!"),
            [SYSTEM, SYSTEM + 2, SYSTEM],
            id="kernel only",
        ),
        pytest.param(
            (0, USER_END),
            w.tip_pge(USER, 3) + w.tnt8("!") + w.tip_pgd(SYSTEM, 6) + w.tip_pge(USER + 4, 6) + w.tip_pgd(),
            [USER, USER + 2, USER + 4],
            id="user only",
        ),
    ],
)  # fmt: skip
def test_system_calls_under_a_filter(limits: tuple[int, int], trace: bytes, ran: list[int]) -> None:
    trace = w.psb() + w.mode_exec(64) + w.psbend() + trace
    flow = Flow(PtConfig(filter_lo=limits[0], filter_hi=limits[1]))
    flow.set_code(CodeView.of(BLOBS))
    for _ in range(2):
        assert decode(flow, trace) == (ran, [])
    options = Options(filters=(AddressFilter(limits[0], limits[1] - 1),))
    data = np.frombuffer(trace, np.uint8)
    assert [ip for batch in FlowDecoder(data, CodeView.of(BLOBS), options) for ip in batch.ips.tolist()] == ran


@pytest.mark.parametrize("ip", [0, USER_END - 1, USER_END, KERNEL - 1, KERNEL, END - 2, END - 1])
def test_packets_lead_to_edges_without_code(ip: int) -> None:
    """Nothing is there, nothing runs, and the walk goes on where code is."""
    flow = Flow(PtConfig())
    flow.set_code(CodeView.of([(BASE, b"\xff\xe0")]))
    begin = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()
    assert decode(flow, begin + w.tip(ip, 6) + w.tip(BASE, 6) + w.tip(BASE)) == ([BASE, BASE], [])
    assert decode(flow, begin + w.fup(ip, 6) + w.tip(BASE, 6)) == ([], [Break.FUP_OFF_PATH])


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_code_changes_anywhere(base: int) -> None:
    flow = Flow(PtConfig())
    trace = w.psb() + w.mode_exec(64) + w.fup(base, 6) + w.psbend() + w.tip(base) + w.tip_pgd()
    flow.set_code(CodeView.of([(BASE - 64, b"\x90"), (base, b"\x90\xff\xe0")]))
    assert decode(flow, trace)[0] == [base, base + 1, base, base + 1]
    flow.patch(base, b"\xff\xe0")
    assert flow.bytes_at(base, 9) == b"\xff\xe0\xe0"
    assert decode(flow, trace)[0] == [base, base]
    assert flow.statistics()["died"] == 1
    flow.set_code(CodeView.of([(BASE - 64, b"\x90"), (base, b"\x90\x90\xff\xe0")], epoch=1))
    assert decode(flow, trace)[0] == [base, base + 1, base + 2] * 2
    flow.set_code(CodeView.of([(BASE - 64, b"\x90")], epoch=2))
    assert decode(flow, trace)[0] == []


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_choices_anywhere(base: int) -> None:
    """The call at `base` is known to have led elsewhere before; the trace fits that."""
    code = laid_out(*LOOP[1:], (0, call(base, base + 0x100)))
    trace = w.tnt8("!!!") + w.tnt8(".!!!!!") + w.tnt8(".!.") + w.tip(base, 6) + w.tnt8("!!.") + w.tip(base)
    old, new = call(base, base + 0x100), call(base, base + 0x200)
    flow = Flow()
    flow.set_code(CodeView.of([(base, code)]))
    here = raw.signed(base)
    limits = raw.signed(0x1000), raw.signed(END - 4096)
    known = patches((base + 1, old[1:], new[1:], 100, 200))
    data = np.frombuffer(trace + bytes(32), np.uint8)
    position = Position(0, here, here, False, NONE, 0)
    found = choose(data, len(trace), 0, position, flow.code.words(), limits, known.raw(), 150, 1000, Effort())
    assert found is not None
    assert found.choices == [Choice(0, base, new, False)]
    flow.patch(found.choices[0].address, found.choices[0].code)


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_the_code_image_anywhere(base: int) -> None:
    image = CodeImage()
    written = Writer().dynamic_code(BASE + SIZE, "resolve_static_call", bytes(64))
    written.dynamic_code(base, "Shared Runtime wrong_method_blob", bytes(64))
    image.feed(written.bytes())
    jumps = OfImage(image).now()
    assert jumps.ranges.view(np.uint64)[:, 0].tolist() == sorted([base, BASE + SIZE])
    assert set(jumps.ranges[:, 2].tolist()) == {UPDATES_CALL}
    version = image.at(base + 63, 1)
    assert version is not None
    assert (version.start, image.at(base + 64, 1), image.at(base - 1, 1)) == (base, None, None)
    assert sorted(image.view().start.tolist()) == sorted([base, BASE + SIZE])


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_addresses_in_packets_anywhere(base: int) -> None:
    rows = np.zeros(2, codetable.ROW_DTYPE)
    rows["start"], rows["end"] = [base, BASE + SIZE], [base + 64, BASE + SIZE + 64]
    rows["until"], rows["id"], rows["site"] = END - 1, [1, 2], [1, 2]
    table = codetable.build(rows, np.zeros(0, np.uint32), np.zeros(0, np.int32))
    trace = w.psb() + w.psbend() + w.tip(base, 6) + w.tip(base + 63, 6) + w.tip(base - 1, 6) + w.tip(base + 64, 6)
    data = np.frombuffer(trace, np.uint8).copy()
    hits, ticks = np.zeros(3, np.uint64), np.zeros(3, np.uint64)
    at, when = np.zeros(AT_SIZE, np.int64), np.zeros(2, np.uint64)
    point, tsc = np.array([0, len(data)], np.int64), np.array([0, 1000], np.uint64)
    attribute(data, table, point, tsc, np.uint64(1000), at, when, hits, ticks)
    assert (hits.tolist(), at[ADDRESSES], at[UNKNOWN]) == ([2, 2, 0], 4, 2)


def test_segments_begin_anywhere() -> None:
    """The last IP of a piece's beginning is a word, too."""
    flow = Flow(PtConfig(filter_lo=0x1000, filter_hi=END - 4096))
    flow.set_code(CodeView.of([(KERNEL, b"\xff\xe0")]))
    (out,) = flow.feed(segment(w.mode_exec(64) + w.tip(KERNEL, 1) * 3, last_ip=KERNEL + 0x1234))
    assert int(out.times.sum()) == 2

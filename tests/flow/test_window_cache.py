"""Several packets at once against one by one: the same, but for how it is written down."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from jvm.code.snapshot import CodeView
from stages.follow.cfg.graph import FIRST_BLOCK, P_FIRST, PA, PA_LEN, PA_POOL
from stages.follow.code.jumps import EITHER, Jumps
from stages.follow.flow import Capacity, Flow, FlowOutput
from stages.follow.walk import path_sequence as orders
from stages.follow.walk.segment_walk import Piece
from stages.follow.walk.state import COPIES, KEPT, X_AT, X_CONFIRMED_OUT, X_DEPTH, X_OUT, X_POS, X_ROOM, X_SIZE, X_TOP
from stages.messages import PtConfig, ThreadKey
from stages.pt.return_stack import SLOTS
from tests.flow.helpers import THREAD, segment
from tests.flow.test_context import kept
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Confined, Processor, program

_some = settings(
    max_examples=int(os.environ.get("PT_EXAMPLES", "20")), deadline=None, suppress_health_check=list(HealthCheck)
)
_SMALL = Capacity(blocks=1 << 16, paths=1 << 14, pool=1 << 19, links=1 << 18, nodes=1 << 14, contexts=1 << 14)


def flows(code: bytes, *, noretcomp: bool = False, reach: int = 0, windows: int = 1 << 12) -> tuple[Flow, Flow]:
    """A walker that takes packets one by one, and another that does not. `reach`: size of the filter's range; 0: no
    filter."""
    made = []
    for n in (0, windows):
        config = PtConfig(noretcomp=noretcomp, filter_lo=BASE if reach else 0, filter_hi=BASE + reach if reach else 0)
        flow = Flow(config, capacity=_SMALL._replace(windows=n))
        flow.set_code(CodeView.of([(BASE, code)]))
        made.append(flow)
    return made[0], made[1]


def told(outputs: list[FlowOutput]) -> list[object]:
    """All that one of them says, in terms of blocks' addresses."""
    said: list[object] = []
    for out in outputs:
        t = out.tables

        def path(p: int, out: FlowOutput = out) -> tuple[int, ...]:
            t, row = out.tables, p * PA
            at = int(t.path[row + PA_POOL])
            return tuple(t.address[t.pool[at : at + t.path[row + PA_LEN]]].tolist()) if p >= P_FIRST else (p,)

        said += [
            [path(p) for p in orders.paths(orders.plain(t, order)).tolist()] for order in (out.order, out.observed)
        ]
        times: Counter[tuple[int, ...]] = Counter()
        ticks: dict[tuple[int, ...], float] = {}
        for p, n, spent in zip(out.paths.tolist(), out.times.tolist(), out.ticks.tolist(), strict=True):
            times[path(p)] += n
            ticks[path(p)] = ticks.get(path(p), 0.0) + spent
        said += [
            times,
            {p: pytest.approx(spent) for p, spent in ticks.items()},
            out.suspect_instructions,
            out.suspect_bytes,
            out.breaks[["offset", "cause", "at", "ip", "confirmed_offset"]].tolist(),
            out.resolved[["returns", "target", "offset"]].tolist(),
        ]
        plain_at = np.concatenate((np.zeros(1, np.int64), np.cumsum(orders.parts(t, out.order))))
        unrolled = [
            len(orders.paths(orders.plain(t, out.order)[: plain_at[k]]))
            for name in ("confirmed", "order") for k in out.breaks[name].tolist()
        ]  # fmt: skip
        said += [unrolled]
    return said


def stands(flow: Flow) -> list[object]:
    """Where its thread is, and was when it was copied, the return stack with it; by addresses."""
    thread, kept = flow._threads[THREAD], flow._buffers.kept
    copies = [(kept[at : at + X_SIZE], kept[at + X_SIZE : at + KEPT]) for at in range(0, COPIES * KEPT, KEPT)]
    said: list[object] = []
    for x, ring in [(thread.x, thread.ring), *copies]:
        said.append(np.delete(x, (X_AT, X_TOP, X_OUT, X_ROOM, X_CONFIRMED_OUT)).tolist())
        said.append(int(flow.tables.address[x[X_AT]]) if x[X_AT] >= FIRST_BLOCK else int(x[X_AT]))
        stack = [int(ring[int(x[X_TOP]) - k & SLOTS - 1]) for k in range(int(x[X_DEPTH]))]
        said.append(flow.tables.address[stack].tolist())
    return said


class Asked:
    """A search that finds nothing, or has the same packets walked again, and remembers where it was asked."""

    def __init__(self, flow: Flow) -> None:
        self._flow, self.told = flow, list[object]()
        flow.search = self

    def __call__(self, thread: ThreadKey, piece: Piece) -> bool:
        early = piece.early()
        self.told.append((piece.cause, piece.contradicted, piece.position, early and int(early.x[X_POS])))
        self.told.append(stands(self._flow))
        return len(self.told) % 6 == 0


@_some
@given(
    some.integers(0, 1 << 32), some.integers(2, 40), some.integers(10, 500), some.booleans(), some.booleans(),
    some.booleans(), some.booleans(), some.randoms(use_true_random=False),
)  # fmt: skip
def test_units_change_nothing(
    seed: int, size: int, steps: int, compress: bool, hostile: bool, held: bool, confined: bool, rng: Random
) -> None:
    maker = Random(seed)
    code, instructions = program(maker, size)
    reach = rng.randrange(len(instructions[BASE].code), len(code) + 1) if confined else 0
    if confined:
        processor: Processor = Confined(maker, instructions, reach, compress)
    else:
        processor = Processor(maker, instructions, compress)
    processor.run(steps)
    trace = bytearray(processor.trace)
    for _ in range(rng.randrange(1, 9) if hostile else 0):
        trace[rng.randrange(16, len(trace))] = rng.randrange(256)
    one, several = flows(code, noretcomp=not compress, reach=reach)
    now = bytearray(code)
    asked = [Asked(flow) for flow in (one, several)] if held else []
    parts = sorted(rng.sample(range(len(code) + 1), min(4, len(code) + 1)))
    ranges = [(BASE + lo, BASE + hi, rng.randrange(5)) for lo, hi in itertools.pairwise(parts)]
    entries = np.array(sorted(rng.sample(sorted(instructions), min(4, len(instructions)))), np.int64)
    several.jumps = one.jumps = Jumps(np.array(ranges, np.int64), BASE + np.array(parts[1:3], np.int64), entries)
    for _ in range(4):
        times = sorted((rng.randrange(len(trace)), k) for k in range(1, 4))
        piece = segment(bytes(trace) * rng.choice((3, 3, 20)), times=times, tsc=(1, 9))
        assert told(several.feed(piece)) == told(one.feed(piece))
        assert stands(several) == stands(one)
        if rng.random() < 0.5:  # the code changes under the remembered windows
            at = rng.randrange(len(code))
            new = bytes([rng.choice((rng.randrange(256), code[at], 0x90))])
            now[at : at + 1] = new
            one.patch(BASE + at, new)
            several.patch(BASE + at, new)
    if held:
        assert asked[1].told == asked[0].told
    one.settle_contexts()
    several.settle_contexts()
    assert kept(several.tables) == kept(one.tables)


_START = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()


def test_a_call_that_leaves_the_filter_comes_back() -> None:
    """TIP.PGD, TIP.PGE and the return stack in windows, with the call and without."""
    code = bytearray(b"\x90" * 64)
    code[0:5] = b"\xe8\x1b\x00\x00\x00"  # call 32
    code[5:9] = b"\x74\xf9\xeb\xf7"  # je 0; jmp 0
    code[32:34] = b"\xff\xe0"  # jmp rax, out of the filter
    turn = w.tip_pgd(BASE + 0x1000, 3) + b"\0" * 5 + w.tip_pge(BASE + 5, 6) + b"\0" * 3
    rng = Random(1)
    trace = _START + b"".join(turn + w.tnt8(rng.choice("!.")) for _ in range(200))
    one, several = flows(bytes(code), reach=64)
    for _ in range(3):
        assert told(several.feed(segment(trace))) == told(one.feed(segment(trace)))
    assert not several.feed(segment(trace))[0].breaks["cause"].any()
    assert several.statistics()["window_bytes"] > len(trace)


@pytest.mark.parametrize("times", [1, 60])
def test_a_call_that_left_the_filter_comes_back_to_code_that_has_changed(times: int) -> None:
    """The code behind the call is another one than when the call was met first: the frame is taken off all the same,
    with windows and without."""
    code = bytearray(b"\x90" * 64)
    code[0:2] = b"\xff\xd0"  # call rax, out of the filter
    code[2:6] = b"\x90\x90\xff\xe0"  # and behind it jmp rax
    turn = w.tip_pgd(BASE + 0x1000, 3) + w.tip_pge(BASE + 2, 6)
    trace = _START + turn + (w.tip(BASE, 1) + turn) * times
    both = flows(bytes(code), reach=64)
    for change in (None, b"\x0f\x1f\x00", b"\x90\x90\x90"):  # by one instruction, and back
        for flow in both:
            if change is not None:
                flow.patch(BASE + 2, change)
            flow.feed(segment(trace))
            assert flow._threads[THREAD].x[X_DEPTH] == 0


def test_a_return_out_of_the_filter_behind_a_unit_is_doubted_when_it_is_deep() -> None:
    """Than where tracing came in, which is in the window."""
    code = bytearray(b"\x90" * 64)
    code[0:5] = b"\xe8\x1b\x00\x00\x00"  # call 32
    code[5:9] = b"\x74\xf9\xeb\xf7"  # je 0; jmp 0
    code[32:37] = b"\xe9\xdb\x0f\x00\x00"  # jmp 0x1000, out of the filter
    code[16:18] = b"\xff\xd0"  # call rax
    code[40] = 0xC3
    out, padding = w.tip_pgd(BASE + 0x1000, 1), b"\0" * 12
    for turn, doubted in (
        (w.tip_pge(BASE + 5, 1) + w.tnt8(".") + out + w.tip_pge(BASE + 40, 1) + padding + out, False),
        (w.tip_pge(BASE + 16, 1) + w.tip(BASE + 40, 1) + padding + out, True),
    ):
        trace = _START + w.fup(BASE) + w.tip_pgd() + turn * 200
        one, several = flows(bytes(code), reach=64)
        asked = [Asked(flow) for flow in (one, several)]
        for _ in range(2):
            assert told(several.feed(segment(trace))) == told(one.feed(segment(trace)))
            assert stands(several) == stands(one)
        assert asked[1].told == asked[0].told
        assert bool(asked[1].told) == doubted
        assert several.statistics()["window_bytes"] > len(trace) / 2


def test_each_call_that_an_adapter_has_changed_is_told_whether_contradictions_are_trapped_or_not() -> None:
    """An adapter that leaves the filter (SharedRuntime::fixup_callers_callsite) in windows and without, each time."""
    code = bytearray(b"\x90" * 64)
    code[0:5] = b"\xe8\x1b\x00\x00\x00"  # call 32, the adapter
    code[5:9] = b"\x74\xf9\xeb\xf7"  # je 0; jmp 0
    code[32:40] = b"\x74\x00\xe8\x00\x10\x00\x00\xc3"  # je 34; call 0x1027, out of the filter; ret
    adapter = Jumps(np.array([[BASE + 32, BASE + 40, EITHER]], np.int64), np.zeros(2, np.int64), np.zeros(0, np.int64))
    rng, times, padding = Random(1), 200, b"\0" * 12
    visit = w.tnt8("!") + w.tip_pgd(BASE + 0x1027, 2) + w.tip_pge(BASE + 39, 2) + padding
    trace = _START + b"".join(visit + w.tip(BASE + 5, 2) + w.tnt8(rng.choice("!.")) for _ in range(times)) + padding
    for trapped in False, True:
        one, several = flows(bytes(code), noretcomp=True, reach=64)
        for flow in one, several:
            flow.jumps = adapter
            flow.search = Asked(flow) if trapped else None
        for _ in range(3):
            expected = told(one.feed(segment(trace)))
            (output,) = outputs = several.feed(segment(trace))
            assert told(outputs) == expected
            assert output.resolved["returns"].tolist() == [BASE + 5] * times
            assert not output.breaks["cause"].any()


def test_units_make_the_order_short_and_are_few() -> None:
    code = b"\x74\x00\xff\xe0"  # je +0; jmp rax
    rng = Random(1)
    turns = [b"".join(w.tnt8(rng.choice("!.")) + w.tip(BASE, 3) for _ in range(6)) for _ in range(40)]
    trace = _START + b"".join(rng.choice(turns) for _ in range(3000))
    one, several = flows(code, windows=1 << 10)
    expected = told(one.feed(segment(trace)))
    outputs = several.feed(segment(trace))
    assert told(outputs) == expected
    (again,) = several.feed(segment(trace))
    assert len(again.order) < len(orders.paths(orders.plain(again.tables, again.order))) / 3
    assert several.statistics()["windows"] <= 1 << 9


def test_more_units_than_there_is_room_for() -> None:
    """The table is emptied at its bound; nothing else changes."""
    code = b"\x74\x00\x74\xfc\xff\xe0"  # je +0; je 0; jmp rax
    rng = Random(2)
    trace = _START + b"".join(
        w.tnt8("".join(rng.choice("!.") for _ in range(5)) + ".") + w.tip(BASE, 3) for _ in range(2000)
    )
    one, several = flows(code, windows=1 << 10)
    for _ in range(3):
        assert told(several.feed(segment(trace))) == told(one.feed(segment(trace)))
    assert several.statistics()["window_slots"] == 1 << 10

"""No search takes long, with any number of candidates, and however long the way to it is. Work is counted, not
timed."""

from __future__ import annotations

import numpy as np
import pytest

from jvm.code.image import CodeImage
from jvm.code.revisions import SETTLED
from jvm.code.snapshot import CodeView
from stages.follow.flow import SLICE, Flow, FlowOutput
from stages.follow.follower import Follower
from stages.follow.repair import backtracking_search as choice
from stages.follow.repair import effort as efforts
from stages.follow.repair.backtracking_search import Choice, Position, choose
from stages.follow.repair.effort import EFFORT, EFFORT_A_BYTE, LOOKED_UP, SAVED, Effort, Purse
from stages.follow.repair.known import Known
from stages.follow.repair.repair import Repair
from stages.follow.walk import state
from stages.messages import PtConfig, Segment
from tests.flow.helpers import breaks, segment
from tests.flow.test_choice import LIMITS, NONE, call, laid_out, patched_run, patches
from tests.jvm.exportwriter import Writer
from tests.pt import ptwriter as w
from tests.pt.machine import BASE

ROUNDS = 200_000
# a plain loop: nop; nop; nop; jne −5; behind it a call, and a jump back to the loop
PLAIN = (
    (0, b"\x90\x90\x90\x75\xfb"),
    (5, call(BASE + 5, BASE + 0x100)),
    (0x100, b"\xff\xe0"),
    (0x200, b"\x74\x01\x90\xff\xe0"),
)
START = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()


def rounds(n: int) -> bytes:
    """Of the loop, and out of it."""
    return w.tnt8("!!!!!!") * (n // 6) + w.tnt8(".")


def broken_off(n: int) -> bytes:
    """n rounds of the loop, and then a TIP where there is no indirect branch."""
    return w.tnt8("!!!!!!") * (n // 6) + w.tip(BASE + 5) + w.tip(BASE)


def searched(loop: bytes, behind: bytes, known: Known, effort: Effort) -> list[Choice] | None:
    flow = Flow()
    flow.set_code(CodeView.of([(BASE, laid_out(*PLAIN))]))
    data, end = np.frombuffer(loop + behind + bytes(32), np.uint8), len(loop) + len(behind)
    start = Position(0, BASE, BASE, False, NONE, 0)
    found = choose(data, end, len(loop), start, flow.code.words(), LIMITS, known.raw(), 150, 1000, effort)
    return found.choices if found is not None else None


def test_a_long_loop_before_a_contradiction_is_walked_once() -> None:
    """800,000 instructions without an address, and then a call that was patched: it is found, and no round but the
    first pays for the loop."""
    old, new = call(BASE + 5, BASE + 0x100), call(BASE + 5, BASE + 0x200)
    behind = (w.tnt8("!") + w.tip(BASE) + w.tnt8(".")) * 8
    effort = Effort()
    found = searched(rounds(ROUNDS), behind, patches((BASE + 6, old[1:], new[1:], 100, 200)), effort)
    assert found == [Choice(len(rounds(ROUNDS)), BASE + 5, new, False)]
    assert 4 * ROUNDS < effort.spent < 4 * ROUNDS + 100 * LOOKED_UP
    assert not effort.over()


def test_a_loop_that_nothing_explains_costs_no_more_than_the_limit() -> None:
    old, new = call(BASE + 5, BASE + 0x100), call(BASE + 5, BASE + 0x200)
    known = patches((BASE + 6, old[1:], new[1:], 100, 200))
    effort = Effort()
    assert searched(rounds(8 * ROUNDS), w.tnt8("......") * 8, known, effort) is None
    assert EFFORT <= effort.spent <= EFFORT + LOOKED_UP
    assert effort.over()


def test_what_is_remembered_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory = [patched_run(seed) for seed in range(20)]
    monkeypatch.setattr(choice, "REMEMBERED", 1)
    assert [patched_run(seed) for seed in range(20)] == with_memory


def test_a_purse_fills_with_trace_and_is_bounded() -> None:
    purse = Purse()
    for _ in range(2 * SAVED // EFFORT):
        effort = purse.lend()
        effort.left[0] = 0
        purse.pay(effort)
    assert purse.holds == 0
    assert purse.lend().over()
    purse.fill(1000)
    assert purse.holds == purse.lend().most == 1000 * EFFORT_A_BYTE
    purse.fill(1 << 40)
    assert purse.holds == SAVED
    assert purse.lend().most == EFFORT


def chosen(pieces: list[Segment]) -> tuple[Repair, list[FlowOutput]]:
    image = CodeImage()
    writer = Writer(tsc=1).dynamic_code(BASE, "made up", laid_out(*PLAIN))
    image.feed(writer.code_patch(BASE + 5, 100, 300, call(BASE + 5, BASE + 0x200)).bytes())
    flow = Flow(PtConfig(), context=False)
    flow.set_code(image.view(50))
    repair = Repair(flow, image, 1000)
    outputs = []
    for piece in pieces:
        repair.begin(piece)
        outputs += flow.feed(piece)
    return repair, outputs


def test_where_a_search_gives_up_the_break_says_so() -> None:
    repair, outputs = chosen([segment(START + broken_off(8 * ROUNDS), tsc=(150, 250))])
    assert breaks(outputs) == [state.B_GAVE_UP]
    assert repair.counts["gave_up"] == 1
    assert repair.counts["effort"] <= EFFORT + LOOKED_UP


def test_an_overflow_beside_it_stays_one() -> None:
    trace = w.tnt8("!!!!!!") * (8 * ROUNDS // 6) + w.tip(BASE + 5) + w.ovf()
    _, outputs = chosen([segment(START + trace, tsc=(150, 250))])
    assert breaks(outputs) == [state.B_GAVE_UP, state.B_OVERFLOW]


def test_many_small_pieces_cannot_sum_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone is within the limit of a search, but needs more than a byte of trace brings."""
    saved, a_byte = 1_000_000, 16
    monkeypatch.setattr(efforts, "SAVED", saved)
    monkeypatch.setattr(efforts, "EFFORT_A_BYTE", a_byte)
    at, pieces = 0, []
    for number in range(200):
        data = broken_off(6 * (1000 + number))
        data = data if number else START + data
        pieces.append(segment(data, offset=at, last_ip=BASE, continues=number > 0, tsc=(150, 250)))
        at += len(data)
    repair, outputs = chosen(pieces)
    assert repair.counts["effort"] <= saved + a_byte * at + 2 * len(pieces) * LOOKED_UP
    assert repair.counts["searches"] == len(pieces)
    assert set(breaks(outputs)) == {state.B_GAVE_UP, state.B_TIP_AT_TNT}
    assert breaks(outputs).count(int(state.B_GAVE_UP)) == repair.counts["gave_up"]


def test_a_large_piece_is_walked_in_steps() -> None:
    """The output is the same, and in between others have their turn."""
    trace = START + (rounds(600) + w.tip(BASE)) * 2000
    flow, again = (Flow(PtConfig(), context=False) for _ in range(2))
    for each in (flow, again):
        each.set_code(CodeView.of([(BASE, laid_out(*PLAIN))]))
        each.search = lambda thread, piece: False
    steps = list(flow.steps(segment(trace)))
    assert steps.count(None) >= len(trace) // (SLICE + 2 * state.STRIDE)
    (got,) = (step for step in steps if step is not None)
    again.search = None
    (whole,) = again.feed(segment(trace))
    assert again.tables.path_instrs[whole.paths] @ whole.times == flow.tables.path_instrs[got.paths] @ got.times


def test_patches_that_come_at_once_are_put_into_time_in_steps() -> None:
    """As at a late attach, before the first piece is walked."""
    count = 5 * SETTLED
    written = Writer().at(1000).dynamic_code(BASE, "code", laid_out(*PLAIN))
    for k in range(count):
        written.dynamic_code(BASE + 0x1000 * (k + 1), f"code {k}", bytes(range(16, 48)))
    for k in range(count):
        written.code_patch(BASE + 0x1000 * (k + 1), 20_000, 30_000, b"\x90")
    image = CodeImage()
    image.feed(written.bytes())
    steps = Follower(image, PtConfig(), 10).steps(segment(START + rounds(6), tsc=(40_000, 40_010)))
    made = []
    for step in steps:
        if step is not None:
            break
        made.append(image._revisions.patches)
    assert made[:5] == [SETTLED * k for k in range(1, 6)]

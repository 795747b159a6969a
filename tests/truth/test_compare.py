"""Planted errors: each must be counted exactly, and blocks that do not come out even must be noticed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.flow_truth import compare
from benchmarks.flow_truth.reader import Reader
from benchmarks.flow_truth.steps import Steps
from benchmarks.flow_truth.walk import BIT, PGD, PGE, PSB, TIP
from stages.messages.paths import BREAK, DISABLED, FIRST_PATH, BlockEnd
from tests.truth.told import Break, told

quick = settings(deadline=None, max_examples=100)
IC = 1 << 30, (1 << 30) + 0x1000
Block = tuple[int, int]


@dataclass
class Step:
    kind: int
    blocks: list[Block]
    ip: int = 0


@dataclass
class World:
    """Truth: steps. Decoded: `order`, by default the same."""

    steps: list[Step]
    decoded: list[tuple[int, BlockEnd, list[Block]]] = field(default_factory=list)  # blocks: address, end, ranges
    order: list[int] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    foreign: set[int] = field(default_factory=set)
    guessed: dict[int, int] = field(default_factory=dict)  # by path: so many of its ranges, the last ones

    def path(self, step: int, ranges: list[Block] | None = None) -> int:
        """A path of one block for a step, with these ranges; its number."""
        of = self.steps[step]
        ranges = merged(of.blocks) if ranges is None else ranges
        self.decoded.append((self.address(step), BlockEnd.CONDITION if of.kind == BIT else BlockEnd.INDIRECT, ranges))
        return FIRST_PATH + len(self.decoded) - 1

    def address(self, step: int) -> int:
        """Where control stood when the step began."""
        before = next((s for s in reversed(self.steps[:step]) if s.kind != PSB), None)
        if before is not None and before.ip and before.kind != PGD:
            return before.ip
        blocks = self.steps[step].blocks
        return blocks[0][0] if blocks else 0

    def elements(self) -> list[int]:
        """Which step each element of a true order belongs to; a switched-off mark is its own: −1."""
        return [n for number, s in enumerate(self.steps) if s.kind in (BIT, TIP, PGD) for n in _elements(s, number)]

    def run(self, state: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        blocks = [b for s in self.steps for b in s.blocks]
        first = np.concatenate(([0], np.cumsum([len(s.blocks) for s in self.steps]))).astype(np.int64)
        start = np.array([b[0] for b in blocks], np.int64)
        end = np.array([b[1] for b in blocks], np.int64)
        n = len(self.steps)
        steps = Steps(
            first, np.array([s.kind for s in self.steps], np.uint8), np.arange(n, dtype=np.int64) * 10,
            np.array([s.ip for s in self.steps], np.int64), start, end, end - 1,
        )  # fmt: skip
        reader = Reader()
        paths = [[number] for number in range(len(self.decoded))]
        guessed = [self.guessed.get(FIRST_PATH + number, 0) for number in range(len(paths))]
        ((_, taken),) = reader.rows(told(self.decoded, paths, self.order, self.breaks, guessed=guessed))
        counts = np.zeros(compare.COUNTS, np.int64)
        foreign = np.array([number in self.foreign for number in range(n)], np.uint8)
        state = np.zeros(compare.C_SIZE, np.int64) if state is None else state
        verdict = np.full(len(start), 255, np.uint8)
        incidents = np.zeros((64, 6), np.int64)
        used, _ = compare.compare(taken, reader.code, steps, True, foreign, *IC, state, counts, verdict, incidents)
        assert used <= n
        for what in range(compare.COUNTS):  # block by block the same
            if what not in (compare.EXTRA, compare.MISALIGNED, compare.COMPARED):
                assert np.count_nonzero(verdict[: first[used]] == what) == counts[what]
        return counts


def _elements(step: Step, number: int) -> list[int]:
    return [number, -1] if step.kind == PGD else [number]


def merged(blocks: list[Block]) -> list[Block]:
    out: list[Block] = []
    for lo, hi in blocks:
        if out and out[-1][1] == lo:
            out[-1] = out[-1][0], hi
        else:
            out.append((lo, hi))
    return out or [(0, 0)]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Tracing begins, steps of up to four blocks, the last in TIP.PGD."""
    kinds = [*draw(st.lists(st.sampled_from([BIT, BIT, BIT, TIP, PSB]), min_size=4, max_size=30)), PGD]
    at, steps = 0x1000, [Step(PGE, [], 0x1000)]
    for kind in kinds:
        blocks = []
        for number in range(0 if kind == PSB else draw(st.integers(1, 4))):
            lo = at if number == 0 or draw(st.booleans()) else at + 0x10 * draw(st.integers(1, 8))
            blocks.append((lo, at := lo + draw(st.integers(1, 15))))
        if kind != PSB:
            at += 0x100
        steps.append(Step(kind, blocks, {TIP: at, PGD: 1 << 40, PSB: at}.get(kind, 0)))
    world = World(steps)
    world.order = [DISABLED if n < 0 else world.path(n) for n in world.elements()]
    return world


def total(world: World) -> int:
    return sum(len(s.blocks) for s in world.steps)


def flagged(counts: NDArray[np.int64]) -> int:
    return int(counts[compare.LOST :].sum())


def step_to_damage(world: World, draw: st.DataObject, kinds: tuple[int, ...] = (BIT, TIP, PGD)) -> tuple[int, int]:
    """(position in the order, step)"""
    pairs = [(p, n) for p, n in enumerate(world.elements()) if n >= 0 and world.steps[n].kind in kinds]
    return draw.draw(st.sampled_from(pairs))


@quick
@given(worlds())
def test_what_is_right_is_right(world: World) -> None:
    counts = world.run()
    assert counts[compare.RIGHT] == total(world)
    assert counts[: compare.COMPARED].sum() == total(world)
    assert flagged(counts) == 0


@quick
@given(worlds(), st.data())
def test_a_block_that_was_not_decoded(world: World, data: st.DataObject) -> None:
    place, step = step_to_damage(world, data)
    blocks = list(world.steps[step].blocks)
    del blocks[data.draw(st.integers(0, len(blocks) - 1))]
    world.order[place] = world.path(step, merged(blocks))
    counts = world.run()
    assert counts[compare.WRONG] == 1
    assert counts[compare.RIGHT] == total(world) - 1
    assert counts[compare.EXTRA] == counts[compare.MISALIGNED] == flagged(counts) == 0


@quick
@given(worlds(), st.data())
def test_a_block_that_was_decoded_otherwise(world: World, data: st.DataObject) -> None:
    place, step = step_to_damage(world, data)
    blocks = list(world.steps[step].blocks)
    blocks[data.draw(st.integers(0, len(blocks) - 1))] = (0x900000, 0x900007)
    world.order[place] = world.path(step, merged(blocks))
    counts = world.run()
    assert counts[compare.WRONG] == 1
    assert counts[compare.RIGHT] == total(world) - 1
    assert counts[compare.EXTRA] == counts[compare.MISALIGNED] == 0


@quick
@given(worlds(), st.data())
def test_a_block_that_never_ran(world: World, data: st.DataObject) -> None:
    place, step = step_to_damage(world, data)
    blocks = list(world.steps[step].blocks)
    blocks.insert(data.draw(st.integers(0, len(blocks))), (0x900000, 0x900007))
    world.order[place] = world.path(step, merged(blocks))
    counts = world.run()
    assert counts[compare.EXTRA] == 1
    assert counts[compare.RIGHT] == total(world)
    assert counts[compare.WRONG] == counts[compare.MISALIGNED] == 0


@quick
@given(worlds(), st.data())
def test_two_that_change_places(world: World, data: st.DataObject) -> None:
    one, first = step_to_damage(
        world, data, (next(k for k in (BIT, TIP, PGD) if any(s.kind == k for s in world.steps)),)
    )
    other, second = step_to_damage(world, data, (world.steps[first].kind,))
    world.order[one] = world.path(first, merged(world.steps[second].blocks))
    world.order[other] = world.path(second, merged(world.steps[first].blocks))
    counts = world.run()
    both = len(world.steps[first].blocks) + len(world.steps[second].blocks) if first != second else 0
    assert counts[compare.WRONG] == both
    assert counts[compare.RIGHT] == total(world) - both
    assert counts[compare.MISALIGNED] == 0


@quick
@given(worlds(), st.data())
def test_a_block_left_out_or_put_in_is_noticed(world: World, data: st.DataObject) -> None:
    place, step = step_to_damage(world, data)
    if data.draw(st.booleans()):
        del world.order[place]
    else:
        world.order.insert(place, world.path(step))
    counts = world.run()
    late = [s.kind for s in world.steps[step:] if s.kind != PSB]
    noticed = counts[compare.MISALIGNED] + counts[compare.WRONG] + counts[compare.EXTRA] + flagged(counts)
    assert noticed or not late


def broken_off(world: World, place: int, step: int, sure: int) -> int:
    """The decoder breaks off in front of that element of the order; how many blocks are lost with that."""
    back = next((n for n in range(step, len(world.steps)) if world.steps[n].ip and world.steps[n].kind != PGD), None)
    behind = len(world.steps) if back is None else back
    pairs = list(zip(world.order, world.elements(), strict=True))
    world.order = [e for e, n in pairs[:place]] + [BREAK] + [e for e, n in pairs[place:] if n < 0 or n > behind]
    world.breaks = [Break(place, 7, sure, 10 * step)]
    upto = len(world.steps) - 1 if back is None else back
    return sum(len(s.blocks) for s in world.steps[step : upto + 1])


@quick
@given(worlds(), st.data())
def test_a_break_flags_what_is_up_to_the_next_address(world: World, data: st.DataObject) -> None:
    place, step = step_to_damage(world, data)
    lost = broken_off(world, place, step, place)
    counts = world.run()
    assert counts[compare.LOST + 7] == flagged(counts) == lost
    assert counts[compare.RIGHT] == total(world) - lost
    assert counts[compare.MISALIGNED] == 0


@quick
@given(worlds(), st.data())
def test_suspect_is_flagged(world: World, data: st.DataObject) -> None:
    place, step = step_to_damage(world, data)
    before = world.elements()[:place]
    sure = data.draw(st.integers(0, place))
    doubtful = sum(len(world.steps[n].blocks) for n in before[sure:])
    lost = broken_off(world, place, step, sure)
    counts = world.run()
    assert counts[compare.SUSPECT_RIGHT] == doubtful
    assert counts[compare.RIGHT] == total(world) - lost - doubtful
    assert counts[compare.MISALIGNED] == 0


@pytest.mark.parametrize("ran", ["what was guessed", "another stub", "no stub"])
def test_what_is_guessed_is_flagged(ran: str) -> None:
    """The stub alone, as far as to where it led: a call before it, and the blocks behind, are right."""
    call, stub, end, method = (0x1000, 0x1020), (0x7000, 0x7010), (0x7010, 0x7018), (0x5000, 0x5008)
    other = (0x8000, 0x8010), (0x8010, 0x8018)
    first, second = (stub, end) if ran == "what was guessed" else other
    blocks = [call, first] if ran != "no stub" else [call]
    world = World([Step(PGE, [], 0x1000), Step(BIT, blocks), Step(TIP, [second], 0x5000), Step(PGD, [method], 1 << 40)])
    world.order = [world.path(1, [call, stub]), world.path(2, [end]), world.path(3), DISABLED]
    world.guessed[world.order[0]] = 1
    counts = world.run()
    doubted = len(blocks) - 1 + 1
    assert counts[compare.SUSPECT_RIGHT] == (doubted if ran == "what was guessed" else 0)
    assert counts[compare.SUSPECT_WRONG] == (0 if ran == "what was guessed" else doubted)
    assert counts[compare.RIGHT] == 2
    assert counts[compare.WRONG] == counts[compare.EXTRA] == counts[compare.MISALIGNED] == flagged(counts) == 0


@quick
@given(worlds(), st.data())
def test_another_threads_is_wrong(world: World, data: st.DataObject) -> None:
    _, step = step_to_damage(world, data)
    world.foreign = {step}
    assert world.run()[compare.FOREIGN] == len(world.steps[step].blocks)


@pytest.mark.parametrize("where", ["truth", "decoded", "both", "neither"])
def test_inline_cache_stubs_count_on_neither_side(where: str) -> None:
    call, stub, method = (0x1000, 0x1020), (IC[0] + 0x40, IC[0] + 0x4F), (0x5000, 0x5008)
    ran = [call, stub, method] if where in ("truth", "both") else [call, method]
    decoded = [call, stub, method] if where in ("decoded", "both") else [call, method]
    world = World([Step(PGE, [], 0x1000), Step(BIT, ran), Step(PGD, [(0x5008, 0x500B)], 1 << 40)])
    world.order = [world.path(1, decoded), world.path(2), DISABLED]
    counts = world.run()
    assert counts[compare.RIGHT] == 3
    assert counts[compare.IC] == (len(ran) == 3)
    assert counts[compare.WRONG] == counts[compare.EXTRA] == counts[compare.MISALIGNED] == 0
    world.order[0] = world.path(1, [call, (0x6000, 0x6008)])
    counts = world.run()
    assert (counts[compare.RIGHT], counts[compare.WRONG]) == (2, 1)


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("where", ["in the stub", "where it leads", "elsewhere"])
def test_where_tracing_comes_back_in_an_inline_cache_stub(where: str, begins: bool) -> None:
    """The stub leads on without a packet: the decoder may go on in it or behind it, and nowhere else."""
    stub, table, method = (IC[0] + 0x40, IC[0] + 0x4F), (0x5000, 0x5008), (0x6000, 0x6008)
    before = [] if begins else [Step(PGE, [], 0x1000), Step(PGD, [(0x1000, 0x1008)], stub[0])]
    steps = [Step(PGE, [], stub[0]), Step(PSB, [], stub[0]), Step(BIT, [stub, table]),
             Step(TIP, [(0x5008, 0x500B)], 0x6000), Step(PGD, [method], 1 << 40)]  # fmt: skip
    world = World([*before, *steps])
    world.order = [] if begins else [world.path(1), DISABLED]
    at = len(before)
    ranges = {"in the stub": [stub, table], "where it leads": [table], "elsewhere": [(0x7000, 0x7008)]}[where]
    world.decoded.append((ranges[0][0], BlockEnd.CONDITION, ranges))
    world.order += [FIRST_PATH + len(world.decoded) - 1, world.path(at + 3), world.path(at + 4), DISABLED]
    counts = world.run()
    if where == "elsewhere":
        assert counts[compare.MISALIGNED] == 1
        assert counts[compare.LOST + compare.L_MISALIGNED] == flagged(counts) == 3
        return
    assert counts[compare.RIGHT] == total(world) - 1
    assert counts[compare.IC] == 1
    assert counts[compare.WRONG] == counts[compare.EXTRA] == counts[compare.MISALIGNED] == flagged(counts) == 0


def test_what_is_compared_with_nothing_is_flagged_as_nothing_else() -> None:
    """Such blocks count as wrong in the end, also those behind the next address."""
    blocks = [[(k << 8, (k << 8) + 8)] for k in range(1, 7)]
    world = World([Step(PGE, [], 0x100), *(Step(TIP, b, b[0][0] + 0x100) for b in blocks)])
    world.order = [world.path(1), world.path(2), world.path(4), world.path(4), DISABLED]
    counts = world.run()
    assert counts[compare.MISALIGNED] == 1
    assert counts[compare.RIGHT] == 3
    assert counts[compare.LOST + compare.L_OUTSIDE] == 1
    assert counts[compare.LOST + compare.L_MISALIGNED] == 2


@quick
@given(worlds(), st.data())
def test_a_thread_goes_on_in_the_next_piece(world: World, data: st.DataObject) -> None:
    """Cut in two, the sums are the same."""
    pairs = list(zip(world.order, world.elements(), strict=True))
    pairs = [(e, len(world.steps) - 1 if n < 0 else n) for e, n in pairs]
    at = data.draw(st.integers(1, len(world.steps) - 1))
    state = np.zeros(compare.C_SIZE, np.int64)
    head, tail = World(world.steps[:at]), World(world.steps[at:])
    while head.steps and head.steps[-1].kind == PSB:  # kept for the next piece by the caller
        tail.steps.insert(0, head.steps.pop())
    n = len(head.steps)
    for part, lo, hi in ((head, 0, n), (tail, n, len(world.steps))):
        part.decoded = world.decoded
        part.order = [e for e, step in pairs if lo <= step < hi]
    counts = head.run(state)
    counts = counts + tail.run(state)
    assert counts[compare.RIGHT] == total(world)
    assert counts[compare.MISALIGNED] == 0

"""When load is shed, and the fate of shed trace: with a clock that moves when told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamer.demo
from capture.recording.replay import Replay
from stages import shed
from stages.follow.follower import Follower
from stages.follow.stage import Follow
from stages.images import Images
from stages.messages import Account, Chunk, Loss, PaneReport, Paths, Segment, StreamOpen
from stages.shed import EACH, Shedder
from streamer.pipeline.topology import feed_chain, flush_chain
from tests.stages import chains

RECORDING = Path(streamer.demo.__file__).parent / "shop.json"
CHUNKS = 330
MOST = 100


class Clock:
    def __init__(self) -> None:
        self.tsc = 0

    def __call__(self) -> int:
        return self.tsc


@given(st.lists(st.integers(0, 3 * MOST), max_size=200))
def test_it_begins_above_the_limit_and_ends_at_half_of_it(ages: list[int]) -> None:
    clock = Clock()
    shedder = Shedder(clock, MOST)
    behind, pieces = False, 0
    for age in ages:
        clock.tsc = 1000 + age
        behind = age > (MOST / 2 if behind else MOST)
        pieces += behind
        assert shedder.sheds(1000) == (behind and pieces % EACH != 0)
        assert shedder.age == age


def test_without_a_drain_nothing_is_known_to_be_late() -> None:
    clock = Clock()
    clock.tsc = 10 * MOST
    assert not Shedder(clock, MOST).sheds(0)


def test_the_end_is_no_delay_by_itself_but_must_not_take_long() -> None:
    clock = Clock()
    shedder = Shedder(clock, MOST)
    clock.tsc = 10 * MOST
    assert shedder.sheds(1)
    shedder.end()
    assert not shedder.sheds(1)
    clock.tsc += MOST
    assert not shedder.sheds(1)
    clock.tsc += 1
    assert shedder.sheds(1)


# ---- the stage


@pytest.fixture(scope="module")
def messages() -> list[object]:
    with Replay(RECORDING) as replay:
        said, chunks = list[object](), 0
        for message in replay.messages():
            chunks += isinstance(message, Chunk)
            if chunks > CHUNKS:
                break
            said.append(message)
        return said


class Run:
    """The chain over `messages`; `late(n)`: how many seconds the clock is ahead of the drain at the nth chunk."""

    def __init__(self, messages: list[object], chain: list[Any], late: Callable[[int], float], clock: Clock):
        self.reports: list[PaneReport] = []
        chunks, hz = 0, 0.0
        for message in messages:
            if isinstance(message, StreamOpen):
                hz = message.clock.hz
            if isinstance(message, Chunk):
                chunks += 1
                clock.tsc = message.tsc + round(late(chunks) * hz)
            self.reports += [m for m in feed_chain(chain, message) if isinstance(m, PaneReport)]
        self.reports += [m for m in flush_chain(chain) if isinstance(m, PaneReport)]
        self.accounts = [account for report in self.reports for account in report.accounts]

    def table(self, *columns: str) -> Counter[tuple[int, str, int, str]]:
        names = {number: name for report in self.reports for number, name in report.names}
        sums: Counter[tuple[int, str, int, str]] = Counter()
        for report in self.reports:
            for row in report.profile:
                for column in columns:
                    key = report.pane, names[int(row["method"])], int(row["tid"]), column
                    sums[key] += int(row[column])
        return +sums

    def sum(self, of: Callable[[Account], int]) -> int:
        return sum(of(account) for account in self.accounts)

    def events(self, cause: Loss) -> int:
        return self.sum(lambda account: dict(account.events).get(cause, 0))


ALL = ("hits", "instructions", "ticks", "invocations")


def test_a_stage_that_keeps_up_sheds_nothing(messages: list[object]) -> None:
    clock = Clock()
    live = Run(messages, chains.flow(now=clock), lambda _: 0.24, clock)
    recorded = Run(messages, chains.flow(), lambda _: 100.0, clock)  # has no clock, however late it is
    assert live.table(*ALL) == recorded.table(*ALL)
    assert live.sum(lambda a: a.shed) == recorded.sum(lambda a: a.shed) == 0
    assert live.events(Loss.SHED) == recorded.events(Loss.SHED) == 0
    assert sum(live.table("instructions").values()) > 1_000_000


class Fast(Clock):
    """A clock by which each step takes long."""

    def __call__(self) -> int:
        self.tsc += 1 << 28
        return self.tsc


def test_what_takes_long_to_follow_goes_on_in_several_messages(messages: list[object]) -> None:
    clock, seen = Fast(), Counter[str]()
    chains_of = {"live": chains.flow(now=clock, most_behind_seconds=1e9), "recorded": chains.flow()}
    tables = {}
    for name, chain in chains_of.items():
        chain.insert(4, Seeing(seen, name))
        tables[name] = Run(messages, chain, lambda _: 0.0, Clock()).table("instructions", "invocations")
    assert tables["live"] == tables["recorded"]
    assert seen["live"] > 2 * seen["recorded"]


class Seeing:
    """A stage that counts `Paths`."""

    def __init__(self, seen: Counter[str], name: str) -> None:
        self._seen, self._name = seen, name

    def feed(self, message: object) -> list[object]:
        self._seen[self._name] += isinstance(message, Paths)
        return [message]

    def flush(self) -> list[object]:
        return []


def test_what_is_shed_is_counted_as_at_fidelity_ip(messages: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shed, "EACH", 1 << 40)
    monkeypatch.setattr(Shedder, "end", lambda _: None)
    clock = Clock()
    behind = Run(messages, chains.flow(now=clock), lambda _: 1.0, clock)
    plain = Run(messages, chains.ip(Images(0.5)), lambda _: 0.0, clock)
    assert behind.table(*ALL) == plain.table(*ALL)
    assert sum(behind.table("hits").values()) > 100_000
    assert not behind.table("instructions")
    decoded = behind.sum(lambda a: a.decoded)
    assert behind.sum(lambda a: a.shed) == decoded == plain.sum(lambda a: a.decoded)
    assert behind.sum(lambda a: sum(n for _, n in a.holes)) == plain.sum(lambda a: sum(n for _, n in a.holes))


def test_everything_is_shed_until_the_kernels_are_there(
    messages: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a follower made before: for that kernels are compiled, and nothing would be told meanwhile."""
    clock = Clock()
    chunks, made = 0, list[int]()
    init = Follower.__init__

    def make(self: Follower, *arguments: Any, **options: Any) -> None:
        made.append(chunks)
        init(self, *arguments, **options)

    monkeypatch.setattr(Follower, "__init__", make)

    def late(n: int) -> float:
        nonlocal chunks
        chunks = n
        return 0.0

    chain = chains.flow(now=clock, followable=lambda: chunks > CHUNKS // 2)
    assert chain[3].statistics()["kernels_ready"] == 0
    run = Run(messages, chain, late, clock)
    plain = Run(messages, chains.ip(Images(0.5)), lambda _: 0.0, clock)
    decoded = run.sum(lambda a: a.decoded)
    assert decoded == plain.sum(lambda a: a.decoded)
    assert 0 < run.sum(lambda a: a.shed) < decoded
    assert sum(run.table("instructions").values()) > 100_000
    assert chain[3].statistics()["kernels_ready"] == 1
    assert len(made) == 1
    assert made[0] > CHUNKS // 2


def test_walks_begin_anew_behind_what_was_shed(messages: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the run the stage is behind for a while."""
    followed: list[Segment] = []
    steps = Follower.steps

    def watched(self: Follower, piece: Segment) -> Iterator[object]:
        followed.append(piece)
        return steps(self, piece)

    def apart(*_: object) -> Iterator[None]:
        """Pieces of all quanta by themselves, as they are while load is shed."""
        yield from ()

    monkeypatch.setattr(Follower, "steps", watched)
    monkeypatch.setattr(Follow, "_changes", apart)
    clock = Clock()

    def late(chunk: int) -> float:
        return 2.0 if 100 < chunk <= 200 else 0.1

    chain = chains.flow(now=clock)
    run = Run(messages, chain, late, clock)
    taken, followed[:] = list(followed), []
    whole = Run(messages, chains.flow(), late, clock)
    every = list(followed)
    at = {(s.stream, s.offset): s for s in taken}
    gone: set[object] = set()
    shed_bytes = breaks = 0
    for piece in every:  # in the order of counting
        mine = at.get((piece.stream, piece.offset))
        if mine is None:
            breaks += piece.thread not in gone
            gone.add(piece.thread)
            shed_bytes += len(piece.data)
        else:
            assert mine.continues == (piece.continues and piece.thread not in gone)
            gone.discard(piece.thread)
    assert len(taken) < len(every)
    assert run.sum(lambda a: a.shed) == shed_bytes == chain[3].statistics()["follow_shed_bytes"]
    assert run.sum(lambda a: a.decoded) == whole.sum(lambda a: a.decoded)
    assert run.events(Loss.SHED) == breaks > 1  # each piece followed on the way begins another
    assert run.table("hits")
    assert not whole.table("hits")
    assert 0.3 < sum(run.table("ticks").values()) / sum(whole.table("ticks").values()) < 1.1
    instructions = sum(whole.table("instructions").values())
    assert 0.3 * instructions < sum(run.table("instructions").values()) < instructions

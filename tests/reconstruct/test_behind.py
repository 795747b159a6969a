"""A stage that is behind: paths pass unexplained, and what comes after is explained as behind a hole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import streamer.demo
from capture.recording.replay import Replay
from stages.decode import stage as decode
from stages.follow.stage import Follow
from stages.images import Images
from stages.messages import (
    MARK_DTYPE,
    PIECE_DTYPE,
    Account,
    Bytecodes,
    Chunk,
    JitBatch,
    Loss,
    PaneReport,
    Paths,
    Pieces,
    StreamOpen,
    Watermark,
)
from stages.messages.bytecodes import FrameEvent
from stages.profile.interpreted import BEHIND
from stages.profile.stage import Profile
from stages.ready.stage import Ready
from stages.reconstruct import stage as reconstruct
from stages.reconstruct.stage import Reconstruct
from stages.segment import stage as segment
from streamer.pipeline.topology import Stage, feed_chain, flush_chain
from tests.jvm.bytecode import made
from tests.jvm.exportwriter import Writer

RECORDING = Path(streamer.demo.__file__).parent / "shop.json"
CHUNKS = 700
STRETCH = range(40, 60)  # of the `Paths`


@pytest.fixture(scope="module")
def messages() -> list[object]:
    """What comes to the stage."""
    images = Images(0.5)
    chain: list[Stage] = [decode.make(), segment.make(), Ready(images), Follow(images)]
    out: list[object] = []
    with Replay(RECORDING) as replay:
        chunks = 0
        for message in replay.messages():
            chunks += isinstance(message, Chunk)
            if chunks > CHUNKS:
                break
            out += [m for m in feed_chain(chain, message) if m is not None]
        out += [m for m in flush_chain(chain) if m is not None]
    return out


class Clock:
    def __init__(self) -> None:
        self.tsc = 0

    def __call__(self) -> int:
        return self.tsc


def explained(messages: list[object], stage: Reconstruct, clock: Clock, late: range) -> list[tuple[Bytecodes, Paths]]:
    """Of each `Paths`; those numbered in `late` come a second too late."""
    out: list[object] = []
    n, hz = 0, 1.0
    for message in messages:
        if isinstance(message, StreamOpen):
            hz = message.clock.hz
        if isinstance(message, Paths):
            clock.tsc = message.drained + round((n in late) * hz)
            n += 1
        out += stage.feed(message)
    pairs = [(a, b) for a, b in pairwise(out) if isinstance(a, Bytecodes) and isinstance(b, Paths)]
    assert len(pairs) == n > late.stop + 20
    return pairs


def emptied(message: Paths) -> Paths:
    """Its dictionaries alone."""
    return replace(message, **{name: getattr(message, name)[:0] for name in ("rows", "order", "stops", "breaks")})


def with_a_hole(messages: list[object], late: range) -> Iterator[object]:
    """The same, where the trace of that stretch was lost."""
    n, lost = 0, set[int]()
    for message in messages:
        if isinstance(message, Paths):
            if n in late:
                lost |= set(message.rows["tid"].tolist())
                message = emptied(message)
            else:
                rows = message.rows.copy()
                for row in rows:
                    row["continues"] &= row["tid"] not in lost
                    lost.discard(int(row["tid"]))
                message = replace(message, rows=rows)
            n += 1
        yield message


def test_behind_a_stretch_that_passed_all_is_as_behind_a_hole(messages: list[object]) -> None:
    clock = Clock()
    stage = Reconstruct(now=clock)
    found = explained(messages, stage, clock, STRETCH)
    expected = explained(list(with_a_hole(messages, STRETCH)), Reconstruct(), Clock(), STRETCH)
    all_ = explained(messages, Reconstruct(), Clock(), STRETCH)
    for n, ((of, paths), (hole, _), (whole, _)) in enumerate(zip(found, expected, all_, strict=True)):
        assert of.behind == (n in STRETCH)
        assert not whole.behind
        if n in STRETCH:
            assert not len(of.methods)
            assert not len(of.known)
            assert (of.events["kind"] == FrameEvent.LOST).all()
            assert of.events["row"].tolist() == list(range(len(paths.rows)))
            assert of.events["order"].tolist() == paths.rows["order"].tolist()
            continue
        for name in ("methods", "known", "events"):
            assert np.array_equal(getattr(of, name), getattr(hole, name)), (n, name)
        if n < STRETCH.start:
            assert np.array_equal(of.methods, whole.methods)
    late = [sum(int(of.methods["bytecodes"].sum()) for of, _ in pairs[STRETCH.stop :]) for pairs in (found, all_)]
    assert 0.9 * late[1] < late[0] <= late[1] > 10_000
    passed = [paths for of, paths in found if of.behind]
    size = sum(int((paths.rows["end"] - paths.rows["offset"]).sum()) for paths in passed)
    assert stage.statistics()["reconstruct_unexplained_bytes"] == size > 0


def test_the_stretch_is_an_event_of_each_thread_and_a_row_of_its_own(messages: list[object]) -> None:
    clock = Clock()
    stage, profile = Reconstruct(now=clock), Profile()
    reports: list[PaneReport] = []
    events: Counter[Loss] = Counter()
    threads = set[int]()
    n, hz = 0, 1.0
    for message in messages:
        if isinstance(message, StreamOpen):
            hz = message.clock.hz
        if isinstance(message, Paths):
            clock.tsc = message.drained + round((n in STRETCH) * hz)
            threads |= set(message.rows["tid"].tolist()) if n in STRETCH else set()
            n += 1
        for out in stage.feed(message):
            if isinstance(out, Account):
                events.update(dict(out.events))
            reports += [m for m in profile.feed(out) if isinstance(m, PaneReport)]
    reports += [m for m in profile.flush() if isinstance(m, PaneReport)]
    assert events[Loss.UNEXPLAINED] == len(threads) > 0
    apart, together = Profile(), list[PaneReport]()
    n = 0
    for message in messages:
        if isinstance(message, Paths):
            n += 1
            if n - 1 not in STRETCH:
                message = emptied(message)
        together += [m for m in apart.feed(message) if isinstance(m, PaneReport)]
    together += [m for m in apart.flush() if isinstance(m, PaneReport)]
    assert weight(reports, BEHIND) == weight(together, "[interpreter] ") > 10_000
    assert weight(together, BEHIND) == 0


def weight(reports: list[PaneReport], prefix: str) -> int:
    """Instructions of rows whose names begin so."""
    names, total = dict[int, str](), 0
    for report in reports:
        names.update(report.names)  # a number is given to another when its name is not used any more
        total += sum(int(row["instructions"]) for row in report.profile if names[int(row["method"])].startswith(prefix))
    return total


def test_classes_wait_until_there_is_time_and_nothing_is_explained_before(messages: list[object]) -> None:
    """Kernels that are not compiled yet: nothing of them may be called."""
    ready = False
    stage = Reconstruct(ready=lambda: ready)
    reference = Reconstruct()
    for message in messages[: len(messages) // 2]:
        out = stage.feed(message)
        reference.feed(message)
        assert all(m.behind for m in out if isinstance(m, Bytecodes))
        assert stage.statistics()["reconstruct_methods"] == 0
    ready = True
    for message in messages[len(messages) // 2 :]:
        out, wanted = stage.feed(message), reference.feed(message)
        if isinstance(message, JitBatch | Paths):
            assert stage.statistics()["reconstruct_methods"] == reference.statistics()["reconstruct_methods"] > 0
        assert [type(m) for m in out if not isinstance(m, Account)] == [
            type(m) for m in wanted if not isinstance(m, Account)
        ]
        assert not any(m.behind for m in out if isinstance(m, Bytecodes))
    assert 0 < stage.statistics()["reconstruct_bytecodes"] < reference.statistics()["reconstruct_bytecodes"]


def test_records_that_wait_are_bounded(messages: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.reconstruct.stage.MOST_WAITING", 1 << 16)
    ready = False
    stage = Reconstruct(ready=lambda: ready)
    batches = [m for m in messages if isinstance(m, JitBatch)]
    for batch in batches:
        stage.feed(batch)
    (process,) = stage._processes.values()
    assert process.waiting_bytes == sum(map(len, process.waiting)) <= max(1 << 16, len(process.waiting[-1]))
    told = sum(len(m.data) for m in batches)
    assert stage.statistics()["reconstruct_dropped_bytes"] == told - sum(map(len, process.waiting)) > 0
    ready = True
    stage.feed(Watermark(*process.process.key, 1))
    for message in [m for m in messages if isinstance(m, Paths | StreamOpen)][:3]:
        stage.feed(message)
    assert not process.waiting
    assert process.waiting_bytes == 0
    assert process.learning is None


def test_shed_pieces_tell_how_late_it_is(messages: list[object]) -> None:
    clock = Clock()
    stage = Reconstruct(now=clock)
    first = next(m for m in messages if isinstance(m, StreamOpen))
    stage.feed(first)
    batch = next(m for m in messages if isinstance(m, JitBatch) and len(m.data))
    clock.tsc = 10**12
    nothing = np.zeros(0, PIECE_DTYPE), np.zeros(0, np.uint8), np.zeros(0, MARK_DTYPE)
    pieces = Pieces(batch.host, batch.pid, 1, (), *nothing, shed=True)
    assert stage.feed(pieces) == [pieces]
    stage.feed(batch)
    (process,) = stage._processes.values()
    assert len(process.waiting) == 1


@pytest.mark.peer
@pytest.mark.parametrize("dropped", [False, True])
def test_classes_go_though_there_is_never_time_for_all_that_waits(
    dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two batches that come there is time for one; or for none any more, and more of them wait than are kept."""
    file = made.classes()["p/Calls"].data.tobytes()
    left = 0

    def ready() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    if dropped:
        monkeypatch.setattr(reconstruct, "MOST_WAITING", 3 * len(file))
    behind = Reconstruct(ready=ready)
    second = 1_000_000_000
    for number in range(1, 200):
        writer = Writer(number * second, step=0).class_def(number, "p/Calls", file)
        writer.class_(number, "Lp/Calls;", definition=number).class_unload(max(number - 20, 0))
        nothing = Writer(number * second, step=0).thread_start(number, "thread")
        for k, batch in enumerate((writer, nothing)):
            left = 0 if k or (dropped and number > 50) else 40
            data = np.frombuffer(batch.bytes(), np.uint8)
            behind.feed(JitBatch("h", 42, 2 * number + k, data, 0, number * second))
        behind.feed(Watermark("h", 42, number * second))
        if number == 50:
            assert behind.statistics()["reconstruct_methods"] > 0
    assert (behind.statistics()["reconstruct_methods"] > 0) == (not dropped)
    assert behind.statistics()["reconstruct_methods"] < 40 * len(made.classes()["p/Calls"].methods())
    assert (behind.counts["dropped_bytes"] > 0) == dropped

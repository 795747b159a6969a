"""Fidelity flow on a real JVM's recording, against one look-up for each executed instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import streamer.demo
from capture.recording.replay import Replay
from jvm.code.image import CodeImage
from jvm.code.sites import UNKNOWN_CODE
from stages.decode.stage import make as decode
from stages.follow.cfg.graph import P_BREAK, P_DISABLED
from stages.follow.flow import Flow, FlowOutput
from stages.follow.follower import Follower
from stages.follow.repair.backtracking_search import search
from stages.follow.stage import Follow
from stages.follow.walk import path_sequence as orders
from stages.follow.walk.driver import B_OVERFLOW
from stages.images import Images, Process
from stages.inlining.class_measures import EXECUTED, NOT_TAKEN, TAKEN
from stages.inlining.inlining import Inlining
from stages.messages import Account, Chunk, JitBatch, Loss, PaneReport, Pieces, Segment, StreamOpen
from stages.profile.stage import Profile
from stages.ready.stage import Held, _pieces
from stages.segment.stage import make as segment
from streamer.hub.hub import Hub
from streamer.pipeline.topology import Stage, feed_chain, flush_chain
from streamer.pipeline.warm_flow import compile_flow
from tests.stages import chains

RECORDING = Path(streamer.demo.__file__).parent / "shop.json"
SKIP, CHUNKS = 900, 60  # past the beginning, where nearly all is interpreted


@pytest.fixture(scope="module")
def messages() -> list[object]:
    with Replay(RECORDING) as replay:
        return list(replay.messages())


def segments(messages: list[object], skip: int = SKIP, count: int = CHUNKS) -> Iterator[Segment]:
    chain: list[Stage] = [decode(), segment()]
    chunks = 0
    for message in messages:
        chunks += isinstance(message, Chunk)
        for out in feed_chain(chain, message):
            if isinstance(out, Segment) and chunks >= skip:
                yield out
        if chunks >= skip + count:
            return


def known_code(messages: list[object]) -> tuple[Images, Process]:
    """All that is told of code in the recording."""
    images = Images(0.5)
    images.take(next(m for m in messages if isinstance(m, StreamOpen)))
    for message in messages:
        if isinstance(message, JitBatch):
            images.take(message)
    (process,) = images.processes()
    return images, process


def contradictions(output: FlowOutput) -> int:
    return int((output.breaks["cause"] != B_OVERFLOW).sum())


def as_pieces(process: Process, segment: Segment) -> Pieces:
    return _pieces(Held(process), [segment], False)


def calls_along(image: CodeImage, at: int, addresses: list[int]) -> Counter[int]:
    """By site: the calls along the executed addresses, looked up one by one. The last may be a branch of which it is
    not known where it led."""
    inlining = Inlining(image)
    dead_ends = inlining.dead_ends()
    calls: dict[tuple[int, int], Counter[int]] = {}
    for v in image.versions():
        if not v.verified_entry or not v.since <= at < v.until:
            continue
        m = inlining.of(v, dead_ends)
        rows = list(zip(m.offset.tolist(), m.way.tolist(), m.times.tolist(), m.called, strict=True))
        for offset, way, times, name in (*rows, (v.verified_entry - v.start, EXECUTED, 1, v.name)):
            assert name is not None
            calls.setdefault((v.start + offset, way), Counter())[image.sites.site(name, v.site_kind)] += times
    out: Counter[int] = Counter()
    behind = {address for address, way in calls if way != EXECUTED}
    for here, after in zip(addresses, [*addresses[1:], 0], strict=True):
        out.update(calls.get((here, EXECUTED), ()))
        if here in behind and after:
            out.update(calls.get((here, NOT_TAKEN if here < after <= here + 6 else TAKEN), ()))
    return out


def test_counts_are_those_of_each_executed_instruction(messages: list[object]) -> None:
    images, process = known_code(messages)
    image, quantum = process.image, round(process.hz / 50)
    follow, profile = Follow(images), Profile(images=images)
    plain = Flow(process.config, context=False)
    expected: Counter[int] = Counter()
    entries: Counter[int] = Counter()
    breaks = 0
    joints = 0  # where the way out of a branch is not the next address
    for piece in segments(messages):
        for out in follow.feed(as_pieces(process, piece)):
            profile.feed(out)
            breaks += sum(n for _, n in out.events) if isinstance(out, Account) else 0
        at = (piece.tsc_end // quantum + 1) * quantum
        plain.set_code(image.view(at))
        for output in plain.feed(piece):
            addresses = orders.addresses(output.tables, output.order)
            for site in image.sites_of(addresses, np.full(len(addresses), at, np.uint64)).tolist():
                expected[site] += 1
            entries.update(calls_along(image, at, addresses.tolist()))
            joints += 1 + int(np.count_nonzero((output.order == P_BREAK) | (output.order == P_DISABLED)))
    (counted,) = profile._processes.values()
    rows = np.concatenate([pane.sum() for pane in counted.panes.values()])
    instructions: Counter[int] = Counter()
    entered: Counter[int] = Counter()
    for site, n, calls in rows[["site", "instructions", "invocations"]].tolist():
        instructions[site] += n
        entered[site] += calls
    assert sum(expected.values()) > 1_000_000
    assert +instructions == +expected
    assert sum(entries.values()) > 10_000
    assert max(abs(entered[site] - entries[site]) for site in entered | entries) <= joints < sum(entries.values()) / 100
    assert rows["ticks"].sum() > 0
    assert breaks < sum(expected.values()) / 1000


def test_contradictions_are_told_by_place(messages: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    _, process = known_code(messages)
    image, config, quantum = process.image, process.config, round(process.hz / 50)
    follower = Follower(image, config, quantum)
    follower.flow.search = None  # as they come
    monkeypatch.setattr(follower.repair, "_shut_entries", lambda _: None)  # nor is an entry shut that is known to be
    plain = Flow(config, context=False)
    places: Counter[tuple[int, str, int]] = Counter()  # cause, blob's name, offset
    counted = suspect = 0
    for piece in segments(messages, skip=400, count=40):
        counted += sum(contradictions(output) for output in follower.follow(piece))
        at = (piece.tsc_end // quantum + 1) * quantum
        plain.set_code(image.view(at))
        for output in plain.feed(piece):
            suspect += output.suspect_instructions
            for broken in output.breaks[output.breaks["cause"] != B_OVERFLOW]:
                version = image.at(int(broken["at"]), at)
                name = version.name if version else UNKNOWN_CODE
                places[int(broken["cause"]), name, int(broken["at"]) - (version.start if version else 0)] += 1
    told = follower.contradictions.take()
    assert len(places) > 5
    assert sum(places.values()) == counted
    by_name: Counter[tuple[int, str, int]] = Counter()  # a method can have been compiled twice to the same code
    for c in told:
        by_name[c.cause, c.code.partition(" (")[0], c.offset] += c.times
    assert by_name == places
    assert [c.times for c in told] == sorted((c.times for c in told), reverse=True)
    assert any(" @ " in c.site for c in told)
    assert sum(c.suspect for c in told) == suspect > 0


def test_contradictions_are_resolved_by_choosing(messages: list[object]) -> None:
    compile_flow()
    compiled = list(search.signatures)
    _, process = known_code(messages)
    image, config, quantum = process.image, process.config, round(process.hz / 50)
    follower, plain = Follower(image, config, quantum), Follower(image, config, quantum)
    plain.flow.search = None
    left = before = 0
    for piece in segments(messages, skip=400, count=40):
        left += sum(contradictions(output) for output in follower.follow(piece))
        before += sum(contradictions(output) for output in plain.follow(piece))
    assert before > 500
    assert left <= 20
    assert search.signatures == compiled  # nothing is compiled in the middle of a run
    assert follower.repair.counts["chosen"] + follower.repair.counts["chosen_inferred"] >= 10


def test_the_stage_reports_hot_java_methods_and_keeps_the_books(messages: list[object]) -> None:
    chain = chains.flow()
    reports: list[PaneReport] = []
    chunks = 0
    end: dict[object, int] = {}
    for message in messages:
        if isinstance(message, Chunk):
            chunks += 1
            end[message.stream] = message.offset + len(message.data)
        reports += [m for m in feed_chain(chain, message) if isinstance(m, PaneReport)]
        if chunks > SKIP:
            break
    reports += [m for m in flush_chain(chain) if isinstance(m, PaneReport)]
    names = {number: name for report in reports for number, name in report.names}
    weight: Counter[str] = Counter()
    for report in reports:
        for row in report.profile:
            weight[names[int(row["method"])]] += int(row["instructions"])
    assert "Shop$Catalog.matches" in [name for name, _ in weight.most_common(3)]
    told: Counter[object] = Counter()
    causes: Counter[Loss] = Counter()
    for report in reports:
        for account in report.accounts:
            told[account.stream] += account.end - account.start
            assert account.decoded + sum(n for _, n in account.holes) == account.end - account.start
            causes.update(dict(account.events))
    assert told == Counter(end)
    assert sum(c.times for r in reports for c in r.contradictions) == causes[Loss.DESYNC] + causes[Loss.CODE_MISSING]
    hub = Hub(fidelity="flow")
    by_place: Counter[tuple[str, str, int, int]] = Counter()
    for report in reports:
        hub.feed(report)
        for c in report.contradictions:
            by_place[c.cause.name.lower(), c.code, c.start, c.offset] += c.times
    view = hub.contradictions(1000)
    assert Counter({(q.cause, q.code, q.start, q.offset): q.times for q in view.places}) == by_place
    assert view.total == causes[Loss.DESYNC] + causes[Loss.CODE_MISSING]
    assert view.causes["off_code"] == causes[Loss.CODE_MISSING]
    assert causes[Loss.DESYNC] > 0  # code that was patched before it was read again: said, not hidden

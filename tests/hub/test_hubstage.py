"""A hub that dies goes on where it was noted last, counts its gap, and does not die of its own note for ever."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing

from stages.messages import Loss, StreamOpen
from streamer.config import Settings, WebConfig
from streamer.hub.hub import Hub
from streamer.pipeline.hub_stage import (
    NOTE_BYTES,
    NOTE_SECONDS,
    QUIET_NOTE_SECONDS,
    TRIES,
    HubStage,
    Notes,
    State,
    load,
    save,
)
from streamer.views.listener import listen, url_of
from tests.hub.reports import account, report, stream
from tests.supervisor.scene import OPENED


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen(WebConfig(port=0)) as found:
        yield found


def stage(directory: Path, listener: socket.socket, first: bool = False) -> HubStage:
    return HubStage(Settings(), directory, listener.fileno(), first=first)


def test_it_goes_on_where_it_was_noted(tmp_path: Path, listener: socket.socket) -> None:
    before = stage(tmp_path, listener, first=True)
    before.feed(report(3, {"A.hot": 900, "B.cold": 100}, accounts=(account(0, 1000),), column="instructions"))
    before.hear({"component": "decode/0", "up": True, "restarts": 4, "statistics": {"stages": {"view": {}}}})
    before.flush()
    before.feed(report(4, {"A.hot": 5}, accounts=(account(1000, 1500),)))  # … and dies before it notes that

    after = stage(tmp_path, listener)
    view = after.hub.hot(whole_run=True)
    assert [(m.method, m.weight) for m in view.methods] == [("A.hot", 900), ("B.cold", 100)]
    assert after.hub.restarts() == 4
    after.feed(report(5, {"A.hot": 100}, accounts=(account(1500, 1800),)))
    after.feed(report(6, {"A.hot": 100}, accounts=(account(2000, 2100),)))  # a worker died, too
    (balance,) = after.hub.finish({stream(): 2100})
    assert (balance.decoded, balance.error) == (1400, 0)
    assert balance.holes == {Loss.HUB_DOWN: 500, Loss.WORKER_DOWN: 200}


def test_the_terminal_of_a_run_is_told_the_last_minute(tmp_path: Path, listener: socket.socket) -> None:
    told = HubStage(Settings(), tmp_path, listener.fileno(), terminal=True)
    for pane in range(200):
        told.feed(report(pane, {"A.hot": pane}, column="instructions"))
    view = json.loads(json.dumps(told.statistics()["view"]))
    assert [method["method"] for method in view["methods"]] == ["A.hot"]
    (band,) = view["timeline"]["bands"]
    assert len(view["timeline"]["total"]) == len(band["weights"]) == 60
    assert band["weights"] == view["timeline"]["total"] == sorted(band["weights"])
    assert "timeline" not in stage(tmp_path, listener).statistics()["view"]  # nobody looks at it


def test_without_a_note_all_that_was_before_is_a_hole(tmp_path: Path, listener: socket.socket) -> None:
    after = stage(tmp_path, listener)
    after.feed(account(700, 800))
    first, unseen = after.hub.finish({stream(): 800, stream(1): 50})
    assert (first.decoded, first.holes) == (100, {Loss.HUB_DOWN: 700})
    assert unseen.holes == {Loss.HUB_DOWN: 50}


def test_the_first_hub_has_missed_nothing(tmp_path: Path, listener: socket.socket) -> None:
    first = stage(tmp_path, listener, first=True)
    first.feed(account(700, 800))
    (balance,) = first.hub.finish({stream(): 800})
    assert balance.holes == {Loss.WORKER_DOWN: 700}


def test_a_note_is_taken_up_a_few_times_and_no_more(tmp_path: Path) -> None:
    save(State(Hub()), tmp_path)
    assert [load(tmp_path) is not None for _ in range(TRIES + 2)] == [True] * TRIES + [False] * 2
    save(State(Hub()), tmp_path)
    assert load(tmp_path) is not None
    assert load(tmp_path) is not None
    save(State(Hub()), tmp_path)
    assert [load(tmp_path) is not None for _ in range(TRIES + 1)] == [True] * TRIES + [False]


@pytest.mark.parametrize("note", [b"", b"nonsense", b"\x80\x05N.", b"\x80\x05\x95"])
def test_a_damaged_note_is_none(tmp_path: Path, note: bytes) -> None:
    (tmp_path / "hub.state").write_bytes(note)
    assert load(tmp_path) is None


async def test_it_is_noted_often_only_where_there_is_something_to_lose(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    hub, noted, end = stage(tmp_path, listener, first=True), list[float](), 0
    began = trio.current_time()

    async def save() -> float:
        noted.append(trio.current_time() - began)
        return 0.0

    monkeypatch.setattr(hub, "_save_beside", save)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub._note)
        await trio.sleep(NOTE_SECONDS / 3)
        for pane in range(10):
            await trio.sleep(NOTE_SECONDS)
            size = NOTE_BYTES if pane < 3 else 1
            hub.feed(report(pane, {}, accounts=(account(end, end + size),)))
            end += size
        nursery.cancel_scope.cancel()
    assert [b - a for a, b in itertools.pairwise(noted[:4])] == pytest.approx([NOTE_SECONDS] * 3, abs=0.1)
    assert all(b - a >= QUIET_NOTE_SECONDS for a, b in itertools.pairwise(noted[3:]))


async def test_a_note_that_is_overtaken_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, old, young = Notes(tmp_path), State(Hub()), State(Hub())
    young.hub.refused_reports = 1

    async def overtaken(write: Callable[[bytes, int], None], note: bytes, number: int) -> None:
        notes.write(young)
        write(note, number)

    monkeypatch.setattr(trio.to_thread, "run_sync", overtaken)
    await notes.write_beside(old)
    found = load(tmp_path)
    assert found is not None
    assert found.hub.refused_reports == 1


async def test_a_note_is_of_the_state_when_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(Hub())

    async def late(write: Callable[[bytes, int], None], note: bytes, number: int) -> None:
        state.hub.refused_reports = 1
        write(note, number)

    monkeypatch.setattr(trio.to_thread, "run_sync", late)
    await Notes(tmp_path).write_beside(state)
    found = load(tmp_path)
    assert found is not None
    assert found.hub.refused_reports == 0


def test_where_there_is_no_room_it_goes_on_without(tmp_path: Path, listener: socket.socket) -> None:
    full = stage(tmp_path / "nowhere", listener, first=True)
    full.feed(account(0, 10))
    full.flush()
    assert full.hub.ledger.totals().decoded == 10


def test_a_clock_that_is_told_again_is_the_clock(tmp_path: Path, listener: socket.socket) -> None:
    hub = stage(tmp_path, listener)
    hub.feed(StreamOpen(stream(), OPENED.config, OPENED.clock))
    assert hub.hub.processes["h", 7].clock == OPENED.clock


async def test_whoever_asks_between_two_hubs_is_answered_by_the_second(tmp_path: Path, listener: socket.socket) -> None:
    async with httpx.AsyncClient(base_url=url_of(listener, WebConfig()), timeout=60) as http:
        answers: list[httpx.Response] = []

        async def ask() -> None:
            answers.append(await http.get("/api/statistics"))

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage(tmp_path, listener).serve)
                await ask()
                nursery.cancel_scope.cancel()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                assert len(answers) == 1
                second = stage(tmp_path, listener)
                second.hear({"component": "x", "up": True})
                nursery.start_soon(second.serve)
                while len(answers) < 2:
                    await trio.testing.wait_all_tasks_blocked(0.01)
                nursery.cancel_scope.cancel()
    assert [json.loads(a.text)["components"].keys() for a in answers] == [{}.keys(), {"x": 0}.keys()]

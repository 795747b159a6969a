from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import trio
import zmq

from stages.cct.selection import Selection
from stages.messages import PROFILE_DTYPE, PaneReport
from streamer.config import Settings, TransportConfig
from streamer.pipeline.keeper import Policy, State
from streamer.pipeline.supervisor import Supervisor
from streamer.pipeline.topology import Group, Topology
from streamer.session import selected
from streamer.transport.codec import encode
from streamer.transport.routing import shard
from tests.processes import has_ended
from tests.supervisor.scene import HOST, Ledger, source_state
from tests.transport.waiting import eventually

SCENE = "tests.supervisor.scene"
Mode = Literal["inproc", "ipc", "tcp"]

# two processes for each of two workers
PIDS = [next(p for p in range(base, base + 99) if shard((HOST, p), 2) == w) for base in (1, 500) for w in (0, 1)]
QUICK = Policy(first_delay=0.05, longest_delay=0.2, shutdown_seconds=60, silence=60)


def plan(workers: int = 2, middle: tuple[str, ...] = ("Tally",), split: bool = False, **options: Any) -> Topology:
    options = {"pids": PIDS, **options}
    stages = tuple(f"{SCENE}:{name}" for name in middle)
    groups = [(s,) for s in stages] if split else [stages]
    return Topology(
        (
            Group("source", (f"{SCENE}:Numbers",), 1, options),
            *(Group(f"work{i}", g, workers, options) for i, g in enumerate(groups)),
            Group("sink", ("ledger",)),
        )
    )


class Scene:
    def __init__(self, supervisor: Supervisor, ledger: Ledger, directory: Path) -> None:
        self.supervisor, self.ledger, self.directory = supervisor, ledger, directory

    def pid(self, member: str) -> int:
        run = self.supervisor.members[member].run
        assert run is not None
        return run.pid

    def source(self) -> dict[int, dict[str, int]]:
        return source_state(self.directory, PIDS)

    async def some(self, chunks: int = 40) -> None:
        """Until so many more chunks of every stream have arrived."""
        start = {pid: self.ledger.count(pid) for pid in PIDS}
        await eventually(lambda: all(self.ledger.count(p) >= start[p] + chunks for p in PIDS))

    def statistics(self, member: str) -> dict[str, Any]:
        found = self.supervisor.statistics()["members"][member]["statistics"]
        assert isinstance(found, dict)
        return found


@asynccontextmanager
async def running(
    tmp_path: Path, topology: Topology, mode: Mode = "ipc", policy: Policy = QUICK, hwm: int = 64
) -> AsyncIterator[Scene]:
    """Everything runs inside; on leaving it is stopped and has ended."""
    directory = tmp_path / "s"
    directory.mkdir(mode=0o700)
    ledger = Ledger()
    settings = Settings(transport=TransportConfig(mode=mode, hwm=hwm), runtime_dir=tmp_path)
    supervisor = Supervisor(settings, topology, directory, here={"sink": [ledger]}, policy=policy)
    with trio.fail_after(150):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run)
            yield Scene(supervisor, ledger, directory)
            supervisor.stop()


def lost(scene: Scene, pid: int) -> list[int]:
    """Positions of a stream that no report tells of. None may be told of twice."""
    seen = scene.ledger.seen[pid]
    assert set(seen.values()) == {1}
    return [i for i in range(scene.source()[pid]["position"]) if i not in seen]


@pytest.mark.parametrize("mode", ["inproc", "ipc", "tcp"])
async def test_an_orderly_end_loses_nothing(tmp_path: Path, mode: Mode) -> None:
    async with running(tmp_path, plan(wait=True), mode) as scene:
        await scene.some()
    assert all(lost(scene, pid) == [] for pid in PIDS)
    assert scene.ledger.wrong == 0
    statistics = scene.supervisor.statistics()
    assert (statistics["restarts"], statistics["given_up"], statistics["killed"]) == (0, [], [])
    assert all(m["up"] and m["why"] == "ended" for m in statistics["members"].values())
    assert scene.statistics("sink/0")["input"]["missing"] == 0
    assert scene.statistics("sink/0")["input"]["rejected"] == 0
    assert not list(scene.directory.glob("*.ipc*"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ipc", "tcp"])
async def test_each_stage_can_be_alone_in_its_process(tmp_path: Path, mode: Mode) -> None:
    topology = plan(1, ("Pass", "Pass", "Tally"), split=True, chunks=300, wait=True)
    async with running(tmp_path, topology, mode, hwm=8) as scene:
        await eventually(lambda: all(scene.ledger.count(pid) == 300 for pid in PIDS))
    assert len({m["pid"] for m in scene.supervisor.statistics()["members"].values()} - {0}) == 4
    assert all(lost(scene, pid) == [] for pid in PIDS)
    assert scene.ledger.wrong == 0


async def test_over_tcp_another_user_of_the_machine_puts_nothing_in(tmp_path: Path) -> None:
    evil = PaneReport(HOST, 666, 0, 0, np.zeros(1, PROFILE_DTYPE), ((1, "evil.Method.run"),), ())
    async with running(tmp_path, plan(wait=True), "tcp") as scene:
        await scene.some()
        endpoint = scene.supervisor._addresses["sink/0"].data
        with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
            stranger.linger = 0
            stranger.connect(endpoint)
            with suppress(zmq.Again):  # it may have been turned away already: then there is no receiver for it
                stranger.send_multipart(encode(evil, "work0/0#1", 0), flags=zmq.NOBLOCK)
            await eventually(lambda: scene.statistics("sink/0")["input"].get("turned_away", 0) > 0)
        await scene.some()
    assert scene.ledger.count(666) == 0
    assert all(lost(scene, pid) == [] for pid in PIDS)


async def test_nothing_is_imported_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may be another user's, or /tmp."""
    (tmp_path / "cwd" / "streamer").mkdir(parents=True)
    for name in ("streamer/__init__.py", "trio.py", "numpy.py", "msgpack.py", "streamer.py"):
        (tmp_path / "cwd" / name).write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write(__name__)\n")
    monkeypatch.chdir(tmp_path / "cwd")
    async with running(tmp_path, plan(wait=True)) as scene:
        await scene.some()
    assert not (tmp_path / "imported").exists()
    assert all(lost(scene, pid) == [] for pid in PIDS)


async def test_a_source_that_ends_by_itself_ends_everything(tmp_path: Path) -> None:
    async with running(tmp_path, plan(chunks=100, wait=True), "inproc") as scene:
        await eventually(lambda: all(m.ended for m in scene.supervisor.members.values()))
    assert [scene.ledger.count(pid) for pid in PIDS] == [100] * 4


async def test_a_killed_worker_is_back_and_what_it_had_is_accounted(tmp_path: Path) -> None:
    async with running(tmp_path, plan()) as scene:
        await scene.some()
        os.kill(scene.pid("work0/0"), signal.SIGKILL)
        await eventually(lambda: scene.supervisor.members["work0/0"].restarts == 1)
        await scene.some()
    killed = [pid for pid in PIDS if shard((HOST, pid), 2) == 0]
    for pid in PIDS:
        refused = scene.source()[pid]["refused"]
        if pid not in killed:
            assert len(lost(scene, pid)) == refused  # nothing but chunks without room
    # The new incarnation's numbers tell how many went to the old one; those it did not report are lost.
    entered = scene.statistics("work0/0")["input"]
    assert entered["missing"] == 0
    not_reported = entered["skipped"] - scene.ledger.by[0, 1]
    assert not_reported >= 0
    queued = sum(s["sent"] for p, s in scene.source().items() if p in killed) - sum(
        scene.ledger.by[0, i] for i in (1, 2)
    )
    assert sum(len(lost(scene, p)) for p in killed) == queued + sum(scene.source()[p]["refused"] for p in killed)
    assert scene.ledger.wrong == 0  # it was told of the streams before their chunks
    assert scene.ledger.by[0, 2] > 0
    assert scene.supervisor.statistics()["restarts"] == 1


async def test_a_killed_source_is_back_and_the_workers_did_not_notice(tmp_path: Path) -> None:
    async with running(tmp_path, plan()) as scene:
        await scene.some()
        os.kill(scene.pid("source/0"), signal.SIGKILL)
        await eventually(lambda: scene.supervisor.members["source/0"].restarts == 1)
        await scene.some()
    for pid in PIDS:
        holes = lost(scene, pid)
        # Sent by the dead one and not read yet (its queue, and the kernel's buffers when the connection broke): one run
        # of positions. Chunks without room are holes of their own.
        runs = sum(1 for i, at in enumerate(holes) if i == 0 or holes[i - 1] != at - 1)
        assert runs <= 1 + scene.source()[pid]["refused"]
    assert scene.ledger.wrong == 0
    assert {i for _, i in scene.ledger.by} == {1}
    assert scene.supervisor.statistics()["restarts"] == 1


@pytest.mark.slow
async def test_a_worker_further_down_is_introduced_through_those_before_it(tmp_path: Path) -> None:
    async with running(tmp_path, plan(1, ("Pass", "Tally"), split=True)) as scene:
        await scene.some()
        opened = scene.ledger.opened
        os.kill(scene.pid("work1/0"), signal.SIGKILL)
        await eventually(lambda: scene.ledger.opened >= opened + len(PIDS))
        await scene.some()
        before = scene.ledger.wrong
        await scene.some()
    assert scene.ledger.wrong == before


async def test_a_poisoned_worker_goes_on_behind_the_poison(tmp_path: Path) -> None:
    async with running(tmp_path, plan(1, poison=30, wait=True), "inproc") as scene:
        await scene.some(60)
    assert scene.supervisor.statistics()["restarts"] >= 1
    assert 30 not in scene.ledger.seen[PIDS[0]]
    assert scene.ledger.wrong == 0


@pytest.mark.slow
async def test_terminated_by_somebody_else_a_worker_works_off_its_input_and_is_started_again(tmp_path: Path) -> None:
    async with running(tmp_path, plan(1)) as scene:
        await scene.some()
        os.kill(scene.pid("work0/0"), signal.SIGTERM)
        await eventually(lambda: scene.supervisor.members["work0/0"].restarts == 1)
        await scene.some()
    assert scene.ledger.wrong == 0


@pytest.mark.slow
async def test_a_member_that_keeps_dying_is_tried_again_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path, plan(1, ("broken",))) as scene:
        await eventually(lambda: scene.supervisor.members["work0/0"].restarts > 10)
        status = scene.supervisor.statistics()["members"]["work0/0"]
        assert not status["up"]
        assert status["deaths_in_a_row"] > 10
    assert scene.supervisor.statistics()["given_up"] == []
    assert scene.supervisor.members["work0/0"].state is State.LOST


def test_the_pause_before_a_start_is_bounded() -> None:
    policy = Policy(first_delay=0.1, longest_delay=5)
    assert [policy.delay(n) for n in (1, 2, 3, 7, 8, 10**6)] == [0.1, 0.2, 0.4, 5, 5, 5]


@pytest.mark.slow
async def test_one_worker_is_stopped_and_the_source_killed_in_the_end(tmp_path: Path) -> None:
    """The source waits for the stopped worker's acknowledgement, so it cannot end first; the other worker has ended by
    then, and takes nothing more."""
    policy = Policy(first_delay=0.05, silence_at_end=100, idle_at_end=100, shutdown_seconds=100)
    async with running(tmp_path, plan(), policy=policy) as scene:
        await scene.some()
        os.kill(scene.pid("work0/1"), signal.SIGSTOP)
        scene.supervisor.stop()
        members = scene.supervisor.members
        await eventually(lambda: members["work0/0"].ended and members["source/0"].state is State.ENDING)
        os.kill(scene.pid("source/0"), signal.SIGKILL)
        await eventually(lambda: members["source/0"].state is State.LOST)
        os.kill(scene.pid("work0/1"), signal.SIGKILL)
        await eventually(lambda: all(m.ended for m in members.values()))
    assert scene.supervisor.statistics()["killed"] == []
    states = {name: m.state for name, m in members.items()}
    assert states == {"source/0": State.LOST, "work0/0": State.ENDED, "work0/1": State.LOST, "sink/0": State.ENDED}
    assert all(len(lost(scene, pid)) == scene.source()[pid]["refused"] for pid in PIDS if shard((HOST, pid), 2) == 0)


async def test_a_stopped_member_is_said_not_to_be_there_before_it_is_killed(tmp_path: Path) -> None:
    policy = Policy(quiet=3, shutdown_seconds=60)
    async with running(tmp_path, plan(1), policy=policy) as scene:
        await scene.some()
        keeper = scene.supervisor.members["work0/0"]
        await eventually(lambda: keeper.status()["up"])
        os.kill(scene.pid("work0/0"), signal.SIGSTOP)
        await eventually(lambda: not keeper.status()["up"])
        assert keeper.status()["state"] == "quiet"
        os.kill(scene.pid("work0/0"), signal.SIGCONT)
        await eventually(lambda: keeper.status()["up"])
        await scene.some()
    assert keeper.restarts == 0


class Ear(Ledger):
    """A last stage that hears how the members are."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[str, dict[str, Any]] = {}

    def hear(self, status: dict[str, Any]) -> None:
        self.heard[status["component"]] = status


async def test_the_last_member_is_told_how_all_are(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o700)
    settings = Settings(transport=TransportConfig(mode="inproc"), runtime_dir=tmp_path)
    ear = Ear()
    topology = plan(1, poison=30)
    supervisor = Supervisor(settings, topology, tmp_path / "s", here={"sink": [ear]}, policy=QUICK, informs=True)
    with trio.fail_after(150):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run)
            await eventually(lambda: ear.heard.get("work0/0", {}).get("restarts", 0) >= 1)
            await eventually(lambda: all(ear.heard.get(name, {}).get("up") for name in topology.members))
            supervisor.stop()
    assert "poisoned" in ear.heard["work0/0"]["why"]


class Chooser:
    """A stage that keeps contexts."""

    def __init__(self) -> None:
        self.chosen: list[Selection] = []

    def select(self, selection: Selection) -> None:
        self.chosen.append(selection)

    def feed(self, message: object) -> tuple[object, ...]:
        return ()

    def flush(self) -> tuple[object, ...]:
        return ()

    def statistics(self) -> dict[str, int]:
        return {}


async def test_members_are_told_of_which_threads_contexts_are_kept(tmp_path: Path) -> None:
    """When they begin, and when it changes; what is no selection is told in the log, and the last one holds."""
    directory = tmp_path / "s"
    directory.mkdir(mode=0o700)
    before, after = Selection(False), Selection(True, ("http-*",), (7,))
    selected.write(directory, before.words())
    settings = Settings(transport=TransportConfig(mode="inproc"), runtime_dir=tmp_path)
    chooser = Chooser()
    supervisor = Supervisor(settings, plan(1, wait=True), directory, here={"work0": [chooser], "sink": [Ledger()]})
    with trio.fail_after(150):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.run)
            await eventually(lambda: before in chooser.chosen)
            selected.write(directory, {"on": 1})
            await eventually(lambda: supervisor._selected.words == {"on": 1})
            selected.write(directory, after.words())
            await eventually(lambda: chooser.chosen[-1] == after)
            supervisor.stop()
    assert {*chooser.chosen} == {before, after}


@pytest.mark.slow
async def test_terminated_by_somebody_else_a_source_is_started_again(tmp_path: Path) -> None:
    async with running(tmp_path, plan(1)) as scene:
        await scene.some()
        os.kill(scene.pid("source/0"), signal.SIGTERM)
        await eventually(lambda: scene.supervisor.members["source/0"].restarts == 1)
        await scene.some()
    assert scene.ledger.wrong == 0


@pytest.mark.parametrize("mode", ["inproc", "ipc"])
async def test_a_member_that_cannot_be_made_is_given_up_at_once_saying_why(tmp_path: Path, mode: Mode) -> None:
    async with running(tmp_path, plan(1, ("nothing",)), mode) as scene:
        await eventually(lambda: scene.supervisor.statistics()["given_up"] == ["work0/0"])
    status = scene.supervisor.statistics()["members"]["work0/0"]
    assert "cannot be loaded" in status["why"]
    assert status["restarts"] == 0


@pytest.mark.slow
async def test_a_silent_member_is_killed_and_started_again(tmp_path: Path) -> None:
    policy = Policy(first_delay=0.05, silence=6, shutdown_seconds=60)
    async with running(tmp_path, plan(1), policy=policy) as scene:
        await scene.some()
        os.kill(scene.pid("work0/0"), signal.SIGSTOP)
        await eventually(lambda: scene.supervisor.members["work0/0"].restarts >= 1)
        await scene.some()
    assert scene.ledger.wrong == 0


async def test_the_end_is_bounded_in_time(tmp_path: Path) -> None:
    policy = Policy(shutdown_seconds=1.5, term_seconds=0.5)
    async with running(tmp_path, plan(1, deaf=True), policy=policy) as scene:
        await scene.some()
        pids = [scene.pid(m) for m in ("source/0", "work0/0")]
    assert "source/0" in scene.supervisor.killed
    assert all(has_ended(pid) for pid in pids)


@pytest.mark.slow
async def test_members_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    program = (
        "import trio, sys; from pathlib import Path\n"
        "from tests.supervisor import test_supervisor as t\n"
        "async def main():\n"
        "    async with t.running(Path(sys.argv[1]), t.plan(1)) as scene:\n"
        "        await scene.some()\n"
        "        print(scene.pid('source/0') * 2**32 + scene.pid('work0/0'), flush=True)\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    process = await trio.lowlevel.open_process([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with process.stdout:
        with trio.fail_after(100):
            pids = divmod(int(await process.stdout.receive_some()), 2**32)
            process.kill()
            await process.wait()
    await eventually(lambda: all(has_ended(pid) for pid in pids))

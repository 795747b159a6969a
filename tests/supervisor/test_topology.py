from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.cct.traced import Room
from stages.messages import (
    MARK_DTYPE,
    PROFILE_DTYPE,
    Account,
    Chunk,
    Decoded,
    EndOfStream,
    JitBatch,
    PaneReport,
    Segment,
    StreamKey,
    ThreadKey,
    Tick,
)
from streamer.config import FlowConfig, Settings, TransportConfig
from streamer.pipeline.topology import MIDDLE, Group, Pipeline, Place, Topology, TopologyError, make, topology
from streamer.transport.routing import route, shard, worker_of
from tests.supervisor.scene import HOST, Ledger, Numbers, Tally, stream

EMPTY = np.zeros(0, np.uint8)
SCENE = "tests.supervisor.scene"


def shape(plan: Topology) -> list[tuple[str, tuple[str, ...], int]]:
    return [(g.name, g.stages, g.workers) for g in plan.groups]


def test_the_default_is_one_group_of_workers_between_capture_and_hub() -> None:
    settings = Settings(transport=TransportConfig(workers=3))
    assert shape(topology(settings)) == [
        ("capture", ("capture",), 1),
        ("decode", MIDDLE["flow"], 3),
        ("hub", ("hub",), 1),
    ]
    for setting, stage in (("contexts", "cct"), ("interpreted", "reconstruct"), ("recover", "recover")):
        without = topology(Settings(flow=FlowConfig(**{setting: False}))).groups[1].stages
        assert without == tuple(name for name in MIDDLE["flow"] if name != stage)
    told = topology(Settings(flow=FlowConfig(statements=True, interpreted=False))).groups[1].stages
    assert told == (*MIDDLE["flow"][:6], "statements", *MIDDLE["flow"][6:])
    by_addresses = topology(Settings(transport=TransportConfig(workers=3), fidelity="ip"))
    assert shape(by_addresses)[1] == ("decode", MIDDLE["ip"], 3)
    assert [*MIDDLE["ip"][:3], MIDDLE["ip"][-1]] == ["decode", "segment", "ready", "profile"]
    assert set(MIDDLE["flow"]) >= {*MIDDLE["ip"], "follow"}


def test_holes_are_filled_before_all_readers_of_paths() -> None:
    assert MIDDLE["flow"][MIDDLE["flow"].index("follow") + 1] == "recover"
    assert make("recover", Place(Settings(), Path(), 0)).statistics()["recover_waiting"] == 0


def test_the_tables_of_contexts_have_the_rows_that_are_set() -> None:
    settings = Settings(flow=FlowConfig(context_kirows=4))
    assert make("cct", Place(settings, Path(), 0))._room == Room(4096, 4096, 4096)
    assert make("cct", Place(Settings(), Path(), 0))._room == Room()


def test_every_boundary_can_be_a_socket() -> None:
    settings = Settings(transport=TransportConfig(workers=2, split=MIDDLE["flow"][1:]))
    plan = topology(settings, pids=[1])
    assert [g.stages for g in plan.groups] == [(s,) for s in ("capture", *MIDDLE["flow"], "hub")]
    assert plan.members == ["capture/0", *(f"{s}/{i}" for s in MIDDLE["flow"] for i in (0, 1)),
                            "hub/0"]  # fmt: skip
    assert plan.groups[1].options == {"pids": [1]}
    one_cut = topology(Settings(transport=TransportConfig(split=("follow",))))
    assert [g.stages for g in one_cut.groups[1:3]] == [MIDDLE["flow"][:3], MIDDLE["flow"][3:]]


def test_statements_are_told_where_the_graph_is() -> None:
    settings = Settings(flow=FlowConfig(statements=True), transport=TransportConfig(split=("statements",)))
    with pytest.raises(TopologyError, match="graph of reconstruct"):
        topology(settings)
    with pytest.raises(TopologyError, match="graph of reconstruct"):
        make("statements", Place(settings, Path(), 0))


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([Group("a", ("x",))], "at least one group behind"),
        ([Group("a", ("x",)), Group("a", ("x",))], "one name"),
        ([Group("a", ("x",)), Group("b/c", ("x",))], "no name for a group"),
        ([Group("a", ("x",)), Group("b", ())], "no stages"),
        ([Group("a", ("x",)), Group("b", ("y",), 0), Group("c", ("y",))], "0 workers"),
        ([Group("a", ("x", "y")), Group("b", ("x",))], "source stands alone"),
        ([Group("a", ("x",)), Group("b", ("x",), 2)], "last group has one member"),
    ],
)
def test_a_topology_that_cannot_run_is_one_clear_error(groups: list[Group], why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        Topology(tuple(groups))


def test_unknown_stages_are_named(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="no stage is called nonsense; there are decode"):
        topology(Settings(transport=TransportConfig(split=("nonsense",))))
    for name, why in [("nonsense", "no stage"), ("no.module:x", "cannot be loaded"), (f"{SCENE}:no", "cannot be")]:
        with pytest.raises(TopologyError, match=why):
            make(name, None)  # type: ignore[arg-type]


# ---- routing


@given(st.text(), st.integers(0, 2**22), st.integers(1, 300))
def test_a_key_has_one_worker(host: str, pid: int, workers: int) -> None:
    chosen = shard((host, pid), workers)
    assert 0 <= chosen < workers
    key = StreamKey(host, pid, 3, -1)
    chunk = Chunk(key, 0, 0, EMPTY)
    decoded = Decoded(key._replace(cpu=5), 0, EMPTY, np.zeros(0, MARK_DTYPE), (), 0, 0)
    assert route(chunk, 0, 1, workers) == route(decoded, 1, 2, workers) == (chosen,)


def test_shards_do_not_depend_on_the_process() -> None:
    """Fixed for ever: two releases on two hosts must agree."""
    assert [shard(("host", pid), 8) for pid in range(1000, 1006)] == [6, 3, 0, 0, 4, 4]


@given(st.integers(1, 2**22), st.integers(1, 2**22), st.integers(1, 16), st.integers(1, 8))
def test_threads_of_a_pool_are_shared_out_evenly(pid: int, first: int, workers: int, each: int) -> None:
    keys = [StreamKey("h", pid, -1, first + n) for n in range(workers * each)]
    assert Counter(worker_of(key, workers) for key in keys) == dict.fromkeys(range(workers), each)


def segment(stream: StreamKey, tid: int) -> Segment:
    thread = ThreadKey(stream.host, stream.pid, tid)
    return Segment(thread, stream, 0, 0, EMPTY, np.zeros(0, MARK_DTYPE), 0, 0, 0, False)


def test_whatever_is_said_of_a_stream_goes_one_way() -> None:
    for key in (StreamKey("h", 7, 0, -1), StreamKey("h", 7, 3, -1), StreamKey("h", 7, -1, 9)):
        messages = [
            Chunk(key, 0, 0, EMPTY),
            Decoded(key, 0, EMPTY, np.zeros(0, MARK_DTYPE), (), 0, 0),
            segment(key, 9),
            Account(key, 0, 0, 0, ()),
        ]
        assert len({route(m, lane, 3, 4) for m in messages for lane in range(3)}) == 1


def test_threads_share_their_process_way_unless_they_have_streams_of_their_own() -> None:
    per_cpu = {route(segment(StreamKey("h", 7, tid % 2, -1), tid), 0, 1, 4) for tid in range(50)}
    per_thread = {route(segment(StreamKey("h", 7, -1, tid), tid), 0, 1, 4) for tid in range(50)}
    assert len(per_cpu) == 1
    assert len(per_thread) == 4


@given(st.integers(1, 6), st.integers(1, 6))
def test_what_all_must_know_reaches_each_worker_once_and_the_end_from_every_lane(lanes: int, workers: int) -> None:
    for message in (JitBatch("h", 1, 0, EMPTY), Tick("h", 1, 1)):
        reached = [i for lane in range(lanes) for i in route(message, lane, lanes, workers)]
        assert sorted(reached) == list(range(workers))
    for lane in range(lanes):
        assert route(EndOfStream("x"), lane, lanes, workers) == tuple(range(workers))
    assert route(PaneReport("h", 1, 0, 0, np.zeros(0, PROFILE_DTYPE), (), ()), 2, 3, 1) == (0,)


# ---- everything in one process


def test_a_pipeline_without_sockets_does_the_same_work(tmp_path: Path) -> None:
    stages = (f"{SCENE}:Pass", f"{SCENE}:Tally")
    plan = Topology(
        (
            Group("source", (f"{SCENE}:Numbers",)),
            Group("first", stages[:1], 2),
            Group("second", stages[1:], 3),
            Group("sink", ("ledger",)),
        )
    )
    ledger = Ledger()
    pipeline = Pipeline(plan, Settings(), tmp_path, here={"sink": [ledger]})
    source: Any = Numbers(Place(Settings(), tmp_path, 0, 1, {"pids": [1, 2, 3]}))
    for message in source.introduction():
        pipeline.feed(message)
    for seq in range(10):
        for pid in (1, 2, 3):
            pipeline.feed(Chunk(stream(pid), seq, seq, np.full(10, seq, np.uint8)))
    assert ledger.count(1) < 10  # the tally holds some back
    pipeline.flush()
    assert [ledger.count(pid) for pid in (1, 2, 3)] == [10, 10, 10]
    assert ledger.wrong == 0
    assert set(pipeline.statistics()) == {"first/0", "first/1", "second/0", "second/1", "second/2", "sink/0"}
    assert pipeline.statistics()["sink/0"] == {"seen": 30}
    assert isinstance(make(f"{SCENE}:Tally", Place(Settings(), tmp_path, 0)), Tally)
    assert stream(1).host == HOST

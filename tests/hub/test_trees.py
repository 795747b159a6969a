"""Calling-context trees in the hub: windows of panes, bounds, and as a running streamer shows them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import trio
from click import Command
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages import TREE_DTYPE, TreeReport
from streamer.commands import cct, diff
from streamer.config import WebConfig, WindowConfig
from streamer.hub.hub import Hub
from streamer.hub.kept import TOGETHER
from streamer.hub.trees import NOTED_NODES, Trees
from streamer.views import web
from tests.hub.scene import scene

NAMES = ("[thread]", "A.a", "B.b")


def report(pane: int, spent: Sequence[int] = (1, 2, 3), *, worker: int = 0, pid: int = 42) -> TreeReport:
    """A thread that calls A.a, which calls B.b."""
    rows = np.zeros(3, TREE_DTYPE)
    rows["parent"], rows["method"], rows["bci"] = (-1, 0, 1), (0, 1, 2), (7, -1, 4)
    rows["observed_instructions"] = spent
    return TreeReport("h", pid, worker, pane, rows, NAMES)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=30), st.integers(1, 40))
def test_a_window_is_the_sum_of_its_panes(said: list[tuple[int, int]], panes: int) -> None:
    trees = Trees(50)
    for pane, spent in said:
        trees.feed(report(pane, (0, spent, 0)))
    newest = max((pane for pane, _ in said), default=0)
    exact = sum(spent for pane, spent in said if pane > newest - panes)
    most = sum(spent for pane, spent in said if pane > newest - panes - TOGETHER)
    assert exact <= trees.window(panes).total("observed_instructions") <= most
    assert trees.window(51).total("observed_instructions") == sum(spent for _, spent in said)


def test_old_panes_leave() -> None:
    trees = Trees(30)
    for pane in range(1000):
        trees.feed(report(pane))
    assert trees.window(1000).total("observed_instructions") <= 6 * (30 + TOGETHER)
    # 989 to 999, and those up to 979 together
    assert trees.statistics() == {"tree_nodes": 3 * 12, "trees_refused": 0, "trees_dropped": 0}


def test_all_may_be_used_between_two_steps() -> None:
    """Each shows the panes that are whole; a process that is forgotten meanwhile stays so."""
    trees = Trees(50)
    for said, pane in enumerate([*range(25), 24]):
        for _ in trees.steps(report(pane, (0, 1, 0))):
            assert trees.window(51).total("observed_instructions") in (said, said + 1)
            assert trees.statistics()["tree_nodes"] == sum(len(tree.nodes) for tree in trees.parts(51))
        assert trees.window(51).total("observed_instructions") == said + 1
    for steps_done in range(3):
        trees = Trees(50)
        trees.feed(report(0))
        more = trees.steps(report(0))
        for _ in range(steps_done):
            next(more)
        trees.forget(("h", 42))
        list(more)
        assert trees.statistics()["tree_nodes"] == sum(len(tree.nodes) for tree in trees.parts(51))


@settings(deadline=None)
@given(st.sets(st.integers(0, 60)).map(sorted))
def test_each_tree_is_of_its_panes(panes: list[int]) -> None:
    trees = Trees(50)
    for pane in panes:
        trees.feed(report(pane, (0, 1 << pane, 0)))
    kept = trees.stretches(("h", 42))
    told = [n for numbers, _ in kept for n in numbers]
    assert len(told) == len(set(told))
    for numbers, tree in kept:
        spent = tree.total("observed_instructions")
        assert spent
        assert not spent & ~sum(1 << n for n in numbers)


def test_the_oldest_trees_go_where_there_is_no_room() -> None:
    trees = Trees(30, most_nodes=12)
    for pane in range(5):
        trees.feed(report(pane, (0, 10**pane, 0)))
    assert trees.window(30).total("observed_instructions") == 11110
    assert trees.statistics()["trees_dropped"] == 1
    trees.feed(report(0, pid=43))
    assert trees.window(30, ("h", 43)).total("observed_instructions") == 6
    trees.forget(("h", 42))
    assert trees.statistics()["tree_nodes"] == 3


def test_malformed_reports_are_counted_and_left_out() -> None:
    trees = Trees(30)
    good = report(1)
    for column, value in (("parent", 2), ("parent", -2), ("method", 3), ("method", -1)):
        bad = report(1)
        bad.nodes[column][2] = value
        trees.feed(bad)
    trees.feed(report(-1))
    trees.feed(good)
    assert trees.statistics()["trees_refused"] == 5
    assert trees.window(1).total("observed_instructions") == 6


def test_the_newest_trees_outlive_the_hub() -> None:
    hub = Hub(WindowConfig(pane_seconds=1))
    for pane in range(1, 4):
        hub.trees.feed(report(pane, (0, 10**pane, 0)))
    again = pickle.loads(pickle.dumps(hub))
    assert again.trees.window(10).total("observed_instructions") == 1110
    again.trees.feed(report(4))
    assert again.trees.window(2).total("observed_instructions") == 1006
    assert again.trees.statistics()["tree_nodes"] == 12


def test_more_trees_than_a_note_has_room_for() -> None:
    trees = Trees(NOTED_NODES)
    for pane in range(NOTED_NODES // 3 + 5):
        trees.feed(report(pane + NOTED_NODES))
    large = np.repeat(report(0).nodes[1:2], NOTED_NODES)
    large["parent"][1:], large["parent"][0], large["bci"] = 0, -1, np.arange(NOTED_NODES)
    trees.feed(TreeReport("h", 42, 0, 10 * NOTED_NODES, large, NAMES))
    trees.feed(report(10 * NOTED_NODES + 1))
    again = pickle.loads(pickle.dumps(trees))
    assert again.statistics()["tree_nodes"] == 3  # the newest; the one before is too large
    assert again.window(1).total("observed_instructions") == 6


def test_processes_of_a_host_together() -> None:
    trees = Trees(50)
    for host, pid in (("h", 42), ("h", 43), ("other", 42)):
        trees.feed(replace(report(5, (0, 0, pid)), host=host, pid=pid))
    spent = [trees.window(1, which).total("observed_instructions") for which in (None, "h", "other", ("h", 43), "none")]
    assert spent == [127, 85, 42, 43, 0]


def test_the_newest_ten_panes_are_exact() -> None:
    trees = Trees(300)
    for pane in range(100):
        trees.feed(report(pane, (0, 1, 0)))
        for panes in (1, 5, TOGETHER):
            assert trees.window(panes).total("observed_instructions") == min(panes, pane + 1)


async def run(command: Command, *arguments: str) -> Result:
    return await trio.to_thread.run_sync(partial(CliRunner().invoke, command, list(arguments)))


async def test_the_tree_of_a_running_streamer() -> None:
    hub, _ = scene()
    hub.trees.feed(replace(report(100, (0, 30, 70)), names=("[thread] http-7", *NAMES[1:])))
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        shown = await run(cct.command, "live", "--url", url)
        wrong = await run(cct.command, "live", "--url", url, "--window", "7s")
        not_ours = await run(cct.command, "live", "--url", f"{url}/metrics")
        same = await run(diff.command, "live", "live", "--url", url)
        of_host = await run(cct.command, "live", "--url", url, "--host", "h", "--thread-names")
        of_none = await run(cct.command, "live", "--url", url, "--host", "x")
        nursery.cancel_scope.cancel()
    assert shown.output.splitlines() == [
        "instructions: 100",
        "  total    self   invocations",
        " 100.0%    0.0%               all threads",
        " 100.0%   30.0%                 A.a",
        "  70.0%   70.0%                   B.b @4",
    ]
    assert of_host.output.splitlines()[2:] == [
        " 100.0%    0.0%               threads http-#",
        *shown.output.splitlines()[3:],
    ]
    assert (of_none.exit_code, of_none.output) == (1, "streamer: no process of host 'x' (known: h)\n")
    assert wrong.exit_code == 1
    assert wrong.output.startswith("streamer: no window '7s'; there are 10s, 1m, 5m, and stretches")
    assert "HTTP status 404: it is not a streamer" in not_ours.output
    assert same.output.splitlines()[:2] == ["overlap by instructions: 100.00%", "hot-edge coverage (T = 0.1): 100.00%"]

"""From when on the pipeline's cost is held against its budget."""

from __future__ import annotations

from typing import Any

from streamer.pipeline.keeper import Keeper, State
from streamer.pipeline.spending import Spending, begun
from streamer.pipeline.topology import Group


class Running:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    async def wait(self) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


def member(index: int, state: State, **statistics: Any) -> Keeper:
    keeper = Keeper(Group("worker", ("decode",)), 1, index)
    keeper.state, keeper.statistics, keeper.run = state, statistics, Running(100 + index)
    return keeper


def test_the_kernels_of_a_member_that_has_not_told_their_cost_are_no_cost_of_tracing() -> None:
    told = member(0, State.UP, cpu_seconds=1.0)
    silent = member(1, State.UP)
    assert not begun([told, silent])
    spending = Spending()
    silent.statistics = {"cpu_seconds": 4.0, "stages": {"kernels_ready": 0}}
    assert not begun([told, silent])
    silent.statistics = {"cpu_seconds": 4.5, "stages": {"kernels_ready": 1}}
    assert begun([told, silent])
    first = spending.total([told, silent])
    silent.statistics = {"cpu_seconds": 4.75, "stages": {"kernels_ready": 1}}
    assert 0.25 <= spending.total([told, silent]) - first < 1


def test_a_member_that_is_not_there_holds_nothing_up() -> None:
    assert begun([member(0, State.UP, cpu_seconds=1.0), member(1, State.GIVEN_UP), member(2, State.WAITING)])

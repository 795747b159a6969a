"""The result of a run: what the hub noted last, and what became of the target and of the members.

With all that the hub's state is made of, numba included; so `streamer.pipeline.runner` loads it only in the end.
"""

from __future__ import annotations

import os
import resource
import socket
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capture.live.ring import RingError
from capture.live.source import EmulatedSource
from stages.messages import StreamKey
from streamer.config import Settings, budget_cpus
from streamer.hub.hub import Hub
from streamer.hub.ledger import Balance
from streamer.pipeline.hub_stage import State, heartbeat, load
from streamer.pipeline.keeper import State as MemberState
from streamer.pipeline.supervisor import Supervisor
from streamer.target.adopted import AdoptedProcess
from streamer.target.process import TargetProcess
from streamer.views import summary
from streamer.views.summary import Cost


@dataclass
class Outcome:
    hub: Hub
    balances: list[Balance] = field(default_factory=list)
    target_status: int | None = None
    restarts: int = 0
    failed: list[str] = field(default_factory=list)  # members that were given up or had to be killed, and why
    cost: Cost = field(default_factory=Cost)

    @property
    def books_balance(self) -> bool:
        return all(balance.error == 0 for balance in self.balances)


def aux_heads(session: Path) -> dict[StreamKey, int]:
    """How many bytes were written to each ring of a session: the total that the ledger must come to."""
    source = EmulatedSource(session / "pt", socket.gethostname())
    source.config()
    heads: dict[StreamKey, int] = {}
    for key, ring in source.new_rings():
        with suppress(RingError):  # nonsense, or cut: only its accounts are known
            heads[key] = max(heads.get(key, 0), ring.aux_head())
        ring.close()
    return heads


def outcome_of(
    settings: Settings, session: Path, supervisor: Supervisor, target: TargetProcess | AdoptedProcess | None
) -> Outcome:
    """When all members have ended. The last one of `supervisor` is the hub."""
    noted = load(session) or State(Hub(settings.window, fidelity=settings.fidelity))
    hub = noted.hub
    *_, last = supervisor.members.values()
    if last.state is not MemberState.ENDED:
        hub.ledger.restored()
    for status in supervisor.status():
        hub.heartbeat(heartbeat(status))
    statistics = supervisor.statistics()
    outcome = Outcome(hub, noted.streams.finish(hub, aux_heads(session), _told_heads(supervisor)))
    if target is not None and target.started:
        outcome.target_status = target.status
    outcome.restarts = statistics["restarts"]
    outcome.cost = _cost(settings, supervisor, hub.seconds())
    outcome.failed = [
        f"{name} ({why})" if (why := statistics["members"][name]["why"]) else name
        for name in statistics["given_up"] + statistics["killed"]
    ]
    return outcome


def _cost(settings: Settings, supervisor: Supervisor, seconds: float) -> Cost:
    """By group of stages; tasks of this process are part of its own."""
    spent: defaultdict[str, float] = defaultdict(float)
    for keeper in supervisor.members.values():
        if keeper.run is not None and keeper.run.pid:
            spent[keeper.group.name] += float(keeper.statistics.get("cpu_seconds", 0.0))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent["supervisor"] = usage.ru_utime + usage.ru_stime
    budget = settings.capture.cpu_budget
    cpus = None if budget is None else budget_cpus(budget, len(os.sched_getaffinity(0)))
    return Cost(dict(spent), seconds, cpus)


def _told_heads(supervisor: Supervisor) -> dict[StreamKey, int]:
    """How far each stream has come, by its source: where no ring tells, a recording or hardware."""
    sources = [k.statistics.get("stages", {}) for k in supervisor.members.values() if k.level == 0]
    return {StreamKey(*key): head for said in sources for *key, head in said.get("heads", [])}


def report(outcome: Outcome, color: bool) -> str:
    return summary.render(outcome.hub, outcome.balances, color=color, cost=outcome.cost)


def figures(outcome: Outcome) -> dict[str, Any]:
    """The summary for programs, JSON."""
    return summary.figures(outcome.hub, outcome.balances) | {
        "target_status": outcome.target_status,
        "cpu_seconds": outcome.cost.spent,
        "failed": outcome.failed,
    }

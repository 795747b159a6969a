"""The pipeline's cost: CPU seconds of its members and of the supervisor's process."""

from __future__ import annotations

import resource
from collections.abc import Iterable

from streamer.pipeline.keeper import Keeper


def begun(members: Iterable[Keeper]) -> bool:
    """Whether the work has begun: each member that is up has its kernels, and has told what they cost. That is spent
    once, at any share of tracing; heard of later, it would be taken for the cost of tracing."""
    return all(
        (member.statistics or not member.up) and member.statistics.get("stages", {}).get("kernels_ready", 1)
        for member in members
    )


class Spending:
    """Never goes back: the spending of a member that died stays counted, as far as it had told it. Held by member, as
    long as the supervisor lives."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._before = 0.0  # by incarnations that have ended

    def total(self, members: Iterable[Keeper]) -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        for member in members:
            if member.run is None or not member.run.pid:  # tasks of this process
                continue
            said = float(member.statistics.get("cpu_seconds", 0.0))
            last = self._last.get(member.name, 0.0)
            if said < last:
                self._before += last
            self._last[member.name] = said
        return self._before + sum(self._last.values()) + usage.ru_utime + usage.ru_stime

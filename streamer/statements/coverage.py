"""Coverage of a recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.statements.coverage import concluded
from stages.statements.methods import Method
from stages.statements.statements import Executed
from streamer.statements.lcov import Lined
from streamer.statements.text import Sums


@dataclass(frozen=True)
class Covered:
    """A method of which something ran."""

    method: Method
    name: str
    ran: NDArray[np.bool_]  # (nodes,) seen, or concluded
    seen: int
    times: NDArray[np.int64]  # (nodes,) at least, 0: did not run

    @classmethod
    def of(cls, executed: Executed) -> Covered:
        seen = (executed.times > 0) | executed.compiled
        ran = concluded(executed.method.cfg, seen)
        times = np.maximum(executed.times + executed.compiled, ran)
        return cls(executed.method, executed.method.name, ran, int(seen.sum()), times)

    def sums(self) -> Sums:
        lines = self.line_times()
        return Sums(
            self.name, len(self.ran), int(self.ran.sum()), self.seen, len(lines), sum(map(bool, lines.values()))
        )

    def lined(self) -> Lined | None:
        """None: its lines are not known."""
        lines = self.line_times()
        label = self.name + self.method.selector[2]
        return Lined(self.method.selector[0], label, int(self.times[0]), lines) if lines else None

    def line_times(self) -> dict[int, int]:
        """By source line: how often a bytecode of it ran, at least."""
        numbers, line = self.method.source_lines()
        times = np.zeros(len(numbers), np.int64)
        if len(numbers):
            np.maximum.at(times, line, self.times)
        return dict(zip(numbers.tolist(), times.tolist(), strict=True))

"""Coverage of a recording, also as a file of lcov (geninfo(1), "TRACE FILE FORMAT")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.statements.coverage import concluded
from stages.statements.methods import Method
from stages.statements.statements import Executed
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

    def line_times(self) -> dict[int, int]:
        """By source line: how often a bytecode of it ran, at least."""
        rows = self.method.lines
        if not len(rows):
            return {}
        row = np.searchsorted(rows["bci"].astype(np.int64), self.method.cfg.nodes.bci, "right") - 1
        found = dict[int, int]()
        for line, times in zip(rows["line"][np.maximum(row, 0)].tolist(), self.times.tolist(), strict=True):
            found[line] = max(found.get(line, 0), times)
        return found


def lcov(covered: Iterable[Covered]) -> Iterator[str]:
    """Lines of a trace file. Methods without line numbers are left out. A class's source is the file that its outermost
    class gives its name to."""
    files = defaultdict[str, list[Covered]](list)
    for c in covered:
        if len(c.method.lines):
            files[c.method.selector[0].split("$")[0] + ".java"].append(c)
    yield "TN:"
    for file, methods in sorted(files.items()):
        yield f"SF:{file}"
        lines = dict[int, int]()
        for c in methods:
            own = c.line_times()
            first, label = min(own), c.name + c.method.selector[2]
            yield f"FN:{first},{label}"
            yield f"FNDA:{int(c.times[0])},{label}"
            for line, times in own.items():
                lines[line] = max(lines.get(line, 0), times)
        yield f"FNF:{len(methods)}"
        yield f"FNH:{sum(int(c.times[0]) > 0 for c in methods)}"
        yield from (f"DA:{line},{times}" for line, times in sorted(lines.items()))
        yield f"LF:{len(lines)}"
        yield f"LH:{sum(n > 0 for n in lines.values())}"
        yield "end_of_record"

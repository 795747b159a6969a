"""Coverage as text, and as a file of lcov (geninfo(1), "TRACE FILE FORMAT")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.statements.coverage import concluded
from stages.statements.methods import Method
from stages.statements.statements import Executed

ROW = "{:>9} {:>9} {:>7} {:>7}  {}"


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


def text(covered: Iterable[Covered], least: float = 1.0) -> Iterator[str]:
    """A line a method, those with the most bytecodes that did not run first, and the sum. Methods of which more than
    the share `least` ran are left out."""
    methods = list(covered)
    rest = sorted(methods, key=lambda c: (int(c.ran.sum()) - len(c.ran), c.name))
    yield ROW.format("bytecodes", "ran", "share", "lines", "method")
    for c in rest:
        if c.ran.mean() <= least:
            lines = c.line_times()
            hit = sum(n > 0 for n in lines.values())
            yield ROW.format(
                len(c.ran), int(c.ran.sum()), f"{c.ran.mean():.1%}", f"{hit}/{len(lines)}" if lines else "?", c.name
            )
    total, ran, seen = (sum(n) for n in zip(*((len(c.ran), int(c.ran.sum()), c.seen) for c in methods), strict=True))
    yield (
        f"{len(methods)} methods ran; of their {total:,} bytecodes {ran:,} ({ran / total:.1%}), "
        f"{seen:,} of them seen, the others concluded"
    )


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

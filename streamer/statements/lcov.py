"""Coverage by source line as a file of lcov (geninfo(1), "TRACE FILE FORMAT")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streamer.hub.text import plain


class Lined(NamedTuple):
    """A method of which something ran, and whose lines are known."""

    holder: str  # its class (internal name)
    label: str
    entered: int  # times, at least
    lines: dict[int, int]  # by number: times, at least


def lcov(methods: Iterable[Lined]) -> Iterator[str]:
    """Lines of a trace file. A class's source is the file that its outermost class gives its name to."""
    files = defaultdict[str, list[Lined]](list)
    for m in methods:
        files[m.holder.split("$")[0] + ".java"].append(m)
    yield "TN:"
    for file, those in sorted(files.items()):
        yield f"SF:{plain(file)}"
        lines = dict[int, int]()
        for m in sorted(those, key=lambda m: m[:2]):
            label = plain(m.label)
            yield f"FN:{min(m.lines)},{label}"
            yield f"FNDA:{m.entered},{label}"
            for line, times in m.lines.items():
                lines[line] = max(lines.get(line, 0), times)
        yield f"FNF:{len(those)}"
        yield f"FNH:{sum(m.entered > 0 for m in those)}"
        yield from (f"DA:{line},{times}" for line, times in sorted(lines.items()))
        yield f"LF:{len(lines)}"
        yield f"LH:{sum(n > 0 for n in lines.values())}"
        yield "end_of_record"

"""Coverage and path frequencies as text: of a recording, and of a running streamer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

ROW = "{:>9} {:>9} {:>7} {:>7}  {}"


class Sums(NamedTuple):
    """Of a method: its bytecodes, those that ran, and those of them that were seen; its source lines (0: not known),
    and those of which something ran."""

    name: str
    bytecodes: int
    ran: int
    seen: int
    lines: int
    hit: int


class Taken(NamedTuple):
    """A path that the interpreter took so many times."""

    times: int
    number: int
    paths: int  # of its method
    name: str
    way: str  # bytecode indices


class Most(NamedTuple):
    """The paths that were taken most often."""

    listed: list[Taken]
    paths: int  # all that are known
    methods: int
    times: int  # all together
    other: int  # of these times, those of paths that are not known one by one


def rest_first(methods: Iterable[Sums], most: float = 1.0) -> list[Sums]:
    """Those with the most bytecodes that did not run first; without methods of which more than the share `most` ran."""
    return sorted((m for m in methods if m.ran <= most * m.bytecodes), key=lambda m: (m.ran - m.bytecodes, m.name))


def whole(methods: Sequence[Sums]) -> dict[str, int]:
    """How many methods there are, and the sums of all."""
    return {"methods": len(methods), **{name: sum(getattr(m, name) for m in methods) for name in Sums._fields[1:]}}


def coverage(listed: Iterable[Sums], total: Mapping[str, int]) -> Iterator[str]:
    """A line a method, and the sum, `whole`."""
    yield ROW.format("bytecodes", "ran", "share", "lines", "method")
    for m in listed:
        lines = f"{m.hit}/{m.lines}" if m.lines else "?"
        yield ROW.format(m.bytecodes, m.ran, f"{m.ran / max(1, m.bytecodes):.1%}", lines, m.name)
    bytecodes, ran = total["bytecodes"], total["ran"]
    yield (
        f"{total['methods']} methods ran; of their {bytecodes:,} bytecodes {ran:,} ({ran / max(1, bytecodes):.1%}), "
        f"{total['seen']:,} of them seen, the others concluded"
    )


def paths(most: Most) -> Iterator[str]:
    """A line a path, with the bytecode indices on it where control could go elsewhere; and the sum."""
    yield f"{'times':>12} {'share':>7} {'path':>12}  method and bytecode indices"
    for times, number, of, name, way in most.listed:
        yield f"{times:>12,} {times / max(1, most.times):>7.1%} {f'{number} of {of}':>12}  {name} {way}"
    yield f"{most.paths:,} paths of {most.methods:,} methods, taken {most.times:,} times by the interpreter"
    if most.other:
        yield f"{most.other:,} of these times along paths that are not listed: each pane tells those taken most often"

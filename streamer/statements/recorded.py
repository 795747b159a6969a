"""What commands take from a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from stages.messages import Bytecodes, Paths, StreamOpen
from stages.statements.statements import Executed
from streamer.cli import Failure
from streamer.statements.listing import Line, Listing
from streamer.statements.source import Recording


def executed(path: Path, include: tuple[str, ...], say: Callable[[str], None]) -> list[Executed]:
    """The methods that ran, of those that a pattern names. Raises Failure if there is none."""
    every = Recording(path, say).statements().executed()
    found = [e for e in every if not include or any(fnmatchcase(e.method.name, pattern) for pattern in include)]
    if not found:
        patterns = " or ".join(include)
        raise Failure(f"{path}: no method like {patterns} ran" if every else f"{path}: no bytecode is known of it")
    return found


def lines_of(path: Path, tids: frozenset[int], say: Callable[[str], None]) -> Iterator[Line]:
    """The bytecodes of these threads, all if there are none, in their order. Raises Failure."""
    hz, listings = 1e9, dict[tuple[str, int], Listing]()
    for message in Recording(path, say).messages():
        if isinstance(message, StreamOpen):
            hz = message.clock.hz
        elif isinstance(message, Bytecodes | Paths):
            key = message.host, message.pid
            if key not in listings:
                listings[key] = Listing(hz, tids)
            yield from listings[key].take(message)

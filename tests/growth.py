"""How large everything is that objects hold: to see that nothing of it grows."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

OURS = ("capture", "jvm", "stages", "streamer")


def sizes(*roots: object) -> Counter[str]:
    """Items of every container that can be reached, by the way to it (all items of a container are one); of arrays
    their KiB."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    stack: list[tuple[str, object]] = [(type(root).__name__, root) for root in roots]
    while stack:
        path, thing = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            found[path] += thing.nbytes >> 10
            continue
        if isinstance(thing, dict | list | set | deque | bytes | bytearray):
            found[path] += len(thing)
        stack += ((path + name, inner) for name, inner in _inside(thing))
    return found


def _inside(thing: Any) -> Iterator[tuple[str, object]]:
    match thing:
        case dict():
            yield from (("{}", value) for value in thing.values())
            yield from (("{}k", key) for key in thing)
        case list() | tuple() | set() | deque():
            yield from (("[]", item) for item in thing)
        case _ if type(thing).__module__.split(".")[0] in OURS:
            names = [f.name for f in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
            names += list(getattr(thing, "__dict__", ()))
            names += [n for kind in type(thing).__mro__ for n in getattr(kind, "__slots__", ()) if n != "__weakref__"]
            yield from ((f".{name}", getattr(thing, name, None)) for name in dict.fromkeys(names))


def grown(before: Counter[str], after: Counter[str], slack: int) -> dict[str, tuple[int, int]]:
    """The sizes that have grown by more than `slack`, and by more than a tenth."""
    return {
        path: (before[path], size)
        for path, size in sorted(after.items())
        if size > before[path] + slack and size > 1.1 * before[path]
    }

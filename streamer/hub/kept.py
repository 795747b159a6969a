"""Values of the newest panes, by process: trees, or what ran.

Old panes are put together, ten to one, so that a long window is a sum of few values; its far end is exact to ten panes.
All processes together keep so much, and no more: beyond that the oldest panes go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
ProcessKey = tuple[str, int]
Which = ProcessKey | str | None
"""One process; those of a host; all."""
TOGETHER = 10
"""Panes."""


class KeptPanes(Generic[T]):
    """A pane goes when it has left the longest window, or there is no room; all of a process with `forget`."""

    def __init__(
        self, most_panes: int, most: int, size: Callable[[T], int], merging: Callable[[T, T], Generator[None, None, T]]
    ) -> None:
        """`most_panes`: the length of the longest window; `most`: the sum of all sizes. `merging`: of two values, in
        steps; neither is changed. Both functions are of a module, for what is kept is pickled."""
        self.most_panes, self._most, self._size_of, self._merging = most_panes, most, size, merging
        self._kept: dict[ProcessKey, OrderedDict[int, T]] = {}  # by pane; of those put together, the last
        self.size = 0
        self.dropped = 0  # panes that there was no room for

    def add(self, key: ProcessKey, pane: int, value: T) -> Generator[None]:
        """In steps, between which everything here may be used."""
        panes = self._kept.setdefault(key, OrderedDict())
        yield from self._put(key, pane, value)
        if self._kept.get(key) is not panes:
            return  # forgotten meanwhile
        newest = max(panes)
        for old in [n for n in panes if n <= newest - self.most_panes]:
            self.size -= self._size_of(panes.pop(old))
        for old in [n for n in panes if n != _last_of_ten(n) <= newest - TOGETHER]:
            if self._kept.get(key) is panes:
                yield from self._put(key, _last_of_ten(old), panes[old], instead=old)
        while self.size > self._most:
            key = max(self._kept, key=lambda k: sum(map(self._size_of, self._kept[k].values())))
            self.size -= self._size_of(self._kept[key].pop(min(self._kept[key])))
            self.dropped += 1
            if not self._kept[key]:
                del self._kept[key]

    def of(self, key: ProcessKey) -> Mapping[int, T]:
        return self._kept.get(key, {})

    def parts(self, panes: int, process: Which = None, behind: int = 0) -> list[T]:
        """Those of the newest `panes` panes, the newest `behind` left out. No later pane changes them, so another
        thread may put them together."""
        chosen: list[T] = []
        for key, kept in self._kept.items():
            if among(process, key) and kept:
                newest = max(kept) - behind
                chosen += (value for pane, value in kept.items() if newest - panes < pane <= newest)
        return chosen

    def stretches(self, process: ProcessKey) -> list[tuple[list[int], T]]:
        """All that is kept of it, and of which panes each value is."""
        panes = self.of(process)
        old = max(panes, default=0) - TOGETHER
        before = {last: range(last - TOGETHER + 1, last) for last in panes if last == _last_of_ten(last) <= old}
        return [([*before.get(pane, ()), pane], panes[pane]) for pane in sorted(panes)]

    def age(self, process: Which = None) -> int:
        """Panes from the first that is kept to the newest, of the oldest process."""
        kept = [panes for key, panes in self._kept.items() if among(process, key)]
        return max((max(panes) - min(panes) + 1 for panes in kept), default=0)

    def forget(self, process: ProcessKey) -> None:
        """Of a process that the hub has forgotten."""
        self.size -= sum(map(self._size_of, self._kept.pop(process, {}).values()))

    def newest(self, most: int) -> KeptPanes[T]:
        """Another with the newest panes, of each process as many as its part of `most` lets."""
        found = KeptPanes(self.most_panes, self._most, self._size_of, self._merging)
        found.dropped = self.dropped
        for key, panes in self._kept.items():
            room = most // len(self._kept)
            for pane in sorted(panes, reverse=True):
                room -= self._size_of(panes[pane])
                if room < 0:
                    break
                found._kept.setdefault(key, OrderedDict())[pane] = panes[pane]
                found.size += self._size_of(panes[pane])
        return found

    def _put(self, key: ProcessKey, pane: int, value: T, instead: int = -1) -> Generator[None]:
        """Adds `value` to a pane, in whose place it may have been of pane `instead`."""
        panes = self._kept[key]
        if pane in panes:
            value = yield from self._merging(panes[pane], value)
        if self._kept.get(key) is not panes:
            return
        for old in pane, instead:
            if old in panes:
                self.size -= self._size_of(panes.pop(old))
        panes[pane] = value
        self.size += self._size_of(value)


def among(which: Which, key: ProcessKey) -> bool:
    return which is None or which in (key, key[0])


def _last_of_ten(pane: int) -> int:
    return pane // TOGETHER * TOGETHER + TOGETHER - 1

"""How often each bytecode and each method ran, of a recorded truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.truth import Event, Method, Thread, methods, threads


@dataclass(frozen=True)
class Counts:
    methods: dict[int, Method]
    method: NDArray[np.int64]  # (n,) by row, ascending with bci: a bytecode that ran
    bci: NDArray[np.int64]
    runs: NDArray[np.int64]
    invocations: dict[int, int]  # by method, also native ones
    cut: bool  # the limit of a log was reached

    def bytecodes(self) -> dict[int, int]:
        """Executed bytecodes by method."""
        numbers, first = np.unique(self.method, return_index=True)
        sums = np.add.reduceat(self.runs, first).tolist() if len(first) else []
        return dict(zip(numbers.tolist(), sums, strict=True))

    def number(self, method: Method) -> int:
        """Raises KeyError if it never ran. Classes of one name in two loaders are not told apart: the first."""
        for number, other in self.methods.items():
            if other == method:
                return number
        raise KeyError(method)

    def of(self, method: int) -> dict[int, int]:
        """Runs by bci."""
        mine = self.method == method
        return dict(zip(self.bci[mine].tolist(), self.runs[mine].tolist(), strict=True))


def count(directory: Path, names: list[str] | None = None) -> Counts:
    """Of all threads, or those of these names."""
    chosen = [thread for thread in threads(directory) if names is None or thread.name in names]
    keys, runs, entries, cut = np.empty(0, np.int64), np.empty(0, np.int64), dict[int, int](), False
    for thread in chosen:
        keys, runs, cut = _add(thread, keys, runs, entries, cut)
    return Counts(methods(directory), keys >> 16, keys & 0xFFFF, runs, entries, cut)


def _add(
    thread: Thread, keys: NDArray[np.int64], runs: NDArray[np.int64], entries: dict[int, int], cut: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    for block in thread.blocks():
        both = np.concatenate((keys, block.method.astype(np.int64) << 16 | block.bci))
        weights = np.concatenate((runs, np.ones(len(block.bci), np.int64)))
        keys, inverse = np.unique(both, return_inverse=True)
        runs = np.zeros(len(keys), np.int64)
        np.add.at(runs, inverse, weights)
        entered, times = np.unique(block.of[block.event == Event.ENTRY], return_counts=True)
        for method, number in zip(entered.tolist(), times.tolist(), strict=True):
            entries[method] = entries.get(method, 0) + number
        cut |= bool((block.event == Event.CUT).any())
    return keys, runs, cut

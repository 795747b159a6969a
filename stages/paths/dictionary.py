"""The state of a reader of `Paths`: the dictionaries of a process, as far as they have grown.

Arrays are appended to, so a number means the same until the generation ends. `take` says when it has: a reader drops
then its findings about numbers, and only those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.messages import Paths
from stages.messages.paths import (
    BLOCK_DTYPE,
    FIRST_PATH,
    FRAME_DTYPE,
    LINK_DTYPE,
    PATH_DTYPE,
    RANGE_DTYPE,
    STEP_DTYPE,
)


class DictionaryError(ValueError):
    """A message does not join those before: some went missing."""


class Column:
    """A growing array. Rows that were read of it stay as they were."""

    def __init__(self, dtype: np.dtype[np.void] | type[np.generic]) -> None:
        self._rows: NDArray[Any] = np.zeros(1024, dtype)
        self.size = 0

    def append(self, rows: NDArray[Any]) -> None:
        end = self.size + len(rows)
        if end > len(self._rows):
            more = np.zeros(max(2 * len(self._rows), end), self._rows.dtype)
            more[: self.size] = self._rows[: self.size]
            self._rows = more
        self._rows[self.size : end] = rows
        self.size = end

    @property
    def rows(self) -> NDArray[Any]:
        """(size,); numbers are positions in it."""
        return self._rows[: self.size]


class Dictionary:
    """Of one process. Everything in it is dropped when its generation ends."""

    def __init__(self) -> None:
        self.generation = -1
        self._begin()

    def _begin(self) -> None:
        self.blocks, self.ranges, self.steps = Column(BLOCK_DTYPE), Column(RANGE_DTYPE), Column(STEP_DTYPE)
        self.frames, self.paths, self.links = Column(FRAME_DTYPE), Column(PATH_DTYPE), Column(LINK_DTYPE)
        self.lengths = Column(np.uint8)
        self.cycles = Column(np.uint64)
        self.methods: dict[int, str] = {}
        self.paths.append(np.zeros(FIRST_PATH, PATH_DTYPE))  # the marks: nothing is on them

    def take(self, message: Paths) -> bool:
        """Take in its dictionaries; whether a new generation begins with it. Raises DictionaryError."""
        begins = message.generation != self.generation
        if begins:
            self.generation = message.generation
            self._begin()
        if (message.first_block, message.first_path) != (self.blocks.size, self.paths.size):
            self.generation = -1
            raise DictionaryError(
                f"blocks from {message.first_block} and paths from {message.first_path} on, "
                f"but {self.blocks.size} and {self.paths.size} are known"
            )
        for name in ("blocks", "ranges", "lengths", "cycles", "steps", "frames", "paths", "links"):
            getattr(self, name).append(getattr(message, name))
        self.methods.update(message.methods)
        return begins

    def addresses(self, blocks: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The instructions of (n,) blocks, one block's after the other's: (m,) addresses, (n + 1,) where each block's
        begin."""
        rows = self.blocks.rows[blocks]
        first = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows["instructions"], dtype=np.int64)))
        ranges, _ = spans(rows["range"].astype(np.int64), rows["ranges"].astype(np.int64))
        lengths, _ = spans(rows["length"], rows["instructions"].astype(np.int64))
        return instructions_of(self.ranges.rows[ranges], self.lengths.rows[lengths]), first


def instructions_of(ranges: NDArray[np.void], lengths: NDArray[np.generic]) -> NDArray[np.uint64]:
    """(m,) addresses of the instructions of (n,) RANGE_DTYPE, one range's after the other's; `lengths` are theirs."""
    full = ranges[ranges["instructions"] > 0]
    length = lengths.astype(np.uint64)
    before = np.cumsum(length, dtype=np.uint64) - length  # bytes since the first instruction of all
    begin = np.cumsum(full["instructions"]) - full["instructions"]
    return np.asarray(before + np.repeat(full["lo"] - before[begin], full["instructions"]), np.uint64)


def spans(at: NDArray[np.int64], count: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Runs [at, at + count), one after the other: (m,) positions, (m,) which run each is of."""
    total = int(count.sum())
    owner = np.repeat(np.arange(len(at)), count)
    return np.repeat(at - (np.cumsum(count) - count), count) + np.arange(total), owner

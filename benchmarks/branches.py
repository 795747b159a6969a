"""How many branches a `Paths` holds: blocks, each of which ends where a decoder needs a packet."""

from __future__ import annotations

import numpy as np

from stages.messages import Paths
from stages.messages.paths import FIRST_PATH, PathKind


class Branches:
    """Of one process."""

    def __init__(self) -> None:
        self._blocks = np.zeros(0, np.int64)  # by path
        self._generation = -1

    def of(self, message: Paths) -> int:
        if message.generation != self._generation:
            self._generation, self._blocks = message.generation, np.zeros(FIRST_PATH, np.int64)
        first, made = len(self._blocks), message.paths["kind"] == PathKind.OF_PATHS
        self._blocks = np.append(self._blocks, np.where(made, 0, message.paths["links"]))
        number = message.links["number"]
        begin = np.cumsum(message.paths["links"]) - message.paths["links"]
        for k in np.flatnonzero(made & (message.paths["links"] > 0)).tolist():
            parts = number[begin[k] : begin[k] + message.paths["links"][k]]
            self._blocks[first + k] = self._blocks[parts].sum()
        path = message.order >= 0
        at = np.maximum.accumulate(np.where(path, np.arange(len(path)), 0))
        times = np.where(path, 1, -message.order.astype(np.int64))
        return int((times * self._blocks[message.order[at]]).sum())

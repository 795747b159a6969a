"""Fillings of holes put in their places: `Paths` as if no trace had been lost, for a reader that reads bytecodes.

A filling becomes a path of its own, in a row of its own with the provenance RECOVERED, before the row that goes on
behind the hole; both continue the row before. Numbers of paths behind it move up. Of a filling from behind the hole,
blocks that ran for the first time behind it are not known yet: they are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stages.messages import Paths, Recovered
from stages.messages.columns import joined
from stages.messages.paths import (
    BREAK_DTYPE,
    FIRST_PATH,
    LINK_DTYPE,
    PATH_DTYPE,
    STOP_DTYPE,
    TAKEN_DTYPE,
    PathKind,
    Provenance,
)
from stages.paths.counts import WAYS
from stages.paths.dictionary import spans


class Splice:
    """Of one process."""

    def __init__(self, told: list[Recovered]) -> None:
        self._fillings: dict[tuple[int, int, int], tuple[np.void, NDArray[np.int32]]] = {}
        for message in told:
            for f in message.fillings:
                if f["provenance"] == Provenance.RECOVERED:
                    steps = message.steps[f["step"] : f["step_end"]]
                    self._fillings[message.generation, int(f["tid"]), int(f["offset"])] = f, steps
        self._generation = -1
        self._begin()

    def _begin(self) -> None:
        self._bounds: list[int] = []  # numbers, in the sender's numbering, before which paths were put
        self._above = [0]  # how many before it, and before each of those
        self._told_links = self._put_links = 0

    def _numbers(self, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        """As they are now."""
        above = np.array(self._above, np.int64)[np.searchsorted(self._bounds, numbers, "right")]
        return np.where(numbers >= FIRST_PATH, numbers + above, numbers).astype(np.int32)

    def __call__(self, message: Paths) -> Paths:
        if message.generation != self._generation:
            self._generation = message.generation
            self._begin()
        first_path = message.first_path + self._above[bisect_right(self._bounds, message.first_path)]
        paths, links = message.paths.copy(), message.links.copy()
        of_paths = paths[paths["kind"] == PathKind.OF_PATHS]
        those, _ = spans(of_paths["link"] - self._told_links, of_paths["links"].astype(np.int64))
        links["number"][those] = self._numbers(links["number"][those])
        paths["link"] += self._put_links
        own, made = self._numbers(message.order), _Rows()
        new_paths, new_links = list[NDArray[np.void]](), list[NDArray[np.void]]()
        next_link = self._told_links + len(links) + self._put_links
        for old in message.rows:
            row = old.reshape(1).copy()
            found = self._fillings.get((message.generation, int(old["tid"]), int(old["offset"])))
            if found is not None and not old["continues"]:
                filling, steps = found
                steps = steps[steps // WAYS < message.first_block + len(message.blocks)]
                link, path = np.zeros(len(steps), LINK_DTYPE), np.zeros(1, PATH_DTYPE)
                link["number"], link["way"] = steps // WAYS, steps % WAYS
                path["link"], path["links"], path["kind"] = next_link, len(steps), PathKind.OF_BLOCKS
                number = first_path + len(paths) + len(new_paths)
                new_paths.append(path)
                new_links.append(link)
                next_link += len(steps)
                times = filling["tsc"], filling["tsc_end"]
                there = row.copy()
                there["end"], (there["tsc"], there["tsc_end"]) = row["offset"], times
                there["provenance"], there["continues"], there["goes_on"] = Provenance.RECOVERED, 1, 0
                stop = np.zeros(2, STOP_DTYPE)
                stop["order"], stop["tsc"] = (0, 1), times
                made.add(there, np.array([number], np.int32), stop, np.zeros(0, BREAK_DTYPE), 0)
                row["continues"] = 1
            part = own[old["order"] : old["order_end"]]
            stops = message.stops[old["stop"] : old["stop_end"]].copy()
            breaks = message.breaks[old["broken"] : old["broken_end"]].copy()
            made.add(row, part, stops, breaks, int(old["order"]))
        if new_paths:
            self._bounds.append(message.first_path + len(paths))
            self._above.append(self._above[-1] + len(new_paths))
        self._told_links += len(links)
        self._put_links += sum(map(len, new_links))
        return replace(
            message, first_path=first_path, holes=(), rows=joined(made.rows), order=np.concatenate(made.order),
            stops=joined(made.stops), breaks=joined(made.breaks), paths=joined([paths, *new_paths]),
            links=joined([links, *new_links]),
        )  # fmt: skip


class _Rows:
    """The rows of a message, one behind the other."""

    def __init__(self) -> None:
        self.rows: list[NDArray[np.void]] = [np.zeros(0, TAKEN_DTYPE)]
        self.order: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
        self.stops: list[NDArray[np.void]] = [np.zeros(0, STOP_DTYPE)]
        self.breaks: list[NDArray[np.void]] = [np.zeros(0, BREAK_DTYPE)]
        self._sizes = [0, 0, 0]

    def add(
        self, row: NDArray[np.void], order: NDArray[np.int32], stops: NDArray[np.void], breaks: NDArray[np.void],
        begin: int,
    ) -> None:  # fmt: skip
        """`begin`: the position of `order` from which on those in the others are counted."""
        move = self._sizes[0] - begin
        stops["order"] += move
        breaks["order"] += move
        breaks["confirmed"] += move
        for k, (name, part) in enumerate((("order", order), ("stop", stops), ("broken", breaks))):
            row[name], row[f"{name}_end"] = self._sizes[k], self._sizes[k] + len(part)
            self._sizes[k] += len(part)
        self.rows.append(row)
        self.order.append(order)
        self.stops.append(stops)
        self.breaks.append(breaks)

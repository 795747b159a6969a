"""All that was executed of a process, by the pane in which it was: the reader behind `reconstruct`.

A bytecode that the interpreter ran belongs to the pane in which the event before it happened, and a path to that in
which it ended. For a recording all is one pane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.messages import Bytecodes, Paths, ThreadEnd
from stages.paths.counts import Rows
from stages.paths.dictionary import Dictionary
from stages.paths.groups import grouped
from stages.statements.compiled import Compiled
from stages.statements.interpreted import Counted, Interpreted, grown, told
from stages.statements.methods import Graphs, Known, Method

ALL_TIME = 1 << 62
"""Ticks of a pane: counts are of the whole run."""


@dataclass(frozen=True)
class Executed:
    """Of one method."""

    method: Method
    times: NDArray[np.int64]  # (nodes,) by the interpreter
    compiled: NDArray[np.bool_]  # (nodes,) compiled code was seen there
    paths: NDArray[np.int64]  # (k, 2) number of an acyclic path, how often the interpreter took it; ascending


class Pane(Counted):
    """Counts of one pane."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled = np.zeros(0, np.bool_)  # by node

    def see(self, nodes: NDArray[np.int64], known: int) -> None:
        """Compiled code ran there. `known` nodes in all."""
        self.compiled = grown(self.compiled, known)
        self.compiled[nodes] = True

    def columns(self, known: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(known,) each: how often the interpreter ran a node, and whether compiled code was seen there."""
        times, ran = np.zeros(known, np.int64), np.zeros(known, np.bool_)
        times[: len(self.times)], ran[: len(self.compiled)] = self.times[:known], self.compiled[:known]
        return times, ran


class Process:
    """One process. Panes go when they are taken, frames of a thread with `interpreted.forget`; methods stay as long as
    this does."""

    def __init__(self, graphs: Graphs, dictionary: Dictionary | None = None, largest: int | None = None) -> None:
        """`dictionary`: of one that this goes on from. `largest`: of `Known`."""
        self._graphs, self.known = graphs, Known(largest)
        self.interpreted, self.compiled = Interpreted(self.known), Compiled(self.known, dictionary)
        self.panes: dict[int, Pane] = {}
        self._explained: Bytecodes | None = None

    def take(self, message: Bytecodes | Paths, ticks: int = ALL_TIME) -> None:
        """Raises DictionaryError."""
        for _ in self.steps(message, ticks):
            pass

    def steps(self, message: Bytecodes | Paths, ticks: int) -> Iterator[None]:
        """`take` in steps. `ticks` of a pane."""
        if isinstance(message, Bytecodes):
            self._explained = message
            return
        said, self._explained = self._explained, None
        self.compiled.begin(message)
        if not len(message.stops):
            return
        group, rows = grouped(message, ticks)
        if said is not None and said.explains(message):
            numbers = np.concatenate((said.methods["method"], said.events["method"]))
            yield from self.known.meeting(numbers, self._graphs, [m for m, _ in said.names])
            yield from self._interpret(said, message, group["pane"], rows)
        for found in self.compiled.ran(message, rows, self._graphs):
            if found is None:
                yield
                continue
            pane = group["pane"][found[0]]
            for number in np.unique(pane).tolist():
                self._pane(number).see(found[1][pane == number], self.known.nodes)

    def skip(self, message: Paths) -> None:
        """Takes in its dictionaries alone. Raises DictionaryError."""
        self._explained = None
        self.compiled.begin(message)

    def executed(self, number: int = 0) -> list[Executed]:
        """Methods of which anything ran in a pane, in the order in which they were met."""
        pane = self.panes.get(number, Pane())
        paths = pane.paths()
        bounds = np.searchsorted(paths[:, 0], np.arange(len(self.known.methods) + 1))
        times, ran = pane.columns(self.known.nodes)
        found = [
            Executed(m, times[m.nodes], ran[m.nodes], paths[a:b, 1:])
            for m, a, b in zip(self.known.methods, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]
        return [e for e in found if e.times.any() or e.compiled.any()]

    def _pane(self, number: int) -> Pane:
        return self.panes.setdefault(number, Pane())

    def _interpret(self, said: Bytecodes, message: Paths, panes: NDArray[np.int64], rows: Rows) -> Iterator[None]:
        """Pane by pane, which is the order of each thread's events."""
        events, bcis = told(said)
        tid = message.rows["tid"]
        pane = panes[rows.group]
        number = np.unique(pane).tolist()
        if len(number) == 1:
            self.interpreted.take(events, bcis, tid, self._pane(number[0]))
            yield
            return
        begins = rows.row.astype(np.int64) << 40 | message.stops["order"].astype(np.int64)[rows.stop]
        in_order = np.argsort(begins, kind="stable")
        at = events["row"].astype(np.int64) << 40 | events["order"]
        part = np.searchsorted(begins[in_order], at, "right") - 1
        of = pane[in_order][np.maximum(part, 0)]
        of_bci = np.repeat(of, events["bytecodes"])
        for n in number:
            self.interpreted.take(events[of == n], bcis[of_bci == n], tid, self._pane(n))
            yield


class Statements:
    """Reads `Bytecodes` and the `Paths` behind it. What it finds grows with the code that runs, and stays to the
    end."""

    def __init__(self, graphs: Callable[[str, int], Graphs]) -> None:
        """`graphs`: of a process, by host and pid."""
        self._graphs = graphs
        self.processes: dict[tuple[str, int], Process] = {}

    def take(self, message: object) -> None:
        """Raises DictionaryError where a message is missing."""
        match message:
            case Bytecodes() | Paths():
                key = message.host, message.pid
                if key not in self.processes:
                    self.processes[key] = Process(self._graphs(*key))
                self.processes[key].take(message)
            case ThreadEnd():
                if process := self.processes.get(message.thread[:2]):
                    process.interpreted.forget(message.thread.tid)
            case _:
                pass

    def executed(self) -> list[Executed]:
        return [e for process in self.processes.values() for e in process.executed()]

"""All that was executed of the processes of a recording: the reader behind `reconstruct`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.messages import Bytecodes, Paths, ThreadEnd
from stages.statements.compiled import Compiled
from stages.statements.interpreted import Interpreted
from stages.statements.methods import Graphs, Known, Method


@dataclass(frozen=True)
class Executed:
    """Of one method."""

    method: Method
    times: NDArray[np.int64]  # (nodes,) by the interpreter
    compiled: NDArray[np.bool_]  # (nodes,) compiled code was seen there
    paths: NDArray[np.int64]  # (k, 2) number of an acyclic path, how often the interpreter took it; ascending


class Process:
    def __init__(self, graphs: Graphs) -> None:
        self._graphs, self.known = graphs, Known()
        self.interpreted, self.compiled = Interpreted(self.known), Compiled(self.known)
        self._explained: Bytecodes | None = None

    def take(self, message: Bytecodes | Paths) -> None:
        if isinstance(message, Bytecodes):
            self._explained = message
            return
        said, self._explained = self._explained, None
        if said is not None and said.explains(message):
            numbers = np.concatenate((said.methods["method"], said.events["method"]))
            self.known.meet(numbers, self._graphs, [m for m, _ in said.names])
            self.interpreted.take(said, message)
        self.compiled.take(message, self._graphs)

    def executed(self) -> list[Executed]:
        """Methods of which anything ran, in the order in which they were met."""
        paths = self.interpreted.paths()
        bounds = np.searchsorted(paths[:, 0], np.arange(len(self.known.methods) + 1))
        times, ran = np.zeros(self.known.nodes, np.int64), np.zeros(self.known.nodes, np.bool_)
        for column, counted in ((times, self.interpreted.times), (ran, self.compiled.ran)):
            column[: len(counted)] = counted[: len(column)]
        found = [
            Executed(m, times[m.nodes], ran[m.nodes], paths[a:b, 1:])
            for m, a, b in zip(self.known.methods, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]
        return [e for e in found if e.times.any() or e.compiled.any()]


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

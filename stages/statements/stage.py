"""Bytecodes one by one, pane by pane: Bytecodes and Paths in, statement reports out. All that comes in is passed on.

What is counted is what was observed. A pane closes when the watermark has passed its end. Methods that were met are
kept with their graphs; with more than `MOST_NODES` instructions the open panes are told, and all begins anew: what
comes of a pane then is a second report of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stages.images import Images, ProcessKey
from stages.messages import Bytecodes, EndOfStream, JitBatch, Paths, StatementReport, StreamOpen, ThreadEnd, Watermark
from stages.statements.methods import Graphs
from stages.statements.report import Reporter
from stages.statements.statements import Process

MOST_NODES = 1 << 20
"""Instructions of the methods of a process that are kept: some 130 bytes each."""

LARGEST = 1 << 13
"""Instructions of a method whose paths are numbered."""


@dataclass(slots=True)
class Traced:
    """One process, kept as long as the worker. Panes go when they are told, a thread's frames at its end; methods go
    when there are too many, those of unloaded classes with them."""

    process: Process
    reporter: Reporter = field(init=False)
    closed: int = -1
    strange: int = 0  # of those before `process`

    def __post_init__(self) -> None:
        self.reporter = Reporter(self.process.known)


class StatementStage:
    def __init__(
        self, graphs: Callable[[str, int], Graphs], worker: int = 0, images: Images | None = None, *,
        pane_seconds: float = 1.0, pane_ticks: int = 0, most_nodes: int = MOST_NODES,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """`graphs`: of a process, by host and pid. Seconds become ticks by the first stream's clock, unless ticks are
        given. `ready`: whether its kernels are there; before, nothing is counted."""
        self.worker, self._graphs, self._ready = worker, graphs, ready
        self.images = images or Images()
        self._pane_seconds, self._pane_ticks, self._most_nodes = pane_seconds, pane_ticks, most_nodes
        self._processes: dict[ProcessKey, Traced] = {}
        self._renewed = 0

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps: None between two of them."""
        match message:
            case Bytecodes() | Paths():
                yield from self._take((message.host, message.pid), message)
            case Watermark():
                key = message.host, message.pid
                done = message.tsc // self._ticks(key) - 1
                if self.images.of(*key).clocked and key in self._processes and done > self._processes[key].closed:
                    yield from self._report(key, done)
                self.images.take(message)
            case JitBatch() | StreamOpen():
                yield from self.images.steps(message)
            case ThreadEnd():
                if (p := self._processes.get(message.thread[:2])) is not None:
                    p.process.interpreted.forget(message.thread.tid)
            case EndOfStream():
                yield from self.flush_steps()
        yield message

    def flush(self) -> list[object]:
        """Nothing more comes: every pane is told."""
        return [out for out in self.flush_steps() if out is not None]

    def flush_steps(self) -> Iterator[object]:
        """`flush` in steps, as `steps`."""
        for key, p in self._processes.items():
            yield from self._report(key, max([*p.process.panes, p.closed]))

    def statistics(self) -> dict[str, int | float]:
        every = self._processes.values()
        return {
            "statements_methods": sum(len(p.process.known.methods) for p in every),
            "statements_bytecodes": sum(p.process.known.nodes for p in every),
            "statements_panes": sum(len(p.process.panes) for p in every),
            "statements_strange": sum(p.strange + p.process.interpreted.strange for p in every),
            "statements_renewed": self._renewed,
        }

    def _take(self, key: ProcessKey, message: Bytecodes | Paths) -> Iterator[object]:
        if key not in self._processes:
            self._processes[key] = Traced(Process(self._graphs(*key), largest=LARGEST))
        p = self._processes[key]
        if not self._ready():
            if isinstance(message, Paths):
                p.process.skip(message)
            return
        yield from p.process.steps(message, self._ticks(key))
        if p.process.known.nodes > self._most_nodes:
            yield from self._report(key, max(p.process.panes, default=-1))
            self._renewed += 1
            p.strange += p.process.interpreted.strange
            p.process = Process(self._graphs(*key), p.process.compiled.dictionary, LARGEST)
            p.reporter = Reporter(p.process.known)

    def _ticks(self, key: ProcessKey) -> int:
        """Of a pane."""
        return self._pane_ticks or max(1, round(self._pane_seconds * self.images.of(*key).hz))

    def _report(self, key: ProcessKey, upto: int) -> Iterator[StatementReport | None]:
        p = self._processes[key]
        for number in sorted(n for n in p.process.panes if n <= upto):
            yield from p.reporter.reports((*key, self.worker, number), p.process.panes.pop(number))
        p.closed = max(p.closed, upto)

"""A program's truth, and a recording of it under the emulated PT, followed with losses: the two that are compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.executed import Executed
from benchmarks.accuracy.losses import Loss
from benchmarks.accuracy.methods import Methods
from benchmarks.accuracy.splice import Splice
from benchmarks.flow_truth.record import NAME
from capture.live.drain import Message
from capture.recording.replay import Replay
from jvm.export.parse import iter_records
from jvm.export.records import RecordType, ThreadStart
from stages.messages import JitBatch, PaneReport, Paths, Recovered, StreamOpen
from stages.reconstruct.stage import Reconstruct
from streamer import config
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle

PANE_SECONDS = 0.1
"""So short that the tables can be read from the time on from which there is a truth."""


class Reports:
    """The tables' invocations, and executed bytecodes."""

    def __init__(self) -> None:
        self._panes: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self._names: dict[int, str] = {}
        self.ticks = 1  # of a pane

    def take(self, message: object) -> None:
        if isinstance(message, PaneReport):
            self._names |= dict(message.names)
            for rows in (message.profile, message.recovered):
                for column in ("invocations", "bytecodes"):
                    counts = self._panes[message.pane][column]
                    for row in rows[rows[column] > 0]:
                        counts[self._names[int(row["method"])]] += int(row[column])

    def counts(self, column: str, since: int) -> Counter[str]:
        """`invocations` or `bytecodes` of all threads, observed and of fillings, from the pane of that time on."""
        out = Counter[str]()
        for pane, counts in self._panes.items():
            if pane >= since // self.ticks:
                out.update(counts[column])
        return out


@dataclass
class Found:
    """Of a recording."""

    executed: Executed  # with `recover`: holes are filled in it
    reports: Reports
    threads: dict[str, tuple[int, int]]  # by name: tid, and since when; `main` from when the VM is initialised
    bytes: int
    all_bytes: int


def found(directory: Path, numbers: Methods, loss: Loss | None = None, *, recover: bool = False) -> Found:
    """`directory`: of `benchmarks.flow_truth.record`."""
    switches: dict[str, Any] = {"flow.interpreted": True, "flow.recover": recover, "window.pane_seconds": PANE_SECONDS}
    settings = config.load(fidelity="flow", **switches)
    chain = make_chain(middle(settings), Place(settings, directory, 0))
    at = middle(settings).index("reconstruct")
    executed, reports, threads = Executed(numbers), Reports(), dict[str, tuple[int, int]]()
    if not recover:
        chain[at] = Reconstruct(pane_seconds=PANE_SECONDS, executed=executed.hear)
    between: list[object] = []  # it is gone through again, with the fillings in their places
    fillings: list[Recovered] = []
    sizes = Counter[str]()

    def take(outputs: Iterable[object]) -> None:
        for message in outputs:
            if message is None:
                continue
            if isinstance(message, Recovered):
                fillings.append(message)
            if recover:
                between.append(message)
            if isinstance(message, StreamOpen):
                reports.ticks = max(1, round(PANE_SECONDS * message.clock.hz))
            if isinstance(message, JitBatch):
                for name, thread in _threads(message):
                    threads.setdefault(name, thread)
            rest(feed_chain(chain[at:], message))

    def rest(outputs: Iterable[object]) -> None:
        for message in outputs:
            reports.take(message)

    with Replay(directory / f"{NAME}.json") as replay:
        for message in counted(loss(counted(replay.messages(), sizes, "all")) if loss else replay.messages(), sizes):
            take(feed_chain(chain[:at], message))
        take(flush_chain(chain[:at]))
        rest(flush_chain(chain[at:]))
    if recover:
        splice, stage = Splice(fillings), Reconstruct(executed=executed.hear)
        for passed in between:
            for _ in stage.steps(splice(passed) if isinstance(passed, Paths) else passed):
                pass
    executed.end()
    return Found(executed, reports, threads, sizes["kept"], sizes["all"] or sizes["kept"])


def counted(messages: Iterable[Message], sizes: Counter[str], name: str = "kept") -> Iterable[Message]:
    for message in messages:
        sizes[name] += len(getattr(message, "data", ())) if type(message).__name__ == "Chunk" else 0
        yield message


def _threads(batch: JitBatch) -> Iterator[tuple[str, tuple[int, int]]]:
    for record in iter_records(batch.data, only={int(RecordType.THREAD_START)}):
        if isinstance(record, ThreadStart):
            yield record.name, (record.os_tid, record.tsc)

"""A recording's tree with the cycles of a cost table, and all else that an estimate needs of the recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from capture.live.drain import Message
from jvm import names
from jvm.export.parse import iter_records
from jvm.export.records import ExportError, Method
from stages.cct.views import View
from stages.messages import CodeKind, JitBatch, PaneReport
from streamer.crossprofile.estimate import Estimate, estimated
from streamer.crossprofile.table import CostTable
from streamer.trees.source import of_recording


class _Sizes:
    """Bytes of bytecode by method, as trees name it; of several that have one name the largest."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def through(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, JitBatch):
                self._take(message)
            yield message

    def _take(self, batch: JitBatch) -> None:
        try:
            for record in iter_records(batch.data):
                if isinstance(record, Method):
                    name = names.display(record.class_signature, record.name)
                    self.found[name] = max(self.found.get(name, 0), record.code_size)
        except ExportError:  # the image counts it
            return


class _Interpreted:
    """How many invocations the interpreter ran, by method."""

    def __init__(self) -> None:
        self.found = Counter[str]()
        self._names: dict[tuple[str, int, int], str] = {}

    def take(self, message: object) -> None:
        if not isinstance(message, PaneReport):
            return
        process = message.host, message.pid
        self._names |= {(*process, number): name for number, name in message.names}
        rows = message.profile[message.profile["kind"] == CodeKind.INTERPRETED]
        for number, times in rows[["method", "invocations"]].tolist():
            self.found[self._names.get((*process, number), "")] += times


def of(path: Path, table: CostTable, say: Callable[[str], None]) -> Estimate:
    """Raises OSError, PerfDataError."""
    sizes, interpreted = _Sizes(), _Interpreted()
    saved = of_recording(
        path, say, through=sizes.through, last="profile", told=interpreted.take, options={"costs": table.cycles}
    )
    return estimated(View(threads=True).of(saved.tree), table, interpreted.found, sizes.found)

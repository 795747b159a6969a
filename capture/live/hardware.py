"""Intel PT of the JVM in a session: known when its agent's export is there, traced from when it has told where its code
lies. Code that ran before that (the JVM's start) has no trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from capture.live.perf_event import HardwareError, HardwareSource
from capture.live.source import FoundRing, process_start
from capture.perf.records import SAMPLE_TYPE
from jvm.export.parse import iter_records, whole_records
from jvm.export.records import CodeCache, ExportError, RecordType
from jvm.export.ring import open_export
from stages.messages import PtConfig


class SessionHardware:
    """A `Source`. Its methods raise HardwareError when the kernel does not let us trace."""

    lasting = False  # an event ends with the last descriptor of it

    def __init__(
        self, session: Path, host: str, *, per_cpu: bool = False, aux_size: int, data_size: int, pmu: Path | None = None
    ) -> None:
        """`session` gets the export (`jit-<pid>.export`) of the JVM to trace; sizes of each ring in bytes, powers of
        two of pages."""
        self._session, self._host, self._pmu = session, host, pmu
        self._per_thread, self._aux_size, self._data_size = not per_cpu, aux_size, data_size
        self._source: HardwareSource | None = None
        self._seen = 0  # bytes of the export
        self.faults: list[str] = []
        self.pid = 0

    @property
    def sample_type(self) -> int:
        return SAMPLE_TYPE

    def config(self) -> PtConfig | None:
        if self._source is None:
            self._open()
        return self._source.config() if self._source else None

    def wall_zero(self) -> None:
        return None

    def new_rings(self) -> Iterator[FoundRing]:
        if self._source is not None:
            yield from self._source.new_rings()

    def ended(self) -> bool:
        return self._source.ended() if self._source else bool(self.pid) and not process_start(self.pid)

    def _open(self) -> None:
        code = self._code_cache()
        if code is not None and process_start(self.pid):
            try:
                self._source = HardwareSource(
                    self.pid, self._host, code, per_thread=self._per_thread,
                    aux_size=self._aux_size, data_size=self._data_size, pmu=self._pmu,
                )  # fmt: skip
                self.faults = self._source.faults
            except HardwareError:
                if process_start(self.pid):
                    raise

    def _code_cache(self) -> tuple[int, int] | None:
        """Its range, as soon as the agent has told it."""
        for path in self._session.glob("jit-*.export"):
            match = re.fullmatch(r"jit-(\d{1,9})\.export", path.name)
            if match is None:
                continue
            try:
                self.pid, _, records = open_export(path)
                data = records[self._seen :]
                whole = whole_records(data)
                for record in iter_records(data[:whole], only={RecordType.CODE_CACHE}):
                    if isinstance(record, CodeCache):
                        return record.low, record.high
                self._seen += whole
            except (OSError, ExportError) as error:
                self.faults = [f"{path.name}: {error}"]
            return None
        return None

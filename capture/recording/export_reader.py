"""The export file of a recording, handed out front to back as whole records.

Damage is left out: an OVERFLOW record stands in its place, so that a reader knows that something was not told there,
and `told` has a line on it. Batches of a recording of ours have sizes (capture.recording.metadata), so damage never
reaches beyond its batch; elsewhere the next record is found by its checksum.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from capture.perf.perf_data import PerfDataError
from capture.recording.packed import map_file
from jvm.export import seal
from jvm.export.records import ExportError
from jvm.export.ring import export_of
from stages.messages import U8


class ExportReader:
    def __init__(self, path: Path) -> None:
        """Raises PerfDataError when `path` is no export, OSError."""
        self.path = path
        view = map_file(path)
        try:
            _, self._sealed, self._records = export_of(view, str(path))
        except ExportError as error:
            raise PerfDataError(str(error)) from error
        self._base = len(view) - len(self._records)
        self.rewind()

    def rewind(self) -> None:
        self._at = self._lost = 0
        self.damaged = 0  # places so far
        self.told = ""  # of the first of them

    def take(self, size: int) -> U8:
        """The records in the next `size` bytes. Raises PerfDataError if there are not so many."""
        if size > len(self._records) - self._at:
            raise PerfDataError(f"{self.path}: cut at {self._at} of at least {self._at + size} bytes of records")
        return self._whole(seal.spans(self._records[self._at : self._at + size], self._sealed))

    def take_some(self, most: int) -> U8:
        """Some records, at most `most` bytes unless one alone is larger; empty at the end, where a record that a dead
        writer left cut is none."""
        rest = self._records[self._at :]
        for limit in (most, int.from_bytes(rest[:4], "little")):
            found = seal.spans(rest[:limit], self._sealed)
            if found and found[-1].cut and (len(found) > 1 or len(rest) <= limit):
                found.pop()  # the limit's cut, or the last record of a writer that died
            if found and not found[-1].cut:
                return self._whole(found)
        return np.zeros(0, np.uint8)

    def _whole(self, found: list[seal.Span]) -> U8:
        """The bytes of `found`, spans from here on."""
        start = self._at
        self._at += found[-1].end if found else 0
        if all(not span.fault for span in found):
            return np.frombuffer(self._records[start : self._at], np.uint8)
        pieces: list[memoryview | bytes] = []
        for span in found:
            if span.fault:
                self._lost += span.end - span.start
                self.damaged += 1
                self.told = self.told or f"{self.path}: {span.told(self._base + start)}"
                pieces.append(seal.lost(self.damaged, self._lost))
            else:
                pieces.append(self._records[start + span.start : start + span.end])
        return np.frombuffer(b"".join(pieces), np.uint8)

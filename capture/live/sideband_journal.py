"""The records that still matter for a ring's trace: the last thread switch, and all that came since.

Records are read as they come, trace is taken in pieces. So a record has often been read long before the last byte that
it explains is taken; and the switch to the running thread was told once, maybe minutes ago. A capture process or a
worker that begins anew has to hear it, or the trace that is still to come belongs to no thread.

Records are kept in batches as they were read. An AUX record closes what was written before it, so once its bytes have
been taken, of the batches before its own only one matters: the last that names the running thread.

Where rings outlive the process that drains them, a file has the same: u64 magic, then sealed records
(`jvm.export.seal`), one for each batch: their value is the position in the data ring behind the batch, their body the
batch as it came. It is appended to before the ring's tail moves, and replaced as a whole when it has grown. So a
killed process leaves all batches but for a cut last one, and the position tells which of them are in the ring as well.
Where the file is damaged the thread that ran then is not known: only the batches behind the damage are believed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capture.perf.records import Side, Words, starts
from jvm.export import seal
from jvm.inputfile import read_input
from stages.messages import SIDE_DTYPE, SideKind

MAGIC = b"JTSTOLD2"
_BATCH = 1  # type of the sealed records
_SEAL = 3  # words of their headers
GROWN = 1 << 13  # words of the file beyond twice the kept ones, before it is replaced
MAX_FILE = 64 << 20
_WHO = np.zeros(max(SideKind) + 1, np.bool_)  # by kind: whether a record of it names the running thread
_WHO[[SideKind.SWITCH_IN, SideKind.SWITCH_OUT, SideKind.ITRACE_START, SideKind.LOST]] = True
_NEVER = (1 << 64) - 1
_NOTHING: Words = np.zeros(0, np.uint64)


class _Batch(NamedTuple):
    rows: Side
    words: Words
    closes: int  # end of the trace that its first AUX record tells of
    who: bool  # it names the running thread


class Told:
    def __init__(self, path: Path | None = None) -> None:
        """`path`: the file, None for none. A predecessor's records there are `left`, the last of them ends at
        `left_end` of the data ring; they are kept only when they are told again (`restart`). A file that is none is
        taken for none. `damage` says where it is damaged, else it is empty."""
        self._path, self._fd = path, -1
        self._batches: list[_Batch] = []
        self._in_file = 0
        self.damage = ""
        self.left, self.left_end = self._load() if path is not None else (_NOTHING, 0)

    @property
    def rows(self) -> Side:
        """All that is kept, in order."""
        return np.concatenate([batch.rows for batch in self._batches]) if self._batches else np.zeros(0, SIDE_DTYPE)

    def restart(self, rows: Side, words: Words, end: int) -> None:
        """Instead of all that was there: `words`, which are `rows`, end at `end` of the data ring."""
        self._batches = []
        self._keep(rows, words)
        self._replace(end)

    def add(self, rows: Side, words: Words = _NOTHING, end: int = 0) -> None:
        """The next records; to be called before the ring's tail moves to `end`. For the file: they are `words`."""
        self._keep(rows, words)
        if self._path is None:
            return
        if self._fd >= 0 and self._in_file <= 2 * sum(len(batch.words) for batch in self._batches) + GROWN:
            self._write(b"", words, end)
        else:
            self._replace(end)

    def taken(self, tail: int) -> None:
        """The trace before `tail` has been taken."""
        closing = next((i for i in reversed(range(len(self._batches))) if self._batches[i].closes <= tail), 0)
        if closing:
            who = next((b for b in reversed(self._batches[:closing]) if b.who), None)
            self._batches = [*([who] if who else []), *self._batches[closing:]]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _keep(self, rows: Side, words: Words) -> None:
        aux = rows[rows["kind"] == SideKind.AUX][:1]
        closes = int(aux["a"][0]) + int(aux["b"][0]) if len(aux) else _NEVER
        self._batches.append(_Batch(rows, words, closes, bool(_WHO[rows["kind"]].any())))

    # ---- the file

    def _load(self) -> tuple[Words, int]:
        assert self._path is not None
        try:
            data = read_input(self._path, MAX_FILE)
        except OSError:
            return _NOTHING, 0
        if data[: len(MAGIC)] != MAGIC:
            return _NOTHING, 0
        end = 0
        batches: list[Words] = []
        for span in seal.spans(data[len(MAGIC) :]):
            if span.fault:
                batches, end = ([], 0) if not span.cut else (batches, end)
                self.damage = "" if span.cut else f"{self._path}: {span.told(len(MAGIC))}"
                continue
            found = [*seal.values(data[len(MAGIC) + span.start : len(MAGIC) + span.end])]
            batches += [np.frombuffer(body, np.uint64) for _, body in found]
            end = found[-1][0]
        words = np.concatenate(batches) if batches else _NOTHING
        _, fault = starts(words)
        return (_NOTHING, 0) if fault else (words, end)

    def _replace(self, end: int) -> None:
        if self._path is None:
            return
        words = np.concatenate([batch.words for batch in self._batches])
        new = self._path.with_name(self._path.name + ".new")
        self.close()
        try:
            self._fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._in_file = 0
            if self._write(MAGIC, words, end):
                new.rename(self._path)
        except OSError:
            self._give_up()

    def _write(self, head: bytes, words: Words, end: int) -> bool:
        """False, and no file, if that cannot be: better none than one with a gap."""
        self._in_file += len(words) + _SEAL
        data = head + seal.record(_BATCH, end, words.tobytes())
        try:
            if os.write(self._fd, data) == len(data):
                return True
        except OSError:
            pass
        self._give_up()
        return False

    def _give_up(self) -> None:
        self.close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
        self._path = None

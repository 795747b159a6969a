"""Where rings come from: a `Source` names the traced process, how the trace is made, and the rings as they appear.

`EmulatedSource` is the session directory of an emulated PT (docs/emulator.md); `capture.live.perf_event` has the one
for the processor's own.
"""

from __future__ import annotations

import json
import os
import re
import select
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from capture.live.ring import PerfRing, RingError, drained_ring
from capture.perf.records import SAMPLE_TYPE
from jvm.faults import ExpectedError
from jvm.inputfile import read_input
from stages.messages import PtConfig, StreamKey

MAX_JSON = 16 << 20


class SessionError(ExpectedError):
    """The session directory, or a file in it, is damaged or of another kind."""


class FoundRing(NamedTuple):
    key: StreamKey
    ring: PerfRing


class Source(Protocol):
    """All methods return at once."""

    faults: list[str]  # rings that could not be used, one line each
    lasting: bool  # the rings outlive the process that drains them

    @property
    def pid(self) -> int:
        """The traced process; 0: not known yet."""

    @property
    def sample_type(self) -> int: ...

    def config(self) -> PtConfig | None:
        """How the trace is made; None: not known yet."""

    def wall_zero(self) -> int | None:
        """Wall time (ns since the epoch) at perf time 0, if the source knows it."""

    def new_rings(self) -> Iterator[FoundRing]:
        """Rings that were not there at the last call. The caller closes them."""

    def ended(self) -> bool:
        """The producers of the rings have ended."""


class LiveProcess:
    """One process, whoever has its pid later. To look whether it lives costs one system call."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def of(cls, pid: int) -> LiveProcess | None:
        """None: there is none."""
        try:
            return cls(pid, os.pidfd_open(pid))
        except OSError:
            return None

    @property
    def alive(self) -> bool:
        """Not when it is dead and not yet waited for."""
        return not self._poll.poll(0)


class EmulatedSource:
    lasting = True

    def __init__(self, directory: Path, host: str) -> None:
        """`directory` holds emulator.json and the rings (`<session>/pt`); it need not exist yet."""
        self.directory, self.host = directory, host
        self.faults: list[str] = []
        self._file = os.fspath(directory / "emulator.json")
        self._seen: set[str] = set()
        self._stamp = (0, 0)
        self._state: dict[str, Any] = {}
        self._config: PtConfig | None = None
        self._process: LiveProcess | None = None

    @property
    def pid(self) -> int:
        return _integer(self._state, "pid")

    @property
    def sample_type(self) -> int:
        return _integer(self._state, "sample_type") or SAMPLE_TYPE

    def config(self) -> PtConfig | None:
        self._read()
        return self._config

    def wall_zero(self) -> int | None:
        clock = self._state.get("clock")
        return _integer(clock, "wall_zero") or None if isinstance(clock, dict) else None

    def new_rings(self) -> Iterator[FoundRing]:
        if not self.pid:
            return
        try:
            entries = list(os.scandir(self.directory))
        except FileNotFoundError:
            return
        here = {entry.name for entry in entries}
        self._seen &= here  # rings of threads are removed
        for name in sorted(here - self._seen):
            self._seen.add(name)
            key = self._key(name)
            if key is None:
                continue
            try:
                yield FoundRing(key, PerfRing.open(self.directory / name))
            except RingError as error:
                self.faults.append(str(error))

    def _key(self, name: str) -> StreamKey | None:
        """`cpu<N>.ring`, `tid<N>-<number>.ring`."""
        found = re.fullmatch(r"(cpu|tid)(\d{1,9})(?:-(\d{1,18}))?\.ring", name)
        if found is None:
            return None
        cpu, tid = (int(found[2]), -1) if found[1] == "cpu" else (-1, int(found[2]))
        return StreamKey(self.host, self.pid, cpu, tid, int(found[3] or 0))

    def read_out(self) -> dict[StreamKey, int]:
        """How many bytes were written to each ring whose producer has ended and that has been drained."""
        self._read()
        found = {}
        for path in self.directory.glob("tid*.ring") if self.pid else ():
            key = self._key(path.name)
            head = drained_ring(path) if key is not None else None
            if key is not None and head is not None:
                found[key] = head
        return found

    def remove(self, key: StreamKey) -> None:
        """Removes the ring of a thread that has ended, and the records that capture kept of it, when all is accounted
        for."""
        for path in (self.directory / f"{ring_name(key)}.ring", told_file(self.directory.parent, key)):
            path.unlink(missing_ok=True)

    def ended(self) -> bool:
        self._read()
        return bool(self.pid) and (self._state.get("state") == "ended" or not self._alive())

    def _alive(self) -> bool:
        """Is it the same process still? A killed emulator leaves "running"; its pid may be taken again."""
        if self._process is None or self._process.pid != self.pid:
            self._process = LiveProcess.of(self.pid)
        return self._process is not None and self._process.alive

    def _read(self) -> None:
        """emulator.json, if it was replaced since. Raises SessionError."""
        try:
            status = os.stat(self._file)  # noqa: PTH116 (many times a second)
            stamp = (status.st_ino, status.st_mtime_ns)
            if stamp == self._stamp:
                return
            state = json.loads(read_input(Path(self._file), MAX_JSON))
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            raise SessionError(f"{self._file}: {error}") from error
        if not isinstance(state, dict) or state.get("version") != 1 or _integer(state, "pid") <= 0:
            raise SessionError(f"{self._file}: no description of an emulated PT of version 1")
        self._state, self._stamp, self._config = state, stamp, _pt_config(state)


def ring_name(key: StreamKey) -> str:
    return f"cpu{key.cpu}" if key.tid < 0 else f"tid{key.tid}-{key.number}"


def told_file(session: Path, key: StreamKey) -> Path:
    """Where capture keeps the records that explain trace which is still in the ring
    (`capture.live.sideband_journal`)."""
    return session / f"told-{ring_name(key)}.records"


def process_start(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0: there is none, or it is dead and not yet waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 (many times a second)
            fields = file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _integer(state: dict[str, Any], name: str, default: int = 0) -> int:
    value = state.get(name, default)
    return value if isinstance(value, int) and -1 <= value < 1 << 64 else default


def _pt_config(state: dict[str, Any]) -> PtConfig | None:
    match state.get("filter"):
        case [int(low), int(high)] if 0 <= low < high < 1 << 64:
            return PtConfig(
                family=_integer(state, "family"),
                model=_integer(state, "model"),
                filter_lo=low,
                filter_hi=high,
                mtc_shift=_integer(state, "mtc", -1),
                ctc_num=_integer(state, "ctc_num"),
                ctc_den=_integer(state, "ctc_den"),
                noretcomp=state.get("retcomp") is False,
                cyc=_integer(state, "cyc", -1) >= 0,
            )
    return None  # the JVM has not mapped its code cache yet

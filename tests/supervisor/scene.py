"""Tiny stages that count everything, so that tests can tell the fate of each chunk.

The source numbers the chunks of some streams and keeps its position in a file, as real capture has its in the rings:
a new incarnation goes on where the dead one was. The tally reports each chunk that it sees with its own incarnation;
the ledger at the end collects the reports.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import trio

from stages.messages import PROFILE_DTYPE, Account, Chunk, Clock, Loss, PaneReport, PtConfig, StreamKey, StreamOpen
from streamer.pipeline.topology import Place
from streamer.transport.output import Output

HOST = "host"
OPENED = StreamOpen(StreamKey(HOST, 0, 0, -1), PtConfig(), Clock(1, 0, 0, 0))
STATE_DTYPE = np.dtype([("position", "<i8"), ("sent", "<i8"), ("refused", "<i8")])
STATE_FILE = "source.state"


def stream(pid: int) -> StreamKey:
    return StreamKey(HOST, pid, 0, -1)


class Numbers:
    """A source. Options: `pids`; `chunks` of each stream (default: until stopped); `burst` between two pauses;
    `deaf` to `stop`; `wait`: for room instead of making holes."""

    def __init__(self, place: Place) -> None:
        options = place.options
        self._pids: list[int] = list(options["pids"])
        self._limit = int(options.get("chunks", 1 << 60))
        self._burst = int(options.get("burst", 20))
        self._deaf = bool(options.get("deaf", False))
        self._wait = bool(options.get("wait", False))
        self._stopped = False
        path = place.directory / STATE_FILE
        if not path.exists():
            np.zeros(len(self._pids), STATE_DTYPE).tofile(path)
        self._state = np.memmap(path, STATE_DTYPE, "r+")

    def introduction(self) -> Iterator[Any]:
        return iter([StreamOpen(stream(pid), OPENED.config, OPENED.clock) for pid in self._pids])

    async def run(self, output: Output) -> None:
        for message in self.introduction():
            await output.send(message)
        while not self._stopped and int(self._state["position"].min()) < self._limit:
            await output.heal(self.introduction)
            for _ in range(self._burst):
                for i, pid in enumerate(self._pids):
                    position = int(self._state["position"][i])
                    if position < self._limit:
                        self._state["position"][i] = position + 1
                        chunk = Chunk(stream(pid), position, position, np.full(10, position % 251, np.uint8))
                        sent = await output.send(chunk) if self._wait else output.try_send(chunk)
                        self._state["sent" if sent else "refused"][i] += 1
            await trio.sleep(0.002)

    def stop(self) -> None:
        self._stopped = not self._deaf

    def statistics(self) -> dict[str, int]:
        return {"position": int(self._state["position"].sum())}


class Tally:
    """Chunk → a report of it: decoded if its stream was opened before and its bytes are right."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._open: set[StreamKey] = set()
        self._held: list[PaneReport] = []

    def feed(self, message: Any) -> Iterable[Any]:
        if isinstance(message, StreamOpen):
            self._open.add(message.stream)
        if not isinstance(message, Chunk):
            yield message
            return
        if message.seq == self._place.options.get("poison", -1):
            raise RuntimeError("poisoned")
        right = message.stream in self._open and bool((message.data == message.seq % 251).all())
        account = Account(
            message.stream,
            message.seq,
            message.seq + 1,
            int(right),
            () if right else ((Loss.CODE_MISSING, 1),),
        )
        place = self._place
        report = PaneReport(
            HOST, message.stream.pid, place.index, place.incarnation, np.zeros(0, PROFILE_DTYPE), (), (account,)
        )
        self._held.append(report)
        if len(self._held) > 3:
            yield self._held.pop(0)

    def flush(self) -> Iterable[Any]:
        yield from self._held
        self._held = []

    def statistics(self) -> dict[str, int]:
        return {"held": len(self._held)}


class Pass:
    """A stage that only passes on."""

    def __init__(self, place: Place) -> None:
        self.passed = 0

    def feed(self, message: Any) -> Iterable[Any]:
        self.passed += 1
        return (message,)

    def flush(self) -> Iterable[Any]:
        return ()

    def statistics(self) -> dict[str, int]:
        return {"passed": self.passed}


def broken(place: Place) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


class Ledger:
    """The end: which chunk was reported, by which incarnation of which worker."""

    def __init__(self) -> None:
        self.seen: dict[int, Counter[int]] = {}
        self.by: Counter[tuple[int, int]] = Counter()  # (worker, incarnation) → chunks
        self.wrong = 0
        self.opened = 0

    def feed(self, message: Any) -> Iterable[Any]:
        if isinstance(message, PaneReport):
            (account,) = message.accounts
            self.seen.setdefault(message.pid, Counter())[account.start] += 1
            self.by[message.worker, message.pane] += 1
            self.wrong += 1 - account.decoded
        self.opened += isinstance(message, StreamOpen)
        return ()

    def flush(self) -> Iterable[Any]:
        return ()

    def statistics(self) -> dict[str, int]:
        return {"seen": sum(map(len, self.seen.values()))}

    def count(self, pid: int) -> int:
        return len(self.seen.get(pid, ()))


def source_state(directory: Path, pids: list[int]) -> dict[int, dict[str, int]]:
    state = np.fromfile(directory / STATE_FILE, STATE_DTYPE)
    return {pid: {name: int(state[name][i]) for name in ("position", "sent", "refused")} for i, pid in enumerate(pids)}

"""A session directory as an emulated PT and an agent would fill it, and drains on it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from capture.live.drain import Drain
from capture.live.duty import Duty
from stages.messages import StreamKey
from tests.capture import jitwriter
from tests.capture import perfwriter as w

PID = os.getpid()  # a process that lives
CPU0, CPU1 = StreamKey("h", PID, 0, -1), StreamKey("h", PID, 1, -1)
T = TypeVar("T")


class Session:
    """A session directory with a producer of rings in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 1000
        self.drains: list[Drain] = []
        (path / "pt").mkdir(parents=True)
        self.state: dict[str, Any] = {
            "version": 1, "state": "running", "pid": PID, "filter": [0x1000, 0x9000], "mtc": 3, "cyc": -1,
            "ctc_num": 204, "ctc_den": 2, "retcomp": True, "family": 6, "model": 142, "sample_type": 0x10086,
            "clock": {"mult": w.MULT, "shift": w.SHIFT, "zero": w.ZERO, "wall_zero": 5},
        }  # fmt: skip
        self.write_state()

    def write_state(self, **change: Any) -> None:
        self.state |= change
        new = self.path / "pt/new"
        new.write_text(json.dumps(self.state))
        new.rename(self.path / "pt/emulator.json")

    def ring(self, name: str = "cpu0", **sizes: int) -> w.Producer:
        return w.Producer(self.path / f"pt/{name}.ring", **sizes)

    def agent(self, size: int = 1 << 16) -> jitwriter.Agent:
        return jitwriter.Agent(self.path / f"jit-{PID}.ring", PID, size)

    def drain(self, **options: Any) -> Drain:
        drain = Drain(self.path, host="h", now=self.now, **options)
        self.drains.append(drain)
        return drain

    def now(self) -> int:
        self.clock += 1 << 30
        return self.clock


def of(kind: type[T], messages: Iterable[object]) -> list[T]:
    return [message for message in messages if isinstance(message, kind)]


class Plan(Duty):
    """On as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.on = True

    def at(self, now: float) -> bool:
        return self.on

"""`streamer` as a user starts it: a process of its own, in a runtime directory of its own, watched from outside.

Nothing of it may stay behind when it has ended: `Streamer.gone` looks for processes that inherited its environment
and for files left in the runtime directory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from capture.live.ring import PerfRing, RingError
from capture.live.source import SessionError
from streamer.pipeline.outcome import aux_heads

COMMAND = Path(sys.executable).with_name("streamer")
DROPPED, TIMES_FULL, OVERFLOWS = 3, 4, 5  # words of a ring's counters (docs/emulator.md)
PATIENCE = 400.0  # seconds; the machine may have much else to do
HOTTEST = ("Tiny.step", "[interpreter] invokestatic", "[interpreter] not explained: behind")
"""One of these is the hottest row of `Tiny`, whose loop is interpreted and calls a method in each round: by its name,
or, where the kernels that explain the interpreter are not there yet or that stage was behind, one of the others."""
T = TypeVar("T")


def until(condition: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """The first true value of `condition`. What lasts is asked for less often: most of it is asked of the hub, which
    shares the CPUs with the test, and its answers cost milliseconds."""
    end = time.monotonic() + seconds
    pause = 0.02
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not in {seconds:.0f} s: {what}")
        time.sleep(pause)
        pause = min(1.25 * pause, 0.25)
    return value


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str
    summary: dict[str, Any]

    @property
    def methods(self) -> dict[str, tuple[int, int, dict[str, float]]]:
        """The whole table of hot methods: instructions, invocations, share of each kind of code."""
        return {m["method"]: (m["weight"], m["invocations"], m["kinds"]) for m in self.summary["run"]["methods"]}

    @property
    def written(self) -> int:
        return sum(int(s["written"]) for s in self.summary["streams"])

    @property
    def decoded(self) -> int:
        return sum(int(s["decoded"]) for s in self.summary["streams"])

    def check_seen(self) -> None:
        """The loop of `Tiny` is in the table. Of shed trace, too, some is followed."""
        assert any(self.methods.get(name, (0,))[0] > 0 for name in HOTTEST)

    @property
    def lost(self) -> dict[str, int]:
        """Bytes in holes by cause."""
        return dict(self.summary["run"]["run"]["lost"])

    @property
    def holes(self) -> dict[str, int]:
        return dict(self.summary["run"]["holes"])

    def check_books(self) -> None:
        """The target's end was a good one, and its trace is decoded or in holes, to the byte, on every stream."""
        assert self.status == 0, self.err
        assert self.summary["target_status"] == 0
        assert self.summary["failed"] == []
        assert self.written > 0
        for stream in self.summary["streams"]:
            assert stream["written"] == stream["decoded"] + sum(stream["holes"].values()), stream
        assert sum(self.lost.values()) == sum(sum(s["holes"].values()) for s in self.summary["streams"])
        assert f"written {self.written:,} B = decoded" in self.out


class Streamer:
    def __init__(
        self, root: Path, *arguments: str | Path, env: Mapping[str, str] | None = None, err: int | None = None
    ) -> None:
        """`root` must have a short path: sockets are made below it. `err`: its stderr, instead of a file."""
        self.root, self.runtime = root, root / "rt"
        self._mark = f"STREAMER_RUNTIME_DIR={self.runtime}".encode()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("STREAMER_")}
        self._env = {**inherited, "STREAMER_RUNTIME_DIR": str(self.runtime), **(env or {})}
        self._out, self._err = root / "out", root / "err"
        with self._out.open("wb") as out, self._err.open("wb") as file:
            self.process = subprocess.Popen(
                [COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=file if err is None else err,
                env=self._env, cwd=root, start_new_session=True,
            )  # fmt: skip

    # ---- while it runs

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def out(self) -> str:
        return self._out.read_text()

    def _running(self) -> None:
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.err}"

    def get(self, path: str) -> str:
        """From its page; empty while the page does not answer."""
        self._running()
        url = re.search(r"serving (http://\S+?)/? \(page\)", self.err)
        if url is None:
            return ""
        try:
            with urllib.request.urlopen(f"{url[1]}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:  # /readyz says why not
            with error:
                return error.read().decode()
        except (OSError, urllib.error.URLError):
            return ""

    def component(self, name: str) -> dict[str, Any]:
        """A member's last statistics; empty before."""
        text = self.get("/api/statistics")
        return dict(json.loads(text)["components"].get(name, {})) if text else {}

    def metric(self, sample: str) -> float:
        """The value of a sample, written with its labels as /metrics shows it; 0 if it is not there."""
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def written(self) -> int:
        """Bytes of trace so far."""
        self._running()
        try:
            return sum(sum(aux_heads(path).values()) for path in self.runtime.glob("*") if path.is_dir())
        except (OSError, RingError, SessionError):
            return 0  # just being made

    def counter(self, word: int) -> int:
        """The sum of all rings' counters of that number, by the emulator."""
        self._running()
        total = 0
        for path in self.runtime.glob("*/pt/*.ring"):
            with closing(PerfRing.open(path)) as ring:
                total += ring.counter(word)
        return total

    def when_counter(self, word: int, least: int = 1) -> None:
        until(lambda: self.counter(word) >= least, f"counter {word} of the rings is {least}")

    def when_written(self, size: int) -> int:
        return until(lambda: self.written() if self.written() >= size else None, f"{size} bytes of trace")

    def decoded(self) -> float:
        """Bytes, as far as the hub has heard."""
        found = re.search(r"^streamer_decoded_bytes_total\S* (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def when_decoded(self, more: int = 1) -> None:
        """Until the hub has heard of so many bytes of decoded trace that it had not heard of."""
        least = self.decoded() + more
        until(lambda: self.decoded() >= least, f"{more} bytes more are decoded")

    def enough(self) -> None:
        """`Tiny enough` ends."""
        (self.root / "enough").touch()

    def pid(self, member: str) -> int:
        return until(lambda: int(self.component(member).get("pid", 0)), f"pid of {member}")

    def kill(self, *members: str) -> None:
        """kill -9 of all of them at once, and wait until they are back."""
        old = {member: self.pid(member) for member in members}
        for pid in old.values():
            os.kill(pid, signal.SIGKILL)

        def is_back(member: str) -> bool:
            now = self.component(member)
            return bool(now.get("up")) and now.get("pid") not in (0, old[member])

        for member in members:
            until(partial(is_back, member), f"{member} is back")

    # ---- its end

    def wait(self, seconds: float = PATIENCE) -> Ended:
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it hangs: {self.err}") from None
        summary = self.root / "summary.json"
        return Ended(
            status,
            self._out.read_text(),
            self.err,
            json.loads(summary.read_text()) if summary.exists() else {},
        )

    def processes(self) -> dict[int, str]:
        """All that inherited its environment: pid → command line."""
        found = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark in (directory / "environ").read_bytes().split(b"\0"):
                    found[int(directory.name)] = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # gone, or not ours
        return {pid: line for pid, line in found.items() if line}  # none: a zombie whose parent has not looked yet

    def members(self) -> dict[str, int]:
        """Processes that the supervisor started: name → pid. Also while the page does not answer."""
        lines = {pid: line.split() for pid, line in self.processes().items() if " streamer.pipeline.worker " in line}
        return {words[-1]: pid for pid, words in lines.items()}

    def check_gone(self) -> None:
        """No process of it is left, and no session."""
        until(lambda: not self.processes(), f"no process is left: {self.processes()}", 20)
        assert list(self.runtime.glob("*")) == []

    def end(self) -> None:
        """For the test's end, however it came about."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.kill()
        self.process.wait()

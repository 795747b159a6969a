"""How far a recording has been decoded, on stderr: a line that is written anew on a terminal, else one now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from streamer.hub.text import plain

TERMINAL_SECONDS = 0.2
LINE_SECONDS = 5.0
SURE = 0.03
"""Of the whole, before which the rest's time is not told: code is read first, and kernels are made ready."""
HINT_SECONDS = 3.0


class Progress:
    """`whole`: bytes of trace. `now`: monotonic seconds."""

    def __init__(
        self, name: str, whole: int, err: TextIO | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._whole, self._now = plain(name), max(1, whole), now
        self._err = sys.stderr if err is None else err
        self._terminal = self._err.isatty()
        self._began = now()
        self._told = self._began
        self._passed = 0

    def passed(self, size: int) -> None:
        """So many more bytes."""
        self._passed += size
        now = self._now()
        if now - self._told >= (TERMINAL_SECONDS if self._terminal else LINE_SECONDS):
            self._told = now
            self._write(self._text(now - self._began))

    def ended(self, *, kept: bool) -> None:
        """Of a slow one whose tree is not kept it is said how to be faster the next time."""
        if self._terminal:
            self._err.write("\r\x1b[K")
        if not kept and (seconds := self._now() - self._began) >= HINT_SECONDS:
            self._err.write(
                f"streamer: decoded {self._name} in {seconds:.0f} s; to read its tree at once the next time, keep it: "
                "streamer cct RECORDING --save FILE\n"
            )
        self._err.flush()

    def _text(self, seconds: float) -> str:
        share = min(1.0, self._passed / self._whole)
        rest = f", {seconds / share * (1 - share):.0f} s left" if share >= SURE else ""
        return f"streamer: decoding {self._name}: {share:.0%}{rest}"

    def _write(self, text: str) -> None:
        self._err.write(f"\r{text}\x1b[K" if self._terminal else f"{text}\n")
        self._err.flush()

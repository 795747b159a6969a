"""Keys from a terminal, as they are pressed."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections import deque
from types import TracebackType
from typing import Any

NAMED = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down", "\x1b[C": "right", "\x1bOC": "right",
    "\x1b[D": "left", "\x1bOD": "left", "\r": "enter", "\n": "enter", "\x7f": "back", "\x08": "back", "\x1b": "escape",
}  # fmt: skip
"""By the bytes of the terminal (ECMA-48: CSI and SS3 sequences)."""
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_CUT = re.compile(r"\x1b([\[O][0-9;]*)?$")
_SEQUENCE_SECONDS = 0.05  # within which the rest of a sequence comes


def keys(text: str) -> list[str]:
    """The keys that were pressed, by NAMED or as they are."""
    return [NAMED.get(key, key) for key in _KEY.findall(text)]


class Keyboard:
    """Inside it the terminal gives keys at once and does not echo them; Ctrl-C stays what it is. Where the input is no
    terminal there are no keys."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._before: Any = None  # the terminal's state, to be given back
        self._pressed: deque[str] = deque()

    def __enter__(self) -> Keyboard:
        try:
            file = sys.stdin.fileno()
            self._before = termios.tcgetattr(file)
            tty.setcbreak(file)
            self._file = file
        except (OSError, ValueError, AttributeError, termios.error):
            self._file = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def key(self, seconds: float) -> str:
        """The next key, or nothing after so long."""
        if not self._pressed:
            text = self._read(seconds)
            if _CUT.search(text):
                text += self._read(_SEQUENCE_SECONDS)
            self._pressed.extend(keys(text))
        return self._pressed.popleft() if self._pressed else ""

    def _read(self, seconds: float) -> str:
        if self._file is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._file], [], [], seconds)
        data = os.read(self._file, 64) if ready else b""
        if ready and not data:  # the terminal has gone
            self._file = None
        return data.decode(errors="replace")

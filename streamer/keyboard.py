"""Single keys from a terminal, as they are pressed."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any


class Keyboard:
    """Inside it the terminal gives keys at once and does not echo them; Ctrl-C stays what it is. Where the input is no
    terminal there are no keys."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._before: Any = None  # the terminal's state, to be given back

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
        if self._file is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._file], [], [], seconds)
        data = os.read(self._file, 1) if ready else b""
        if ready and not data:  # the terminal has gone
            self._file = None
        return data.decode(errors="replace")

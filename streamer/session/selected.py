"""The file in a session's directory that says of which threads contexts are kept.

`streamer contexts` writes it, the supervisor looks at it. The directory is its user's alone: a process that may write
there may end the session, too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from jvm.inputfile import read_input
from jvm.private import new_file

NAME = "contexts.json"
MOST_BYTES = 1 << 16


def write(directory: Path, words: dict[str, Any]) -> None:
    """Whole or not at all. Raises OSError."""
    new = directory / f"{NAME}.new"
    with os.fdopen(new_file(new), "w", encoding="utf-8") as file:
        json.dump(words, file)
    new.replace(directory / NAME)


def read(directory: Path) -> dict[str, Any] | None:
    """None: there is none. Raises OSError, ValueError."""
    try:
        words = json.loads(read_input(directory / NAME, MOST_BYTES))
    except FileNotFoundError:
        return None
    if not isinstance(words, dict):
        raise ValueError("no selection of threads")
    return words


class Watched:
    """The file as it was when it was looked at last."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._seen = directory, (0, 0)
        self.words: dict[str, Any] | None = None

    def changed(self) -> bool:
        """Whether it says something else now. Raises OSError, ValueError, once a change."""
        try:
            status = (self._directory / NAME).stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        seen = status.st_ino, status.st_mtime_ns
        if seen == self._seen:
            return False
        self._seen = seen
        before, self.words = self.words, read(self._directory)
        return self.words != before

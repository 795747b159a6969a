"""The JVM gets none of the capabilities that we were given to trace it, as by AmbientCapabilities= of a systemd unit.
An ambient capability goes on to every program that a process starts (capabilities(7))."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4


def without_capabilities() -> Callable[[], None] | None:
    """For a child, between fork and exec; None where there are none to drop."""
    told = re.search(r"^CapAmb:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if told is None or int(told[1], 16) == 0:
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork: it takes no lock behind it

    def drop() -> None:
        if prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return drop

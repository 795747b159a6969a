"""A process of ours does not outlive its parent, however that ends: not in the middle of compiling, when it hears
nothing, and not stopped, either. Linux's parent-death signal (prctl(2), PR_SET_PDEATHSIG)."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """From now on the kernel kills this process when the thread that started it ends; `parent` is that thread's
    process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def live_on() -> None:
    """`die_with` no longer holds."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)

"""Whether a process that is no child of ours still runs."""

from __future__ import annotations

import psutil


def has_ended(pid: int) -> bool:
    """True also of a zombie: its new parent, the machine's first process, may be slow to wait for it."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True

"""CPU time of other processes, as the kernel counts it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process, ended ones included; 0 if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Used:
    """CPU seconds of processes, of which some may end."""

    def __init__(self) -> None:
        self._by_pid: dict[int, float] = {}

    def total(self, pids: Iterable[int]) -> float:
        """Of these and of all that were given before."""
        self._by_pid |= {pid: seconds for pid in pids if (seconds := cpu_seconds(pid))}
        return sum(self._by_pid.values())

"""The owners of state: a stream, or a thread."""

from __future__ import annotations

from typing import NamedTuple


class StreamKey(NamedTuple):
    """One AUX buffer: a CPU (tid −1) or a thread (cpu −1). Thread ids come again: `number` tells the buffers of two
    threads with one id apart."""

    host: str
    pid: int
    cpu: int
    tid: int
    number: int = 0


class ThreadKey(NamedTuple):
    host: str
    pid: int
    tid: int

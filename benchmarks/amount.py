"""More of a recording, or less: whether the chain's cost is linear in bytes, and its memory flat.

Copies are of other processes: a process that did the same again would find its paths in the caches. Only names are
known by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from capture.live.drain import Message
from stages.messages import Chunk, EndOfStream, Sideband

APART = 1 << 22
"""Between the numbers of a process and its copy: a kernel gives none as high."""


def first(messages: Sequence[Message], share: float) -> list[Message]:
    """The beginning of a recording, up to that share of the bytes of trace, and its end."""
    left = share * sum(len(m.data) for m in messages if isinstance(m, Chunk))
    kept: list[Message] = []
    for message in messages:
        if isinstance(message, Chunk):
            left -= len(message.data)
        if left < 0:
            break
        kept.append(message)
    return [*kept, *(m for m in messages[len(kept) :] if isinstance(m, EndOfStream))]


def copies(messages: Sequence[Message], times: int) -> Iterator[Message]:
    """The recording of a process so many times, each time of another, behind each other."""
    for n in range(times):
        for message in messages:
            if not isinstance(message, EndOfStream):
                yield _of(message, APART * n)
    yield from (m for m in messages if isinstance(m, EndOfStream))


def _of(message: Any, more: int) -> Message:
    """The same of a process whose number is higher."""
    if isinstance(message, Sideband):
        records = message.records.copy()
        records["pid"] += np.where(records["pid"] == message.stream.pid, more, 0).astype(np.int32)
        message = replace(message, records=records)
    changed: dict[str, Any] = {}
    for name in ("stream", "thread"):
        if hasattr(message, name):
            changed[name] = getattr(message, name)._replace(pid=getattr(message, name).pid + more)
    if hasattr(message, "pid"):
        changed["pid"] = message.pid + more
    return replace(message, **changed)  # type: ignore[no-any-return]

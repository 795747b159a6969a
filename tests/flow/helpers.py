"""Bytes into a Flow, addresses out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.follow.flow import Flow, FlowOutput
from stages.follow.walk import path_sequence as orders
from stages.messages import MARK_DTYPE, MarkKind, Segment, StreamKey, ThreadKey

THREAD = ThreadKey("here", 1, 1)
STREAM = StreamKey("here", 1, 0, -1)


def segment(
    trace: bytes | NDArray[np.uint8],
    *,
    offset: int = 0,
    last_ip: int = 0,
    continues: bool = False,
    thread: ThreadKey = THREAD,
    times: list[tuple[int, int]] | None = None,
    tsc: tuple[int, int] = (0, 0),
) -> Segment:
    """`times`: (stream offset, TSC) of its time marks; `tsc`: at its ends."""
    data = np.frombuffer(trace, np.uint8) if isinstance(trace, bytes) else trace
    marks = np.zeros(len(times or ()), MARK_DTYPE)
    for mark, (at, when) in zip(marks, times or (), strict=True):
        mark["offset"], mark["tsc"], mark["kind"] = at, when, MarkKind.TIME
    return Segment(thread, STREAM, 0, offset, data, marks, last_ip, *tsc, continues)


def addresses(outputs: list[FlowOutput]) -> list[int]:
    return [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.order)]


def breaks(outputs: list[FlowOutput]) -> list[int]:
    return [int(cause) for out in outputs for cause in out.breaks["cause"]]


def decode(flow: Flow, trace: bytes) -> tuple[list[int], list[int]]:
    """The addresses that ran and the causes of breaks, of a trace in one piece."""
    outputs = flow.feed(segment(trace))
    return addresses(outputs), breaks(outputs)

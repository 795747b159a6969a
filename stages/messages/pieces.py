"""Pieces of segments whose code is known, on their way to their readers; and how far that has come."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.messages.keys import StreamKey
from stages.messages.loss import LossMark
from stages.messages.trace import MARK_DTYPE, U8

PIECE_DTYPE = np.dtype(
    [("tid", "<i4"), ("stream", "<i4"), ("number", "<i8"), ("offset", "<u8"), ("begin", "<i8"), ("end", "<i8"),
     ("mark", "<i8"), ("mark_end", "<i8"), ("last_ip", "<u8"), ("tsc", "<u8"), ("tsc_end", "<u8"),
     ("continues", "<i4"), ("arrival", "<i4")]
)  # fmt: skip
"""One piece of a segment: thread, stream (position in `streams`), segment number; where its bytes stand in the stream
(`offset`) and in `data` [begin, end); its marks [mark, mark_end); the IP and time before it, and the time at its end;
whether it follows the piece of its thread before it without a hole; Arrival."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of the segments of a process's threads, all that one release holds: by thread, each thread's in order of
    time. All that will ever be told of the code of their time has been told."""

    host: str
    pid: int
    drained: int  # TSC of the newest drain that has been heard of
    streams: tuple[StreamKey, ...]
    rows: NDArray[np.void] = field(metadata={"dtype": PIECE_DTYPE})
    data: U8
    marks: NDArray[np.void] = field(metadata={"dtype": MARK_DTYPE})  # offsets in their streams
    holes: tuple[tuple[int, LossMark], ...] = ()  # before the piece of that row
    ended: bool = False  # the source tells nothing more
    shed: bool = False  # not to be followed: of these only the addresses are read


@dataclass(frozen=True, slots=True)
class Watermark:
    """No piece of this process that begins earlier will come any more: panes before it can close."""

    host: str
    pid: int
    tsc: int

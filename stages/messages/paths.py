"""Control flow: which paths threads took, by number, and the dictionaries of those numbers.

A *block* is machine code that runs from its first instruction to the next place where a decoder needs a packet, over
direct jumps and calls; a *path* is the blocks passed between two packets, or the paths of one window of packets (each
of those of blocks). `order` holds path numbers in the order in which they were taken: a number ≥ FIRST_PATH is a path;
−n, directly behind a path, says that it came n times more; EMPTY is nothing; DISABLED says that tracing stopped here
(the next path begins where it resumed), BREAK that the path behind it does not follow from the one before (the next of
the row's `breaks` says why). Only whole blocks are told: a block that the end of a row finds under way is in the
thread's next row, or, behind a hole, in none.

`rows` say which thread each part of `order` is of. Each thread's are in order of time, each stream's in the order of
its bytes, in one message and from one to the next. Positions (`order`, `stop`, `broken` and their ends in `rows`;
`order` in `stops`; `order` and `confirmed` in `breaks`) are counted from the beginning of this message's arrays.

Both dictionaries only grow, within one generation: a message brings the rows that no message before it had, so a number
is explained by the first message that uses it, and a reader appends. A block is described by the code in which it was
walked, however that changes. With a new `generation` both begin anew, from their first number; threads and segments go
on, and a reader that keeps contexts keeps them by methods and addresses, not by numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stages.messages.keys import StreamKey
from stages.messages.loss import LossMark

I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

EMPTY, DISABLED, BREAK, FIRST_PATH = range(4)
"""Numbers in `order`."""


class Provenance(IntEnum):
    """Where a piece of control flow comes from."""

    OBSERVED = 1  # decoded from packets
    RECOVERED = 2  # copied from a matching segment
    GUESSED = 3  # a feasible way through the ICFG where nothing matched


class BlockEnd(IntEnum):
    """The end of a block."""

    UNKNOWN = 0  # its code changed before it could be told
    INDIRECT = 1  # indirect jump or call
    RETURN = 2
    FAR = 3  # system call, interrupt, far transfer
    CONDITION = 4  # conditional branch
    FILTER = 5  # left the IP filter
    NO_CODE = 6  # left the code that is known
    STUCK = 7  # bytes that are no instruction, or UD2
    LOOP = 8  # a loop without a packet, left by an asynchronous event or cut at a PSB: it is told as far as to the
    # first time that it came there, and how often it had gone round is not known
    EVENT = 9  # cut short: by an asynchronous event, or by a branch on the way that left the IP filter


class Way(IntEnum):
    """How a path left one of its blocks."""

    UNKNOWN = 0  # no conditional branch, or the path ends with the block
    TAKEN = 1
    NOT_TAKEN = 2


class PathKind(IntEnum):
    OF_BLOCKS = 0
    OF_PATHS = 1


BLOCK_DTYPE = np.dtype(
    [("start", "<u8"), ("last", "<u8"), ("tsc", "<u8"), ("version", "<i8"), ("range", "<i4"), ("ranges", "<i4"),
     ("length", "<i8"), ("instructions", "<i4"), ("ends", "<i4"), ("kind", "<i4"), ("bytecode", "<i4"),
     ("step", "<i4"), ("steps", "<i4"), ("cycle", "<i4"), ("cycles", "<i4"), ("guessed", "<i4"), ("_", "<i4")]
)  # fmt: skip
"""First and last instruction; the time as of which its code was read, and the code version it lies in (its number in
the code image; 0: none is known); its rows of `ranges`; its instructions' lengths, in `lengths` from `length` on;
BlockEnd; CodeKind; the interpreter's bytecode (0–255, −1: none); its rows of `steps`. LOOP: `cycles` has from
`cycle` on the distinct instructions that ran an unknown number of times. Positions are counted from the
generation's beginning. `last` of a block that did not get to its own end (LOOP, EVENT, FILTER, NO_CODE, STUCK) is the
address at which it was left: that instruction is not in it. `guessed`: so many of its ranges, the last ones, are in a
stub of which others would have given the same packets, and it is not known which of them the call led to; nor is it of
the blocks behind it, as far as to the end of the first that does not end in a CONDITION. All those stubs have one name,
and where they led is in the trace."""
RANGE_DTYPE = np.dtype([("lo", "<u8"), ("hi", "<u8"), ("instructions", "<i4"), ("calls", "<i4")])
"""Addresses [lo, hi) of a block that follow each other, in the order in which it runs: another begins behind each
direct jump or call. Empty where the block has no instruction. `calls`: 1 where its last instruction is a call, which
returns to `hi`; a call of the instruction behind it, by which code finds its own address, is none."""
STEP_DTYPE = np.dtype([("instructions", "<i4"), ("frame", "<i4"), ("frames", "<i4")])
"""So many instructions in a row of compiled code, and their inline stack in `frames`, innermost first."""
FRAME_DTYPE = np.dtype([("method", "<u4"), ("bci", "<i4")])  # the agent's method number, 0: unknown; −1: unknown
PATH_DTYPE = np.dtype([("link", "<i8"), ("links", "<i4"), ("kind", "<i4"), ("instructions", "<i8")])
"""Its rows of `links` (positions from the generation's beginning), PathKind, instructions on it."""
LINK_DTYPE = np.dtype([("number", "<i4"), ("way", "<i4")])
"""Position in `blocks` or `paths` (as PathKind says), counted from the generation's beginning; Way. In `paths` that
counts the FIRST_PATH numbers that are none."""
TAKEN_DTYPE = np.dtype(
    [("tid", "<i4"), ("stream", "<i4"), ("number", "<i8"), ("offset", "<u8"), ("end", "<u8"), ("tsc", "<u8"),
     ("tsc_end", "<u8"), ("order", "<i8"), ("order_end", "<i8"), ("stop", "<i8"), ("stop_end", "<i8"),
     ("broken", "<i8"), ("broken_end", "<i8"), ("continues", "<i4"), ("provenance", "<i4"), ("goes_on", "<i4"),
     ("arrival", "<i4")]
)  # fmt: skip
"""A thread's control flow in one piece of a segment: thread, stream (position in `streams`), segment number, bytes of
the stream [offset, end), time; its part of `order`, `stops`, `breaks`; whether it follows its thread's row before it
without a hole; Provenance; whether the piece goes on in its thread's next row. It does where a generation ended in it
(that row is in the next message), or there was no room for all of it in one row: of the last packet before `end` some
branches may stand in the next row then. Arrival."""
STOP_DTYPE = np.dtype([("order", "<i8"), ("tsc", "<u8")])
"""At that position in `order`, before the number there, it was that time. A row's first and last are its ends."""
BREAK_DTYPE = np.dtype(
    [("order", "<i8"), ("offset", "<u8"), ("cause", "<i4"), ("_", "<i4"), ("at", "<u8"), ("ip", "<u8"),
     ("confirmed", "<i8"), ("confirmed_offset", "<u8")]
)  # fmt: skip
"""Where a walk broke off (position of its BREAK in `order`; in the stream) and why (`Break`, or OVERFLOW), the
instruction it had reached, the address at which it goes on (0: at the next in the trace). The paths in `order` in
[confirmed, order) were not confirmed, and then the trace contradicted them: suspect. `confirmed_offset`: that place in
the stream."""
OVERFLOW = 10
"""`cause` of a break: an OVF packet. The walk before it is right, as far as it goes."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The control flow of a process's threads in one release."""

    host: str
    pid: int
    generation: int
    streams: tuple[StreamKey, ...]
    rows: NDArray[np.void] = field(metadata={"dtype": TAKEN_DTYPE})
    order: I32
    stops: NDArray[np.void] = field(metadata={"dtype": STOP_DTYPE})
    breaks: NDArray[np.void] = field(metadata={"dtype": BREAK_DTYPE})
    holes: tuple[tuple[int, LossMark], ...]  # before that row
    # the growth of the dictionaries: rows behind those of the messages before; `first_…` says behind how many
    first_block: int
    blocks: NDArray[np.void] = field(metadata={"dtype": BLOCK_DTYPE})
    ranges: NDArray[np.void] = field(metadata={"dtype": RANGE_DTYPE})
    lengths: U8
    cycles: NDArray[np.uint64]
    steps: NDArray[np.void] = field(metadata={"dtype": STEP_DTYPE})
    frames: NDArray[np.void] = field(metadata={"dtype": FRAME_DTYPE})
    methods: tuple[tuple[int, str], ...]  # names of the methods that `frames` brings for the first time
    first_path: int
    paths: NDArray[np.void] = field(metadata={"dtype": PATH_DTYPE})
    links: NDArray[np.void] = field(metadata={"dtype": LINK_DTYPE})
    drained: int = 0  # as in the `Pieces`: how late it is; 0: that is not known

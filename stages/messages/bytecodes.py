"""The interpreter's work: the control flow of `Paths` in bytecodes of methods.

A `Bytecodes` explains the `Paths` that comes directly behind it, completely: nothing of it comes later. Bytecodes that
it does not name are not known, or have more than one explanation.

Methods are numbered by the sender; `names` gives the meaning of a number before it is used, and again when it changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stages.messages.paths import Paths

METHOD_DTYPE = np.dtype(
    [("group", "<i4"), ("method", "<i4"), ("invocations", "<i8"), ("bytecodes", "<i8"), ("instructions", "<i8")]
)
"""In this group (a pane and a thread) the interpreter invoked that method and executed bytecodes of it; machine
instructions of the interpreter's code alone."""
KNOWN_DTYPE = np.dtype([("group", "<i4"), ("block", "<i4"), ("times", "<i8")])
"""So often a block of the interpreter's code ran for one of those methods."""


class FrameEvent(IntEnum):
    """The events of the interpreter's part of a thread's stack."""

    GOES_ON = 0  # nothing: the first of a row, for the bytecodes before the next
    ENTER = 1  # a method is invoked, a native one too: push
    FRAME = 2  # push, without an invocation: behind LOST, those that are there, the outermost first
    RETURN = 3  # pop
    UNWIND = 4  # pop, by an exception
    COMPILED = 5  # compiled code runs above the top frame from here on
    BACK = 6  # it has returned, or thrown: the top frame goes on
    OSR = 7  # pop, and compiled code takes its place
    UPCALL = 8  # the VM calls Java: push a boundary
    UPRETURN = 9  # pop the last boundary and all above it
    LOST = 10  # nothing is known of the stack any more: pop everything
    STACK = 11  # here the agent read the thread's whole stack; where it is another than was told, it is told behind it
    MOUNT = 12  # the carrier goes on in the frames of a virtual thread, that were left by an UNMOUNT
    UNMOUNT = 13  # it leaves the frames of a virtual thread, for another time


EVENT_DTYPE = np.dtype(
    [("row", "<i4"), ("kind", "<i4"), ("order", "<i8"), ("block", "<i4"), ("method", "<i4"), ("bci", "<i4"),
     ("_", "<i4"), ("bytecodes", "<i8")]
)  # fmt: skip
"""Row of the `Paths`; FrameEvent; position in `order` of the path in which it happens, and before which of its blocks
(a repetition −n at its own position has those of n passes, one behind the other); the method entered, or that
goes on behind a RETURN, UNWIND, BACK or UPRETURN (−1: unknown, or none); the bci in the frame below from which it was
called (−1: unknown, or by the VM; of a STACK: twice its number in `stacks`, and one more if the frame on top has
executed nothing yet, and is told by an ENTER behind it; of an UNMOUNT the number of the frames that are left, and of
the MOUNT that goes on in them, which may come earlier, or for frames of which nothing is told); bytecodes executed from
here to the next event, in the frame that is then on top."""

STACK_DTYPE = np.dtype(
    [("stack", "<i4"), ("method", "<i4"), ("tsc", "<u8"), ("pc", "<u8"), ("bci", "<i4"), ("interpreted", "<i4")]
)
"""A frame of a stack that the agent read; one stack's behind the other's, the outermost frame first. The stack's
number; the method, if the interpreter runs it (−1: it is not known); when it was read; where control goes on in the
frame; the bci (−1: a native method, or compiled code); whether it is the interpreter's."""


@dataclass(frozen=True, slots=True)
class Bytecodes:
    """Of one `Paths`. Groups are those of `stages.paths.groups.grouped`."""

    host: str
    pid: int
    generation: int
    first_path: int  # as in the `Paths`
    positions: int  # in its order
    methods: NDArray[np.void] = field(metadata={"dtype": METHOD_DTYPE})
    known: NDArray[np.void] = field(metadata={"dtype": KNOWN_DTYPE})
    events: NDArray[np.void] = field(metadata={"dtype": EVENT_DTYPE})  # by row; in the order in which they happened
    names: tuple[tuple[int, str], ...]
    behind: bool = False  # nothing was looked for, to keep up: the events only say that no stack is known
    bcis: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, np.uint16))
    """Of each bytecode that `events` count, one event's behind the other's, if they were asked for
    (`flow.each_bytecode`), and could all be told; else empty."""
    stacks: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, STACK_DTYPE), metadata={"dtype": STACK_DTYPE})

    def explains(self, paths: Paths) -> bool:
        """Whether it was made of that message."""
        mine = self.generation, self.first_path, self.positions
        return mine == (paths.generation, paths.first_path, len(paths.order))

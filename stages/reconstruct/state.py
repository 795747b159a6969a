"""What the matcher knows of a thread, in arrays for its kernels.

A *candidate* is a frame that may be on top of the interpreter's stack, and the cell of what lies below it; the frontier
has those that explain all tokens so far. A frame is a node of the ICFG (the bytecode that was dispatched last, in a
frame below: the call under way), or one of the codes below.

The *window* remembers the frontiers since there was more than one candidate: a step for each token that may change the
frame, with each candidate's own in the step before. When one candidate is left its way is followed back through the
window, and what lies in it gets its methods; until then the blocks that ran are kept beside.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
T = TypeVar("T")

# Frames that are no nodes.
NONE = -1
COMPILED = -2  # compiled code, however many frames of it
MAYBE = -4  # the same, or nothing: below the frames that took the place of a compiled one
UNKNOWN = -3  # a frame of the interpreter, of a method that is not known
BOUNDARY = -16  # and below: the VM calls Java, while the frame below it was in the state BOUNDARY − `packed`
NATIVE = -(1 << 14)  # and below: a native method, or one that the interpreter has code of its own for: NATIVE − method
COMPILED_AT = -(1 << 28)  # and below: compiled code that has made the call COMPILED_AT − place (`compiled.Places`)
BOTTOM = -(1 << 29)  # and below: below the first frame that is known, out of which method BOTTOM − 1 − method has
# returned; BOTTOM itself: out of one that is not known
NO_OP = 0xFF
EMPTY = 0  # the cell below the first frame that is known

CANDIDATES = 1 << 16  # in a frontier
BEGIN = (1 << 9, 1 << 12, 1 << 16)  # of an opcode so many instructions are looked at where nothing is known,
PATIENCE = (16, 64)  # and more after so many bytecodes without a rarer one
FEW_ENTRIES = 256  # methods that are entered alike, with which it begins
SURE = 12  # bytecodes that must fit the last candidate, where any method might have been the one
CARRIED = 256  # candidates that a thread takes along from one piece to the next
ELEMENTS, STEPS, BLOCKS = 1 << 18, 1 << 14, 1 << 16  # of the window
CELLS = 1 << 18
HASH = 1 << 18
EVENTS = 1 << 16
BACK_SEVERAL, BACK_NONE = -2, -1


class Phase(IntEnum):
    RUN = 0
    ENTERED = 1  # a method was entered, no bytecode of it dispatched
    BEHIND = 2  # the call under way in the frame on top has returned
    THROWN = 3  # an exception is thrown in the frame on top
    DEOPTIMISED = 4  # it has come in the place of a compiled one: its bytecode is executed again, or the next


class At(IntEnum):
    """Places in `State.at`."""

    PHASE = 0
    TAKEN = 1  # the branch jumps
    LAST = 2  # kind of the last bytecode
    ENTRY = 3  # how the last method was entered (`Entry`)
    CLEARED = 4  # locals cleared since
    COUNT = 5  # candidates in the frontier
    SCANNED = 6  # bytecodes since any method might have been the one; −1: never
    FALLBACK = 7  # then, the cell below that method; −1: it has returned
    DEPTH = 8  # of the stack above it
    WAITED = 9  # bytecodes since nothing is known
    ALONE = 10  # of the bytecodes SCANNED, those until one candidate was left
    BEFORE = 11  # where nothing is known: the opcodes before the last, NO_OP where it does not follow
    TOLD = 12  # whether the events so far tell the stack
    CALLED = 13  # the last call that compiled code has made (`compiled.Places`), −1
    HERE = 14  # where compiled code was last, −1
    # of the piece under way
    NEXT = 15  # candidates in the next frontier
    CELL = 16  # cells in use
    STEP = 17  # steps of the window
    ELEMENT = 18
    BLOCK = 19  # blocks that no method has got yet
    STAMP = 20
    SEEN = 21  # methods that have counts
    TOUCHED = 22  # blocks that have
    EVENT = 23
    ROW = 24
    ORDER = 25
    PASSED = 26  # passes of the path at that position
    SUSPECT = 27
    LAST_PATH = 28
    PART = 29  # of the order
    WORK = 30  # candidates made and looked at since it was asked
    METHODS = 31  # of the graph
    NUMBERS = 32  # agent's numbers of methods that may be known
    SITES = 33
    KEEP = 34  # bytecodes that `executed` has room for; 0: none are kept
    KEPT = 35
    AGREED = 36  # stacks that the agent read: what they were beside the frontier (`read_stacks`)
    CONTINUED = 37
    REPLACED = 38
    REFUSED = 39


CARRIED_SCALARS = 15


class Frames(NamedTuple):
    """Candidates of now: a frame, the cell below it."""

    node: I32
    cell: I32


class Candidates(NamedTuple):
    """And the candidate of the frontier before that led to it, or BACK_…; FrameEvent."""

    node: I32
    cell: I32
    back: I32
    event: I32


class Cells(NamedTuple):
    node: I32
    below: I32


class Steps(NamedTuple):
    """Row, and where in the order it happened; its first candidate in `elements`, its first block; how many bytecodes
    it is, and FORWARD: its blocks are of the frame of the next step; the candidate that was right, once one is left."""

    row: I32
    order: I64
    passed: I32
    first: I32
    block: I32
    flags: I32
    chosen: I32


class Hash(NamedTuple):
    key: I64
    stamp: I64
    at: I32


class Events(NamedTuple):
    """Columns of EVENT_DTYPE."""

    row: I32
    kind: I32
    order: I64
    block: I32
    method: I32
    bci: I32
    bytecodes: I64


BYTECODES, FORWARD = 3, 4  # of a step's flags
KEPT_BYTECODES = 1 << 18
"""More than a call of `walk` finds: BUDGET of blocks, one path more, and the window."""


class Executed(NamedTuple):
    """The bytecodes that are sure, in the order in which they ran: position in `order`, node; where the stack changes,
    −FrameEvent in place of a node."""

    order: I64
    node: I32


class State(NamedTuple):
    at: I64
    front: Frames
    next: Candidates
    cells: Cells
    steps: Steps
    elements: Candidates
    block: I32  # those that ran in the window
    hash: Hash
    events: Events
    executed: Executed


def new_state(executed: int = 0) -> State:
    """`executed`: room for bytecodes, if they are to be kept."""

    def columns(kind: Callable[..., T], size: int, *long: str) -> T:
        names = kind._fields  # type: ignore[attr-defined]
        return kind(*(np.zeros(size, np.int64 if name in long else np.int32) for name in names))

    state = State(
        np.zeros(len(At), np.int64), columns(Frames, CANDIDATES), columns(Candidates, CANDIDATES),
        columns(Cells, CELLS), columns(Steps, STEPS + 1, "order"), columns(Candidates, ELEMENTS),
        np.zeros(BLOCKS, np.int32), columns(Hash, HASH, "key", "stamp"), columns(Events, EVENTS, "order", "bytecodes"),
        columns(Executed, max(executed, 1), "order"),
    )  # fmt: skip
    state.cells.node[EMPTY] = NONE
    state.at[At.CELL], state.at[At.KEEP] = 1, executed
    return state


class Counts(NamedTuple):
    """Of the group under way: by method, and by block. Zero between two groups."""

    invocations: I64
    bytecodes: I64
    instructions: I64
    seen: I32  # methods with counts
    times: I64  # by block
    touched: I32


def new_counts(methods: int, blocks: int) -> Counts:
    def zeros() -> I64:
        return np.zeros(methods, np.int64)

    seen, touched = np.zeros(methods, np.int32), np.zeros(blocks, np.int32)
    return Counts(zeros(), zeros(), zeros(), seen, np.zeros(blocks, np.int64), touched)

"""The flat arrays of a process's calling-context trees, and their columns.

There are two trees. *Activations* are of machine code: a call makes one below its caller's, known by its return
address and by the function that runs in it, so an activation is a whole stack and a thread's state one number. *Nodes*
are of Java: (parent, method, bci of the call). Each activation has a node; calls that a compiler inlined have nodes
below it, found from the inline stack of the instructions (`place`).

Rows are never moved or given up one by one: when one of the tables is half full, all are made anew, with the stacks
of the threads in them (`stages.cct.stage`). Memory is reserved for all rows and touched as they are used. Hash tables
use the beginning of theirs, twice as much each time that it is half full: few rows stay in the caches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.columns import pointers_to
from stages.fresh import zeros

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

# An activation: the one it was called from; its return address, or how it was called; its function; its node; the
# node that called it, and at which bci; of a HOLE, the stack before it, as far as that may lie below it, and all that
# may, should the caller that is presumed be wrong; of a frame of the interpreter that is seen by a return, as long as
# it is not told which method's it is, in A_BEFORE the unknown that it has called
AC = 8
A_PARENT, A_RETURN, A_FN, A_NODE, A_CALLER, A_BCI, A_BEFORE, A_WHOLE = range(AC)
# A_RETURN, where it is no address: not known, called by the interpreter (by a jump), by code outside of the filter
NO_RETURN, TO_INTERPRETER, TO_OUTSIDE = range(3)
BY_BYTECODE = -(1 << 20)  # and below: by a frame of the interpreter, at bci BY_BYTECODE − 1 − A_RETURN

# A node: its parent, method (position in the names), bci of the call in the parent, FLAG_…
NC = 4
N_PARENT, N_METHOD, N_BCI, N_FLAGS = range(4)
NODE_OVERFLOW, NODE_LINK, NODE_NOTED = 1, 2, 4
"""Of a node: it stands for all children that there was no room for; it stands for its parent's frame, in which its
children were called at its bci; it is one of `Tables.noted`."""

OWN_GAP = -(1 << 21)
"""And below: in the place of its bci, the number of a gap between frames of the interpreter."""

# Of an unknown's node: the node that is presumed to call from there (0: none is), and its bci
QC = 2
PRESUMED_NODE, PRESUMED_BCI = range(QC)

# A function: FN_… what kind it is, its method (position in the names)
FC = 2
F_CLASS, F_METHOD = range(2)
(
    FN_NMETHOD, FN_STUB, FN_UNPACKS, FN_UNWINDS, FN_INTERPRETER, FN_OUTSIDE, FN_PENDING, FN_HOLE, FN_BOTTOM, FN_LINKED,
    FN_THAWS, FN_RESOLVES,
) = range(12)  # fmt: skip
"""Compiled code; a stub; one that puts interpreted frames in the place of compiled ones; one that leaves the compiled
frame it came from, for an exception. Of one function each: the interpreter; code outside of the filter; a call of which
the callee is not seen yet; the unknown below the first frame that was seen after a hole; the ground below a thread's
first frame; an unknown of which the caller has been found out since. And a stub that goes on in the frames of a
virtual thread, which is mounted by it; one that binds the call that led to it."""
STUBS = FN_STUB, FN_UNPACKS, FN_UNWINDS, FN_THAWS, FN_RESOLVES
PENDING, INTERPRETER, OUTSIDE, HOLE, BOTTOM, LINKED, SHARED, FIRST_FN = range(8)
"""Functions. SHARED is of class FN_HOLE: the unknown below many holes of a thread, which is never linked."""

# A place in an nmethod's inline tree: the one above (0: the nmethod itself), the method, the bci of the call
PC = 3
P_UP, P_METHOD, P_BCI = range(3)

# An item: a run of a block's instructions of one function and place. How many instructions, executed bytecodes of
# the interpreter, entries of the function; ITEM_… ; where its call returns to, and the bci of that; what it stands for
IC = 10
I_FN, I_PLACE, I_INSTRUCTIONS, I_BYTECODES, I_INVOCATIONS, I_FLAGS, I_RETURN, I_BCI, I_INLINED, I_INLINED_END = range(
    10
)
ITEM_CALLS, ITEM_ENTERS = 1, 2  # ends in a call; begins at an entry of its function

# A block: its items; BlockEnd; address; place and bci of the instruction before it (a call that returns here); BLOCK_…;
# the calls inlined behind its branch, [begin, end) where it is taken, then where it is not
BC = 11
B_ITEM, B_ITEMS, B_ENDS, B_START, B_PLACE, B_BCI, B_FLAGS, B_WAYS = range(8)
BLOCK_HANDLER, BLOCK_STUB_START = 1, 2  # behind all that is described of its nmethod; a stub's first instruction

# Calls and bytecodes for which an instruction stands: a place, how many calls of it, and of its method's bytecodes
IN = 3
IN_PLACE, IN_TIMES, IN_BYTECODES = range(3)

# A step: a state and a path from there; the state behind; its parts, begin | end << ENDS; instructions on it; how many
# times it was made since it was settled, by certainty, and in how many ticks (see `Tables.ticks`), suspect ones
# excepted. A cache line. A state is activation << BEHIND | what the last block did.
SC = 8
S_STATE, S_PATH, S_NEXT, S_PARTS, S_INSTRUCTIONS, S_TIMES, S_SUSPECT, S_TICKS = range(SC)
ENDS = 32
LINE = 64
BEHIND = 4
WENT, RETURNED, STUB_RETURNED, UNPACKED, UNWOUND, JUMPED, LEFT, STARTED, LOST = range(9)
"""What the last block did: anything else; it returned; a stub did, into which the function had jumped; one that unpacks
did; one that unwinds jumped; another jump where a TIP says, or out of the filter; tracing went off behind a call, a
return or such a jump; nothing yet, of a thread that is new; there was a hole behind it."""

# A part of a step: a node, and what is added to it each time. Of a path of paths: −step of one of them, and how many
# times it is made in a row
RC = 4
R_NODE, R_INVOCATIONS, R_INSTRUCTIONS, R_BYTECODES = range(RC)
PARTS = 8
"""So many of them there is room for, a step."""
SPARE_PARTS = 64
"""So many rows at the end hold, for a while, those of a step for which there is no room."""

# A path: as in PATH_DTYPE, links | kind << KINDS. Besides, side by side: the last step over it; its instructions;
# whether it stays inside of the interpreter (stages.cct.interpreted), and how many bytecodes are executed on it then
XC = 3
X_LINK, X_LINKS, X_INSTRUCTIONS = range(XC)
KINDS = 32
BY_PATH = 4
LAST_STEP, INSTRUCTIONS, INSIDE, BYTECODES = range(BY_PATH)

# Of a node and pane: invocations, instructions, bytecodes; of each certainty
COUNTS = 3
OBSERVED, SUSPECT, CERTAINTIES = range(3)

# `size`: how many rows there are; what was counted; slots in use of the hash tables, less one; for how many rows there
# is room (of nodes, as many again for overflows); how many parts of a step come of one block at most; how many holes
# may yet have an unknown of their own in this pane, how many had none; steps that were worked out; whether callers are
# presumed, how many were, and of those that were found out later, how many were right, and wrong;
# stacks that were read, how many were known, and how many were not of the frame on top; gaps with a node of their own;
# virtual threads that went on in frames that are known
(
    Z_ACTIVATIONS, Z_NODES, Z_STEPS, Z_PARTS, Z_TOUCHED, Z_TOUCHED_LAST, Z_NOTED, Z_HOLES, Z_LINKS, Z_STRANGE,
    Z_OVERFLOW, Z_CALLS, Z_PARENTS, Z_STATES, Z_ACTIVATION_ROOM, Z_NODE_ROOM, Z_STEP_ROOM, Z_PART_ROOM, Z_MOST,
    Z_OWN_HOLES, Z_SHARED_HOLES, Z_MADE, Z_PRESUME, Z_PRESUMED, Z_PRESUMED_RIGHT, Z_PRESUMED_WRONG,
    Z_STACKS, Z_STACKS_AGREED, Z_STACKS_REFUSED, Z_GAPS, Z_MOUNTED, Z_SIZE,
) = range(32)  # fmt: skip
FEWEST_SLOTS = 1 << 12
# A virtual thread's stack that is put away: its number, and the activation on top (0: none)
PK = 2
PK_NUMBER, PK_STACK = range(PK)
PARKED = 1 << 16
"""So many are kept: one for each last digits of a number, the one that was put away last."""
DEEPEST = 1 << 14
"""Frames of a virtual thread that goes on on another carrier."""
ROW_BITS = 21
"""Of a slot of a hash table (stages.cct.slots): for as many rows as any table has."""

INLINED = 1 << 14
"""Rows of `Tables.inlined`."""


class Tables(NamedTuple):
    """A table's first row is none: of activations and nodes, the one for which there was no room. Hash tables:
    stages.cct.slots."""

    activation: I64  # (activations, AC)
    by_call: I32
    node: I64  # (nodes, NC)
    by_parent: I32
    presumed: I64  # (nodes, QC)
    inlined: I64  # (INLINED, 3): of a node and a place, by hash, the node below it; the last one that was looked for
    step: I64  # (steps, SC)
    by_state: I32
    ticks: NDArray[np.float64]  # the same memory as `step`, for S_TICKS
    suspect_ticks: NDArray[np.float64]  # (steps,)
    touched: I32  # (steps,) those that were made since: of paths of paths the first, others the last from the end
    part: I32  # (PARTS * steps, RC)
    part_of: I32  # (nodes,) the part of the node, if it is one of the step that is being made
    counts: I64  # (nodes, CERTAINTIES, COUNTS): zeros but from `settle` to `clear`
    spent: NDArray[np.float64]  # (nodes, CERTAINTIES)
    noted: I32  # (nodes,) to which of these something was added, each once
    parked: I64  # (PARKED, PK)
    way: I64  # (DEEPEST,) nothing between two calls
    one: I64  # (CERTAINTIES,) of a step for which there is no room: how many times it is made,
    one_ticks: NDArray[np.float64]  # and in how many ticks
    size: I64  # (Z_SIZE,)


class Blocks(NamedTuple):
    """A generation's paths, their blocks (stages.cct.contents), and what these refer to."""

    fns: I64  # (functions, FC)
    place: I64  # (places, PC)
    item: I64  # (items, IC)
    inline: I64  # (inlined calls, IN)
    block: I64  # (blocks, BC)
    path: I64  # (paths, XC)
    link: I32  # (links, 2) as LINK_DTYPE
    by_path: I32  # (paths, BY_PATH)


tables_at, blocks_at = pointers_to(Tables), pointers_to(Blocks)


def empty(activations: int, nodes: int, steps: int) -> Tables:
    """With so much room. Memory is touched as it is used. Raises ValueError for more rows than a slot can tell."""
    if max(activations, 2 * nodes, steps) > 1 << ROW_BITS:
        raise ValueError("too many rows")
    step = _lines(steps)
    t = Tables(
        zeros((activations, AC), np.int64), zeros(_slots(activations), np.int32),
        zeros((2 * nodes, NC), np.int64), zeros(_slots(2 * nodes), np.int32), zeros((2 * nodes, QC), np.int64),
        zeros((INLINED, 3), np.int64),
        step, zeros(_slots(steps), np.int32), step.view(np.float64), zeros(steps), zeros(steps, np.int32),
        zeros((PARTS * steps + SPARE_PARTS, RC), np.int32), zeros(2 * nodes, np.int32),
        zeros((2 * nodes, CERTAINTIES, COUNTS), np.int64), zeros((2 * nodes, CERTAINTIES)),
        zeros(2 * nodes, np.int32), zeros((PARKED, PK), np.int64), zeros(DEEPEST, np.int64),
        np.zeros(CERTAINTIES, np.int64), np.zeros(CERTAINTIES),
        np.zeros(Z_SIZE, np.int64),
    )  # fmt: skip
    t.size[[Z_ACTIVATION_ROOM, Z_NODE_ROOM, Z_STEP_ROOM, Z_PART_ROOM]] = activations, nodes, steps, len(t.part)
    t.size[[Z_ACTIVATIONS, Z_NODES, Z_STEPS]] = 1
    for k, slots in ((Z_CALLS, t.by_call), (Z_PARENTS, t.by_parent), (Z_STATES, t.by_state)):
        t.size[k] = min(FEWEST_SLOTS, len(slots)) - 1
    t.activation[0, A_FN] = HOLE
    return t


def _lines(steps: int) -> I64:
    memory = zeros(LINE * (steps + 1), np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin : begin + LINE * steps].view(np.int64).reshape(steps, SC)


def _slots(rows: int) -> int:
    return 1 << (2 * rows - 1).bit_length()

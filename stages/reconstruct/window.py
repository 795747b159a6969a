"""What is sure is counted and told; what is not waits in the window."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.icfg import ByOpcode
from jvm.kernels import inner
from stages.messages.bytecodes import FrameEvent
from stages.reconstruct.candidates import (
    AT,
    BEFORE,
    COUNT,
    E_COMPILED,
    E_ENTER,
    E_NONE,
    FALLBACK,
    PHASE,
    RUN,
    SCANNED,
    TAKEN,
    WAITED,
    is_bottom,
    is_boundary,
    owner,
)
from stages.reconstruct.state import (
    BACK_NONE,
    BYTECODES,
    COMPILED,
    ELEMENTS,
    EMPTY,
    EVENTS,
    FORWARD,
    NO_OP,
    NONE,
    STEPS,
)

STEP, ELEMENT, BLOCK, SEEN, TOUCHED, EVENT, ROW, TOLD = (
    AT[name] for name in ("STEP", "ELEMENT", "BLOCK", "SEEN", "TOUCHED", "EVENT", "ROW", "TOLD")
)
E_FRAME, E_LOST, E_UPCALL = int(FrameEvent.FRAME), int(FrameEvent.LOST), int(FrameEvent.UPCALL)
DEEPEST = 1024  # frames of a stack that are told when it is found again
ROOM = STEPS + 2 * DEEPEST + 4096  # events that a path may bring


class Blocks(NamedTuple):
    """What is known of the blocks and paths of a generation (`stages.reconstruct.landmarks`)."""

    first: NDArray[np.int32]  # by block: its tokens
    count: NDArray[np.int32]
    weight: NDArray[np.int32]  # by block: its instructions, if all are the interpreter's; else −1
    token: NDArray[np.uint8]
    argument: NDArray[np.int32]
    quiet: NDArray[np.uint8]  # by path: QUIET: nothing of the interpreter is on it; QUIET | RUNS_COMPILED
    templates: NDArray[np.uint8]  # (t, 2) opcodes, NO_OP
    index: ByOpcode  # of the graph


QUIET, RUNS_COMPILED = 1, 2


@inner
def _credit(c, s, m, invoked, bytecodes, instructions):  # type: ignore[no-untyped-def]
    if c.invocations[m] == 0 and c.bytecodes[m] == 0 and c.instructions[m] == 0:
        c.seen[s.at[SEEN]] = m
        s.at[SEEN] += 1
    c.invocations[m] += invoked
    c.bytecodes[m] += bytecodes
    c.instructions[m] += instructions


@inner
def credit_block(c, s, t, m, b):  # type: ignore[no-untyped-def]
    if m < 0 or t.weight[b] <= 0:
        return
    if c.times[b] == 0:
        c.touched[s.at[TOUCHED]] = b
        s.at[TOUCHED] += 1
    c.times[b] += 1
    _credit(c, s, m, 0, 0, t.weight[b])


@inner
def tell(s, kind, method, bci, order, passed):  # type: ignore[no-untyped-def]
    n = s.at[EVENT]
    if n >= EVENTS:
        s.at[TOLD] = 0
        return
    e = s.events[n]
    e["row"], e["kind"], e["order"], e["block"] = s.at[ROW], kind, order, passed
    e["method"], e["bci"], e["bytecodes"] = method, bci, 0
    s.at[EVENT] = n + 1


@inner
def _call_bci(g, s, cell):  # type: ignore[no-untyped-def]
    below = np.int64(s.cells[cell]["node"]) if cell != EMPTY else np.int64(NONE)
    return np.int64(g.nodes.bci[below]) if below >= 0 else np.int64(-1)


@inner
def _tell_stack(g, s, node, cell, order, passed):  # type: ignore[no-untyped-def]
    """The frames that are there, the outermost first."""
    tell(s, E_LOST, -1, -1, order, passed)
    frames, at = 1, cell
    while at != EMPTY and frames < DEEPEST:
        frames += 1
        at = np.int64(s.cells[at]["below"])
    stack = np.empty((frames, 2), np.int64)
    stack[0, 0], stack[0, 1], at = node, cell, cell
    for k in range(1, frames):
        stack[k, 0] = s.cells[at]["node"]
        at = np.int64(s.cells[at]["below"])
        stack[k, 1] = at
    for k in range(frames - 1, -1, -1):
        if stack[k, 0] == COMPILED:
            tell(s, E_COMPILED, -1, _call_bci(g, s, stack[k, 1]), order, passed)
        elif is_boundary(stack[k, 0]):
            tell(s, E_UPCALL, -1, -1, order, passed)
        elif not is_bottom(stack[k, 0]):
            tell(s, E_FRAME, owner(g, stack[k, 0]), _call_bci(g, s, stack[k, 1]), order, passed)
    s.at[TOLD] = 1


@inner
def sure(g, s, c, node, cell, event, flags, order, passed):  # type: ignore[no-untyped-def]
    """A step of which it is known what the frame on top is."""
    m = owner(g, node)
    if not s.at[TOLD]:
        _tell_stack(g, s, node, cell, order, passed)
    elif event == E_ENTER or event == E_COMPILED:  # noqa: SIM109 -- a tuple costs a kernel more
        tell(s, event, m, _call_bci(g, s, cell), order, passed)
    elif event != E_NONE:
        tell(s, event, -1, -1, order, passed)
    if m >= 0:
        invoked = 1 if event == E_ENTER else 0
        if invoked or flags & BYTECODES:
            _credit(c, s, m, invoked, flags & BYTECODES, 0)
        s.events[s.at[EVENT] - 1]["bytecodes"] += flags & BYTECODES


@inner
def lose(s):  # type: ignore[no-untyped-def]
    """Nothing is known any more."""
    s.at[COUNT] = s.at[STEP] = s.at[ELEMENT] = s.at[BLOCK] = s.at[TOLD] = s.at[WAITED] = s.at[TAKEN] = 0
    s.at[PHASE], s.at[SCANNED], s.at[FALLBACK], s.at[BEFORE] = RUN, -1, -1, NO_OP << 8 | NO_OP


# ---- the window


@inner
def remember(s, flags, order, passed):  # type: ignore[no-untyped-def]
    """A step whose frontier is that of now; its candidates' pasts are in `next_back`. Where there is no room left the
    window begins anew with it: what lies before has more than one explanation, or takes too long to find."""
    n = s.at[COUNT]
    if s.at[STEP] >= STEPS or s.at[ELEMENT] + n > ELEMENTS:
        s.at[STEP] = s.at[ELEMENT] = s.at[BLOCK] = s.at[TOLD] = 0
    k, first = s.at[STEP], s.at[ELEMENT]
    s.steps[k]["first"], s.steps[k]["block"], s.steps[k]["flags"] = first, s.at[BLOCK] if k else 0, flags
    s.steps[k]["order"], s.steps[k]["passed"] = order, passed
    for i in range(n):
        s.elements[first + i]["node"], s.elements[first + i]["cell"] = s.front[i]["node"], s.front[i]["cell"]
        s.elements[first + i]["back"], s.elements[first + i]["event"] = s.next[i]["back"], s.next[i]["event"]
    s.at[STEP], s.at[ELEMENT] = k + 1, first + n


@inner
def resolve(g, s, c, t):  # type: ignore[no-untyped-def]
    """One candidate is left: its way back through the window, and forward again, counted."""
    last = s.at[STEP] - 1
    first = last
    s.steps[last]["chosen"] = s.steps[last]["first"]
    while first > 0 and s.elements[s.steps[first]["chosen"]]["back"] >= 0:
        s.steps[first - 1]["chosen"] = s.steps[first - 1]["first"] + s.elements[s.steps[first]["chosen"]]["back"]
        first -= 1
    if s.elements[s.steps[first]["chosen"]]["back"] < 0:
        s.at[TOLD] = 0
    for k in range(first, last + 1):
        e, step = s.elements[s.steps[k]["chosen"]], s.steps[k]
        node, cell = np.int64(e["node"]), np.int64(e["cell"])
        sure(g, s, c, node, cell, e["event"], step["flags"], step["order"], step["passed"])
        whose = k
        if s.steps[k]["flags"] & FORWARD:
            if k == last:
                break
            whose = k + 1
        m = owner(g, np.int64(s.elements[s.steps[whose]["chosen"]]["node"]))
        for b in range(s.steps[k]["block"], s.steps[k + 1]["block"] if k < last else s.at[BLOCK]):
            credit_block(c, s, t, m, s.block[b])
    kept = np.int64(0)
    if s.steps[last]["flags"] & FORWARD:
        for b in range(s.steps[last]["block"], s.at[BLOCK]):
            s.block[kept] = s.block[b]
            kept += 1
    s.at[BLOCK], s.at[STEP], s.at[ELEMENT], s.at[SCANNED], s.at[FALLBACK] = kept, 0, 0, -1, -1


@inner
def root(s, order, passed):  # type: ignore[no-untyped-def]
    """The window begins with the frontier of now, whose past was told, or is not known."""
    for i in range(s.at[COUNT]):
        s.next[i]["back"], s.next[i]["event"] = BACK_NONE, E_NONE
    remember(s, 0, order, passed)
